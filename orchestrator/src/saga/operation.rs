//! One operation and what happens to it: the second table in [`super`].

use jiff::SignedDuration;

use super::Turn;
use super::action::{Command, Ignored};
use super::flow::UNREACHABLE;
use super::input::{Answer, Reply};
use super::policy::{ALERT_AFTER_ATTEMPTS, Next, Policy};
use super::record::{Case, CaseReason, Direction, Operation, Outcome, SagaRecord};
use super::review::{CASE_OPENED, open_case};

/// Whether an answer changed the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Applied {
    /// Look what follows from it.
    Changed,
    /// Nothing does.
    Nothing(Ignored),
}

/// Which side of a step an operation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Forward,
    Undo,
}

/// An attempt that came to nothing definite.
struct Failure {
    /// It may have had an effect.
    doubtful: bool,
    /// What it came to, for a person.
    last: String,
    /// The participant asked for a pause.
    at_least: SignedDuration,
}

/// Takes in a participant's answer.
pub(super) fn on_reply(record: &mut SagaRecord, reply: &Reply, turn: Turn<'_>) -> Applied {
    let Some((index, side)) = find(record, reply) else {
        let message = format!(
            "an answer came for operation {}, which this saga never issued",
            reply.operation_id
        );
        let evidence = serde_json::json!({ "answer": format!("{:?}", reply.answer) });
        open_case(record, CaseReason::Contradiction, message, evidence, turn);
        return Applied::Changed;
    };
    let operation = operation(record, index, side);
    let current = matches!(operation.outcome, Outcome::InFlight { .. })
        && reply.attempt == operation.attempts;
    match &reply.answer {
        Answer::Applied(body) => on_applied(record, index, side, body, turn),
        Answer::Refused { code, message } => on_refused(record, index, side, (code, message), turn),
        Answer::Conflict { .. } if !operation.outcome.is_pending() => {
            Applied::Nothing(Ignored::Settled)
        }
        Answer::Conflict { fields } => {
            let message = format!(
                "{} knows operation {} with other {}: compare both sides before anything is done",
                participant_name(operation),
                operation.operation_id,
                fields.join(", ")
            );
            operation.outcome = Outcome::Unknown {
                since: turn.now,
                last: "conflict".to_owned(),
            };
            open_case(
                record,
                CaseReason::OperationConflict,
                message,
                serde_json::Value::Null,
                turn,
            );
            Applied::Changed
        }
        Answer::NotExecuted { .. }
        | Answer::Unacceptable { .. }
        | Answer::Unknown { .. }
        | Answer::Stale { .. }
            if !current =>
        {
            Applied::Nothing(Ignored::Settled)
        }
        Answer::Unacceptable { code, message } => {
            on_unacceptable(record, index, side, (code, message), turn);
            Applied::Changed
        }
        Answer::NotExecuted { code, retry_after } => {
            let failure = Failure {
                doubtful: false,
                last: code.clone(),
                at_least: *retry_after,
            };
            fail(record, index, side, failure, turn);
            Applied::Changed
        }
        Answer::Unknown { message } => {
            let failure = Failure {
                doubtful: true,
                last: message.clone(),
                at_least: SignedDuration::ZERO,
            };
            fail(record, index, side, failure, turn);
            Applied::Changed
        }
        Answer::Stale { seen_fence } => {
            // Only the holder of the record's revision gets this stored; for it the fence has to rise.
            if record.epoch <= *seen_fence {
                record.epoch = seen_fence.saturating_add(1);
            }
            let last = format!("stale fence, {seen_fence} was seen");
            let failure = Failure {
                doubtful: false,
                last,
                at_least: SignedDuration::ZERO,
            };
            fail(record, index, side, failure, turn);
            Applied::Changed
        }
    }
}

fn on_applied(
    record: &mut SagaRecord,
    index: usize,
    side: Side,
    body: &serde_json::Value,
    turn: Turn<'_>,
) -> Applied {
    let operation = operation(record, index, side);
    let contradiction = match operation.outcome {
        Outcome::Applied { .. } => return Applied::Nothing(Ignored::Settled),
        Outcome::NotApplied { .. } => true,
        Outcome::Planned
        | Outcome::InFlight { .. }
        | Outcome::BackingOff { .. }
        | Outcome::Unknown { .. } => false,
    };
    operation.outcome = Outcome::Applied {
        reply: body.clone(),
        at: turn.now,
    };
    let message = format!(
        "a success of operation {} came after it counted as not applied",
        operation.operation_id
    );
    record.cause = format!("{} applied", step_label(record, index, side));
    record.last_progress_at = turn.now;
    // While cancelling, a late success is one more effect to settle; going forward it is a riddle.
    if contradiction && record.direction == Direction::Forward {
        open_case(
            record,
            CaseReason::Contradiction,
            message,
            body.clone(),
            turn,
        );
    }
    Applied::Changed
}

fn on_refused(
    record: &mut SagaRecord,
    index: usize,
    side: Side,
    (code, message): (&str, &str),
    turn: Turn<'_>,
) -> Applied {
    let operation = operation(record, index, side);
    match operation.outcome {
        Outcome::NotApplied { .. } => return Applied::Nothing(Ignored::Settled),
        Outcome::Applied { .. } => {
            let text = format!(
                "operation {} was applied and is now refused: {code}: {message}",
                operation.operation_id
            );
            open_case(
                record,
                CaseReason::Contradiction,
                text,
                serde_json::Value::Null,
                turn,
            );
            return Applied::Changed;
        }
        Outcome::Planned
        | Outcome::InFlight { .. }
        | Outcome::BackingOff { .. }
        | Outcome::Unknown { .. } => {}
    }
    operation.outcome = Outcome::NotApplied {
        code: code.to_owned(),
        message: message.to_owned(),
        at: turn.now,
    };
    record.cause = format!("{} refused: {code}", step_label(record, index, side));
    record.last_progress_at = turn.now;
    Applied::Changed
}

