//! The life of the connection.

use super::{Payments, PaymentsError};

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
