//! What a saga waits for, in one sentence.

use super::moment::{both, instant};
use crate::saga::CASE_WORKFLOW;
use crate::saga::record::{
    CaseReason, Direction, Operation, Outcome, Participant, SagaRecord, Status, StepRecord,
};
use jiff::Timestamp;

/// What the saga waits for and until when; for a case, what is the matter and what a person can do.
pub(super) fn sentence(record: &SagaRecord, now: Timestamp) -> String {
    if let Some(held) = &record.by_hand.held {
        return format!(
            "is held since {} by {}: {}; nothing is sent until: orchestrator saga release {} --reason TEXT",
            instant(held.since),
            held.by,
            held.reason,
            pasteable(record.saga_id.as_str())
        );
    }
    match record.status {
        Status::Running => running(record, now),
        Status::Waiting => waiting(record, now),
        Status::Compensating => compensating(record, now),
        Status::NeedsReview => needs_review(record),
        Status::Completed => ended(record, "everything was done and its event is in the log"),
        Status::Compensated => ended(record, "each of its effects was offset"),
        Status::Cancelled => ended(record, "it was turned back before it had any effect"),
        Status::Failed => ended(record, "it was refused before it had any effect"),
    }
}

fn running(record: &SagaRecord, now: Timestamp) -> String {
    let forward = record.steps.iter().map(|step| (step, &step.forward));
    let mut text = match pending(forward) {
        Some((step, operation)) => operation_sentence(step.name.as_str(), operation, now),
        None => "is about to take its next step".to_owned(),
    };
    text.push_str(&turns_back(record, now));
    text
}

fn waiting(record: &SagaRecord, now: Timestamp) -> String {
    if !record.is_started() {
        let until = record
            .deadline_at
            .map_or_else(String::new, |until| format!(" until {}", both(until, now)));
        return format!("is not started yet; what was said to it is kept{until}");
    }
    let each: Vec<String> = record
        .awaiting
        .iter()
        .map(|awaiting| match awaiting.signals.as_slice() {
            [] => format!("sleeps until {}", both(awaiting.until, now)),
            [signal] => format!(
                "waits for signal {signal} until {}",
                both(awaiting.until, now)
            ),
            signals => format!(
                "waits for any of the signals {} until {}",
                signals.join(", "),
                both(awaiting.until, now)
            ),
        })
        .collect();
    let mut text = if each.is_empty() {
        "waits for nothing that is recorded".to_owned()
    } else {
        each.join(", and ")
    };
    // A wait that lasts up to the deadline says both.
    let until = record.awaiting.iter().map(|awaiting| awaiting.until).min();
    let earlier =
        |deadline: Timestamp| until.is_some_and(|until| instant(deadline) < instant(until));
    if record.deadline_at.is_some_and(earlier) {
        text.push_str(&turns_back(record, now));
    }
    text
}

fn compensating(record: &SagaRecord, now: Timestamp) -> String {
    let undo = record
        .steps
        .iter()
        .rev()
        .filter_map(|step| Some((step, step.undo.as_ref()?)));
    let what = match pending(undo) {
        Some((step, operation)) => {
            operation_sentence(&format!("compensation of {}", step.name), operation, now)
        }
        None => {
            let forward = record.steps.iter().map(|step| (step, &step.forward));
            match pending(forward) {
                Some((step, operation)) => operation_sentence(step.name.as_str(), operation, now),
                None => "is about to settle its next effect".to_owned(),
            }
        }
    };
    format!("{what}; {}", turned(record))
}

fn needs_review(record: &SagaRecord) -> String {
    let Some(case) = &record.case else {
        return "waits for a person, and no reason is recorded".to_owned();
    };
    let mut text = format!(
        "waits for a person since {}: {}: {}; {}",
        instant(case.since),
        reason(case.reason),
        case.message,
        advice(case.reason)
    );
    if record.workflow != CASE_WORKFLOW
        && record.direction == Direction::Forward
        && !record.is_past_pivot()
    {
        text.push_str(&format!(
            ", or turn it back: orchestrator saga cancel {} --reason TEXT",
            pasteable(record.saga_id.as_str())
        ));
    }
    text.push_str(&format!(
        "; all that can be done: orchestrator case show {}",
        pasteable(record.saga_id.as_str())
    ));
    text
}

fn ended(record: &SagaRecord, what: &str) -> String {
    let at = record
        .ended_at
        .map_or_else(String::new, |at| format!(" at {}", instant(at)));
    match &record.direction {
        Direction::Forward => format!("ended{at}: {what}"),
        Direction::Cancelling { message, .. } => format!("ended{at}: {what}; {message}"),
    }
}

