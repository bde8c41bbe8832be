//! One saga for a person: who it is, what has happened, what it waits for.

use jiff::Timestamp;

use crate::cli::case::actions;
use crate::cli::moment::{both, instant};
use crate::cli::output::{clean, table};
use crate::cli::records::Revision;
use crate::cli::waiting::{participant, sentence, turned};
use crate::saga::record::{Operation, Outcome, SagaRecord};

/// The whole page.
pub(in crate::cli) fn render(shown: &Revision, now: Timestamp) -> String {
    let record = &shown.record;
    let mut text = header(shown, now);
    text.push('\n');
    text.push_str(&clean(&format!(
        "{} {}.",
        record.saga_id,
        sentence(record, now)
    )));
    text.push('\n');
    if !record.steps.is_empty() {
        text.push_str("\nSteps\n");
        text.push_str(&steps(record));
    }
    if !record.signals.is_empty() {
        text.push_str("\nSignals\n");
        text.push_str(&signals(record));
    }
    if !record.events.is_empty() {
        text.push_str(&format!("\nEvents: {}\n", clean(&record.events.join(", "))));
    }
    if !record.by_hand.actions.is_empty() {
        text.push_str("\nDone by hand\n");
        text.push_str(&actions(&record.by_hand.actions));
    }
    if let Some(case) = &record.case
        && !case.evidence.is_null()
    {
        text.push_str(&format!("\nEvidence\n{:#}\n", case.evidence));
    }
    text
}

fn header(shown: &Revision, now: Timestamp) -> String {
    let record = &shown.record;
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        text.push_str(&format!("{name:11} {}\n", clean(value)));
    };
    line("saga", record.saga_id.as_str());
    line("key", &shown.key);
    line(
        "workflow",
        &format!("{} v{}", record.workflow, record.version),
    );
    match &record.phase {
        Some(phase) => line("status", &format!("{} (phase {phase})", record.status)),
        None => line("status", record.status.as_str()),
    }
    line("direction", &turned(record));
    line("started", &both(record.started_at, now));
    line("progress", &both(record.last_progress_at, now));
    if let Some(deadline) = record.deadline_at
        && !record.status.is_terminal()
    {
        line("deadline", &both(deadline, now));
    }
    if let Some(ended) = record.ended_at {
        line("ended", &both(ended, now));
    }
    let cause = format!(
        "{} written {}: {}",
        shown.revision,
        instant(shown.written_at),
        record.cause
    );
    line("revision", &cause);
    line(
        "owner",
        &format!("{}, epoch {}", record.owner, record.epoch),
    );
    for (name, value) in &record.attributes {
        line("attribute", &format!("{name}={value}"));
    }
    if record.duplicates > 0 {
        line("repeats", &format!("{} absorbed", record.duplicates));
    }
    if let Some(result) = &record.result {
        line("result", &result.to_string());
    }
    text
}

fn steps(record: &SagaRecord) -> String {
    let unsent = if record.status.is_terminal() {
        "not needed"
    } else {
        "ready, if turned back"
    };
    let mut rows = Vec::new();
    for step in &record.steps {
        let name = if step.pivot {
            format!("{} (pivot)", step.name)
        } else {
            step.name.to_string()
        };
        rows.push(row(name, &step.forward, "not sent"));
        if let Some(undo) = &step.undo {
            rows.push(row(format!("  undo: {}", undo.kind), undo, unsent));
        }
    }
    table(
        [
            "STEP",
            "OPERATION",
            "PARTICIPANT",
            "ATTEMPTS",
            "OUTCOME",
            "SINCE",
        ],
        rows,
    )
}

fn row(name: String, operation: &Operation, planned: &str) -> [String; 6] {
    let (outcome, at) = match &operation.outcome {
        Outcome::Planned => (planned.to_owned(), None),
        Outcome::InFlight {
            issued_at,
            deadline,
            doubtful,
            ..
        } => {
            let doubt = if *doubtful {
                ", an earlier attempt may have been applied"
            } else {
                ""
            };
            (
                format!("in flight until {}{doubt}", instant(*deadline)),
                Some(*issued_at),
            )
        }
        Outcome::BackingOff {
            issued_at,
            retry_at,
            last,
            ..
        } => (
            format!("tried again at {} ({last})", instant(*retry_at)),
            Some(*issued_at),
        ),
        Outcome::Applied { at, .. } => ("applied".to_owned(), Some(*at)),
        Outcome::NotApplied { code, message, at } => {
            (format!("not applied: {code}: {message}"), Some(*at))
        }
        Outcome::Unknown { since, last } => (format!("unknown: {last}"), Some(*since)),
    };
    [
        name,
        operation.operation_id.to_string(),
        participant(&operation.participant),
        operation.attempts.to_string(),
        outcome,
        at.map_or_else(String::new, instant),
    ]
}

fn signals(record: &SagaRecord) -> String {
    let rows = record.signals.iter().map(|signal| {
        let taken = if record.is_consumed(&signal.id) {
            "taken up"
        } else {
            "kept"
        };
        [
            signal.name.clone(),
            signal.id.clone(),
            instant(signal.at),
            taken.to_owned(),
            signal.body.to_string(),
        ]
    });
    table(["SIGNAL", "ID", "AT", "STATE", "BODY"], rows.collect())
}
