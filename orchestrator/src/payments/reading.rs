//! Reading without the right to write, by time and by our id: what reconciliation needs.

use super::columns::{COLUMNS, read, text};
use super::{Dialect, PAGE, Payment, Payments, PaymentsError, failed};
use crate::regions::{RegionCache, Regions};
use jiff::{RoundMode, SignedDuration, Timestamp, TimestampRound, Unit};
use sqlx::any::AnyPoolOptions;
use sqlx::{AssertSqlSafe, Executor as _};

/// Connections of a reader; a few questions at once are enough.
const READERS: u32 = 4;

/// A page of payments by their first sight.
#[derive(Debug, Clone)]
pub struct PaymentPage {
    /// Oldest first.
    pub payments: Vec<Payment>,
    /// Where the next page begins; `None` after the last one.
    pub next: Option<PaymentPlace>,
}

/// Where a page ended. Opaque.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PaymentPlace {
    created_at: String,
    payment_id: String,
}

impl Payments {
    /// Connects to a database that is there already, for reading alone: nothing is made, migrated or
    /// changed, and the database itself refuses a write.
    ///
    /// # Errors
    /// [`PaymentsError`].
    pub async fn open_to_read(url: &str, regions: Regions) -> Result<Self, PaymentsError> {
        sqlx::any::install_default_drivers();
        let dialect = Dialect::of(url)?;
        let (prepare, url) = match dialect {
            Dialect::Sqlite if url.contains("mode=") || url.contains(":memory:") => {
                (SQLITE_READS, url.to_owned())
            }
            // Not `ro`: a reader of a WAL may have to make its index.
            Dialect::Sqlite if url.contains('?') => (SQLITE_READS, format!("{url}&mode=rw")),
            Dialect::Sqlite => (SQLITE_READS, format!("{url}?mode=rw")),
            Dialect::Postgres => (POSTGRES_READS, url.to_owned()),
        };
        let pool = AnyPoolOptions::new()
            .max_connections(READERS)
            .after_connect(move |connection, _| {
                Box::pin(async move { connection.execute(prepare).await.map(drop) })
            })
            .connect(&url)
            .await
            .map_err(failed("connecting"))?;
        Ok(Self {
            pool,
            dialect,
            regions,
            cache: RegionCache::Off,
        })
    }

    /// A page of the payments first seen in a range, oldest first (to the second); at most [`PAGE`]. One
    /// that is being written while the page is read may be missing from it.
    ///
    /// # Errors
    /// [`PaymentsError`].
    pub async fn page_of_time(
        &self,
        since: Timestamp,
        until: Timestamp,
        after: Option<&PaymentPlace>,
    ) -> Result<PaymentPage, PaymentsError> {
        let (from, payment_id) = match after {
            Some(place) => (place.created_at.clone(), place.payment_id.as_str()),
            None => (second(since), ""),
        };
        // Safe: made of constants.
        let sql = format!(
            "SELECT {COLUMNS} FROM payments WHERE (created_at, payment_id) > ($1, $2) \
             AND created_at < $3 ORDER BY created_at, payment_id LIMIT {PAGE}"
        );
        let next_second = until.saturating_add(SignedDuration::from_secs(1));
        let rows = sqlx::query(AssertSqlSafe(sql))
            .bind(from)
            .bind(payment_id)
            .bind(second(next_second.unwrap_or(Timestamp::MAX)))
            .fetch_all(&mut *self.connection().await?)
            .await
            .map_err(failed("listing payments"))?;
        let full = u32::try_from(rows.len()).is_ok_and(|count| count == PAGE);
        let next = match rows.last().filter(|_| full) {
            None => None,
            // As stored: read and written again it could be another text.
            Some(row) => Some(PaymentPlace {
                created_at: text(row, "created_at")?,
                payment_id: text(row, "payment_id")?,
            }),
        };
        Ok(PaymentPage {
            payments: rows.iter().map(read).collect::<Result<_, _>>()?,
            next,
        })
    }

    /// The payment of this id of ours.
    ///
    /// # Errors
    /// [`PaymentsError`].
    pub async fn by_id(&self, payment_id: &str) -> Result<Option<Payment>, PaymentsError> {
        // Safe: made of constants.
        let sql = format!("SELECT {COLUMNS} FROM payments WHERE payment_id = $1");
        let row = sqlx::query(AssertSqlSafe(sql))
            .bind(payment_id)
            .fetch_optional(&mut *self.connection().await?)
            .await
            .map_err(failed("reading a payment"))?;
        row.as_ref().map(read).transpose()
    }
}

const SQLITE_READS: &str = "PRAGMA busy_timeout = 10000; PRAGMA query_only = ON;";
const POSTGRES_READS: &str = "SET default_transaction_read_only = on";

/// The text with which every stored time of this second begins. Stored times have as many decimals as
/// they need, so that as text they are in order to the second only.
fn second(at: Timestamp) -> String {
    let second = TimestampRound::new()
        .smallest(Unit::Second)
        .mode(RoundMode::Floor);
    let text = at.round(second).unwrap_or(at).to_string();
    text.trim_end_matches('Z').to_owned()
}

#[cfg(test)]
mod tests {
    use super::second;

    #[test]
    fn a_second_comes_before_every_time_within_it() {
        for text in [
            "2026-01-01T00:00:05Z",
            "2026-01-01T00:00:05.5Z",
            "2026-01-01T00:00:05.999999999Z",
        ] {
            let prefix = second(text.parse().expect("time"));
            assert_eq!(prefix, "2026-01-01T00:00:05");
            assert!(
                prefix.as_str() < text && text < "2026-01-01T00:00:06",
                "{text}"
            );
        }
    }
}
