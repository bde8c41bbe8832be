//! Tables of what the judge names: a saga on which all agree, one thing changed at a time.

mod fixture;
mod lots;
mod ways_out;

use contracts::id::SagaId;
use contracts::reply::OperationState;
use jiff::SignedDuration;

use super::difference::{Kind, shell};
use super::judge::{Rules, judge};
use super::sides::{EventBody, EventSide, PaymentSide, RecordSide, Said, Sides};
use crate::payments::PaymentStatus;
use crate::saga::record::Status;
use fixture::{
    compensated, completed, credit, crediting, customer, euro, event, moved, offset, operation,
    rules, saga, start,
};

fn record(sides: &mut Sides) -> &mut RecordSide {
    sides.record.as_mut().expect("a record")
}

fn payment(sides: &mut Sides) -> &mut PaymentSide {
    sides.payment.as_mut().expect("a payment")
}

/// What is named when one thing is changed.
fn check(what: &str, mut sides: Sides, change: impl FnOnce(&mut Sides), expected: &[Kind]) {
    assert_eq!(judge(&sides, &rules()), [], "{what}, before the change");
    change(&mut sides);
    let found = judge(&sides, &rules());
    let kinds: Vec<Kind> = found.iter().map(|difference| difference.kind).collect();
    assert_eq!(kinds, expected, "{what}: {found:#?}");
    for difference in &found {
        assert_eq!(difference.saga_id, saga().as_str(), "{what}");
        assert!(
            difference.fix.command.contains("acme/p1")
                || difference.fix.command == "orchestrator setup"
        );
        let says = &difference.says;
        assert!(says.record.is_some(), "{what}: {difference:?}");
    }
}

#[test]
fn a_completed_saga_is_in_all_books() {
    use Kind::*;
    let done = completed;
    check(
        "no credit",
        done(),
        |s| s.operations.clear(),
        &[WalletMissing],
    );
    check(
        "offset",
        done(),
        |s| s.operations = vec![credit(OperationState::Reverted)],
        &[WalletMissing],
    );
    let refused = operation(saga().own_operation(), OperationState::Rejected, None);
    check(
        "refused",
        done(),
        |s| s.operations = vec![refused],
        &[WalletMissing],
    );
    for (name, minor) in [("cust", 1_251), ("else", 1_250)] {
        let other = operation(
            saga().own_operation(),
            OperationState::Applied,
            Some(moved(name, minor)),
        );
        check(
            name,
            done(),
            |s| s.operations = vec![other],
            &[WalletDiffers],
        );
    }
    let again = operation(
        saga().operation("x"),
        OperationState::Applied,
        Some(moved("cust", 1_250)),
    );
    check(
        "twice",
        done(),
        |s| s.operations.push(again.clone()),
        &[ExtraMovement],
    );
    let mut taken_back = again;
    taken_back.view.state = OperationState::Reverted;
    check(
        "twice, offset",
        done(),
        |s| s.operations.push(taken_back),
        &[],
    );

    check(
        "no payment",
        done(),
        |s| s.payment = None,
        &[PaymentMissing],
    );
    check(
        "not marked",
        done(),
        |s| payment(s).status = PaymentStatus::Pending,
        &[PaymentNotSuccessful],
    );
    check(
        "other sum",
        done(),
        |s| payment(s).credited = Some(euro(1)),
        &[PaymentDiffers],
    );
    check(
        "other customer",
        done(),
        |s| payment(s).customer = Some(customer("else")),
        &[PaymentDiffers],
    );
    check(
        "other saga",
        done(),
        |s| payment(s).saga_id = None,
        &[PaymentDiffers],
    );
    check("no event", done(), |s| s.events.clear(), &[EventMissing]);
    check(
        "neither event nor note of it",
        done(),
        |s| {
            s.events.clear();
            record(s).events.clear();
        },
        &[EventMissing],
    );
    check(
        "an event without a note of it",
        done(),
        |s| record(s).events.clear(),
        &[],
    );
    check(
        "of a workflow that has no such event",
        done(),
        |s| {
            s.events.clear();
            record(s).events.clear();
            record(s).is_deposit = false;
        },
        &[],
    );
    check(
        "two events",
        done(),
        |s| s.events.push(event()),
        &[EventRepeated],
    );
    let body = |event: &mut EventSide, change: fn(&mut EventBody)| {
        change(event.body.as_mut().expect("a body"))
    };
    check(
        "event sum",
        done(),
        |s| body(&mut s.events[0], |b| b.credited = Some(euro(1))),
        &[EventDiffers],
    );
    check(
        "event customer",
        done(),
        |s| body(&mut s.events[0], |b| b.customer = Some(customer("else"))),
        &[EventDiffers],
    );
    check(
        "event region",
        done(),
        |s| s.events[0].region = "asia".to_owned(),
        &[EventDiffers],
    );
    check(
        "torn event",
        done(),
        |s| s.events[0].body = Err("torn".to_owned()),
        &[EventUnreadable],
    );
    check(
        "other event",
        done(),
        |s| s.events[0].name = "x".to_owned(),
        &[EventMissing, EventWithoutCompletion],
    );
    check(
        "no record",
        done(),
        |s| s.record = None,
        &[
            WalletWithoutSaga,
            PaymentWithoutSaga,
            EventWithoutCompletion,
        ],
    );
}

