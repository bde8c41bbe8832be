//! Commit, then perform.

use jiff::Timestamp;
use tracing::Instrument as _;

use super::trouble::Trouble;
use super::{Actor, Delivery, Envelope, Redelivery, State, Stored};
use crate::saga::action::{Command, Commit, Persist};
use crate::saga::input::Reply;
use crate::store::{CommitOutcome, Write};
use crate::telemetry;

impl Actor {
    /// Commits, then performs.
    pub(super) async fn store(
        &mut self,
        commit: Commit,
        revision: u64,
        now: Timestamp,
    ) -> Result<Stored, Trouble> {
        let Commit {
            mut record,
            commands,
            events,
            persist,
            notes,
            audit,
        } = commit;
        for note in notes {
            self.engine
                .attend_to(&self.saga_id, note)
                .await
                .map_err(Trouble::Passing)?;
        }
        // Only a saga whose driver message is with us may keep facts in memory alone.
        if persist == Persist::WithNext && self.is_held() && !commands.is_empty() {
            self.perform(commands, Some(self.lineage));
            self.state = State::Present {
                record: Box::new(record),
                revision,
                unsaved: true,
            };
            return Ok(Stored::Yes);
        }
        let timer = self.timer_for(&mut record, &commands, now);
        let write = Write {
            record: &record,
            expected: revision,
            events: &events,
            audit: audit.as_deref(),
            timer,
        };
        let revision = match self.engine.0.store.commit(&write).await {
            CommitOutcome::Written(revision) => revision,
            CommitOutcome::Conflict => return Ok(Stored::Conflict),
            CommitOutcome::Rejected(reason) => {
                return Err(Trouble::Lasting(format!("not stored: {reason}")));
            }
            CommitOutcome::Unknown(reason) => return Err(Trouble::Passing(reason)),
        };
        self.engine.0.metrics.committed(&record, &events);
        tracing::info!(status = %record.status, epoch = record.epoch, cause = record.cause, revision, "committed");
        self.state = State::Present {
            record: Box::new(record),
            revision,
            unsaved: false,
        };
        self.all_saved();
        self.perform(commands, None);
        if !self.is_driven_here() {
            self.release();
        }
        Ok(Stored::Yes)
    }

    /// Sends commands; each reports back here, or to a new actor of the saga when this one has gone.
    fn perform(&mut self, commands: Vec<Command>, lineage: Option<u64>) {
        for command in commands {
            self.out += 1;
            let engine = self.engine.clone();
            let saga_id = self.saga_id.clone();
            let span = telemetry::step_span(&saga_id, &command);
            let work = async move {
                let answer = engine.0.participants.perform(&saga_id, &command).await;
                tracing::debug!(?answer, "answered");
                let reply = answer.map(|answer| Reply {
                    operation_id: command.operation_id,
                    attempt: command.attempt,
                    answer,
                });
                let envelope = Envelope {
                    delivery: Delivery::Answered { reply, lineage },
                    redelivery: Redelivery::First,
                    done: None,
                };
                engine.enqueue(&saga_id, envelope);
            };
            // Detached: an answer is a fact whether or not this actor is still there to hear it.
            tokio::spawn(work.instrument(span));
        }
    }
}
