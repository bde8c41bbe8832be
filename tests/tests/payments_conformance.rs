//! One suite for the payments of every database: the same statements run on SQLite and PostgreSQL.

use contracts::id::{CustomerId, OperationId, Region, SagaId};
use contracts::money::{Currency, CurrencyCode, Money};
use contracts::quote::{Quote, Rounding};
use jiff::Timestamp;
use orchestrator::callback::{CallbackFact, FactField, Meaning, PaymentIdentity};
use orchestrator::payments::{
    Announced, AssignError, ExpectedPayment, Found, FoundPayment, Marked, PaymentFilter,
    PaymentStatus, Payments, PaymentsError, Refused,
};
use orchestrator::regions::{RegionCache, Regions};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

#[tokio::test(flavor = "multi_thread")]
async fn sqlite_conforms() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("core.db");
    let url = format!("sqlite://{}?mode=rwc", path.display());
    suite(&url).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_conforms() {
    let Ok(url) = std::env::var("PAYMENTS_POSTGRES_URL") else {
        return;
    };
    suite(&url).await;
}

async fn open(url: &str) -> Payments {
    let regions = ["eu", "asia"].map(|name| name.parse().expect("region"));
    let regions = Regions::new(regions, "default".parse().expect("region"));
    Payments::open(url, 8, regions, RegionCache::Off)
        .await
        .expect("payments")
}

async fn suite(url: &str) {
    let payments = open(url).await;
    an_operation_happens_once(&payments).await;
    one_of_many_at_once_takes_the_payment(&payments).await;
    an_announced_payment_is_compared(&payments).await;
    a_reference_finds_the_customer(&payments).await;
    the_region_is_resolved_and_pinned(&payments).await;
    a_success_after_a_failure_is_not_lost(&payments).await;
    a_late_refusal_changes_nothing(&payments).await;
    an_undo_that_came_first_is_met(&payments).await;
    waiting_then_paid(&payments).await;
    captures_and_the_whole_exclude_each_other(&payments).await;
    ids_are_compared_byte_for_byte(&payments).await;
    pages_have_no_gaps(&payments).await;
    totals_pass_64_bits(&payments).await;
    let again = open(url).await;
    let before = payments.totals().await.expect("totals");
    assert_eq!(
        again.totals().await.expect("totals"),
        before,
        "reopening keeps all"
    );
}

