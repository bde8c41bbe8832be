//! Adapter: the wallet ledger in SQL, SQLite (embedded) or PostgreSQL, by one set of statements.
//!
//! Insert-first: a transaction begins by inserting the row of its operation id. The unique key makes
//! a second transaction with the same id wait and then find the first one's row, at READ COMMITTED
//! too. Locks are taken in one order: the saga's fence, the operation, a revert's target, the
//! customer's wallet. System accounts have no stored balance and are never locked.
//!
//! Statements use `$1` parameters, `i64` and text only, which both databases take alike through
//! sqlx's `Any`; the one difference is `FOR UPDATE`, which SQLite neither knows nor needs, as its
//! transactions begin with `BEGIN IMMEDIATE` on the only writing connection.

mod admin;
mod error;
mod listing;
mod rows;
mod text;
mod transaction;
mod verify;
mod view;

pub use admin::WalletInfo;
pub use error::LedgerError;
pub use verify::{CustomerBalance, Discrepancy, LedgerStats};

pub(crate) use transaction::{Claim, SeenFence, Transaction};

use sqlx::any::AnyPoolOptions;
use sqlx::{Any, AnyPool, AssertSqlSafe, Executor as _};
use std::time::Duration;

/// The system account on the other side of every customer movement.
pub const PROVIDER_CLEARING: &str = "provider-clearing";

/// Connections to PostgreSQL at most, when nothing else is asked for.
pub const DEFAULT_CONNECTIONS: u32 = 16;

/// How long a transaction waits for a connection or a lock before it gives up, unexecuted.
const WAIT: Duration = Duration::from_secs(5);

/// Own table of applied migrations, as a database may be shared with the orchestrator's payments.
const MIGRATIONS_TABLE: &str = "wallet_migrations";

/// An open ledger. Cheap to clone; clones share the connections.
#[derive(Debug, Clone)]
pub struct Ledger {
    dialect: Dialect,
    /// Where transactions run. SQLite: one connection, as it has one writer anyway.
    writer: AnyPool,
    /// Where views are read.
    reader: AnyPool,
}

/// Which database is behind a ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// Embedded.
    Sqlite,
    /// A server.
    Postgres,
}

impl Ledger {
    /// Opens `sqlite:///path.db` (created when missing), `sqlite::memory:` or `postgres://…` and
    /// brings its tables to this build's version.
    ///
    /// # Errors
    /// [`LedgerError::Url`], [`LedgerError::Open`] or [`LedgerError::Migrate`].
    pub async fn open(url: &str) -> Result<Self, LedgerError> {
        Self::open_with(url, DEFAULT_CONNECTIONS).await
    }

    /// Like [`Ledger::open`], with at most so many connections to PostgreSQL.
    ///
    /// # Errors
    /// [`LedgerError::Url`], [`LedgerError::Open`] or [`LedgerError::Migrate`].
    pub async fn open_with(url: &str, connections: u32) -> Result<Self, LedgerError> {
        sqlx::any::install_default_drivers();
        let ledger = if url.starts_with("sqlite:") {
            Self::open_sqlite(url).await?
        } else if url.starts_with("postgres:") || url.starts_with("postgresql:") {
            Self::open_postgres(url, connections).await?
        } else {
            return Err(LedgerError::Url(without_password(url)));
        };
        ledger.migrate().await?;
        Ok(ledger)
    }

    async fn open_sqlite(url: &str) -> Result<Self, LedgerError> {
        let in_memory = url.contains(":memory:") || url.contains("mode=memory");
        let url = if in_memory || url.contains("mode=") {
            url.to_owned()
        } else if url.contains('?') {
            format!("{url}&mode=rwc")
        } else {
            format!("{url}?mode=rwc")
        };
        // FULL: in WAL mode anything less may lose a committed transaction when the power fails.
        let writer = sqlite_pool(1)
            .after_connect(|connection, _| {
                Box::pin(async move {
                    connection
                        .execute(
                            "PRAGMA busy_timeout = 5000; PRAGMA journal_mode = WAL; \
                             PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;",
                        )
                        .await?;
                    Ok(())
                })
            })
            .connect(&url)
            .await
            .map_err(LedgerError::Open)?;
        // A second connection to `:memory:` would see another, empty database.
        let reader = if in_memory {
            writer.clone()
        } else {
            sqlite_pool(4)
                .min_connections(0)
                .after_connect(|connection, _| {
                    Box::pin(async move {
                        connection
                            .execute("PRAGMA busy_timeout = 5000; PRAGMA query_only = ON;")
                            .await?;
                        Ok(())
                    })
                })
                .connect_lazy(&url)
                .map_err(LedgerError::Open)?
        };
        Ok(Self {
            dialect: Dialect::Sqlite,
            writer,
            reader,
        })
    }

