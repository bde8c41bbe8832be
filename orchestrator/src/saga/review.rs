//! After the end: a late answer is compared with what was settled.

use super::action::{Decision, Ignored};
use super::input::{Answer, Reply};
use super::record::{CaseReason, Outcome, SagaRecord};
use super::{Turn, open_case, store};

/// A late answer agrees with what was settled, or a person has to look.
pub(super) fn on_late_reply(mut record: SagaRecord, reply: &Reply, turn: Turn<'_>) -> Decision {
    let agrees = match &reply.answer {
        Answer::Applied(_) => record.steps.iter().any(|step| {
            let undone = step
                .undo
                .as_ref()
                .is_some_and(|undo| matches!(undo.outcome, Outcome::Applied { .. }));
            if step.forward.operation_id == reply.operation_id {
                let harmless = step.undo.is_none() && !step.pivot;
                undone || harmless || matches!(step.forward.outcome, Outcome::Applied { .. })
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
    open_case(
        &mut record,
        CaseReason::Contradiction,
        message,
        serde_json::json!({ "answer": format!("{:?}", reply.answer) }),
        turn,
    );
    store(record, Vec::new())
}
