//! Wallets as a person opens, closes and shows them.

use super::{Ledger, LedgerError, rows, text};
use crate::participant::WalletState;
use contracts::id::CustomerId;
use contracts::money::{CurrencyCode, Money};
use jiff::Timestamp;

/// Opens, or opens again; a currency restriction is set anew each time.
const OPEN: &str = "INSERT INTO wallets (customer_key, customer_id, state, sole_currency, opened_at) \
     VALUES ($1, $2, 'open', $3, $4) ON CONFLICT (customer_key) DO UPDATE SET \
     state = 'open', sole_currency = excluded.sole_currency, closed_at = NULL";

const CLOSE: &str = "UPDATE wallets SET state = 'closed', closed_at = $2 WHERE customer_key = $1 AND state = 'open'";

const SHOW: &str =
    "SELECT state, sole_currency, opened_at, closed_at FROM wallets WHERE customer_key = $1";

/// A wallet as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WalletInfo {
    /// Whose.
    pub customer: CustomerId,
    /// Open or closed.
    pub state: WalletState,
    /// The only currency it takes, when restricted.
    pub sole_currency: Option<CurrencyCode>,
    /// First opened.
    pub opened_at: Timestamp,
    /// Last closed, while it is closed.
    pub closed_at: Option<Timestamp>,
    /// One per currency.
    pub balances: Vec<Money>,
}

impl Ledger {
    /// Opens a customer's wallet, or opens a closed one again. `sole_currency` restricts it to one
    /// currency from now on; `None` lifts a restriction. Waits for a movement in progress.
    ///
    /// # Errors
    /// [`LedgerError::Busy`] or [`LedgerError::Unavailable`].
    pub async fn open_wallet(
        &self,
        customer: &CustomerId,
        sole_currency: Option<CurrencyCode>,
        now: Timestamp,
    ) -> Result<(), LedgerError> {
        sqlx::query(OPEN)
            .bind(customer.key())
            .bind(text::escape(customer.as_str()))
            .bind(sole_currency.map(String::from))
            .bind(text::time(now))
            .execute(&self.writer)
            .await
            .map(drop)
            .map_err(LedgerError::of_statement)
    }

    /// Closes a customer's wallet: every movement, compensations included, is refused until it is
    /// opened again. Its balance stays. Closing a closed wallet changes nothing.
    ///
    /// # Errors
    /// [`LedgerError::NoWallet`], [`LedgerError::Busy`] or [`LedgerError::Unavailable`].
    pub async fn close_wallet(
        &self,
        customer: &CustomerId,
        now: Timestamp,
    ) -> Result<(), LedgerError> {
        let closed = sqlx::query(CLOSE)
            .bind(customer.key())
            .bind(text::time(now))
            .execute(&self.writer)
            .await
            .map_err(LedgerError::of_statement)?
            .rows_affected();
        if closed == 0 && self.show_wallet(customer).await?.is_none() {
            return Err(LedgerError::NoWallet(customer.clone()));
        }
        Ok(())
    }

    /// A customer's wallet, if he has one.
    ///
    /// # Errors
    /// [`LedgerError::Busy`], [`LedgerError::Unavailable`] or [`LedgerError::Corrupt`].
    pub async fn show_wallet(
        &self,
        customer: &CustomerId,
    ) -> Result<Option<WalletInfo>, LedgerError> {
        let Some(row) = sqlx::query(SHOW)
            .bind(customer.key())
            .fetch_optional(&self.reader)
            .await
            .map_err(LedgerError::of_statement)?
        else {
            return Ok(None);
        };
        let sole_currency: Option<String> = rows::get(&row, "sole_currency")?;
        let closed_at: Option<String> = rows::get(&row, "closed_at")?;
        Ok(Some(WalletInfo {
            customer: customer.clone(),
            state: rows::wallet_state(&rows::get::<String>(&row, "state")?)?,
            sole_currency: sole_currency
                .map(|code| rows::currency_code(&code))
                .transpose()?,
            opened_at: text::from_time(&rows::get::<String>(&row, "opened_at")?)?,
            closed_at: closed_at.map(|at| text::from_time(&at)).transpose()?,
            balances: self.balances_of(customer).await?,
        }))
    }
}
