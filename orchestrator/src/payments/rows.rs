//! The SQL of payments, and rows to and from [`Payment`]. Decides nothing.

use super::columns::{COLUMNS, bind_state, corrupt, count, exponent, parse, read, status, text};
use super::model::{CurrencyTotal, ExpectedPayment, Payment, PaymentFilter, PaymentStatus, Totals};
use super::{Dialect, PAGE, PaymentsError, failed, parse_answer, to_json};
use crate::callback::{CallbackFact, FactField, PaymentIdentity};
use contracts::id::{CustomerId, OperationId, Region};
use contracts::subject::short_digest;
use jiff::Timestamp;
use sqlx::{AnyConnection, AssertSqlSafe};

/// Whether a row read is held against other writers until the end of the transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lock {
    /// Only read; in SQLite a writing transaction excludes all others anyway.
    None,
    /// `FOR UPDATE`.
    ForUpdate,
}

/// Sums are added in two halves, as their total may pass 64 bits where a database keeps to them.
const HALF: i128 = 1_000_000_000;

/// Sets a new connection up. A commit of SQLite is on disk before it is acknowledged.
pub(super) async fn prepare(
    connection: &mut AnyConnection,
    dialect: Dialect,
) -> Result<(), sqlx::Error> {
    if dialect == Dialect::Sqlite {
        for pragma in [
            "PRAGMA journal_mode = WAL",
            "PRAGMA synchronous = FULL",
            "PRAGMA busy_timeout = 10000",
        ] {
            sqlx::query(pragma).execute(&mut *connection).await?;
        }
    }
    Ok(())
}

/// Writes the operation first. `Some`: it was carried out before, and this is its answer.
pub(super) async fn claim(
    connection: &mut AnyConnection,
    operation: &OperationId,
    digest: &str,
    now: Timestamp,
) -> Result<Option<String>, PaymentsError> {
    let inserted = sqlx::query(
        "INSERT INTO payment_operations (operation_key, operation_id, digest, result, created_at) \
         VALUES ($1, $2, $3, '', $4) ON CONFLICT (operation_key) DO NOTHING",
    )
    .bind(operation.key())
    .bind(operation.as_str())
    .bind(digest)
    .bind(now.to_string())
    .execute(&mut *connection)
    .await
    .map_err(failed("writing an operation"))?;
    if inserted.rows_affected() == 1 {
        return Ok(None);
    }
    let row = sqlx::query("SELECT digest, result FROM payment_operations WHERE operation_key = $1")
        .bind(operation.key())
        .fetch_one(connection)
        .await
        .map_err(failed("reading an operation"))?;
    if text(&row, "digest")? != digest {
        return Err(PaymentsError::Conflict {
            operation_id: operation.clone(),
        });
    }
    text(&row, "result").map(Some)
}

/// Puts the answer to a claimed operation.
pub(super) async fn settle(
    connection: &mut AnyConnection,
    operation: &OperationId,
    answer: &str,
) -> Result<(), PaymentsError> {
    sqlx::query("UPDATE payment_operations SET result = $1 WHERE operation_key = $2")
        .bind(answer)
        .bind(operation.key())
        .execute(connection)
        .await
        .map(|_done| ())
        .map_err(failed("writing an answer"))
}

/// The payment of this identity.
pub(super) async fn payment(
    connection: &mut AnyConnection,
    identity: &PaymentIdentity,
    lock: Lock,
) -> Result<Option<Payment>, PaymentsError> {
    let suffix = match lock {
        Lock::None => "",
        Lock::ForUpdate => " FOR UPDATE",
    };
    // Safe: made of constants.
    let sql = format!("SELECT {COLUMNS} FROM payments WHERE payment_id = $1{suffix}");
    let row = sqlx::query(AssertSqlSafe(sql))
        .bind(Payment::id_of(identity))
        .fetch_optional(connection)
        .await
        .map_err(failed("reading a payment"))?;
    let Some(payment) = row.as_ref().map(read).transpose()? else {
        return Ok(None);
    };
    if payment.identity != *identity {
        return Err(corrupt(
            "payments.payment_id",
            &"belongs to another identity",
        ));
    }
    Ok(Some(payment))
}