/// Ids of their own for each check, so that the checks can share one database.
fn fresh(name: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("{name}-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

fn money(text: &str, code: &str) -> Money {
    let currency = Currency::iso(CurrencyCode::new(code).expect("code")).expect("ISO");
    Money::parse(text, currency).expect("sum")
}

fn customer(name: &str) -> CustomerId {
    name.parse().expect("customer")
}

fn saga(name: &str) -> SagaId {
    SagaId::from_parts("deposit", &[name])
}

fn operation() -> OperationId {
    fresh("op").parse().expect("operation")
}

fn paid(external_id: &str) -> CallbackFact {
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

fn identity_quote(sum: Money) -> Quote {
    Quote {
        source: sum,
        target: sum,
        rate: "1".to_owned(),
        rate_source: "identity".to_owned(),
        quoted_at: NOW,
        rounding: Rounding::HalfEven,
    }
}

async fn take(payments: &Payments, saga_id: &SagaId, fact: &CallbackFact) -> Found {
    payments
        .find_or_create(&operation(), saga_id, fact, NOW)
        .await
        .expect("answer")
}

async fn taken(payments: &Payments, saga_id: &SagaId, fact: &CallbackFact) -> FoundPayment {
    match take(payments, saga_id, fact).await {
        Found::Payment(found) => found,
        Found::Refused(refused) => panic!("{refused:?}"),
    }
}

async fn succeed(payments: &Payments, saga_id: &SagaId, fact: &CallbackFact) -> Marked {
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

async fn fail(payments: &Payments, saga_id: &SagaId, fact: &CallbackFact) -> Marked {
    payments
        .mark_failed(&operation(), saga_id, &fact.payment, "said so", NOW)
        .await
        .expect("answer")
}

async fn status(payments: &Payments, fact: &CallbackFact) -> PaymentStatus {
    let payment = payments.get(&fact.payment).await.expect("answer");
    payment.expect("payment").status
}

fn mismatch(found: Found) -> Vec<FactField> {
    match found {
        Found::Refused(Refused::Mismatch { fields, .. }) => fields,
        other => panic!("{other:?}"),
    }
}

async fn an_operation_happens_once(payments: &Payments) {
    let (fact, owner, op) = (paid(&fresh("once")), saga(&fresh("s")), operation());
    let ask = |fact: CallbackFact| {
        let (owner, op) = (owner.clone(), op.clone());
        async move { payments.find_or_create(&op, &owner, &fact, NOW).await }
    };
    let first = ask(fact.clone()).await.expect("answer");
    assert!(matches!(&first, Found::Payment(found) if found.created && found.may_credit));
    assert_eq!(
        ask(fact.clone()).await.expect("answer"),
        first,
        "the stored answer"
    );
    let mut changed = fact.clone();
    changed.amount = Some(money("11.00", "USD"));
    let conflict = ask(changed).await.expect_err("conflict");
    assert!(
        matches!(conflict, PaymentsError::Conflict { .. }),
        "{conflict}"
    );

    let mark = operation();
    let quote = identity_quote(money("10.00", "USD"));
    for _ in 0..2 {
        let marked = payments
            .mark_successful(&mark, &owner, &fact.payment, &quote, quote.target, NOW)
            .await
            .expect("answer");
        assert!(matches!(
            marked,
            Marked::Done {
                status: PaymentStatus::Successful,
                ..
            }
        ));
    }
    let stored = payments
        .get(&fact.payment)
        .await
        .expect("answer")
        .expect("payment");
    assert_eq!(stored.quote, Some(quote));
    assert_eq!(stored.credited, Some(money("10.00", "USD")));
    assert_eq!(stored.saga_id, Some(owner));
}

async fn one_of_many_at_once_takes_the_payment(payments: &Payments) {
    let fact = paid(&fresh("race"));
    let tasks: Vec<_> = (0..16)
        .map(|_| {
            let (payments, fact, owner) = (payments.clone(), fact.clone(), saga(&fresh("s")));
            tokio::spawn(async move { take(&payments, &owner, &fact).await })
        })
        .collect();
    let mut winners = 0;
    for task in tasks {
        match task.await.expect("task") {
            Found::Payment(_) => winners += 1,
            Found::Refused(Refused::OwnedByOther { .. }) => {}
            Found::Refused(refused) => panic!("{refused:?}"),
        }
    }
    assert_eq!(winners, 1);

    // One operation sent many times at once is one operation.
    let (fact, owner, op) = (paid(&fresh("race")), saga(&fresh("s")), operation());
    let tasks: Vec<_> = (0..16)
        .map(|_| {
            let (payments, fact) = (payments.clone(), fact.clone());
            let (owner, op) = (owner.clone(), op.clone());
            tokio::spawn(async move { payments.find_or_create(&op, &owner, &fact, NOW).await })
        })
        .collect();
    for task in tasks {
        let found = task.await.expect("task").expect("answer");
        assert!(matches!(found, Found::Payment(found) if found.created));
    }
}

async fn an_announced_payment_is_compared(payments: &Payments) {
    let id = fresh("announced");
    let expected = ExpectedPayment {
        external_id: Some(id.parse().expect("id")),
        amount: Some(money("100.00", "USD")),
        customer: Some(customer("cust-a")),
        ..ExpectedPayment::of("prov-x".parse().expect("provider"))
    };
    for _ in 0..2 {
        let announced = payments
            .create_expected(&expected, NOW)
            .await
            .expect("answer");
        assert_eq!(announced, Announced::Stored);
    }
    let other = ExpectedPayment {
        amount: Some(money("99.00", "USD")),
        ..expected.clone()
    };
    assert_eq!(
        payments.create_expected(&other, NOW).await.expect("answer"),
        Announced::Differs {
            fields: vec![FactField::Amount]
        }
    );
    let nameless = ExpectedPayment {
        external_id: None,
        ..expected
    };
    assert_eq!(
        payments
            .create_expected(&nameless, NOW)
            .await
            .expect("answer"),
        Announced::WithoutId
    );

    let with = |amount: Money, name: &str| CallbackFact {
        amount: Some(amount),
        customer: Some(customer(name)),
        ..paid(&id)
    };
    for (fact, fields) in [
        (
            with(money("1.00", "USD"), "cust-a"),
            vec![FactField::Amount],
        ),
        (
            with(money("100.00", "EUR"), "cust-a"),
            vec![FactField::Currency],
        ),
        (
            with(money("100.00", "USD"), "cust-z"),
            vec![FactField::Customer],
        ),
    ] {
        assert_eq!(
            mismatch(take(payments, &saga(&fresh("s")), &fact).await),
            fields
        );
        assert_eq!(status(payments, &fact).await, PaymentStatus::Pending);
    }
    let mut fact = with(money("100.00", "USD"), "cust-a");
    fact.customer = None;
    let owner = saga(&fresh("s"));
    let found = taken(payments, &owner, &fact).await;
    assert_eq!((found.customer, found.created), (customer("cust-a"), false));
    // Announced after the callback: the row that the callback made is met.
    let late = paid(&fresh("early"));
    taken(payments, &saga(&fresh("s")), &late).await;
    let announced = ExpectedPayment {
        external_id: Some(late.payment.external_id.clone()),
        amount: late.amount,
        customer: late.customer.clone(),
        ..ExpectedPayment::of("prov-x".parse().expect("provider"))
    };
    assert_eq!(
        payments
            .create_expected(&announced, NOW)
            .await
            .expect("answer"),
        Announced::Stored
    );
}

async fn a_reference_finds_the_customer(payments: &Payments) {
    let reference = fresh("ord/1:a b");
    let expected = ExpectedPayment {
        merchant_reference: Some(reference.parse().expect("id")),
        amount: Some(money("10.00", "USD")),
        customer: Some(customer("cust-r")),
        wallet_currency: Some(money("1.00", "EUR").currency()),
        ..ExpectedPayment::of("prov-x".parse().expect("provider"))
    };
    payments
        .create_expected(&expected, NOW)
        .await
        .expect("answer");
    let mut fact = paid(&fresh("by-reference"));
    fact.customer = None;
    let refused = take(payments, &saga(&fresh("s")), &fact).await;
    assert_eq!(refused, Found::Refused(Refused::CustomerUnknown));
    assert_eq!(
        payments.get(&fact.payment).await.expect("answer"),
        None,
        "no row is left"
    );
    fact.merchant_reference = Some(reference.parse().expect("id"));
    let found = taken(payments, &saga(&fresh("s")), &fact).await;
    assert_eq!(found.customer, customer("cust-r"));
    assert_eq!(found.wallet_currency, Some(money("1.00", "EUR").currency()));
}

async fn the_region_is_resolved_and_pinned(payments: &Payments) {
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

async fn a_success_after_a_failure_is_not_lost(payments: &Payments) {
    let fact = paid(&fresh("retry"));
    let (refusing, crediting) = (saga(&fresh("s")), saga(&fresh("s")));
    fail(payments, &refusing, &fact).await;
    assert_eq!(status(payments, &fact).await, PaymentStatus::Failed);
    assert!(taken(payments, &crediting, &fact).await.may_credit);
    succeed(payments, &crediting, &fact).await;
    assert_eq!(status(payments, &fact).await, PaymentStatus::Successful);
}

async fn a_late_refusal_changes_nothing(payments: &Payments) {
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

async fn an_undo_that_came_first_is_met(payments: &Payments) {
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

async fn waiting_then_paid(payments: &Payments) {
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

async fn captures_and_the_whole_exclude_each_other(payments: &Payments) {
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

async fn ids_are_compared_byte_for_byte(payments: &Payments) {
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

async fn pages_have_no_gaps(payments: &Payments) {
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

async fn totals_pass_64_bits(payments: &Payments) {
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
