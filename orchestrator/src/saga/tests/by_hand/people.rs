//! Who asks, how often, and what is known beforehand.

use std::collections::BTreeMap;

use contracts::audit::OperatorAnswer;
use contracts::intake::{Finding, OperatorRequest, OperatorVerb};
use contracts::money::CurrencyCode;
use serde_json::{Value, json};

use super::super::script::Move::*;
use super::super::script::{Saga, WORKFLOW};
use super::{answer, approve, assign, hand, paying, resolve, started, why, with};
use crate::saga::action::{Command, Decision, Ignored};
use crate::saga::by_hand::{MAX_ACTIONS, MAX_EARLIER};
use crate::saga::input::{Cancel, Input, Operator};
use crate::saga::record::{CaseReason, Outcome, SagaRecord, Status};
use crate::saga::rules::Rules;
use crate::saga::{amount_at_risk, case_record, decide_case, preview};

fn strict() -> &'static Rules {
    let eur = CurrencyCode::new("EUR").expect("code");
    Box::leak(Box::new(Rules {
        second_person_above: BTreeMap::from([(eur, 100_000)]),
        ..Rules::default()
    }))
}

fn of(minor: i64) -> Value {
    json!({ "amount": { "amount_minor": minor, "currency": "EUR", "exponent": 2 } })
}

#[test]
fn above_an_amount_a_second_person_has_to_agree() {
    let begun = |minor: i64| {
        let mut saga = started(of(minor), &with(paying(), &[Done("pay"), Refuse("tell")]));
        saga.rules = strict();
        saga.play(&[hand(OperatorVerb::Compensate)]);
        saga
    };
    let saga = begun(100_000);
    assert_eq!(*answer(&saga), OperatorAnswer::Accepted, "not above");
    let mut saga = begun(100_001);
    assert!(matches!(answer(&saga), OperatorAnswer::Proposed { .. }));
    assert_eq!(saga.record.status, Status::NeedsReview);
    let first = saga
        .record
        .by_hand
        .proposal
        .clone()
        .expect("kept")
        .request
        .id;
    for (by, verb, said) in [
        (
            " ANN",
            OperatorVerb::Compensate,
            "has asked for this already",
        ),
        (
            "bob",
            OperatorVerb::Compensate,
            "has asked for this already",
        ),
        (" ANN", approve(&first), "cannot be the second person"),
        ("bob", approve("r0"), "waits for a second person is"),
    ] {
        saga.play(&[Hand(by, verb)]);
        assert!(why(&saga).contains(said), "{by}: {}", why(&saga));
    }
    assert_eq!(saga.steps_sent(), "reserve, quote, pay, tell");
    saga.play(&[Hand("bob", approve(&first))]);
    assert_eq!(*answer(&saga), OperatorAnswer::Accepted);
    assert_eq!(saga.record.by_hand.proposal, None);
    assert!(format!("{:?}", saga.record.direction).contains("agreed by bob (by ann)"));
    saga.play(&[Done("undo of pay"), Done("undo of reserve")]);
    assert_eq!(saga.record.status, Status::Compensated);
    // What decides nothing about money on a person's word needs none.
    let mut saga = begun(100_001);
    saga.play(&[hand(assign()), hand(OperatorVerb::RetryNow)]);
    assert_eq!(*answer(&saga), OperatorAnswer::Accepted);
}

fn request(id: &str, verb: OperatorVerb) -> OperatorRequest {
    OperatorRequest {
        saga_id: "four/x".parse().expect("id"),
        id: id.to_owned(),
        verb,
        reason: "a reason".to_owned(),
        by: "ann".to_owned(),
    }
}

fn asked(message_id: &str, request: OperatorRequest) -> Input {
    Input::Operator(Operator {
        message_id: message_id.to_owned(),
        request,
    })
}

#[test]
fn asking_to_turn_back_is_the_request_to_cancel() {
    for moves in [paying(), with(paying(), &[Done("pay")])] {
        let (mut said, mut asked_for) = (started(json!({}), &moves), started(json!({}), &moves));
        let message_id = "m".to_owned();
        said.take(
            Input::Cancel(Cancel {
                message_id: message_id.clone(),
                reason: "a reason".to_owned(),
                by: "ann".to_owned(),
            }),
            "said",
        );
        let request = request(&message_id, OperatorVerb::Cancel);
        asked_for.take(asked(&message_id, request), "asked for");
        assert_eq!(said.record, asked_for.record);
        assert_eq!(said.audit, asked_for.audit);
        assert_eq!(said.audit.len(), 1);
        assert_eq!(said.sent, asked_for.sent);
    }
}

#[test]
fn a_request_counts_once_and_its_id_stands_for_nothing_else() {
    let mut saga = started(json!({}), &with(paying(), &[Nobody("pay")]));
    saga.take(asked("a", request("1", OperatorVerb::RetryNow)), "once");
    saga.play(&[Nobody("pay")]);
    let sent = saga.sent.len();
    for message in ["a", "b"] {
        saga.take(
            asked(message, request("1", OperatorVerb::RetryNow)),
            "again",
        );
    }
    assert_eq!((saga.sent.len(), saga.audit.len()), (sent, 1));
    assert_eq!(saga.record.duplicates, 1);
    saga.take(
        asked("c", request("1", OperatorVerb::Compensate)),
        "other content",
    );
    assert!(
        why(&saga).contains("stands for another request"),
        "{}",
        why(&saga)
    );
    assert_eq!(saga.record.status, Status::Running);
    let digests: Vec<String> = saga
        .audit
        .iter()
        .map(|entry| entry.request.digest())
        .collect();
    assert_ne!(
        digests[0], digests[1],
        "each has a place of its own in the audit stream"
    );
    // What is no request at all is refused as such.
    let mut nameless = request("2", OperatorVerb::Compensate);
    nameless.by = " ".to_owned();
    saga.take(asked("d", nameless), "nameless");
    assert!(
        why(&saga).contains("by: must not be empty"),
        "{}",
        why(&saga)
    );
}

