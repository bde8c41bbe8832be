//! One operation's transaction: claim, load under lock, write, commit.

use super::{Dialect, LedgerError, PROVIDER_CLEARING, rows, text};
use crate::participant::{
    AccountState, Booking, Parameters, Recorded, StoredOperation, TargetChange,
};
use contracts::command::{CommandHeader, Movement};
use contracts::id::{CustomerId, OperationId, SagaId};
use contracts::money::{Currency, CurrencyCode};
use contracts::reply::{OperationState, WalletReply};
use jiff::Timestamp;
use sqlx::any::AnyRow;

/// Raises a saga's fence and gives it back, or gives nothing when it was as high already. Locks the
/// row either way (PostgreSQL), so that the commands of one saga are compared one after the other.
const RAISE_FENCE: &str = "INSERT INTO saga_fences (saga_key, saga_id, fence) VALUES ($1, $2, $3) \
     ON CONFLICT (saga_key) DO UPDATE SET fence = excluded.fence \
     WHERE saga_fences.fence < excluded.fence RETURNING fence";

const SELECT_FENCE: &str = "SELECT fence FROM saga_fences WHERE saga_key = $1";

const CLAIM: &str = "INSERT INTO operations (operation_key, operation_id, saga_id, kind, state, movement, \
     params_digest, params, memo, fence, attempt, created_at, updated_at) \
     VALUES ($1, $2, $3, $4, 'claimed', $5, $6, $7, $8, $9, $10, $11, $11) \
     ON CONFLICT (operation_key) DO NOTHING";

const FINISH: &str = "UPDATE operations SET state = $2, reply = $3, updated_at = $4 \
     WHERE operation_key = $1 AND state = 'claimed'";

const MARK_REVERTED: &str = "UPDATE operations SET state = 'reverted', reverted_by = $2, updated_at = $3 \
     WHERE operation_key = $1 AND state = 'applied'";

const OPEN_WALLET: &str = "INSERT INTO wallets (customer_key, customer_id, state, opened_at) \
     VALUES ($1, $2, 'open', $3) ON CONFLICT (customer_key) DO NOTHING";

const SELECT_WALLET: &str = "SELECT state, sole_currency FROM wallets WHERE customer_key = $1";

const SELECT_ACCOUNT: &str = "SELECT currency, exponent, balance_minor FROM accounts \
     WHERE owner_kind = 'customer' AND owner_key = $1 AND currency = $2";

const INSERT_ACCOUNT: &str = "INSERT INTO accounts (owner_kind, owner_key, currency, exponent, balance_minor) \
     VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING";

const SET_BALANCE: &str = "UPDATE accounts SET balance_minor = $4 WHERE owner_kind = 'customer' AND owner_key = $1 \
     AND currency = $2 AND exponent = $3 AND balance_minor = $5 RETURNING account_id";

const SELECT_SYSTEM_ACCOUNT: &str = "SELECT account_id FROM accounts WHERE owner_kind = 'system' AND owner_key = $1 \
     AND currency = $2 AND exponent = $3";

const INSERT_ENTRIES: &str = "INSERT INTO entries (operation_key, account_id, amount_minor, reverses_key, booked_at) \
     VALUES ($1, $2, $3, $4, $5), ($1, $6, $7, $4, $5)";

/// A transaction in which one operation is executed. Dropped without [`Transaction::commit`], it
/// leaves nothing behind.
pub(crate) struct Transaction {
    sql: sqlx::Transaction<'static, sqlx::Any>,
    dialect: Dialect,
}

/// What is known of a saga's fence.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SeenFence {
    /// The highest seen, this command's included; 0 for a command without a saga.
    pub(crate) highest: u64,
    /// This command's is higher than any before and must be kept, whatever becomes of the command.
    pub(crate) raised: bool,
}

