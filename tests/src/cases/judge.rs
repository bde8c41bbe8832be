//! Compares what is found with what a case expects, and with what holds for every case.

use super::always::always;
use super::case::{Bound, Case, Expect};
use super::found::Found;
use super::runner::Run;
use super::view::Stored;
use super::world::Sent;
use anyhow::{Context as _, bail};
use contracts::money::{Money, parse_decimal};
use orchestrator::payments::Payment;
use orchestrator::saga::record::{
    CaseReason, MAX_SEEN, Operation, Outcome, SagaRecord, Status, StepRecord,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::time::Duration;

/// The provider of deposits that have nothing to do with any case.
pub const CANARY: &str = "canary";

/// How the operations begin that give a case its first balances.
pub const OPENING: &str = "opening/";

/// What a movement of a wallet is called in a record.
pub(super) const MOVEMENT: &str = "wallet.update";

/// Everything that is not as expected, in sentences; none when the case holds.
///
/// # Errors
/// When something cannot be looked up.
pub async fn verdict(run: &Run<'_>, expect: &Expect) -> anyhow::Result<Vec<String>> {
    let found = Found::look(run, &customers(run.case, expect)).await?;
    let mut wrong = expected(run, expect, &found);
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
        run.fire_due().await.ok()?;
        let found = look().await.ok()?;
        expected(run, expect, &found).is_empty().then_some(())
    };
    if run.world.view.until(bound, probe).await.is_some() {
        return Ok(());
    }
    let wrong = expected(run, expect, &look().await?);
    bail!("not so within {bound:?}: {}", wrong.join("; "))
}

/// What is still at work or not accounted for.
#[must_use]
pub fn restless(records: &[Stored], sent: &[Sent], ignored: usize) -> Option<String> {
    let missing = not_accounted_for(records, sent);
    if missing.len() != ignored
        && let Some(sequence) = missing.first()
    {
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
pub(super) fn not_accounted_for(records: &[Stored], sent: &[Sent]) -> Vec<u64> {
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
    let names = expect.customers();
    let customers = names.iter().flat_map(|name| case.customers(name));
    customers.collect()
}

fn expected(run: &Run<'_>, expect: &Expect, found: &Found) -> Vec<String> {
    let case = run.case;
    let mut wrong = Vec::new();
    of_sagas(run, expect, found, &mut wrong);
    if !expect.any_of.is_empty() {
        let each = expect.any_of.iter().map(|one| expected(run, one, found));
        let each: Vec<Vec<String>> = each.collect();
        if each.iter().all(|wrong| !wrong.is_empty()) {
            wrong.push(format!("none of these holds: {each:?}"));
        }
    }
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
    for Stored { record, bytes, .. } in &found.records {
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

/// What is expected of records and events beyond the deposits'.
fn of_sagas(run: &Run<'_>, expect: &Expect, found: &Found, wrong: &mut Vec<String>) {
    same(
        "answers",
        expect.answers.clone(),
        found.answers.clone(),
        wrong,
    );
    same("finished", expect.finished, found.finished.len(), wrong);
    for (name, status) in &expect.outcomes {
        let saga = run.saga_of(name).ok();
        let record = found
            .sagas()
            .find(|record| Some(&record.saga_id) == saga.as_ref());
        let stands = record.map(|record| record.status.as_str());
        if stands != Some(status) {
            wrong.push(format!("{name} is {stands:?}, not {status}"));
        }
    }
    let signals = found.sagas().flat_map(|record| &record.signals);
    let by_name = count(signals.map(|signal| signal.name.clone()));
    same("signals", expect.signals.clone(), by_name, wrong);
    let steps = found.sagas().flat_map(|record| &record.steps);
    let movements: Vec<&StepRecord> = steps.filter(|step| step.forward.kind == MOVEMENT).collect();
    let asked = [expect.sent, expect.reverts];
    if movements.is_empty() && asked.iter().flatten().any(|bound| bound.at_least > 0) {
        wrong.push("no movement has been asked for".to_owned());
    }
    for step in movements {
        let undo = step.undo.as_ref().filter(|undo| undo.attempts > 0);
        let mut sent = |bound, operation: &Operation| {
            let times = usize::try_from(operation.attempts).unwrap_or(usize::MAX);
            within_bound(operation.operation_id.as_str(), bound, times, wrong);
        };
        sent(expect.sent, &step.forward);
        if let Some(undo) = undo {
            sent(expect.reverts, undo);
        } else if expect.reverts.is_some_and(|bound| bound.at_least > 0) {
            wrong.push(format!("{} is not reverted", step.forward.operation_id));
        }
    }
    let unknown = found
        .sagas()
        .flat_map(SagaRecord::operations)
        .filter(|operation| matches!(operation.outcome, Outcome::Unknown { .. }));
    within_bound("unknown outcomes", expect.unknown, unknown.count(), wrong);
    if expect.unchanged {
        let now = run.revisions();
        if run.remembered != now {
            wrong.push(format!("{:?} became {now:?}", run.remembered));
        }
    }
    if let Some(wanted) = expect.consumed {
        let consumed = run.consumed();
        if consumed.len() != wanted || consumed.values().any(|&times| times < 2) {
            wrong.push(format!("{wanted} events, each twice, are not {consumed:?}"));
        }
    }
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

pub(super) fn payment_key(payment: &Payment) -> String {
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