#[test]
fn a_record_stays_small_whatever_people_ask_for() {
    let mut saga = started(json!({}), &paying());
    let long = |id: &str| {
        let mut request = request(id, resolve(None, Finding::Applied));
        request.reason = "ä".repeat(8 * 1024);
        request
    };
    for number in 0..(MAX_ACTIONS + MAX_EARLIER) {
        let id = format!("n{number}");
        saga.take(asked(&id, long(&id)), "a storm");
    }
    let size = serde_json::to_string(&saga.record).expect("JSON").len();
    assert!(size < 96 * 1024, "{size} bytes");
    // The first one is still known.
    let audited = saga.audit.len();
    saga.take(asked("z", long("n0")), "again");
    assert_eq!(saga.audit.len(), audited);
}

#[test]
fn what_a_preview_says_is_what_happens() {
    let saga = started(json!({}), &with(paying(), &[Done("pay"), Refuse("tell")]));
    let shown = preview(
        Some(&WORKFLOW),
        &saga.record,
        &request("1", OperatorVerb::Compensate),
        saga.turn(),
    );
    let names = |commands: &[Command]| {
        commands
            .iter()
            .map(|command| command.step.clone())
            .collect::<Vec<_>>()
            .join(", ")
    };
    assert_eq!(shown.answer, OperatorAnswer::Accepted);
    assert_eq!(names(&shown.commands), "undo of pay");
    assert_eq!(names(&shown.following), "undo of reserve");
    assert_eq!(
        (shown.record.status, shown.status),
        (Status::Compensating, Status::Compensated)
    );
    let mut done = started(json!({}), &with(paying(), &[Done("pay"), Refuse("tell")]));
    done.take(asked("m", request("1", OperatorVerb::Compensate)), "done");
    assert_eq!(done.record.steps, shown.record.steps);
    let refused = preview(
        Some(&WORKFLOW),
        &saga.record,
        &request("1", OperatorVerb::Cancel),
        saga.turn(),
    );
    assert!(matches!(refused.answer, OperatorAnswer::Refused { .. }));
    assert!(refused.commands.is_empty());
}

#[test]
fn a_case_that_is_no_saga_is_given_to_somebody_and_closed() {
    let saga = Saga::start(json!({}));
    let evidence = json!({ "message": of(700) });
    let id = "case/intake/1".parse().expect("id");
    let mut record = case_record(
        id,
        CaseReason::Unreadable,
        "no".to_owned(),
        evidence,
        saga.turn(),
    );
    assert_eq!(
        record.case.as_ref().expect("a case").amount_at_risk.len(),
        1
    );
    let take = |record: &mut SagaRecord, number: u32, verb: OperatorVerb| {
        let input = asked(&format!("m{number}"), request(&number.to_string(), verb));
        match decide_case(record.clone(), input, saga.turn()) {
            Decision::Commit(commit) => {
                *record = commit.record;
                record.by_hand.actions.last().expect("noted").answer.clone()
            }
            Decision::Ignore(_, reason) => panic!("{reason:?}"),
        }
    };
    assert_eq!(take(&mut record, 1, assign()), OperatorAnswer::Accepted);
    assert_eq!(
        record.case.as_ref().and_then(|case| case.owner.as_deref()),
        Some("bob")
    );
    for (number, verb) in [
        (2, OperatorVerb::Cancel),
        (3, OperatorVerb::Compensate),
        (4, OperatorVerb::Hold),
        (5, resolve(None, Finding::Applied)),
    ] {
        let answer = take(&mut record, number, verb);
        assert!(
            matches!(answer, OperatorAnswer::Refused { .. }),
            "{answer:?}"
        );
    }
    let close = OperatorVerb::Resolve {
        operation_id: None,
        finding: None,
        evidence: "sent again as intake 7".to_owned(),
        reply: None,
    };
    assert_eq!(take(&mut record, 6, close), OperatorAnswer::Accepted);
    assert_eq!(record.status, Status::Completed);
    let result = record.result.clone().expect("who and why");
    assert_eq!(
        (&result["closed_by"], &result["case"]["reason"]),
        (&json!("ann"), &json!("unreadable"))
    );
    assert!(amount_at_risk(&record).is_empty());
    let timer = decide_case(record, Input::Timer, saga.turn());
    assert!(matches!(timer, Decision::Ignore(_, Ignored::Ended)));
}

#[test]
fn the_owner_stays_with_the_saga_when_its_case_opens_again() {
    let moves = with(
        paying(),
        &[
            Refuse("pay"),
            Refuse("undo of reserve"),
            hand(assign()),
            hand(OperatorVerb::RetryNow),
            Refuse("undo of reserve"),
        ],
    );
    let saga = started(json!({}), &moves);
    let case = saga.record.case.as_ref().expect("open again");
    assert_eq!(case.owner.as_deref(), Some("bob"));
    let undo = saga.record.steps[0].undo.as_ref().expect("an undo");
    assert_eq!(case.operation_id.as_ref(), Some(&undo.operation_id));
    assert!(matches!(undo.outcome, Outcome::NotApplied { .. }));
}
