//! The stored state of a saga: what a person reads with `nats kv get saga <key>`.

use contracts::id::{OperationId, Region, SagaId, StepName};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

use super::policy::Policy;

/// Version of the shape of [`SagaRecord`].
pub const SCHEMA: u32 = 1;

/// One saga as stored. Everything a later decision needs is here; nothing is kept anywhere else.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SagaRecord {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Which saga.
    pub saga_id: SagaId,
    /// The workflow that drives it.
    pub workflow: String,
    /// The workflow's version; stays for the life of the saga.
    pub version: u32,
    /// Where it stands, in one word.
    pub status: Status,
    /// The workflow's own label for where it stands, for searching.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Forward, or turned back for a reason.
    pub direction: Direction,
    /// Generation of the owner; sent with each command as its fence. Never falls.
    pub epoch: u64,
    /// The replica that drives the saga.
    pub owner: String,
    /// Why this revision was written.
    pub cause: String,
    /// When the saga was started.
    pub started_at: Timestamp,
    /// When something was last confirmed from outside: a reply, a signal, the start. Not the last write.
    pub last_progress_at: Timestamp,
    /// When the direction changes if the saga is not past its pivot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_at: Option<Timestamp>,
    /// When something is next due; `None` when nothing is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake_at: Option<Timestamp>,
    /// The instant of the timer armed in the stream for this saga, when one is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timer_at: Option<Timestamp>,
    /// When the saga ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// What people search by.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, String>,
    /// What the workflow reads.
    pub input: Value,
    /// Steps in the order in which they were first issued.
    #[serde(default)]
    pub steps: Vec<StepRecord>,
    /// Signals in the order in which they arrived.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signals: Vec<SignalRecord>,
    /// Small decisions that must not change when the workflow runs again, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub facts: BTreeMap<String, Value>,
    /// Signals the workflow waits for now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub awaiting: Vec<Awaiting>,
    /// Names of events put in the log.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<String>,
    /// Intake messages accounted for here, oldest first, the last [`MAX_SEEN`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub seen: Vec<String>,
    /// How many repeats of known facts were absorbed.
    #[serde(default)]
    pub duplicates: u64,
    /// What the workflow returned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// Why a person is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub case: Option<Case>,
}

/// Intake message ids kept in a record; older ones are still known by the facts they brought.
pub const MAX_SEEN: usize = 32;

/// Signals kept in a record, so that a storm of them cannot make the record outgrow a message.
pub const MAX_SIGNALS: usize = 64;

/// Bytes of all signals of a record together.
pub const MAX_SIGNAL_BYTES: usize = 128 * 1024;

/// Where a saga stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// A step is under way or about to be.
    Running,
    /// Waits for a signal or a timer.
    Waiting,
    /// Turned back; effects are being settled.
    Compensating,
    /// Cannot go on without a person; see the case.
    NeedsReview,
    /// Ended: everything was done and its event is in the log.
    Completed,
    /// Ended: turned back, and each effect was offset.
    Compensated,
    /// Ended: turned back on request or by deadline before there was any effect.
    Cancelled,
    /// Ended: refused before there was any effect.
    Failed,
}

impl Status {
    /// Every status, in the order reports use.
    pub const ALL: [Self; 8] = [
        Self::Running,
        Self::Waiting,
        Self::Compensating,
        Self::NeedsReview,
        Self::Completed,
        Self::Compensated,
        Self::Cancelled,
        Self::Failed,
    ];

    /// Final: no command of the saga can still move money.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        match self {
            Self::Running | Self::Waiting | Self::Compensating | Self::NeedsReview => false,
            Self::Completed | Self::Compensated | Self::Cancelled | Self::Failed => true,
        }
    }

    /// As stored and shown.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Compensating => "compensating",
            Self::NeedsReview => "needs_review",
            Self::Completed => "completed",
            Self::Compensated => "compensated",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
        }
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Which way a saga goes. Once cancelling it never flips back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "going", rename_all = "snake_case")]
pub enum Direction {
    /// Towards the workflow's end.
    Forward,
    /// Back: effects are settled, newest first.
    Cancelling {
        /// Why it turned.
        reason: TurnReason,
        /// The same for a person.
        message: String,
        /// Since when.
        since: Timestamp,
    },
}

