//! Table tests of `decide`: a script of what happens, and what must have been sent and come of it.

mod by_hand;
mod early;
mod script;
mod shapes;
mod status;
mod trouble;

use contracts::id::{OperationId, SagaId};
use jiff::SignedDuration;
use serde_json::{Value, json};

use script::Move::*;
use script::{Saga, case, check};

use super::action::{Command, Note};
use super::record::{CaseReason, SagaRecord, Status, TurnReason};
use super::{earlier_generations, next_generation};

const PLAIN: fn() -> Value = || json!({});

#[test]
fn each_step_is_sent_once_and_the_event_belongs_to_the_end() {
    let moves = [Done("reserve"), Done("quote"), Done("pay"), Done("tell")];
    let saga = check(
        PLAIN(),
        &moves,
        Status::Completed,
        "reserve, quote, pay, tell",
    );
    assert_eq!(saga.events, ["done"]);
    // What may be asked for on facts that are forgotten names its parameters too.
    let wanted = ["four/x/reserve/", "four/x/quote/", "four/x", "four/x/tell/"];
    for (command, wanted) in saga.sent.iter().zip(wanted) {
        let id = command.operation_id.as_str();
        let digits = if wanted == "four/x" { 0 } else { 12 };
        assert!(id.starts_with(wanted), "{id}");
        assert_eq!(id.len(), wanted.len() + digits, "{id}");
    }
}

#[test]
fn a_refusal_before_the_pivot_undoes_what_was_done_newest_first() {
    let moves = [
        Done("reserve"),
        Done("quote"),
        Refuse("pay"),
        Done("undo of reserve"),
    ];
    let saga = check(
        PLAIN(),
        &moves,
        Status::Compensated,
        "reserve, quote, pay, undo of reserve",
    );
    assert_eq!(
        saga.sent[3].operation_id,
        saga.sent[0].operation_id.revert()
    );
    // Refused before there was anything to undo.
    check(PLAIN(), &[Refuse("reserve")], Status::Failed, "reserve");
}

#[test]
fn silence_is_not_a_refusal_and_the_undo_settles_it() {
    // Three attempts of 10 s, waits of 1 s and 5 s, 30 s in all; then the outcome is unknown.
    let silence = [Silence, Silence, Silence, Silence, Silence];
    let mut moves = vec![Done("reserve"), Done("quote")];
    moves.extend(silence);
    let sent = "reserve, quote, pay, pay, pay, undo of pay";
    let saga = check(PLAIN(), &moves, Status::Compensating, sent);
    assert_eq!(
        saga.record.direction_reason(),
        Some(TurnReason::OutcomeUnknown)
    );
    moves.extend([Done("undo of pay"), Done("undo of reserve")]);
    check(
        PLAIN(),
        &moves,
        Status::Compensated,
        &format!("{sent}, undo of reserve"),
    );
}

#[test]
fn nobody_there_is_proof_only_when_no_attempt_may_have_arrived() {
    let unreachable = [
        Done("reserve"),
        Done("quote"),
        Nobody("pay"),
        Silence,
        Nobody("pay"),
        Silence,
        Nobody("pay"),
        Done("undo of reserve"),
    ];
    let sent = "reserve, quote, pay, pay, pay, undo of reserve";
    check(PLAIN(), &unreachable, Status::Compensated, sent);
    // The first attempt was not answered: it may have arrived, so it has to be settled.
    let doubtful = [
        Done("reserve"),
        Done("quote"),
        Unclear("pay"),
        Silence,
        Nobody("pay"),
        Silence,
        Nobody("pay"),
        Done("undo of pay"),
        Done("undo of reserve"),
    ];
    check(
        PLAIN(),
        &doubtful,
        Status::Compensated,
        "reserve, quote, pay, pay, pay, undo of pay, undo of reserve",
    );
}

