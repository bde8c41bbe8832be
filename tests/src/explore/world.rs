//! One state of a small world: what is stored, what is in memory, what is on its way.

use super::ground::{Ans, Cmd, Ground, Rec};
use super::time::ms;

/// Everything there is, by number. Equal worlds have the same future.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct World {
    /// The sagas, in the order in which somebody first spoke of them.
    pub(super) sagas: Vec<Saga>,
    /// Messages in the consumers' streams.
    pub(super) messages: Vec<Message>,
    /// Two replicas of the orchestrator.
    pub(super) replicas: [Replica; 2],
    /// What is between orchestrator and wallet, sorted.
    pub(super) net: Vec<Packet>,
    /// The wallet's database.
    pub(super) ledger: u32,
    /// The core's own side.
    pub(super) core: u32,
    /// No command reaches the wallet while this is not 0; it falls as time passes.
    pub(super) cut: u8,
    /// Which of the scenario's messages have been sent: a bit each.
    pub(super) sent: u32,
    /// The customer has spent what he had.
    pub(super) spent: bool,
    /// Events in the log: saga and event.
    pub(super) log: Vec<(u8, u32)>,
    /// Cases opened beside sagas.
    pub(super) cases: Vec<String>,
    /// Faults of each kind so far.
    pub(super) used: [u8; super::moves::KINDS],
}

/// A saga in the store.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Saga {
    /// Its number in the tables.
    pub(super) number: u32,
    /// Its record and the revision of that.
    pub(super) stored: Option<(Rec, u16)>,
    /// The timer armed in the store: when, in milliseconds from now.
    pub(super) timer: Option<i64>,
}

/// What a message of a stream is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Body {
    /// Something said from outside, by its number.
    Said(u32),
    /// A timer has fired.
    Due,
}

/// A message in a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Message {
    pub(super) saga: u8,
    pub(super) body: Body,
    /// Somebody may have it delivered now.
    pub(super) ready: bool,
    /// It has been delivered before.
    pub(super) again: bool,
    /// It was given back and comes again after a pause only.
    pub(super) paused: bool,
    /// Acknowledged: it never comes again.
    pub(super) gone: bool,
}

/// One replica, one process at a time.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Replica {
    /// Which run of its process.
    pub(super) run: u8,
    /// It does nothing, for now (`SIGSTOP`).
    pub(super) frozen: bool,
    /// What it has in memory of each saga.
    pub(super) actors: Vec<Actor>,
}

/// What a replica has in memory of one saga.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Actor {
    pub(super) memory: Memory,
    /// Messages kept unacknowledged while they drive the saga; `true` where what one said is in memory alone.
    pub(super) held: Vec<(u8, bool)>,
    /// Answers that are in memory alone.
    pub(super) answers: Vec<Ans>,
    /// What has to be decided on once more, first come first.
    pub(super) again: Vec<Again>,
    /// A write on its way.
    pub(super) pending: Option<Pending>,
    /// Commands to the core's own side that have not come back.
    pub(super) calls: Vec<Call>,
    /// Commands to a wallet that are waited for.
    pub(super) waits: Vec<Cmd>,
}

/// What is known of the record.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) enum Memory {
    #[default]
    Unloaded,
    Absent,
    Present {
        rec: Rec,
        revision: u16,
        unsaved: bool,
    },
}

/// Something that was decided on and has been forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Again {
    Message(u8),
    Answer(Ans),
}

/// What is decided on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Matter {
    /// A message.
    Message(u8),
    /// The answer to a command sent on facts in memory alone.
    Answer(Ans),
    /// An answer to a stored command.
    Reply(Ans),
    /// The time has come.
    Wake,
    /// The time to hold messages is over.
    Park,
}

/// A matter at work; `resume` while the takeover before it is being decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Work {
    pub(super) matter: Matter,
    pub(super) resume: bool,
}

/// A write on its way.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Pending {
    pub(super) work: Work,
    pub(super) rec: Rec,
    /// The revision it expects; 0 for none.
    pub(super) base: u16,
    pub(super) was_unsaved: bool,
    /// Commands that leave when it is written.
    pub(super) commands: Vec<Cmd>,
    /// Events that are part of it.
    pub(super) events: Vec<u32>,
    pub(super) timer: Timer,
    /// It stands at this revision, and the writer has not heard so.
    pub(super) written: Option<u16>,
}

/// What a write does to the saga's timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Timer {
    Keep,
    Cancel,
    Arm(i64),
}

/// A command to the core's own side. `forgotten` when the facts it was sent on are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Call {
    pub(super) cmd: Cmd,
    pub(super) unsaved: bool,
    pub(super) forgotten: bool,
}

