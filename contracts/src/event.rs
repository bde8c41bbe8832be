//! Events that finished sagas put in the log for everybody else. JSON on `billing.event.>`.

use crate::id::{CustomerId, Region, SagaId};
use crate::money::Money;
use crate::quote::Quote;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Name of [`DepositCompleted`], the last token of its subject.
pub const DEPOSIT_COMPLETED: &str = "deposit_completed";

/// A deposit has been credited; in the log exactly once, in the same write that completes the saga.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DepositCompleted {
    /// The saga; with the event's name it is the event's id.
    pub saga_id: SagaId,
    /// Our payment id.
    pub payment_id: String,
    /// The provider.
    pub provider: String,
    /// The provider's id of the payment, unchanged.
    pub external_id: String,
    /// Who was credited.
    pub customer: CustomerId,
    /// Where.
    pub region: Region,
    /// What was paid.
    pub paid: Money,
    /// What was credited.
    pub credited: Money,
    /// How the one became the other.
    pub quote: Quote,
    /// When the saga completed.
    pub completed_at: Timestamp,
}

/// Name of [`DepositTurnedBack`], the last token of its subject.
pub const DEPOSIT_TURNED_BACK: &str = "deposit_turned_back";

/// A deposit has ended without a credit, and none of its commands can move money any more; in the log exactly
/// once, in the same write that ends the saga. When `paid` is there, the customer's money has come and is owed
/// to him: this is what a refund is made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DepositTurnedBack {
    /// The saga; with the event's name it is the event's id.
    pub saga_id: SagaId,
    /// The provider.
    pub provider: String,
    /// The provider's id of the payment, unchanged.
    pub external_id: String,
    /// Who paid, when that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub customer: Option<CustomerId>,
    /// What the provider says has come; none when it says nothing of the kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paid: Option<Money>,
    /// How the saga ended: `compensated`, `cancelled` or `failed`.
    pub status: String,
    /// Why it turned back.
    pub reason: String,
    /// When it ended.
    pub ended_at: Timestamp,
}
