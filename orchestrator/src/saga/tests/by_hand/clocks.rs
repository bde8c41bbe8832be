//! Hold and release.

use contracts::audit::OperatorAnswer;
use contracts::intake::{Finding, OperatorRequest, OperatorVerb};
use jiff::SignedDuration;
use serde_json::json;

use super::super::script::Move::*;
use super::super::script::{Move, WORKFLOW, case};
use super::{answer, hand, paying, resolve, started, with};
use crate::saga::policy::after;
use crate::saga::record::{Direction, Status};
use crate::saga::{Turn, preview};

#[test]
fn hold_stops_the_clocks_and_release_lets_them_go_on() {
    let mut saga = started(json!({ "wait": true }), &[Done("reserve"), Seconds(60)]);
    let (deadline, until) = (saga.record.deadline_at, saga.record.awaiting[0].until);
    saga.play(&[hand(OperatorVerb::Hold), Seconds(2 * 3600), Seconds(3600)]);
    assert_eq!(
        saga.record.status,
        Status::Waiting,
        "three hours are past its deadline"
    );
    // It hears, and does nothing about it.
    saga.play(&[Word("s1", "maybe"), Takeover("b")]);
    assert_eq!((saga.record.signals.len(), saga.record.epoch), (1, 1));
    saga.play(&[hand(OperatorVerb::Release)]);
    assert_eq!(
        saga.steps_sent(),
        "reserve, quote",
        "the word is taken up now"
    );
    let moved = |instant: jiff::Timestamp| instant.duration_since(until).as_hours();
    assert_eq!(
        saga.record
            .deadline_at
            .map(|at| at.duration_since(deadline.expect("one")).as_hours()),
        Some(3)
    );
    let fact = saga.record.facts["select/until"].as_str().expect("a time");
    assert_eq!(moved(fact.parse().expect("time")), 3);
    saga.play(&[Done("quote"), Done("pay"), Done("tell")]);
    assert_eq!(saga.record.status, Status::Completed);
}

#[test]
fn an_answer_that_comes_while_held_is_kept_and_followed_afterwards() {
    let mut saga = started(
        json!({}),
        &with(paying(), &[hand(OperatorVerb::Hold), Done("pay")]),
    );
    assert_eq!(saga.steps_sent(), "reserve, quote, pay");
    assert!(saga.record.is_past_pivot());
    saga.play(&[Seconds(3600), hand(OperatorVerb::Release), Done("tell")]);
    assert_eq!(saga.record.status, Status::Completed);
    // One that began to wait while the saga was held has waited long enough.
    let mut saga = started(
        json!({}),
        &with(
            paying(),
            &[hand(OperatorVerb::Hold), Seconds(7200), Nobody("pay")],
        ),
    );
    saga.play(&[hand(OperatorVerb::Release)]);
    let left = saga
        .record
        .next_due()
        .expect("due")
        .duration_since(saga.now);
    assert!(left.as_secs() <= 60, "{left}");
}

#[test]
fn whoever_releases_a_saga_takes_over_what_its_owner_left() {
    let mut saga = started(
        json!({}),
        &with(paying(), &[hand(OperatorVerb::Hold), Takeover("b")]),
    );
    saga.play(&[Seconds(3600)]);
    // Beforehand nobody knows who will decide: the owner sends nothing, another one sends it again.
    let request = OperatorRequest {
        saga_id: saga.record.saga_id.clone(),
        id: "1".to_owned(),
        verb: OperatorVerb::Release,
        reason: "a reason".to_owned(),
        by: "ann".to_owned(),
    };
    let owner = Turn {
        replica: "a",
        ..saga.turn()
    };
    let shown = preview(Some(&WORKFLOW), &saga.record, &request, owner);
    assert_eq!((shown.commands.len(), shown.again.len()), (0, 1));
    assert_eq!(shown.again[0].operation_id.as_str(), "four/x");
    saga.play(&[hand(OperatorVerb::Release)]);
    assert_eq!(saga.record.owner, "b");
    assert_eq!(saga.steps_sent(), "reserve, quote, pay, pay");
    let last = saga.sent.last().expect("a command");
    assert_eq!((last.fence, last.operation_id.as_str()), (2, "four/x"));
    assert!(last.deadline > saga.now);
    saga.play(&[Done("pay"), Done("tell")]);
    assert_eq!(saga.record.status, Status::Completed);
}

