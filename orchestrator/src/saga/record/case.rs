//! Why a person is asked.

use contracts::id::OperationId;
use contracts::money::Money;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Why a person is asked, and what there is to go by.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// Which kind.
    pub reason: CaseReason,
    /// What happened and what can be done.
    pub message: String,
    /// Since when.
    pub since: Timestamp,
    /// Who looks after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The operation it is about, when it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation_id: Option<OperationId>,
    /// Money that may have moved and is not settled, or what waits; one entry a currency.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub amount_at_risk: Vec<Money>,
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
    /// The workflow cannot read what a participant, or a person for it, answered.
    UnreadableReply,
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

impl CaseReason {
    /// Whether it only reports something that goes on being tried; any other keeps the saga from going on.
    #[must_use]
    pub fn only_reports(self) -> bool {
        match self {
            Self::Overdue | Self::DeadlinePassed => true,
            Self::Unreadable
            | Self::ConflictingFact
            | Self::AmountGuard
            | Self::Nondeterministic
            | Self::Poison
            | Self::UnreadableReply
            | Self::RefusedAfterPivot
            | Self::CompensationRefused
            | Self::Contradiction
            | Self::OperationConflict
            | Self::OrphanSignal
            | Self::Reversal => false,
        }
    }
}
