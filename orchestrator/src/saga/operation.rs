//! One operation and what happens to it: the second table in [`super`].

mod again;
mod sending;
mod status;

use jiff::SignedDuration;

use super::Turn;
use super::action::Ignored;
use super::input::{Answer, Reply};
use super::policy::Policy;
use super::record::{CONFLICT, CaseReason, Direction, Operation, Outcome, SagaRecord, StepRecord};
use super::review::{about, open_case};
pub(super) use again::{ask_again, release, send_now};
use sending::{Failure, fail, hold_back};
pub(super) use sending::{given_up, on_time, send_again_all, send_forward, send_undo};
pub(super) use status::ask;

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
pub(super) enum Side {
    Forward,
    Undo,
    Status,
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
    if let Answer::HeldBack { code, retry_after } = &reply.answer {
        if !current {
            return Applied::Nothing(Ignored::Settled);
        }
        hold_back(record, index, side, (code, *retry_after), turn);
        return Applied::Changed;
    }
    if side == Side::Status {
        return status::on_answer(record, index, &reply.answer, current, turn);
    }
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
                last: CONFLICT.to_owned(),
            };
            open_case(
                record,
                CaseReason::OperationConflict,
                message,
                serde_json::Value::Null,
                turn,
            );
            about(record, &reply.operation_id);
            Applied::Changed
        }
        // Taken in above.
        Answer::HeldBack { .. } => Applied::Nothing(Ignored::Settled),
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
            record.raise_epoch_above(*seen_fence);
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
    let operation_id = operation.operation_id.clone();
    let message =
        format!("a success of operation {operation_id} came after it counted as not applied");
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
        about(record, &operation_id);
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
            let operation_id = operation.operation_id.clone();
            let text = format!(
                "operation {operation_id} was applied and is now refused: {code}: {message}"
            );
            open_case(
                record,
                CaseReason::Contradiction,
                text,
                serde_json::Value::Null,
                turn,
            );
            about(record, &operation_id);
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
        (Side::Undo | Side::Status, _) => {
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

fn find(record: &SagaRecord, reply: &Reply) -> Option<(usize, Side)> {
    record.steps.iter().enumerate().find_map(|(index, step)| {
        sides(step)
            .find(|(_, operation)| operation.operation_id == reply.operation_id)
            .map(|(side, _)| (index, side))
    })
}

fn sides(step: &StepRecord) -> impl Iterator<Item = (Side, &Operation)> {
    let undo = step.undo.as_ref().map(|undo| (Side::Undo, undo));
    let status = step.status.as_ref().map(|status| (Side::Status, status));
    std::iter::once((Side::Forward, &step.forward))
        .chain(undo)
        .chain(status)
}

pub(super) fn all(record: &SagaRecord) -> Vec<(usize, Side)> {
    let steps = record.steps.iter().enumerate();
    steps
        .flat_map(|(index, step)| sides(step).map(move |(side, _)| (index, side)))
        .collect()
}

/// The operation on this side; a step found on one of its sides has it.
pub(super) fn operation(record: &mut SagaRecord, index: usize, side: Side) -> &mut Operation {
    let step = &mut record.steps[index];
    match (side, &mut step.undo, &mut step.status) {
        (Side::Undo, Some(undo), _) => undo,
        (Side::Status, _, Some(status)) => status,
        (Side::Undo, None, _) | (Side::Status, _, None) | (Side::Forward, _, _) => {
            &mut step.forward
        }
    }
}

fn policy(record: &SagaRecord, index: usize, side: Side) -> Policy {
    match side {
        Side::Forward => record.steps[index].policy,
        Side::Undo | Side::Status => Policy::UntilDone,
    }
}

fn step_label(record: &SagaRecord, index: usize, side: Side) -> String {
    match side {
        Side::Forward => record.steps[index].name.to_string(),
        Side::Undo => format!("undo of {}", record.steps[index].name),
        Side::Status => format!("status of {}", record.steps[index].name),
    }
}

fn participant_name(operation: &Operation) -> String {
    match &operation.participant {
        super::record::Participant::Core => "the core".to_owned(),
        super::record::Participant::Region(region) => format!("region {region}"),
    }
}
