//! What each move does.

use super::ground::{Ans, Cmd, Ground};
use super::moves::{Move, Why};
use super::shell::{Broken, Shell};
use super::world::{Actor, Body, Matter, Memory, Packet, World};

/// How long a message that was given back stays away.
const PAUSE_MS: i64 = 1_000;

/// How often time may pass before a cut link is mended: enough for a step to spend its budget.
const CUT_TICKS: u8 = 6;

/// Makes a move.
pub(super) fn make(
    world: &mut World,
    ground: &mut Ground,
    step: Move,
    why: Why,
) -> Result<(), Broken> {
    if let Why::Fault(kind) = why {
        world.used[kind] += 1;
    }
    match step {
        Move::Send(index) => {
            world.sent |= 1 << index;
            let (saga_id, workflow, said) =
                ground.scenario.messages[usize::from(index)].clone().parts();
            let number = ground.saga(&saga_id, workflow);
            let said = ground.say(said);
            let slot = world.slot(number);
            world.put(slot, Body::Said(said));
        }
        Move::Spend => {
            if let Some((customer, amount)) = ground.scenario.spends.clone()
                && let Some(spent) = ground.ledgers.get(world.ledger).spend(&customer, amount)
            {
                world.ledger = ground.ledgers.keep(spent);
                world.spent = true;
            }
        }
        Move::Deliver { message, replica } => {
            let saga = world.messages[usize::from(message)].saga;
            shell(world, ground, replica, saga).deliver(message)?;
        }
        Move::Redeliver(message) => world.messages[usize::from(message)].ready = true,
        Move::Commit { replica, saga } => shell(world, ground, replica, saga).commit()?,
        Move::CommitUnheard { replica, saga } => {
            shell(world, ground, replica, saga).put_in_store()?;
        }
        Move::CommitGivenUp {
            replica,
            saga,
            written,
        } => {
            let mut shell = shell(world, ground, replica, saga);
            if written {
                shell.put_in_store()?;
            }
            shell.give_up()?;
        }
        Move::Core {
            replica,
            saga,
            call,
            refuse,
        } => core(world, ground, (replica, saga, call), refuse)?,
        Move::CoreSilent {
            replica,
            saga,
            call,
        } => {
            perform_core(world, ground, (replica, saga, call), false);
        }
        Move::CoreUnclear {
            replica,
            saga,
            call,
            done,
        } => {
            if done {
                perform_core(world, ground, (replica, saga, call), false);
            }
            let at = (replica, saga, call);
            let answer = ground.no_answer(out(world, at), true);
            hear(world, ground, at, answer)?;
        }
        Move::Receive { packet, behind } => {
            let answered = perform(world, ground, packet, behind)?;
            back(world, packet, answered);
        }
        Move::ReceiveUnclear { packet, done } => {
            if done {
                perform(world, ground, packet, false)?;
            }
            let answer = ground.no_answer(world.net[usize::from(packet)].cmd, true);
            back(world, packet, answer);
        }
        Move::Nobody(packet) => {
            let answer = ground.no_answer(world.net[usize::from(packet)].cmd, false);
            back(world, packet, answer);
        }
        Move::Answer(packet) => {
            let packet = world.net.remove(usize::from(packet));
            if let (Some(answer), Some(sender)) = (packet.answer, packet.sender) {
                let actor =
                    &mut world.replicas[usize::from(sender)].actors[usize::from(packet.saga)];
                actor.waits.retain(|cmd| *cmd != packet.cmd);
                shell(world, ground, sender, packet.saga).go_on(Matter::Reply(answer))?;
            }
        }
        Move::Lose(packet) => {
            world.net.remove(usize::from(packet));
        }
        Move::Duplicate(packet) => {
            let copy = world.net[usize::from(packet)];
            world.net.push(Packet {
                delayed: true,
                ..copy
            });
        }
        Move::Delay(packet) => world.net[usize::from(packet)].delayed = true,
        Move::Cut => world.cut = CUT_TICKS + 1,
        Move::Mend => world.cut = 0,
        Move::Wake { replica, saga } => {
            shell(world, ground, replica, saga).go_on(Matter::Wake)?;
        }
        Move::Park { replica, saga } => {
            shell(world, ground, replica, saga).go_on(Matter::Park)?;
        }
        Move::Fire { saga, again } => {
            if !again {
                world.sagas[usize::from(saga)].timer = None;
            }
            // One place for each saga: what fired before has been rolled up.
            for message in &mut world.messages {
                if message.saga == saga && message.body == Body::Due {
                    (message.gone, message.ready) = (true, false);
                }
            }
            world.put(saga, Body::Due);
        }
        Move::Crash(replica) => crash(world, replica),
        Move::Freeze(replica) => world.replicas[usize::from(replica)].frozen = true,
        Move::Thaw(replica) => {
            let replica = &mut world.replicas[usize::from(replica)];
            replica.frozen = false;
            for actor in &mut replica.actors {
                if !actor.is_at_work() {
                    actor.memory = Memory::Unloaded;
                }
            }
        }
        Move::Tick => {
            world.cut = world.cut.saturating_sub(1);
            let due = world.next_due(ground).unwrap_or(PAUSE_MS);
            // What was given back comes again before anything that is further away; a timer that fired too
            // early, when it is due.
            let mut messages = world.messages.iter();
            let paused = messages.any(|message| message.paused && message.body != Body::Due);
            let by_ms = if paused { due.min(PAUSE_MS) } else { due };
            world.pass(ground, by_ms);
        }
    }
    world.settle();
    Ok(())
}

