//! What a wallet answers. The orchestrator maps each answer to one of three outcomes in one place.

use crate::command::Movement;
use crate::id::{CustomerId, OperationId, SagaId};
use crate::money::Money;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Answer to an `update` or a `revert`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum WalletReply {
    /// The operation stands; repeated for the same id and parameters as often as asked.
    Applied {
        /// The operation answered.
        operation_id: OperationId,
        /// What it did.
        effect: Effect,
        /// When it was booked (first time, not this answer).
        applied_at: Timestamp,
    },
    /// Refused for a business reason; final for this operation id.
    Rejected {
        /// The operation answered.
        operation_id: OperationId,
        /// Which reason.
        code: RejectCode,
        /// For a person.
        message: String,
    },
    /// A revert came first: this operation was never executed and never will be. Final.
    Cancelled {
        /// The operation answered.
        operation_id: OperationId,
    },
    /// The id is known with other parameters; nothing changed.
    Conflict {
        /// The operation answered.
        operation_id: OperationId,
        /// The fields that differ.
        fields: Vec<String>,
    },
    /// The sender's fence is lower than one already seen for the saga; not executed.
    Stale {
        /// The highest fence seen.
        seen_fence: u64,
    },
    /// Arrived after its deadline; not executed by this attempt.
    Expired {
        /// The deadline it carried.
        deadline: Timestamp,
        /// The participant's clock.
        now: Timestamp,
    },
    /// Too much work at hand; not executed, safe to repeat.
    Busy {
        /// Wait at least so long.
        retry_after_ms: u64,
    },
    /// The request cannot be understood; not executed.
    Invalid {
        /// The header or field to mend.
        field: String,
        /// What is wrong and how to mend it.
        message: String,
    },
    /// The participant itself cannot tell (its database went away mid-way): ask again, same id.
    Unavailable {
        /// For a person.
        message: String,
    },
    /// An answer of a newer participant that this build does not know. Never sent, never stored.
    #[serde(other, skip_serializing)]
    Unknown,
}

/// What an applied operation did to the ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "effect", rename_all = "snake_case")]
pub enum Effect {
    /// An update booked one movement.
    Moved {
        /// Whose wallet.
        customer: CustomerId,
        /// Which way.
        movement: Movement,
        /// How much.
        money: Money,
        /// The balance right after it.
        balance: Money,
    },
    /// A revert booked the opposite movement; both entries stay.
    Offset {
        /// The operation that was offset.
        target: OperationId,
        /// Whose wallet.
        customer: CustomerId,
        /// Which way the offset went.
        movement: Movement,
        /// How much.
        money: Money,
        /// The balance right after it.
        balance: Money,
    },
    /// A revert found nothing to offset; the target can never be applied from now on.
    Tombstoned {
        /// The operation forbidden.
        target: OperationId,
    },
}

/// Business reasons of a wallet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RejectCode {
    /// The movement would take more than there is.
    InsufficientFunds,
    /// The wallet is closed.
    WalletClosed,
    /// The wallet does not hold this currency, or holds it with other decimals.
    WrongCurrency,
    /// The balance would leave the range of `i64` minor units.
    BalanceOverflow,
    /// A reason of a newer participant; still a definite refusal.
    #[serde(other)]
    Other,
}

/// State of an operation as a participant stores it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OperationState {
    /// Executed; its entries stand.
    Applied,
    /// Refused for ever.
    Rejected,
    /// Never executed, and never will be.
    Tombstoned,
    /// Executed and offset since.
    Reverted,
}

/// An operation as `get` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationView {
    /// Its id.
    pub operation_id: OperationId,
    /// Its saga, when one sent it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saga_id: Option<SagaId>,
    /// `update` or `revert`.
    pub kind: String,
    /// Its state.
    pub state: OperationState,
    /// The fence it came with.
    pub fence: u64,
    /// First arrival.
    pub created_at: Timestamp,
    /// The stored answer.
    pub reply: WalletReply,
}

/// A ledger entry as `get` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryView {
    /// The operation that booked it.
    pub operation_id: OperationId,
    /// Which way.
    pub movement: Movement,
    /// How much.
    pub money: Money,
    /// When.
    pub booked_at: Timestamp,
}

/// Answer to a `get`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum WalletView {
    /// A stored operation.
    Operation(OperationView),
    /// No such operation. Proves nothing: it may still be on its way.
    UnknownOperation {
        /// The id asked for.
        operation_id: OperationId,
    },
    /// A customer's balances (one per currency) and latest entries, newest first. An unknown
    /// customer has none.
    Wallet {
        /// Whose.
        customer: CustomerId,
        /// One per currency.
        balances: Vec<Money>,
        /// At most 100, newest first.
        entries: Vec<EntryView>,
    },
    /// A page of operations, in the order of their first arrival. One that is being booked while the page
    /// is read may be missing from it, though its time lies before that of others shown.
    Operations {
        /// As stored.
        operations: Vec<OperationView>,
        /// To be given as `after` for the next page; absent on the last one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        next: Option<String>,
    },
    /// The request cannot be understood.
    Invalid {
        /// The field to mend.
        field: String,
        /// What is wrong and how to mend it.
        message: String,
    },
    /// The participant cannot read its ledger now.
    Unavailable {
        /// For a person.
        message: String,
    },
}