#[test]
fn late_success_while_cancelling_is_settled_once() {
    let moves = [
        Done("reserve"),
        Done("quote"),
        Cancel,
        Done("pay"),
        Done("pay"),
        Done("undo of pay"),
        Done("pay"),
        Done("undo of reserve"),
    ];
    let sent = "reserve, quote, pay, undo of pay, undo of reserve";
    let saga = check(PLAIN(), &moves, Status::Compensated, sent);
    assert_eq!(saga.events, Vec::<&str>::new());
}

#[test]
fn success_after_a_proof_that_it_never_arrived_is_still_settled() {
    let moves = [
        Done("reserve"),
        Done("quote"),
        Nobody("pay"),
        Silence,
        Nobody("pay"),
        Silence,
        Nobody("pay"),
        Done("pay"),
        Done("undo of reserve"),
        Done("undo of pay"),
    ];
    let sent = "reserve, quote, pay, pay, pay, undo of reserve, undo of pay";
    check(PLAIN(), &moves, Status::Compensated, sent);
}

#[test]
fn a_contradiction_after_the_end_is_a_case() {
    let moves = [
        Done("reserve"),
        Done("quote"),
        Refuse("pay"),
        Done("undo of reserve"),
        Done("pay"),
    ];
    let sent = "reserve, quote, pay, undo of reserve";
    let mut saga = check(PLAIN(), &moves, Status::NeedsReview, sent);
    assert_eq!(case(&saga), Some(CaseReason::Contradiction));
    // It counts as an effect from then on: a person's cancel settles it before the saga ends again.
    saga.play(&[Cancel]);
    assert_eq!(saga.record.status, Status::Compensating);
    saga.play(&[Done("undo of pay")]);
    assert_eq!(saga.record.status, Status::Compensated);
}

#[test]
fn after_the_pivot_only_forward() {
    let begin = [Done("reserve"), Done("quote"), Done("pay")];
    // A cancel is refused, silence is retried without limit, a refusal asks a person.
    let mut moves = begin.to_vec();
    moves.extend([Cancel, Silence, Silence, Silence, Silence, Done("tell")]);
    check(
        PLAIN(),
        &moves,
        Status::Completed,
        "reserve, quote, pay, tell, tell, tell",
    );
    let mut moves = begin.to_vec();
    moves.push(Refuse("tell"));
    let saga = check(
        PLAIN(),
        &moves,
        Status::NeedsReview,
        "reserve, quote, pay, tell",
    );
    assert_eq!(case(&saga), Some(CaseReason::RefusedAfterPivot));
    // The deadline means nothing any more.
    let mut moves = begin.to_vec();
    moves.extend([Seconds(7200), Silence, Done("tell")]);
    check(
        PLAIN(),
        &moves,
        Status::Completed,
        "reserve, quote, pay, tell, tell",
    );
}

#[test]
fn a_deadline_changes_the_direction_and_settles_first() {
    let moves = [Done("reserve"), Seconds(3700)];
    // Somebody has paid: it goes on being tried and a person is told.
    let saga = check(json!({}), &moves, Status::NeedsReview, "reserve, quote");
    assert_eq!(case(&saga), Some(CaseReason::DeadlinePassed));
    let mut moves = moves.to_vec();
    moves.extend([Silence, Done("quote"), Done("pay"), Done("tell")]);
    let saga = check(
        json!({}),
        &moves,
        Status::Completed,
        "reserve, quote, quote, pay, tell",
    );
    assert_eq!(case(&saga), None);
    // Nothing issued that could move money: cancelled as timed out, after its effect is undone.
    let moves = [Done("reserve"), Seconds(3700), Done("undo of reserve")];
    let saga = check(
        json!({ "wait": true }),
        &moves,
        Status::Compensated,
        "reserve, undo of reserve",
    );
    assert_eq!(saga.record.direction_reason(), Some(TurnReason::TimedOut));
}

