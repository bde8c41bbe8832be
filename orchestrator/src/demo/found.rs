//! What the system says came of the story. Each number is asked where it lies, so that no part vouches
//! for another: credits at the ledgers, events at the log, sagas at the state store.

use super::expected::WalletKey;
use crate::doctor::Report;
use crate::payments::Payment;
use crate::saga::CASE_WORKFLOW;
use crate::saga::record::{SagaRecord, Status};
use contracts::event::DepositCompleted;
use contracts::money::Money;
use contracts::reply::EntryView;
use region_agent::ledger::LedgerStats;
use std::collections::BTreeMap;

/// Everything that was found.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub(super) told: Told,
    /// Every record of the state store by its key.
    pub(super) records: BTreeMap<String, SagaRecord>,
    /// By region.
    pub(super) ledgers: BTreeMap<String, LedgerFound>,
    pub(super) events: Vec<DepositCompleted>,
    pub(super) payments: Vec<Payment>,
    pub(super) intake: IntakeFound,
    /// Customers in the cache of the region directory.
    pub(super) cached_regions: BTreeMap<String, String>,
    pub(super) doctor: Report,
    pub(super) reconciled: Reconciled,
}

/// What `orchestrator reconcile` says of the story.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Reconciled {
    /// Sagas that were compared.
    pub(super) sagas: u64,
    /// What differs.
    pub(super) differences: Vec<String>,
}

/// What the intake answered when the story was told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Told {
    /// Callbacks posted.
    pub(super) callbacks: usize,
    /// Stored ones: position in the stream, and how many facts each holds.
    pub(super) stored: Vec<(u64, usize)>,
    /// Callbacks refused because the same is stored already.
    pub(super) repeats: usize,
    /// Positions of stored signals.
    pub(super) signals: Vec<u64>,
}

/// One region's books.
#[derive(Debug, Clone)]
pub(super) struct LedgerFound {
    pub(super) stats: LedgerStats,
    /// What is wrong in them.
    pub(super) discrepancies: Vec<String>,
    /// What the region answers to `wallet.get`, by customer.
    pub(super) wallets: BTreeMap<String, WalletFound>,
}

/// One customer's wallet as its region shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct WalletFound {
    pub(super) balances: Vec<Money>,
    pub(super) entries: Vec<EntryView>,
}

/// The intake's consumer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct IntakeFound {
    /// Messages in the stream.
    pub(super) messages: u64,
    /// Not delivered yet.
    pub(super) undelivered: u64,
    /// Delivered and not acknowledged.
    pub(super) unacknowledged: u64,
}

impl Found {
    /// The records that are sagas.
    pub(super) fn sagas(&self) -> impl Iterator<Item = &SagaRecord> {
        self.records
            .values()
            .filter(|record| record.workflow != CASE_WORKFLOW)
    }

    /// The records that are nothing but a case.
    pub(super) fn cases(&self) -> impl Iterator<Item = &SagaRecord> {
        self.records
            .values()
            .filter(|record| record.workflow == CASE_WORKFLOW)
    }

    /// How many records stand so, cases included.
    pub(super) fn count(&self, status: Status) -> usize {
        self.records
            .values()
            .filter(|record| record.status == status)
            .count()
    }

    /// Credits that stand in the ledgers of all regions.
    pub(super) fn credits(&self) -> u64 {
        self.ledgers
            .values()
            .map(|ledger| ledger.stats.standing_credits)
            .sum()
    }

    /// Repeats of facts that sagas have absorbed.
    pub(super) fn known_facts(&self) -> u64 {
        self.records.values().map(|record| record.duplicates).sum()
    }

    /// Everything that came more than once and had no effect the second time.
    pub(super) fn duplicates_absorbed(&self) -> u64 {
        self.known_facts() + u64::try_from(self.told.repeats).unwrap_or(u64::MAX)
    }

    /// Every balance of the ledgers that is not zero.
    pub(super) fn balances(&self) -> BTreeMap<WalletKey, Money> {
        let mut balances = BTreeMap::new();
        for (region, ledger) in &self.ledgers {
            for found in &ledger.stats.balances {
                if found.balance.amount_minor() != 0 {
                    balances.insert(
                        key(region, found.customer.as_str(), found.balance),
                        found.balance,
                    );
                }
            }
        }
        balances
    }
}

/// The wallet that holds this money.
pub(super) fn key(region: &str, customer: &str, money: Money) -> WalletKey {
    WalletKey {
        region: region.to_owned(),
        customer: customer.to_owned(),
        currency: money.currency().code().as_str().to_owned(),
    }
}
