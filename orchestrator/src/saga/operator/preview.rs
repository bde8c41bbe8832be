//! What a request would do: the very same decision, on a copy.

use contracts::audit::OperatorAnswer;
use contracts::intake::OperatorRequest;
use serde_json::Value;

use super::money::{Delta, delta};
use super::on_operator;
use crate::saga::action::{Command, Decision};
use crate::saga::input::{Answer, Input, Operator, Reply};
use crate::saga::record::{Direction, SagaRecord, Status};
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
    /// Commands that follow, in this order, when each is applied. Known for a saga that turns back; what a
    /// saga that goes forward asks for depends on the answers.
    pub following: Vec<Command>,
    /// Where the saga ends when all of that is applied.
    pub status: Status,
    /// Money that these commands move.
    pub money: Vec<Delta>,
}

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
    let (after, commands) = take(on_operator(workflow, record.clone(), operator, turn));
    let answer = after.by_hand.action(request).map_or_else(
        || OperatorAnswer::Refused {
            why: "this very request was made before; a repeat changes nothing".to_owned(),
        },
        |action| action.answer.clone(),
    );
    let mut money: Vec<Delta> = commands.iter().filter_map(|c| delta(&after, c)).collect();
    let mut following = Vec::new();
    let mut end = after.clone();
    if let (Some(workflow), Direction::Cancelling { .. }) = (workflow, &after.direction) {
        let mut next = commands.clone();
        while let Some(command) = next.pop().filter(|_| following.len() < FOLLOWED) {
            let reply = Input::Reply(Reply {
                operation_id: command.operation_id,
                attempt: command.attempt,
                answer: Answer::Applied(Value::Null),
            });
            let (record, more) = take(decide(workflow, end, reply, turn));
            money.extend(more.iter().filter_map(|command| delta(&record, command)));
            following.extend(more.iter().cloned());
            next.extend(more);
            end = record;
        }
    }
    Preview {
        answer,
        commands,
        following,
        status: end.status,
        money,
        record: after,
    }
}

fn take(decision: Decision) -> (SagaRecord, Vec<Command>) {
    match decision {
        Decision::Commit(commit) => (commit.record, commit.commands),
        Decision::Ignore(record, _) => (*record, Vec::new()),
    }
}
