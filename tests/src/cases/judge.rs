//! Compares what is found with what a case expects, and with what holds for every case.

use super::case::{Bound, Case, Expect};
use super::found::Found;
use super::runner::Run;
use super::view::Stored;
use super::world::Sent;
use anyhow::{Context as _, bail};
use contracts::money::{Money, parse_decimal};
use contracts::reply::OperationState;
use orchestrator::payments::Payment;
use orchestrator::saga::record::{CaseReason, MAX_SEEN, Outcome, SagaRecord, Status};
use orchestrator::workflows::deposit;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::time::Duration;

/// The provider of deposits that have nothing to do with any case.
pub const CANARY: &str = "canary";

/// How the operations begin that give a case its first balances.
pub const OPENING: &str = "opening/";

/// No record may come near the size of a message, whatever came in.
const LARGEST_RECORD: usize = 64 * 1024;

/// Bytes of a message that a case record holds at most.
const EVIDENCE: usize = 16 * 1024;

/// Everything that is not as expected, in sentences; none when the case holds.
///
/// # Errors
/// When something cannot be looked up.
pub async fn verdict(run: &Run<'_>, expect: &Expect) -> anyhow::Result<Vec<String>> {
    let found = Found::look(run, &customers(run.case, expect)).await?;
    let mut wrong = expected(run.case, expect, &found);
    always(run, &found, &mut wrong);
    Ok(wrong)
}

/// Waits until a check on the way holds.
///
/// # Errors
/// What does not hold when the time is over.
pub async fn within(run: &Run<'_>, expect: &Expect, bound: Duration) -> anyhow::Result<()> {
    let customers = customers(run.case, expect);
    let look = async || Found::look(run, &customers).await;
    let probe = async || {
        let found = look().await.ok()?;
        expected(run.case, expect, &found).is_empty().then_some(())
    };
    if run.world.view.until(bound, probe).await.is_some() {
        return Ok(());
    }
    let wrong = expected(run.case, expect, &look().await?);
    bail!("not so within {bound:?}: {}", wrong.join("; "))
}

/// What is still at work or not accounted for.
#[must_use]
pub fn restless(records: &[Stored], sent: &[Sent]) -> Option<String> {
    if let Some(sequence) = not_accounted_for(records, sent).first() {
        return Some(format!("message {sequence} is not accounted for"));
    }
    records.iter().find_map(|stored| {
        let record = &stored.record;
        let pending = record
            .operations()
            .any(|operation| operation.outcome.is_pending());
        let rests = match record.status {
            Status::Running | Status::Compensating => false,
            Status::NeedsReview | Status::Waiting => !pending,
            Status::Completed | Status::Compensated | Status::Cancelled | Status::Failed => true,
        };
        (!rests).then(|| format!("{} is {} ({})", record.saga_id, record.status, record.cause))
    })
}

/// What no saga has taken in and no case holds.
fn not_accounted_for(records: &[Stored], sent: &[Sent]) -> Vec<u64> {
    let mut missing: Vec<u64> = sent
        .iter()
        .filter(|sent| !is_accounted_for(sent, records))
        .map(|sent| sent.sequence)
        .collect();
    // A saga remembers the last few messages only, and counts all of them.
    let forgotten = records.iter().map(|Stored { record, .. }| {
        let taken = 1 + usize::try_from(record.duplicates).unwrap_or(0) + record.signals.len();
        if record.seen.len() == MAX_SEEN {
            taken.saturating_sub(MAX_SEEN)
        } else {
            0
        }
    });
    if missing.len() <= forgotten.sum() {
        missing.clear();
    }
    missing
}

fn is_accounted_for(sent: &Sent, records: &[Stored]) -> bool {
    let whole = format!("intake:{}", sent.sequence);
    // `intake:<sequence>[:<item>]@<digest>`
    let is_it = |id: &str| {
        let rest = id.strip_prefix(whole.as_str());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([':', '@']))
    };
    records.iter().any(|Stored { record, .. }| {
        let kept = record.case.as_ref().is_some_and(|case| {
            let message = case.evidence["message_id"].as_str();
            case.evidence["sequence"] == sent.sequence || message.is_some_and(is_it)
        });
        kept || record.seen.iter().any(|id| is_it(id))
    })
}

fn customers(case: &Case, expect: &Expect) -> BTreeSet<String> {
    let names = expect.wallets.keys();
    names.flat_map(|name| case.customers(name)).collect()
}

