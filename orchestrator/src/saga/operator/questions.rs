//! Which operations have no certain outcome.

use contracts::id::OperationId;
use jiff::Timestamp;

use crate::saga::operation::{Side, all};
use crate::saga::policy::Policy;
use crate::saga::record::{
    Case, CaseReason, Direction, Operation, Outcome, SagaRecord, Status, StepRecord,
};

/// An operation that a person may say something about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenOperation {
    /// Its id.
    pub operation_id: OperationId,
    /// The step it belongs to; `undo of …` for a compensation.
    pub step: String,
    /// Whether it may be said not to have been applied: not of a refusal, which is certain.
    pub may_be_not_applied: bool,
}

/// The operations whose outcome is not certain and of which no answer is awaited any more.
#[must_use]
pub fn open_operations(record: &SagaRecord, now: Timestamp) -> Vec<OpenOperation> {
    open(record, now)
        .into_iter()
        .filter_map(|(index, side)| {
            let step = &record.steps[index];
            let operation = on(step, side)?;
            let step = match side == Side::Undo {
                true => format!("undo of {}", step.name),
                false => step.name.to_string(),
            };
            Some(OpenOperation {
                operation_id: operation.operation_id.clone(),
                step,
                may_be_not_applied: !is_refused_forward(record, index, side),
            })
        })
        .collect()
}

/// As [`open_operations`], by their place.
pub(super) fn open(record: &SagaRecord, now: Timestamp) -> Vec<(usize, Side)> {
    all(record)
        .into_iter()
        .filter(|&(index, side)| is_open(record, index, side, now))
        .collect()
}

/// Those of them that may be sent again. What has turned back is not done again: its undo settles it.
pub(super) fn askable(record: &SagaRecord, now: Timestamp) -> Vec<(usize, Side)> {
    let wanted = if record.direction == Direction::Forward {
        Side::Forward
    } else {
        Side::Undo
    };
    open(record, now)
        .into_iter()
        .filter(|&(index, side)| side == wanted && !is_refused_forward(record, index, side))
        .collect()
}

/// The operation of a step on one of its sides.
pub(super) fn on(step: &StepRecord, side: Side) -> Option<&Operation> {
    if side == Side::Forward {
        Some(&step.forward)
    } else if side == Side::Undo {
        step.undo.as_ref()
    } else {
        None
    }
}

fn is_open(record: &SagaRecord, index: usize, side: Side, now: Timestamp) -> bool {
    let step = &record.steps[index];
    let Some(operation) = on(step, side) else {
        return false;
    };
    if side == Side::Forward && is_settled_by_undo(step) {
        return false;
    }
    match &operation.outcome {
        Outcome::Unknown { .. } | Outcome::BackingOff { .. } => true,
        Outcome::InFlight { deadline, .. } => *deadline <= now,
        Outcome::Applied { .. } | Outcome::NotApplied { .. } => {
            is_contested(record, operation)
                || is_refused_forward(record, index, side)
                || side == Side::Undo && is_done_although_forbidden(step)
        }
        Outcome::Planned => false,
    }
}

/// Once its compensation has been sent, that is what settles the step.
fn is_settled_by_undo(step: &StepRecord) -> bool {
    step.undo
        .as_ref()
        .is_some_and(|undo| undo.outcome != Outcome::Planned)
}

/// Its undo has offset nothing, and it was done all the same.
pub(super) fn is_done_although_forbidden(step: &StepRecord) -> bool {
    step.is_forbidden() && matches!(step.forward.outcome, Outcome::Applied { .. })
}

/// The case is about what this operation came to.
fn is_contested(record: &SagaRecord, operation: &Operation) -> bool {
    let is_about = |case: &Case| match case.reason {
        CaseReason::Contradiction
        | CaseReason::OperationConflict
        | CaseReason::CompensationRefused => {
            case.operation_id.as_ref() == Some(&operation.operation_id)
        }
        CaseReason::Unreadable
        | CaseReason::ConflictingFact
        | CaseReason::AmountGuard
        | CaseReason::Nondeterministic
        | CaseReason::Poison
        | CaseReason::UnreadableReply
        | CaseReason::RefusedAfterPivot
        | CaseReason::Overdue
        | CaseReason::DeadlinePassed
        | CaseReason::OrphanSignal
        | CaseReason::Reversal => false,
    };
    record.status == Status::NeedsReview && record.case.as_ref().is_some_and(is_about)
}

/// A step after the pivot that was refused: what it was to do, a person may have done instead.
fn is_refused_forward(record: &SagaRecord, index: usize, side: Side) -> bool {
    let step = &record.steps[index];
    side == Side::Forward
        && record.status == Status::NeedsReview
        && record.direction == Direction::Forward
        && step.policy == Policy::UntilDone
        && matches!(step.forward.outcome, Outcome::NotApplied { .. })
        && record
            .case
            .as_ref()
            .is_some_and(|case| case.reason == CaseReason::RefusedAfterPivot)
}
