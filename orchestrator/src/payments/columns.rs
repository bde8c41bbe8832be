//! Values to and from the columns of a row.

use super::model::{Payment, PaymentStatus};
use super::{PaymentsError, failed, parse_answer, to_json};
use crate::callback::PaymentIdentity;
use contracts::money::{Currency, CurrencyCode, Money};
use sqlx::Row as _;
use sqlx::any::AnyRow;
use std::fmt::Display;
use std::str::FromStr;

/// All columns of a payment, in the order in which they are written.
pub(super) const COLUMNS: &str = "payment_id, provider, account, external_id, capture_id, merchant_reference, \
    status, saga_id, customer, region, expected_minor, expected_currency, expected_exponent, \
    paid_minor, paid_currency, paid_exponent, wallet_currency, wallet_exponent, quote, \
    credited_minor, credited_currency, credited_exponent, reason, created_at, updated_at";

pub(super) type Query<'q> = sqlx::query::Query<'q, sqlx::Any, sqlx::any::AnyArguments>;

/// Binds `merchant_reference` to `reason`, in the order of [`COLUMNS`].
pub(super) fn bind_state<'q>(
    query: Query<'q>,
    payment: &Payment,
) -> Result<Query<'q>, PaymentsError> {
    let query = query
        .bind(payment.merchant_reference.clone().map(String::from))
        .bind(payment.status.as_str())
        .bind(payment.saga_id.clone().map(String::from))
        .bind(payment.customer.clone().map(String::from))
        .bind(payment.region.clone().map(String::from));
    let query = bind_money(query, payment.expected);
    let query = bind_money(query, payment.paid);
    let query = bind_currency(query, payment.wallet_currency);
    let query = query.bind(payment.quote.as_ref().map(to_json).transpose()?);
    Ok(bind_money(query, payment.credited).bind(payment.reason.clone()))
}

fn bind_money(query: Query<'_>, money: Option<Money>) -> Query<'_> {
    bind_currency(
        query.bind(money.map(Money::amount_minor)),
        money.map(Money::currency),
    )
}

fn bind_currency(query: Query<'_>, currency: Option<Currency>) -> Query<'_> {
    query
        .bind(currency.map(|currency| currency.code().as_str().to_owned()))
        .bind(currency.map(|currency| i64::from(currency.exponent())))
}

pub(super) fn read(row: &AnyRow) -> Result<Payment, PaymentsError> {
    let capture_id = text(row, "capture_id")?;
    Ok(Payment {
        payment_id: text(row, "payment_id")?,
        identity: PaymentIdentity {
            provider: parse(&text(row, "provider")?, "payments.provider")?,
            account: text(row, "account")?,
            external_id: parse(&text(row, "external_id")?, "payments.external_id")?,
            capture_id: if capture_id.is_empty() {
                None
            } else {
                Some(parse(&capture_id, "payments.capture_id")?)
            },
        },
        merchant_reference: optional(row, "merchant_reference")?,
        status: status(row)?,
        saga_id: optional(row, "saga_id")?,
        customer: optional(row, "customer")?,
        region: optional(row, "region")?,
        expected: money(
            row,
            ["expected_minor", "expected_currency", "expected_exponent"],
        )?,
        paid: money(row, ["paid_minor", "paid_currency", "paid_exponent"])?,
        wallet_currency: currency(row, "wallet_currency", "wallet_exponent")?,
        quote: optional_text(row, "quote")?
            .map(|json| parse_answer(&json))
            .transpose()?,
        credited: money(
            row,
            ["credited_minor", "credited_currency", "credited_exponent"],
        )?,
        reason: optional_text(row, "reason")?,
        created_at: parse(&text(row, "created_at")?, "payments.created_at")?,
        updated_at: parse(&text(row, "updated_at")?, "payments.updated_at")?,
    })
}

fn money(
    row: &AnyRow,
    [minor, code, decimals]: [&'static str; 3],
) -> Result<Option<Money>, PaymentsError> {
    let minor: Option<i64> = row.try_get(minor).map_err(failed("reading a sum"))?;
    let currency = currency(row, code, decimals)?;
    Ok(minor
        .zip(currency)
        .map(|(minor, currency)| Money::new(minor, currency)))
}

fn currency(
    row: &AnyRow,
    code: &'static str,
    decimals: &'static str,
) -> Result<Option<Currency>, PaymentsError> {
    let Some(text) = optional_text(row, code)? else {
        return Ok(None);
    };
    let known: CurrencyCode = parse(&text, code)?;
    Currency::new(known, exponent(row, decimals)?)
        .map(Some)
        .map_err(|error| corrupt(decimals, &error))
}

pub(super) fn status(row: &AnyRow) -> Result<PaymentStatus, PaymentsError> {
    let word = text(row, "status")?;
    PaymentStatus::from_word(&word).ok_or_else(|| corrupt("payments.status", &word))
}

pub(super) fn exponent(row: &AnyRow, column: &'static str) -> Result<u8, PaymentsError> {
    let exponent: i64 = row.try_get(column).map_err(failed("reading decimals"))?;
    u8::try_from(exponent).map_err(|error| corrupt(column, &error))
}

pub(super) fn count(row: &AnyRow, column: &'static str) -> Result<u64, PaymentsError> {
    let count: i64 = row.try_get(column).map_err(failed("reading a count"))?;
    u64::try_from(count).map_err(|error| corrupt(column, &error))
}

pub(super) fn text(row: &AnyRow, column: &'static str) -> Result<String, PaymentsError> {
    row.try_get(column).map_err(failed("reading a text"))
}

pub(super) fn optional_text(
    row: &AnyRow,
    column: &'static str,
) -> Result<Option<String>, PaymentsError> {
    row.try_get(column).map_err(failed("reading a text"))
}

pub(super) fn optional<T: FromStr<Err: Display>>(
    row: &AnyRow,
    column: &'static str,
) -> Result<Option<T>, PaymentsError> {
    optional_text(row, column)?
        .map(|text| parse(&text, column))
        .transpose()
}

pub(super) fn parse<T: FromStr<Err: Display>>(
    text: &str,
    what: &'static str,
) -> Result<T, PaymentsError> {
    text.parse().map_err(|error: T::Err| corrupt(what, &error))
}

pub(super) fn corrupt(what: &'static str, message: &dyn Display) -> PaymentsError {
    PaymentsError::Corrupt {
        what,
        message: message.to_string(),
    }
}
