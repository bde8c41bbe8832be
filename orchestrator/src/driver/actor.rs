//! One saga at work in this process.

use std::time::Duration;

use contracts::id::SagaId;
use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tracing::Instrument as _;

use super::{Delivery, Engine, Envelope, Redelivery, Settled};
use crate::saga::action::{Command, Commit, Decision, Ignored, Note, Persist};
use crate::saga::input::{Arrival, Input, Reply};
use crate::saga::record::SagaRecord;
use crate::saga::{self, CASE_WORKFLOW, Turn, Workflow};
use crate::store::{CommitOutcome, LoadError, Timer, Write};
use crate::telemetry;

/// Drives one saga until it has ended, is parked, or belongs to another replica.
pub(super) async fn run(
    engine: Engine,
    saga_id: SagaId,
    mut inbox: mpsc::UnboundedReceiver<Envelope>,
) {
    let span = telemetry::saga_span(&saga_id);
    let mut actor = Actor {
        engine,
        saga_id,
        state: State::Unloaded,
        held: Vec::new(),
        held_since: None,
        incoming: false,
        out: 0,
    };
    async {
        loop {
            if actor.held.is_empty() && actor.out == 0 {
                match actor.engine.retire(&actor.saga_id, &mut inbox) {
                    Some(envelope) => actor.take(envelope).await,
                    None => return,
                }
                continue;
            }
            let wake = actor.wake_in();
            let hold = actor.hold_ends_in();
            tokio::select! {
                biased;
                () = actor.engine.0.stop.cancelled() => {
                    actor.give_back("shutting down");
                    inbox.close();
                    while let Some(envelope) = inbox.recv().await {
                        settle(envelope.done, Settled::Again("shutting down".to_owned()));
                    }
                    actor.engine.retire(&actor.saga_id, &mut inbox);
                    return;
                }
                envelope = inbox.recv() => match envelope {
                    Some(envelope) => actor.take(envelope).await,
                    None => return,
                },
                () = sleep(wake) => actor.go_on(Input::Timer).await,
                () = sleep(hold) => actor.park().await,
            }
        }
    }
    .instrument(span)
    .await;
}

/// What this actor knows of the record.
enum State {
    /// Nothing: read it before deciding.
    Unloaded,
    /// The saga has no record.
    Absent,
    /// The record, and the revision it was read or written at. `unsaved` holds facts that may be lost
    /// and found again, see [`Persist::WithNext`].
    Present {
        record: Box<SagaRecord>,
        revision: u64,
        unsaved: bool,
    },
}

struct Actor {
    engine: Engine,
    saga_id: SagaId,
    state: State,
    /// Messages that drive the saga and are settled when it ends or parks.
    held: Vec<oneshot::Sender<Settled>>,
    held_since: Option<Instant>,
    /// A message is being decided on that will be held when the saga goes on.
    incoming: bool,
    /// Commands that are out and will report back to this actor.
    out: usize,
}

/// What came of deciding on an input.
#[derive(Debug)]
enum Progress {
    /// Stored, or on its way with a message held for it.
    Stored,
    /// Nothing to store.
    Ignored(Ignored),
    /// The saga has no record.
    Missing,
    /// It could not be stored now; the messages go back.
    Failed(String),
}

