//! A deposit as a test sends it.

use contracts::id::{CustomerId, ExternalId, OperationId, Provider, SagaId};
use orchestrator::callback::PaymentIdentity;
use orchestrator::workflows::deposit;
use serde_json::json;

/// The provider of all deposits of tests: read as canonical, without a section of its own.
pub const PROVIDER: &str = "testpay";

/// One payment to one customer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deposit {
    /// The provider's id of the payment.
    pub external_id: String,
    /// Who paid.
    pub customer: String,
    /// Where he is credited.
    pub region: &'static str,
    /// How much, in cents of EUR.
    pub amount_minor: i64,
    /// The provider's word for how it stands.
    pub status: &'static str,
}

impl Deposit {
    /// A paid deposit of 12.50 EUR to a customer of his own.
    #[must_use]
    pub fn new(external_id: impl Into<String>, region: &'static str) -> Self {
        let external_id = external_id.into();
        Self {
            customer: format!("customer-of-{external_id}"),
            external_id,
            region,
            amount_minor: 1_250,
            status: "paid",
        }
    }

    /// The body of its callback.
    #[must_use]
    pub fn body(&self) -> String {
        json!({
            "external_id": self.external_id,
            "status": self.status,
            "amount_minor": self.amount_minor,
            "currency": "EUR",
            "customer": self.customer,
            "region": self.region,
        })
        .to_string()
    }

    /// The provider.
    #[must_use]
    pub fn provider(&self) -> Provider {
        PROVIDER.parse().unwrap_or_else(|_| unreachable!())
    }

    /// Its identity as a payment.
    #[must_use]
    pub fn identity(&self) -> PaymentIdentity {
        PaymentIdentity {
            provider: self.provider(),
            account: String::new(),
            external_id: ExternalId::new(self.external_id.clone())
                .unwrap_or_else(|_| unreachable!()),
            capture_id: None,
        }
    }

    /// Its saga.
    #[must_use]
    pub fn saga_id(&self) -> SagaId {
        deposit::saga_id(&self.identity())
    }

    /// The operation that credits the wallet.
    #[must_use]
    pub fn credit(&self) -> OperationId {
        self.saga_id().own_operation()
    }

    /// Who is credited.
    #[must_use]
    pub fn customer_id(&self) -> CustomerId {
        CustomerId::new(self.customer.clone()).unwrap_or_else(|_| unreachable!())
    }
}