/// Adds a payment; `false` when it is there by now.
pub(super) async fn insert(
    connection: &mut AnyConnection,
    payment: &Payment,
) -> Result<bool, PaymentsError> {
    // Safe: made of constants.
    let sql = format!(
        "INSERT INTO payments ({COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, \
         $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25) \
         ON CONFLICT (payment_id) DO NOTHING"
    );
    let [provider, account, external_id, capture_id] = payment.identity.parts();
    let query = sqlx::query(AssertSqlSafe(sql))
        .bind(&payment.payment_id)
        .bind(provider)
        .bind(account)
        .bind(external_id)
        .bind(capture_id);
    let done = bind_state(query, payment)?
        .bind(payment.created_at.to_string())
        .bind(payment.updated_at.to_string())
        .execute(connection)
        .await
        .map_err(failed("adding a payment"))?;
    Ok(done.rows_affected() == 1)
}

/// Replaces all of a payment but its identity and first sight.
pub(super) async fn update(
    connection: &mut AnyConnection,
    payment: &Payment,
) -> Result<(), PaymentsError> {
    let query = sqlx::query(
        "UPDATE payments SET merchant_reference = $1, status = $2, saga_id = $3, customer = $4, \
         region = $5, expected_minor = $6, expected_currency = $7, expected_exponent = $8, \
         paid_minor = $9, paid_currency = $10, paid_exponent = $11, wallet_currency = $12, \
         wallet_exponent = $13, quote = $14, credited_minor = $15, credited_currency = $16, \
         credited_exponent = $17, reason = $18, updated_at = $19 WHERE payment_id = $20",
    );
    bind_state(query, payment)?
        .bind(payment.updated_at.to_string())
        .bind(&payment.payment_id)
        .execute(connection)
        .await
        .map(|_done| ())
        .map_err(failed("changing a payment"))
}

/// What was announced of the payment of a fact elsewhere than in its own row: in the row of the
/// whole payment for a capture, else under our reference.
pub(super) async fn expected(
    connection: &mut AnyConnection,
    fact: &CallbackFact,
) -> Result<Option<ExpectedPayment>, PaymentsError> {
    if fact.payment.capture_id.is_some()
        && let Some(row) = payment(&mut *connection, &fact.payment.whole(), Lock::None).await?
        && (row.saga_id.is_none() || row.expected.is_some())
    {
        return Ok(Some(ExpectedPayment::of_row(&row)));
    }
    let Some(reference) = &fact.merchant_reference else {
        return Ok(None);
    };
    let id = expected_id(
        fact.payment.provider.as_str(),
        &fact.payment.account,
        reference.as_str(),
    );
    announced(connection, &id).await
}

/// Stores an announcement under our reference; the fields in which one already there differs.
pub(super) async fn announce(
    connection: &mut AnyConnection,
    expected: &ExpectedPayment,
    now: Timestamp,
) -> Result<Vec<FactField>, PaymentsError> {
    let Some(reference) = &expected.merchant_reference else {
        return Ok(Vec::new());
    };
    let id = expected_id(
        expected.provider.as_str(),
        &expected.account,
        reference.as_str(),
    );
    sqlx::query(
        "INSERT INTO expected_payments \
         (expected_id, provider, account, merchant_reference, expected, created_at) \
         VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (expected_id) DO NOTHING",
    )
    .bind(&id)
    .bind(expected.provider.as_str())
    .bind(&expected.account)
    .bind(reference.as_str())
    .bind(to_json(expected)?)
    .bind(now.to_string())
    .execute(&mut *connection)
    .await
    .map_err(failed("announcing a payment"))?;
    let stored = announced(connection, &id).await?;
    Ok(stored.map_or_else(Vec::new, |stored| expected.differs_from(&stored)))
}

async fn announced(
    connection: &mut AnyConnection,
    id: &str,
) -> Result<Option<ExpectedPayment>, PaymentsError> {
    let row = sqlx::query("SELECT expected FROM expected_payments WHERE expected_id = $1")
        .bind(id)
        .fetch_optional(connection)
        .await
        .map_err(failed("reading an announcement"))?;
    row.map(|row| parse_answer(&text(&row, "expected")?))
        .transpose()
}

fn expected_id(provider: &str, account: &str, reference: &str) -> String {
    let parts = contracts::id::SagaId::from_parts("expected", &[provider, account, reference]);
    short_digest(parts.as_str().as_bytes())
}

