//! Going back: each effect that exists, or may exist, is settled, newest first.

use contracts::id::OperationId;

use super::action::{Command, Event};
use super::ending::finish;
use super::record::{
    CaseReason, Direction, Outcome, Participant, SagaRecord, Status, StepRecord, TurnReason,
};
use super::review::{about, open_case};
use super::{Advance, Turn, Workflow, operation};

/// Turns a saga back. It never turns again.
pub(super) fn turn_back(
    record: &mut SagaRecord,
    reason: TurnReason,
    message: String,
    turn: Turn<'_>,
) {
    record.cause = format!("turned back: {message}");
    record.direction = Direction::Cancelling {
        reason,
        message,
        since: turn.now,
    };
    record.status = Status::Compensating;
    record.case = None;
    record.awaiting.clear();
    for step in &mut record.steps {
        if let Outcome::BackingOff { doubtful, last, .. } = &step.forward.outcome {
            step.forward.outcome = operation::given_up(*doubtful, last.clone(), turn);
        }
    }
}

/// A person asks again: what a participant has refused to undo, for want of funds say, is tried anew.
pub(super) fn try_refused_again(record: &mut SagaRecord) {
    for undo in record
        .steps
        .iter_mut()
        .filter_map(|step| step.undo.as_mut())
    {
        match undo.outcome {
            Outcome::NotApplied { .. } | Outcome::Unknown { .. } => undo.outcome = Outcome::Planned,
            Outcome::Planned
            | Outcome::InFlight { .. }
            | Outcome::BackingOff { .. }
            | Outcome::Applied { .. } => {}
        }
    }
}

/// Nothing more is settled until a person has looked at the operation.
fn blocked(
    record: &mut SagaRecord,
    reason: CaseReason,
    operation_id: &OperationId,
    message: String,
    turn: Turn<'_>,
) -> Advance {
    open_case(record, reason, message, serde_json::Value::Null, turn);
    about(record, operation_id);
    Advance::Rest
}

/// Whether the participant must say what became of the step before its undo may be sent.
fn must_be_known(step: &StepRecord, turn: Turn<'_>) -> bool {
    let Participant::Region(region) = &step.forward.participant else {
        return false;
    };
    !turn.rules.capabilities_of(region).tombstone && !is_done(step)
}

fn is_done(step: &StepRecord) -> bool {
    matches!(step.forward.outcome, Outcome::Applied { .. })
}

/// Waits for the answer to the step itself while one may come, and then asks.
fn know_first(record: &mut SagaRecord, index: usize, turn: Turn<'_>) -> Option<Command> {
    if record.steps[index].forward.outcome.is_pending() {
        return None;
    }
    operation::ask(record, index, turn)
}

/// Settles the newest effect that is not settled, or ends the saga when there is none left.
pub(super) fn advance(
    workflow: &Workflow,
    record: &mut SagaRecord,
    turn: Turn<'_>,
    commands: &mut Vec<Command>,
    events: &mut Vec<Event>,
) -> Advance {
    let Direction::Cancelling { reason, .. } = record.direction else {
        return Advance::Again;
    };
    // What participants say contradicts itself, or the record: nothing more is settled, and nothing ends, until
    // a person has compared them.
    let riddle = |reason| match reason {
        CaseReason::Contradiction | CaseReason::OperationConflict => true,
        CaseReason::Unreadable
        | CaseReason::ConflictingFact
        | CaseReason::AmountGuard
        | CaseReason::Nondeterministic
        | CaseReason::Poison
        | CaseReason::RefusedAfterPivot
        | CaseReason::CompensationRefused
        | CaseReason::Overdue
        | CaseReason::DeadlinePassed
        | CaseReason::OrphanSignal
        | CaseReason::Reversal
        | CaseReason::UnreadableReply => false,
    };
    if record.case.as_ref().is_some_and(|case| riddle(case.reason)) {
        return Advance::Rest;
    }
    record.status = Status::Compensating;
    for index in (0..record.steps.len()).rev() {
        let step = &record.steps[index];
        // An undo that is out is waited for, even when the step is refused meanwhile: its answer belongs to
        // this saga, and must not find it ended.
        let undo = step.undo.as_ref();
        let undo_is_out = undo.is_some_and(|undo| undo.outcome.is_pending());
        if !step.forward.outcome.may_have_effect() && !undo_is_out {
            continue;
        }
        let Some(undo) = &step.undo else {
            // A step without an undo has nothing to settle, unless it is the one that moves money.
            if step.pivot {
                let id = step.forward.operation_id.clone();
                let message = format!(
                    "step {} may have moved money and has no compensation",
                    step.name
                );
                return blocked(record, CaseReason::CompensationRefused, &id, message, turn);
            }
            continue;
        };
        let id = undo.operation_id.clone();
        match &undo.outcome {
            Outcome::Applied { .. } if is_done(step) && step.is_forbidden() => {
                let message = format!(
                    "step {} was forbidden and is reported as done all the same: compare with the participant, \
                     offset it there by hand and say so",
                    step.name
                );
                return blocked(record, CaseReason::Contradiction, &id, message, turn);
            }
            Outcome::Applied { .. } if !step.is_settled_by_hand() && step.offset_another() => {
                let message = format!(
                    "the undo of step {} has offset another movement than the step's: put that right by hand, \
                     and say what became of the step",
                    step.name
                );
                let id = step.forward.operation_id.clone();
                return blocked(record, CaseReason::Contradiction, &id, message, turn);
            }
            Outcome::Applied { .. } => {}
            Outcome::Planned if step.is_taken() => {
                let message = format!(
                    "the participant knows operation {} as something else, which the undo of step {} would offset: \
                     compare, and say whether the step was applied",
                    step.forward.operation_id, step.name
                );
                let id = step.forward.operation_id.clone();
                return blocked(record, CaseReason::OperationConflict, &id, message, turn);
            }
            Outcome::Planned => {
                commands.extend(if must_be_known(step, turn) {
                    know_first(record, index, turn)
                } else {
                    operation::send_undo(record, index, turn)
                });
                return Advance::Rest;
            }
            Outcome::InFlight { .. } | Outcome::BackingOff { .. } => return Advance::Rest,
            Outcome::NotApplied { code, message, .. } => {
                let message = format!(
                    "the compensation of step {} was refused: {code}: {message}",
                    step.name
                );
                return blocked(record, CaseReason::CompensationRefused, &id, message, turn);
            }
            Outcome::Unknown { last, .. } => {
                let message = format!(
                    "the compensation of step {} has no outcome: {last}",
                    step.name
                );
                return blocked(record, CaseReason::CompensationRefused, &id, message, turn);
            }
        }
    }
    let undone = record.steps.iter().filter_map(|step| step.undo.as_ref());
    let status = if undone
        .into_iter()
        .any(|undo| matches!(undo.outcome, Outcome::Applied { .. }))
    {
        Status::Compensated
    } else {
        match reason {
            TurnReason::CancelRequested | TurnReason::TimedOut => Status::Cancelled,
            TurnReason::StepRefused
            | TurnReason::StepUnreachable
            | TurnReason::OutcomeUnknown
            | TurnReason::Refused => Status::Failed,
        }
    };
    finish(record, status, turn);
    tell(workflow, record, events);
    Advance::Rest
}

/// Tells others once, however often a person has opened the saga again.
fn tell(workflow: &Workflow, record: &mut SagaRecord, events: &mut Vec<Event>) {
    let event = (workflow.turned_back)(record);
    let new = event.filter(|event| !record.events.iter().any(|told| told == event.name));
    record
        .events
        .extend(new.iter().map(|event| event.name.to_owned()));
    events.extend(new);
}