/// A message between orchestrator and wallet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Packet {
    pub(super) saga: u8,
    pub(super) cmd: Cmd,
    /// The answer on its way back; `None` for the command itself.
    pub(super) answer: Option<Ans>,
    /// The replica that sent the command, while that run lives.
    pub(super) sender: Option<u8>,
    /// Somewhere in a buffer: others go first, and time may pass.
    pub(super) delayed: bool,
}

impl Replica {
    pub(super) fn new(sagas: usize) -> Self {
        Self {
            run: 0,
            frozen: false,
            actors: vec![Actor::default(); sagas],
        }
    }

    /// Whether it has never done anything.
    pub(super) fn is_fresh(&self) -> bool {
        self.run == 0 && !self.frozen && self.actors.iter().all(|actor| *actor == Actor::default())
    }
}

impl Actor {
    /// Whether it has this message in its hands.
    pub(super) fn has(&self, message: u8) -> bool {
        let matter = Matter::Message(message);
        self.held.iter().any(|held| held.0 == message)
            || self.again.contains(&Again::Message(message))
            || (self.pending.as_ref()).is_some_and(|pending| pending.work.matter == matter)
    }

    /// Whether it is at work at all.
    pub(super) fn is_at_work(&self) -> bool {
        self.pending.is_some()
            || !(self.held.is_empty()
                && self.calls.is_empty()
                && self.waits.is_empty()
                && self.again.is_empty())
    }
}

impl World {
    /// Whether a replica that is not asleep has this message in its hands.
    pub(super) fn is_held(&self, message: u8, asleep_too: bool) -> bool {
        self.replicas.iter().any(|replica| {
            (asleep_too || !replica.frozen) && replica.actors.iter().any(|actor| actor.has(message))
        })
    }

    /// The saga of this number, where it is among the world's.
    pub(super) fn slot(&mut self, number: u32) -> u8 {
        let found = self.sagas.iter().position(|saga| saga.number == number);
        let slot = found.unwrap_or_else(|| {
            self.sagas.push(Saga {
                number,
                stored: None,
                timer: None,
            });
            for replica in &mut self.replicas {
                replica.actors.push(Actor::default());
            }
            self.sagas.len() - 1
        });
        u8::try_from(slot).expect("few sagas")
    }

    /// Puts a message into a stream.
    pub(super) fn put(&mut self, saga: u8, body: Body) {
        let message = Message {
            saga,
            body,
            ready: true,
            again: false,
            paused: false,
            gone: false,
        };
        // A timer's place is taken again when it is gone, so that worlds do not differ by old timers.
        let mut free = None;
        for (index, old) in self.messages.iter().enumerate() {
            let number = u8::try_from(index).expect("few messages");
            if old.gone && old.body == Body::Due && !self.is_held(number, true) {
                free = Some(index);
                break;
            }
        }
        match free {
            Some(index) => self.messages[index] = message,
            None => self.messages.push(message),
        }
    }

    /// Brings the world into the one form that equal worlds have.
    pub(super) fn settle(&mut self) {
        for index in 0..self.messages.len() {
            let number = u8::try_from(index).expect("few messages");
            let message = self.messages[index];
            // Nobody has it and nobody acknowledged it: the server delivers it again.
            if !message.ready && !message.gone && !self.is_held(number, true) {
                self.messages[index].ready = true;
            }
        }
        while let Some(last) = self.messages.last()
            && last.gone
            && last.body == Body::Due
            && !self.is_held(
                u8::try_from(self.messages.len() - 1).expect("few messages"),
                true,
            )
        {
            self.messages.pop();
        }
        for index in 0..self.messages.len() {
            let number = u8::try_from(index).expect("few messages");
            let message = &self.messages[index];
            if message.gone && message.body == Body::Due && !self.is_held(number, true) {
                let message = &mut self.messages[index];
                (message.saga, message.again) = (0, false);
            }
        }
        for saga in 0..self.sagas.len() {
            self.settle_revisions(saga);
        }
        for replica in &mut self.replicas {
            for actor in &mut replica.actors {
                actor
                    .calls
                    .sort_unstable_by_key(|call| (call.cmd, call.unsaved, call.forgotten));
                actor.waits.sort_unstable();
            }
        }
        self.net.sort_unstable();
        self.log.sort_unstable();
        self.cases.sort_unstable();
        self.cases.dedup();
    }

