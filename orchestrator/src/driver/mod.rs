//! The shell: load, decide, commit, perform, acknowledge, in that order. A crash between any two
//! repeats work; it never loses or invents it.
//!
//! Each saga at work has one actor in this process, so that its inputs are decided one after another;
//! across processes the record's revision does the same. The message that started or woke a saga is
//! its *driver*: it stays unacknowledged until the saga has ended, or is parked with a timer armed,
//! or belongs to another replica. So each open saga has an unacknowledged driver or an armed timer,
//! except one that waits for a person.

mod actor;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use contracts::id::SagaId;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::participants::Perform;
use crate::saga::action::Note;
use crate::saga::input::{Arrival, Input, Reply};
use crate::saga::record::CaseReason;
use crate::saga::rules::Rules;
use crate::saga::{self, CASE_WORKFLOW, Turn, Workflow};
use crate::store::{CommitOutcome, LoadError, StateLog, Timer, Write};
use crate::telemetry;
use crate::workflows::Workflows;

/// How long the shell waits in memory before it parks a saga.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// A message is held unacknowledged at most so long; then the saga is parked with a timer armed,
    /// so that a slow region cannot fill the consumer's limit of pending messages.
    pub hold: Duration,
    /// With more messages held than this, each is held for a moment only: what a sound region answers
    /// at once still needs no timer, and what a silent one leaves open makes room.
    pub roomy: usize,
    /// Commands that may be out to one region at a time: what a slow one can keep busy, and no more.
    pub region_slots: usize,
}

/// The moment: longer than a deposit takes where everything answers.
const MOMENT: Duration = Duration::from_millis(100);

impl Default for Limits {
    fn default() -> Self {
        Self {
            hold: Duration::from_secs(2),
            roomy: 1024,
            region_slots: 128,
        }
    }
}

impl Limits {
    /// These limits where so many messages may be out at a time, at all replicas together.
    #[must_use]
    pub fn within(self, max_ack_pending: i64) -> Self {
        // A quarter: a few replicas share the consumer, and not all of it may be held by sagas that wait.
        let roomy =
            usize::try_from(max_ack_pending).map_or(self.roomy, |out| self.roomy.min(out / 4));
        Self { roomy, ..self }
    }

    fn hold_with(self, held: usize) -> Duration {
        if held > self.roomy {
            self.hold.min(MOMENT)
        } else {
            self.hold
        }
    }
}

/// Drives sagas. Cheap to clone.
#[derive(Clone)]
pub struct Engine(Arc<Inner>);

struct Inner {
    store: Arc<dyn StateLog>,
    workflows: Workflows,
    participants: Arc<dyn Perform>,
    clock: Clock,
    rules: Rules,
    limits: Limits,
    metrics: Metrics,
    actors: Mutex<HashMap<SagaId, mpsc::UnboundedSender<Envelope>>>,
    tasks: TaskTracker,
    stop: CancellationToken,
    lineages: AtomicU64,
    held: Arc<AtomicUsize>,
}

/// Something for one saga.
#[derive(Debug)]
pub enum Delivery {
    /// A message that starts the saga, or says something to it when it exists.
    Start {
        /// Which workflow a new saga gets.
        workflow: &'static Workflow,
        /// The message.
        arrival: Arrival,
    },
    /// Something for an existing saga.
    Input(Input),
    /// An answer that nobody waits for any more.
    Late(Reply),
    /// A command of this process has come back.
    Answered {
        /// Its answer; `None` when nothing was heard in time.
        reply: Option<Reply>,
        /// The unsaved facts it was sent on, when there were any.
        lineage: Option<u64>,
    },
}

/// Whether the message behind a delivery was delivered before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Redelivery {
    /// For the first time.
    First,
    /// Whoever had it may have died with it.
    Again,
}

