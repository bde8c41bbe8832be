//! Payments in SQL: one row for each payment identity, changed only by legal moves, each change an
//! operation that happens once.
//!
//! Every change is one transaction that writes its operation id first. The same id with the same
//! parameters gives the stored answer, for good; with others it is
//! [`PaymentsError::Conflict`]. So a change whose answer was lost is simply asked for again.
//! An error of this module is never a definite "no": those are in the answers ([`Refused`],
//! [`Marked::Refused`]).
//!
//! One implementation serves SQLite (embedded; one connection, so writers queue fairly) and
//! PostgreSQL (READ COMMITTED; the unique keys and row locks decide).

mod columns;
mod connection;
mod directory;
mod error;
mod model;
mod moves;
mod reading;
mod rows;
#[cfg(test)]
mod tests;

pub use error::{AssignError, PaymentsError};
pub use model::{
    Announced, CurrencyTotal, ExpectedPayment, Found, FoundPayment, Marked, Payment, PaymentFilter,
    PaymentStatus, Refused, Totals,
};
pub use reading::{PaymentPage, PaymentPlace};

use crate::callback::{CallbackFact, FactField, PaymentIdentity, short_text};
use crate::regions::{RegionCache, Regions};
use contracts::id::{CustomerId, ExternalId, OperationId, SagaId};
use contracts::money::Money;
use contracts::quote::Quote;
use error::failed;
use jiff::Timestamp;
use moves::{Find, Mark, Move};
use rows::Lock;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};
use sqlx::any::AnyPoolOptions;
use sqlx::pool::PoolConnection;
use sqlx::{Any, AnyPool, Transaction};

/// How often a change is decided again when another one came between reading and writing.
const ROUNDS: usize = 8;

/// Most payments that one page lists.
pub const PAGE: u32 = 200;

static SQLITE_MIGRATIONS: sqlx::migrate::Migrator = sqlx::migrate!("../migrations/core/sqlite");
static POSTGRES_MIGRATIONS: sqlx::migrate::Migrator = sqlx::migrate!("../migrations/core/postgres");

/// The payments database, and the regions that payments are pinned to.
#[derive(Debug, Clone)]
pub struct Payments {
    pool: AnyPool,
    dialect: Dialect,
    regions: Regions,
    cache: RegionCache,
}

/// Where the two databases differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    Sqlite,
    Postgres,
}

impl Payments {
    /// Connects and brings the schema up to date.
    ///
    /// # Errors
    /// [`PaymentsError`].
    pub async fn open(
        url: &str,
        max_connections: u32,
        regions: Regions,
        cache: RegionCache,
    ) -> Result<Self, PaymentsError> {
        sqlx::any::install_default_drivers();
        let dialect = Dialect::of(url)?;
        let options = match dialect {
            // One connection: writers wait in the pool's fair queue and not in SQLite's retries.
            Dialect::Sqlite => AnyPoolOptions::new()
                .max_connections(1)
                .idle_timeout(None)
                .max_lifetime(None),
            Dialect::Postgres => AnyPoolOptions::new().max_connections(max_connections),
        };
        let pool = options
            .after_connect(move |connection, _| Box::pin(rows::prepare(connection, dialect)))
            .connect(&connection::created_when_missing(url))
            .await
            .map_err(failed("connecting"))?;
        let migrations = match dialect {
            Dialect::Sqlite => &SQLITE_MIGRATIONS,
            Dialect::Postgres => &POSTGRES_MIGRATIONS,
        };
        if migrations.run(&pool).await.is_err() {
            // SQLite has no lock for this: a replica that starts at the same moment may have been first.
            migrations
                .run(&pool)
                .await
                .map_err(PaymentsError::Migrate)?;
        }
        Ok(Self {
            pool,
            dialect,
            regions,
            cache,
        })
    }

