//! Checks of money: ledgers, events and the payments table.

use super::none;
use crate::demo::expected::{Expected, ExpectedDeposit, WalletKey};
use crate::demo::found::{Found, key};
use crate::demo::story::{self, Ends, Telling};
use crate::payments::{Payment, PaymentStatus};
use contracts::command::Movement;
use contracts::money::Money;
use std::collections::BTreeMap;

pub(super) fn balances(expected: &Expected, found: &Found) -> Result<String, String> {
    compare(&expected.wallets, &found.balances())
}

pub(super) fn agents(expected: &Expected, found: &Found) -> Result<String, String> {
    let mut shown = BTreeMap::new();
    for (region, ledger) in &found.ledgers {
        for (customer, wallet) in &ledger.wallets {
            for balance in &wallet.balances {
                if balance.amount_minor() != 0 {
                    shown.insert(key(region, customer, *balance), *balance);
                }
            }
        }
    }
    compare(&expected.wallets, &shown)
}

/// Every entry is the credit of a saga that had to complete, and each of those has one.
pub(super) fn credits(expected: &Expected, found: &Found) -> Result<String, String> {
    let mut wrong = Vec::new();
    let mut open: BTreeMap<String, &ExpectedDeposit> = expected
        .deposits
        .iter()
        .filter(|deposit| deposit.is_credited())
        .filter_map(|deposit| Some((deposit.sagas.last()?.0.own_operation().to_string(), deposit)))
        .collect();
    let credits = open.len();
    for (region, ledger) in &found.ledgers {
        for (customer, wallet) in &ledger.wallets {
            for entry in &wallet.entries {
                let operation = entry.operation_id.as_str();
                match open.remove(operation) {
                    None => wrong.push(format!(
                        "{} for {customer} in {region}: {operation} has no such credit left",
                        entry.money
                    )),
                    Some(deposit)
                        if entry.movement != Movement::Credit
                            || entry.money != deposit.credited
                            || key(region, customer, entry.money) != deposit.wallet =>
                    {
                        wrong.push(format!(
                            "{operation}: {} for {customer} in {region}, not {} for {} in {}",
                            entry.money,
                            deposit.credited,
                            deposit.wallet.customer,
                            deposit.wallet.region
                        ));
                    }
                    Some(_) => {}
                }
            }
        }
    }
    wrong.extend(
        open.keys()
            .map(|operation| format!("{operation} is in no ledger")),
    );
    none(&wrong, format!("{credits} entries"))
}

pub(super) fn told_twice(expected: &Expected, found: &Found) -> Result<String, String> {
    let mut wrong = Vec::new();
    let mut told_twice = 0;
    for deposit in &expected.deposits {
        let paid = paid_events(deposit);
        let Some((saga_id, _)) = deposit.sagas.last().filter(|_| paid > 1) else {
            continue;
        };
        told_twice += 1;
        let entries = found
            .ledgers
            .values()
            .flat_map(|ledger| ledger.wallets.values())
            .flat_map(|wallet| &wallet.entries)
            .filter(|entry| entry.operation_id == saga_id.own_operation())
            .count();
        if entries != 1 {
            wrong.push(format!(
                "{}: {paid} events of success, {entries} credits",
                deposit.external_id
            ));
        }
    }
    if told_twice == 0 {
        wrong.push("no payment was told twice".to_owned());
    }
    none(&wrong, format!("{told_twice} payments"))
}

pub(super) fn refused(expected: &Expected, found: &Found) -> Result<String, String> {
    let mut wrong = Vec::new();
    let mut refused = Vec::new();
    for deposit in &expected.deposits {
        match deposit.ends {
            Ends::TurnedBack | Ends::Refused | Ends::Distrusted => {}
            Ends::Credited | Ends::CreditedAtSecondTry => continue,
        }
        let wallet = &deposit.wallet;
        if let Some(balance) = found.balances().get(wallet)
            && !expected.wallets.contains_key(wallet)
        {
            wrong.push(format!("{} has {balance}", wallet.customer));
        }
        if deposit.ends == Ends::TurnedBack {
            refused.push(deposit);
        }
    }
    let rejected: u64 = found
        .ledgers
        .values()
        .map(|ledger| ledger.stats.rejected)
        .sum();
    if Ok(rejected) != u64::try_from(refused.len()) {
        wrong.push(format!(
            "wallets refused {rejected} credits, not {}",
            refused.len()
        ));
    }
    let names: Vec<&str> = refused
        .iter()
        .map(|deposit| deposit.wallet.customer.as_str())
        .collect();
    none(&wrong, format!("closed wallet of {}", names.join(", ")))
}

