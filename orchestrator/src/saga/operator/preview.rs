//! What a request would do: the very same decision, on a copy.

use contracts::audit::OperatorAnswer;
use contracts::intake::OperatorRequest;
use contracts::reply::OperationState;
use serde_json::{Value, json};

use super::money::{Delta, delta};
use super::on_operator;
use crate::saga::action::{Command, Decision};
use crate::saga::input::{Answer, Input, Operator, Reply};
use crate::saga::record::{Direction, Outcome, SagaRecord, Status, StepRecord};
use crate::saga::{Turn, Workflow, decide};

/// What would happen.
#[derive(Debug)]
pub struct Preview {
    /// What the request would be answered.
    pub answer: OperatorAnswer,
    /// The record right after it.
    pub record: SagaRecord,
    /// Commands that leave at once.
    pub commands: Vec<Command>,
    /// Commands in flight that leave once more, under their ids, when a replica other than the saga's owner
    /// decides: it takes the saga over by that.
    pub again: Vec<Command>,
    /// Commands that follow, in this order, when each is applied. Known for a saga that turns back; what a
    /// saga that goes forward asks for depends on the answers.
    pub following: Vec<Command>,
    /// Where the saga ends when all of that is applied.
    pub status: Status,
    /// Money that these commands move.
    pub money: Vec<Delta>,
}

/// A replica that is not the owner, whoever that is.
const ANOTHER: &str = "";

/// Commands followed at most; a saga has a handful of steps.
const FOLLOWED: usize = 1000;

/// Decides a request on a copy of the record. Nothing is stored and nothing leaves.
#[must_use]
pub fn preview(
    workflow: Option<&Workflow>,
    record: &SagaRecord,
    request: &OperatorRequest,
    turn: Turn<'_>,
) -> Preview {
    let operator = Operator {
        message_id: format!("preview:{}", request.digest()),
        request: request.clone(),
    };
    let other = Turn {
        replica: ANOTHER,
        ..turn
    };
    let theirs = on_operator(workflow, record.clone(), operator.clone(), other);
    let (after, commands) = take(on_operator(workflow, record.clone(), operator, turn));
    let mut again = take(theirs).1;
    again.retain(|theirs| {
        let mut ours = commands.iter();
        ours.all(|ours| ours.operation_id != theirs.operation_id)
    });
    let answer = after.by_hand.action(request).map_or_else(
        || OperatorAnswer::Refused {
            why: "this very request was made before; a repeat changes nothing".to_owned(),
        },
        |action| action.answer.clone(),
    );
    // What is assumed below makes nothing certain, so the record right after the request says what is.
    let moved = |command: &Command| delta(&after, command);
    let mut money: Vec<Delta> = commands.iter().filter_map(moved).collect();
    let mut following = Vec::new();
    let mut end = after.clone();
    if let (Some(workflow), Direction::Cancelling { .. }) = (workflow, &after.direction) {
        let mut next = commands.clone();
        while following.len() < FOLLOWED {
            let reply = match next.pop() {
                Some(command) => applied(&end, &command),
                None => match awaited(&end) {
                    Some(reply) => reply,
                    None => break,
                },
            };
            let (record, more) = take(decide(workflow, end, Input::Reply(reply), turn));
            money.extend(more.iter().filter_map(moved));
            following.extend(more.iter().cloned());
            next.extend(more);
            end = record;
        }
    }
    Preview {
        answer,
        commands,
        again,
        following,
        status: end.status,
        money,
        record: after,
    }
}

/// The answer that a command was applied. Whoever is asked what became of a step says that it stands, as only
/// then something is to be undone.
fn applied(record: &SagaRecord, command: &Command) -> Reply {
    let mut questions = record.steps.iter().filter_map(|step| step.status.as_ref());
    let is_question = questions.any(|question| question.operation_id == command.operation_id);
    Reply {
        operation_id: command.operation_id.clone(),
        attempt: command.attempt,
        answer: Answer::Applied(match is_question {
            true => json!({ "state": OperationState::Applied }),
            false => Value::Null,
        }),
    }
}

/// The late answer to a step that has to be known before it is undone, and is not asked about yet.
fn awaited(record: &SagaRecord) -> Option<Reply> {
    let is_out = |step: &&StepRecord| {
        let undo = step.undo.as_ref().map(|undo| &undo.outcome);
        step.forward.outcome.is_pending() && undo == Some(&Outcome::Planned)
    };
    let step = record.steps.iter().rev().find(is_out)?;
    Some(Reply {
        operation_id: step.forward.operation_id.clone(),
        attempt: step.forward.attempts,
        answer: Answer::Applied(Value::Null),
    })
}

fn take(decision: Decision) -> (SagaRecord, Vec<Command>) {
    match decision {
        Decision::Commit(commit) => (commit.record, commit.commands),
        Decision::Ignore(record, _) => (*record, Vec::new()),
    }
}
