//! Asking a participant what became of an operation, where its undo must not be sent before that is known.
//!
//! A participant that keeps tombstones settles an unknown operation by its undo alone: the undo offsets it
//! or forbids it. One that does not would take the undo of something it has not seen for done, and
//! execute the late command afterwards. So its own word comes first, and "not found" is no such word: the
//! command may still be on its way.

use contracts::reply::OperationState;
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::sending::{Failure, fail, send};
use super::{Answer, Applied, Side};
use crate::saga::Turn;
use crate::saga::action::{Command, Ignored};
use crate::saga::record::{Operation, Outcome, SagaRecord};

/// What a participant is asked for: the state of one operation. Changes nothing there.
const KIND: &str = "wallet.get";

/// Asks what became of the step at `index`, unless the question is out already.
pub(in crate::saga) fn ask(
    record: &mut SagaRecord,
    index: usize,
    turn: Turn<'_>,
) -> Option<Command> {
    let step = &mut record.steps[index];
    let asked = step
        .status
        .take()
        .filter(|status| status.outcome.is_pending());
    let out = asked.is_some();
    step.status = Some(asked.unwrap_or_else(|| Operation {
        operation_id: step.forward.operation_id.status(),
        participant: step.forward.participant.clone(),
        kind: KIND.to_owned(),
        request: json!({ "operation_id": step.forward.operation_id }),
        digest: String::new(),
        repeatable: true,
        attempts: 0,
        outcome: Outcome::Planned,
    }));
    if out {
        return None;
    }
    send(record, index, Side::Status, turn)
}

/// Takes in what the participant says. Only a state that can no longer become another one settles the step.
pub(super) fn on_answer(
    record: &mut SagaRecord,
    index: usize,
    answer: &Answer,
    current: bool,
    turn: Turn<'_>,
) -> Applied {
    let (last, at_least) = match answer {
        Answer::Applied(body) => match state(body) {
            Some(state) => return settle(record, index, state, body, turn),
            None => (
                "an answer that names no state".to_owned(),
                SignedDuration::ZERO,
            ),
        },
        Answer::NotExecuted { code, retry_after } | Answer::HeldBack { code, retry_after } => {
            (code.clone(), *retry_after)
        }
        Answer::Refused { code, message } | Answer::Unacceptable { code, message } => {
            (format!("{code}: {message}"), SignedDuration::ZERO)
        }
        Answer::Unknown { message } => (message.clone(), SignedDuration::ZERO),
        Answer::Conflict { .. } | Answer::Stale { .. } => {
            ("an answer to no question".to_owned(), SignedDuration::ZERO)
        }
    };
    if !current {
        return Applied::Nothing(Ignored::Settled);
    }
    let failure = Failure {
        doubtful: false,
        last,
        at_least,
    };
    fail(record, index, Side::Status, failure, turn);
    Applied::Changed
}

fn settle(
    record: &mut SagaRecord,
    index: usize,
    state: OperationState,
    body: &Value,
    turn: Turn<'_>,
) -> Applied {
    let step = &mut record.steps[index];
    if let Some(status) = &mut step.status {
        status.outcome = Outcome::Applied {
            reply: body.clone(),
            at: turn.now,
        };
    }
    record.last_progress_at = turn.now;
    record.cause = format!("{} is known: {state:?}", step.name);
    match step.forward.outcome {
        Outcome::Applied { .. } | Outcome::NotApplied { .. } => return Applied::Changed,
        Outcome::Planned
        | Outcome::InFlight { .. }
        | Outcome::BackingOff { .. }
        | Outcome::Unknown { .. } => {}
    }
    step.forward.outcome = match state {
        OperationState::Applied | OperationState::Reverted => Outcome::Applied {
            reply: body.get("reply").cloned().unwrap_or(Value::Null),
            at: turn.now,
        },
        OperationState::Rejected | OperationState::Tombstoned => Outcome::NotApplied {
            code: "by_status".to_owned(),
            message: "the participant says that it was never executed and never will be".to_owned(),
            at: turn.now,
        },
    };
    Applied::Changed
}

fn state(body: &Value) -> Option<OperationState> {
    serde_json::from_value(body.get("state")?.clone()).ok()
}
