//! The steps of a saga and what is known of each.

use contracts::command::WalletUpdate;
use contracts::id::{OperationId, Region, StepName};
use contracts::reply::{Effect, WalletReply};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::saga::policy::Policy;

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
    /// The question whether the step was applied, once it had to be asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Operation>,
}

impl StepRecord {
    /// Its operations: the step itself, its undo, the question about it.
    pub fn operations(&self) -> impl Iterator<Item = &Operation> {
        std::iter::once(&self.forward)
            .chain(&self.undo)
            .chain(&self.status)
    }
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

impl StepRecord {
    /// Whether its undo found nothing to offset and forbade the step for ever. A success of the step that is
    /// told after that was not offset by anything.
    #[must_use]
    pub fn is_forbidden(&self) -> bool {
        let Some(Outcome::Applied { reply, .. }) = self.undo.as_ref().map(|undo| &undo.outcome)
        else {
            return false;
        };
        matches!(
            WalletReply::deserialize(reply),
            Ok(WalletReply::Applied {
                effect: Effect::Tombstoned { .. },
                ..
            })
        )
    }
}

impl StepRecord {
    /// Whether the participant knows the step's operation id with other parameters: what stands there is not
    /// what the step has asked for.
    #[must_use]
    pub fn is_taken(&self) -> bool {
        matches!(&self.forward.outcome, Outcome::Unknown { last, .. } if last == CONFLICT)
    }

    /// Whether its undo has offset a movement of another customer or sum than the step asked for.
    #[must_use]
    pub fn offset_another(&self) -> bool {
        let Some(Outcome::Applied { reply, .. }) = self.undo.as_ref().map(|undo| &undo.outcome)
        else {
            return false;
        };
        let (
            Ok(asked),
            Ok(WalletReply::Applied {
                effect: Effect::Offset {
                    customer, money, ..
                },
                ..
            }),
        ) = (
            WalletUpdate::deserialize(&self.forward.request),
            WalletReply::deserialize(reply),
        )
        else {
            return false;
        };
        asked.customer != customer || asked.money != money
    }

    /// Whether a person has said that the step was not applied.
    #[must_use]
    pub fn is_settled_by_hand(&self) -> bool {
        matches!(self.forward.outcome, Outcome::NotApplied { .. })
    }
}

/// What an outcome is called that is unknown because the participant knows the id otherwise.
pub const CONFLICT: &str = "conflict";

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
