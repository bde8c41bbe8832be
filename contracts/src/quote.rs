//! Currency conversion: the request to a rate source, its answer, and the pinned quote.

use crate::money::{Currency, CurrencyCode, Money, MoneyError};
use jiff::Timestamp;
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

/// Asks a rate source for one rate, on `billing.core.fx.quote`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateRequest {
    /// Currency paid in.
    pub from: CurrencyCode,
    /// Currency wanted.
    pub to: CurrencyCode,
}

/// What a rate source answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum RateReply {
    /// The rate: one unit of `from` is `rate` units of `to`.
    Rate {
        /// Decimal text, exact: `"1.1000"`.
        rate: String,
        /// Who says so.
        source: String,
        /// Since when.
        quoted_at: Timestamp,
    },
    /// The source has no rate for this pair (now); asking again later is fine.
    Unavailable {
        /// For a person.
        message: String,
    },
}

/// How a converted amount becomes whole minor units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rounding {
    /// To the nearest; exactly half goes to the even neighbour (IEEE 754 "banker's" rounding).
    HalfEven,
}

/// A conversion that has been decided: every attempt, the payment, the event and any revert use it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quote {
    /// What was paid; never recomputed from the converted amount.
    pub source: Money,
    /// What is credited.
    pub target: Money,
    /// One unit of the source currency in target units, as decimal text.
    pub rate: String,
    /// Who gave the rate; `identity` when both currencies are one.
    pub rate_source: String,
    /// Since when the rate holds.
    pub quoted_at: Timestamp,
    /// How the target became whole minor units.
    pub rounding: Rounding,
}

/// Converts exactly in integers and rounds once.
///
/// # Errors
/// [`MoneyError::NotANumber`] for a rate that is not above zero, [`MoneyError::TooLarge`] when the
/// product leaves the range, [`MoneyError::TooSmall`] when a positive amount would become nothing.
pub fn convert(
    amount: Money,
    rate: Decimal,
    to: Currency,
    rounding: Rounding,
) -> Result<Money, MoneyError> {
    let Rounding::HalfEven = rounding;
    if rate.mantissa() <= 0 {
        return Err(MoneyError::NotANumber(format!("rate {rate}")));
    }
    let too_large = || MoneyError::TooLarge(format!("{amount} at rate {rate}"));
    let power = |exponent: u32| 10_i128.checked_pow(exponent).ok_or_else(too_large);
    let product = i128::from(amount.amount_minor())
        .checked_mul(rate.mantissa())
        .ok_or_else(too_large)?;
    let up = u32::from(to.exponent());
    let down = u32::from(amount.currency().exponent()) + rate.scale();
    let (numerator, divisor) = if up >= down {
        (
            product
                .checked_mul(power(up - down)?)
                .ok_or_else(too_large)?,
            1,
        )
    } else {
        (product, power(down - up)?)
    };
    let (floor, rest) = (numerator.div_euclid(divisor), numerator.rem_euclid(divisor));
    let minor = match (rest.checked_mul(2).ok_or_else(too_large)?).cmp(&divisor) {
        std::cmp::Ordering::Less => floor,
        std::cmp::Ordering::Greater => floor + 1,
        std::cmp::Ordering::Equal => floor + floor.rem_euclid(2),
    };
    if minor == 0 && amount.amount_minor() != 0 {
        return Err(MoneyError::TooSmall {
            amount,
            rate,
            currency: to.code(),
        });
    }
    i64::try_from(minor)
        .map(|minor| Money::new(minor, to))
        .map_err(|_| too_large())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::money::parse_decimal;

    fn money(text: &str, code: &str) -> Money {
        let currency = Currency::iso(CurrencyCode::new(code).expect("code")).expect("ISO");
        Money::parse(text, currency).expect("amount")
    }

    fn check(amount: &str, from: &str, rate: &str, to: &str, expected: &str) {
        let to = Currency::iso(CurrencyCode::new(to).expect("code")).expect("ISO");
        let rate = parse_decimal(rate).expect("rate");
        let found = convert(money(amount, from), rate, to, Rounding::HalfEven);
        assert_eq!(
            found
                .map(Money::decimal_text)
                .map_err(|e| e.to_string())
                .unwrap_or_else(|e| e),
            expected
        );
    }

    #[test]
    fn conversion_is_exact_and_rounds_once_half_to_even() {
        check("100.00", "EUR", "1.1000", "USD", "110.00");
        check("4750.00", "USD", "0.8993", "CHF", "4271.68"); // 4271.675: half, 427167 is odd
        check("0.05", "USD", "0.5", "EUR", "0.02"); // 0.025: half, 2 is even
        check("0.07", "USD", "0.5", "EUR", "0.04"); // 0.035: half, 3 is odd
        check("100", "JPY", "0.0065", "USD", "0.65");
        check("1.00", "USD", "152.37", "JPY", "152");
        check("1.000", "KWD", "3.2551", "USD", "3.26");
    }

    #[test]
    fn what_rounds_to_nothing_or_leaves_the_range_is_refused() {
        check(
            "50",
            "IDR",
            "0.0000612",
            "USD",
            "50.00 IDR at rate 0.0000612 is less than the smallest unit of USD",
        );
        let huge = Money::new(i64::MAX, money("1", "USD").currency());
        let to = money("1", "JPY").currency();
        assert!(matches!(
            convert(
                huge,
                parse_decimal("99999999.9").expect("rate"),
                to,
                Rounding::HalfEven
            ),
            Err(MoneyError::TooLarge(_))
        ));
        assert!(convert(huge, Decimal::ZERO, to, Rounding::HalfEven).is_err());
    }
}
