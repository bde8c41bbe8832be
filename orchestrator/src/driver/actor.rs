//! One saga at work in this process.

mod parking;
mod storing;
mod trouble;
mod unsaved;

use std::collections::VecDeque;
use std::time::Duration;

use contracts::id::SagaId;
use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::{Delivery, Engine, Envelope, Redelivery, Settled};
use crate::saga::action::{Decision, Ignored};
use crate::saga::input::{Arrival, Input, Reply};
use crate::saga::record::SagaRecord;
use crate::saga::{self, CASE_WORKFLOW, Turn, Workflow};
use crate::store::LoadError;
use crate::telemetry;
use trouble::Trouble;
use unsaved::{Again, Held, Room};

/// Drives one saga until it has ended, is parked, or belongs to another replica.
pub(super) async fn run(
    engine: Engine,
    saga_id: SagaId,
    mut inbox: mpsc::UnboundedReceiver<Envelope>,
) {
    let mut actor = Actor {
        engine,
        saga_id,
        state: State::Unloaded,
        held: Vec::new(),
        unsaved_answers: Vec::new(),
        again: VecDeque::new(),
        held_since: None,
        incoming: false,
        out: 0,
        lineage: 0,
    };
    actor.begin_lineage();
    loop {
        match actor.again.pop_front() {
            None => {}
            Some(Again::Message(matter, done)) => {
                actor.take_in(matter, Redelivery::First, done).await;
                continue;
            }
            Some(Again::Answer(reply)) => {
                actor.take_answer(reply).await;
                continue;
            }
        }
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
                    envelope.settle(Settled::Again("shutting down".to_owned()));
                }
                actor.engine.retire(&actor.saga_id, &mut inbox);
                return;
            }
            envelope = inbox.recv() => match envelope {
                Some(envelope) => actor.take(envelope).await,
                None => return,
            },
            () = sleep(wake) => actor.go_on(Matter::Input(Input::Timer)).await,
            () = sleep(hold) => actor.park().await,
        }
    }
}

/// Writes in a row that may find a newer record before the message is given back for later.
const MAX_LOST_RACES: u32 = 50;

/// Pause after a lost race, growing with each, so that two replicas do not chase one another.
const LOST_RACE_PAUSE: Duration = Duration::from_millis(2);

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
    held: Vec<Held>,
    /// Answers to commands that are stored, while what they say is in memory alone.
    unsaved_answers: Vec<Reply>,
    /// What has to be decided on once more, as it was forgotten.
    again: VecDeque<Again>,
    held_since: Option<Instant>,
    /// A message is being decided on that will be held when the saga goes on.
    incoming: bool,
    /// Commands that are out and will report back to this actor.
    out: usize,
    /// Names the unsaved facts held now; changes when they are forgotten.
    lineage: u64,
}

/// What is decided on.
enum Matter {
    /// Something about a saga that exists.
    Input(Input),
    /// The answer to a command that was sent on facts which are not stored.
    Answer(Reply),
    /// The start of a saga, or one more message about it.
    Start {
        workflow: &'static Workflow,
        arrival: Arrival,
    },
}

