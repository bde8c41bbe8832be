//! What is said to a saga before it exists: kept in a record that waits for the start.
//!
//! Messages overtake each other, and whoever confirms a payment may be faster than whoever announces it. The
//! record has version 0 until the start comes and gives it the workflow's version. A start that does
//! not come in time is a case, and is still taken up when it comes after all.

use contracts::id::SagaId;
use contracts::intake::OperatorVerb;
use jiff::SignedDuration;
use serde_json::Value;

use super::action::{Decision, Ignored};
use super::input::{Arrival, Input};
use super::policy::after;
use super::record::{CaseReason, Direction, NOT_STARTED, SagaRecord, Status};
use super::review::open_case;
use super::{
    Turn, Workflow, advance, begin, compensation, ending, forward, new_record, operator, signal,
    store,
};

/// How long a start is waited for before a person is asked.
const START_WITHIN: SignedDuration = SignedDuration::from_hours(1);

/// The workflow's label of a saga that has not been started.
const PHASE: &str = "not-started";

/// Keeps what was said to a saga that has no record, when it is a signal or a request to cancel; anything
/// else needs a saga.
#[must_use]
pub fn expect(
    workflow: &Workflow,
    saga_id: SagaId,
    input: Input,
    turn: Turn<'_>,
) -> Option<Decision> {
    match &input {
        Input::Signal(_) | Input::Cancel(_) => {}
        Input::Operator(operator) if operator.request.verb == OperatorVerb::Cancel => {}
        Input::Operator(_) => return None,
        Input::Arrival(_) | Input::Reply(_) | Input::Timer | Input::Resume => return None,
    }
    let mut record = new_record(workflow.name, NOT_STARTED, saga_id, turn);
    record.status = Status::Waiting;
    record.phase = Some(PHASE.to_owned());
    record.deadline_at = Some(after(turn.now, START_WITHIN));
    Some(decide(workflow, record, input, turn))
}

/// Decides on a saga that has not been started.
pub(super) fn decide(
    workflow: &Workflow,
    record: SagaRecord,
    input: Input,
    turn: Turn<'_>,
) -> Decision {
    match input {
        Input::Arrival(arrival) => on_start(workflow, record, arrival, turn),
        Input::Signal(signal) => signal::on_signal(workflow, record, signal, turn),
        Input::Cancel(cancel) => signal::on_cancel(workflow, record, cancel, turn),
        Input::Operator(operator) => operator::on_operator(Some(workflow), record, operator, turn),
        Input::Timer => on_timer(record, turn),
        // This record has issued nothing: what another replica sent without storing it is settled at the start.
        Input::Reply(_) | Input::Resume => Decision::Ignore(Box::new(record), Ignored::Settled),
    }
}

/// The start has come: the saga begins now, with what was said to it before.
fn on_start(
    workflow: &Workflow,
    mut record: SagaRecord,
    arrival: Arrival,
    turn: Turn<'_>,
) -> Decision {
    if record.seen.contains(&arrival.message_id) {
        return Decision::Ignore(Box::new(record), Ignored::Seen);
    }
    begin(&mut record, workflow, arrival, turn);
    if let Direction::Cancelling { message, .. } = &record.direction {
        record.cause = format!("started, to be turned back at once: {message}");
        record.status = Status::Compensating;
        forward::note_unstored(workflow, &mut record, turn);
    }
    advance(workflow, record, turn, Vec::new(), super::Persist::Now)
}

fn on_timer(mut record: SagaRecord, turn: Turn<'_>) -> Decision {
    if record.next_due().is_none_or(|due| due > turn.now) {
        return Decision::Ignore(Box::new(record), Ignored::NothingDue);
    }
    record.deadline_at = None;
    if record.direction == Direction::Forward {
        let message = format!(
            "something was said to saga {} and it has not been started since: check the id, or start it",
            record.saga_id
        );
        open_case(
            &mut record,
            CaseReason::OrphanSignal,
            message,
            Value::Null,
            turn,
        );
    } else {
        ending::finish(&mut record, Status::Cancelled, turn);
    }
    store(record, Vec::new())
}

/// A request to cancel what has not begun: it is turned back as soon as it begins, or has ended when the
/// start did not come in time.
pub(super) fn cancel(mut record: SagaRecord, message: String, turn: Turn<'_>) -> Decision {
    if record.direction == Direction::Forward {
        compensation::turn_back(
            &mut record,
            super::record::TurnReason::CancelRequested,
            message,
            turn,
        );
    }
    match record.deadline_at {
        Some(_) => record.status = Status::Waiting,
        None => ending::finish(&mut record, Status::Cancelled, turn),
    }
    store(record, Vec::new())
}
