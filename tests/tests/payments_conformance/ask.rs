//! Short forms of the questions that the checks ask.

use contracts::id::{CustomerId, OperationId, SagaId};
use contracts::money::{Currency, CurrencyCode, Money};
use contracts::quote::{Quote, Rounding};
use jiff::Timestamp;
use orchestrator::callback::{CallbackFact, FactField, Meaning, PaymentIdentity};
use orchestrator::payments::{Found, FoundPayment, Marked, PaymentStatus, Payments, Refused};
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) const NOW: Timestamp = Timestamp::UNIX_EPOCH;

/// Ids of their own for each check, so that the checks can share one database.
pub(crate) fn fresh(name: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("{name}-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

pub(crate) fn money(text: &str, code: &str) -> Money {
    let currency = Currency::iso(CurrencyCode::new(code).expect("code")).expect("ISO");
    Money::parse(text, currency).expect("sum")
}

pub(crate) fn customer(name: &str) -> CustomerId {
    name.parse().expect("customer")
}

pub(crate) fn saga(name: &str) -> SagaId {
    SagaId::from_parts("deposit", &[name])
}

pub(crate) fn operation() -> OperationId {
    fresh("op").parse().expect("operation")
}

pub(crate) fn paid(external_id: &str) -> CallbackFact {
    CallbackFact {
        payment: PaymentIdentity {
            provider: "prov-x".parse().expect("provider"),
            account: String::new(),
            external_id: external_id.parse().expect("id"),
            capture_id: None,
        },
        meaning: Meaning::Paid,
        amount: Some(money("10.00", "USD")),
        customer: Some(customer("cust-a")),
        region: None,
        wallet_currency: None,
        event_id: None,
        event_type: None,
        merchant_reference: None,
        reversal_id: None,
        reason: None,
        test: false,
        occurred_at: None,
    }
}

pub(crate) fn identity_quote(sum: Money) -> Quote {
    Quote {
        source: sum,
        target: sum,
        rate: "1".to_owned(),
        rate_source: "identity".to_owned(),
        quoted_at: NOW,
        rounding: Rounding::HalfEven,
    }
}

pub(crate) async fn take(payments: &Payments, saga_id: &SagaId, fact: &CallbackFact) -> Found {
    payments
        .find_or_create(&operation(), saga_id, fact, NOW)
        .await
        .expect("answer")
}

pub(crate) async fn taken(
    payments: &Payments,
    saga_id: &SagaId,
    fact: &CallbackFact,
) -> FoundPayment {
    match take(payments, saga_id, fact).await {
        Found::Payment(found) => found,
        Found::Refused(refused) => panic!("{refused:?}"),
    }
}

pub(crate) async fn succeed(payments: &Payments, saga_id: &SagaId, fact: &CallbackFact) -> Marked {
    let sum = fact.amount.expect("sum");
    payments
        .mark_successful(
            &operation(),
            saga_id,
            &fact.payment,
            &identity_quote(sum),
            sum,
            NOW,
        )
        .await
        .expect("answer")
}

pub(crate) async fn fail(payments: &Payments, saga_id: &SagaId, fact: &CallbackFact) -> Marked {
    payments
        .mark_failed(&operation(), saga_id, &fact.payment, "said so", NOW)
        .await
        .expect("answer")
}

pub(crate) async fn status(payments: &Payments, fact: &CallbackFact) -> PaymentStatus {
    let payment = payments.get(&fact.payment).await.expect("answer");
    payment.expect("payment").status
}

pub(crate) fn mismatch(found: Found) -> Vec<FactField> {
    match found {
        Found::Refused(Refused::Mismatch { fields, .. }) => fields,
        other => panic!("{other:?}"),
    }
}
