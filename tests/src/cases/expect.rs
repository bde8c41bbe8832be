//! What must be so in the end of a case, or on the way.

use super::case::Amounts;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// What must be so. What is absent is not looked at.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Expect {
    /// Balances by customer, compared by value; a currency that is not named must be at nothing. A name
    /// that ends in `*` stands for each customer generated with that beginning.
    pub wallets: BTreeMap<String, Amounts>,
    /// Deposit events in the log.
    pub events: Option<usize>,
    /// Sagas by status.
    pub sagas: Option<BTreeMap<String, usize>>,
    /// Cases by reason: sagas that wait for a person, and messages kept for one.
    pub cases: Option<BTreeMap<String, usize>>,
    /// Payments by external id (`id/capture` for one capture); `null` where there must be none.
    pub payments: BTreeMap<String, Option<ExpectedRow>>,
    /// Wallet operations that have booked something for the case's customers.
    pub operations: Option<usize>,
    /// Ledger entries of the case's customers.
    pub entries: Option<usize>,
    /// Repeats absorbed by sagas, over all of them.
    pub duplicates: Option<u64>,
    /// Sagas that are parked with a timer armed.
    pub parked: Option<usize>,
    /// Commands that reached the wallet of a region, for each operation.
    pub attempts: Option<Bound>,
    /// Answers of the wallets of regions, by verb and word: `update cancelled`.
    pub answers: Option<BTreeMap<String, usize>>,
    /// Answers that came after their command had been given up, over the whole world.
    pub late_replies: Option<Bound>,
    /// The pinned rate, by external id.
    pub rates: BTreeMap<String, String>,
    /// Bytes of each record.
    pub record_bytes: Option<Bound>,
    /// Sagas of the cases' own workflows whose event is in the log.
    pub finished: Option<usize>,
    /// How sagas stand, by payment or by what they were started as.
    pub outcomes: BTreeMap<String, String>,
    /// Signals kept in records, by name.
    pub signals: Option<BTreeMap<String, usize>>,
    /// Messages that are taken note of and otherwise ignored, as those of a provider's test system.
    pub ignored: usize,
    /// How often each movement of a wallet has been asked for, by the records.
    pub sent: Option<Bound>,
    /// How often each compensation of such a movement has been asked for, by the records.
    pub reverts: Option<Bound>,
    /// Operations whose outcome is not known.
    pub unknown: Option<Bound>,
    /// No record has been written since they were remembered.
    pub unchanged: bool,
    /// Events that a consumer has got, each more than once as it refused the first delivery.
    pub consumed: Option<usize>,
    /// One of these besides.
    pub any_of: Vec<Expect>,
}

impl Expect {
    /// All customers it says something about.
    #[must_use]
    pub fn customers(&self) -> BTreeSet<String> {
        let more = self.any_of.iter().flat_map(Self::customers);
        self.wallets.keys().cloned().chain(more).collect()
    }
}

/// A payment as it must be.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectedRow {
    /// Its status.
    pub status: String,
    /// What the wallet holds of it.
    #[serde(default)]
    pub credited: Option<String>,
    /// What came in.
    #[serde(default)]
    pub paid: Option<String>,
}

/// A number with bounds.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bound {
    /// At least so many.
    #[serde(default)]
    pub at_least: usize,
    /// At most so many.
    #[serde(default = "no_limit")]
    pub at_most: usize,
}

fn no_limit() -> usize {
    usize::MAX
}
