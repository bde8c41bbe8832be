//! Checks of the books, and counts over them. SQL aggregates and streams; memory does not grow with
//! the ledger.
//!
//! Sums are taken in two halves, `amount / 2^32` and `amount % 2^32`, and put together in `i128`:
//! PostgreSQL would sum to NUMERIC and SQLite would stop on overflow. The remainders alone would
//! need two thousand million entries to leave `i64`.

use super::{Ledger, LedgerError, rows, text};
use contracts::id::CustomerId;
use contracts::money::Money;
use futures::TryStreamExt as _;
use sqlx::AnyPool;
use sqlx::any::AnyRow;
use std::fmt;

/// One thing in the books that must not be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Discrepancy {
    /// The entries of one operation do not sum to zero in one currency.
    Unbalanced {
        /// The operation, as its key.
        operation: String,
        /// Currency code.
        currency: String,
        /// What is left over, in minor units.
        sum_minor: i128,
    },
    /// A stored balance is not the sum of its entries.
    Balance {
        /// The customer, as his key.
        customer: String,
        /// Currency code.
        currency: String,
        /// The stored balance, in minor units.
        balance_minor: i64,
        /// The sum of the entries, in minor units.
        entries_minor: i128,
    },
    /// An operation was left half-executed.
    Claimed {
        /// The operation, as its key.
        operation: String,
    },
    /// An applied update without its entries, or another operation with some.
    Entries {
        /// The operation, as its key.
        operation: String,
        /// Its kind and state.
        state: String,
        /// How many entries it has.
        found: i64,
        /// How many it must have.
        expected: i64,
    },
    /// A reverted update whose entries are not offset one by one, or offset without being reverted.
    Offset {
        /// The update, as its key.
        operation: String,
        /// What is wrong.
        problem: String,
    },
    /// An entry on an account that does not exist.
    Stray {
        /// The entry.
        entry_id: i64,
        /// The operation, as its key.
        operation: String,
    },
}

impl fmt::Display for Discrepancy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unbalanced {
                operation,
                currency,
                sum_minor,
            } => write!(
                f,
                "operation {operation}: entries in {currency} sum to {sum_minor}, not 0"
            ),
            Self::Balance {
                customer,
                currency,
                balance_minor,
                entries_minor,
            } => write!(
                f,
                "customer {customer}: balance {balance_minor} {currency}, entries sum to {entries_minor}"
            ),
            Self::Claimed { operation } => write!(f, "operation {operation}: left claimed"),
            Self::Entries {
                operation,
                state,
                found,
                expected,
            } => write!(
                f,
                "operation {operation} ({state}): {found} entries, not {expected}"
            ),
            Self::Offset { operation, problem } => write!(f, "operation {operation}: {problem}"),
            Self::Stray {
                entry_id,
                operation,
            } => write!(
                f,
                "entry {entry_id} of operation {operation}: on no account"
            ),
        }
    }
}

/// What stands in the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerStats {
    /// Credits applied and not reverted since.
    pub standing_credits: u64,
    /// Debits applied and not reverted since.
    pub standing_debits: u64,
    /// Updates reverted.
    pub reverted: u64,
    /// Updates refused for good.
    pub rejected: u64,
    /// Operations forbidden before they arrived.
    pub tombstones: u64,
    /// Every customer's balances, by customer and currency.
    pub balances: Vec<CustomerBalance>,
}

/// One customer's balance in one currency.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CustomerBalance {
    /// Whose.
    pub customer: CustomerId,
    /// How much.
    pub balance: Money,
}

const CLAIMED: &str = "SELECT operation_key FROM operations WHERE state = 'claimed'";

const UNBALANCED: &str = "SELECT e.operation_key, a.currency, \
     CAST(SUM(e.amount_minor / 4294967296) AS BIGINT) AS high, \
     CAST(SUM(e.amount_minor % 4294967296) AS BIGINT) AS low \
     FROM entries e JOIN accounts a ON a.account_id = e.account_id \
     GROUP BY e.operation_key, a.currency, a.exponent \
     HAVING SUM(e.amount_minor / 4294967296) <> 0 OR SUM(e.amount_minor % 4294967296) <> 0";