    /// Takes the payment of a fact for a saga, making its row if there is none.
    ///
    /// A row made beforehand by the platform, or known from earlier, is compared with the fact; a
    /// contradiction is a definite [`Refused::Mismatch`]. A missing customer comes from that row, by
    /// external id or by our reference. A saga that waited for money calls this again, under
    /// another operation id, with the fact that it waited for, and credits only upon
    /// [`FoundPayment::may_credit`].
    ///
    /// # Errors
    /// [`PaymentsError`].
    pub async fn find_or_create(
        &self,
        operation: &OperationId,
        saga_id: &SagaId,
        fact: &CallbackFact,
        now: Timestamp,
    ) -> Result<Found, PaymentsError> {
        if fact.meaning.is_reversal() {
            return Ok(Found::Refused(Refused::NotADeposit));
        }
        if let Some(field) = unstorable(fact) {
            return Ok(Found::Refused(Refused::BadText {
                field: field.to_owned(),
            }));
        }
        let digest = digest(&("find_or_create", saga_id, fact))?;
        for _ in 0..ROUNDS {
            let round = self.find_round(operation, &digest, saga_id, fact, now);
            if let Some(found) = round.await? {
                return Ok(found);
            }
        }
        Err(PaymentsError::Contended)
    }

    /// Marks the payment as credited: `quote` is of the sum that came in, `credited` what the wallet
    /// booked. Legal for the saga that took it.
    ///
    /// # Errors
    /// [`PaymentsError`].
    pub async fn mark_successful(
        &self,
        operation: &OperationId,
        saga_id: &SagaId,
        payment: &PaymentIdentity,
        quote: &Quote,
        credited: Money,
        now: Timestamp,
    ) -> Result<Marked, PaymentsError> {
        let mark = Mark::Successful { quote, credited };
        self.mark(operation, saga_id, payment, mark, now).await
    }

    /// Marks the payment as failed: no money came, or its own saga has taken the credit back. On a
    /// payment never seen it leaves a row, which a late `find_or_create` of this saga then meets.
    ///
    /// # Errors
    /// [`PaymentsError`].
    pub async fn mark_failed(
        &self,
        operation: &OperationId,
        saga_id: &SagaId,
        payment: &PaymentIdentity,
        reason: &str,
        now: Timestamp,
    ) -> Result<Marked, PaymentsError> {
        let reason = short_text(reason);
        let mark = Mark::Failed { reason };
        self.mark(operation, saga_id, payment, mark, now).await
    }

    /// Marks the payment as cancelled; otherwise as [`mark_failed`](Self::mark_failed).
    ///
    /// # Errors
    /// [`PaymentsError`].
    pub async fn mark_cancelled(
        &self,
        operation: &OperationId,
        saga_id: &SagaId,
        payment: &PaymentIdentity,
        reason: &str,
        now: Timestamp,
    ) -> Result<Marked, PaymentsError> {
        let reason = short_text(reason);
        let mark = Mark::Cancelled { reason };
        self.mark(operation, saga_id, payment, mark, now).await
    }

    /// Marks the payment as one that a person has to look at.
    ///
    /// # Errors
    /// [`PaymentsError`].
    pub async fn mark_review(
        &self,
        operation: &OperationId,
        saga_id: &SagaId,
        payment: &PaymentIdentity,
        reason: &str,
        now: Timestamp,
    ) -> Result<Marked, PaymentsError> {
        let reason = short_text(reason);
        let mark = Mark::Review { reason };
        self.mark(operation, saga_id, payment, mark, now).await
    }

    /// Announces a payment before its callback; what it states is compared with every fact about it.
    /// Idempotent. One that a callback has already made is met, and never changed.
    ///
    /// # Errors
    /// [`PaymentsError`].
    pub async fn create_expected(
        &self,
        expected: &ExpectedPayment,
        now: Timestamp,
    ) -> Result<Announced, PaymentsError> {
        if expected.external_id.is_none() && expected.merchant_reference.is_none() {
            return Ok(Announced::WithoutId);
        }
        for _ in 0..ROUNDS {
            if let Some(announced) = self.announce_round(expected, now).await? {
                return Ok(announced);
            }
        }
        Err(PaymentsError::Contended)
    }

    /// The payment of this identity.
    ///
    /// # Errors
    /// [`PaymentsError`].
    pub async fn get(&self, payment: &PaymentIdentity) -> Result<Option<Payment>, PaymentsError> {
        let mut connection = self.connection().await?;
        rows::payment(&mut connection, payment, Lock::None).await
    }

