//! What is said before the start.

use contracts::audit::OperatorAnswer;
use contracts::id::SagaId;
use contracts::intake::{OperatorRequest, OperatorVerb};
use jiff::SignedDuration;
use serde_json::json;

use super::script::WORKFLOW;
use crate::saga::action::{Commit, Decision, Ignored};
use crate::saga::input::{Arrival, Cancel, Input, Operator, Signal};
use crate::saga::record::{CaseReason, SagaRecord, Status};
use crate::saga::{Turn, decide, expect, rules};

#[test]
fn a_signal_before_the_start_is_taken_up_by_it() {
    let early = first(word("m1", "yes"));
    assert_eq!((early.status, early.version), (Status::Waiting, 0));
    assert!(early.wake_at.is_some(), "nothing would wake it");
    let commit = then(early, 5, start(json!({ "wait": true })));
    assert_eq!(commit.record.version, 1);
    // It goes on to wait for the first step, and then finds the word there.
    let reserve = commit.commands[0].operation_id.clone();
    let commit = then(commit.record, 6, applied(reserve));
    assert_eq!(commit.commands[0].step, "quote");
}

#[test]
fn a_signal_before_the_start_is_deduplicated_like_any_other() {
    let early = first(word("m1", "yes"));
    let commit = then(early, 1, word("m2", "yes"));
    assert_eq!(commit.record.signals.len(), 1);
    assert_eq!(commit.record.duplicates, 1);
    assert!(commit.notes.is_empty());
    let commit = then(commit.record, 2, word("m3", "no"));
    assert_eq!(commit.record.signals.len(), 1);
    assert_eq!(commit.notes.len(), 1, "another body under one id is shown");
}

#[test]
fn a_cancel_before_the_start_settles_what_another_replica_may_have_sent() {
    // It may have had the start first, asked for the first step without storing it, and lost the race.
    let early = first(cancel());
    assert_eq!(early.status, Status::Waiting);
    let commit = then(early, 5, start(json!({})));
    assert_eq!(commit.record.status, Status::Compensating);
    let sent: Vec<&str> = commit.commands.iter().map(|c| c.step.as_str()).collect();
    assert_eq!(sent, ["undo of reserve"]);
    let undo = commit.commands[0].operation_id.clone();
    let commit = then(commit.record, 6, applied(undo));
    assert_eq!(commit.record.status, Status::Compensated);
}

#[test]
fn what_nobody_starts_is_a_case_and_still_started_when_the_start_comes() {
    let early = first(word("m1", "yes"));
    let commit = then(early, 3600, Input::Timer);
    assert_eq!(commit.record.status, Status::NeedsReview);
    let reason = commit.record.case.as_ref().map(|case| case.reason);
    assert_eq!(reason, Some(CaseReason::OrphanSignal));
    assert_eq!(commit.record.wake_at, None);
    let commit = then(commit.record, 4000, start(json!({ "wait": true })));
    assert_eq!(commit.record.status, Status::Running);
    assert_eq!(commit.record.case, None);
    // What nobody starts and somebody has cancelled needs nobody.
    let commit = then(first(cancel()), 3600, Input::Timer);
    assert_eq!(commit.record.status, Status::Cancelled);
}

#[test]
fn only_what_is_said_is_kept_for_a_saga_that_does_not_exist() {
    for input in [Input::Timer, Input::Resume, start(json!({}))] {
        assert!(expect(&WORKFLOW, id(), input, turn(0)).is_none());
    }
    let early = first(word("m1", "yes"));
    let decision = decide(&WORKFLOW, early, Input::Resume, turn(1));
    assert!(matches!(decision, Decision::Ignore(_, Ignored::Settled)));
}

#[test]
fn before_the_start_a_person_can_cancel_and_nothing_else() {
    let by_hand = |message_id: &str, verb: OperatorVerb| {
        let request = OperatorRequest {
            saga_id: id(),
            id: message_id.to_owned(),
            verb,
            reason: "a reason".to_owned(),
            by: "ann".to_owned(),
        };
        Input::Operator(Operator {
            message_id: message_id.to_owned(),
            request,
        })
    };
    for verb in [
        OperatorVerb::Compensate,
        OperatorVerb::RetryNow,
        OperatorVerb::Hold,
        OperatorVerb::Recheck,
    ] {
        let input = by_hand("h0", verb.clone());
        assert!(
            expect(&WORKFLOW, id(), input, turn(0)).is_none(),
            "{verb:?}"
        );
        let commit = then(first(word("m1", "yes")), 1, by_hand("h1", verb));
        let answer = commit.audit.expect("told").answer;
        let OperatorAnswer::Refused { why } = answer else {
            panic!("{answer:?}");
        };
        assert!(why.ends_with("allowed now: cancel"), "{why}");
        assert_eq!(commit.record.status, Status::Waiting);
    }
    let cancelled = first(by_hand("h2", OperatorVerb::Cancel));
    let commit = then(cancelled, 5, start(json!({})));
    assert_eq!(commit.record.status, Status::Compensating);
    assert_eq!(commit.record.by_hand.actions.len(), 1);
}

fn first(input: Input) -> SagaRecord {
    let decision = expect(&WORKFLOW, id(), input, turn(0)).expect("kept");
    let Decision::Commit(commit) = decision else {
        panic!("not stored");
    };
    assert!(commit.commands.is_empty() && commit.events.is_empty());
    commit.record
}

fn then(record: SagaRecord, second: i64, input: Input) -> Commit {
    match decide(&WORKFLOW, record, input, turn(second)) {
        Decision::Commit(commit) => *commit,
        Decision::Ignore(_, reason) => panic!("ignored: {reason:?}"),
    }
}

fn turn(second: i64) -> Turn<'static> {
    Turn {
        now: jiff::Timestamp::UNIX_EPOCH
            .checked_add(SignedDuration::from_secs(second))
            .expect("time"),
        replica: "a",
        rules: &rules::DEFAULT,
    }
}

fn id() -> SagaId {
    SagaId::from_parts("four", &["x"])
}

fn start(input: serde_json::Value) -> Input {
    Input::Arrival(Arrival {
        message_id: "start".to_owned(),
        input,
    })
}

fn word(message: &str, body: &str) -> Input {
    Input::Signal(Signal {
        message_id: message.to_owned(),
        name: "word".to_owned(),
        id: "s1".to_owned(),
        body: json!(body),
    })
}

fn cancel() -> Input {
    Input::Cancel(Cancel {
        message_id: "cancel".to_owned(),
        reason: "asked".to_owned(),
        by: "op".to_owned(),
    })
}

fn applied(operation_id: contracts::id::OperationId) -> Input {
    Input::Reply(crate::saga::input::Reply {
        operation_id,
        attempt: 1,
        answer: crate::saga::input::Answer::Applied(json!("fine")),
    })
}
