//! Whether a message is held for the saga, and when its timer is armed instead.

use std::sync::atomic::Ordering;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::{Actor, Again, Settled, State, settle, wait_until};
use crate::saga::action::Command;
use crate::saga::record::SagaRecord;
use crate::store::{CommitOutcome, Timer, Write};

impl Actor {
    /// What this write does to the saga's timer. It is armed when no message is held for the saga, and
    /// when what the saga waits for is further away than a message is held.
    pub(super) fn timer_for(
        &self,
        record: &mut SagaRecord,
        commands: &[Command],
        now: Timestamp,
    ) -> Timer {
        let Some(wake_at) = record.wake_at.filter(|_| !record.status.is_terminal()) else {
            return match record.timer_at.take() {
                Some(_) => Timer::Cancel,
                None => Timer::Keep,
            };
        };
        let idle = commands.is_empty() && !record.has_in_flight();
        let long = wait_until(wake_at, now) > self.engine.0.limits.hold;
        let fired = record.timer_at.is_some_and(|timer_at| timer_at <= now);
        if !self.is_held() || fired || (idle && long) {
            record.timer_at = Some(wake_at);
            Timer::Arm(wake_at)
        } else {
            Timer::Keep
        }
    }

    /// Held for too long: arm a timer and let the messages go. What is in flight is still listened for.
    pub(super) async fn park(&mut self) {
        self.park_from(Timestamp::MIN).await;
    }

    /// As [`Self::park`], to be woken no earlier than this.
    pub(super) async fn park_from(&mut self, earliest: Timestamp) {
        self.held_since = None;
        if matches!(self.state, State::Unloaded)
            && let Err(trouble) = self.load().await
        {
            return self.give_back(trouble.reason());
        }
        let State::Present {
            record,
            revision,
            unsaved,
        } = &mut self.state
        else {
            return self.release();
        };
        let Some(wake_at) = record.wake_at.filter(|_| !record.status.is_terminal()) else {
            return self.release();
        };
        let wake_at = wake_at.max(earliest);
        record.wake_at = Some(wake_at);
        record.timer_at = Some(wake_at);
        "parked until something is due".clone_into(&mut record.cause);
        let write = Write {
            record,
            expected: *revision,
            events: &[],
            audit: None,
            timer: Timer::Arm(wake_at),
        };
        match self.engine.0.store.commit(&write).await {
            CommitOutcome::Written(written) => {
                (*revision, *unsaved) = (written, false);
                self.all_saved();
                self.engine.0.metrics.parked();
                self.release();
            }
            CommitOutcome::Conflict => {
                // Another replica has written: see who drives the saga now.
                let unsaved = *unsaved;
                self.overtaken(unsaved);
                if let Err(trouble) = self.load().await {
                    return self.give_back(trouble.reason());
                }
                if self.is_driven_here() {
                    self.held_since = Some(Instant::now());
                } else {
                    self.release();
                }
            }
            CommitOutcome::Rejected(reason) | CommitOutcome::Unknown(reason) => {
                self.give_back(&reason)
            }
        }
    }

    /// Whether the record names this replica as the saga's owner.
    pub(super) fn is_ours(&self) -> bool {
        match &self.state {
            State::Present { record, .. } => record.owner == self.engine.0.clock.replica(),
            State::Absent | State::Unloaded => false,
        }
    }

    /// Whether a message is held for the saga, or is about to be.
    pub(super) fn is_held(&self) -> bool {
        self.incoming || !self.held.is_empty()
    }

    /// Whether this replica has to hold a message for the saga.
    pub(super) fn is_driven_here(&self) -> bool {
        match &self.state {
            State::Absent | State::Unloaded => false,
            State::Present { unsaved: true, .. } => true,
            State::Present { record, .. } => {
                let rests = record.status.is_terminal() || record.wake_at.is_none();
                self.is_ours() && !rests && !self.is_parked()
            }
        }
    }

    /// Whether another replica has to hold a message for the saga.
    pub(super) fn is_driven_elsewhere(&self) -> bool {
        match &self.state {
            State::Absent | State::Unloaded => false,
            State::Present { record, .. } => {
                let rests = record.status.is_terminal() || record.wake_at.is_none();
                !self.is_ours() && !rests && !self.is_parked()
            }
        }
    }

    /// Whether the armed timer is the one that wakes the saga next.
    pub(super) fn is_parked(&self) -> bool {
        match &self.state {
            State::Absent | State::Unloaded => false,
            State::Present { record, .. } => {
                record.timer_at.is_some() && record.timer_at == record.wake_at
            }
        }
    }

    pub(super) fn wake_in(&self) -> Option<Duration> {
        let State::Present { record, .. } = &self.state else {
            return None;
        };
        let wake_at = record.wake_at.filter(|_| self.is_ours())?;
        Some(wait_until(wake_at, self.engine.0.clock.now()))
    }

    pub(super) fn hold_ends_in(&self) -> Option<Duration> {
        let since = self.held_since?;
        let held = self.engine.0.held.load(Ordering::Relaxed);
        let hold = self.engine.0.limits.hold_with(held);
        Some((since + hold).saturating_duration_since(Instant::now()))
    }

    pub(super) fn release(&mut self) {
        self.held_since = None;
        for held in self.held.drain(..) {
            settle(held.done, Settled::Done);
        }
    }

    /// Lets go of messages by which another replica may drive the saga now: to acknowledge them would
    /// take its driver away, so that nothing woke the saga if that replica died. From here on our own
    /// writes, if there are any, arm the timer.
    pub(super) fn leave(&mut self) {
        self.held_since = None;
        for held in self.held.drain(..) {
            settle(held.done, Settled::Left);
        }
    }

    /// Forgets what is not stored and gives the messages back: they will come again, here or elsewhere.
    pub(super) fn give_back(&mut self, reason: &str) {
        self.forget();
        self.held_since = None;
        for held in self.held.drain(..) {
            settle(held.done, Settled::Again(reason.to_owned()));
        }
        // An answer that is dropped here is asked for again when its command's time is up.
        self.unsaved_answers.clear();
        for again in self.again.drain(..) {
            if let Again::Message(_, done) = again {
                settle(done, Settled::Again(reason.to_owned()));
            }
        }
    }
}