#[test]
fn only_what_is_confirmed_is_progress() {
    let mut saga = started(json!({}), &with(paying(), &[Unclear("pay"), Seconds(0)]));
    let confirmed = saga.record.last_progress_at;
    let verbs = [
        OperatorVerb::RetryNow,
        OperatorVerb::Hold,
        OperatorVerb::Release,
        OperatorVerb::Compensate,
    ];
    for verb in verbs {
        saga.now = after(saga.now, SignedDuration::from_secs(2));
        saga.play(&[hand(verb)]);
        assert_eq!(*answer(&saga), OperatorAnswer::Accepted);
        assert_eq!(saga.record.last_progress_at, confirmed);
    }
    saga.play(&[Unclear("undo of pay"), Seconds(0)]);
    saga.play(&[hand(resolve(None, Finding::Applied))]);
    assert_eq!(*answer(&saga), OperatorAnswer::Accepted);
    assert_eq!(saga.record.last_progress_at, saga.now);
}

#[test]
fn the_time_of_a_review_and_of_a_hold_is_given_back_once() {
    const HOUR: Move = Seconds(3600);
    let hold = || hand(OperatorVerb::Hold);
    let release = || hand(OperatorVerb::Release);
    let resolved = || hand(resolve(Some("four/x"), Finding::Applied));
    let table: [(&str, Vec<Move>, i64); 5] = [
        (
            "resolved while held",
            vec![
                Conflict("pay"),
                HOUR,
                hold(),
                HOUR,
                resolved(),
                HOUR,
                release(),
            ],
            3,
        ),
        (
            "held while in review",
            vec![
                Conflict("pay"),
                HOUR,
                hold(),
                HOUR,
                release(),
                HOUR,
                resolved(),
            ],
            3,
        ),
        (
            "a case comes up while held",
            vec![
                hold(),
                HOUR,
                Conflict("pay"),
                HOUR,
                release(),
                HOUR,
                resolved(),
            ],
            3,
        ),
        (
            "held twice within a review",
            vec![
                Conflict("pay"),
                hold(),
                HOUR,
                release(),
                HOUR,
                hold(),
                HOUR,
                release(),
                HOUR,
                resolved(),
            ],
            4,
        ),
        (
            "one after the other",
            vec![hold(), HOUR, release(), Conflict("pay"), HOUR, resolved()],
            2,
        ),
    ];
    for (what, moves, hours) in table {
        // Without a pivot the deadline stays to the end.
        let mut saga = started(json!({}), &paying());
        for step in &mut saga.record.steps {
            step.pivot = false;
        }
        let deadline = saga.record.deadline_at.expect("a deadline");
        saga.play(&moves);
        assert_eq!(*answer(&saga), OperatorAnswer::Accepted, "{what}");
        assert_eq!(case(&saga), None, "{what}");
        let moved = saga.record.deadline_at.expect("a deadline");
        assert_eq!(moved.duration_since(deadline).as_hours(), hours, "{what}");
    }
}

#[test]
fn a_pivot_that_is_asked_about_again_is_not_late() {
    let moves = with(
        paying(),
        &[
            Done("pay"),
            // The saga's deadline passes while it goes forward.
            Seconds(2 * 3600),
            Refuse("pay"),
            hand(OperatorVerb::Recheck),
        ],
    );
    let mut saga = started(json!({}), &moves);
    assert!(!saga.record.is_past_pivot(), "its answer is awaited");
    assert_eq!(saga.record.direction, Direction::Forward);
    saga.play(&[Done("pay"), Done("tell")]);
    assert_eq!(saga.record.status, Status::Completed);
}