    async fn open_postgres(url: &str, connections: u32) -> Result<Self, LedgerError> {
        // What a commit acknowledges must be on disk whatever the server's default; a stronger
        // setting such as remote_apply is left alone. READ COMMITTED is what the statements are
        // written for. The timeouts keep one stuck transaction from holding all connections.
        let pool = AnyPoolOptions::new()
            .max_connections(connections.max(1))
            .acquire_timeout(WAIT)
            .after_connect(|connection, _| {
                Box::pin(async move {
                    connection
                        .execute(
                            "SET default_transaction_isolation = 'read committed'; \
                             SET lock_timeout = '5s'; SET statement_timeout = '30s'; \
                             SET idle_in_transaction_session_timeout = '30s'; \
                             SELECT set_config('synchronous_commit', 'on', false) \
                             WHERE current_setting('synchronous_commit') = 'off';",
                        )
                        .await?;
                    Ok(())
                })
            })
            .connect(url)
            .await
            .map_err(LedgerError::Open)?;
        Ok(Self {
            dialect: Dialect::Postgres,
            writer: pool.clone(),
            reader: pool,
        })
    }

    async fn migrate(&self) -> Result<(), LedgerError> {
        let mut migrator = match self.dialect {
            Dialect::Sqlite => sqlx::migrate!("../migrations/wallet/sqlite"),
            Dialect::Postgres => sqlx::migrate!("../migrations/wallet/postgres"),
        };
        migrator.dangerous_set_table_name(MIGRATIONS_TABLE);
        if migrator.run(&self.writer).await.is_ok() {
            return Ok(());
        }
        // SQLite has no lock for this: an agent that starts at the same moment may have been first.
        migrator
            .run(&self.writer)
            .await
            .map_err(LedgerError::Migrate)
    }

    /// Which database this is.
    #[must_use]
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Asks the database for a sign of life.
    ///
    /// # Errors
    /// [`LedgerError::Busy`] or [`LedgerError::Unavailable`].
    pub async fn ping(&self) -> Result<(), LedgerError> {
        sqlx::query("SELECT 1")
            .execute(&self.reader)
            .await
            .map(drop)
            .map_err(LedgerError::of_statement)
    }

    /// Closes the connections once their statements have ended.
    pub async fn close(&self) {
        self.reader.close().await;
        self.writer.close().await;
    }

    pub(crate) async fn begin(&self) -> Result<Transaction, LedgerError> {
        let begun = match self.dialect {
            Dialect::Sqlite => self.writer.begin_with("BEGIN IMMEDIATE").await,
            Dialect::Postgres => self.writer.begin().await,
        };
        begun
            .map(|sql| Transaction::new(sql, self.dialect))
            .map_err(LedgerError::of_statement)
    }
}

impl Dialect {
    /// The statement with a lock on the rows it reads.
    fn locking(self, select: &'static str) -> AssertSqlSafe<String> {
        AssertSqlSafe(match self {
            Self::Sqlite => select.to_owned(),
            Self::Postgres => format!("{select} FOR UPDATE"),
        })
    }
}

/// Connections that live as long as the pool: reopening one costs a WAL recovery check, and an
/// in-memory database ends with its connection.
fn sqlite_pool(connections: u32) -> sqlx::pool::PoolOptions<Any> {
    AnyPoolOptions::new()
        .max_connections(connections)
        .min_connections(1)
        .idle_timeout(None)
        .max_lifetime(None)
        .test_before_acquire(false)
        .acquire_timeout(WAIT)
}

/// The url as it may be shown: without what stands before an `@`.
fn without_password(url: &str) -> String {
    match (url.find("://"), url.rfind('@')) {
        (Some(scheme), Some(at)) if at > scheme => format!("{}…{}", &url[..scheme + 3], &url[at..]),
        _ => url.to_owned(),
    }
}
