//! Holds up the payments database (SQLite), so that a step of the core can be caught half-way.

use crate::system::System;
use sqlx::{Connection as _, Executor as _, SqliteConnection};

/// A write lock on the payments database, until released.
#[derive(Debug)]
pub struct PaymentsLock(SqliteConnection);

impl PaymentsLock {
    /// Takes the lock; every write waits from now on.
    ///
    /// # Errors
    /// When it cannot be had.
    pub async fn take(system: &System) -> anyhow::Result<Self> {
        let mut connection = SqliteConnection::connect(&system.databases.payments).await?;
        connection
            .execute("PRAGMA busy_timeout = 10000; BEGIN IMMEDIATE")
            .await?;
        Ok(Self(connection))
    }

    /// Lets the writes go on.
    ///
    /// # Errors
    /// When the database is gone.
    pub async fn release(mut self) -> anyhow::Result<()> {
        self.0.execute("ROLLBACK").await?;
        Ok(self.0.close().await?)
    }
}