/// Whether an operation id is ours to decide on.
#[derive(Debug)]
pub(crate) enum Claim {
    /// Never seen before; its row is ours until the transaction ends.
    Ours,
    /// Stored already.
    Stored(Box<StoredOperation>),
}

impl Transaction {
    pub(super) fn new(sql: sqlx::Transaction<'static, sqlx::Any>, dialect: Dialect) -> Self {
        Self { sql, dialect }
    }

    /// Remembers the saga's fence unless one as high is known.
    pub(crate) async fn raise_fence(
        &mut self,
        saga: &SagaId,
        fence: u64,
    ) -> Result<SeenFence, LedgerError> {
        let raised = sqlx::query(RAISE_FENCE)
            .bind(saga.key())
            .bind(text::escape(saga.as_str()))
            .bind(signed(fence)?)
            .fetch_optional(&mut *self.sql)
            .await
            .map_err(LedgerError::of_statement)?;
        if raised.is_some() {
            return Ok(SeenFence {
                highest: fence,
                raised: true,
            });
        }
        let row = sqlx::query(SELECT_FENCE)
            .bind(saga.key())
            .fetch_one(&mut *self.sql)
            .await
            .map_err(LedgerError::of_statement)?;
        let highest = u64::try_from(rows::get::<i64>(&row, "fence")?)
            .map_err(|error| LedgerError::Corrupt(format!("fence: {error}")))?;
        Ok(SeenFence {
            highest,
            raised: false,
        })
    }

    /// Claims an id for `parameters`, or finds (and locks) what is stored under it. Waits for a
    /// transaction that holds the same claim.
    pub(crate) async fn claim(
        &mut self,
        id: &OperationId,
        parameters: &Parameters,
        header: &CommandHeader,
        memo: Option<&str>,
        now: Timestamp,
    ) -> Result<Claim, LedgerError> {
        let columns = rows::ParameterColumns::new(parameters)?;
        let inserted = sqlx::query(CLAIM)
            .bind(id.key())
            .bind(text::escape(id.as_str()))
            .bind(
                header
                    .saga_id
                    .as_ref()
                    .map(|saga| text::escape(saga.as_str())),
            )
            .bind(columns.kind)
            .bind(columns.movement)
            .bind(columns.params_digest)
            .bind(columns.params)
            .bind(memo.map(text::escape))
            .bind(signed(header.fence)?)
            .bind(i64::from(header.attempt))
            .bind(text::time(now))
            .execute(&mut *self.sql)
            .await
            .map_err(LedgerError::of_statement)?
            .rows_affected();
        if inserted == 1 {
            return Ok(Claim::Ours);
        }
        let row = sqlx::query(self.dialect.locking(rows::OPERATION))
            .bind(id.key())
            .fetch_one(&mut *self.sql)
            .await
            .map_err(LedgerError::of_statement)?;
        rows::operation(&row).map(|stored| Claim::Stored(Box::new(stored)))
    }

    /// The revert that has offset an update, if one has.
    pub(crate) async fn offset_of(
        &mut self,
        target: &OperationId,
    ) -> Result<Option<StoredOperation>, LedgerError> {
        sqlx::query(
            "SELECT r.kind, r.state, r.params, r.reply FROM operations r \
             JOIN operations t ON r.operation_key = t.reverted_by WHERE t.operation_key = $1",
        )
        .bind(target.key())
        .fetch_optional(&mut *self.sql)
        .await
        .map_err(LedgerError::of_statement)?
        .map(|row| rows::operation(&row))
        .transpose()
    }

    /// Opens the customer's wallet unless there is one.
    pub(crate) async fn open_wallet(
        &mut self,
        customer: &CustomerId,
        now: Timestamp,
    ) -> Result<(), LedgerError> {
        sqlx::query(OPEN_WALLET)
            .bind(customer.key())
            .bind(text::escape(customer.as_str()))
            .bind(text::time(now))
            .execute(&mut *self.sql)
            .await
            .map(drop)
            .map_err(LedgerError::of_statement)
    }

