//! Time that does not run: what lies ahead comes nearer.

use contracts::audit::OperatorAnswer;
use jiff::{SignedDuration, Timestamp};
use orchestrator::saga::record::{Direction, Outcome, SagaRecord};
use serde_json::Value;

/// The time, always.
pub(super) const NOW: Timestamp = Timestamp::constant(1_893_456_000, 0);

/// How far a wallet's clock may be behind ours.
pub(super) const SKEW_MS: i64 = 5_000;

/// What lies further back than this, in milliseconds, is as far back as this.
const LONG_AGO_MS: i64 = -120_000;

pub(super) fn ms(instant: Timestamp) -> i64 {
    instant.as_millisecond() - NOW.as_millisecond()
}

pub(super) fn at(ms: i64) -> Timestamp {
    NOW.checked_add(SignedDuration::from_millis(ms))
        .unwrap_or(Timestamp::MAX)
}

pub(super) fn moved(instant: Timestamp, by_ms: i64) -> Timestamp {
    at((ms(instant) - by_ms).max(LONG_AGO_MS))
}

/// Lets time pass for a record, and blanks what no decision depends on.
pub(super) fn settle(record: &mut SagaRecord, by_ms: i64) {
    record.cause.clear();
    record.duplicates = 0;
    (record.started_at, record.last_progress_at) = (NOW, NOW);
    record.ended_at = record.ended_at.map(|_| NOW);
    for instant in [
        &mut record.deadline_at,
        &mut record.wake_at,
        &mut record.timer_at,
    ] {
        *instant = instant.map(|instant| moved(instant, by_ms));
    }
    if let Direction::Cancelling { message, since, .. } = &mut record.direction {
        message.clear();
        *since = NOW;
    }
    for signal in &mut record.signals {
        signal.at = NOW;
    }
    for awaiting in &mut record.awaiting {
        awaiting.until = moved(awaiting.until, by_ms);
    }
    for fact in record.facts.values_mut() {
        if let Some(instant) = fact.as_str().and_then(|text| text.parse().ok()) {
            *fact = Value::String(moved(instant, by_ms).to_string());
        } else if let Some(deadline) = fact.get_mut("deadline") {
            *deadline = Value::String(NOW.to_string());
        }
    }
    if let Some(case) = &mut record.case {
        case.message.clear();
        case.evidence = Value::Null;
        case.since = NOW;
    }
    for action in &mut record.by_hand.actions {
        action.at = NOW;
        if let OperatorAnswer::Refused { why } | OperatorAnswer::Proposed { why } =
            &mut action.answer
        {
            why.clear();
        }
    }
    for step in &mut record.steps {
        settle_outcome(&mut step.forward.outcome, by_ms);
        if let Some(undo) = &mut step.undo {
            settle_outcome(&mut undo.outcome, by_ms);
        }
    }
}

fn settle_outcome(outcome: &mut Outcome, by_ms: i64) {
    match outcome {
        Outcome::Planned => {}
        Outcome::InFlight {
            issued_at,
            deadline,
            ..
        } => {
            *issued_at = moved(*issued_at, by_ms);
            *deadline = moved(*deadline, by_ms);
        }
        Outcome::BackingOff {
            issued_at,
            retry_at,
            last,
            ..
        } => {
            *issued_at = moved(*issued_at, by_ms);
            *retry_at = moved(*retry_at, by_ms);
            last.clear();
        }
        Outcome::Applied { at, .. } => *at = NOW,
        Outcome::NotApplied { message, at, .. } => {
            message.clear();
            *at = NOW;
        }
        Outcome::Unknown { since, last } => {
            *since = NOW;
            last.clear();
        }
    }
}