const BALANCES: &str = "SELECT a.owner_key, a.currency, a.balance_minor, \
     CAST(COALESCE(SUM(e.amount_minor / 4294967296), 0) AS BIGINT) AS high, \
     CAST(COALESCE(SUM(e.amount_minor % 4294967296), 0) AS BIGINT) AS low \
     FROM accounts a LEFT JOIN entries e ON e.account_id = a.account_id \
     WHERE a.owner_kind = 'customer' \
     GROUP BY a.account_id, a.owner_key, a.currency, a.balance_minor";

/// Two entries for an executed update and for the revert that offset one; none for all others.
const ENTRIES: &str = "SELECT o.operation_key, o.kind, o.state, COUNT(e.entry_id) AS found, \
     CASE WHEN (o.kind = 'update' AND o.state IN ('applied', 'reverted')) OR t.operation_key IS NOT NULL \
     THEN 2 ELSE 0 END AS expected FROM operations o \
     LEFT JOIN entries e ON e.operation_key = o.operation_key \
     LEFT JOIN operations t ON t.reverted_by = o.operation_key \
     GROUP BY o.operation_key, o.kind, o.state, t.operation_key \
     HAVING COUNT(e.entry_id) <> CASE WHEN (o.kind = 'update' AND o.state IN ('applied', 'reverted')) \
     OR t.operation_key IS NOT NULL THEN 2 ELSE 0 END";

const NOT_OFFSET: &str = "SELECT DISTINCT o.operation_key FROM operations o \
     JOIN entries e ON e.operation_key = o.operation_key \
     LEFT JOIN entries r ON r.reverses_key = e.operation_key AND r.account_id = e.account_id \
     AND r.operation_key = o.reverted_by AND r.amount_minor = -e.amount_minor \
     WHERE o.state = 'reverted' AND r.entry_id IS NULL";

const OFFSET_WITHOUT_REVERT: &str = "SELECT DISTINCT e.reverses_key AS operation_key FROM entries e \
     LEFT JOIN operations o ON o.operation_key = e.reverses_key AND o.state = 'reverted' \
     AND o.reverted_by = e.operation_key WHERE e.reverses_key IS NOT NULL AND o.operation_key IS NULL";

const STRAYS: &str = "SELECT e.entry_id, e.operation_key FROM entries e \
     LEFT JOIN accounts a ON a.account_id = e.account_id WHERE a.account_id IS NULL";

const COUNTS: &str = "SELECT kind, state, movement, COUNT(*) AS found FROM operations \
     GROUP BY kind, state, movement";

const ALL_BALANCES: &str = "SELECT w.customer_id, a.currency, a.exponent, a.balance_minor FROM accounts a \
     JOIN wallets w ON w.customer_key = a.owner_key WHERE a.owner_kind = 'customer' \
     ORDER BY w.customer_key, a.currency";

impl Ledger {
    /// Checks the books and gives every discrepancy; none means that they are right. Each check is
    /// one statement and so sees one instant; it may run while movements are booked.
    ///
    /// # Errors
    /// [`LedgerError::Busy`], [`LedgerError::Unavailable`] or [`LedgerError::Corrupt`].
    pub async fn verify(&self) -> Result<Vec<Discrepancy>, LedgerError> {
        let mut found = Vec::new();
        let pool = &self.reader;
        collect(pool, &mut found, CLAIMED, |row| {
            Ok(Some(Discrepancy::Claimed {
                operation: rows::get(row, "operation_key")?,
            }))
        })
        .await?;
        collect(pool, &mut found, UNBALANCED, unbalanced).await?;
        collect(pool, &mut found, BALANCES, balance).await?;
        collect(pool, &mut found, ENTRIES, entries).await?;
        collect(pool, &mut found, NOT_OFFSET, |row| {
            offset(row, "reverted, but not offset entry by entry")
        })
        .await?;
        collect(pool, &mut found, OFFSET_WITHOUT_REVERT, |row| {
            offset(row, "offset by an operation that did not revert it")
        })
        .await?;
        collect(pool, &mut found, STRAYS, |row| {
            Ok(Some(Discrepancy::Stray {
                entry_id: rows::get(row, "entry_id")?,
                operation: rows::get(row, "operation_key")?,
            }))
        })
        .await?;
        Ok(found)
    }

