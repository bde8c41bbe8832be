//! What people and other messages say to a saga that exists.

use contracts::intake::{OperatorRequest, OperatorVerb};

use super::action::{Decision, Ignored, Note, Persist};
use super::input::{Arrival, Cancel, Operator, Signal};
use super::record::{CaseReason, MAX_SIGNAL_BYTES, MAX_SIGNALS, SagaRecord, SignalRecord, Status};
use super::{ArrivalMeaning, Turn, Workflow, advance, operator, store};

pub(super) fn on_arrival(
    workflow: &Workflow,
    mut record: SagaRecord,
    arrival: Arrival,
    turn: Turn<'_>,
) -> Decision {
    if record.seen.contains(&arrival.message_id) {
        return Decision::Ignore(Box::new(record), Ignored::Seen);
    }
    match (workflow.arrival)(&record, &arrival.input) {
        ArrivalMeaning::Duplicate => {
            record.note_seen(&arrival.message_id);
            record.duplicates = record.duplicates.saturating_add(1);
            "repeat of a known fact absorbed".clone_into(&mut record.cause);
            store(record, Vec::new())
        }
        ArrivalMeaning::Review { reason, message } => {
            record.note_seen(&arrival.message_id);
            record.cause = format!("case opened beside the saga: {message}");
            store(
                record,
                vec![Note::OpenCase {
                    reason,
                    message,
                    input: arrival.input,
                }],
            )
        }
        ArrivalMeaning::StartNext => {
            record.note_seen(&arrival.message_id);
            "new fact after the end: taken up by the next generation".clone_into(&mut record.cause);
            let Arrival { message_id, input } = arrival;
            store(record, vec![Note::StartNext { message_id, input }])
        }
        ArrivalMeaning::Late => {
            let signal = Signal {
                id: arrival.message_id.clone(),
                message_id: arrival.message_id,
                name: "late-fact".to_owned(),
                body: arrival.input,
            };
            let notes = take_signal(&mut record, signal, turn);
            "late fact kept".clone_into(&mut record.cause);
            store(record, notes)
        }
        ArrivalMeaning::Signal { name, id } => {
            let signal = Signal {
                message_id: arrival.message_id,
                name: name.to_owned(),
                id,
                body: arrival.input,
            };
            on_signal(workflow, record, signal, turn)
        }
    }
}

pub(super) fn on_signal(
    workflow: &Workflow,
    mut record: SagaRecord,
    signal: Signal,
    turn: Turn<'_>,
) -> Decision {
    if record.seen.contains(&signal.message_id) {
        return Decision::Ignore(Box::new(record), Ignored::Seen);
    }
    let digest = contracts::subject::short_digest(signal.body.to_string().as_bytes());
    if let Some(known) = record.signals.iter().find(|known| known.id == signal.id) {
        let same = known.digest == digest && known.name == signal.name;
        record.note_seen(&signal.message_id);
        if same {
            record.duplicates = record.duplicates.saturating_add(1);
            record.cause = format!("signal {} repeated", signal.id);
            return store(record, Vec::new());
        }
        let message = format!("signal {} came again with another body", signal.id);
        record.cause = format!("case opened beside the saga: {message}");
        let reason = CaseReason::ConflictingFact;
        return store(
            record,
            vec![Note::OpenCase {
                reason,
                message,
                input: signal.body,
            }],
        );
    }
    let cause = format!("signal {} received", signal.name);
    let notes = take_signal(&mut record, signal, turn);
    record.cause = cause;
    let rests = record.status.is_terminal() || record.status == Status::NeedsReview;
    if !notes.is_empty() || rests || !record.is_started() {
        return store(record, notes);
    }
    advance(workflow, record, turn, Vec::new(), Persist::Now)
}

/// Adds a signal to the record. One that no longer fits is kept beside it, so that a storm of signals can
/// neither be lost nor make the record outgrow a message.
fn take_signal(record: &mut SagaRecord, signal: Signal, turn: Turn<'_>) -> Vec<Note> {
    record.note_seen(&signal.message_id);
    record.last_progress_at = turn.now;
    let text = signal.body.to_string();
    let bytes: usize = record
        .signals
        .iter()
        .map(|known| known.body.to_string().len())
        .sum();
    if record.signals.len() >= MAX_SIGNALS || bytes + text.len() > MAX_SIGNAL_BYTES {
        let message = format!(
            "signal {} is one more than the saga's record can hold",
            signal.id
        );
        let reason = CaseReason::OrphanSignal;
        return vec![Note::OpenCase {
            reason,
            message,
            input: signal.body,
        }];
    }
    record.signals.push(SignalRecord {
        digest: contracts::subject::short_digest(text.as_bytes()),
        name: signal.name,
        id: signal.id,
        body: signal.body,
        at: turn.now,
    });
    Vec::new()
}

/// Somebody asks to turn back: the same as an operator's request to cancel.
pub(super) fn on_cancel(
    workflow: &Workflow,
    record: SagaRecord,
    cancel: Cancel,
    turn: Turn<'_>,
) -> Decision {
    let request = as_request(&record, cancel);
    operator::on_operator(Some(workflow), record, request, turn)
}

/// The operator's request that this is; its message names it.
pub(super) fn as_request(record: &SagaRecord, cancel: Cancel) -> Operator {
    Operator {
        request: OperatorRequest {
            saga_id: record.saga_id.clone(),
            id: cancel.message_id.clone(),
            verb: OperatorVerb::Cancel,
            reason: cancel.reason,
            by: cancel.by,
        },
        message_id: cancel.message_id,
    }
}
