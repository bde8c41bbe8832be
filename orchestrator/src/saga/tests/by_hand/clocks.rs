//! Hold and release.

use contracts::audit::OperatorAnswer;
use contracts::intake::{Finding, OperatorVerb};
use jiff::SignedDuration;
use serde_json::json;

use super::super::script::Move::*;
use super::{answer, hand, paying, resolve, started, with};
use crate::saga::policy::after;
use crate::saga::record::Status;

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
    saga.play(&[Seconds(3600), hand(OperatorVerb::Release)]);
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
