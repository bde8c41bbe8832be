//! What an ending says, compared with what has moved.

use std::collections::BTreeMap;

use serde_json::Value;

use super::breach::{Breach, Invariant};
use super::ledger::Books;
use super::observation::PaymentRow;
use super::records::{Record, Records};

/// The event that a completed deposit puts in the log, and nothing else does.
const COMPLETED_EVENT: &str = "deposit_completed";

/// By customer and currency.
type Sums = BTreeMap<(String, String), i64>;

pub(super) fn check(
    record: &Record,
    books: &Books,
    events: &[(String, Value)],
    noted: &mut Vec<Breach>,
) {
    let saga = record.saga();
    let mut breach = |invariant, message: String| noted.push(Breach::new(invariant, saga, message));
    for (id, operation) in record.operations() {
        outcome_is_true(id, operation, books, &mut breach);
    }
    let completed = record.status() == "completed";
    let told = events.iter().find(|(name, _)| name == COMPLETED_EVENT);
    if record.workflow() == "deposit" && completed != told.is_some() {
        let message = format!(
            "it is {}, and {COMPLETED_EVENT} is {} the log",
            record.status(),
            if told.is_some() { "in" } else { "not in" }
        );
        breach(Invariant::EventExactlyOnce, message);
    }
    let names: Vec<&str> = record.body()["events"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let logged: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
    if names != logged {
        let message = format!("its record names events {names:?}, the log has {logged:?}");
        breach(Invariant::EventExactlyOnce, message);
    }
    if !record.is_terminal() {
        return;
    }
    let moved = books.net_of(saga);
    if completed {
        let expected = says(record);
        if expected != moved {
            let message = format!("it says that it moved {expected:?} and has moved {moved:?}");
            breach(Invariant::CompletedMovedOnce, message);
        }
        if let Some((_, event)) = told
            && (event["credited"] != record.body()["result"]["credited"]
                || event["quote"]["target"] != event["credited"])
        {
            let message = format!("its event says {event}, its result is another");
            breach(Invariant::CompletedMovedOnce, message);
        }
    } else if !moved.is_empty() {
        let message = format!("it has ended {} and has moved {moved:?}", record.status());
        breach(Invariant::EndedMovedNothing, message);
    }
}

/// What a completed saga says of itself: a deposit what it credited, others a list of effects.
fn says(record: &Record) -> Sums {
    let body = record.body();
    let result = &body["result"];
    let mut sums = Sums::new();
    let mut add = |customer: &Value, money: &Value, sign: i64| {
        let customer = customer.as_str().unwrap_or_default().to_owned();
        let currency = money["currency"]["code"]
            .as_str()
            .or_else(|| money["currency"].as_str())
            .unwrap_or_default()
            .to_owned();
        let amount = money["amount_minor"].as_i64().unwrap_or(0);
        *sums.entry((customer, currency)).or_default() += sign * amount;
    };
    match result["effects"].as_array() {
        Some(effects) => {
            for effect in effects {
                let sign = if effect["movement"] == "debit" { -1 } else { 1 };
                add(&effect["customer"], &effect["money"], sign);
            }
        }
        None => add(&body["attributes"]["customer"], &result["credited"], 1),
    }
    sums.retain(|_, sum| *sum != 0);
    sums
}

fn outcome_is_true(
    id: &str,
    operation: &Value,
    books: &Books,
    breach: &mut impl FnMut(Invariant, String),
) {
    let kind = operation["kind"].as_str().unwrap_or_default();
    let known = books.find(id);
    match (kind, operation["outcome"].as_str().unwrap_or_default()) {
        ("wallet.update", "not_applied") => {
            // A refused update is refused for ever; a refused revert may be tried again.
            if let Some(known) = known.filter(|known| !known.moved.is_empty()) {
                let message = format!(
                    "operation {id} counts as not applied ({}) and has moved {:?}",
                    operation["code"], known.moved
                );
                breach(Invariant::OutcomesAreTrue, message);
            }
        }
        ("wallet.update" | "wallet.revert", "applied") => {
            let stands = known.is_some_and(|known| {
                known
                    .states
                    .values()
                    .any(|state| state == "applied" || state == "reverted")
            });
            if !stands {
                let message = format!("operation {id} counts as applied, its wallet has {known:?}");
                breach(Invariant::OutcomesAreTrue, message);
            }
        }
        (_, _) => {}
    }
}

pub(super) fn check_payments(records: &Records, payments: &[PaymentRow], noted: &mut Vec<Breach>) {
    let mut successful: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
    for payment in payments {
        let Some(record) = records.latest(&payment.saga) else {
            continue;
        };
        if payment.status == "successful" {
            let of_saga = successful.entry(&payment.saga).or_default();
            of_saga.push(payment.credited_minor.unwrap_or(0));
        } else if record.is_terminal() && payment.status == "pending" {
            noted.push(Breach::new(
                Invariant::BooksAgree,
                &payment.saga,
                format!("it has ended {}, its payment is pending", record.status()),
            ));
        }
    }
    for record in records.all().filter(|record| record.is_terminal()) {
        let credited = successful.get(record.saga());
        let expected = (record.workflow() == "deposit" && record.status() == "completed")
            .then(|| record.body()["result"]["credited"]["amount_minor"].as_i64())
            .map(|amount| vec![amount.unwrap_or(0)]);
        if credited != expected.as_ref() {
            noted.push(Breach::new(
                Invariant::BooksAgree,
                record.saga(),
                format!(
                    "it has ended {}; successful payments of it: {credited:?}",
                    record.status()
                ),
            ));
        }
    }
}

/// The event that tells of a payer to whom money is owed, when it says what he paid.
const TURNED_BACK_EVENT: &str = "deposit_turned_back";

/// Whether money reported of a payment is where somebody finds it.
pub(super) fn check_money(first: &str, records: &Records, noted: &mut Vec<Breach>) {
    let later = format!("{first}/again:");
    let is_kin = |saga: &str| saga == first || saga.starts_with(&later);
    let found = records.all().any(|record| {
        if record.workflow() == "case" {
            let about = record.body()["case"]["evidence"]["saga_id"].as_str();
            return about.is_some_and(is_kin);
        }
        let owed = || {
            let events = records.events_of(record.saga()).iter();
            let mut told = events.filter(|(name, _)| name == TURNED_BACK_EVENT);
            told.any(|(_, body)| !body["paid"].is_null())
        };
        is_kin(record.saga()) && (record.status() == "completed" || !record.is_terminal() || owed())
    });
    if !found {
        noted.push(Breach::new(
            Invariant::MoneyIsNotForgotten,
            first,
            "money has come, and no credit, no event and no case tells of it",
        ));
    }
}
