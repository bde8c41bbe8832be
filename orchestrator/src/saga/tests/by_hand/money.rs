//! Which money is at risk, and which would move.

use std::collections::BTreeMap;

use contracts::audit::OperatorAnswer;
use contracts::id::SagaId;
use contracts::intake::{OperatorRequest, OperatorVerb};
use contracts::money::CurrencyCode;
use serde_json::{Value, json};

use super::super::script::Move::Hand;
use super::super::script::{Saga, WORKFLOW};
use super::answer;
use crate::saga::action::Command;
use crate::saga::record::{Direction, SagaRecord, Status, StepRecord};
use crate::saga::rules::{Capabilities, Rules};
use crate::saga::{Preview, amount_at_risk, preview};

const AT: &str = "2030-01-01T00:00:00Z";

/// A step that moves money of a customer, with its undo.
fn moves(
    number: u32,
    movement: &str,
    minor: i64,
    currency: &str,
    forward: Value,
    undo: Value,
) -> StepRecord {
    let money = json!({ "amount_minor": minor, "currency": currency, "exponent": 2 });
    let operation = |id: &str, kind: &str, request: Value, outcome: Value| {
        let mut operation = json!({
            "operation_id": id, "participant": { "region": "eu" }, "kind": kind,
            "request": request, "digest": "d", "attempts": 1,
        });
        let outcome = outcome.as_object().expect("object").clone();
        operation.as_object_mut().expect("object").extend(outcome);
        operation
    };
    let id = format!("four/x/{number}");
    let update = json!({ "customer": format!("c{number}"), "movement": movement, "money": money });
    serde_json::from_value(json!({
        "name": format!("move-{number}"), "policy": "forward",
        "forward": operation(&id, "wallet.update", update, forward),
        "undo": operation(&format!("revert-{id}"), "wallet.revert", json!({ "target": id }), undo),
    }))
    .expect("step")
}

fn applied(reply: &Value) -> Value {
    json!({ "outcome": "applied", "reply": reply, "at": AT })
}

fn unknown() -> Value {
    json!({ "outcome": "unknown", "since": AT, "last": "silence" })
}

fn planned() -> Value {
    json!({ "outcome": "planned" })
}

fn refused() -> Value {
    json!({ "outcome": "not_applied", "code": "no", "message": "no", "at": AT })
}

fn with_steps(steps: Vec<StepRecord>) -> Saga {
    let input =
        json!({ "amount": { "amount_minor": 7, "currency": "JPY", "exponent": 0 }, "panic": true });
    let mut saga = Saga::start(input);
    saga.record.steps = steps;
    saga
}

