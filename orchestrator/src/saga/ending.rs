//! The end of a saga, and what must not end with it.

use contracts::id::SagaId;

use super::action::Note;
use super::record::{SagaRecord, Status};
use super::{ArrivalMeaning, Turn, Workflow};

/// Ends the saga. The caller has seen to it that nothing issued can still have an effect.
pub(super) fn finish(record: &mut SagaRecord, status: Status, turn: Turn<'_>) {
    record.status = status;
    record.ended_at = Some(turn.now);
    record.last_progress_at = turn.now;
    record.awaiting.clear();
    record.case = None;
    status.as_str().clone_into(&mut record.cause);
}

/// What was said to a saga, was not taken up by it and must not be lost with its end.
pub(super) fn left_over(workflow: &Workflow, record: &SagaRecord) -> Vec<Note> {
    record
        .signals
        .iter()
        .filter(|signal| !record.is_consumed(&signal.id))
        .filter(|signal| (workflow.arrival)(record, &signal.body) == ArrivalMeaning::StartNext)
        .map(|signal| Note::StartNext {
            message_id: signal.id.clone(),
            input: signal.body.clone(),
        })
        .collect()
}

/// What stands between a saga's id and the number of its generation.
const PREFIX: &str = "/again:";

/// The saga that takes up what came after this one had ended.
#[must_use]
pub fn next_generation(saga_id: &SagaId) -> SagaId {
    let (base, number) = generation(saga_id);
    // Both parts are printable already, so this is an id whenever the first one was.
    SagaId::new(format!("{base}{PREFIX}{}", number.saturating_add(1)))
        .unwrap_or_else(|_| saga_id.clone())
}

/// The sagas that this one follows, the latest first; none for a first generation. At most 64.
#[must_use]
pub fn earlier_generations(saga_id: &SagaId) -> Vec<SagaId> {
    let (base, number) = generation(saga_id);
    (1..number)
        .rev()
        .take(64)
        .filter_map(|number| match number {
            1 => SagaId::new(base).ok(),
            number => SagaId::new(format!("{base}{PREFIX}{number}")).ok(),
        })
        .collect()
}

fn generation(saga_id: &SagaId) -> (&str, u32) {
    let text = saga_id.as_str();
    text.rsplit_once(PREFIX)
        .and_then(|(base, number)| Some((base, number.parse::<u32>().ok()?)))
        .unwrap_or((text, 1))
}
