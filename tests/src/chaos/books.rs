//! Every payment of a run against what stands in the records and in the wallets, one by one.

use super::traffic::{Story, Told};
use crate::system::{REGIONS, System};
use anyhow::Result;
use contracts::id::SagaId;
use orchestrator::saga::next_generation;
use orchestrator::saga::record::{SagaRecord, Status, TurnReason};
use std::collections::BTreeMap;
use std::fmt;

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Books {
    /// By story, how its payments ended.
    endings: BTreeMap<(Story, String), u64>,
    /// Payments with more money in the wallet than completed sagas say.
    doubled: u64,
    /// Payments with less, or whose news nobody took in.
    lost: u64,
    /// What is wrong, payment by payment.
    pub(super) wrong: Vec<String>,
}

/// Compares every payment. Each has a customer of its own, so his balance is the payment's.
pub(super) async fn compare(system: &System, told: &[Told]) -> Result<Books> {
    let mut records: BTreeMap<SagaId, SagaRecord> = BTreeMap::new();
    for record in system.records().await? {
        records.insert(record.saga_id.clone(), record);
    }
    let mut balances: BTreeMap<(&str, String), i64> = BTreeMap::new();
    for region in REGIONS {
        let ledger = system.ledger(region).await?;
        for balance in ledger.stats().await?.balances {
            let of = balances
                .entry((region, balance.customer.to_string()))
                .or_default();
            *of += balance.balance.amount_minor();
        }
        ledger.close().await;
    }
    let mut books = Books::default();
    for told in told {
        books.payment(told, &records, &balances);
    }
    Ok(books)
}

impl Books {
    fn payment(
        &mut self,
        told: &Told,
        records: &BTreeMap<SagaId, SagaRecord>,
        balances: &BTreeMap<(&str, String), i64>,
    ) {
        let deposit = &told.deposit;
        let mut sagas = Vec::new();
        let mut id = deposit.saga_id();
        while let Some(record) = records.get(&id) {
            sagas.push(record);
            id = next_generation(&id);
        }
        let completed = sagas
            .iter()
            .filter(|saga| saga.status == Status::Completed)
            .count();
        let balance = if told.story == Story::ClosedWallet {
            0
        } else {
            let key = (deposit.region, deposit.customer.clone());
            balances.get(&key).copied().unwrap_or(0)
        };
        let expected = if completed > 0 {
            deposit.amount_minor
        } else {
            0
        };
        let mut wrong = Vec::new();
        if balance > expected || completed > 1 {
            self.doubled += 1;
            wrong.push(format!(
                "{completed} sagas are completed, and the wallet has {balance} of {expected}"
            ));
        }
        if balance < expected {
            self.lost += 1;
            wrong.push(format!(
                "it is completed, and the wallet has {balance} of {expected}"
            ));
        }
        if sagas.is_empty()
            || (told.story.says_paid() && !sagas.iter().any(|saga| took_up_money(saga)))
        {
            self.lost += 1;
            wrong.push("money was reported, and no saga took it up".to_owned());
        }
        if !told.story.may_complete() && completed > 0 {
            wrong.push("it must not have been credited".to_owned());
        }
        if let Some(open) = sagas.iter().find(|saga| !saga.status.is_terminal()) {
            let reason = open
                .case
                .as_ref()
                .map(|case| format!("{:?}: {}", case.reason, case.message));
            wrong.push(format!(
                "it is {} ({})",
                open.status,
                reason.unwrap_or_default()
            ));
        }
        let statuses: Vec<&str> = sagas.iter().map(|saga| saga.status.as_str()).collect();
        *self
            .endings
            .entry((told.story, statuses.join(", then ")))
            .or_default() += 1;
        for wrong in wrong {
            let id = deposit.saga_id();
            self.wrong.push(format!(
                "{id} ({}, {}): {wrong}",
                told.story,
                statuses.join(", then ")
            ));
        }
    }
}

/// Credited, or turned back after the money was known; not ended by a refusal alone.
fn took_up_money(saga: &SagaRecord) -> bool {
    saga.status == Status::Completed
        || match saga.direction_reason() {
            None | Some(TurnReason::Refused) => false,
            Some(
                TurnReason::StepRefused
                | TurnReason::StepUnreachable
                | TurnReason::OutcomeUnknown
                | TurnReason::TimedOut
                | TurnReason::CancelRequested,
            ) => true,
        }
}

impl fmt::Display for Books {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for ((story, ending), count) in &self.endings {
            writeln!(f, "  {story:<24} {ending:<32} {count:>5}")?;
        }
        write!(f, "effects doubled: {}, lost: {}", self.doubled, self.lost)
    }
}
