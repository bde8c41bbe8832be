//! Sending an operation, once and again.

use jiff::SignedDuration;

use super::{Side, all, operation, policy, step_label};
use crate::saga::Turn;
use crate::saga::action::Command;
use crate::saga::flow::UNREACHABLE;
use crate::saga::policy::{ALERT_AFTER_ATTEMPTS, Next, Policy};
use crate::saga::record::{Case, CaseReason, Direction, Outcome, SagaRecord};
use crate::saga::review::CASE_OPENED;

/// An attempt that came to nothing definite.
pub(super) struct Failure {
    /// It may have had an effect.
    pub(super) doubtful: bool,
    /// What it came to, for a person.
    pub(super) last: String,
    /// The participant asked for a pause.
    pub(super) at_least: SignedDuration,
}

/// Notices attempts that were not answered in time and sends what has waited long enough.
///
/// An attempt of another replica that is noticed here has lost its owner, and perhaps its answer with
/// it: the owner itself notices first. It is sent again as at a takeover.
pub(in crate::saga) fn on_time(record: &mut SagaRecord, turn: Turn<'_>) -> Vec<Command> {
    let mut commands = Vec::new();
    let orphaned = record.owner != turn.replica;
    for (index, side) in all(record) {
        match operation(record, index, side).outcome {
            Outcome::InFlight { deadline, .. } if deadline <= turn.now && orphaned => {
                commands.extend(send_anew(record, index, side, turn));
            }
            Outcome::InFlight { deadline, .. } if deadline <= turn.now => {
                let failure = Failure {
                    doubtful: true,
                    last: "no answer within its deadline".to_owned(),
                    at_least: SignedDuration::ZERO,
                };
                fail(record, index, side, failure, turn);
            }
            Outcome::BackingOff { retry_at, .. } if retry_at <= turn.now => {
                commands.extend(send(record, index, side, turn));
            }
            Outcome::Planned
            | Outcome::InFlight { .. }
            | Outcome::BackingOff { .. }
            | Outcome::Applied { .. }
            | Outcome::NotApplied { .. }
            | Outcome::Unknown { .. } => {}
        }
    }
    commands
}

/// Sends everything in flight once more, see [`send_anew`].
pub(in crate::saga) fn send_again_all(record: &mut SagaRecord, turn: Turn<'_>) -> Vec<Command> {
    let mut commands = Vec::new();
    for (index, side) in all(record) {
        commands.extend(send_anew(record, index, side, turn));
    }
    commands
}

/// Sends what is in flight once more, with a new budget: the time this side was away is not the
/// participant's. What is to be undone is not done again; its undo settles it.
fn send_anew(record: &mut SagaRecord, index: usize, side: Side, turn: Turn<'_>) -> Option<Command> {
    let cancelling = matches!(record.direction, Direction::Cancelling { .. });
    let operation = operation(record, index, side);
    let Outcome::InFlight {
        issued_at,
        tries,
        doubtful,
        ..
    } = &mut operation.outcome
    else {
        return None;
    };
    if cancelling && side == Side::Forward {
        operation.outcome = given_up(true, "its sender has gone".to_owned(), turn);
        return None;
    }
    (*issued_at, *tries, *doubtful) = (turn.now, 0, true);
    send(record, index, side, turn)
}

/// Sends the forward operation of the step at `index`.
pub(in crate::saga) fn send_forward(
    record: &mut SagaRecord,
    index: usize,
    turn: Turn<'_>,
) -> Option<Command> {
    send(record, index, Side::Forward, turn)
}

/// Sends the compensation of the step at `index`.
pub(in crate::saga) fn send_undo(
    record: &mut SagaRecord,
    index: usize,
    turn: Turn<'_>,
) -> Option<Command> {
    send(record, index, Side::Undo, turn)
}

pub(super) fn send(
    record: &mut SagaRecord,
    index: usize,
    side: Side,
    turn: Turn<'_>,
) -> Option<Command> {
    let policy = policy(record, index, side);
    let fence = record.epoch;
    let step = step_label(record, index, side);
    let operation = operation(record, index, side);
    let (issued_at, tries, doubtful) = match operation.outcome {
        Outcome::Planned => (turn.now, 0, false),
        Outcome::InFlight {
            issued_at,
            tries,
            doubtful,
            ..
        }
        | Outcome::BackingOff {
            issued_at,
            tries,
            doubtful,
            ..
        } => (issued_at, tries, doubtful),
        Outcome::Applied { .. } | Outcome::NotApplied { .. } | Outcome::Unknown { .. } => {
            return None;
        }
    };
    let deadline = policy.attempt_deadline(issued_at, turn.now);
    operation.attempts = operation.attempts.saturating_add(1);
    operation.outcome = Outcome::InFlight {
        issued_at,
        deadline,
        tries: tries.saturating_add(1),
        doubtful,
    };
    Some(Command {
        step,
        operation_id: operation.operation_id.clone(),
        participant: operation.participant.clone(),
        kind: operation.kind.clone(),
        request: operation.request.clone(),
        attempt: operation.attempts,
        fence,
        deadline,
    })
}