pub(super) fn double_entry(_expected: &Expected, found: &Found) -> Result<String, String> {
    let wrong: Vec<String> = found
        .ledgers
        .iter()
        .flat_map(|(region, ledger)| {
            ledger
                .discrepancies
                .iter()
                .map(move |discrepancy| format!("{region}: {discrepancy}"))
        })
        .collect();
    none(&wrong, format!("{} ledgers", found.ledgers.len()))
}

pub(super) fn events(expected: &Expected, found: &Found) -> Result<String, String> {
    let mut credited: BTreeMap<WalletKey, Money> = BTreeMap::new();
    for event in &found.events {
        let key = key(
            event.region.as_str(),
            event.customer.as_str(),
            event.credited,
        );
        let sum = match credited.get(&key) {
            None => event.credited,
            Some(sum) => sum
                .checked_add(event.credited)
                .map_err(|error| error.to_string())?,
        };
        credited.insert(key, sum);
    }
    compare(&expected.wallets, &credited)
}

pub(super) fn payments(expected: &Expected, found: &Found) -> Result<String, String> {
    let mut wrong = Vec::new();
    let payments: BTreeMap<(&str, &str), &Payment> = found
        .payments
        .iter()
        .map(|payment| {
            let identity = &payment.identity;
            let key = (identity.provider.as_str(), identity.external_id.as_str());
            (key, payment)
        })
        .collect();
    for deposit in &expected.deposits {
        let payment = payments.get(&(deposit.provider, deposit.external_id));
        let (must, credited) = match deposit.ends {
            Ends::Credited | Ends::CreditedAtSecondTry => {
                (Some(PaymentStatus::Successful), Some(deposit.credited))
            }
            Ends::Refused => (Some(PaymentStatus::Failed), None),
            Ends::TurnedBack => (Some(PaymentStatus::Cancelled), None),
            Ends::Distrusted => (None, None),
        };
        let is = payment.map(|payment| payment.status);
        if is != must {
            let word = |status: Option<PaymentStatus>| {
                status.map_or_else(|| "absent".to_owned(), |status| status.to_string())
            };
            wrong.push(format!(
                "{} is {}, not {}",
                deposit.external_id,
                word(is),
                word(must)
            ));
        }
        if payment.and_then(|payment| payment.credited) != credited {
            wrong.push(format!("{} has another sum", deposit.external_id));
        }
    }
    let successful = found
        .payments
        .iter()
        .filter(|payment| payment.status == PaymentStatus::Successful)
        .count();
    if successful != expected.credits() {
        wrong.push(format!("{successful} successful payments"));
    }
    none(&wrong, format!("{successful} successful payments"))
}

pub(super) fn directory(_expected: &Expected, found: &Found) -> Result<String, String> {
    let mut wrong = Vec::new();
    for (customer, region) in story::DIRECTORY {
        match found.cached_regions.get(customer) {
            Some(cached) if cached == region => {}
            Some(cached) => wrong.push(format!("{customer} is cached in {cached}, not {region}")),
            None => wrong.push(format!("{customer} is not in the cache of the directory")),
        }
        let credited = found
            .events
            .iter()
            .filter(|event| event.customer.as_str() == customer)
            .all(|event| event.region.as_str() == region);
        if !credited {
            wrong.push(format!("{customer} was credited elsewhere"));
        }
    }
    let names = story::DIRECTORY.map(|(customer, region)| format!("{customer} in {region}"));
    none(&wrong, names.join(", "))
}

/// In how many different callbacks the payment was said to be paid.
fn paid_events(deposit: &ExpectedDeposit) -> usize {
    let mut events = Vec::new();
    for telling in story::tellings() {
        let Telling::Callback(event_id, notices) = telling else {
            continue;
        };
        let tells = notices.iter().any(|story::Notice(told, says)| {
            (told.psp.name(), told.id) == (deposit.provider, deposit.external_id) && says.is_paid()
        });
        if tells && !events.contains(event_id) {
            events.push(event_id);
        }
    }
    events.len()
}

fn compare(
    must: &BTreeMap<WalletKey, Money>,
    is: &BTreeMap<WalletKey, Money>,
) -> Result<String, String> {
    let mut wrong = Vec::new();
    for (wallet, sum) in must {
        let name = format!("{} in {}", wallet.customer, wallet.region);
        match is.get(wallet) {
            Some(found) if found == sum => {}
            Some(found) => wrong.push(format!("{name}: {found}, not {sum}")),
            None => wrong.push(format!("{name}: nothing, not {sum}")),
        }
    }
    for (wallet, found) in is {
        if !must.contains_key(wallet) {
            wrong.push(format!(
                "{} in {}: {found}, not nothing",
                wallet.customer, wallet.region
            ));
        }
    }
    none(&wrong, format!("{} balances", must.len()))
}
