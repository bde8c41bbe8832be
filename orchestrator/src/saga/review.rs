//! A person is asked; and after the end, a late answer is compared with what was settled.

use contracts::id::{OperationId, SagaId};
use serde_json::Value;

use super::action::{Decision, Ignored};
use super::input::{Answer, Reply};
use super::record::{Case, CaseReason, Outcome, SagaRecord, Status};
use super::{Turn, finish_revision, new_record, operation, store};

/// A late answer agrees with what was settled, or a person has to look.
pub(super) fn on_late_reply(mut record: SagaRecord, reply: &Reply, turn: Turn<'_>) -> Decision {
    let agrees = match &reply.answer {
        Answer::Applied(_) if is_question(&record, reply) => true,
        Answer::Applied(_) => record.steps.iter().any(|step| {
            let undone = step
                .undo
                .as_ref()
                .is_some_and(|undo| matches!(undo.outcome, Outcome::Applied { .. }));
            if step.forward.operation_id == reply.operation_id {
                let harmless = step.undo.is_none() && !step.pivot;
                (undone && !step.is_forbidden())
                    || harmless
                    || matches!(step.forward.outcome, Outcome::Applied { .. })
            } else {
                undone
                    && step
                        .undo
                        .as_ref()
                        .is_some_and(|undo| undo.operation_id == reply.operation_id)
            }
        }),
        // Nothing was done by that attempt, and nothing rests on it.
        Answer::Refused { .. }
        | Answer::NotExecuted { .. }
        | Answer::HeldBack { .. }
        | Answer::Unacceptable { .. }
        | Answer::Unknown { .. }
        | Answer::Conflict { .. }
        | Answer::Stale { .. } => true,
    };
    if agrees {
        return Decision::Ignore(Box::new(record), Ignored::Settled);
    }
    let message = format!(
        "operation {} was reported applied after the saga ended {}: compare with the participant",
        reply.operation_id, record.status
    );
    // It counts as an effect from now on: when a person cancels, it is settled like any other.
    let applied = operation::on_reply(&mut record, reply, turn);
    debug_assert_eq!(
        applied,
        operation::Applied::Changed,
        "an applied answer that does not agree"
    );
    record.ended_at = None;
    record.case = None;
    open_case(
        &mut record,
        CaseReason::Contradiction,
        message,
        serde_json::json!({ "answer": format!("{:?}", reply.answer) }),
        turn,
    );
    about(&mut record, &reply.operation_id);
    store(record, Vec::new())
}

/// Whether it answers a question, which changes nothing.
fn is_question(record: &SagaRecord, reply: &Reply) -> bool {
    let mut asked = record.steps.iter().filter_map(|step| step.status.as_ref());
    asked.any(|status| status.operation_id == reply.operation_id)
}

/// Opens a case on a saga that cannot go on by itself. The first reason stays.
pub(super) fn open_case(
    record: &mut SagaRecord,
    reason: CaseReason,
    message: String,
    evidence: Value,
    turn: Turn<'_>,
) {
    record.status = Status::NeedsReview;
    record.awaiting.clear();
    // The first reason stays, unless it has only reported what went on.
    let gives_way = |case: &Case| case.reason.only_reports();
    if record.case.as_ref().is_none_or(gives_way) {
        record.cause = format!("{CASE_OPENED}: {message}");
        record.case = Some(Case {
            reason,
            message,
            since: turn.now,
            owner: record.by_hand.last_owner(),
            operation_id: None,
            amount_at_risk: Vec::new(),
            evidence,
        });
    }
}

/// Names the operation that the case is about, unless it names one already.
pub(super) fn about(record: &mut SagaRecord, operation_id: &OperationId) {
    if let Some(case) = &mut record.case {
        case.operation_id
            .get_or_insert_with(|| operation_id.clone());
    }
}

/// A record that is nothing but a case: for messages no saga can take in.
#[must_use]
pub fn case_record(
    saga_id: SagaId,
    reason: CaseReason,
    message: String,
    evidence: Value,
    turn: Turn<'_>,
) -> SagaRecord {
    let mut record = new_record(CASE_WORKFLOW, 1, saga_id, turn);
    open_case(&mut record, reason, message, evidence, turn);
    finish_revision(&mut record);
    record
}

/// How the cause of a revision begins that opened the saga's own case.
pub const CASE_OPENED: &str = "case opened";

/// Workflow name of records made by [`case_record`]; no function runs for them.
pub const CASE_WORKFLOW: &str = "case";