#[test]
fn a_saga_that_turned_back_left_nothing() {
    use Kind::*;
    let back = compensated;
    let standing = || vec![credit(OperationState::Applied)];
    check(
        "not offset",
        back(),
        |s| s.operations = standing(),
        &[RevertMissing],
    );
    check(
        "never offset",
        back(),
        |s| {
            record(s).moves[0].undo = Said::Open;
            s.operations = standing();
        },
        &[RevertMissing],
    );
    check(
        "never offset, unknown to itself",
        back(),
        |s| {
            record(s).moves[0].undo = Said::Nothing;
            s.operations = standing();
        },
        &[RevertMissing],
    );
    check(
        "offset, unknown to itself",
        back(),
        |s| record(s).moves[0].undo = Said::Nothing,
        &[],
    );
    check("never seen", back(), |s| s.operations.clear(), &[]);
    check(
        "marked",
        back(),
        |s| payment(s).status = PaymentStatus::Successful,
        &[PaymentWithoutCompletion],
    );
    check(
        "marked in nobody's name",
        back(),
        |s| {
            payment(s).status = PaymentStatus::Successful;
            payment(s).saga_id = None;
        },
        &[PaymentWithoutCompletion],
    );
    check(
        "left",
        back(),
        |s| payment(s).status = PaymentStatus::Pending,
        &[PaymentLeftOpen],
    );
    check(
        "a later one's",
        back(),
        |s| {
            payment(s).status = PaymentStatus::Successful;
            payment(s).saga_id = Some(SagaId::from_parts("deposit", &["acme", "p1", "again:2"]));
        },
        &[],
    );
    check(
        "event",
        back(),
        |s| s.events.push(event()),
        &[EventWithoutCompletion],
    );
    check(
        "refused, and yet there",
        back(),
        |s| {
            record(s).moves[0].forward = Said::NotApplied;
            record(s).moves[0].undo = Said::Nothing;
            s.operations = standing();
        },
        &[WalletUnexpected],
    );
    check(
        "unknown, and settled",
        back(),
        |s| record(s).moves[0].forward = Said::Open,
        &[],
    );
    check(
        "unknown, settled, and yet there",
        back(),
        |s| {
            record(s).moves[0].forward = Said::Open;
            s.operations = standing();
        },
        &[RevertMissing],
    );
    let operation_id = saga().own_operation();
    check(
        "unknown at the end",
        back(),
        |s| record(s).unknown = vec![(operation_id, start())],
        &[UnknownOutcome],
    );
}