/// The first operation that an answer is expected of, one in flight before one that backs off.
fn pending<'a>(
    operations: impl Iterator<Item = (&'a StepRecord, &'a Operation)>,
) -> Option<(&'a StepRecord, &'a Operation)> {
    let in_flight = |outcome: &Outcome| matches!(outcome, Outcome::InFlight { .. });
    operations
        .filter(|(_, operation)| operation.outcome.is_pending())
        .min_by_key(|(_, operation)| !in_flight(&operation.outcome))
}

fn operation_sentence(name: &str, operation: &Operation, now: Timestamp) -> String {
    let who = participant(&operation.participant);
    match &operation.outcome {
        Outcome::InFlight { deadline, .. } => format!(
            "waits for {who} to answer {name}, attempt {}, until {}",
            operation.attempts,
            both(*deadline, now)
        ),
        Outcome::BackingOff { retry_at, last, .. } => format!(
            "tries {name} at {who} again at {}, after {} ({last})",
            both(*retry_at, now),
            attempts(operation.attempts)
        ),
        Outcome::Planned
        | Outcome::Applied { .. }
        | Outcome::NotApplied { .. }
        | Outcome::Unknown { .. } => format!("has nothing pending for {name}"),
    }
}

fn turns_back(record: &SagaRecord, now: Timestamp) -> String {
    match (&record.direction, record.deadline_at) {
        (Direction::Forward, Some(deadline)) if !record.is_past_pivot() => {
            format!("; turns back unless done by {}", both(deadline, now))
        }
        (Direction::Forward | Direction::Cancelling { .. }, _) => String::new(),
    }
}

/// Why it turned back, when it did.
pub(super) fn turned(record: &SagaRecord) -> String {
    match &record.direction {
        Direction::Forward => "forward".to_owned(),
        Direction::Cancelling { message, since, .. } => {
            format!("turned back at {}: {message}", instant(*since))
        }
    }
}

/// A participant by name.
pub(super) fn participant(participant: &Participant) -> String {
    match participant {
        Participant::Core => "the core".to_owned(),
        Participant::Region(region) => format!("region {region}"),
    }
}

fn attempts(count: u32) -> String {
    match count {
        1 => "1 attempt".to_owned(),
        count => format!("{count} attempts"),
    }
}

/// A kind of case as stored.
pub(super) fn reason(reason: CaseReason) -> &'static str {
    match reason {
        CaseReason::Unreadable => "unreadable",
        CaseReason::ConflictingFact => "conflicting_fact",
        CaseReason::AmountGuard => "amount_guard",
        CaseReason::Nondeterministic => "nondeterministic",
        CaseReason::Poison => "poison",
        CaseReason::UnreadableReply => "unreadable_reply",
        CaseReason::RefusedAfterPivot => "refused_after_pivot",
        CaseReason::CompensationRefused => "compensation_refused",
        CaseReason::Overdue => "overdue",
        CaseReason::Contradiction => "contradiction",
        CaseReason::OperationConflict => "operation_conflict",
        CaseReason::DeadlinePassed => "deadline_passed",
        CaseReason::OrphanSignal => "orphan_signal",
        CaseReason::Reversal => "reversal",
    }
}

fn advice(reason: CaseReason) -> &'static str {
    match reason {
        CaseReason::Unreadable => {
            "read the message in the evidence, mend its sender or the [providers] section, and have it sent again"
        }
        CaseReason::ConflictingFact => {
            "compare both facts with the provider; nothing moves for the second one"
        }
        CaseReason::AmountGuard => "compare the sums with the provider and decide by hand",
        CaseReason::Nondeterministic => {
            "deploy the version of the workflow that the saga was started with"
        }
        CaseReason::Poison => "mend the workflow or the record; other sagas are not affected",
        CaseReason::UnreadableReply => {
            "deploy a workflow that reads what the participant answers, then retry-now"
        }
        CaseReason::RefusedAfterPivot => {
            "the money has moved: compensate, or do by hand what was refused and resolve"
        }
        CaseReason::CompensationRefused => {
            "mend what the participant refuses it for and retry-now, or offset it by hand and resolve"
        }
        CaseReason::Overdue => {
            "mend the participant or the way to it; the compensation goes on being tried"
        }
        CaseReason::Contradiction => {
            "compare the operation with its participant's books, then recheck or resolve"
        }
        CaseReason::OperationConflict => {
            "look at both sets of parameters: somebody used this operation id for something else"
        }
        CaseReason::DeadlinePassed => {
            "mend the participant or the way to it; the step goes on being tried"
        }
        CaseReason::OrphanSignal => "check the saga id, or start the saga and send it again",
        CaseReason::Reversal => "decide by hand: no workflow takes money back yet",
    }
}

/// An id as one word of a shell.
pub(super) fn pasteable(id: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.:~@+-/%=".contains(&byte);
    if id.bytes().all(plain) {
        id.to_owned()
    } else {
        format!("'{}'", id.replace('\'', "'\\''"))
    }
}
