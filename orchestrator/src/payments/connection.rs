//! The life of the connection.

use super::{Dialect, Payments, PaymentsError};

impl Dialect {
    /// The database behind an address.
    pub(super) fn of(url: &str) -> Result<Self, PaymentsError> {
        if url.starts_with("sqlite:") {
            Ok(Self::Sqlite)
        } else if url.starts_with("postgres:") || url.starts_with("postgresql:") {
            Ok(Self::Postgres)
        } else {
            let scheme = url.split(':').next().unwrap_or_default();
            Err(PaymentsError::Address(scheme.to_owned()))
        }
    }
}

impl Payments {
    /// A round trip to the database.
    ///
    /// # Errors
    /// [`PaymentsError::Database`].
    pub async fn ping(&self) -> Result<(), PaymentsError> {
        sqlx::query("SELECT 1")
            .execute(&self.pool)
            .await
            .map(drop)
            .map_err(|source| PaymentsError::Database {
                doing: "ping",
                source,
            })
    }

    /// Closes all connections; what is under way ends first.
    pub async fn close(&self) {
        self.pool.close().await;
    }
}

/// A SQLite address under which a missing file is made, unless the address says otherwise.
pub(super) fn created_when_missing(url: &str) -> String {
    let in_memory = url.contains(":memory:");
    if !url.starts_with("sqlite:") || in_memory || url.contains("mode=") {
        url.to_owned()
    } else if url.contains('?') {
        format!("{url}&mode=rwc")
    } else {
        format!("{url}?mode=rwc")
    }
}
