//! What becomes of a payment, and what is read of all of them.

use crate::ask::*;
use contracts::id::{Region, SagaId};
use contracts::money::Money;
use orchestrator::callback::{CallbackFact, FactField, Meaning};
use orchestrator::payments::{
    AssignError, ExpectedPayment, Found, Marked, PaymentFilter, PaymentStatus, Payments, Refused,
};
use std::time::Duration;

pub(crate) async fn the_region_is_resolved_and_pinned(payments: &Payments) {
    let (eu, asia): (Region, Region) = (
        "eu".parse().expect("region"),
        "asia".parse().expect("region"),
    );
    let mut fact = paid(&fresh("region"));
    fact.customer = Some(customer(&fresh("moving")));
    let person = fact.customer.clone().expect("customer");
    let owner = saga(&fresh("s"));
    assert_eq!(
        taken(payments, &owner, &fact).await.region.as_str(),
        "default"
    );

    payments
        .assign_region(&person, &eu, NOW)
        .await
        .expect("assigned");
    let second = CallbackFact {
        customer: Some(person.clone()),
        ..paid(&fresh("region"))
    };
    assert_eq!(taken(payments, &owner, &second).await.region, eu);
    payments
        .assign_region(&person, &asia, NOW)
        .await
        .expect("assigned");
    assert_eq!(payments.region_of(&person).await.expect("region"), asia);
    assert_eq!(taken(payments, &owner, &second).await.region, eu, "pinned");

    let claimed = CallbackFact {
        region: Some(eu.clone()),
        customer: Some(person.clone()),
        ..paid(&fresh("region"))
    };
    assert_eq!(
        taken(payments, &owner, &claimed).await.region,
        eu,
        "a claim comes first"
    );
    let mars: Region = "mars".parse().expect("region");
    let unknown = CallbackFact {
        region: Some(mars.clone()),
        ..paid(&fresh("region"))
    };
    assert_eq!(
        take(payments, &owner, &unknown).await,
        Found::Refused(Refused::UnknownRegion {
            region: mars.clone()
        })
    );
    assert!(matches!(
        payments.assign_region(&person, &mars, NOW).await,
        Err(AssignError::UnknownRegion(_))
    ));
}

pub(crate) async fn a_success_after_a_failure_is_not_lost(payments: &Payments) {
    let fact = paid(&fresh("retry"));
    let (refusing, crediting) = (saga(&fresh("s")), saga(&fresh("s")));
    fail(payments, &refusing, &fact).await;
    assert_eq!(status(payments, &fact).await, PaymentStatus::Failed);
    assert!(taken(payments, &crediting, &fact).await.may_credit);
    succeed(payments, &crediting, &fact).await;
    assert_eq!(status(payments, &fact).await, PaymentStatus::Successful);
}

pub(crate) async fn a_late_refusal_changes_nothing(payments: &Payments) {
    let fact = paid(&fresh("late"));
    let (owner, late) = (saga(&fresh("s")), saga(&fresh("s")));
    taken(payments, &owner, &fact).await;
    succeed(payments, &owner, &fact).await;
    let refused = fail(payments, &late, &fact).await;
    assert!(
        matches!(&refused, Marked::Refused { status: Some(PaymentStatus::Successful), owner: Some(o), .. } if *o == owner),
        "{refused:?}"
    );
    assert_eq!(status(payments, &fact).await, PaymentStatus::Successful);
    // Its own saga may, once it has taken the credit back.
    fail(payments, &owner, &fact).await;
    let stored = payments
        .get(&fact.payment)
        .await
        .expect("answer")
        .expect("payment");
    assert_eq!(
        (stored.status, stored.credited),
        (PaymentStatus::Failed, None)
    );
}

pub(crate) async fn an_undo_that_came_first_is_met(payments: &Payments) {
    let (fact, owner) = (paid(&fresh("undo")), saga(&fresh("s")));
    let undone = payments
        .mark_cancelled(&operation(), &owner, &fact.payment, "given up", NOW)
        .await
        .expect("answer");
    assert!(matches!(
        undone,
        Marked::Done {
            status: PaymentStatus::Cancelled,
            ..
        }
    ));
    assert_eq!(
        take(payments, &owner, &fact).await,
        Found::Refused(Refused::Closed {
            status: PaymentStatus::Cancelled
        })
    );
    assert!(taken(payments, &saga(&fresh("s")), &fact).await.may_credit);
}

pub(crate) async fn waiting_then_paid(payments: &Payments) {
    let fact = paid(&fresh("wait"));
    let pending = CallbackFact {
        meaning: Meaning::Pending,
        amount: None,
        ..fact.clone()
    };
    let owner = saga(&fresh("s"));
    let found = taken(payments, &owner, &pending).await;
    assert_eq!((found.may_credit, found.paid), (false, None));
    let found = taken(payments, &owner, &fact).await;
    assert_eq!((found.may_credit, found.created), (true, false));
    assert_eq!(found.paid, fact.amount);
    // A person puts it aside and its saga still may end it.
    payments
        .mark_review(&operation(), &owner, &fact.payment, "look", NOW)
        .await
        .expect("answer");
    assert_eq!(status(payments, &fact).await, PaymentStatus::Review);
    succeed(payments, &owner, &fact).await;
    assert_eq!(status(payments, &fact).await, PaymentStatus::Successful);
}