/// Says that the payment is credited as a whole, or capture by capture; `false` when it was the
/// other before.
pub(super) async fn claim_mode(
    connection: &mut AnyConnection,
    identity: &PaymentIdentity,
) -> Result<bool, PaymentsError> {
    let mode = if identity.capture_id.is_some() {
        "by_capture"
    } else {
        "whole"
    };
    let id = Payment::id_of(&identity.whole());
    sqlx::query(
        "INSERT INTO payment_modes (whole_payment_id, mode) VALUES ($1, $2) \
         ON CONFLICT (whole_payment_id) DO NOTHING",
    )
    .bind(&id)
    .bind(mode)
    .execute(&mut *connection)
    .await
    .map_err(failed("writing how a payment is credited"))?;
    let row = sqlx::query("SELECT mode FROM payment_modes WHERE whole_payment_id = $1")
        .bind(&id)
        .fetch_one(connection)
        .await
        .map_err(failed("reading how a payment is credited"))?;
    Ok(text(&row, "mode")? == mode)
}

/// A page of payments.
pub(super) async fn list(
    connection: &mut AnyConnection,
    filter: &PaymentFilter,
) -> Result<Vec<Payment>, PaymentsError> {
    // Safe: made of constants.
    let sql = format!(
        "SELECT {COLUMNS} FROM payments WHERE ($1 = '' OR status = $1) \
         AND ($2 = '' OR external_id = $2) AND payment_id > $3 ORDER BY payment_id LIMIT {PAGE}"
    );
    let rows = sqlx::query(AssertSqlSafe(sql))
        .bind(filter.status.map_or("", PaymentStatus::as_str))
        .bind(filter.external_id.as_ref().map_or("", |id| id.as_str()))
        .bind(filter.after.as_deref().unwrap_or_default())
        .fetch_all(connection)
        .await
        .map_err(failed("listing payments"))?;
    rows.iter().map(read).collect()
}

/// Counts and sums for reconciliation.
pub(super) async fn totals(connection: &mut AnyConnection) -> Result<Totals, PaymentsError> {
    let mut totals = Totals::default();
    let counts = sqlx::query("SELECT status, COUNT(*) AS payments FROM payments GROUP BY status")
        .fetch_all(&mut *connection)
        .await
        .map_err(failed("counting payments"))?;
    for row in &counts {
        totals
            .count_by_status
            .insert(status(row)?, count(row, "payments")?);
    }
    // Safe: made of constants.
    let sql = format!(
        "SELECT credited_currency, credited_exponent, COUNT(*) AS payments, \
         CAST(SUM(credited_minor / {HALF}) AS TEXT) AS high, \
         CAST(SUM(credited_minor % {HALF}) AS TEXT) AS low \
         FROM payments WHERE status = 'successful' \
         GROUP BY credited_currency, credited_exponent \
         ORDER BY credited_currency, credited_exponent"
    );
    let sums = sqlx::query(AssertSqlSafe(sql))
        .fetch_all(connection)
        .await
        .map_err(failed("adding payments up"))?;
    for row in &sums {
        let high: i128 = parse(&text(row, "high")?, "the sum of payments")?;
        let low: i128 = parse(&text(row, "low")?, "the sum of payments")?;
        totals.credited.push(CurrencyTotal {
            currency: parse(&text(row, "credited_currency")?, "credited_currency")?,
            exponent: exponent(row, "credited_exponent")?,
            count: count(row, "payments")?,
            credited_minor: high * HALF + low,
        });
    }
    Ok(totals)
}

/// The directory's entry.
pub(super) async fn region(
    connection: &mut AnyConnection,
    customer: &CustomerId,
) -> Result<Option<Region>, PaymentsError> {
    let row = sqlx::query("SELECT region FROM customer_regions WHERE customer = $1")
        .bind(customer.as_str())
        .fetch_optional(connection)
        .await
        .map_err(failed("reading the region of a customer"))?;
    row.map(|row| parse(&text(&row, "region")?, "customer_regions.region"))
        .transpose()
}

/// Sets the directory's entry.
pub(super) async fn assign_region(
    connection: &mut AnyConnection,
    customer: &CustomerId,
    region: &Region,
    now: Timestamp,
) -> Result<(), PaymentsError> {
    sqlx::query(
        "INSERT INTO customer_regions (customer, region, updated_at) VALUES ($1, $2, $3) \
         ON CONFLICT (customer) DO UPDATE SET region = excluded.region, updated_at = excluded.updated_at",
    )
    .bind(customer.as_str())
    .bind(region.as_str())
    .bind(now.to_string())
    .execute(connection)
    .await
    .map(|_done| ())
    .map_err(failed("writing the region of a customer"))
}
