//! What people do by hand: every verb in every state in one table, and what follows from each.

mod agreed;
mod clocks;
mod money;
mod people;
mod walks;
mod worlds;

use contracts::audit::OperatorAnswer;
use contracts::intake::{Finding, OperatorVerb};
use serde_json::{Value, json};

use super::script::Move::*;
use super::script::{Move, Saga, case};
use crate::saga::next_verbs;
use crate::saga::record::{CaseReason, Status};

fn assign() -> OperatorVerb {
    OperatorVerb::Assign {
        owner: "bob".to_owned(),
    }
}

fn resolve(operation_id: Option<&str>, finding: Finding) -> OperatorVerb {
    OperatorVerb::Resolve {
        operation_id: operation_id.map(|id| id.parse().expect("id")),
        finding: Some(finding),
        evidence: "statement, page 2".to_owned(),
        reply: None,
    }
}

fn approve(request: &str) -> OperatorVerb {
    OperatorVerb::Approve {
        request: request.to_owned(),
    }
}

fn hand(verb: OperatorVerb) -> Move {
    Hand("ann", verb)
}

fn started(input: Value, moves: &[Move]) -> Saga {
    let mut saga = Saga::start(input);
    saga.play(moves);
    saga
}

fn paying() -> Vec<Move> {
    vec![Done("reserve"), Done("quote")]
}

fn with(mut moves: Vec<Move>, more: &[Move]) -> Vec<Move> {
    moves.extend(more.iter().cloned());
    moves
}

/// The answer to the last request.
fn answer(saga: &Saga) -> &OperatorAnswer {
    &saga
        .record
        .by_hand
        .actions
        .last()
        .expect("a request")
        .answer
}

fn why(saga: &Saga) -> &str {
    match answer(saga) {
        OperatorAnswer::Refused { why } | OperatorAnswer::Proposed { why } => why,
        OperatorAnswer::Accepted => "",
    }
}