impl Actor {
    async fn take(&mut self, envelope: Envelope) {
        let Envelope {
            delivery,
            redelivery,
            done,
        } = envelope;
        self.incoming = true;
        let (progress, is_timer) = match delivery {
            Delivery::Answered(reply) => {
                self.incoming = false;
                self.out = self.out.saturating_sub(1);
                settle(done, Settled::Done);
                if let Some(reply) = reply {
                    self.go_on(Input::Reply(reply)).await;
                }
                return;
            }
            Delivery::Input(input) => {
                let is_timer = input == Input::Timer;
                let progress = match self.resume_if(redelivery).await {
                    Progress::Stored | Progress::Ignored(_) => self.decide(Some(input), None).await,
                    other @ (Progress::Missing | Progress::Failed(_)) => other,
                };
                (progress, is_timer)
            }
            Delivery::Start { workflow, arrival } => {
                let progress = match self.resume_if(redelivery).await {
                    Progress::Failed(reason) => Progress::Failed(reason),
                    Progress::Stored | Progress::Ignored(_) | Progress::Missing => {
                        self.decide(None, Some((workflow, arrival))).await
                    }
                };
                (progress, false)
            }
        };
        self.incoming = false;
        match progress {
            Progress::Missing => settle(done, Settled::Missing),
            Progress::Failed(reason) => {
                settle(done, Settled::Again(reason.clone()));
                self.give_back(&reason);
            }
            Progress::Stored | Progress::Ignored(_) if self.is_driven_here() => {
                self.held_since.get_or_insert_with(Instant::now);
                self.held.push(done);
            }
            // The armed timer itself, ahead of our clock: without it nothing would wake the saga.
            Progress::Ignored(Ignored::NothingDue) if is_timer && self.is_parked() => {
                settle(
                    done,
                    Settled::Again("the timer is ahead of this clock".to_owned()),
                );
            }
            Progress::Stored | Progress::Ignored(_) => {
                settle(done, Settled::Done);
                self.release();
            }
        }
    }

    /// Decides on something that no message brought.
    async fn go_on(&mut self, input: Input) {
        match self.decide(Some(input), None).await {
            Progress::Failed(reason) => self.give_back(&reason),
            Progress::Stored | Progress::Ignored(_) | Progress::Missing => {
                if !self.is_driven_here() {
                    self.release();
                }
            }
        }
    }

    /// A redelivered message may come from a replica that died: continue what it left.
    async fn resume_if(&mut self, redelivery: Redelivery) -> Progress {
        match redelivery {
            Redelivery::First => Progress::Stored,
            Redelivery::Again => self.decide(Some(Input::Resume), None).await,
        }
    }

