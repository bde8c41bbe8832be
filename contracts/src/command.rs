//! Wallet commands: orchestrator to region agent, on `billing.<region>.wallet.<verb>`.
//!
//! The verb is in the subject, who sends and until when is in the [`CommandHeader`] (NATS headers),
//! what to do is the body. An operation id never changes between attempts.

use crate::id::{CustomerId, OperationId, SagaId};
use crate::money::Money;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// What a wallet can be asked for; the last token of the subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WalletVerb {
    /// Book one movement.
    Update,
    /// Offset an operation, or forbid it for ever when it never arrived.
    Revert,
    /// Read an operation or a customer's balances.
    Get,
}

impl WalletVerb {
    /// All verbs, in the order they are served.
    pub const ALL: [Self; 3] = [Self::Update, Self::Revert, Self::Get];

    /// The subject token.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Update => "update",
            Self::Revert => "revert",
            Self::Get => "get",
        }
    }
}

/// Who sends a command, which operation it is and until when it may be executed. Travels as headers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandHeader {
    /// The saga this belongs to; `None` for a command typed by a person.
    pub saga_id: Option<SagaId>,
    /// Same id, same effect: executed at most once for ever.
    pub operation_id: OperationId,
    /// 1 for the first sending; for diagnosis only, never part of a key.
    pub attempt: u32,
    /// The saga's epoch. A participant refuses a number lower than one it has seen for this saga.
    pub fence: u64,
    /// Absolute; a participant does not start the operation after this instant.
    pub deadline: Timestamp,
}

/// Which way money moves, seen from the customer's wallet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Movement {
    /// Into the wallet.
    Credit,
    /// Out of the wallet.
    Debit,
}

/// Books one movement on a customer's wallet. All fields but `memo` are parameters: the same
/// operation id with other parameters is a conflict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WalletUpdate {
    /// Whose wallet.
    pub customer: CustomerId,
    /// Which way.
    pub movement: Movement,
    /// How much; above zero.
    pub money: Money,
    /// For a person; no part of the comparison.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memo: Option<String>,
}

/// Offsets `target` by a new ledger entry, or leaves a tombstone when `target` was never seen, so
/// that a late arrival of it is refused. Has its own operation id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WalletRevert {
    /// The operation to offset.
    pub target: OperationId,
    /// For a person; no part of the comparison.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memo: Option<String>,
}

/// Reads one operation, a customer's balances and latest entries, or the operations of a range of time.
/// Exactly one field is given.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WalletGet {
    /// The operation to show.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation_id: Option<OperationId>,
    /// The customer to show.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub customer: Option<CustomerId>,
    /// The operations to list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operations: Option<OperationRange>,
}

/// Operations by their first arrival, oldest first, a page at a time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationRange {
    /// From this instant on.
    pub since: Timestamp,
    /// Before this one.
    pub until: Timestamp,
    /// Only what comes after this place: `next` of the page before, unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// At most so many; fewer where they would not fit into one message. 1 to
    /// [`OperationRange::MAX_LIMIT`], which is also what absence means.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

impl OperationRange {
    /// Operations of one page at most.
    pub const MAX_LIMIT: u32 = 500;
}

/// A command with its verb.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WalletCommand {
    /// See [`WalletUpdate`].
    Update(WalletUpdate),
    /// See [`WalletRevert`].
    Revert(WalletRevert),
}
