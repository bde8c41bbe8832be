//! Checks of sagas, of what they were told and of what they left open.

use super::none;
use crate::demo::expected::Expected;
use crate::demo::found::Found;
use crate::demo::story::CUT_OFF;
use crate::saga::record::{CaseReason, SagaRecord, Status};
use contracts::id::SagaId;
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn callbacks(expected: &Expected, found: &Found) -> Result<String, String> {
    let told = &found.told;
    let items: usize = told.stored.iter().map(|(_, items)| items).sum();
    let mut wrong = Vec::new();
    for (what, must, is) in [
        ("posted", expected.callbacks, told.callbacks),
        ("stored", expected.distinct_callbacks, told.stored.len()),
        ("refused as repeats", expected.exact_repeats(), told.repeats),
        ("facts in them", expected.items, items),
    ] {
        if must != is {
            wrong.push(format!("{what}: {is}, not {must}"));
        }
    }
    // Each fact is noted by the saga that took it, or it is a case.
    let mut noted: BTreeSet<String> = found
        .records
        .values()
        // Without the digest of the body, which the story does not count with.
        .flat_map(|record| record.seen.iter().filter_map(|id| id.split('@').next()))
        .map(str::to_owned)
        .collect();
    noted.extend(found.cases().filter_map(message_of_case));
    let messages = told
        .stored
        .iter()
        .flat_map(|&(sequence, items)| (0..items).map(move |item| message_id(sequence, item)))
        .chain(told.signals.iter().map(|&sequence| message_id(sequence, 0)));
    for message in messages {
        if !noted.contains(&message) {
            wrong.push(format!("{message} is in no saga and no case"));
        }
    }
    none(
        &wrong,
        format!(
            "{} posted, {} refused as repeats, {items} facts in sagas or cases",
            told.callbacks, told.repeats
        ),
    )
}

pub(super) fn ends(expected: &Expected, found: &Found) -> Result<String, String> {
    let must = expected.sagas();
    let is: BTreeMap<&SagaId, &SagaRecord> = found
        .sagas()
        .map(|record| (&record.saga_id, record))
        .collect();
    let mut wrong = Vec::new();
    for (saga_id, status) in &must {
        match is.get(saga_id) {
            None => wrong.push(format!("{saga_id} is missing")),
            Some(record) if record.status != *status => {
                wrong.push(format!(
                    "{saga_id} is {}, not {status} ({})",
                    record.status, record.cause
                ));
            }
            Some(_) => {}
        }
    }
    wrong.extend(
        is.keys()
            .filter(|saga_id| !must.contains_key(**saga_id))
            .map(|saga_id| format!("{saga_id} belongs to no payment")),
    );
    none(&wrong, format!("{} sagas", must.len()))
}

pub(super) fn open(expected: &Expected, found: &Found) -> Result<String, String> {
    let mut wrong: Vec<String> = found
        .sagas()
        .filter(|record| !record.status.is_terminal())
        .map(|record| format!("{} is {}", record.saga_id, record.status))
        .collect();
    let cases = found.cases().count();
    if cases != expected.cases {
        wrong.push(format!("{cases} cases, not {}", expected.cases));
    }
    none(&wrong, format!("{cases} cases for a person"))
}

pub(super) fn equal_numbers(expected: &Expected, found: &Found) -> Result<String, String> {
    let must = u64::try_from(expected.credits()).unwrap_or(u64::MAX);
    let numbers = [
        (
            "completed",
            u64::try_from(found.count(Status::Completed)).unwrap_or(u64::MAX),
        ),
        ("credits", found.credits()),
        (
            "events",
            u64::try_from(found.events.len()).unwrap_or(u64::MAX),
        ),
    ];
    let text = numbers
        .map(|(name, number)| format!("{number} {name}"))
        .join(", ");
    if numbers.iter().all(|(_, number)| *number == must) {
        Ok(text)
    } else {
        Err(format!("{text}; the story has {must}"))
    }
}

pub(super) fn repeats(expected: &Expected, found: &Found) -> Result<String, String> {
    let is = found.known_facts();
    if is == expected.known_facts {
        Ok(format!("{is} by sagas"))
    } else {
        Err(format!("{is} by sagas, not {}", expected.known_facts))
    }
}

pub(super) fn unreadable(_expected: &Expected, found: &Found) -> Result<String, String> {
    let evidence = |pointer: &'static str| {
        found.cases().filter_map(move |record| {
            let case = record.case.as_ref()?;
            (case.reason == CaseReason::Unreadable)
                .then(|| case.evidence.pointer(pointer)?.as_str())?
        })
    };
    let mut wrong = Vec::new();
    if !evidence("/body/text").any(|body| body == CUT_OFF) {
        wrong.push("no case holds the body that was cut off".to_owned());
    }
    if !evidence("/unreadable/code").any(|code| code == "signature_invalid") {
        wrong.push("no case of an item whose signature does not fit".to_owned());
    }
    none(
        &wrong,
        "one cut off on its way, one changed after it was signed".to_owned(),
    )
}

pub(super) fn intake(_expected: &Expected, found: &Found) -> Result<String, String> {
    let intake = &found.intake;
    let stored = u64::try_from(found.told.stored.len() + found.told.signals.len());
    let mut wrong = Vec::new();
    if intake.undelivered != 0 || intake.unacknowledged != 0 {
        wrong.push(format!(
            "{} not delivered, {} not acknowledged",
            intake.undelivered, intake.unacknowledged
        ));
    }
    if Ok(intake.messages) != stored {
        wrong.push(format!("{} messages stored", intake.messages));
    }
    none(&wrong, format!("{} messages", intake.messages))
}

/// As sagas note the messages they have taken.
pub(in crate::demo) fn message_id(sequence: u64, item: usize) -> String {
    if item == 0 {
        format!("intake:{sequence}")
    } else {
        format!("intake:{sequence}:{item}")
    }
}

/// The intake message that a case was opened for.
fn message_of_case(record: &SagaRecord) -> Option<String> {
    let evidence = &record.case.as_ref()?.evidence;
    let sequence = evidence["sequence"].as_u64()?;
    let item = evidence["unreadable"]["item"].as_u64().unwrap_or(0);
    Some(message_id(sequence, usize::try_from(item).ok()?))
}