fn expected(case: &Case, expect: &Expect, found: &Found) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, amounts) in &expect.wallets {
        for customer in case.customers(name) {
            if let Err(error) = balances(&customer, amounts, found) {
                wrong.push(error.to_string());
            }
        }
    }
    same("events", expect.events, found.deposits.len(), &mut wrong);
    let by_status = count(found.sagas().map(|record| record.status.to_string()));
    same("sagas", expect.sagas.clone(), by_status, &mut wrong);
    let reasons = found
        .records
        .iter()
        .filter_map(|stored| stored.record.case.as_ref());
    let by_reason = count(reasons.map(|case| word(case.reason)));
    same("cases", expect.cases.clone(), by_reason, &mut wrong);
    let operations: BTreeSet<&str> = found
        .entries
        .iter()
        .map(|entry| entry.operation_id.as_str())
        .filter(|id| !id.starts_with(OPENING))
        .collect();
    same(
        "operations",
        expect.operations,
        operations.len(),
        &mut wrong,
    );
    same("entries", expect.entries, found.entries.len(), &mut wrong);
    let duplicates = found.sagas().map(|record| record.duplicates).sum();
    same("duplicates", expect.duplicates, duplicates, &mut wrong);
    let parked = found.sagas().filter(|record| record.timer_at.is_some());
    same("parked", expect.parked, parked.count(), &mut wrong);
    for (operation, &attempts) in &found.commands {
        within_bound(
            &format!("attempts of {operation}"),
            expect.attempts,
            attempts,
            &mut wrong,
        );
    }
    let late = usize::try_from(found.late_replies).unwrap_or(usize::MAX);
    within_bound("late replies", expect.late_replies, late, &mut wrong);
    if expect.attempts.is_some() && found.commands.is_empty() {
        wrong.push("no command reached a region's wallet".to_owned());
    }
    for Stored { record, bytes } in &found.records {
        let what = format!("bytes of {}", record.saga_id);
        within_bound(&what, expect.record_bytes, *bytes, &mut wrong);
    }
    for (key, row) in &expect.payments {
        let payment = found
            .payments
            .iter()
            .find(|payment| payment_key(payment) == *key);
        let shown = payment.map(|payment| {
            let text = |money: Option<Money>| money.map(|money| money.to_string());
            (
                payment.status.to_string(),
                text(payment.credited),
                text(payment.paid),
            )
        });
        let wanted = row.as_ref().map(|row| {
            let paid = row.paid.clone().or_else(|| shown.as_ref()?.2.clone());
            (row.status.clone(), row.credited.clone(), paid)
        });
        if shown != wanted {
            wrong.push(format!("payment {key} is {shown:?}, not {wanted:?}"));
        }
    }
    for (external_id, rate) in &expect.rates {
        let event = found
            .deposits
            .iter()
            .find(|deposit| deposit.external_id == *external_id)
            .map(|deposit| deposit.quote.rate.as_str());
        let row = found
            .payments
            .iter()
            .find(|payment| payment.identity.external_id.as_str() == external_id)
            .and_then(|payment| payment.quote.as_ref())
            .map(|quote| quote.rate.as_str());
        if (event, row) != (Some(rate), Some(rate)) {
            wrong.push(format!(
                "rate of {external_id}: event {event:?}, payment {row:?}, not {rate}"
            ));
        }
    }
    wrong
}

fn balances(
    customer: &str,
    expected: &BTreeMap<String, String>,
    found: &Found,
) -> anyhow::Result<()> {
    let none = Vec::new();
    let balances = found.wallets.get(customer).unwrap_or(&none);
    let codes = expected.keys().cloned().chain(
        balances
            .iter()
            .map(|money| money.currency().code().to_string()),
    );
    for code in codes.collect::<BTreeSet<_>>() {
        let wanted = parse_decimal(expected.get(&code).map_or("0", String::as_str))?;
        let mut held = parse_decimal("0")?;
        for money in balances {
            if money.currency().code().as_str() == code {
                held = held
                    .checked_add(parse_decimal(&money.decimal_text())?)
                    .context("sum")?;
            }
        }
        if held != wanted {
            bail!("{customer} has {held} {code}, not {wanted}");
        }
    }
    Ok(())
}

/// What must hold whatever the case is about.
fn always(run: &Run<'_>, found: &Found, wrong: &mut Vec<String>) {
    for payment in &found.payments {
        credits_equal_row(payment, found, wrong);
    }
    for record in found.sagas() {
        effects_are_accounted_for(record, found, wrong);
    }
    let sagas: BTreeSet<&str> = found
        .sagas()
        .map(|record| record.saga_id.as_str())
        .collect();
    for entry in &found.entries {
        let id = entry.operation_id.as_str();
        let id = id.strip_prefix("revert-").unwrap_or(id);
        if !sagas.contains(id) && !id.starts_with(OPENING) {
            wrong.push(format!("the ledger holds {id}, which is no saga's"));
        }
    }
    for stored in &found.records {
        if stored.bytes > LARGEST_RECORD {
            let id = &stored.record.saga_id;
            wrong.push(format!("the record of {id} has {} bytes", stored.bytes));
        }
        evidence_is_the_message(&stored.record, &run.sent, wrong);
    }
    let missing = not_accounted_for(&found.records, &run.sent);
    if !missing.is_empty() {
        wrong.push(format!("messages {missing:?} are not accounted for"));
    }
}