/// The command was not sent. That was no attempt, so it takes nothing from the budget: the saga waits until
/// the way is open again, at the longest up to its deadline. Where an earlier attempt is out, its budget
/// goes on.
pub(super) fn hold_back(
    record: &mut SagaRecord,
    index: usize,
    side: Side,
    (code, at_least): (&str, SignedDuration),
    turn: Turn<'_>,
) {
    let policy = policy(record, index, side);
    let cancelling = matches!(record.direction, Direction::Cancelling { .. });
    let label = step_label(record, index, side);
    let operation = operation(record, index, side);
    let Outcome::InFlight {
        issued_at,
        tries,
        doubtful,
        ..
    } = operation.outcome
    else {
        return;
    };
    let tries = tries.saturating_sub(1);
    let begun = (tries > 0 || doubtful).then_some(issued_at);
    let seed = operation.operation_id.as_str();
    let next = if cancelling && side == Side::Forward {
        Next::GiveUp
    } else {
        policy.after_holding_back(begun, turn.now, operation.attempts, at_least, seed)
    };
    operation.outcome = match next {
        Next::RetryAt(retry_at) => Outcome::BackingOff {
            issued_at: begun.unwrap_or(retry_at),
            retry_at,
            tries,
            doubtful,
            last: code.to_owned(),
        },
        Next::GiveUp => given_up(doubtful, code.to_owned(), turn),
    };
    record.cause = format!("{label} not sent: {code}");
    tell_if_overdue(record, index, side, code, turn);
}

/// An attempt came to nothing definite: wait for the next, or settle what is known.
pub(super) fn fail(
    record: &mut SagaRecord,
    index: usize,
    side: Side,
    failure: Failure,
    turn: Turn<'_>,
) {
    let policy = policy(record, index, side);
    let cancelling = matches!(record.direction, Direction::Cancelling { .. });
    let label = step_label(record, index, side);
    let operation = operation(record, index, side);
    let Outcome::InFlight {
        issued_at,
        tries,
        doubtful,
        ..
    } = operation.outcome
    else {
        return;
    };
    let doubtful = doubtful || failure.doubtful;
    let seed = operation.operation_id.as_str();
    // Once the saga has turned, its forward operations are not sent again; their undo settles them.
    let next = if cancelling && side == Side::Forward {
        Next::GiveUp
    } else {
        policy.after_failure(issued_at, turn.now, tries, failure.at_least, seed)
    };
    operation.outcome = match next {
        Next::RetryAt(retry_at) => Outcome::BackingOff {
            issued_at,
            retry_at,
            tries,
            doubtful,
            last: failure.last.clone(),
        },
        Next::GiveUp => given_up(doubtful, failure.last.clone(), turn),
    };
    record.cause = format!("{label} attempt {tries}: {}", failure.last);
    tell_if_overdue(record, index, side, &failure.last, turn);
}

/// Tells a person of what has been tried often enough, also where the way to its participant has been closed
/// each time: nobody else would. It goes on being tried.
fn tell_if_overdue(record: &mut SagaRecord, index: usize, side: Side, last: &str, turn: Turn<'_>) {
    let policy = policy(record, index, side);
    let label = step_label(record, index, side);
    let operation = operation(record, index, side);
    let attempts = operation.attempts;
    let operation_id = operation.operation_id.clone();
    if policy != Policy::UntilDone || attempts < ALERT_AFTER_ATTEMPTS || record.case.is_some() {
        return;
    }
    record.cause = format!("{CASE_OPENED}: {}", record.cause);
    record.case = Some(Case {
        reason: CaseReason::Overdue,
        message: format!("{label} has been tried {attempts} times; it goes on being tried: {last}"),
        since: turn.now,
        owner: record.by_hand.last_owner(),
        operation_id: Some(operation_id),
        amount_at_risk: Vec::new(),
        evidence: serde_json::Value::Null,
    });
}

/// What is known of an operation that is not sent again.
pub(in crate::saga) fn given_up(doubtful: bool, last: String, turn: Turn<'_>) -> Outcome {
    if doubtful {
        Outcome::Unknown {
            since: turn.now,
            last,
        }
    } else {
        Outcome::NotApplied {
            code: UNREACHABLE.to_owned(),
            message: last,
            at: turn.now,
        }
    }
}
