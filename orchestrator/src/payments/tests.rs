//! The table of legal moves, without a database.

use super::model::Found;
use super::moves::{Find, Mark, Move, find, mark};
use super::*;
use crate::callback::Meaning;
use contracts::money::{Currency, CurrencyCode};
use contracts::quote::Rounding;

fn saga(name: &str) -> SagaId {
    SagaId::from_parts("deposit", &[name])
}

fn usd(text: &str) -> Money {
    let code = CurrencyCode::new("USD").expect("code");
    Money::parse(text, Currency::iso(code).expect("ISO")).expect("sum")
}

fn fact(meaning: Meaning) -> CallbackFact {
    CallbackFact {
        payment: PaymentIdentity {
            provider: "prov".parse().expect("provider"),
            account: String::new(),
            external_id: "ext-1".parse().expect("id"),
            capture_id: None,
        },
        meaning,
        amount: Some(usd("10.00")),
        customer: Some("cust".parse().expect("customer")),
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

fn quote(source: &str) -> Quote {
    Quote {
        source: usd(source),
        target: usd(source),
        rate: "1".to_owned(),
        rate_source: "identity".to_owned(),
        quoted_at: Timestamp::UNIX_EPOCH,
        rounding: Rounding::HalfEven,
    }
}

/// A row of this status, paid 10.00 by the saga `own`, `other` or nobody.
fn row(status: PaymentStatus, owner: Option<&str>, is_paid: bool) -> Payment {
    let mut row = Payment::new(fact(Meaning::Paid).payment, Timestamp::UNIX_EPOCH);
    row.status = status;
    row.saga_id = owner.map(saga);
    row.paid = is_paid.then(|| usd("10.00"));
    row.credited = (status == PaymentStatus::Successful).then(|| usd("10.00"));
    row
}

fn find_by_own(stored: Option<&Payment>, meaning: Meaning) -> Move<Found> {
    let (saga_id, fact) = (saga("own"), fact(meaning));
    let question = Find {
        saga_id: &saga_id,
        fact: &fact,
        expected: None,
        region: "default".parse().expect("region"),
        now: Timestamp::UNIX_EPOCH,
    };
    find(stored, &question)
}

#[test]
fn a_payment_is_taken_by_one_saga() {
    use PaymentStatus::{Cancelled, Failed, Pending, Review, Successful};
    for (status, owner, is_paid, meaning, expected) in [
        (Pending, None, false, Meaning::Paid, "taken"),
        (Pending, Some("own"), false, Meaning::Paid, "taken"),
        (Pending, Some("own"), true, Meaning::Paid, "taken"),
        (Pending, Some("other"), false, Meaning::Paid, "taken"),
        (
            Pending,
            Some("other"),
            false,
            Meaning::Pending,
            "owned_by_other",
        ),
        (
            Pending,
            Some("other"),
            true,
            Meaning::Paid,
            "owned_by_other",
        ),
        (Successful, Some("own"), true, Meaning::Paid, "read"),
        (Successful, Some("own"), true, Meaning::Pending, "read"),
        (
            Successful,
            Some("other"),
            true,
            Meaning::Paid,
            "owned_by_other",
        ),
        (Review, Some("own"), true, Meaning::Paid, "read"),
        (Review, Some("other"), true, Meaning::Paid, "owned_by_other"),
        (Failed, Some("other"), true, Meaning::Paid, "taken"),
        (Cancelled, Some("other"), false, Meaning::Paid, "taken"),
        (Cancelled, Some("own"), false, Meaning::Paid, "closed"),
        (Failed, Some("own"), false, Meaning::Pending, "closed"),
    ] {
        let stored = row(status, owner, is_paid);
        let moved = find_by_own(Some(&stored), meaning);
        let found = match (&moved.answer, &moved.row) {
            (Found::Payment(payment), Some(row)) => {
                assert_eq!(payment.may_credit, meaning.is_paid());
                assert_eq!((row.status, &row.saga_id), (Pending, &Some(saga("own"))));
                "taken"
            }
            (Found::Payment(_), None) => "read",
            (Found::Refused(Refused::OwnedByOther { .. }), None) => "owned_by_other",
            (Found::Refused(Refused::Closed { .. }), None) => "closed",
            (Found::Refused(refused), _) => panic!("{refused:?}"),
        };
        assert_eq!(found, expected, "{status} of {owner:?} by {meaning}");
    }
}

#[test]
fn a_contradiction_names_its_fields_and_changes_nothing() {
    let mut announced = row(PaymentStatus::Pending, None, false);
    announced.expected = Some(usd("100.00"));
    announced.customer = Some("someone".parse().expect("customer"));
    let moved = find_by_own(Some(&announced), Meaning::Paid);
    assert_eq!(moved.row, None);
    let Found::Refused(Refused::Mismatch { fields, message }) = moved.answer else {
        panic!("{:?}", moved.answer)
    };
    assert_eq!(fields, [FactField::Amount, FactField::Customer]);
    assert_eq!(
        message,
        "the payment is known as 100.00 USD of someone, the callback says 10.00 USD of cust"
    );
    // A sum that is only announced by a pending notice is not yet money to compare.
    announced.customer = None;
    let pending = find_by_own(Some(&announced), Meaning::Pending);
    assert!(matches!(pending.answer, Found::Payment(_)));
    // Once money has been reported, another sum is a contradiction for the same saga too.
    let mut paid = row(PaymentStatus::Pending, Some("own"), true);
    paid.paid = Some(usd("9.99"));
    let moved = find_by_own(Some(&paid), Meaning::Paid);
    assert!(matches!(
        moved.answer,
        Found::Refused(Refused::Mismatch { .. })
    ));
}

#[test]
fn only_legal_moves_change_a_payment() {
    use PaymentStatus::{Cancelled, Failed, Pending, Review, Successful};
    let quote = quote("10.00");
    let reason = Some("why".to_owned());
    let marks = [
        Mark::Successful {
            quote: &quote,
            credited: usd("10.00"),
        },
        Mark::Failed {
            reason: reason.clone(),
        },
        Mark::Cancelled {
            reason: reason.clone(),
        },
        Mark::Review { reason },
    ];
    // Per mark: the status it leads to, `=` for done before, `-` for refused.
    for (status, owner, expected) in [
        (
            Pending,
            Some("own"),
            ["successful", "failed", "cancelled", "review"],
        ),
        (Pending, Some("other"), ["-", "-", "-", "-"]),
        (Pending, None, ["-", "failed", "cancelled", "review"]),
        (Successful, Some("own"), ["=", "failed", "cancelled", "-"]),
        (Successful, Some("other"), ["-", "-", "-", "-"]),
        (
            Review,
            Some("own"),
            ["successful", "failed", "cancelled", "review"],
        ),
        (Review, Some("other"), ["-", "-", "-", "-"]),
        (Failed, Some("own"), ["-", "=", "=", "-"]),
        (Failed, Some("other"), ["-", "=", "=", "-"]),
        (Cancelled, Some("own"), ["-", "=", "=", "-"]),
        (Cancelled, None, ["-", "=", "=", "-"]),
    ] {
        for (mark_to, expected) in marks.iter().zip(expected) {
            let stored = row(status, owner, true);
            let moved = mark(
                Some(&stored),
                &saga("own"),
                &stored.identity,
                mark_to,
                Timestamp::UNIX_EPOCH,
            );
            let found = match (&moved.answer, &moved.row) {
                (Marked::Done { status, .. }, Some(row)) => {
                    assert_eq!(row.status, *status);
                    assert_eq!(row.credited.is_some(), *status == Successful);
                    row.status.as_str()
                }
                (Marked::Done { .. }, None) => "=",
                (Marked::Refused { .. }, None) => "-",
                (Marked::Refused { .. }, Some(row)) => panic!("{row:?}"),
            };
            assert_eq!(found, expected, "{status} of {owner:?}, {mark_to:?}");
        }
    }
}

#[test]
fn success_is_of_the_sum_that_came_in() {
    let stored = row(PaymentStatus::Pending, Some("own"), true);
    for (source, credited) in [("9.99", "9.99"), ("10.00", "9.99")] {
        let quote = quote(source);
        let wrong = Mark::Successful {
            quote: &quote,
            credited: usd(credited),
        };
        let moved = mark(
            Some(&stored),
            &saga("own"),
            &stored.identity,
            &wrong,
            Timestamp::UNIX_EPOCH,
        );
        assert!(matches!(moved.answer, Marked::Refused { .. }), "{source}");
    }
}

#[test]
fn an_undo_that_comes_first_is_met_by_the_late_command() {
    let cancel = Mark::Cancelled { reason: None };
    let identity = fact(Meaning::Paid).payment;
    let moved = mark(
        None,
        &saga("own"),
        &identity,
        &cancel,
        Timestamp::UNIX_EPOCH,
    );
    let left = moved.row.expect("a row is left");
    let late = find_by_own(Some(&left), Meaning::Paid);
    assert!(matches!(
        late.answer,
        Found::Refused(Refused::Closed {
            status: PaymentStatus::Cancelled
        })
    ));
}

#[test]
fn a_payment_id_is_of_the_identity_alone() {
    let one = fact(Meaning::Paid).payment;
    let mut two = one.clone();
    two.capture_id = Some("c".parse().expect("id"));
    assert_eq!(Payment::id_of(&one), Payment::id_of(&one.clone()));
    assert_ne!(Payment::id_of(&one), Payment::id_of(&two));
    assert_eq!(Payment::id_of(&two.whole()), Payment::id_of(&one));
}