    /// Revisions are compared with one another only: they are numbered from 1 in their order.
    fn settle_revisions(&mut self, saga: usize) {
        let mut used: Vec<u16> = Vec::with_capacity(6);
        let actors = |world: &Self| -> Vec<u16> {
            let mut found = Vec::new();
            for replica in &world.replicas {
                let actor = &replica.actors[saga];
                if let Memory::Present { revision, .. } = actor.memory {
                    found.push(revision);
                }
                if let Some(pending) = &actor.pending {
                    found.push(pending.base);
                    found.extend(pending.written);
                }
            }
            found
        };
        used.extend(self.sagas[saga].stored.map(|stored| stored.1));
        used.extend(actors(self));
        used.retain(|revision| *revision != 0);
        used.sort_unstable();
        used.dedup();
        let renumber = |revision: &mut u16| {
            if let Ok(index) = used.binary_search(revision) {
                *revision = u16::try_from(index + 1).expect("few revisions");
            }
        };
        if let Some((_, revision)) = &mut self.sagas[saga].stored {
            renumber(revision);
        }
        for replica in &mut self.replicas {
            let actor = &mut replica.actors[saga];
            if let Memory::Present { revision, .. } = &mut actor.memory {
                renumber(revision);
            }
            if let Some(pending) = &mut actor.pending {
                renumber(&mut pending.base);
                if let Some(written) = &mut pending.written {
                    renumber(written);
                }
            }
        }
    }

    /// The next instant at which something is due, in milliseconds from now.
    pub(super) fn next_due(&self, ground: &Ground) -> Option<i64> {
        let mut due: Vec<i64> = self.sagas.iter().filter_map(|saga| saga.timer).collect();
        for (index, replica) in self.replicas.iter().enumerate() {
            for actor in &replica.actors {
                due.extend(actor.waits.iter().map(|&cmd| ground.deadline_ms(cmd)));
                due.extend(
                    (actor.calls.iter())
                        .filter(|call| !call.forgotten)
                        .map(|call| ground.deadline_ms(call.cmd)),
                );
                due.extend(
                    actor
                        .is_at_work()
                        .then(|| self.wake_ms(ground, index, actor))
                        .flatten(),
                );
            }
        }
        // A timer that fired too early and was given back comes again when it is due.
        for message in &self.messages {
            if message.paused && message.body == Body::Due {
                let stored = self.sagas[usize::from(message.saga)].stored;
                let wake = stored.and_then(|(rec, _)| ground.record(rec).wake_at);
                due.extend(wake.map(ms));
            }
        }
        let commands = self.net.iter().filter(|packet| packet.answer.is_none());
        due.extend(commands.map(|packet| ground.deadline_ms(packet.cmd)));
        due.into_iter().filter(|due| *due > 0).min()
    }

    /// When an actor wakes by itself, in milliseconds from now.
    pub(super) fn wake_ms(&self, ground: &Ground, replica: usize, actor: &Actor) -> Option<i64> {
        let Memory::Present { rec, .. } = actor.memory else {
            return None;
        };
        let record = ground.record(rec);
        let replica = u8::try_from(replica).expect("two replicas");
        let run = self.replicas[usize::from(replica)].run;
        let ours = super::ground::owns(record, (replica, run));
        record.wake_at.filter(|_| ours).map(ms)
    }

    /// Lets time pass.
    pub(super) fn pass(&mut self, ground: &mut Ground, by_ms: i64) {
        for saga in &mut self.sagas {
            if let Some((rec, _)) = &mut saga.stored {
                *rec = ground.record_later(*rec, by_ms);
            }
            saga.timer = saga.timer.map(|timer| (timer - by_ms).max(0));
        }
        for message in &mut self.messages {
            message.paused = false;
        }
        for replica in &mut self.replicas {
            for actor in &mut replica.actors {
                if let Memory::Present { rec, .. } = &mut actor.memory {
                    *rec = ground.record_later(*rec, by_ms);
                }
                if let Some(pending) = &mut actor.pending {
                    pending.rec = ground.record_later(pending.rec, by_ms);
                    if let Timer::Arm(timer) = &mut pending.timer {
                        *timer = (*timer - by_ms).max(0);
                    }
                    for cmd in &mut pending.commands {
                        *cmd = ground.command_later(*cmd, by_ms);
                    }
                }
                for call in &mut actor.calls {
                    call.cmd = ground.command_later(call.cmd, by_ms);
                }
                for cmd in &mut actor.waits {
                    *cmd = ground.command_later(*cmd, by_ms);
                }
                actor.waits.retain(|cmd| ground.deadline_ms(*cmd) > 0);
                // Nothing to do and nothing to wait for: it goes, and with it what it remembers.
                if !replica.frozen && !actor.is_at_work() {
                    actor.memory = Memory::Unloaded;
                }
            }
        }
        for packet in &mut self.net {
            packet.cmd = ground.command_later(packet.cmd, by_ms);
        }
    }
}
