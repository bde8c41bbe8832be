//! What `get` reads.

use super::{Ledger, LedgerError, rows, text};
use contracts::command::Movement;
use contracts::id::{CustomerId, OperationId};
use contracts::money::Money;
use contracts::reply::{EntryView, WalletView};
use sqlx::any::AnyRow;

const BALANCES: &str = "SELECT currency, exponent, balance_minor FROM accounts \
     WHERE owner_kind = 'customer' AND owner_key = $1 ORDER BY currency";

const ENTRIES: &str = "SELECT o.operation_id, a.currency, a.exponent, e.amount_minor, e.booked_at \
     FROM entries e JOIN accounts a ON a.account_id = e.account_id \
     JOIN operations o ON o.operation_key = e.operation_key \
     WHERE a.owner_kind = 'customer' AND a.owner_key = $1 ORDER BY e.entry_id DESC LIMIT 100";

/// Bytes of operation ids in one view at most: an answer must fit one message of a server's default
/// size, and an operation id may have 12 KiB.
const MAX_IDS_LEN: usize = 256 * 1024;

impl Ledger {
    /// An operation as stored.
    ///
    /// # Errors
    /// [`LedgerError::Busy`], [`LedgerError::Unavailable`] or [`LedgerError::Corrupt`].
    pub async fn view_operation(
        &self,
        operation_id: &OperationId,
    ) -> Result<WalletView, LedgerError> {
        let row = sqlx::query(rows::OPERATION)
            .bind(operation_id.key())
            .fetch_optional(&self.reader)
            .await
            .map_err(LedgerError::of_statement)?;
        match row {
            Some(row) => rows::operation_view(&row).map(WalletView::Operation),
            None => Ok(WalletView::UnknownOperation {
                operation_id: operation_id.clone(),
            }),
        }
    }

    /// A customer's balances and latest entries; none for an unknown customer.
    ///
    /// # Errors
    /// [`LedgerError::Busy`], [`LedgerError::Unavailable`] or [`LedgerError::Corrupt`].
    pub async fn view_wallet(&self, customer: &CustomerId) -> Result<WalletView, LedgerError> {
        let mut entries = Vec::new();
        let mut ids_len = 0;
        for row in sqlx::query(ENTRIES)
            .bind(customer.key())
            .fetch_all(&self.reader)
            .await
            .map_err(LedgerError::of_statement)?
        {
            let entry = entry(&row)?;
            ids_len += entry.operation_id.as_str().len();
            if ids_len > MAX_IDS_LEN {
                break;
            }
            entries.push(entry);
        }
        Ok(WalletView::Wallet {
            customer: customer.clone(),
            balances: self.balances_of(customer).await?,
            entries,
        })
    }

    pub(super) async fn balances_of(
        &self,
        customer: &CustomerId,
    ) -> Result<Vec<Money>, LedgerError> {
        sqlx::query(BALANCES)
            .bind(customer.key())
            .fetch_all(&self.reader)
            .await
            .map_err(LedgerError::of_statement)?
            .iter()
            .map(|row| rows::money(row, "balance_minor"))
            .collect()
    }
}

fn entry(row: &AnyRow) -> Result<EntryView, LedgerError> {
    let amount = rows::money(row, "amount_minor")?;
    let minor = amount
        .amount_minor()
        .checked_abs()
        .ok_or_else(|| LedgerError::Corrupt("an entry out of range".to_owned()))?;
    let operation_id: String = rows::get(row, "operation_id")?;
    Ok(EntryView {
        operation_id: text::unescape(&operation_id)?
            .parse()
            .map_err(rows::corrupt_id)?,
        movement: if amount.is_positive() {
            Movement::Credit
        } else {
            Movement::Debit
        },
        money: Money::new(minor, amount.currency()),
        booked_at: text::from_time(&rows::get::<String>(row, "booked_at")?)?,
    })
}
