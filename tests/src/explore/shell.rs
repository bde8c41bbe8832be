//! The driver, as far as it matters which of two things happens first.
//!
//! It follows `orchestrator::driver`: load, decide, commit, perform, acknowledge. What happens between two
//! writes of one replica and touches nobody else is one move; a write is a move of its own, and commands
//! leave with it (that they leave later is a packet that is delayed, that they never leave is a write
//! followed by a crash).

mod storing;

use orchestrator::saga::action::Ignored;
use orchestrator::saga::record::Participant;

use super::ground::{Cmd, Decided, Ground, In, Noted, owns};
use super::laws;
use super::world::{Actor, Again, Body, Call, Matter, Memory, Packet, Work, World};
use super::worlds::Said;

/// A message is held at most so long; what is further away parks the saga.
pub(super) const HOLD_MS: i64 = 2_000;

/// A law that was broken, for a person.
pub(super) type Broken = String;

/// One replica at work on one saga.
pub(super) struct Shell<'w> {
    pub(super) world: &'w mut World,
    pub(super) ground: &'w mut Ground,
    pub(super) replica: usize,
    pub(super) saga: usize,
}

/// What came of deciding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Stored,
    Ignored(Ignored),
    Missing,
    Failed,
}

impl Shell<'_> {
    fn actor(&mut self) -> &mut Actor {
        &mut self.world.replicas[self.replica].actors[self.saga]
    }

    fn name(&self) -> (u8, u8) {
        let replica = u8::try_from(self.replica).expect("two replicas");
        (replica, self.world.replicas[self.replica].run)
    }

    fn slot(&self) -> u8 {
        u8::try_from(self.saga).expect("few sagas")
    }

    /// A message is delivered.
    pub(super) fn deliver(&mut self, message: u8) -> Result<(), Broken> {
        let index = usize::from(message);
        let (again, body) = (
            self.world.messages[index].again,
            self.world.messages[index].body,
        );
        self.world.messages[index].ready = false;
        self.world.messages[index].again = true;
        // A timer is told nothing of who may have died with it.
        let resume = again && body != Body::Due;
        self.work(Work {
            matter: Matter::Message(message),
            resume,
        })
    }

    /// Something happened that no message brought.
    pub(super) fn go_on(&mut self, matter: Matter) -> Result<(), Broken> {
        self.work(Work {
            matter,
            resume: false,
        })
    }

    /// Something came that is of no use any more.
    pub(super) fn nothing(&mut self) -> Result<(), Broken> {
        self.rest()
    }

    fn work(&mut self, work: Work) -> Result<(), Broken> {
        self.decide(work)?;
        self.rest()
    }

    /// What is left to say again comes first; an actor without work goes.
    fn rest(&mut self) -> Result<(), Broken> {
        while self.actor().pending.is_none() && !self.actor().again.is_empty() {
            let matter = match self.actor().again.remove(0) {
                Again::Message(message) => Matter::Message(message),
                Again::Answer(answer) => Matter::Reply(answer),
            };
            self.decide(Work {
                matter,
                resume: false,
            })?;
        }
        if !self.actor().is_at_work() {
            self.actor().memory = Memory::Unloaded;
        }
        Ok(())
    }

    /// Decides until there is something to write, or nothing.
    fn decide(&mut self, mut work: Work) -> Result<(), Broken> {
        loop {
            if self.actor().memory == Memory::Unloaded {
                self.load();
            }
            if work.matter == Matter::Park {
                return self.park();
            }
            let number = self.world.sagas[self.saga].number;
            let (rec, revision, unsaved) = match self.actor().memory {
                Memory::Present {
                    rec,
                    revision,
                    unsaved,
                } => (Some(rec), revision, unsaved),
                Memory::Absent | Memory::Unloaded => (None, 0, false),
            };
            if rec.is_none() && work.resume {
                work.resume = false;
                continue;
            }
            let input = if work.resume {
                In::Resume
            } else {
                self.input(work.matter)
            };
            let name = self.name();
            let Some(decision) = self.ground.decide(number, rec, input, name)? else {
                return self.finish(work, Progress::Missing);
            };
            match self.ground.decision(decision).clone() {
                Decided::Ignore(rec, reason) => {
                    self.actor().memory = Memory::Present {
                        rec,
                        revision,
                        unsaved,
                    };
                    if !work.resume {
                        return self.finish(work, Progress::Ignored(reason));
                    }
                    work.resume = false;
                }
                Decided::Commit {
                    record,
                    commands,
                    with_next,
                    notes,
                    ..
                } => {
                    self.attend(notes);
                    if with_next && self.is_held(work) && !commands.is_empty() {
                        self.perform(&commands, true)?;
                        self.actor().memory = Memory::Present {
                            rec: record,
                            revision,
                            unsaved: true,
                        };
                        if !work.resume {
                            return self.finish(work, Progress::Stored);
                        }
                        work.resume = false;
                        continue;
                    }
                    self.write(work, decision, revision, unsaved);
                    return Ok(());
                }
            }
        }
    }

    fn input(&self, matter: Matter) -> In {
        match matter {
            Matter::Message(message) => match self.world.messages[usize::from(message)].body {
                Body::Said(said) => In::Said(said),
                Body::Due => In::Timer,
            },
            Matter::Answer(answer) | Matter::Reply(answer) => In::Reply(answer),
            Matter::Wake | Matter::Park => In::Timer,
        }
    }

    fn is_held(&mut self, work: Work) -> bool {
        matches!(work.matter, Matter::Message(_)) || !self.actor().held.is_empty()
    }

    /// What the saga does not take in itself. Done before the write, and idempotent.
    fn attend(&mut self, notes: Vec<Noted>) {
        for note in notes {
            match note {
                Noted::Case(what) => self.world.cases.push(what),
                Noted::Next(saga_id, message_id, input) => {
                    let (_, workflow) = *self.ground.sagas.get(self.world.sagas[self.saga].number);
                    let number = self.ground.saga(&saga_id, workflow);
                    let said = self.ground.say(Said::start(&message_id, input));
                    let slot = self.world.slot(number);
                    let body = Body::Said(said);
                    let known = |message: &super::world::Message| {
                        message.saga == slot && message.body == body
                    };
                    if !self.world.messages.iter().any(known) {
                        self.world.put(slot, body);
                    }
                }
            }
        }
    }

    fn load(&mut self) {
        self.actor().memory = match self.world.sagas[self.saga].stored {
            None => Memory::Absent,
            Some((rec, revision)) => Memory::Present {
                rec,
                revision,
                unsaved: false,
            },
        };
        // Whoever took it over may have acknowledged what is still held here.
        if !self.is_ours() {
            self.actor().held.clear();
        }
    }

    fn finish(&mut self, work: Work, progress: Progress) -> Result<(), Broken> {
        match work.matter {
            Matter::Message(message) => self.settle_message(message, progress),
            Matter::Answer(_) | Matter::Reply(_) | Matter::Wake | Matter::Park => {
                match progress {
                    Progress::Failed => self.give_back(),
                    Progress::Stored | Progress::Ignored(_) | Progress::Missing => {
                        if !self.is_driven_here() {
                            self.release();
                        }
                    }
                }
                if let Matter::Reply(answer) = work.matter
                    && matches!(self.actor().memory, Memory::Present { unsaved: true, .. })
                {
                    self.actor().answers.push(answer);
                }
            }
        }
        Ok(())
    }

    fn settle_message(&mut self, message: u8, progress: Progress) {
        let is_timer = self.world.messages[usize::from(message)].body == Body::Due;
        match progress {
            Progress::Missing => {
                if !is_timer {
                    self.world
                        .cases
                        .push(format!("message {message} is for nobody"));
                }
                self.acknowledge(message);
            }
            Progress::Failed => {
                self.send_back(message);
                self.give_back();
            }
            Progress::Stored | Progress::Ignored(_) if self.is_driven_here() => {
                let unsaved = matches!(self.actor().memory, Memory::Present { unsaved: true, .. });
                self.actor().held.push((message, unsaved));
            }
            Progress::Ignored(Ignored::NothingDue) if is_timer && self.is_parked() => {
                self.send_back(message);
            }
            // Another replica has it as well and drives by it, or it is the only thing that would wake the
            // saga if that one died: not acknowledged, it comes again by and by.
            Progress::Ignored(Ignored::Seen | Ignored::NothingDue)
                if self.is_driven_elsewhere() =>
            {
                self.release();
                self.send_back(message);
            }
            Progress::Stored | Progress::Ignored(_) => {
                self.acknowledge(message);
                self.release();
            }
        }
    }

    fn acknowledge(&mut self, message: u8) {
        let message = &mut self.world.messages[usize::from(message)];
        (message.gone, message.ready) = (true, false);
    }

    fn send_back(&mut self, message: u8) {
        let message = &mut self.world.messages[usize::from(message)];
        if !message.gone {
            (message.ready, message.paused) = (true, true);
        }
    }

    fn release(&mut self) {
        for (message, _) in std::mem::take(&mut self.actor().held) {
            self.acknowledge(message);
        }
    }

    fn forget(&mut self) {
        let actor = self.actor();
        actor.memory = Memory::Unloaded;
        for call in &mut actor.calls {
            call.forgotten |= call.unsaved;
        }
    }

    fn give_back(&mut self) {
        self.forget();
        self.actor().answers.clear();
        for (message, _) in std::mem::take(&mut self.actor().held) {
            self.send_back(message);
        }
        for again in std::mem::take(&mut self.actor().again) {
            if let Again::Message(message) = again {
                self.send_back(message);
            }
        }
    }

    fn perform(&mut self, commands: &[Cmd], unsaved: bool) -> Result<(), Broken> {
        for &cmd in commands {
            laws::on_send(self.ground, self.world, self.saga, cmd, unsaved)?;
            let saga = self.slot();
            let sender = u8::try_from(self.replica).ok();
            match self.ground.command(cmd).participant {
                Participant::Core => self.actor().calls.push(Call {
                    cmd,
                    unsaved,
                    forgotten: false,
                }),
                Participant::Region(_) => {
                    self.actor().waits.push(cmd);
                    self.world.net.push(Packet {
                        saga,
                        cmd,
                        answer: None,
                        sender,
                        delayed: false,
                    });
                }
            }
        }
        Ok(())
    }

    fn is_parked(&mut self) -> bool {
        let Memory::Present { rec, .. } = self.actor().memory else {
            return false;
        };
        let record = self.ground.record(rec);
        record.timer_at.is_some() && record.timer_at == record.wake_at
    }

    /// Whether no record is known that names another owner.
    fn is_ours(&mut self) -> bool {
        let Memory::Present { rec, .. } = self.actor().memory else {
            return true;
        };
        owns(self.ground.record(rec), self.name())
    }

    /// Whether the record says that this replica, or another one, has to hold a message for the saga.
    fn driven(&mut self, here: bool) -> bool {
        let Memory::Present { rec, .. } = self.actor().memory else {
            return false;
        };
        let record = self.ground.record(rec);
        let ours = owns(record, self.name());
        let rests = record.status.is_terminal() || record.wake_at.is_none();
        ours == here && !rests && !self.is_parked()
    }

    fn is_driven_here(&mut self) -> bool {
        matches!(self.actor().memory, Memory::Present { unsaved: true, .. }) || self.driven(true)
    }

    fn is_driven_elsewhere(&mut self) -> bool {
        self.driven(false)
    }
}