    /// Locks the customer's wallet and reads it with its account in one currency.
    pub(crate) async fn lock_account(
        &mut self,
        customer: &CustomerId,
        currency: CurrencyCode,
    ) -> Result<AccountState, LedgerError> {
        let Some(wallet) = sqlx::query(self.dialect.locking(SELECT_WALLET))
            .bind(customer.key())
            .fetch_optional(&mut *self.sql)
            .await
            .map_err(LedgerError::of_statement)?
        else {
            return Ok(AccountState::default());
        };
        // A statement of its own, after the lock: it sees what the last holder committed.
        let account = sqlx::query(SELECT_ACCOUNT)
            .bind(customer.key())
            .bind(currency.as_str())
            .fetch_optional(&mut *self.sql)
            .await
            .map_err(LedgerError::of_statement)?;
        let sole_currency: Option<String> = rows::get(&wallet, "sole_currency")?;
        Ok(AccountState {
            wallet: rows::wallet_state(&rows::get::<String>(&wallet, "state")?)?,
            sole_currency: sole_currency
                .map(|code| rows::currency_code(&code))
                .transpose()?,
            balance: account
                .map(|row| rows::money(&row, "balance_minor"))
                .transpose()?,
        })
    }

    /// Writes what was decided about a claimed operation.
    pub(crate) async fn write(
        &mut self,
        id: &OperationId,
        target: Option<&OperationId>,
        recorded: &Recorded,
        now: Timestamp,
    ) -> Result<(), LedgerError> {
        match (recorded.target, target) {
            (TargetChange::Keep, _) => {}
            (TargetChange::Tombstone, Some(target)) => {
                let cancelled = WalletReply::Cancelled {
                    operation_id: target.clone(),
                };
                self.finish(target, OperationState::Tombstoned, &cancelled, now)
                    .await?;
            }
            (TargetChange::MarkReverted, Some(target)) => {
                let marked = sqlx::query(MARK_REVERTED)
                    .bind(target.key())
                    .bind(id.key())
                    .bind(text::time(now))
                    .execute(&mut *self.sql)
                    .await
                    .map_err(LedgerError::of_statement)?
                    .rows_affected();
                one_row(marked, "a revert's target")?;
            }
            (TargetChange::Tombstone | TargetChange::MarkReverted, None) => {
                return Err(LedgerError::Corrupt(format!("{id} has no target")));
            }
        }
        if let Some(booking) = &recorded.booking {
            let reverses = match recorded.target {
                TargetChange::MarkReverted => target,
                TargetChange::Keep | TargetChange::Tombstone => None,
            };
            self.book(id, reverses, booking, now).await?;
        }
        self.finish(id, recorded.state, &recorded.reply, now).await
    }

    /// Makes what was written permanent. An error here leaves the outcome unknown, always.
    pub(crate) async fn commit(self) -> Result<(), LedgerError> {
        self.sql.commit().await.map_err(LedgerError::Unavailable)
    }

    /// Takes back what was written.
    pub(crate) async fn rollback(self) -> Result<(), LedgerError> {
        self.sql.rollback().await.map_err(LedgerError::of_statement)
    }

    async fn finish(
        &mut self,
        id: &OperationId,
        state: OperationState,
        reply: &WalletReply,
        now: Timestamp,
    ) -> Result<(), LedgerError> {
        let finished = sqlx::query(FINISH)
            .bind(id.key())
            .bind(rows::state_text(state))
            .bind(text::json(reply)?)
            .bind(text::time(now))
            .execute(&mut *self.sql)
            .await
            .map_err(LedgerError::of_statement)?
            .rows_affected();
        one_row(finished, "a claimed operation")
    }