/// Nothing was done and nothing will be, as things are. A forward operation is given up, which is proof only
/// if no earlier attempt may have arrived; a compensation goes on being tried, as there is no other way out.
fn on_unacceptable(
    record: &mut SagaRecord,
    index: usize,
    side: Side,
    (code, message): (&str, &str),
    turn: Turn<'_>,
) {
    let last = format!("{code}: {message}");
    let operation = operation(record, index, side);
    match (side, &operation.outcome) {
        (
            Side::Forward,
            Outcome::InFlight {
                doubtful: false, ..
            },
        ) => {
            operation.outcome = Outcome::NotApplied {
                code: code.to_owned(),
                message: message.to_owned(),
                at: turn.now,
            };
            record.cause = format!("{} not acceptable: {last}", step_label(record, index, side));
        }
        (Side::Forward, _) => {
            operation.outcome = given_up(true, last.clone(), turn);
            record.cause = format!("{} not acceptable: {last}", step_label(record, index, side));
        }
        (Side::Undo, _) => {
            let at_least = SignedDuration::ZERO;
            fail(
                record,
                index,
                side,
                Failure {
                    doubtful: false,
                    last,
                    at_least,
                },
                turn,
            );
        }
    }
}

/// Notices attempts that were not answered in time and sends what has waited long enough.
///
/// An attempt of another replica that is noticed here has lost its owner, and perhaps its answer with
/// it: the owner itself notices first. It is sent again as at a takeover.
pub(super) fn on_time(record: &mut SagaRecord, turn: Turn<'_>) -> Vec<Command> {
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
pub(super) fn send_again_all(record: &mut SagaRecord, turn: Turn<'_>) -> Vec<Command> {
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
pub(super) fn send_forward(
    record: &mut SagaRecord,
    index: usize,
    turn: Turn<'_>,
) -> Option<Command> {
    send(record, index, Side::Forward, turn)
}

/// Sends the compensation of the step at `index`.
pub(super) fn send_undo(record: &mut SagaRecord, index: usize, turn: Turn<'_>) -> Option<Command> {
    send(record, index, Side::Undo, turn)
}

fn send(record: &mut SagaRecord, index: usize, side: Side, turn: Turn<'_>) -> Option<Command> {
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
    operation.attempts += 1;
    operation.outcome = Outcome::InFlight {
        issued_at,
        deadline,
        tries: tries + 1,
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

/// An attempt came to nothing definite: wait for the next, or settle what is known.
fn fail(record: &mut SagaRecord, index: usize, side: Side, failure: Failure, turn: Turn<'_>) {
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
    let overdue = tries == ALERT_AFTER_ATTEMPTS && policy == Policy::UntilDone;
    record.cause = format!("{label} attempt {tries}: {}", failure.last);
    if overdue && record.case.is_none() {
        record.cause = format!("{CASE_OPENED}: {}", record.cause);
        record.case = Some(Case {
            reason: CaseReason::Overdue,
            message: format!(
                "{label} has been tried {tries} times; it goes on being tried: {}",
                failure.last
            ),
            since: turn.now,
            evidence: serde_json::Value::Null,
        });
    }
}

/// What is known of an operation that is not sent again.
pub(super) fn given_up(doubtful: bool, last: String, turn: Turn<'_>) -> Outcome {
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

fn find(record: &SagaRecord, reply: &Reply) -> Option<(usize, Side)> {
    record.steps.iter().enumerate().find_map(|(index, step)| {
        if step.forward.operation_id == reply.operation_id {
            Some((index, Side::Forward))
        } else if step
            .undo
            .as_ref()
            .is_some_and(|undo| undo.operation_id == reply.operation_id)
        {
            Some((index, Side::Undo))
        } else {
            None
        }
    })
}

fn all(record: &SagaRecord) -> Vec<(usize, Side)> {
    let steps = record.steps.iter().enumerate();
    steps
        .flat_map(|(index, step)| {
            std::iter::once((index, Side::Forward))
                .chain(step.undo.is_some().then_some((index, Side::Undo)))
        })
        .collect()
}

/// The operation on this side; a step found on its undo side has one.
fn operation(record: &mut SagaRecord, index: usize, side: Side) -> &mut Operation {
    let step = &mut record.steps[index];
    match (side, &mut step.undo) {
        (Side::Undo, Some(undo)) => undo,
        (Side::Undo, None) | (Side::Forward, _) => &mut step.forward,
    }
}

fn policy(record: &SagaRecord, index: usize, side: Side) -> Policy {
    match side {
        Side::Forward => record.steps[index].policy,
        Side::Undo => Policy::UntilDone,
    }
}

fn step_label(record: &SagaRecord, index: usize, side: Side) -> String {
    match side {
        Side::Forward => record.steps[index].name.to_string(),
        Side::Undo => format!("undo of {}", record.steps[index].name),
    }
}

fn participant_name(operation: &Operation) -> String {
    match &operation.participant {
        super::record::Participant::Core => "the core".to_owned(),
        super::record::Participant::Region(region) => format!("region {region}"),
    }
}
