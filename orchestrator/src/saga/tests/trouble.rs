//! What went wrong once, or nearly: each a script that must end well.

use serde_json::json;

use super::script::Move::*;
use super::script::{Move, Saga, case, check};
use crate::saga::record::{CaseReason, Status, TurnReason};

#[test]
fn a_late_saga_is_not_late_again_when_it_goes_on() {
    // The rate comes back after the deadline; a timer that fires then must not turn a paid deposit back.
    let moves = [
        Done("reserve"),
        Seconds(3700),
        Silence,
        Done("quote"),
        Seconds(1),
        Done("pay"),
        Seconds(1),
        Done("tell"),
    ];
    let sent = "reserve, quote, quote, pay, tell";
    check(json!({}), &moves, Status::Completed, sent);
}

#[test]
fn not_understood_is_proof_only_when_no_attempt_may_have_arrived() {
    let moves = [
        Done("reserve"),
        Done("quote"),
        Alien("pay"),
        Done("undo of reserve"),
    ];
    let sent = "reserve, quote, pay, undo of reserve";
    check(json!({}), &moves, Status::Compensated, sent);
    // The one before us sent it and may have been understood: it has to be settled.
    let moves = [
        Done("reserve"),
        Done("quote"),
        Takeover("b"),
        Alien("pay"),
        Done("undo of pay"),
        Done("undo of reserve"),
    ];
    let sent = "reserve, quote, pay, pay, undo of pay, undo of reserve";
    let saga = check(json!({}), &moves, Status::Compensated, sent);
    assert_eq!(
        saga.record.direction_reason(),
        Some(TurnReason::OutcomeUnknown)
    );
    // There is no other way out than the compensation: it goes on being tried.
    let moves = [
        Done("reserve"),
        Done("quote"),
        Refuse("pay"),
        Alien("undo of reserve"),
    ];
    let sent = "reserve, quote, pay, undo of reserve";
    check(json!({}), &moves, Status::Compensating, sent);
}

#[test]
fn a_refused_compensation_is_tried_again_when_a_person_asks() {
    let moves = [
        Done("reserve"),
        Done("quote"),
        Refuse("pay"),
        Refuse("undo of reserve"),
        Cancel,
        Done("undo of reserve"),
    ];
    let sent = "reserve, quote, pay, undo of reserve, undo of reserve";
    check(json!({}), &moves, Status::Compensated, sent);
}

#[test]
fn what_is_known_to_stand_is_not_undone_by_a_conflict() {
    let moves = [
        Done("reserve"),
        Done("quote"),
        Done("pay"),
        Conflict("pay"),
        Done("tell"),
    ];
    let saga = check(
        json!({}),
        &moves,
        Status::Completed,
        "reserve, quote, pay, tell",
    );
    assert_eq!(case(&saga), None);
}

#[test]
fn a_step_overdue_after_the_pivot_is_told_and_goes_on() {
    let mut moves = vec![Done("reserve"), Done("quote"), Done("pay")];
    moves.extend(std::iter::repeat_n(Silence, 20));
    let mut saga = super::script::Saga::start(json!({}));
    saga.play(&moves);
    assert_eq!(case(&saga), Some(CaseReason::Overdue));
    assert_eq!(saga.record.status, Status::Running);
    saga.play(&[Silence, Done("tell")]);
    assert_eq!((saga.record.status, case(&saga)), (Status::Completed, None));
}

#[test]
fn more_signals_than_a_record_holds_are_kept_beside_it() {
    let mut saga = super::script::Saga::start(json!({ "wait": true }));
    saga.play(&[Done("reserve")]);
    let ids: Vec<&str> = (0..70)
        .map(|n| &*Box::leak(format!("s{n}").into_boxed_str()))
        .collect();
    for id in ids {
        saga.play(&[Word(id, "yes")]);
    }
    assert_eq!(saga.record.signals.len(), crate::saga::record::MAX_SIGNALS);
    assert_eq!(saga.notes.len(), 6);
}

#[test]
fn a_step_that_was_renamed_under_a_live_saga_is_not_done_again() {
    let mut saga = Saga::start(json!({}));
    saga.play(&[Done("reserve"), Done("quote")]);
    saga.record.input = json!({ "renamed": true });
    saga.play(&[Done("pay")]);
    assert_eq!(case(&saga), Some(CaseReason::Nondeterministic));
    assert_eq!(saga.steps_sent(), "reserve, quote, pay");
}