    async fn book(
        &mut self,
        id: &OperationId,
        reverses: Option<&OperationId>,
        booking: &Booking,
        now: Timestamp,
    ) -> Result<(), LedgerError> {
        let currency = booking.money.currency();
        let amount = match booking.movement {
            Movement::Credit => booking.money.amount_minor(),
            Movement::Debit => -booking.money.amount_minor(),
        };
        let customer_account = self.set_balance(booking, amount).await?;
        let system_account = self.system_account(currency).await?;
        sqlx::query(INSERT_ENTRIES)
            .bind(id.key())
            .bind(customer_account)
            .bind(amount)
            .bind(reverses.map(OperationId::key))
            .bind(text::time(now))
            .bind(system_account)
            .bind(-amount)
            .execute(&mut *self.sql)
            .await
            .map(drop)
            .map_err(LedgerError::of_statement)
    }

    /// Moves the stored balance from what it was when decided on; anything else is corruption, as
    /// the wallet is locked.
    async fn set_balance(&mut self, booking: &Booking, amount: i64) -> Result<i64, LedgerError> {
        let currency = booking.money.currency();
        let before = booking
            .balance
            .amount_minor()
            .checked_sub(amount)
            .ok_or_else(|| LedgerError::Corrupt("a balance out of range".to_owned()))?;
        if before == 0 {
            self.insert_account("customer", &booking.customer.key(), currency, Some(0))
                .await?;
        }
        let row = sqlx::query(SET_BALANCE)
            .bind(booking.customer.key())
            .bind(currency.code().as_str())
            .bind(i64::from(currency.exponent()))
            .bind(booking.balance.amount_minor())
            .bind(before)
            .fetch_optional(&mut *self.sql)
            .await
            .map_err(LedgerError::of_statement)?;
        account_id(row)?.ok_or_else(|| {
            LedgerError::Corrupt(format!("{} has no such balance", booking.customer))
        })
    }

    /// The clearing account in one currency, made on first use.
    async fn system_account(&mut self, currency: Currency) -> Result<i64, LedgerError> {
        if let Some(id) = self.find_system_account(currency).await? {
            return Ok(id);
        }
        self.insert_account("system", PROVIDER_CLEARING, currency, None)
            .await?;
        self.find_system_account(currency).await?.ok_or_else(|| {
            LedgerError::Corrupt(format!("no {PROVIDER_CLEARING} in {}", currency.code()))
        })
    }

    async fn find_system_account(
        &mut self,
        currency: Currency,
    ) -> Result<Option<i64>, LedgerError> {
        let row = sqlx::query(SELECT_SYSTEM_ACCOUNT)
            .bind(PROVIDER_CLEARING)
            .bind(currency.code().as_str())
            .bind(i64::from(currency.exponent()))
            .fetch_optional(&mut *self.sql)
            .await
            .map_err(LedgerError::of_statement)?;
        account_id(row)
    }

    async fn insert_account(
        &mut self,
        owner_kind: &'static str,
        owner_key: &str,
        currency: Currency,
        balance_minor: Option<i64>,
    ) -> Result<(), LedgerError> {
        sqlx::query(INSERT_ACCOUNT)
            .bind(owner_kind)
            .bind(owner_key.to_owned())
            .bind(currency.code().as_str().to_owned())
            .bind(i64::from(currency.exponent()))
            .bind(balance_minor)
            .execute(&mut *self.sql)
            .await
            .map(drop)
            .map_err(LedgerError::of_statement)
    }
}

fn account_id(row: Option<AnyRow>) -> Result<Option<i64>, LedgerError> {
    row.map(|row| rows::get(&row, "account_id")).transpose()
}

fn signed(fence: u64) -> Result<i64, LedgerError> {
    i64::try_from(fence).map_err(|error| LedgerError::Corrupt(format!("fence {fence}: {error}")))
}

fn one_row(found: u64, what: &str) -> Result<(), LedgerError> {
    if found == 1 {
        Ok(())
    } else {
        Err(LedgerError::Corrupt(format!("{found} rows for {what}")))
    }
}