/// Why a saga turned back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnReason {
    /// A participant refused a step.
    StepRefused,
    /// A step could not be delivered within its budget.
    StepUnreachable,
    /// A step's outcome stayed unknown within its budget.
    OutcomeUnknown,
    /// The saga's deadline passed, or the workflow waited in vain.
    TimedOut,
    /// Somebody asked for it.
    CancelRequested,
    /// The workflow itself decided so.
    Refused,
}

/// One step of a saga.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    /// Its name; a repetition is `name#2`.
    pub name: StepName,
    /// How it is retried.
    pub policy: Policy,
    /// After this one is applied, the saga only goes forward.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pivot: bool,
    /// What it does.
    pub forward: Operation,
    /// What offsets it; known and stored before the forward command leaves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undo: Option<Operation>,
}

/// One step in one direction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Operation {
    /// The same on every attempt, for ever.
    pub operation_id: OperationId,
    /// Who performs it.
    pub participant: Participant,
    /// What the participant is asked for, such as `wallet.update`.
    pub kind: String,
    /// The parameters.
    pub request: Value,
    /// Digest of participant, kind and request when first issued.
    pub digest: String,
    /// Performing it twice is harmless and its loss is noticed: no commit is needed before it leaves.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub repeatable: bool,
    /// How often it was sent.
    #[serde(default)]
    pub attempts: u32,
    /// What is known of it.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// Who performs a step.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Participant {
    /// The orchestrator's own side: payments, rates.
    Core,
    /// A region's agent.
    Region(Region),
}

/// What is known of an operation: applied, not applied with proof, or not known.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// Not sent yet.
    Planned,
    /// An attempt is out and may still be answered.
    InFlight {
        /// When the first attempt of this budget left.
        issued_at: Timestamp,
        /// When this attempt stops being waited for, and the participant stops accepting it.
        deadline: Timestamp,
        /// Attempts within this budget; a takeover begins a new one.
        tries: u32,
        /// An earlier attempt may have had an effect.
        doubtful: bool,
    },
    /// Between two attempts.
    BackingOff {
        /// When the first attempt of this budget left.
        issued_at: Timestamp,
        /// When the next one leaves.
        retry_at: Timestamp,
        /// Attempts within this budget.
        tries: u32,
        /// An earlier attempt may have had an effect.
        doubtful: bool,
        /// What the last attempt came to.
        last: String,
    },
    /// The participant says it stands.
    Applied {
        /// What it answered.
        reply: Value,
        /// When we learned it.
        at: Timestamp,
    },
    /// It has no effect and never will have, and this is why we know.
    NotApplied {
        /// Short code.
        code: String,
        /// For a person.
        message: String,
        /// When we learned it.
        at: Timestamp,
    },
    /// The budget is spent without a definite answer.
    Unknown {
        /// Since when.
        since: Timestamp,
        /// What the last attempt came to.
        last: String,
    },
}

impl Outcome {
    /// Whether the operation may have, or may yet get, an effect.
    #[must_use]
    pub fn may_have_effect(&self) -> bool {
        match self {
            Self::Planned | Self::NotApplied { .. } => false,
            Self::InFlight { .. }
            | Self::BackingOff { .. }
            | Self::Applied { .. }
            | Self::Unknown { .. } => true,
        }
    }

    /// Whether an answer is still expected.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        match self {
            Self::InFlight { .. } | Self::BackingOff { .. } => true,
            Self::Planned
            | Self::Applied { .. }
            | Self::NotApplied { .. }
            | Self::Unknown { .. } => false,
        }
    }
}

/// A signal as it arrived.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SignalRecord {
    /// Its name.
    pub name: String,
    /// The sender's id; the same id is the same signal.
    pub id: String,
    /// Digest of its body: the same id with another body is refused.
    pub digest: String,
    /// What it says.
    pub body: Value,
    /// When it arrived.
    pub at: Timestamp,
}

/// What a saga waits for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Awaiting {
    /// Any of these signals; none for a plain sleep.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signals: Vec<String>,
    /// Until when.
    pub until: Timestamp,
}