/// What may be done with the message behind a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settled {
    /// Acknowledge it: what it said is stored, and the saga is ended, parked or somebody else's.
    Done,
    /// Give it back: nothing is lost, it will come again.
    Again(String),
    /// There is no such saga.
    Missing,
    /// Neither acknowledge it nor give it back: this very message drives the saga at another replica,
    /// which acknowledges it at the end. If that one dies, the message comes again.
    Left,
}

#[derive(Debug)]
struct Envelope {
    delivery: Delivery,
    redelivery: Redelivery,
    /// Who waits for the message behind it, when there is one.
    done: Option<oneshot::Sender<Settled>>,
}

impl Envelope {
    fn settle(self, settled: Settled) {
        if let Some(done) = self.done
            && done.send(settled).is_err()
        {
            tracing::debug!("nobody waits for this message any more");
        }
    }
}

impl Engine {
    /// An engine over its parts; it does nothing until something is delivered.
    #[must_use]
    pub fn new(
        store: Arc<dyn StateLog>,
        workflows: Workflows,
        participants: Arc<dyn Perform>,
        clock: Clock,
        rules: Rules,
        limits: Limits,
        metrics: Metrics,
    ) -> Self {
        Self(Arc::new(Inner {
            store,
            workflows,
            participants,
            clock,
            rules,
            limits,
            metrics,
            actors: Mutex::new(HashMap::new()),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
            lineages: AtomicU64::new(0),
            held: Arc::default(),
        }))
    }

    /// Hands something to a saga's actor and waits until its message may be settled.
    pub async fn deliver(
        &self,
        saga_id: &SagaId,
        delivery: Delivery,
        redelivery: Redelivery,
    ) -> Settled {
        let (done, settled) = oneshot::channel();
        self.enqueue(
            saga_id,
            Envelope {
                delivery,
                redelivery,
                done: Some(done),
            },
        );
        settled
            .await
            .unwrap_or_else(|_| Settled::Again("the saga's actor has stopped".to_owned()))
    }

    /// Keeps something no saga can take in as a record that waits for a person. The same id is the
    /// same case.
    pub async fn open_case(
        &self,
        saga_id: SagaId,
        reason: CaseReason,
        message: String,
        evidence: Value,
    ) -> Settled {
        let turn = Turn {
            now: self.0.clock.now(),
            replica: self.0.clock.replica(),
            rules: &self.0.rules,
        };
        let record = saga::case_record(saga_id, reason, message, evidence, turn);
        let write = Write {
            record: &record,
            expected: 0,
            events: &[],
            audit: None,
            timer: Timer::Keep,
        };
        match self.0.store.commit(&write).await {
            CommitOutcome::Written(_) => {
                self.0.metrics.case_opened(reason);
                tracing::warn!(saga.id = %record.saga_id, ?reason, cause = record.cause, "case opened");
                Settled::Done
            }
            // The same case, it seems. A write that was refused because another one was on its way proves
            // nothing of that one, and what is settled here is acknowledged.
            CommitOutcome::Conflict => match self.0.store.load(&record.saga_id).await {
                Ok(Some(_)) | Err(LoadError::Undecodable { .. }) => Settled::Done,
                Ok(None) => Settled::Again("the case was not stored".to_owned()),
                Err(error @ LoadError::Unreachable(_)) => Settled::Again(error.to_string()),
            },
            CommitOutcome::Rejected(reason) | CommitOutcome::Unknown(reason) => {
                Settled::Again(reason)
            }
        }
    }

    /// Stops: sagas at work get `grace` to reach their end, the rest is given back.
    pub async fn shut_down(&self, grace: Duration) {
        self.0.tasks.close();
        if tokio::time::timeout(grace, self.0.tasks.wait())
            .await
            .is_err()
        {
            tracing::info!("giving back what has not ended within {grace:?}");
            self.0.stop.cancel();
            self.0.tasks.wait().await;
        }
    }

    /// The state log behind it.
    #[must_use]
    pub fn store(&self) -> &dyn StateLog {
        self.0.store.as_ref()
    }

    /// The workflows it knows.
    #[must_use]
    pub fn workflows(&self) -> &Workflows {
        &self.0.workflows
    }

