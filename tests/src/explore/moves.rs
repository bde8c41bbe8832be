//! What may happen next in a world, and what it does.

use serde::{Deserialize, Serialize};

use super::ground::Ground;
use super::shell::HOLD_MS;
use super::time::SKEW_MS;
use super::world::{Actor, Body, Message, Packet, World};

/// One thing that happens. Numbers are places in the world it happens to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Move {
    /// One of the scenario's messages is sent.
    Send(u8),
    /// The customer spends what he has.
    Spend,
    /// A message is delivered to a replica.
    Deliver { message: u8, replica: u8 },
    /// The consumer's patience ends with a replica that sleeps: others may have the message.
    Redeliver(u8),
    /// A write comes to its end.
    Commit { replica: u8, saga: u8 },
    /// A write stands, but its acknowledgement is lost.
    CommitUnheard { replica: u8, saga: u8 },
    /// The writer gives up on a write without knowing what became of it.
    CommitGivenUp {
        replica: u8,
        saga: u8,
        written: bool,
    },
    /// The core's own side carries out a command and answers.
    Core {
        replica: u8,
        saga: u8,
        call: u8,
        refuse: bool,
    },
    /// It carries it out, and the answer takes its time.
    CoreSilent { replica: u8, saga: u8, call: u8 },
    /// It cannot tell what became of the command.
    CoreUnclear {
        replica: u8,
        saga: u8,
        call: u8,
        done: bool,
    },
    /// The wallet takes a command; `behind` if its clock is.
    Receive { packet: u8, behind: bool },
    /// The wallet cannot tell what became of a command.
    ReceiveUnclear { packet: u8, done: bool },
    /// Nobody is there to take a command.
    Nobody(u8),
    /// An answer reaches the replica that asked.
    Answer(u8),
    /// A packet is lost (or the agent died, before its transaction or after).
    Lose(u8),
    /// A packet arrives twice.
    Duplicate(u8),
    /// A packet lies in a buffer while others go and time passes.
    Delay(u8),
    /// No command reaches the wallet from here on.
    Cut,
    /// Commands reach the wallet again.
    Mend,
    /// A replica's own clock says that something is due.
    Wake { replica: u8, saga: u8 },
    /// Messages have been held long enough: a timer is armed instead.
    Park { replica: u8, saga: u8 },
    /// An armed timer fires; `again` if it will once more.
    Fire { saga: u8, again: bool },
    /// A replica's process dies and starts anew.
    Crash(u8),
    /// A replica sleeps (`SIGSTOP`), with all it knows.
    Freeze(u8),
    /// It wakes up.
    Thaw(u8),
    /// Time passes to the next instant at which something is due.
    Tick,
}

/// Kinds of faults, in the order of [`NAMES`].
pub(super) const KINDS: usize = 13;

/// What faults are called.
pub(super) const NAMES: [&str; KINDS] = [
    "lost packet",
    "duplicate packet",
    "late packet",
    "nobody there",
    "unclear answer",
    "clock behind",
    "crash",
    "sleep",
    "unheard commit",
    "timer early or twice",
    "early parking",
    "link cut",
    "to the other replica",
];

/// Why a move may happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Why {
    /// It happens next if nothing else does.
    Urgent,
    /// It happens at some time; the lower, the sooner.
    SomeTime(u8),
    /// Somebody may choose to.
    Chosen,
    /// A fault of this kind.
    Fault(usize),
}

/// Whether a fault of this kind fits within the bounds.
fn fits(world: &World, ground: &Ground, kind: usize) -> bool {
    let bounds = &ground.scenario.bounds;
    world.used[kind] < bounds.each[kind] && world.used.iter().sum::<u8>() < bounds.total
}

fn allowed(world: &World, ground: &Ground, why: Why) -> bool {
    match why {
        Why::Fault(kind) => fits(world, ground, kind),
        Why::Urgent | Why::SomeTime(_) | Why::Chosen => true,
    }
}

