//! What was compared, and how much money that is.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::{Hash as _, Hasher as _};

use contracts::command::Movement;
use contracts::id::Region;
use contracts::money::Money;
use jiff::Timestamp;
use serde::Serialize;

use super::difference::{Difference, Kind};
use super::sides::Sides;
use super::{Options, Progress};
use crate::payments::PaymentStatus;

/// What was compared and how it went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// From this instant on.
    pub since: Timestamp,
    /// Before this one.
    pub until: Timestamp,
    /// The regions whose wallets were read.
    pub regions: BTreeSet<Region>,
    /// Whether the payments database was compared.
    pub payments_compared: bool,
    /// How many of each.
    pub compared: Counts,
    /// Sagas that are on their way, and no difference.
    pub under_way: u64,
    /// Money by currency and decimals, such as `EUR.2`. Without differences, and apart from what is under
    /// way, credits less debits less reverts are the payments, and the events.
    pub sums: BTreeMap<String, Sums>,
    /// Differences by kind.
    pub differences: BTreeMap<Kind, u64>,
}

/// How many facts of each side were compared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Saga records.
    pub sagas: u64,
    /// Rows of payments.
    pub payments: u64,
    /// Wallet operations.
    pub operations: u64,
    /// Events.
    pub events: u64,
}

/// Sums of one currency in minor units; wider than one wallet can hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Sums {
    /// What wallets booked in, offset since or not.
    pub credits: i128,
    /// What wallets booked out, likewise.
    pub debits: i128,
    /// What reverts took back of credits, less what they gave back of debits.
    pub reverts: i128,
    /// What payments say was credited.
    pub payments: i128,
    /// What events say was credited.
    pub events: i128,
}

impl Report {
    /// How many differences there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.differences.values().sum()
    }
}

/// Adds up.
pub(super) struct Tally {
    report: Report,
    /// Hashes of the keys of sagas whose facts are added up already.
    done: HashSet<u64>,
}

impl Tally {
    pub(super) fn new(options: &Options, payments_compared: bool) -> Self {
        Self {
            report: Report {
                since: options.since,
                until: options.until,
                regions: BTreeSet::new(),
                payments_compared,
                compared: Counts::default(),
                under_way: 0,
                sums: BTreeMap::new(),
                differences: BTreeMap::new(),
            },
            done: HashSet::new(),
        }
    }

    /// All sides of a saga agree.
    pub(super) fn compared(&mut self, sides: &Sides) {
        if self.done.insert(hash(&sides.key)) {
            self.saga(sides);
        }
        self.facts(sides);
    }

    /// A saga was read again. `seen` is what the sides had brought of it since it was last added up.
    pub(super) fn settled(&mut self, sides: &Sides, seen: &Sides) {
        if self.done.insert(hash(&sides.key)) {
            self.saga(sides);
            self.facts(sides);
        } else {
            self.facts(seen);
        }
    }

    /// A difference.
    pub(super) fn found(
        &mut self,
        difference: &Difference,
        watch: &mut (dyn FnMut(Progress) + Send),
    ) {
        *self.report.differences.entry(difference.kind).or_default() += 1;
        watch(Progress::Found(Box::new(difference.clone())));
    }

    pub(super) fn report(mut self, regions: BTreeSet<Region>) -> Report {
        self.report.regions = regions;
        self.report
    }

    fn saga(&mut self, sides: &Sides) {
        if let Some(record) = &sides.record {
            self.report.compared.sagas += 1;
            self.report.under_way += u64::from(record.is_open());
        }
    }

    fn facts(&mut self, sides: &Sides) {
        if let Some(payment) = &sides.payment {
            self.report.compared.payments += 1;
            if let Some(credited) = payment
                .credited
                .filter(|_| payment.status == PaymentStatus::Successful)
            {
                self.sums(credited).payments += i128::from(credited.amount_minor());
            }
        }
        // One that was looked up for another saga's sake is added up with its own.
        for operation in sides
            .operations
            .iter()
            .filter(|operation| operation.saga_key() == sides.key)
        {
            self.report.compared.operations += 1;
            let Some((_, movement, money)) = operation.booked() else {
                continue;
            };
            let minor = i128::from(money.amount_minor());
            let sums = self.sums(money);
            match (operation.is_update(), movement) {
                (true, Movement::Credit) => sums.credits += minor,
                (true, Movement::Debit) => sums.debits += minor,
                (false, Movement::Debit) => sums.reverts += minor,
                (false, Movement::Credit) => sums.reverts -= minor,
            }
        }
        for event in &sides.events {
            self.report.compared.events += 1;
            let body = event.body.as_ref().ok();
            if let Some(credited) = body.and_then(|body| body.credited) {
                self.sums(credited).events += i128::from(credited.amount_minor());
            }
        }
    }

    fn sums(&mut self, money: Money) -> &mut Sums {
        let currency = money.currency();
        let name = format!("{}.{}", currency.code(), currency.exponent());
        self.report.sums.entry(name).or_default()
    }
}

fn hash(key: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}