#[test]
fn a_compensation_has_no_give_up() {
    let mut moves = vec![Done("reserve"), Done("quote"), Refuse("pay")];
    for _ in 0..30 {
        moves.push(Silence);
    }
    let mut saga = Saga::start(PLAIN());
    saga.play(&moves);
    assert_eq!(saga.record.status, Status::Compensating);
    assert_eq!(case(&saga), Some(CaseReason::Overdue));
    saga.play(&[Silence]);
    saga.play(&[Done("undo of reserve")]);
    assert_eq!(saga.record.status, Status::Compensated);
    // A participant that refuses to undo needs a person; nothing is reported as ended.
    let moves = [
        Done("reserve"),
        Done("quote"),
        Refuse("pay"),
        Refuse("undo of reserve"),
    ];
    let saga = check(
        PLAIN(),
        &moves,
        Status::NeedsReview,
        "reserve, quote, pay, undo of reserve",
    );
    assert_eq!(case(&saga), Some(CaseReason::CompensationRefused));
}

#[test]
fn the_time_nobody_drove_a_saga_is_not_the_participants() {
    // Three replicas die one after another with the command out: each time the budget begins anew.
    let moves = [
        Done("reserve"),
        Done("quote"),
        Orphaned("b"),
        Orphaned("c"),
        Orphaned("d"),
        Orphaned("e"),
        Done("pay"),
        Done("tell"),
    ];
    let sent = "reserve, quote, pay, pay, pay, pay, pay, tell";
    let saga = check(PLAIN(), &moves, Status::Completed, sent);
    assert_eq!(saga.record.epoch, 5);
    // While turned back, only the undo is sent again.
    let moves = [
        Done("reserve"),
        Done("quote"),
        Cancel,
        Orphaned("b"),
        Done("undo of pay"),
        Done("undo of reserve"),
    ];
    let sent = "reserve, quote, pay, undo of pay, undo of pay, undo of reserve";
    check(PLAIN(), &moves, Status::Compensated, sent);
}

#[test]
fn a_takeover_raises_the_fence_and_sends_again_under_the_same_id() {
    let moves = [
        Done("reserve"),
        Done("quote"),
        Takeover("b"),
        Done("pay"),
        Done("tell"),
    ];
    let saga = check(
        PLAIN(),
        &moves,
        Status::Completed,
        "reserve, quote, pay, pay, tell",
    );
    assert_eq!((saga.sent[2].fence, saga.sent[3].fence), (1, 2));
    assert_eq!(saga.sent[2].operation_id, saga.sent[3].operation_id);
    // Nobody there on the second attempt proves nothing about the first.
    let moves = [
        Done("reserve"),
        Done("quote"),
        Takeover("b"),
        Nobody("pay"),
        Silence,
        Nobody("pay"),
        Silence,
        Nobody("pay"),
    ];
    check(
        PLAIN(),
        &moves,
        Status::Compensating,
        "reserve, quote, pay, pay, pay, pay, undo of pay",
    );
}

#[test]
fn a_stale_fence_rises_above_what_was_seen() {
    let moves = [
        Done("reserve"),
        Done("quote"),
        Stale("pay", 7),
        Silence,
        Done("pay"),
        Done("tell"),
    ];
    let saga = check(
        PLAIN(),
        &moves,
        Status::Completed,
        "reserve, quote, pay, pay, tell",
    );
    assert_eq!(saga.sent[3].fence, 8);
}

#[test]
fn a_fence_that_nobody_minted_cannot_make_the_epoch_fall_or_leave_what_wallets_keep() {
    let mut saga = Saga::start(PLAIN());
    saga.play(&[Stale("reserve", u64::MAX), Takeover("b"), Takeover("c")]);
    assert_eq!(saga.record.epoch, crate::saga::record::MAX_EPOCH);
    assert!(i64::try_from(saga.record.epoch).is_ok());
}

#[test]
fn an_operation_known_with_other_parameters_is_a_case() {
    let saga = check(
        PLAIN(),
        &[Done("reserve"), Done("quote"), Conflict("pay")],
        Status::NeedsReview,
        "reserve, quote, pay",
    );
    assert_eq!(case(&saga), Some(CaseReason::OperationConflict));
}