fn shell<'w>(world: &'w mut World, ground: &'w mut Ground, replica: u8, saga: u8) -> Shell<'w> {
    Shell {
        world,
        ground,
        replica: usize::from(replica),
        saga: usize::from(saga),
    }
}

fn crash(world: &mut World, replica: u8) {
    let sagas = world.sagas.len();
    let running = &mut world.replicas[usize::from(replica)];
    running.run += 1;
    running.frozen = false;
    running.actors = vec![Actor::default(); sagas];
    // Its subscription is gone: nobody hears the answers.
    world
        .net
        .retain(|packet| packet.answer.is_none() || packet.sender != Some(replica));
    for packet in &mut world.net {
        packet.sender = packet.sender.filter(|sender| *sender != replica);
    }
}

type At = (u8, u8, u8);

fn out(world: &World, (replica, saga, call): At) -> Cmd {
    let actor = &world.replicas[usize::from(replica)].actors[usize::from(saga)];
    actor.calls[usize::from(call)].cmd
}

fn perform_core(world: &mut World, ground: &mut Ground, at: At, refuse: bool) -> Ans {
    let (core, answer) = ground.perform(world.core, out(world, at), refuse);
    world.core = core;
    answer
}

fn core(world: &mut World, ground: &mut Ground, at: At, refuse: bool) -> Result<(), Broken> {
    let cmd = out(world, at);
    let answer = if ground.deadline_ms(cmd) <= 0 {
        ground.no_answer(cmd, true)
    } else {
        perform_core(world, ground, at, refuse)
    };
    hear(world, ground, at, answer)
}

fn hear(
    world: &mut World,
    ground: &mut Ground,
    (replica, saga, call): At,
    answer: Ans,
) -> Result<(), Broken> {
    let actor = &mut world.replicas[usize::from(replica)].actors[usize::from(saga)];
    let call = actor.calls.remove(usize::from(call));
    let mut shell = shell(world, ground, replica, saga);
    if call.forgotten {
        return shell.nothing();
    }
    shell.go_on(if call.unsaved {
        Matter::Answer(answer)
    } else {
        Matter::Reply(answer)
    })
}

/// The wallet executes a command.
fn perform(
    world: &mut World,
    ground: &mut Ground,
    packet: u8,
    behind: bool,
) -> Result<Ans, Broken> {
    let cmd = world.net[usize::from(packet)].cmd;
    let (ledger, answer) = ground.execute(world.ledger, cmd, behind)?;
    world.ledger = ledger;
    Ok(answer)
}

/// The command is gone from the network, and its answer is on the way if somebody is there to hear it.
fn back(world: &mut World, packet: u8, answer: Ans) {
    let packet = world.net.remove(usize::from(packet));
    if packet.sender.is_some() {
        world.net.push(Packet {
            answer: Some(answer),
            delayed: false,
            ..packet
        });
    }
}
