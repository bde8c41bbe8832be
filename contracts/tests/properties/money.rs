//! Sums from text and conversions, against a calculation on the digits themselves.

use std::cmp::Ordering;

use contracts::money::{Currency, CurrencyCode, MAX_EXPONENT, Money, MoneyError};
use contracts::quote::{Rounding, convert};
use proptest::prelude::*;
use rust_decimal::Decimal;

/// A decimal number by its parts.
#[derive(Debug, Clone)]
struct Number {
    negative: bool,
    whole: String,
    fraction: Option<String>,
    power: Option<i16>,
}

impl Number {
    fn text(&self) -> String {
        let sign = if self.negative { "-" } else { "" };
        let point = self
            .fraction
            .as_ref()
            .map(|digits| format!(".{digits}"))
            .unwrap_or_default();
        let power = self
            .power
            .map(|power| format!("e{power}"))
            .unwrap_or_default();
        format!("{sign}{}{point}{power}", self.whole)
    }

    fn digits(&self) -> String {
        format!(
            "{}{}",
            self.whole,
            self.fraction.as_deref().unwrap_or_default()
        )
    }

    /// Digits behind the point, below zero when zeros follow the digits.
    fn scale(&self) -> i64 {
        let behind = self.fraction.as_ref().map_or(0, String::len);
        i64::try_from(behind).expect("few digits") - i64::from(self.power.unwrap_or(0))
    }

    /// The number in units of ten to the minus `exponent`, by moving the point in the text; `None` when that
    /// leaves a remainder or does not fit.
    fn minor(&self, exponent: u8) -> Option<i64> {
        let mut digits = self.digits();
        let shift = i64::from(exponent) - self.scale();
        for _ in 0..shift {
            digits.push('0');
        }
        for _ in shift..0 {
            // What falls off on the right must be nothing.
            if digits.pop().unwrap_or('0') != '0' {
                return None;
            }
        }
        let digits = digits.trim_start_matches('0');
        if digits.is_empty() {
            return Some(0);
        }
        format!("{}{digits}", if self.negative { "-" } else { "" })
            .parse()
            .ok()
    }
}

fn number() -> impl Strategy<Value = Number> {
    let digits = "[0-9]{1,20}|0{1,4}|[1-9]0{0,18}|92233720368547758[0-9]{0,3}";
    let fraction = "[0-9]{0,20}|0{0,24}|[0-9]{1,3}0{0,16}";
    let power = prop_oneof![
        Just(None),
        (-30..30_i16).prop_map(Some),
        (-99..=99_i16).prop_map(Some)
    ];
    (any::<bool>(), digits, prop::option::of(fraction), power).prop_map(
        |(negative, whole, fraction, power)| Number {
            negative,
            whole,
            fraction,
            power,
        },
    )
}

fn currency(exponent: u8) -> Currency {
    Currency::new(CurrencyCode::new("TST").expect("code"), exponent).expect("exponent")
}

proptest! {
    #[test]
    fn a_sum_is_read_exactly_or_refused(number in number(), exponent in 0..=MAX_EXPONENT) {
        let text = number.text();
        let found = Money::parse(&text, currency(exponent)).map(Money::amount_minor);
        let expected = number.minor(exponent);
        match (&found, expected) {
            (Ok(minor), Some(exact)) => prop_assert_eq!(*minor, exact, "{}", text),
            (Ok(minor), None) => prop_assert!(false, "{text} became {minor}"),
            (Err(error), Some(exact)) => {
                // Beyond 28 digits we refuse to read, whatever the digits are.
                let long = number.digits().len() > 28 || number.scale() > 28 || number.scale() < -28;
                prop_assert!(long, "{text} is {exact} and was refused: {error}");
            }
            (Err(MoneyError::NotANumber(_)), None) => prop_assert!(false, "{text} is a number"),
            (Err(_), None) => {}
        }
    }

    #[test]
    fn a_sum_reads_the_same_with_zeros_around_it(
        minor: i64, exponent in 0..=MAX_EXPONENT, front in 0..4_usize, behind in 0..4_usize,
    ) {
        let money = Money::new(minor, currency(exponent));
        let shown = money.decimal_text();
        let (sign, digits) = shown.strip_prefix('-').map_or(("", shown.as_str()), |rest| ("-", rest));
        let mut text = format!("{sign}{}{digits}", "0".repeat(front));
        if text.contains('.') {
            text.push_str(&"0".repeat(behind));
        }
        prop_assert_eq!(Money::parse(&text, money.currency()), Ok(money), "{}", text);
    }

    #[test]
    fn minor_units_of_a_sender_are_the_same_money_or_none(
        amount: i64, theirs in 0..=MAX_EXPONENT, ours in 0..=MAX_EXPONENT,
    ) {
        let number = Number {
            negative: amount < 0,
            whole: amount.unsigned_abs().to_string(),
            fraction: None,
            power: Some(-i16::from(theirs)),
        };
        let found = Money::from_minor(amount, theirs, currency(ours)).map(Money::amount_minor);
        prop_assert_eq!(found.ok(), number.minor(ours));
    }

    #[test]
    fn a_conversion_is_the_nearest_and_half_goes_to_the_even_one(
        minor in -1_000_000_000_000..1_000_000_000_000_i64,
        mantissa in 1..1_000_000_000_i64, scale in 0..=12_u32,
        from in 0..=8_u8, to in 0..=8_u8,
    ) {
        let rate = Decimal::new(mantissa, scale);
        let found = convert(Money::new(minor, currency(from)), rate, currency(to), Rounding::HalfEven);
        // minor / 10^from * mantissa / 10^scale, in units of 10^-to, as a fraction of integers.
        let numerator = i128::from(minor) * i128::from(mantissa) * 10_i128.pow(u32::from(to));
        let divisor = 10_i128.pow(u32::from(from) + scale);
        match found {
            Ok(money) => {
                let away = (i128::from(money.amount_minor()) * divisor - numerator).abs();
                match (2 * away).cmp(&divisor) {
                    Ordering::Less => {}
                    Ordering::Equal => prop_assert_eq!(money.amount_minor() % 2, 0),
                    Ordering::Greater => prop_assert!(false, "{money} is not the nearest"),
                }
                prop_assert!(money.amount_minor() != 0 || minor == 0, "something became nothing");
            }
            Err(MoneyError::TooSmall { .. }) => prop_assert!(2 * numerator.abs() <= divisor),
            Err(MoneyError::TooLarge(_)) => prop_assert!(numerator.abs() / divisor >= i128::from(i64::MAX)),
            Err(error) => prop_assert!(false, "{error}"),
        }
    }

    #[test]
    fn no_conversion_panics(minor: i64, mantissa: i64, scale in 0..=28_u32, from in 0..=18_u8, to in 0..=18_u8) {
        let rate = Decimal::new(mantissa, scale);
        let found = convert(Money::new(minor, currency(from)), rate, currency(to), Rounding::HalfEven);
        if mantissa <= 0 {
            prop_assert!(found.is_err());
        }
    }
}