#[test]
fn signals_are_kept_early_absorbed_twice_and_refused_when_changed() {
    let wait = || json!({ "wait": true });
    let done = [Done("quote"), Done("pay"), Done("tell")];
    for begin in [
        vec![Word("s1", "yes"), Done("reserve")],
        vec![Done("reserve"), Word("s1", "yes")],
    ] {
        let mut moves = begin;
        moves.extend([Word("s1", "yes"), Word("s1", "no")]);
        moves.extend(done.clone());
        let saga = check(
            wait(),
            &moves,
            Status::Completed,
            "reserve, quote, pay, tell",
        );
        assert_eq!(saga.record.duplicates, 1);
        assert!(matches!(
            &saga.notes[..],
            [Note::OpenCase {
                reason: CaseReason::ConflictingFact,
                ..
            }]
        ));
    }
    let moves = [Done("reserve"), Word("s1", "no"), Done("undo of reserve")];
    check(
        wait(),
        &moves,
        Status::Compensated,
        "reserve, undo of reserve",
    );
    // A word that comes when the wait is over, but before that was acted upon, still counts.
    let mut saga = Saga::start(wait());
    saga.play(&[Done("reserve")]);
    saga.now = saga
        .now
        .checked_add(SignedDuration::from_mins(31))
        .expect("time");
    saga.play(&[Word("s1", "yes")]);
    assert_eq!(saga.steps_sent(), "reserve, quote");
}

#[test]
fn a_repeat_is_absorbed_and_another_input_is_a_case_beside_the_saga() {
    let moves = [
        Done("reserve"),
        Again,
        Done("quote"),
        Done("pay"),
        Done("tell"),
        Again,
        Different,
    ];
    let saga = check(
        PLAIN(),
        &moves,
        Status::Completed,
        "reserve, quote, pay, tell",
    );
    assert_eq!(saga.record.duplicates, 2);
    assert_eq!(saga.notes.len(), 1);
}

#[test]
fn code_that_changed_under_a_live_saga_sends_nothing() {
    let mut saga = Saga::start(PLAIN());
    saga.play(&[Done("reserve"), Done("quote")]);
    saga.record.input = json!({ "drift": true });
    saga.play(&[Done("pay")]);
    assert_eq!(case(&saga), Some(CaseReason::Nondeterministic));
    assert_eq!(saga.steps_sent(), "reserve, quote, pay");
}

#[test]
fn a_workflow_that_panics_is_a_case() {
    let saga = check(
        json!({ "panic": true }),
        &[Done("reserve")],
        Status::NeedsReview,
        "reserve",
    );
    assert_eq!(case(&saga), Some(CaseReason::Poison));
}

#[test]
fn an_answer_to_what_was_never_asked_is_a_case() {
    let mut saga = Saga::start(PLAIN());
    saga.sent.push(Command {
        operation_id: OperationId::new("other/op").expect("id"),
        step: "stray".to_owned(),
        ..saga.sent[0].clone()
    });
    saga.play(&[Done("stray")]);
    assert_eq!(case(&saga), Some(CaseReason::Contradiction));
}

#[test]
fn generations_are_numbered() {
    let first = SagaId::from_parts("deposit", &["p", "x"]);
    let second = next_generation(&first);
    assert_eq!(second.as_str(), "deposit/p/x/again:2");
    let third = next_generation(&second);
    assert_eq!(third.as_str(), "deposit/p/x/again:3");
    assert_eq!(earlier_generations(&third), [second, first.clone()]);
    assert_eq!(earlier_generations(&first), []);
}

#[test]
fn a_record_reads_back_as_it_was_written() {
    let moves = [
        Done("reserve"),
        Done("quote"),
        Unclear("pay"),
        Silence,
        Cancel,
    ];
    let saga = check(
        PLAIN(),
        &moves,
        Status::Compensating,
        "reserve, quote, pay, pay, undo of pay",
    );
    let text = serde_json::to_string(&saga.record).expect("JSON");
    assert_eq!(
        serde_json::from_str::<SagaRecord>(&text).expect("record"),
        saga.record
    );
}
