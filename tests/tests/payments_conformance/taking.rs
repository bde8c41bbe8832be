//! Who gets a payment, and what it is compared with.

use crate::ask::*;
use contracts::money::Money;
use orchestrator::callback::{CallbackFact, FactField};
use orchestrator::payments::{
    Announced, ExpectedPayment, Found, Marked, PaymentStatus, Payments, PaymentsError, Refused,
};

pub(crate) async fn an_operation_happens_once(payments: &Payments) {
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

pub(crate) async fn one_of_many_at_once_takes_the_payment(payments: &Payments) {
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

pub(crate) async fn an_announced_payment_is_compared(payments: &Payments) {
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

pub(crate) async fn a_reference_finds_the_customer(payments: &Payments) {
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