fn texts(record: &SagaRecord) -> Vec<String> {
    amount_at_risk(record)
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[test]
fn at_risk_is_what_may_have_moved_and_is_not_settled() {
    let offset = applied(&json!("done"));
    let saga = with_steps(vec![
        moves(1, "credit", 1000, "EUR", applied(&Value::Null), planned()),
        moves(2, "credit", 250, "EUR", unknown(), planned()),
        moves(3, "debit", 400, "USD", applied(&Value::Null), refused()),
        moves(
            4,
            "credit",
            9999,
            "EUR",
            applied(&Value::Null),
            offset.clone(),
        ),
        moves(5, "credit", 9999, "EUR", refused(), planned()),
    ]);
    assert_eq!(texts(&saga.record), ["12.50 EUR", "4.00 USD"]);
    // A tombstone offsets nothing: what was done all the same is still out.
    let forbidden = applied(&json!({
        "answer": "applied", "operation_id": "revert-four/x/1", "applied_at": AT,
        "effect": { "effect": "tombstoned", "target": "four/x/1" },
    }));
    let done = moves(1, "credit", 1000, "EUR", applied(&Value::Null), forbidden);
    assert_eq!(texts(&with_steps(vec![done]).record), ["10.00 EUR"]);
    // Before anything has moved it is what the saga is about.
    let settled = moves(1, "credit", 1000, "EUR", applied(&Value::Null), offset);
    assert_eq!(texts(&with_steps(vec![settled]).record), ["7 JPY"]);
    // What a sum cannot hold stands beside it.
    let huge = || moves(1, "credit", i64::MAX, "EUR", unknown(), planned());
    assert_eq!(
        amount_at_risk(&with_steps(vec![huge(), huge()]).record).len(),
        2
    );
}

#[test]
fn a_preview_names_each_wallet_and_what_is_not_certain() {
    let mut saga = with_steps(vec![
        moves(1, "credit", 1000, "EUR", applied(&Value::Null), planned()),
        moves(2, "debit", 250, "EUR", unknown(), planned()),
    ]);
    let request = OperatorRequest {
        saga_id: SagaId::from_parts("four", &["x"]),
        id: "1".to_owned(),
        verb: OperatorVerb::Compensate,
        reason: "a reason".to_owned(),
        by: "ann".to_owned(),
    };
    let Preview { money, .. } = preview(Some(&WORKFLOW), &saga.record, &request, saga.turn());
    let found: Vec<(String, String, bool)> = money
        .iter()
        .map(|delta| {
            (
                delta.customer.to_string(),
                delta.money.to_string(),
                delta.certain,
            )
        })
        .collect();
    let wanted = [
        ("c2".to_owned(), "2.50 EUR".to_owned(), false),
        ("c1".to_owned(), "-10.00 EUR".to_owned(), true),
    ];
    assert_eq!(found, wanted);
    saga.play(&[super::hand(OperatorVerb::Compensate)]);
    assert_eq!(*answer(&saga), contracts::audit::OperatorAnswer::Accepted);
    assert_eq!(
        saga.sent.last().map(|command| command.kind.as_str()),
        Some("wallet.revert")
    );
}

#[test]
fn a_cancel_that_takes_money_back_needs_a_second_person_above_the_limit() {
    let eur = CurrencyCode::new("EUR").expect("code");
    let rules: &'static Rules = Box::leak(Box::new(Rules {
        second_person_above: BTreeMap::from([(eur, 100_000)]),
        ..Rules::default()
    }));
    let debit = |minor: i64, forward: Value, undo: Value| {
        let mut saga = with_steps(vec![moves(1, "debit", minor, "EUR", forward, undo)]);
        saga.record.input =
            json!({ "amount": { "amount_minor": minor, "currency": "EUR", "exponent": 2 } });
        saga.rules = rules;
        saga.play(&[super::hand(OperatorVerb::Cancel)]);
        saga
    };
    let done = || applied(&Value::Null);
    // The debit is no pivot, and it stands or may stand.
    for forward in [done(), unknown()] {
        let mut saga = debit(100_001, forward, planned());
        assert!(matches!(answer(&saga), OperatorAnswer::Proposed { .. }));
        assert_eq!(saga.record.direction, Direction::Forward);
        let first = saga.record.by_hand.proposal.clone().expect("kept").request;
        saga.play(&[Hand("bob", super::approve(&first.id))]);
        assert_eq!(*answer(&saga), OperatorAnswer::Accepted);
        let last = saga.sent.last().expect("a command");
        assert_eq!(last.kind, "wallet.revert");
        assert_eq!(saga.record.by_hand.proposal, None);
    }
    // Not above, refused, or settled: one person is enough.
    for (minor, forward, undo) in [
        (100_000, done(), planned()),
        (100_001, refused(), planned()),
        (100_001, done(), applied(&json!("done"))),
    ] {
        let saga = debit(minor, forward, undo);
        assert_eq!(*answer(&saga), OperatorAnswer::Accepted);
    }
}

#[test]
fn a_preview_shows_the_revert_that_waits_for_what_a_wallet_says() {
    let eu = "eu".parse().expect("region");
    let rules: &'static Rules = Box::leak(Box::new(Rules {
        capabilities: BTreeMap::from([(eu, Capabilities { tombstone: false })]),
        ..Rules::default()
    }));
    let in_flight = json!({ "outcome": "in_flight", "issued_at": AT, "deadline": "2030-01-01T00:00:10Z",
        "tries": 1, "doubtful": false });
    for (forward, sent) in [(unknown(), "wallet.get"), (in_flight, "")] {
        let mut saga = with_steps(vec![moves(1, "credit", 1000, "EUR", forward, planned())]);
        saga.rules = rules;
        let request = OperatorRequest {
            saga_id: SagaId::from_parts("four", &["x"]),
            id: "1".to_owned(),
            verb: OperatorVerb::Compensate,
            reason: "a reason".to_owned(),
            by: "ann".to_owned(),
        };
        let shown = preview(Some(&WORKFLOW), &saga.record, &request, saga.turn());
        let kinds = |commands: &[Command]| {
            let kinds: Vec<&str> = commands.iter().map(|c| c.kind.as_str()).collect();
            kinds.join(", ")
        };
        assert_eq!(kinds(&shown.commands), sent);
        assert_eq!(kinds(&shown.following), "wallet.revert");
        assert_eq!(shown.status, Status::Compensated);
        let [delta] = shown.money.as_slice() else {
            panic!("{:?}", shown.money)
        };
        assert_eq!(
            (delta.money.to_string().as_str(), delta.certain),
            ("-10.00 EUR", false)
        );
    }
}