/// All moves that are possible now.
///
/// A message that has just been sent is delivered first, where a replica can take it: that it lies in the
/// stream for a while is the same as that it is sent later.
pub(super) fn possible(world: &World, ground: &Ground) -> Vec<(Move, Why)> {
    let mut moves = Vec::with_capacity(32);
    let is_new = |message: &Message| message.body != Body::Due && message.ready && !message.again;
    if world.messages.iter().any(is_new) {
        messages(world, &mut moves);
        moves.retain(|(step, why)| match step {
            Move::Deliver { message, .. } => {
                is_new(&world.messages[usize::from(*message)]) && allowed(world, ground, *why)
            }
            _ => false,
        });
        if moves.iter().any(|(_, why)| *why == Why::Urgent) {
            return moves;
        }
        moves.clear();
    }
    replicas(world, ground, &mut moves);
    messages(world, &mut moves);
    packets(world, ground, &mut moves);
    for (saga, stored) in each(&world.sagas) {
        if let Some(timer) = stored.timer {
            let why = if timer > 0 {
                Why::Fault(9)
            } else {
                Why::Urgent
            };
            moves.push((Move::Fire { saga, again: false }, why));
            if timer <= 0 {
                moves.push((Move::Fire { saga, again: true }, Why::Fault(9)));
            }
        }
    }
    if world.cut > 0 {
        moves.push((Move::Mend, Why::SomeTime(1)));
    } else if ground.scenario.uses_wallet {
        moves.push((Move::Cut, Why::Fault(11)));
    }
    let sent = |index: usize| world.sent & (1 << index) != 0;
    for (index, _) in each(&ground.scenario.messages) {
        if !sent(usize::from(index)) {
            moves.push((Move::Send(index), Why::Chosen));
        }
    }
    if let Some((customer, amount)) = &ground.scenario.spends
        && !world.spent
        && ground
            .ledgers
            .get(world.ledger)
            .spend(customer, *amount)
            .is_some()
    {
        moves.push((Move::Spend, Why::Chosen));
    }
    moves.retain(|(_, why)| allowed(world, ground, *why));
    if !moves.iter().any(|(_, why)| *why == Why::Urgent) {
        // A cut link is mended before time passes once too often.
        let due = world.next_due(ground).filter(|_| world.cut != 1);
        let parks = parkings(world, Why::Urgent);
        match due {
            // Whoever has held a message for so long parks first.
            Some(due) if due > HOLD_MS && !parks.is_empty() => moves.extend(parks),
            Some(_) => moves.push((Move::Tick, Why::SomeTime(4))),
            None if world.messages.iter().any(|message| message.paused) => {
                moves.push((Move::Tick, Why::SomeTime(4)));
            }
            None => {}
        }
    } else if fits(world, ground, 10) {
        moves.extend(parkings(world, Why::Fault(10)));
    }
    moves
}

fn each<T>(all: &[T]) -> impl Iterator<Item = (u8, &T)> {
    (0_u8..).zip(all)
}

fn parkings(world: &World, why: Why) -> Vec<(Move, Why)> {
    let mut moves = Vec::new();
    for (replica, running) in each(&world.replicas) {
        for (saga, actor) in each(&running.actors) {
            if !running.frozen && actor.pending.is_none() && !actor.held.is_empty() {
                moves.push((Move::Park { replica, saga }, why));
            }
        }
    }
    moves
}

fn replicas(world: &World, ground: &Ground, moves: &mut Vec<(Move, Why)>) {
    for (replica, running) in each(&world.replicas) {
        let at_work = running.actors.iter().any(Actor::is_at_work);
        if running.frozen {
            moves.push((Move::Thaw(replica), Why::SomeTime(0)));
            moves.push((Move::Crash(replica), Why::Fault(6)));
            continue;
        }
        if at_work {
            moves.push((Move::Freeze(replica), Why::Fault(7)));
            moves.push((Move::Crash(replica), Why::Fault(6)));
        }
        for (saga, actor) in each(&running.actors) {
            if actor.pending.is_some() {
                moves.push((Move::Commit { replica, saga }, Why::Urgent));
                writes(world, (replica, saga), moves);
                continue;
            }
            for (call, out) in each(&actor.calls) {
                calls(ground, (replica, saga, call), out.cmd, moves);
            }
            let wakes = world.wake_ms(ground, usize::from(replica), actor);
            if actor.is_at_work() && wakes.is_some_and(|wakes| wakes <= 0) {
                moves.push((Move::Wake { replica, saga }, Why::Urgent));
            }
        }
    }
}

