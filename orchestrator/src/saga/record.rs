//! The stored state of a saga: what a person reads with `nats kv get saga <key>`.

mod case;
mod step;

use contracts::id::SagaId;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

use super::by_hand::ByHand;
pub use case::{Case, CaseReason};
pub use step::{CONFLICT, Operation, Outcome, Participant, StepRecord};

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
    /// The workflow's version; stays for the life of the saga. [`NOT_STARTED`] until the saga is started.
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
    /// When something was last confirmed from outside: a reply, a signal, the start, a person's word on an
    /// operation. Not the last write, and nothing that people only ask for.
    pub last_progress_at: Timestamp,
    /// When the direction changes; gone once the pivot has been applied.
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
    /// What people did by hand.
    #[serde(default, skip_serializing_if = "ByHand::is_empty")]
    pub by_hand: ByHand,
}

/// Version of a saga that was spoken to before it was started.
pub const NOT_STARTED: u32 = 0;

/// Highest epoch: wallets keep fences in a signed column. A saga gets there only when a participant reports a
/// fence that nobody here has minted; its owners then share one fence, and the record's revision and the
/// operation ids alone keep them apart.
pub const MAX_EPOCH: u64 = u64::MAX >> 1;

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

impl SagaRecord {
    /// Whether the saga has begun; before, the record only keeps what was said to it.
    #[must_use]
    pub fn is_started(&self) -> bool {
        self.version != NOT_STARTED
    }

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
        self.steps.iter().flat_map(StepRecord::operations)
    }

    /// Whether a person has stopped its clocks.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.by_hand.held.is_some()
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

    /// Makes the epoch higher than `fence`, as far as [`MAX_EPOCH`]; it never falls.
    pub(super) fn raise_epoch_above(&mut self, fence: u64) {
        self.epoch = self.epoch.max(fence.saturating_add(1).min(MAX_EPOCH));
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
        if self.status.is_terminal() || self.is_held() {
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
        let deadline = self.deadline_at.filter(|_| {
            !self.is_started() || self.direction == Direction::Forward && !self.is_past_pivot()
        });
        let blocked = self.status == Status::NeedsReview;
        operations
            .chain(waits)
            .chain(deadline.filter(|_| !blocked))
            .min()
    }
}
