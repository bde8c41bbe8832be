//! The result: for a program as JSON, for a person as tables.

use super::Verdict;
use super::checks::{self, Check};
use super::expected::{Expected, WalletKey};
use super::found::Found;
use crate::saga::record::Status;
use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{CellAlignment, Table};
use contracts::money::Money;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What came of the story. As JSON its fields are promised: added to, never renamed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Report {
    /// Records by status, cases included.
    sagas: BTreeMap<&'static str, usize>,
    /// Credits that stand in the ledgers of all regions.
    credits: u64,
    /// Deposit events in the log.
    events: usize,
    /// Repeats that had no effect: at the intake, and in sagas.
    duplicates_absorbed: u64,
    /// Every wallet, with what was paid into it by the story.
    balances: Vec<Balance>,
    checks: Vec<Check>,
    seconds: f64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Balance {
    region: String,
    customer: String,
    currency: String,
    /// What the wallet holds, in major units.
    balance: String,
    /// What it should hold, likewise.
    paid_in: String,
}

impl Report {
    /// Judges what was found.
    pub(super) fn new(expected: &Expected, found: &Found, took: Duration) -> Self {
        let held = found.balances();
        let wallets: BTreeSet<&WalletKey> = held.keys().chain(expected.wallets.keys()).collect();
        let sum = |money: Option<&Money>| {
            money.map_or_else(|| "0".to_owned(), |money| money.decimal_text())
        };
        Self {
            sagas: Status::ALL
                .into_iter()
                .map(|status| (status.as_str(), found.count(status)))
                .collect(),
            credits: found.credits(),
            events: found.events.len(),
            duplicates_absorbed: found.duplicates_absorbed(),
            balances: wallets
                .into_iter()
                .map(|wallet| Balance {
                    region: wallet.region.clone(),
                    customer: wallet.customer.clone(),
                    currency: wallet.currency.clone(),
                    balance: sum(held.get(wallet)),
                    paid_in: sum(expected.wallets.get(wallet)),
                })
                .collect(),
            checks: checks::all(expected, found),
            seconds: took.as_secs_f64(),
        }
    }

    /// Whether every check holds.
    pub(super) fn verdict(&self) -> Verdict {
        if self.checks.iter().all(|check| check.ok) {
            Verdict::Holds
        } else {
            Verdict::Fails
        }
    }

    /// One object, one line.
    ///
    /// # Errors
    /// Never in practice: every field is a number or a text.
    pub(super) fn json(&self) -> std::io::Result<String> {
        serde_json::to_string(self)
            .map(|text| format!("{text}\n"))
            .map_err(std::io::Error::other)
    }

    /// For a person; what does not hold comes last, where it is seen.
    pub(super) fn text(&self) -> String {
        let mut sagas = table(&["sagas", ""]);
        for status in Status::ALL {
            let count = self.sagas.get(status.as_str()).copied().unwrap_or(0);
            if count > 0 {
                sagas.add_row([status.as_str().to_owned(), count.to_string()]);
            }
        }
        let mut balances = table(&["region", "customer", "currency", "balance", "paid in"]);
        for line in &self.balances {
            balances.add_row([
                &line.region,
                &line.customer,
                &line.currency,
                &line.balance,
                &line.paid_in,
            ]);
        }
        right(&mut sagas, &[1]);
        right(&mut balances, &[3, 4]);
        let mut text = format!(
            "\n{sagas}\n\n{balances}\n\n\
             {} credits stand in the ledgers of all regions, {} deposit events are in the log, \
             {} duplicates were absorbed.\n\n",
            self.credits, self.events, self.duplicates_absorbed
        );
        let mut checks: Vec<&Check> = self.checks.iter().collect();
        checks.sort_by_key(|check| !check.ok);
        for check in &checks {
            let mark = if check.ok { "ok   " } else { "FAILS" };
            text.push_str(&format!("{mark}  {}: {}\n", check.name, check.found));
        }
        let failed = checks.iter().filter(|check| !check.ok).count();
        text.push_str(&match failed {
            0 => format!(
                "\nAll {} checks hold, after {:.1} s.\n",
                checks.len(),
                self.seconds
            ),
            _ => format!("\n{failed} of {} checks FAIL.\n", checks.len()),
        });
        text
    }
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(UTF8_BORDERS_ONLY);
    table.set_header(header.iter().copied());
    table
}

fn right(table: &mut Table, columns: &[usize]) {
    for &column in columns {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}
