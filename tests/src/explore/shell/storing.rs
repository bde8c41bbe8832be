//! A write: when it leaves, and what becomes of it.

use orchestrator::saga::action::Ignored;

use super::{Broken, HOLD_MS, Progress, Shell};
use crate::explore::ground::{Dec, Decided, Rec};
use crate::explore::laws;
use crate::explore::time::ms;
use crate::explore::world::{Again, Matter, Memory, Pending, Timer, Work};

impl Shell<'_> {
    pub(super) fn write(&mut self, work: Work, decision: Dec, base: u16, was_unsaved: bool) {
        let Decided::Commit {
            record,
            commands,
            events,
            ..
        } = self.ground.decision(decision).clone()
        else {
            return;
        };
        let held = self.is_held(work);
        let (rec, timer) = self.timer_for(record, !commands.is_empty(), held);
        let actor = self.actor();
        actor.memory = Memory::Unloaded;
        actor.pending = Some(Pending {
            work,
            rec,
            base,
            was_unsaved,
            commands,
            events,
            timer,
            written: None,
        });
    }

    /// What a write does to the timer: armed when no message is held for the saga, or the wait is long.
    fn timer_for(&mut self, rec: Rec, sends: bool, held: bool) -> (Rec, Timer) {
        let record = self.ground.record(rec);
        let wake = record.wake_at.filter(|_| !record.status.is_terminal());
        let Some(wake) = wake.map(ms) else {
            return match record.timer_at {
                Some(_) => (self.ground.with_timer(rec, None), Timer::Cancel),
                None => (rec, Timer::Keep),
            };
        };
        let idle = !sends && !record.has_in_flight();
        let fired = record.timer_at.is_some_and(|timer| ms(timer) <= 0);
        if !held || fired || (idle && wake > HOLD_MS) {
            let rec = self.ground.with_timer(rec, Some(wake));
            (rec, Timer::Arm(wake.max(0)))
        } else {
            (rec, Timer::Keep)
        }
    }

    pub(super) fn park(&mut self) -> Result<(), Broken> {
        let Memory::Present {
            rec,
            revision,
            unsaved,
        } = self.actor().memory
        else {
            self.release();
            return Ok(());
        };
        let record = self.ground.record(rec);
        let wake = record.wake_at.filter(|_| !record.status.is_terminal());
        let Some(wake) = wake.map(ms) else {
            self.release();
            return Ok(());
        };
        let rec = self.ground.with_timer(rec, Some(wake));
        self.actor().pending = Some(Pending {
            work: Work {
                matter: Matter::Park,
                resume: false,
            },
            rec,
            base: revision,
            was_unsaved: unsaved,
            commands: Vec::new(),
            events: Vec::new(),
            timer: Timer::Arm(wake.max(0)),
            written: None,
        });
        Ok(())
    }

    /// Whether the write on its way finds the record as it expects.
    fn would_be_written(&self) -> bool {
        let actor = &self.world.replicas[self.replica].actors[self.saga];
        let revision = self.world.sagas[self.saga]
            .stored
            .map_or(0, |stored| stored.1);
        (actor.pending.as_ref())
            .is_some_and(|pending| pending.written.is_none() && pending.base == revision)
    }

    /// Writes, if the record is as expected: all of it or nothing.
    pub(in crate::explore) fn put_in_store(&mut self) -> Result<bool, Broken> {
        if !self.would_be_written() {
            return Ok(false);
        }
        let Some(pending) = self.actor().pending.clone() else {
            return Ok(false);
        };
        let before = self.world.sagas[self.saga].stored.map(|stored| stored.0);
        laws::on_commit(
            self.ground,
            self.world,
            self.saga,
            before,
            pending.rec,
            &pending.commands,
        )?;
        let slot = self.slot();
        let saga = &mut self.world.sagas[self.saga];
        saga.stored = Some((pending.rec, pending.base + 1));
        match pending.timer {
            Timer::Keep => {}
            Timer::Cancel => saga.timer = None,
            Timer::Arm(due) => saga.timer = Some(due),
        }
        let events = pending.events.iter().map(|&event| (slot, event));
        self.world.log.extend(events);
        if let Some(pending) = &mut self.actor().pending {
            pending.written = Some(pending.base + 1);
        }
        Ok(true)
    }

    /// The writer hears what became of its write.
    pub(in crate::explore) fn commit(&mut self) -> Result<(), Broken> {
        self.put_in_store()?;
        let Some(pending) = self.actor().pending.take() else {
            return Ok(());
        };
        let stored = self.world.sagas[self.saga].stored.map(|stored| stored.1);
        match pending.written {
            // The same bytes again meet our own: the nonce says so, until another one has written.
            Some(revision) if stored == Some(revision) => self.written(&pending, revision)?,
            Some(_) | None => self.lost(&pending)?,
        }
        self.rest()
    }

    fn written(&mut self, pending: &Pending, revision: u16) -> Result<(), Broken> {
        let actor = self.actor();
        actor.memory = Memory::Present {
            rec: pending.rec,
            revision,
            unsaved: false,
        };
        actor.answers.clear();
        for held in &mut actor.held {
            held.1 = false;
        }
        if pending.work.matter == Matter::Park {
            self.release();
            return Ok(());
        }
        self.perform(&pending.commands, false)?;
        if !self.is_driven_here() {
            self.release();
        }
        if pending.work.resume {
            return self.decide(Work {
                resume: false,
                ..pending.work
            });
        }
        self.finish(pending.work, Progress::Stored)
    }

    /// Another replica has written since: read, decide again, never repeat blindly.
    fn lost(&mut self, pending: &Pending) -> Result<(), Broken> {
        self.forget();
        if pending.was_unsaved {
            let actor = self.actor();
            let answers = actor.answers.drain(..).map(Again::Answer);
            let mut again: Vec<Again> = answers.collect();
            again.extend(
                (actor.held.iter())
                    .filter(|held| held.1)
                    .map(|held| Again::Message(held.0)),
            );
            actor.held.retain(|held| !held.1);
            actor.again.extend(again);
        }
        match pending.work.matter {
            Matter::Park => {
                self.load();
                if !self.is_driven_here() {
                    self.release();
                }
                Ok(())
            }
            Matter::Answer(_) if pending.was_unsaved => {
                self.load();
                self.finish(pending.work, Progress::Ignored(Ignored::Forgotten))
            }
            Matter::Message(_) | Matter::Answer(_) | Matter::Reply(_) | Matter::Wake => {
                self.decide(pending.work)
            }
        }
    }

    /// The writer gives up without knowing: the messages go back.
    pub(in crate::explore) fn give_up(&mut self) -> Result<(), Broken> {
        let Some(pending) = self.actor().pending.take() else {
            return Ok(());
        };
        self.actor().memory = Memory::Unloaded;
        match pending.work.matter {
            Matter::Park => self.give_back(),
            Matter::Message(_) | Matter::Answer(_) | Matter::Reply(_) | Matter::Wake => {
                self.finish(pending.work, Progress::Failed)?;
            }
        }
        self.rest()
    }
}
