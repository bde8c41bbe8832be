//! What a later message means to a payment's saga.

use contracts::event::DepositTurnedBack;
use serde_json::{Value, json};

use super::{DEPOSIT, arrival};
use crate::saga::action::Decision;
use crate::saga::input::Arrival;
use crate::saga::record::{Direction, SagaRecord, Status, TurnReason};
use crate::saga::{ArrivalMeaning, Turn, rules, start};

fn fact(meaning: &str, minor: i64, customer: Option<&str>) -> Value {
    let mut fact = json!({
        "payment": { "provider": "prov-x", "external_id": "p" },
        "meaning": meaning,
        "amount": { "amount_minor": minor, "currency": "EUR", "exponent": 2 },
    });
    if let Some(customer) = customer {
        fact["customer"] = customer.into();
    }
    fact
}

fn record(input: Value, status: Status) -> SagaRecord {
    let saga_id = (DEPOSIT.identify)("", &input).expect("id");
    let now = "2030-01-01T00:00:00Z".parse().expect("instant");
    let message_id = "m".to_owned();
    let turn = Turn {
        now,
        replica: "a",
        rules: &rules::DEFAULT,
    };
    let Decision::Commit(commit) = start(&DEPOSIT, saga_id, Arrival { message_id, input }, turn)
    else {
        panic!("a start commits");
    };
    let mut record = commit.record;
    record.status = status;
    if status.is_terminal() && status != Status::Completed {
        record.direction = Direction::Cancelling {
            reason: TurnReason::CancelRequested,
            message: String::new(),
            since: now,
        };
    }
    record
}

fn check(known: Value, status: Status, later: Value, expected: &str) {
    let found = match arrival(&record(known, status), &later) {
        ArrivalMeaning::Duplicate => "duplicate",
        ArrivalMeaning::Review { .. } => "review",
        ArrivalMeaning::Signal { .. } => "signal",
        ArrivalMeaning::Late => "late",
        ArrivalMeaning::StartNext => "next",
    };
    assert_eq!(found, expected, "{status}, then {later}");
}

#[test]
fn money_is_never_absorbed_by_a_saga_that_could_not_take_it() {
    let paid = || fact("paid", 1000, Some("ana"));
    let nameless = || fact("paid", 1000, None);
    check(paid(), Status::Completed, paid(), "duplicate");
    check(paid(), Status::Completed, nameless(), "duplicate");
    check(
        paid(),
        Status::Completed,
        fact("paid", 9900, Some("ana")),
        "review",
    );
    check(
        paid(),
        Status::Completed,
        fact("failed", 1000, Some("ana")),
        "late",
    );
    check(paid(), Status::Compensated, paid(), "duplicate");
    check(nameless(), Status::NeedsReview, paid(), "review");
    check(nameless(), Status::Cancelled, paid(), "next");
    check(nameless(), Status::Completed, paid(), "duplicate");
    check(
        fact("pending", 1000, Some("ana")),
        Status::Waiting,
        paid(),
        "signal",
    );
    check(
        fact("pending", 1000, Some("ana")),
        Status::Cancelled,
        paid(),
        "next",
    );
    check(
        fact("failed", 1000, Some("ana")),
        Status::Failed,
        paid(),
        "next",
    );
    check(
        paid(),
        Status::Running,
        fact("reversal", 1000, Some("ana")),
        "review",
    );
}

#[test]
fn who_has_paid_in_vain_is_told_of_when_the_saga_ends() {
    let told = |meaning: &str| {
        let mut record = record(fact(meaning, 1000, Some("ana")), Status::Cancelled);
        record.ended_at = Some(record.started_at);
        let event = super::turned_back::event(&record).expect("told");
        serde_json::from_value::<DepositTurnedBack>(event.body).expect("an event")
    };
    assert_eq!(
        told("paid").paid.map(|paid| paid.amount_minor()),
        Some(1000)
    );
    assert_eq!(told("failed").paid, None);
    assert_eq!(told("pending").status, "cancelled");
    // What has not begun is nothing to tell of.
    let mut early = record(fact("paid", 1000, Some("ana")), Status::Cancelled);
    early.input = Value::Null;
    assert!(super::turned_back::event(&early).is_none());
}