/// What came of deciding.
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
        let matter = match delivery {
            // No message is behind an answer, so there is nothing to hold.
            Delivery::Answered { reply, lineage } => return self.answered(reply, lineage).await,
            Delivery::Late(reply) => return self.take_answer(reply).await,
            Delivery::Input(input) => Matter::Input(input),
            Delivery::Start { workflow, arrival } => Matter::Start { workflow, arrival },
        };
        if let Some(done) = done {
            self.take_in(matter, redelivery, done).await;
        }
    }

    /// Decides on a message, and settles it or holds it.
    async fn take_in(
        &mut self,
        matter: Matter,
        redelivery: Redelivery,
        done: oneshot::Sender<Settled>,
    ) {
        self.incoming = true;
        let is_timer = matches!(matter, Matter::Input(Input::Timer));
        let progress = match self.resume_if(redelivery).await {
            Progress::Failed(reason) => Progress::Failed(reason),
            // Nothing was left behind; what is said may still be the first that is said to this saga.
            Progress::Stored | Progress::Ignored(_) | Progress::Missing => {
                self.decide(&matter).await
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
                let unsaved = self.is_unsaved().then_some(matter);
                let room = Room::take(&self.engine.0.held);
                self.held.push(Held::new(done, unsaved, room));
            }
            // The armed timer itself, ahead of our clock: without it nothing would wake the saga.
            Progress::Ignored(Ignored::NothingDue) if is_timer && self.is_parked() => {
                settle(
                    done,
                    Settled::Again("the timer is ahead of this clock".to_owned()),
                );
            }
            // It was fetched here and lay too long: another replica has it as well, and drives by it. Or
            // it is a timer that fires into a saga which another replica has taken over, perhaps by a
            // message that was acknowledged while that one stood still: then nothing else would wake it.
            Progress::Ignored(Ignored::Seen | Ignored::NothingDue)
                if self.is_driven_elsewhere() =>
            {
                settle(done, Settled::Left);
                self.release();
            }
            Progress::Stored | Progress::Ignored(_) => {
                settle(done, Settled::Done);
                self.release();
            }
        }
    }

    /// A command of this process has come back.
    async fn answered(&mut self, reply: Option<Reply>, lineage: Option<u64>) {
        self.out = self.out.saturating_sub(1);
        // It was sent on the strength of facts that have been forgotten since: what is stored has its own.
        if lineage.is_some_and(|lineage| lineage != self.lineage) {
            return;
        }
        match (reply, lineage) {
            (None, _) => {}
            (Some(reply), None) => self.take_answer(reply).await,
            (Some(reply), Some(_)) => self.go_on(Matter::Answer(reply)).await,
        }
    }

    /// Decides on something that no message brought.
    async fn go_on(&mut self, matter: Matter) {
        match self.decide(&matter).await {
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
            Redelivery::Again => self.decide(&Matter::Input(Input::Resume)).await,
        }
    }

    /// Decides until the outcome is stored.
    async fn decide(&mut self, matter: &Matter) -> Progress {
        let mut lost = 0;
        loop {
            if let State::Unloaded = self.state
                && let Err(trouble) = self.load().await
            {
                return self.give_up_on(trouble, matter).await;
            }
            let engine = self.engine.clone();
            let turn = Turn {
                now: engine.0.clock.now(),
                replica: engine.0.clock.replica(),
                rules: &engine.0.rules,
            };
            let (decision, revision, was_unsaved) =
                match std::mem::replace(&mut self.state, State::Unloaded) {
                    State::Absent | State::Unloaded => {
                        let Some(decision) = self.first(matter, turn) else {
                            self.state = State::Absent;
                            return Progress::Missing;
                        };
                        (decision, 0, false)
                    }
                    State::Present {
                        record,
                        revision,
                        unsaved,
                    } => {
                        let input = match matter {
                            Matter::Input(input) => input.clone(),
                            Matter::Answer(reply) => Input::Reply(reply.clone()),
                            Matter::Start { arrival, .. } => Input::Arrival(arrival.clone()),
                        };
                        let workflows = &engine.0.workflows;
                        let decision = if record.workflow == CASE_WORKFLOW {
                            saga::decide_case(*record, input, turn)
                        } else if let Some(workflow) =
                            workflows.find(&record.workflow, record.version)
                        {
                            saga::decide(workflow, *record, input, turn)
                        } else {
                            let reason = format!(
                                "workflow {} version {} is not part of this build",
                                record.workflow, record.version
                            );
                            return Progress::Failed(reason);
                        };
                        (decision, revision, unsaved)
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
                        self.overtaken(was_unsaved);
                        lost += 1;
                        if lost == MAX_LOST_RACES {
                            let reason = format!("{lost} writes in a row found a newer record");
                            return Progress::Failed(reason);
                        }
                        tokio::time::sleep(LOST_RACE_PAUSE * (lost - 1)).await;
                        if was_unsaved && matches!(matter, Matter::Answer(_)) {
                            // Whether there is still something to drive is for the stored record to say.
                            return match self.load().await {
                                Ok(()) => Progress::Ignored(Ignored::Forgotten),
                                Err(trouble) => self.give_up_on(trouble, matter).await,
                            };
                        }
                    }
                    Err(trouble) => return self.give_up_on(trouble, matter).await,
                },
            }
        }
    }

    /// What becomes of the first that is said to a saga; `None` when it needs a saga that exists.
    fn first(&self, matter: &Matter, turn: Turn<'_>) -> Option<Decision> {
        let saga_id = self.saga_id.clone();
        match matter {
            Matter::Start { workflow, arrival } => {
                Some(saga::start(workflow, saga_id, arrival.clone(), turn))
            }
            Matter::Input(input) => {
                let workflow = self.engine.0.workflows.of(&saga_id)?;
                saga::expect(workflow, saga_id, input.clone(), turn)
            }
            Matter::Answer(_) => None,
        }
    }

    async fn load(&mut self) -> Result<(), Trouble> {
        self.state = match self.engine.0.store.load(&self.saga_id).await {
            Ok(None) => State::Absent,
            Ok(Some(stored)) => State::Present {
                record: Box::new(stored.record),
                revision: stored.revision,
                unsaved: false,
            },
            Err(error @ LoadError::Unreachable(_)) => {
                tracing::warn!(error = telemetry::chain(&error), "cannot load");
                return Err(Trouble::Passing(error.to_string()));
            }
            Err(error @ LoadError::Undecodable { .. }) => {
                return Err(Trouble::Lasting(error.to_string()));
            }
        };
        // Whoever took the saga over may have got it with a message that we still hold, and may have
        // acknowledged it: from here on it drives nothing for us, even where the saga rests.
        if matches!(self.state, State::Present { .. }) && !self.is_ours() {
            self.leave();
        }
        Ok(())
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