    /// Decides on an input, or on the start of a saga, until the outcome is stored.
    async fn decide(
        &mut self,
        input: Option<Input>,
        start: Option<(&'static Workflow, Arrival)>,
    ) -> Progress {
        loop {
            if let State::Unloaded = self.state
                && let Err(reason) = self.load().await
            {
                return Progress::Failed(reason);
            }
            let replica = self.engine.0.clock.replica().to_owned();
            let turn = Turn {
                now: self.engine.0.clock.now(),
                replica: &replica,
            };
            let (decision, revision, was_unsaved) =
                match std::mem::replace(&mut self.state, State::Unloaded) {
                    State::Absent | State::Unloaded => {
                        let Some((workflow, arrival)) = &start else {
                            self.state = State::Absent;
                            return Progress::Missing;
                        };
                        (
                            saga::start(workflow, self.saga_id.clone(), arrival.clone(), turn),
                            0,
                            false,
                        )
                    }
                    State::Present {
                        record,
                        revision,
                        unsaved,
                    } => {
                        let input = match (&input, &start) {
                            (Some(input), _) => input.clone(),
                            (None, Some((_, arrival))) => Input::Arrival(arrival.clone()),
                            (None, None) => Input::Timer,
                        };
                        if record.workflow == CASE_WORKFLOW {
                            self.state = State::Present {
                                record,
                                revision,
                                unsaved,
                            };
                            return Progress::Ignored(Ignored::Ended);
                        }
                        let Some(workflow) = self
                            .engine
                            .0
                            .workflows
                            .find(&record.workflow, record.version)
                        else {
                            let reason = format!(
                                "workflow {} version {} is not part of this build",
                                record.workflow, record.version
                            );
                            return Progress::Failed(reason);
                        };
                        (
                            saga::decide(workflow, *record, input, turn),
                            revision,
                            unsaved,
                        )
                    }
                };
            match decision {
                Decision::Ignore(record, reason) => {
                    tracing::debug!(?reason, "ignored");
                    self.state = State::Present {
                        record,
                        revision,
                        unsaved: was_unsaved,
                    };
                    return Progress::Ignored(reason);
                }
                Decision::Commit(commit) => match self.store(*commit, revision, turn.now).await {
                    Ok(Stored::Yes) => return Progress::Stored,
                    // Somebody else wrote since: read, decide again, never repeat blindly.
                    Ok(Stored::Conflict) => {
                        self.engine.0.metrics.conflict();
                        self.state = State::Unloaded;
                    }
                    Err(reason) => return Progress::Failed(reason),
                },
            }
        }
    }

    async fn load(&mut self) -> Result<(), String> {
        self.state = match self.engine.0.store.load(&self.saga_id).await {
            Ok(None) => State::Absent,
            Ok(Some(stored)) => State::Present {
                record: Box::new(stored.record),
                revision: stored.revision,
                unsaved: false,
            },
            Err(error @ (LoadError::Unreachable(_) | LoadError::Undecodable { .. })) => {
                tracing::error!(error = telemetry::chain(&error), "cannot load");
                return Err(error.to_string());
            }
        };
        Ok(())
    }

    /// Commits, then performs.
    async fn store(
        &mut self,
        commit: Commit,
        revision: u64,
        now: Timestamp,
    ) -> Result<Stored, String> {
        let Commit {
            mut record,
            commands,
            events,
            persist,
            notes,
        } = commit;
        for note in notes {
            self.attend_to(note).await?;
        }
        // Only a saga whose driver message is with us may keep facts in memory alone.
        if persist == Persist::WithNext && self.is_held() && !commands.is_empty() {
            self.perform(commands);
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
            timer,
        };
        let revision = match self.engine.0.store.commit(&write).await {
            CommitOutcome::Written(revision) => revision,
            CommitOutcome::Conflict => return Ok(Stored::Conflict),
            CommitOutcome::Rejected(reason) | CommitOutcome::Unknown(reason) => {
                tracing::error!(reason, "a commit was not stored");
                return Err(reason);
            }
        };
        self.engine.0.metrics.committed(&record, &events);
        tracing::info!(status = %record.status, epoch = record.epoch, cause = record.cause, revision, "committed");
        self.state = State::Present {
            record: Box::new(record),
            revision,
            unsaved: false,
        };
        self.perform(commands);
        if !self.is_driven_here() {
            self.release();
        }
        Ok(Stored::Yes)
    }

    /// What this write does to the saga's timer. It is armed when no message is held for the saga, and
    /// when what the saga waits for is further away than a message is held.
    fn timer_for(&self, record: &mut SagaRecord, commands: &[Command], now: Timestamp) -> Timer {
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
    async fn park(&mut self) {
        self.held_since = None;
        if matches!(self.state, State::Unloaded)
            && let Err(reason) = self.load().await
        {
            return self.give_back(&reason);
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
        record.timer_at = Some(wake_at);
        "parked until something is due".clone_into(&mut record.cause);
        let write = Write {
            record,
            expected: *revision,
            events: &[],
            timer: Timer::Arm(wake_at),
        };
        match self.engine.0.store.commit(&write).await {
            CommitOutcome::Written(written) => {
                (*revision, *unsaved) = (written, false);
                self.engine.0.metrics.parked();
                self.release();
            }
            CommitOutcome::Conflict => {
                // Another replica has written: see who drives the saga now.
                self.engine.0.metrics.conflict();
                if let Err(reason) = self.load().await {
                    return self.give_back(&reason);
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

    async fn attend_to(&self, note: Note) -> Result<(), String> {
        let settled = match note {
            Note::OpenCase {
                reason,
                message,
                input,
            } => {
                let digest = contracts::subject::short_digest(input.to_string().as_bytes());
                let id = SagaId::from_parts(CASE_WORKFLOW, &[self.saga_id.as_str(), &digest]);
                let evidence = serde_json::json!({ "saga_id": self.saga_id, "message": input });
                self.engine.open_case(id, reason, message, evidence).await
            }
            Note::StartNext { message_id, input } => {
                let next = saga::next_generation(&self.saga_id);
                let name = next
                    .as_str()
                    .split('/')
                    .next()
                    .unwrap_or_default()
                    .to_owned();
                let Some(workflow) = self.engine.0.workflows.latest(&name) else {
                    return Err(format!("workflow {name} is not part of this build"));
                };
                let delivery = Delivery::Start {
                    workflow,
                    arrival: Arrival { message_id, input },
                };
                Box::pin(self.engine.deliver(&next, delivery, Redelivery::First)).await
            }
        };
        match settled {
            Settled::Done => Ok(()),
            Settled::Again(reason) => Err(reason),
            Settled::Missing => Err("the next generation went missing".to_owned()),
        }
    }

    /// Sends commands; each reports back here, or to a new actor of the saga when this one has gone.
    fn perform(&mut self, commands: Vec<Command>) {
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
                let (done, _settled) = oneshot::channel();
                let envelope = Envelope {
                    delivery: Delivery::Answered(reply),
                    redelivery: Redelivery::First,
                    done,
                };
                engine.enqueue(&saga_id, envelope);
            };
            // Detached: an answer is a fact whether or not this actor is still there to hear it.
            tokio::spawn(work.instrument(span));
        }
    }

    /// Whether the record names this replica as the saga's owner.
    fn is_ours(&self) -> bool {
        match &self.state {
            State::Present { record, .. } => record.owner == self.engine.0.clock.replica(),
            State::Absent | State::Unloaded => false,
        }
    }

    /// Whether a message is held for the saga, or is about to be.
    fn is_held(&self) -> bool {
        self.incoming || !self.held.is_empty()
    }

    /// Whether this replica has to hold a message for the saga.
    fn is_driven_here(&self) -> bool {
        match &self.state {
            State::Absent | State::Unloaded => false,
            State::Present { unsaved: true, .. } => true,
            State::Present { record, .. } => {
                let rests = record.status.is_terminal() || record.wake_at.is_none();
                self.is_ours() && !rests && !self.is_parked()
            }
        }
    }

    /// Whether the armed timer is the one that wakes the saga next.
    fn is_parked(&self) -> bool {
        match &self.state {
            State::Absent | State::Unloaded => false,
            State::Present { record, .. } => {
                record.timer_at.is_some() && record.timer_at == record.wake_at
            }
        }
    }

    fn wake_in(&self) -> Option<Duration> {
        let State::Present { record, .. } = &self.state else {
            return None;
        };
        let wake_at = record.wake_at.filter(|_| self.is_ours())?;
        Some(wait_until(wake_at, self.engine.0.clock.now()))
    }

    fn hold_ends_in(&self) -> Option<Duration> {
        let since = self.held_since?;
        Some((since + self.engine.0.limits.hold).saturating_duration_since(Instant::now()))
    }

    fn release(&mut self) {
        self.held_since = None;
        for done in self.held.drain(..) {
            settle(done, Settled::Done);
        }
    }

    /// Forgets what is not stored and gives the messages back: they will come again, here or elsewhere.
    fn give_back(&mut self, reason: &str) {
        self.state = State::Unloaded;
        self.held_since = None;
        for done in self.held.drain(..) {
            settle(done, Settled::Again(reason.to_owned()));
        }
    }
}

/// Whether a commit found the record as expected.
enum Stored {
    Yes,
    Conflict,
}

/// How long until then; nothing when it has passed.
fn wait_until(instant: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(instant.duration_since(now)).unwrap_or(Duration::ZERO)
}

async fn sleep(duration: Option<Duration>) {
    match duration {
        Some(duration) => tokio::time::sleep(duration).await,
        None => std::future::pending().await,
    }
}

fn settle(done: oneshot::Sender<Settled>, settled: Settled) {
    if done.send(settled).is_err() {
        tracing::debug!("nobody waits for this message any more");
    }
}