    /// A page of payments, in the order of their ids; at most [`PAGE`].
    ///
    /// # Errors
    /// [`PaymentsError`].
    pub async fn list(&self, filter: &PaymentFilter) -> Result<Vec<Payment>, PaymentsError> {
        rows::list(&mut *self.connection().await?, filter).await
    }

    /// What reconciliation compares with the wallets.
    ///
    /// # Errors
    /// [`PaymentsError`].
    pub async fn totals(&self) -> Result<Totals, PaymentsError> {
        rows::totals(&mut *self.connection().await?).await
    }

    async fn find_round(
        &self,
        operation: &OperationId,
        digest: &str,
        saga_id: &SagaId,
        fact: &CallbackFact,
        now: Timestamp,
    ) -> Result<Option<Found>, PaymentsError> {
        let customer = self.customer_of(fact).await?;
        let region = match (&fact.region, &customer) {
            (Some(region), _) => region.clone(),
            (None, Some(customer)) => self.region_of(customer).await?,
            (None, None) => self.regions.default_region().clone(),
        };
        let mut tx = self.begin().await?;
        if let Some(answer) = rows::claim(&mut tx, operation, digest, now).await? {
            return parse_answer(&answer).map(Some);
        }
        let stored = rows::payment(&mut tx, &fact.payment, self.lock()).await?;
        let expected = rows::expected(&mut tx, fact).await?;
        let find = Find {
            saga_id,
            fact,
            expected: expected.as_ref(),
            region,
            now,
        };
        let mut moved = moves::find(stored.as_ref(), &find);
        if let Found::Payment(found) = &moved.answer {
            // The region was looked up for the customer as known before the transaction.
            if fact.region.is_none() && customer.as_ref() != Some(&found.customer) {
                return Ok(None);
            }
            if !self.regions.is_known(&found.region) {
                moved = Move {
                    row: None,
                    answer: Found::Refused(Refused::UnknownRegion {
                        region: found.region.clone(),
                    }),
                };
            }
        }
        if moved.row.is_some()
            && fact.meaning.is_paid()
            && !rows::claim_mode(&mut tx, &fact.payment).await?
        {
            moved = Move {
                row: None,
                answer: Found::Refused(Refused::Mismatch {
                    fields: vec![FactField::CaptureId],
                    message: "the payment is credited as a whole or capture by capture, not both"
                        .to_owned(),
                }),
            };
        }
        finish(tx, operation, stored.is_some(), moved).await
    }

    async fn mark(
        &self,
        operation: &OperationId,
        saga_id: &SagaId,
        payment: &PaymentIdentity,
        mark: Mark<'_>,
        now: Timestamp,
    ) -> Result<Marked, PaymentsError> {
        let digest = digest(&(&mark, saga_id, payment))?;
        for _ in 0..ROUNDS {
            let mut tx = self.begin().await?;
            if let Some(answer) = rows::claim(&mut tx, operation, &digest, now).await? {
                return parse_answer(&answer);
            }
            let stored = rows::payment(&mut tx, payment, self.lock()).await?;
            let moved = moves::mark(stored.as_ref(), saga_id, payment, &mark, now);
            if let Some(marked) = finish(tx, operation, stored.is_some(), moved).await? {
                return Ok(marked);
            }
        }
        Err(PaymentsError::Contended)
    }

    async fn announce_round(
        &self,
        expected: &ExpectedPayment,
        now: Timestamp,
    ) -> Result<Option<Announced>, PaymentsError> {
        let mut tx = self.begin().await?;
        let mut fields = Vec::new();
        if let Some(external_id) = &expected.external_id {
            let identity = PaymentIdentity {
                provider: expected.provider.clone(),
                account: expected.account.clone(),
                external_id: external_id.clone(),
                capture_id: None,
            };
            match rows::payment(&mut tx, &identity, self.lock()).await? {
                Some(row) => fields.extend(expected.differs_from_row(&row)),
                None => {
                    if !rows::insert(&mut tx, &expected.as_row(identity, now)).await? {
                        return Ok(None);
                    }
                }
            }
        }
        if expected.merchant_reference.is_some() {
            fields.extend(rows::announce(&mut tx, expected, now).await?);
        }
        commit(tx).await?;
        fields.sort_unstable();
        fields.dedup();
        Ok(Some(if fields.is_empty() {
            Announced::Stored
        } else {
            Announced::Differs { fields }
        }))
    }

