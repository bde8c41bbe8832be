//! What the judge is told: plain data, no type of what is judged.

use serde::Serialize;
use serde_json::Value;

/// Something that has happened.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "saw", rename_all = "snake_case")]
pub enum Observation {
    /// A record is stored.
    RecordWritten {
        /// Whose.
        saga: String,
        /// Its place in the stream.
        revision: u64,
        /// As stored.
        text: String,
    },
    /// An event is stored.
    EventLogged {
        /// Whose.
        saga: String,
        /// Its name.
        name: String,
        /// What it says.
        body: Value,
    },
    /// A timer is armed, or armed anew.
    TimerArmed {
        /// Whose.
        saga: String,
    },
    /// An armed timer was taken back.
    TimerGone {
        /// Whose.
        saga: String,
    },
    /// An armed timer has fired; its message is stored.
    TimerFired {
        /// Whose.
        saga: String,
        /// Id of the message.
        message: String,
    },
    /// A message is stored and will be delivered until it is acknowledged.
    MessageStored {
        /// As records name it: `intake:<sequence>@<first 12 digits of the body's SHA-256>`.
        message: String,
        /// Which saga it wakes.
        about: String,
    },
    /// A provider has said, in a message that is stored, that money has come.
    MoneyReported {
        /// The saga of the payment, or the first of its generations.
        saga: String,
    },
    /// A message is acknowledged, or a fired timer is deleted.
    MessageAcked {
        /// Which.
        message: String,
    },
    /// A command leaves.
    CommandLeft {
        /// Whose.
        saga: String,
        /// Operation id.
        operation: String,
        /// `core`, or the region.
        participant: String,
        /// Such as `wallet.update`.
        kind: String,
        /// Parameters.
        request: Value,
        /// The owner's number.
        fence: u64,
    },
    /// A wallet takes up a command.
    CommandArrived {
        /// Which wallet.
        wallet: String,
        /// Whose command; empty when of no saga.
        saga: String,
        /// Operation id.
        operation: String,
        /// The owner's number.
        fence: u64,
        /// By the wallet's own clock.
        deadline_passed: bool,
    },
    /// A row of a wallet's operations.
    OperationSeen(OperationRow),
    /// A row of a wallet's entries; each is told once.
    EntrySeen(EntryRow),
    /// A customer's stored balance, at the end.
    BalanceSeen {
        /// Which wallet.
        wallet: String,
        /// Whose.
        customer: String,
        /// In which currency.
        currency: String,
        /// How much, in minor units.
        balance_minor: i64,
    },
    /// A payment, at the end.
    PaymentSeen(PaymentRow),
}

/// An operation as its wallet stores it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OperationRow {
    /// Which wallet.
    pub wallet: String,
    /// Operation id.
    pub operation: String,
    /// Whose; empty when of no saga.
    pub saga: String,
    /// `update` or `revert`.
    pub kind: String,
    /// `applied`, `rejected`, `tombstoned` or `reverted`.
    pub state: String,
}

/// A ledger entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EntryRow {
    /// Which wallet.
    pub wallet: String,
    /// Operation id.
    pub operation: String,
    /// `customer` or `system`.
    pub owner_kind: String,
    /// The customer, or the system account.
    pub owner: String,
    /// In which currency.
    pub currency: String,
    /// Above zero into the account.
    pub amount_minor: i64,
    /// The operation it offsets; empty when none.
    pub reverses: String,
}

/// A payment as the core stores it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PaymentRow {
    /// The saga that owns it; empty when none.
    pub saga: String,
    /// Its status.
    pub status: String,
    /// What counts as credited, in minor units.
    pub credited_minor: Option<i64>,
}