fn writes(world: &World, (replica, saga): (u8, u8), moves: &mut Vec<(Move, Why)>) {
    let actor = &world.replicas[usize::from(replica)].actors[usize::from(saga)];
    let Some(pending) = &actor.pending else {
        return;
    };
    let stored = world.sagas[usize::from(saga)].stored;
    let fits = pending.base == stored.map_or(0, |stored| stored.1);
    if pending.written.is_none() && fits {
        moves.push((Move::CommitUnheard { replica, saga }, Why::Fault(8)));
        for written in [false, true] {
            moves.push((
                Move::CommitGivenUp {
                    replica,
                    saga,
                    written,
                },
                Why::Fault(8),
            ));
        }
    }
}

fn calls(
    ground: &Ground,
    (replica, saga, call): (u8, u8, u8),
    cmd: u32,
    moves: &mut Vec<(Move, Why)>,
) {
    let core = |refuse| Move::Core {
        replica,
        saga,
        call,
        refuse,
    };
    moves.push((core(false), Why::Urgent));
    if ground.deadline_ms(cmd) <= 0 {
        return;
    }
    if ground.command(cmd).kind == "payout.send" {
        moves.push((core(true), Why::Chosen));
    }
    moves.push((
        Move::CoreSilent {
            replica,
            saga,
            call,
        },
        Why::Fault(4),
    ));
    for done in [false, true] {
        moves.push((
            Move::CoreUnclear {
                replica,
                saga,
                call,
                done,
            },
            Why::Fault(4),
        ));
    }
}

fn messages(world: &World, moves: &mut Vec<(Move, Why)>) {
    for (number, message) in each(&world.messages) {
        if message.gone {
            continue;
        }
        if !message.ready {
            if !world.is_held(number, false) {
                moves.push((Move::Redeliver(number), Why::SomeTime(3)));
            }
            continue;
        }
        // Two replicas that have done nothing are alike.
        let alike = world.replicas.iter().all(super::world::Replica::is_fresh);
        for (replica, running) in each(&world.replicas) {
            let actor = &running.actors[usize::from(message.saga)];
            let can = !running.frozen && actor.pending.is_none() && !actor.has(number);
            let other = &world.replicas[usize::from(1 - replica)];
            let elsewhere = !actor.is_at_work()
                && !other.frozen
                && other.actors[usize::from(message.saga)].is_at_work();
            if can && !(alike && replica > 0) {
                let why = match (elsewhere, message.paused) {
                    (true, _) => Why::Fault(12),
                    (false, true) => Why::SomeTime(5),
                    (false, false) => Why::Urgent,
                };
                moves.push((
                    Move::Deliver {
                        message: number,
                        replica,
                    },
                    why,
                ));
            }
        }
    }
}

fn packets(world: &World, ground: &Ground, moves: &mut Vec<(Move, Why)>) {
    let mut before: Option<&Packet> = None;
    for (number, packet) in each(&world.net) {
        if before == Some(packet) {
            continue;
        }
        before = Some(packet);
        let why = if packet.delayed {
            Why::SomeTime(2)
        } else {
            Why::Urgent
        };
        moves.push((Move::Lose(number), Why::Fault(0)));
        moves.push((Move::Duplicate(number), Why::Fault(1)));
        if !packet.delayed {
            moves.push((Move::Delay(number), Why::Fault(2)));
        }
        if packet.answer.is_some() {
            let asks = packet.sender.map(|sender| {
                let replica = &world.replicas[usize::from(sender)];
                let actor = &replica.actors[usize::from(packet.saga)];
                !replica.frozen && actor.pending.is_none()
            });
            if asks == Some(true) {
                moves.push((Move::Answer(number), why));
            }
            continue;
        }
        if world.cut > 0 {
            continue;
        }
        let receive = |behind| Move::Receive {
            packet: number,
            behind,
        };
        moves.push((receive(false), why));
        let deadline = ground.deadline_ms(packet.cmd);
        if deadline <= 0 && deadline > -SKEW_MS {
            moves.push((receive(true), Why::Fault(5)));
        }
        for done in [false, true] {
            let unclear = Move::ReceiveUnclear {
                packet: number,
                done,
            };
            moves.push((unclear, Why::Fault(4)));
        }
        moves.push((Move::Nobody(number), Why::Fault(3)));
    }
}

/// The move that happens next when nothing goes wrong any more and nobody chooses anything.
pub(super) fn fair(moves: &[(Move, Why)]) -> Option<usize> {
    let fair = moves
        .iter()
        .enumerate()
        .filter(|(_, (_, why))| matches!(why, Why::Urgent | Why::SomeTime(_)));
    fair.min_by_key(|(_, (_, why))| *why)
        .map(|(index, _)| index)
}
