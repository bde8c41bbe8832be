//! The judge's own books of all wallets.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::breach::{Breach, Invariant};
use super::observation::{EntryRow, OperationRow};

/// What is known of one operation, over all wallets.
#[derive(Debug, Default, Clone)]
pub(super) struct Operation {
    /// By wallet.
    pub(super) states: BTreeMap<String, String>,
    /// Entries on customers' accounts: customer, currency, amount.
    pub(super) moved: Vec<(String, String, i64)>,
    saga: String,
    tombstoned: bool,
    late_arrival: bool,
    stale_arrival: bool,
}

#[derive(Debug, Default)]
pub(super) struct Books {
    operations: HashMap<String, Operation>,
    of_saga: HashMap<String, BTreeSet<String>>,
    balances: BTreeMap<(String, String, String), i64>,
    /// Entries of the operations that have moved since sums were checked.
    unchecked: BTreeMap<(String, String, String), i64>,
    reversed: HashMap<String, String>,
    fences: HashMap<(String, String), u64>,
    touched: BTreeSet<String>,
}

impl Books {
    pub(super) fn touch(&mut self, saga: &str) {
        self.touched.insert(saga.to_owned());
    }

    pub(super) fn touched(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.touched)
    }

    pub(super) fn arrived(
        &mut self,
        wallet: &str,
        saga: &str,
        operation: String,
        fence: u64,
        deadline_passed: bool,
    ) {
        let mut stale = false;
        if !saga.is_empty() {
            let key = (wallet.to_owned(), saga.to_owned());
            let highest = self.fences.entry(key).or_insert(fence);
            stale = fence < *highest;
            *highest = fence.max(*highest);
        }
        let known = self.operations.entry(operation).or_default();
        known.late_arrival = deadline_passed;
        known.stale_arrival = stale;
    }

    pub(super) fn operation(&mut self, row: OperationRow, noted: &mut Vec<Breach>) {
        if !row.saga.is_empty() {
            self.touch(&row.saga);
            let of_saga = self.of_saga.entry(row.saga.clone()).or_default();
            of_saga.insert(row.operation.clone());
        }
        let known = self.operations.entry(row.operation.clone()).or_default();
        if !row.saga.is_empty() {
            known.saga.clone_from(&row.saga);
        }
        if row.kind == "update" && row.state == "tombstoned" {
            known.tombstoned = true;
        }
        let before = known.states.insert(row.wallet.clone(), row.state.clone());
        let is_new = before.is_none();
        let goes_on = match (before.as_deref(), row.state.as_str()) {
            (None, _) | (Some("applied"), "reverted") => true,
            (Some(was), is) => was == is,
        };
        if !goes_on {
            noted.push(Breach::new(
                Invariant::OneEffectPerOperation,
                &row.saga,
                format!(
                    "operation {} was {} and is {}",
                    row.operation,
                    before.unwrap_or_default(),
                    row.state
                ),
            ));
        }
        if is_new && row.state == "applied" {
            if known.late_arrival {
                noted.push(Breach::new(
                    Invariant::NothingAfterDeadline,
                    &row.saga,
                    format!("operation {} was begun past its deadline", row.operation),
                ));
            }
            if known.stale_arrival {
                noted.push(Breach::new(
                    Invariant::NothingFromStaleOwner,
                    &row.saga,
                    format!(
                        "operation {} was begun for an owner whose successor had been heard",
                        row.operation
                    ),
                ));
            }
        }
    }

    pub(super) fn entry(&mut self, row: EntryRow, noted: &mut Vec<Breach>) {
        let key = (
            row.wallet.clone(),
            row.operation.clone(),
            row.currency.clone(),
        );
        *self.unchecked.entry(key).or_default() += row.amount_minor;
        if row.owner_kind != "customer" {
            return;
        }
        let known = self.operations.entry(row.operation.clone()).or_default();
        let saga = known.saga.clone();
        if !known.moved.is_empty() {
            noted.push(Breach::new(
                Invariant::OneEffectPerOperation,
                &saga,
                format!("operation {} has moved money twice", row.operation),
            ));
        }
        if known.tombstoned {
            noted.push(Breach::new(
                Invariant::NothingAfterTombstone,
                &saga,
                format!(
                    "operation {} was applied after its tombstone",
                    row.operation
                ),
            ));
        }
        known
            .moved
            .push((row.owner.clone(), row.currency.clone(), row.amount_minor));
        if !row.reverses.is_empty() {
            let offset = self
                .operations
                .get(&row.reverses)
                .map(|target| target.moved.clone())
                .unwrap_or_default();
            let expected = [(row.owner.clone(), row.currency.clone(), -row.amount_minor)];
            let first = self
                .reversed
                .insert(row.reverses.clone(), row.operation.clone());
            if offset != expected || first.is_some() {
                noted.push(Breach::new(
                    Invariant::MoneyIsConserved,
                    &saga,
                    format!(
                        "operation {} offsets {offset:?} of {} by {}, after {first:?}",
                        row.operation, row.reverses, row.amount_minor
                    ),
                ));
            }
        }
        let account = (row.wallet, row.owner, row.currency);
        let balance = self.balances.entry(account).or_default();
        *balance += row.amount_minor;
        if *balance < 0 {
            noted.push(Breach::new(
                Invariant::MoneyIsConserved,
                &saga,
                format!("operation {} takes more than there is", row.operation),
            ));
        }
        if !saga.is_empty() {
            self.touched.insert(saga);
        }
    }

    pub(super) fn check_sums(&mut self, noted: &mut Vec<Breach>) {
        for ((wallet, operation, currency), sum) in std::mem::take(&mut self.unchecked) {
            if sum != 0 {
                noted.push(Breach::new(
                    Invariant::MoneyIsConserved,
                    "",
                    format!("entries of {operation} in {wallet} sum to {sum} {currency}"),
                ));
            }
        }
    }

    pub(super) fn balance(
        &mut self,
        wallet: &str,
        customer: &str,
        currency: &str,
        balance_minor: i64,
        noted: &mut Vec<Breach>,
    ) {
        let key = (wallet.to_owned(), customer.to_owned(), currency.to_owned());
        let expected = self.balances.get(&key).copied().unwrap_or(0);
        if expected != balance_minor {
            noted.push(Breach::new(
                Invariant::MoneyIsConserved,
                "",
                format!(
                    "{customer} in {wallet} has {balance_minor} {currency}, entries sum to {expected}"
                ),
            ));
        }
    }

    pub(super) fn find(&self, operation: &str) -> Option<&Operation> {
        self.operations.get(operation)
    }

    /// What a saga has moved in sum, by customer and currency; nothing where it is zero.
    pub(super) fn net_of(&self, saga: &str) -> BTreeMap<(String, String), i64> {
        let mut net: BTreeMap<(String, String), i64> = BTreeMap::new();
        for operation in self.of_saga.get(saga).into_iter().flatten() {
            let moved = self.operations.get(operation).map(|known| &known.moved);
            for (customer, currency, amount) in moved.into_iter().flatten() {
                *net.entry((customer.clone(), currency.clone())).or_default() += amount;
            }
        }
        net.retain(|_, sum| *sum != 0);
        net
    }
}