    /// The clock it reads.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.0.clock
    }

    /// The metrics it counts in.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    /// An answer that nobody waits for any more is still a fact.
    pub fn late_reply(&self, saga_id: &SagaId, reply: Reply) {
        self.0.metrics.late_reply();
        let envelope = Envelope {
            delivery: Delivery::Late(reply),
            redelivery: Redelivery::First,
            done: None,
        };
        self.enqueue(saga_id, envelope);
    }

    /// Does what a saga's decision asks for messages that the saga does not take in. Idempotent.
    async fn attend_to(&self, saga_id: &SagaId, note: Note) -> Result<(), String> {
        let settled = match note {
            Note::OpenCase {
                reason,
                message,
                input,
            } => {
                // The message names the signal, where there is one: two of them may say the same.
                let said = format!("{message}\n{input}");
                let digest = contracts::subject::short_digest(said.as_bytes());
                let id = SagaId::from_parts(CASE_WORKFLOW, &[saga_id.as_str(), &digest]);
                let evidence = serde_json::json!({ "saga_id": saga_id, "message": input });
                self.open_case(id, reason, message, evidence).await
            }
            Note::StartNext { message_id, input } => {
                let next = saga::next_generation(saga_id);
                let Some(workflow) = self.0.workflows.of(&next) else {
                    return Err(format!("no workflow of this build is that of {next}"));
                };
                if next == *saga_id {
                    return Err(format!(
                        "no further generation of {saga_id}: its id would be too long"
                    ));
                }
                let delivery = Delivery::Start {
                    workflow,
                    arrival: Arrival { message_id, input },
                };
                // This may be done again after a crash that left the next one with nobody to drive it.
                Box::pin(self.deliver(&next, delivery, Redelivery::Again)).await
            }
        };
        match settled {
            Settled::Done => Ok(()),
            Settled::Again(reason) => Err(reason),
            Settled::Missing => Err("the next generation went missing".to_owned()),
            Settled::Left => Err("another replica drives the next generation".to_owned()),
        }
    }

    fn enqueue(&self, saga_id: &SagaId, envelope: Envelope) {
        let mut actors = self.0.actors.lock().unwrap_or_else(PoisonError::into_inner);
        let envelope = match actors.get(saga_id) {
            None => envelope,
            Some(actor) => match actor.send(envelope) {
                Ok(()) => return,
                Err(mpsc::error::SendError(envelope)) => envelope,
            },
        };
        let (sender, inbox) = mpsc::unbounded_channel();
        if sender.send(envelope).is_ok() {
            actors.insert(saga_id.clone(), sender);
            self.0.metrics.sagas_at_work(actors.len());
            let engine = self.clone();
            let saga_id = saga_id.clone();
            // Made here, where whatever woke the saga is at work: it belongs to the same trace.
            let span = telemetry::saga_span(&saga_id);
            self.0
                .tasks
                .spawn(async move { actor::run(engine, saga_id, inbox).await }.instrument(span));
        }
    }

    /// Takes the actor off the list unless something has come in since.
    fn retire(
        &self,
        saga_id: &SagaId,
        inbox: &mut mpsc::UnboundedReceiver<Envelope>,
    ) -> Option<Envelope> {
        let mut actors = self.0.actors.lock().unwrap_or_else(PoisonError::into_inner);
        match inbox.try_recv() {
            Ok(envelope) => Some(envelope),
            Err(_) => {
                actors.remove(saga_id);
                self.0.metrics.sagas_at_work(actors.len());
                None
            }
        }
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("replica", &self.0.clock.replica())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_less_room_the_shorter_a_message_is_held() {
        let limits = Limits::default().within(8);
        assert_eq!(limits.roomy, 2);
        assert_eq!(limits.hold_with(2), limits.hold);
        assert_eq!(limits.hold_with(3), MOMENT);
        assert_eq!(Limits::default().within(-1).roomy, Limits::default().roomy);
        assert_eq!(Limits::default().within(4096).roomy, 1024);
    }
}