    /// The customer as far as known before the transaction, to look his region up.
    async fn customer_of(&self, fact: &CallbackFact) -> Result<Option<CustomerId>, PaymentsError> {
        if fact.customer.is_some() || fact.region.is_some() {
            return Ok(fact.customer.clone());
        }
        let mut connection = self.connection().await?;
        let row = rows::payment(&mut connection, &fact.payment, Lock::None).await?;
        if let Some(customer) = row.and_then(|row| row.customer) {
            return Ok(Some(customer));
        }
        let expected = rows::expected(&mut connection, fact).await?;
        Ok(expected.and_then(|expected| expected.customer))
    }

    fn lock(&self) -> Lock {
        match self.dialect {
            Dialect::Sqlite => Lock::None,
            Dialect::Postgres => Lock::ForUpdate,
        }
    }

    async fn connection(&self) -> Result<PoolConnection<Any>, PaymentsError> {
        self.pool.acquire().await.map_err(failed("connecting"))
    }

    async fn begin(&self) -> Result<Transaction<'static, Any>, PaymentsError> {
        let begin = match self.dialect {
            // A transaction that begins as a reader could fail when it turns into a writer.
            Dialect::Sqlite => "BEGIN IMMEDIATE",
            Dialect::Postgres => "BEGIN ISOLATION LEVEL READ COMMITTED",
        };
        self.pool
            .begin_with(begin)
            .await
            .map_err(failed("beginning a transaction"))
    }
}

/// Stores the row and the answer and commits; `None` when somebody else made the row meanwhile.
async fn finish<T: Serialize>(
    mut tx: Transaction<'static, Any>,
    operation: &OperationId,
    exists: bool,
    moved: Move<T>,
) -> Result<Option<T>, PaymentsError> {
    match &moved.row {
        Some(row) if exists => rows::update(&mut tx, row).await?,
        Some(row) if !rows::insert(&mut tx, row).await? => return Ok(None),
        Some(_) | None => {}
    }
    let answer = to_json(&moved.answer)?;
    rows::settle(&mut tx, operation, &answer).await?;
    commit(tx).await?;
    Ok(Some(moved.answer))
}

async fn commit(tx: Transaction<'static, Any>) -> Result<(), PaymentsError> {
    tx.commit().await.map_err(failed("committing"))
}

fn digest<T: Serialize>(parameters: &T) -> Result<String, PaymentsError> {
    to_json(parameters).map(|json| hex::encode(Sha256::digest(json)))
}

fn to_json<T: Serialize>(value: &T) -> Result<String, PaymentsError> {
    serde_json::to_string(value).map_err(|error| PaymentsError::Corrupt {
        what: "an answer to be stored",
        message: error.to_string(),
    })
}

fn parse_answer<T: DeserializeOwned>(json: &str) -> Result<T, PaymentsError> {
    serde_json::from_str(json).map_err(|error| PaymentsError::Corrupt {
        what: "a stored answer",
        message: error.to_string(),
    })
}

/// The field, if any, whose text PostgreSQL would not take.
fn unstorable(fact: &CallbackFact) -> Option<&'static str> {
    let payment = &fact.payment;
    [
        ("account", Some(payment.account.as_str())),
        ("external_id", Some(payment.external_id.as_str())),
        (
            "capture_id",
            payment.capture_id.as_ref().map(ExternalId::as_str),
        ),
        ("customer", fact.customer.as_ref().map(CustomerId::as_str)),
        (
            "merchant_reference",
            fact.merchant_reference.as_ref().map(ExternalId::as_str),
        ),
    ]
    .into_iter()
    .find(|(_, text)| text.is_some_and(|text| text.contains('\0')))
    .map(|(field, _)| field)
}
