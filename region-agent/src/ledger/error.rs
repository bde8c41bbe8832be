//! What can go wrong with the ledger, sorted by what the asker may conclude from it.

/// Why the ledger did not do something.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The url names neither of our databases.
    #[error("ledger url {0:?}: use sqlite:///path.db, sqlite::memory: or postgres://…")]
    Url(String),
    /// The database could not be opened.
    #[error("the ledger cannot be opened")]
    Open(#[source] sqlx::Error),
    /// The tables could not be brought to this build's version.
    #[error("the ledger's tables cannot be migrated")]
    Migrate(#[source] sqlx::migrate::MigrateError),
    /// Locks or connections were not to be had in time. Nothing was written.
    #[error("the ledger is overloaded")]
    Busy(#[source] sqlx::Error),
    /// Another transaction won; nothing was written, and trying again at once makes sense.
    #[error("the ledger's transaction lost against another one")]
    Contended(#[source] sqlx::Error),
    /// The database failed; whether something was written is unknown.
    #[error("the ledger's database failed")]
    Unavailable(#[source] sqlx::Error),
    /// No answer in time; whether something was written is unknown.
    #[error("the ledger's database did not answer within {0:?}")]
    TimedOut(std::time::Duration),
    /// A row does not hold what this build writes.
    #[error("the ledger holds what it must not: {0}")]
    Corrupt(String),
    /// No wallet of that customer.
    #[error("there is no wallet of {0}")]
    NoWallet(contracts::id::CustomerId),
}

impl LedgerError {
    /// Sorts an error of a statement. Only the errors listed here prove that nothing was written.
    pub(super) fn of_statement(error: sqlx::Error) -> Self {
        match &error {
            sqlx::Error::PoolTimedOut => Self::Busy(error),
            sqlx::Error::Database(database) => match database.code().as_deref() {
                // PostgreSQL: serialisation failure, deadlock; lock not available in time.
                Some("40001" | "40P01") => Self::Contended(error),
                Some("55P03") => Self::Busy(error),
                // SQLite: busy (plain, recovery, snapshot, timeout), locked (plain, shared cache).
                Some("5" | "261" | "517" | "773" | "6" | "262") => Self::Busy(error),
                Some(_) | None => Self::Unavailable(error),
            },
            _ => Self::Unavailable(error),
        }
    }

    /// The error with everything that caused it, for a log line or an answer.
    #[must_use]
    pub fn chain(&self) -> String {
        use std::error::Error as _;
        let mut text = self.to_string();
        let mut source = self.source();
        while let Some(cause) = source {
            text.push_str(": ");
            text.push_str(&cause.to_string());
            source = cause.source();
        }
        text
    }
}