/// Why a person is asked, and what there is to go by.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// Which kind.
    pub reason: CaseReason,
    /// What happened and what can be done.
    pub message: String,
    /// Since when.
    pub since: Timestamp,
    /// What there is to go by.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub evidence: Value,
}

/// Kinds of cases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CaseReason {
    /// A callback that could not be understood.
    Unreadable,
    /// The same fact came again with another sum, currency or customer.
    ConflictingFact,
    /// What came in differs from what was expected or needs a decision.
    AmountGuard,
    /// The workflow asks for something else than it did before.
    Nondeterministic,
    /// The workflow itself failed, or the record cannot be used.
    Poison,
    /// A participant refused a step after the pivot.
    RefusedAfterPivot,
    /// A participant refused a compensation.
    CompensationRefused,
    /// A compensation, or a step after the pivot, has been retried beyond its budget; it goes on.
    Overdue,
    /// What a participant says contradicts what it said before.
    Contradiction,
    /// A participant knows the operation id with other parameters.
    OperationConflict,
    /// The deadline passed while something the customer paid for was still to be done.
    DeadlinePassed,
    /// A signal for a saga that does not exist.
    OrphanSignal,
    /// The provider took money back, or may: there is no workflow for it yet.
    Reversal,
}

impl SagaRecord {
    /// Whether the pivot has been applied: from then on the saga only goes forward.
    #[must_use]
    pub fn is_past_pivot(&self) -> bool {
        self.steps
            .iter()
            .any(|step| step.pivot && matches!(step.forward.outcome, Outcome::Applied { .. }))
    }

    /// Why the saga turned back, when it did.
    #[must_use]
    pub fn direction_reason(&self) -> Option<TurnReason> {
        match &self.direction {
            Direction::Forward => None,
            Direction::Cancelling { reason, .. } => Some(*reason),
        }
    }

    /// All operations with the step they belong to.
    pub fn operations(&self) -> impl Iterator<Item = &Operation> {
        self.steps
            .iter()
            .flat_map(|step| std::iter::once(&step.forward).chain(step.undo.as_ref()))
    }

    /// The operation of this id.
    pub fn operation_mut(&mut self, id: &OperationId) -> Option<&mut Operation> {
        self.steps
            .iter_mut()
            .flat_map(|step| std::iter::once(&mut step.forward).chain(step.undo.as_mut()))
            .find(|operation| operation.operation_id == *id)
    }

    /// Whether an attempt is out.
    #[must_use]
    pub fn has_in_flight(&self) -> bool {
        self.operations()
            .any(|operation| matches!(operation.outcome, Outcome::InFlight { .. }))
    }

    /// Whether the workflow has taken this signal up.
    #[must_use]
    pub fn is_consumed(&self, signal_id: &str) -> bool {
        self.facts
            .values()
            .any(|fact| Self::consumes(fact, signal_id))
    }

    /// Whether this fact is the choice of this signal.
    pub(super) fn consumes(fact: &Value, signal_id: &str) -> bool {
        fact.get("signal").and_then(Value::as_str) == Some(signal_id)
    }

    /// Notes an intake message as accounted for.
    pub fn note_seen(&mut self, message_id: &str) {
        if self.seen.len() == MAX_SEEN {
            self.seen.remove(0);
        }
        self.seen.push(message_id.to_owned());
    }

    /// When something is next due, from the state itself.
    #[must_use]
    pub fn next_due(&self) -> Option<Timestamp> {
        if self.status.is_terminal() {
            return None;
        }
        let operations = self
            .operations()
            .filter_map(|operation| match &operation.outcome {
                Outcome::InFlight { deadline, .. } => Some(*deadline),
                Outcome::BackingOff { retry_at, .. } => Some(*retry_at),
                Outcome::Planned
                | Outcome::Applied { .. }
                | Outcome::NotApplied { .. }
                | Outcome::Unknown { .. } => None,
            });
        let waits = self.awaiting.iter().map(|awaiting| awaiting.until);
        let deadline = self
            .deadline_at
            .filter(|_| self.direction == Direction::Forward && !self.is_past_pivot());
        let blocked = self.status == Status::NeedsReview;
        operations
            .chain(waits)
            .chain(deadline.filter(|_| !blocked))
            .min()
    }
}