#[test]
fn an_undo_that_is_out_is_waited_for_when_its_step_is_refused_meanwhile() {
    // The undo's answer would find the saga ended, and count as something nobody has asked for.
    let moves = [
        Done("reserve"),
        Done("quote"),
        Unclear("pay"),
        Cancel,
        Refuse("pay"),
    ];
    let sent = "reserve, quote, pay, undo of pay";
    let mut saga = check(json!({}), &moves, Status::Compensating, sent);
    saga.play(&[Done("undo of pay"), Done("undo of reserve")]);
    assert_eq!(
        (saga.record.status, case(&saga)),
        (Status::Compensated, None)
    );
}

#[test]
fn what_was_not_sent_was_no_attempt() {
    // Far more often than there are attempts, and for longer than the budget.
    let mut moves = vec![Done("reserve"), Done("quote")];
    for _ in 0..8 {
        moves.extend([Closed("pay"), Silence]);
    }
    moves.extend([Done("pay"), Done("tell")]);
    let sent = format!("reserve, quote{}, tell", ", pay".repeat(9));
    check(json!({}), &moves, Status::Completed, &sent);
    // An attempt that may have arrived keeps its budget: the undo settles it in time.
    let mut moves = vec![Done("reserve"), Done("quote"), Unclear("pay"), Silence];
    for _ in 0..4 {
        moves.extend([Closed("pay"), Silence]);
    }
    let saga = Saga::start(json!({}));
    let saga = played_until_turned(saga, &moves);
    assert_eq!(saga.record.status, Status::Compensating);
    assert_eq!(
        saga.record.direction_reason(),
        Some(TurnReason::OutcomeUnknown)
    );
}

/// Plays moves up to the one that turns the saga back.
fn played_until_turned(mut saga: Saga, moves: &[Move]) -> Saga {
    for step in moves {
        saga.play(std::slice::from_ref(step));
        if saga.record.direction_reason().is_some() {
            break;
        }
    }
    saga
}

#[test]
fn a_riddle_while_settling_stays_for_a_person() {
    let back = || vec![Done("reserve"), Done("quote"), Cancel];
    // The undo is known with other parameters; it was applied and is refused now.
    let riddles = [
        vec![Conflict("undo of pay")],
        vec![Done("undo of pay"), Refuse("undo of pay")],
    ];
    for riddle in riddles {
        let mut moves = back();
        moves.extend(riddle);
        let mut saga = Saga::start(json!({}));
        saga.play(&moves);
        assert_eq!(saga.record.status, Status::NeedsReview, "{moves:?}");
        let sent = saga.sent.len();
        // Whatever else is heard, nothing more is sent and nothing ends.
        saga.play(&[Done("pay")]);
        assert_eq!(saga.record.status, Status::NeedsReview, "{moves:?}");
        assert_eq!(saga.sent.len(), sent, "{moves:?}");
    }
}

#[test]
fn an_id_that_stands_for_something_else_is_not_undone_blindly() {
    // The undo would offset what stands there under that id.
    let moves = [Done("reserve"), Done("quote"), Conflict("pay"), Cancel];
    let saga = check(
        json!({}),
        &moves,
        Status::NeedsReview,
        "reserve, quote, pay",
    );
    assert_eq!(case(&saga), Some(CaseReason::OperationConflict));
}

#[test]
fn a_case_that_only_reports_gives_way_to_one_that_blocks() {
    // The undo is told to be overdue, and is refused then.
    let mut moves = vec![Done("reserve"), Done("quote"), Unclear("pay"), Cancel];
    for _ in 0..10 {
        moves.extend([Unclear("undo of pay"), Silence]);
    }
    let mut saga = Saga::start(json!({}));
    saga.play(&moves);
    assert_eq!(case(&saga), Some(CaseReason::Overdue));
    saga.play(&[Refuse("undo of pay")]);
    assert_eq!(saga.record.status, Status::NeedsReview);
    assert_eq!(case(&saga), Some(CaseReason::CompensationRefused));
}

#[test]
fn a_compensation_that_is_never_sent_is_told_too() {
    let mut moves = vec![Done("reserve"), Done("quote"), Unclear("pay"), Cancel];
    for _ in 0..10 {
        moves.extend([Closed("undo of pay"), Silence]);
    }
    let mut saga = Saga::start(json!({}));
    saga.play(&moves);
    assert_eq!(case(&saga), Some(CaseReason::Overdue));
    assert_eq!(saga.record.status, Status::Compensating);
    saga.play(&[Done("undo of pay"), Done("undo of reserve")]);
    assert_eq!(saga.record.status, Status::Compensated);
}