fn credits_equal_row(payment: &Payment, found: &Found, wrong: &mut Vec<String>) {
    let first = deposit::saga_id(&payment.identity).to_string();
    let again = format!("{first}/again:");
    let held: Vec<Money> = found
        .operations
        .iter()
        .filter(|(id, _)| **id == first || id.starts_with(&again))
        .flat_map(|(_, states)| states)
        .filter(|(state, _)| *state == OperationState::Applied)
        .filter_map(|(_, money)| *money)
        .collect();
    let row: Vec<Money> = payment.credited.into_iter().collect();
    if held != row {
        let key = payment_key(payment);
        wrong.push(format!(
            "payment {key} says {row:?} and the wallet holds {held:?} of it"
        ));
    }
}

fn effects_are_accounted_for(record: &SagaRecord, found: &Found, wrong: &mut Vec<String>) {
    let id = record.saga_id.as_str();
    let unsettled = record.operations().find(|operation| {
        operation.outcome.is_pending() || matches!(operation.outcome, Outcome::Unknown { .. })
    });
    let in_wallet = found.operations.get(id).into_iter().flatten();
    let applied = in_wallet
        .filter(|(state, _)| *state == OperationState::Applied)
        .count();
    match record.status {
        Status::Completed => {
            if let Some(operation) = unsettled {
                wrong.push(format!(
                    "{id} is completed and {} is not settled",
                    operation.operation_id
                ));
            }
            if applied != 1 {
                wrong.push(format!("{id} is completed and applied {applied} times"));
            }
            if !found
                .deposits
                .iter()
                .any(|deposit| deposit.saga_id == record.saga_id)
            {
                wrong.push(format!("{id} is completed without its event"));
            }
        }
        Status::Compensated | Status::Cancelled | Status::Failed => {
            if applied != 0 {
                wrong.push(format!("{id} is {} and its credit stands", record.status));
            }
            let undone = record
                .steps
                .iter()
                .filter(|step| step.forward.outcome.may_have_effect());
            let mut undos = undone.filter_map(|step| step.undo.as_ref());
            if let Some(undo) = undos.find(|undo| !matches!(undo.outcome, Outcome::Applied { .. }))
            {
                wrong.push(format!(
                    "{id} is {} and {} is not applied",
                    record.status, undo.operation_id
                ));
            }
        }
        Status::Running | Status::Waiting | Status::Compensating => {
            // Its messages are acknowledged, so only a timer wakes it.
            if record.timer_at.is_none() {
                wrong.push(format!("{id} is {} and nothing wakes it", record.status));
            }
        }
        Status::NeedsReview => {
            if record.case.is_none() {
                wrong.push(format!("{id} waits for a person without a reason"));
            }
        }
    }
}

/// What a case record shows of a message is the message.
fn evidence_is_the_message(record: &SagaRecord, sent: &[Sent], wrong: &mut Vec<String>) {
    let Some(case) = record.case.as_ref() else {
        return;
    };
    let evidence = &case.evidence;
    let Some(sent) = sent
        .iter()
        .find(|sent| evidence["sequence"] == sent.sequence)
    else {
        return;
    };
    let body = &sent.body[..sent.body.len().min(EVIDENCE)];
    let shown = match (
        evidence["body"]["text"].as_str(),
        evidence["body"]["hex"].as_str(),
    ) {
        (Some(text), _) => text.as_bytes().to_vec(),
        (None, Some(hex)) => hex::decode(hex).unwrap_or_default(),
        (None, None) => Vec::new(),
    };
    if shown != body {
        wrong.push(format!("{} does not show its message", record.saga_id));
    }
}

fn payment_key(payment: &Payment) -> String {
    let id = &payment.identity;
    match &id.capture_id {
        Some(capture) => format!("{}/{capture}", id.external_id),
        None => id.external_id.to_string(),
    }
}

fn word(reason: CaseReason) -> String {
    let word = serde_json::to_value(reason).ok();
    word.and_then(|word| Some(word.as_str()?.to_owned()))
        .unwrap_or_default()
}

fn count(words: impl Iterator<Item = String>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for word in words {
        *counts.entry(word).or_insert(0) += 1;
    }
    counts
}

fn same<T: PartialEq + Debug>(what: &str, wanted: Option<T>, found: T, wrong: &mut Vec<String>) {
    if let Some(wanted) = wanted
        && wanted != found
    {
        wrong.push(format!("{what}: {found:?}, not {wanted:?}"));
    }
}

fn within_bound(what: &str, bound: Option<Bound>, found: usize, wrong: &mut Vec<String>) {
    if let Some(bound) = bound
        && !(bound.at_least..=bound.at_most).contains(&found)
    {
        wrong.push(format!(
            "{what}: {found}, not {} to {}",
            bound.at_least, bound.at_most
        ));
    }
}