#[test]
fn every_verb_is_legal_or_refused_in_every_state() {
    let paid = || with(paying(), &[Done("pay")]);
    let refused_undo = || with(paying(), &[Refuse("pay"), Refuse("undo of reserve")]);
    // cancel, assign, recheck, resolve, compensate, retry-now, hold, release, approve
    let table: Vec<(&str, Value, Vec<Move>, &str)> = vec![
        (
            "waits for a signal",
            json!({ "wait": true }),
            vec![Done("reserve")],
            "c---m-h--",
        ),
        ("a step is in flight", json!({}), paying(), "c---m-h--"),
        (
            "a step backs off",
            json!({}),
            with(paying(), &[Nobody("pay")]),
            "c-rsmth--",
        ),
        ("past the pivot", json!({}), paid(), "----m-h--"),
        (
            "past the pivot, backs off",
            json!({}),
            with(paid(), &[Unclear("tell")]),
            "--rsmth--",
        ),
        (
            "turned back",
            json!({}),
            with(paying(), &[Cancel]),
            "------h--",
        ),
        (
            "turned back, backs off",
            json!({}),
            with(paying(), &[Cancel, Nobody("undo of pay")]),
            "--rs-th--",
        ),
        (
            "overdue",
            json!({}),
            with(paid(), &vec![Silence; 19]),
            "-arsmth--",
        ),
        (
            "a panic",
            json!({ "panic": true }),
            vec![Done("reserve")],
            "ca--mth--",
        ),
        (
            "a conflict",
            json!({}),
            with(paying(), &[Conflict("pay")]),
            "carsmth--",
        ),
        (
            "refused after the pivot",
            json!({}),
            with(paid(), &[Refuse("tell")]),
            "-a-smth--",
        ),
        (
            "late",
            json!({}),
            vec![Done("reserve"), Seconds(3700)],
            "carsmth--",
        ),
        (
            "a refused compensation",
            json!({}),
            refused_undo(),
            "cars-th--",
        ),
        (
            "a contradiction after the end",
            json!({}),
            with(
                paying(),
                &[Refuse("pay"), Done("undo of reserve"), Done("pay")],
            ),
            "ca-s-th--",
        ),
        (
            "held",
            json!({}),
            with(paying(), &[hand(OperatorVerb::Hold)]),
            "-------l-",
        ),
        (
            "held, backs off",
            json!({}),
            with(paying(), &[Nobody("pay"), hand(OperatorVerb::Hold)]),
            "---s---l-",
        ),
        (
            "held in review",
            json!({}),
            with(refused_undo(), &[hand(OperatorVerb::Hold)]),
            "-a-s---l-",
        ),
        (
            "completed",
            json!({}),
            with(paid(), &[Done("tell")]),
            "---------",
        ),
        ("failed", json!({}), vec![Refuse("reserve")], "---------"),
    ];
    let verbs = [
        ('c', OperatorVerb::Cancel),
        ('a', assign()),
        ('r', OperatorVerb::Recheck),
        ('s', resolve(None, Finding::Applied)),
        ('m', OperatorVerb::Compensate),
        ('t', OperatorVerb::RetryNow),
        ('h', OperatorVerb::Hold),
        ('l', OperatorVerb::Release),
        ('p', approve("r1")),
    ];
    let mut wrong = String::new();
    for (state, input, moves, expected) in &table {
        let mut found = String::new();
        let mut listed = String::new();
        for (letter, verb) in &verbs {
            let mut saga = started(input.clone(), moves);
            let before = saga.record.clone();
            let next = next_verbs(&saga.record, saga.turn());
            let named = next.iter().any(|next| next.name() == verb.name());
            listed.push(if named { *letter } else { '-' });
            let commands = saga.sent.len();
            saga.play(&[hand(verb.clone())]);
            let accepted = *answer(&saga) == OperatorAnswer::Accepted;
            found.push(if accepted { *letter } else { '-' });
            assert_eq!(
                saga.audit.last().map(|entry| &entry.answer),
                Some(answer(&saga))
            );
            if !accepted {
                // A refusal is told, says what is allowed, and moves nothing.
                assert!(!why(&saga).is_empty());
                assert_eq!(saga.sent.len(), commands, "{state}: {verb:?}");
                assert_eq!(saga.record.status, before.status, "{state}: {verb:?}");
                assert_eq!(saga.record.steps, before.steps, "{state}: {verb:?}");
                assert_eq!(saga.record.direction, before.direction, "{state}: {verb:?}");
            }
        }
        if found != *expected || listed != found {
            wrong.push_str(&format!(
                "{state}: {found}, listed {listed}, wanted {expected}\n"
            ));
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn a_person_brings_each_case_to_its_end() {
    let paid = || with(paying(), &[Done("pay")]);
    let own = "four/x";
    let table: Vec<(&str, Value, Vec<Move>, Status, &str)> = vec![
        (
            "what was refused after the pivot is compensated, the pivot with it",
            json!({}),
            with(
                paid(),
                &[
                    Refuse("tell"),
                    hand(OperatorVerb::Compensate),
                    Done("undo of pay"),
                    Done("undo of reserve"),
                ],
            ),
            Status::Compensated,
            "reserve, quote, pay, tell, undo of pay, undo of reserve",
        ),
        (
            "what was refused after the pivot is tried again",
            json!({}),
            with(
                paid(),
                &[Refuse("tell"), hand(OperatorVerb::RetryNow), Done("tell")],
            ),
            Status::Completed,
            "reserve, quote, pay, tell, tell",
        ),
        (
            "what was refused after the pivot was done by hand",
            json!({}),
            with(
                paid(),
                &[Refuse("tell"), hand(resolve(None, Finding::Applied))],
            ),
            Status::Completed,
            "reserve, quote, pay, tell",
        ),
        (
            "a refused compensation is tried again",
            json!({}),
            with(
                paying(),
                &[
                    Refuse("pay"),
                    Refuse("undo of reserve"),
                    hand(OperatorVerb::RetryNow),
                    Done("undo of reserve"),
                ],
            ),
            Status::Compensated,
            "reserve, quote, pay, undo of reserve, undo of reserve",
        ),
        (
            "a refused compensation was done by hand",
            json!({}),
            with(
                paying(),
                &[
                    Refuse("pay"),
                    Refuse("undo of reserve"),
                    hand(resolve(None, Finding::Applied)),
                ],
            ),
            Status::Compensated,
            "reserve, quote, pay, undo of reserve",
        ),
        (
            "a compensation said not to have been applied is sent once more",
            json!({}),
            with(
                paying(),
                &[
                    Refuse("pay"),
                    Unclear("undo of reserve"),
                    hand(resolve(None, Finding::NotApplied)),
                    Done("undo of reserve"),
                ],
            ),
            Status::Compensated,
            "reserve, quote, pay, undo of reserve, undo of reserve",
        ),
        (
            "a conflict is asked about again",
            json!({}),
            with(
                paying(),
                &[
                    Conflict("pay"),
                    hand(OperatorVerb::Recheck),
                    Done("pay"),
                    Done("tell"),
                ],
            ),
            Status::Completed,
            "reserve, quote, pay, pay, tell",
        ),
        (
            "a conflict that was applied goes on",
            json!({}),
            with(
                paying(),
                &[
                    Conflict("pay"),
                    hand(resolve(Some(own), Finding::Applied)),
                    Done("tell"),
                ],
            ),
            Status::Completed,
            "reserve, quote, pay, tell",
        ),
        (
            "a conflict that was not applied turns back",
            json!({}),
            with(
                paying(),
                &[
                    Conflict("pay"),
                    hand(resolve(Some(own), Finding::NotApplied)),
                    Done("undo of reserve"),
                ],
            ),
            Status::Compensated,
            "reserve, quote, pay, undo of reserve",
        ),
        (
            "what was said not to have been applied is forbidden before the saga ends",
            json!({}),
            with(
                paying(),
                &[
                    Unclear("pay"),
                    hand(resolve(None, Finding::NotApplied)),
                    Done("undo of pay"),
                    Done("undo of reserve"),
                    // The attempt was under way after all; the undo has settled it.
                    Done("pay"),
                ],
            ),
            Status::Compensated,
            "reserve, quote, pay, undo of pay, undo of reserve",
        ),
        (
            "what never arrived is taken for not applied at a word",
            json!({}),
            with(
                paying(),
                &[
                    Nobody("pay"),
                    hand(resolve(None, Finding::NotApplied)),
                    Done("undo of reserve"),
                ],
            ),
            Status::Compensated,
            "reserve, quote, pay, undo of reserve",
        ),
        (
            "what backs off is sent now",
            json!({}),
            with(
                paying(),
                &[
                    Nobody("pay"),
                    hand(OperatorVerb::RetryNow),
                    Done("pay"),
                    Done("tell"),
                ],
            ),
            Status::Completed,
            "reserve, quote, pay, pay, tell",
        ),
        (
            "an effect found after the end is settled",
            json!({}),
            with(
                paying(),
                &[
                    Refuse("pay"),
                    Done("undo of reserve"),
                    Done("pay"),
                    hand(OperatorVerb::RetryNow),
                    Done("undo of pay"),
                ],
            ),
            Status::Compensated,
            "reserve, quote, pay, undo of reserve, undo of pay",
        ),
    ];
    for (what, input, moves, status, sent) in table {
        let saga = started(input, &moves);
        assert_eq!(saga.record.status, status, "{what}: {:#?}", saga.record);
        assert_eq!(saga.steps_sent(), sent, "{what}");
        assert_eq!(case(&saga), None, "{what}");
    }
}

#[test]
fn what_was_asked_again_and_nobody_answers_is_never_taken_for_not_applied() {
    let moves = with(
        paying(),
        &[
            Conflict("pay"),
            hand(OperatorVerb::Recheck),
            Nobody("pay"),
            Silence,
            Nobody("pay"),
            Silence,
            Nobody("pay"),
        ],
    );
    let saga = started(json!({}), &moves);
    assert_eq!(saga.record.status, Status::Compensating);
    assert!(
        saga.steps_sent().ends_with("undo of pay"),
        "{}",
        saga.steps_sent()
    );
}

#[test]
fn new_code_may_agree_when_a_person_tries_again() {
    let mut saga = started(
        json!({ "panic": true }),
        &[Done("reserve"), Seconds(2 * 3600)],
    );
    saga.play(&[hand(OperatorVerb::RetryNow)]);
    assert_eq!(case(&saga), Some(CaseReason::Poison), "still the same code");
    saga.record.input = json!({});
    // The time it waited for a person is not the customer's: its deadline has moved.
    saga.play(&[
        hand(OperatorVerb::RetryNow),
        Done("quote"),
        Done("pay"),
        Done("tell"),
    ]);
    assert_eq!(saga.record.status, Status::Completed);
    assert_eq!(saga.steps_sent(), "reserve, quote, pay, tell");
}

#[test]
fn a_compensation_under_way_is_what_settles_the_step() {
    let moves = with(paying(), &[Unclear("pay"), Cancel, Unclear("undo of pay")]);
    let mut saga = started(json!({}), &moves);
    saga.play(&[hand(resolve(Some("four/x"), Finding::NotApplied))]);
    assert!(
        why(&saga).contains("open is revert-four/x"),
        "{}",
        why(&saga)
    );
    saga.play(&[
        hand(resolve(Some("revert-four/x"), Finding::Applied)),
        Done("undo of reserve"),
    ]);
    assert_eq!(saga.record.status, Status::Compensated);
}