    /// Counts operations by what became of them, and lists all balances.
    ///
    /// # Errors
    /// [`LedgerError::Busy`], [`LedgerError::Unavailable`] or [`LedgerError::Corrupt`].
    pub async fn stats(&self) -> Result<LedgerStats, LedgerError> {
        let mut stats = LedgerStats {
            standing_credits: 0,
            standing_debits: 0,
            reverted: 0,
            rejected: 0,
            tombstones: 0,
            balances: Vec::new(),
        };
        let mut counts = sqlx::query(COUNTS).fetch(&self.reader);
        while let Some(row) = counts.try_next().await.map_err(LedgerError::of_statement)? {
            let kind: String = rows::get(&row, "kind")?;
            let state: String = rows::get(&row, "state")?;
            let movement: Option<String> = rows::get(&row, "movement")?;
            let found = u64::try_from(rows::get::<i64>(&row, "found")?)
                .map_err(|error| LedgerError::Corrupt(error.to_string()))?;
            match (kind.as_str(), state.as_str(), movement.as_deref()) {
                ("update", "applied", Some("credit")) => stats.standing_credits += found,
                ("update", "applied", Some("debit")) => stats.standing_debits += found,
                ("update", "reverted", _) => stats.reverted += found,
                ("update", "rejected", _) => stats.rejected += found,
                ("update", "tombstoned", _) => stats.tombstones += found,
                (_, _, _) => {}
            }
        }
        drop(counts);
        let mut balances = sqlx::query(ALL_BALANCES).fetch(&self.reader);
        while let Some(row) = balances
            .try_next()
            .await
            .map_err(LedgerError::of_statement)?
        {
            stats.balances.push(CustomerBalance {
                customer: text::unescape(&rows::get::<String>(&row, "customer_id")?)?
                    .parse()
                    .map_err(rows::corrupt_id)?,
                balance: rows::money(&row, "balance_minor")?,
            });
        }
        drop(balances);
        Ok(stats)
    }
}

/// Streams the rows of one check.
async fn collect(
    pool: &AnyPool,
    found: &mut Vec<Discrepancy>,
    check: &'static str,
    read: impl Fn(&AnyRow) -> Result<Option<Discrepancy>, LedgerError>,
) -> Result<(), LedgerError> {
    let mut stream = sqlx::query(check).fetch(pool);
    while let Some(row) = stream.try_next().await.map_err(LedgerError::of_statement)? {
        found.extend(read(&row)?);
    }
    Ok(())
}

/// The sum of the two halves.
fn sum(row: &AnyRow) -> Result<i128, LedgerError> {
    let high: i64 = rows::get(row, "high")?;
    let low: i64 = rows::get(row, "low")?;
    Ok(i128::from(high) * (1 << 32) + i128::from(low))
}

fn unbalanced(row: &AnyRow) -> Result<Option<Discrepancy>, LedgerError> {
    let sum_minor = sum(row)?;
    if sum_minor == 0 {
        return Ok(None);
    }
    Ok(Some(Discrepancy::Unbalanced {
        operation: rows::get(row, "operation_key")?,
        currency: rows::get(row, "currency")?,
        sum_minor,
    }))
}

fn balance(row: &AnyRow) -> Result<Option<Discrepancy>, LedgerError> {
    let entries_minor = sum(row)?;
    let balance_minor: i64 = rows::get(row, "balance_minor")?;
    if entries_minor == i128::from(balance_minor) {
        return Ok(None);
    }
    Ok(Some(Discrepancy::Balance {
        customer: rows::get(row, "owner_key")?,
        currency: rows::get(row, "currency")?,
        balance_minor,
        entries_minor,
    }))
}

fn entries(row: &AnyRow) -> Result<Option<Discrepancy>, LedgerError> {
    let kind: String = rows::get(row, "kind")?;
    let state: String = rows::get(row, "state")?;
    Ok(Some(Discrepancy::Entries {
        operation: rows::get(row, "operation_key")?,
        state: format!("{kind}, {state}"),
        found: rows::get(row, "found")?,
        expected: rows::get(row, "expected")?,
    }))
}

fn offset(row: &AnyRow, problem: &str) -> Result<Option<Discrepancy>, LedgerError> {
    Ok(Some(Discrepancy::Offset {
        operation: rows::get(row, "operation_key")?,
        problem: problem.to_owned(),
    }))
}