#[test]
fn a_saga_on_its_way_is_no_difference_until_it_stands_still() {
    use Kind::*;
    let open = crediting;
    let ago = |minutes: i64| rules().now - SignedDuration::from_mins(minutes);
    check(
        "booked, not heard of",
        open(),
        |s| s.operations = vec![credit(OperationState::Applied)],
        &[],
    );
    check(
        "offset, not heard of",
        open(),
        |s| {
            record(s).status = Status::Compensating;
            record(s).moves[0].forward = Said::Applied;
            record(s).moves[0].undo = Said::Open;
            s.operations = vec![credit(OperationState::Reverted), offset()];
        },
        &[],
    );
    check(
        "marked, not heard of",
        open(),
        |s| {
            record(s).moves[0].forward = Said::Applied;
            s.operations = vec![credit(OperationState::Applied)];
            payment(s).status = PaymentStatus::Successful;
        },
        &[],
    );
    check(
        "applied, and not there",
        open(),
        |s| record(s).moves[0].forward = Said::Applied,
        &[WalletMissing],
    );
    check(
        "an event before its time",
        open(),
        |s| s.events.push(event()),
        &[EventWithoutCompletion],
    );
    check(
        "still",
        open(),
        |s| record(s).last_progress_at = ago(16),
        &[Stuck],
    );
    check(
        "waits until known",
        open(),
        |s| {
            record(s).status = Status::Waiting;
            record(s).last_progress_at = ago(16);
            record(s).waits_until = Some(ago(-30));
        },
        &[],
    );
    check(
        "has waited",
        open(),
        |s| {
            record(s).status = Status::Waiting;
            record(s).last_progress_at = ago(60);
            record(s).waits_until = Some(ago(16));
        },
        &[Stuck],
    );
    check(
        "a person",
        open(),
        |s| {
            record(s).status = Status::NeedsReview;
            record(s).last_progress_at = ago(16);
        },
        &[WaitsForPerson],
    );
    let unknown = |since| vec![(saga().own_operation(), since)];
    check(
        "unknown for a moment",
        open(),
        |s| record(s).unknown = unknown(ago(1)),
        &[],
    );
    check(
        "unknown for long",
        open(),
        |s| record(s).unknown = unknown(ago(16)),
        &[UnknownOutcome],
    );
    check(
        "unknown, a case",
        open(),
        |s| {
            record(s).status = Status::NeedsReview;
            record(s).unknown = unknown(ago(1));
        },
        &[UnknownOutcome],
    );
    // What was stored by the first step of a saga that has not stored itself yet.
    check("just begun", open(), |s| s.record = None, &[]);
    check(
        "begun, and never gone on",
        open(),
        |s| {
            s.record = None;
            payment(s).updated_at = ago(16);
        },
        &[PaymentWithoutSaga],
    );
}

#[test]
fn payments_that_were_not_read_are_not_judged() {
    let rules = Rules {
        payments: false,
        ..rules()
    };
    let mut sides = completed();
    sides.payment = None;
    assert_eq!(judge(&sides, &rules), []);
}

#[test]
fn a_lost_credit_is_booked_again_under_its_own_id() {
    let mut sides = completed();
    sides.operations.clear();
    record(&mut sides).moves[0].update.customer = customer("it's ö; rm");
    payment(&mut sides).customer = Some(customer("it's ö; rm"));
    sides.events[0].body.as_mut().expect("a body").customer = Some(customer("it's ö; rm"));
    let found = judge(&sides, &rules());
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(
        found[0].fix.command,
        r"region-agent wallet book deposit/acme/p1 'it'\''s ö; rm' credit 12.50 EUR --decimals 2 --reason TEXT"
    );
}

#[test]
fn words_of_a_command_line_reach_the_program_as_they_are() {
    for (word, quoted) in [
        ("deposit/acme/p1", "deposit/acme/p1"),
        ("", "''"),
        ("a b", "'a b'"),
        ("$(x)", "'$(x)'"),
        ("it's", r"'it'\''s'"),
        ("~root", "'~root'"),
    ] {
        assert_eq!(shell(word), quoted);
    }
}
