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