pub(crate) async fn captures_and_the_whole_exclude_each_other(payments: &Payments) {
    let capture = |id: &str, action: &str| {
        let mut fact = paid(id);
        fact.payment.capture_id = Some(action.parse().expect("id"));
        fact
    };
    let id = fresh("captured");
    for action in ["act-1", "act-2"] {
        let fact = capture(&id, action);
        let owner = saga(&fresh("s"));
        assert!(taken(payments, &owner, &fact).await.created);
        succeed(payments, &owner, &fact).await;
    }
    assert_eq!(
        mismatch(take(payments, &saga(&fresh("s")), &paid(&id)).await),
        [FactField::CaptureId]
    );
    let id = fresh("whole");
    taken(payments, &saga(&fresh("s")), &paid(&id)).await;
    assert_eq!(
        mismatch(take(payments, &saga(&fresh("s")), &capture(&id, "act-1")).await),
        [FactField::CaptureId]
    );
    // A capture may be less than what was announced for the whole, never more.
    let id = fresh("announced");
    let expected = ExpectedPayment {
        external_id: Some(id.parse().expect("id")),
        amount: Some(money("12.00", "USD")),
        ..ExpectedPayment::of("prov-x".parse().expect("provider"))
    };
    payments
        .create_expected(&expected, NOW)
        .await
        .expect("answer");
    taken(payments, &saga(&fresh("s")), &capture(&id, "act-1")).await;
    let more = CallbackFact {
        amount: Some(money("12.01", "USD")),
        ..capture(&id, "act-2")
    };
    assert_eq!(
        mismatch(take(payments, &saga(&fresh("s")), &more).await),
        [FactField::Amount]
    );
}

pub(crate) async fn ids_are_compared_byte_for_byte(payments: &Payments) {
    let long = "\u{e9}".repeat(512);
    let ids = [
        "5ab4Qz",
        "5AB4qZ",
        "caf\u{e9}-1",
        "cafe\u{301}-1",
        "k-1",
        "k-1 ",
        "*",
        ">",
        "a..b",
        "'; --",
        "%",
        "tab\there",
        long.as_str(),
    ];
    for id in ids {
        let mut fact = paid(id);
        fact.payment.account = long.clone();
        fact.payment.capture_id = Some(long.parse().expect("id"));
        fact.customer = Some(customer(&long));
        fact.merchant_reference = Some(long.parse().expect("id"));
        // An operation id is as long as the ids it is made of, escaped.
        let owner = SagaId::from_parts("deposit", &fact.payment.parts());
        let found = payments
            .find_or_create(&owner.operation("find-or-create"), &owner, &fact, NOW)
            .await
            .expect("answer");
        assert!(
            matches!(found, Found::Payment(found) if found.created),
            "{id:?}"
        );
        let stored = payments
            .get(&fact.payment)
            .await
            .expect("answer")
            .expect("payment");
        assert_eq!(stored.identity, fact.payment);
        let filter = PaymentFilter {
            external_id: Some(fact.payment.external_id.clone()),
            ..PaymentFilter::default()
        };
        let listed = payments.list(&filter).await.expect("list");
        assert_eq!(listed.len(), 1, "{id:?}");
    }
    let mut elsewhere = paid("5ab4Qz");
    elsewhere.payment.provider = "prov-y".parse().expect("provider");
    assert!(
        taken(payments, &saga(&fresh("s")), &elsewhere)
            .await
            .created
    );
    let nul = take(payments, &saga(&fresh("s")), &paid("a\0b")).await;
    assert_eq!(
        nul,
        Found::Refused(Refused::BadText {
            field: "external_id".to_owned()
        })
    );
}

pub(crate) async fn pages_have_no_gaps(payments: &Payments) {
    for _ in 0..210 {
        taken(payments, &saga(&fresh("s")), &paid(&fresh("page"))).await;
    }
    let mut filter = PaymentFilter {
        status: Some(PaymentStatus::Pending),
        ..PaymentFilter::default()
    };
    let mut seen = std::collections::BTreeSet::new();
    loop {
        let page = payments.list(&filter).await.expect("page");
        let Some(last) = page.last() else { break };
        filter.after = Some(last.payment_id.clone());
        for payment in page {
            assert_eq!(payment.status, PaymentStatus::Pending);
            assert!(seen.insert(payment.payment_id), "listed once");
        }
    }
    let totals = payments.totals().await.expect("totals");
    assert_eq!(
        u64::try_from(seen.len()).ok(),
        totals.count_by_status.get(&PaymentStatus::Pending).copied()
    );
}

pub(crate) async fn totals_pass_64_bits(payments: &Payments) {
    let largest = Money::new(i64::MAX, money("1", "JPY").currency());
    for _ in 0..3 {
        let fact = CallbackFact {
            amount: Some(largest),
            ..paid(&fresh("huge"))
        };
        let owner = saga(&fresh("s"));
        taken(payments, &owner, &fact).await;
        succeed(payments, &owner, &fact).await;
    }
    let totals = tokio::time::timeout(Duration::from_secs(10), payments.totals())
        .await
        .expect("in time")
        .expect("totals");
    let yen = totals
        .credited
        .iter()
        .find(|total| total.currency.as_str() == "JPY")
        .expect("yen");
    assert_eq!(
        (yen.count, yen.credited_minor),
        (3, 3 * i128::from(i64::MAX))
    );
}
