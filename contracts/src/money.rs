//! Money: integer minor units of a currency whose exponent is stated, never a float.
//!
//! The range is that of `i64` minor units; what does not fit is refused, never wrapped or rounded.

use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Largest exponent (decimals) a currency may have; 18 serves the usual crypto base units.
pub const MAX_EXPONENT: u8 = 18;

/// A currency code: 3 to 8 of `A-Z0-9`, upper case. Lower-case ASCII input is folded, nothing else.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CurrencyCode([u8; 8]);

/// A currency with the number of decimals its amounts are held in: `{"currency": "USD", "exponent": 2}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "WireCurrency", into = "WireCurrency")]
pub struct Currency {
    code: CurrencyCode,
    exponent: u8,
}

/// An amount of money: `{"amount_minor": 1999, "currency": "USD", "exponent": 2}`.
///
/// The exponent travels along, so that a reader needs no table and two sides that disagree about a
/// currency's decimals notice it instead of moving a hundredfold.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "WireMoney", into = "WireMoney")]
pub struct Money {
    amount_minor: i64,
    currency: Currency,
}

/// Why a text or a number is no amount of money.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MoneyError {
    /// The code is not 3 to 8 letters and digits.
    #[error("currency {0:?} is not a currency code")]
    BadCode(String),
    /// Neither in ISO 4217 nor configured.
    #[error("currency {0} is unknown: configure its decimals under [currencies]")]
    UnknownCurrency(CurrencyCode),
    /// More decimals than [`MAX_EXPONENT`].
    #[error("currency {0} has {1} decimals, more than {MAX_EXPONENT}")]
    BadExponent(CurrencyCode, u8),
    /// Not a plain decimal number.
    #[error("amount {0:?} is not a decimal number such as 12.50")]
    NotANumber(String),
    /// The text has a fraction below the currency's smallest unit.
    #[error("amount {amount} has more decimals than {currency} has ({exponent})")]
    TooPrecise {
        /// The amount as written.
        amount: String,
        /// Its currency.
        currency: CurrencyCode,
        /// The decimals the currency has.
        exponent: u8,
    },
    /// Outside `i64` minor units.
    #[error("amount {0} is larger than the largest accepted, 9223372036854775807 minor units")]
    TooLarge(String),
    /// Two amounts of different currencies (or exponents) in one sum.
    #[error("{0} and {1} are different currencies")]
    Mixed(CurrencyCode, CurrencyCode),
    /// A conversion came to less than half of the smallest unit.
    #[error("{amount} at rate {rate} is less than the smallest unit of {currency}")]
    TooSmall {
        /// The source amount.
        amount: Money,
        /// The rate applied.
        rate: Decimal,
        /// The target currency.
        currency: CurrencyCode,
    },
}

impl CurrencyCode {
    /// Reads a code; ASCII lower case is folded, as one provider writes it so.
    ///
    /// # Errors
    /// [`MoneyError::BadCode`].
    pub fn new(text: &str) -> Result<Self, MoneyError> {
        let mut code = [0; 8];
        let fits = (3..=8).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric());
        if !fits {
            return Err(MoneyError::BadCode(text.to_owned()));
        }
        for (slot, byte) in code.iter_mut().zip(text.bytes()) {
            *slot = byte.to_ascii_uppercase();
        }
        Ok(Self(code))
    }

    /// The code as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        let end = self
            .0
            .iter()
            .position(|&byte| byte == 0)
            .unwrap_or(self.0.len());
        std::str::from_utf8(&self.0[..end]).unwrap_or_default()
    }
}

impl Currency {
    /// A currency with a stated exponent.
    ///
    /// # Errors
    /// [`MoneyError::BadExponent`] above [`MAX_EXPONENT`].
    pub fn new(code: CurrencyCode, exponent: u8) -> Result<Self, MoneyError> {
        if exponent > MAX_EXPONENT {
            return Err(MoneyError::BadExponent(code, exponent));
        }
        Ok(Self { code, exponent })
    }

    /// The ISO 4217 currency of this code. There is no default exponent: an unknown code is an error.
    ///
    /// # Errors
    /// [`MoneyError::UnknownCurrency`] when ISO 4217 does not list it or gives it no decimals.
    pub fn iso(code: CurrencyCode) -> Result<Self, MoneyError> {
        iso_currency::Currency::from_code(code.as_str())
            .and_then(|iso| iso.exponent())
            .and_then(|exponent| u8::try_from(exponent).ok())
            .map_or(Err(MoneyError::UnknownCurrency(code)), |exponent| {
                Self::new(code, exponent)
            })
    }

    /// Its code.
    #[must_use]
    pub fn code(self) -> CurrencyCode {
        self.code
    }

    /// Its decimals.
    #[must_use]
    pub fn exponent(self) -> u8 {
        self.exponent
    }
}

impl Money {
    /// An amount in minor units.
    #[must_use]
    pub fn new(amount_minor: i64, currency: Currency) -> Self {
        Self {
            amount_minor,
            currency,
        }
    }

    /// Reads decimal text exactly: an optional minus, digits with at most one point, an optional
    /// exponent (`1.5e+1`). Trailing zeros beyond the currency's decimals are fine, a remainder is
    /// not; nothing is rounded. No blanks, no thousands separators, no plus.
    ///
    /// # Errors
    /// [`MoneyError::NotANumber`], [`MoneyError::TooPrecise`] or [`MoneyError::TooLarge`].
    pub fn parse(text: &str, currency: Currency) -> Result<Self, MoneyError> {
        let value = parse_decimal(text)?;
        Self::from_scaled(value.mantissa(), value.scale(), currency, text)
    }

    /// Takes an integer that the sender scaled by `sender_exponent` decimals and rescales it to the
    /// currency's own. A remainder is refused: 550 with exponent 2 is no whole number of UGX.
    ///
    /// # Errors
    /// [`MoneyError::TooPrecise`] or [`MoneyError::TooLarge`].
    pub fn from_minor(
        amount: i64,
        sender_exponent: u8,
        currency: Currency,
    ) -> Result<Self, MoneyError> {
        Self::from_scaled(
            i128::from(amount),
            u32::from(sender_exponent),
            currency,
            &amount.to_string(),
        )
    }

    fn from_scaled(
        mantissa: i128,
        scale: u32,
        currency: Currency,
        shown: &str,
    ) -> Result<Self, MoneyError> {
        let too_large = || MoneyError::TooLarge(shown.to_owned());
        let exponent = u32::from(currency.exponent);
        let minor = if scale <= exponent {
            let factor = 10_i128
                .checked_pow(exponent - scale)
                .ok_or_else(too_large)?;
            mantissa.checked_mul(factor).ok_or_else(too_large)?
        } else {
            let divisor = 10_i128
                .checked_pow(scale - exponent)
                .ok_or_else(too_large)?;
            if mantissa % divisor != 0 {
                return Err(MoneyError::TooPrecise {
                    amount: shown.to_owned(),
                    currency: currency.code,
                    exponent: currency.exponent,
                });
            }
            mantissa / divisor
        };
        i64::try_from(minor)
            .map(|minor| Self::new(minor, currency))
            .map_err(|_| too_large())
    }

    /// The amount in minor units.
    #[must_use]
    pub fn amount_minor(self) -> i64 {
        self.amount_minor
    }

    /// The currency.
    #[must_use]
    pub fn currency(self) -> Currency {
        self.currency
    }

    /// Above nothing.
    #[must_use]
    pub fn is_positive(self) -> bool {
        self.amount_minor > 0
    }

    /// The sum of two amounts of one currency.
    ///
    /// # Errors
    /// [`MoneyError::Mixed`] or [`MoneyError::TooLarge`].
    pub fn checked_add(self, other: Self) -> Result<Self, MoneyError> {
        if self.currency != other.currency {
            return Err(MoneyError::Mixed(self.currency.code, other.currency.code));
        }
        self.amount_minor
            .checked_add(other.amount_minor)
            .map(|minor| Self::new(minor, self.currency))
            .ok_or_else(|| MoneyError::TooLarge(format!("{self} + {other}")))
    }

    /// The amount as decimal text without its currency: `19.99`.
    #[must_use]
    pub fn decimal_text(self) -> String {
        Decimal::from_i128_with_scale(
            i128::from(self.amount_minor),
            u32::from(self.currency.exponent),
        )
        .to_string()
    }
}

/// Reads a plain or scientific decimal number exactly (at most 28 significant digits).
///
/// # Errors
/// [`MoneyError::NotANumber`] for any other text, [`MoneyError::TooLarge`] beyond 28 digits.
pub fn parse_decimal(text: &str) -> Result<Decimal, MoneyError> {
    let not_a_number = || MoneyError::NotANumber(text.chars().take(64).collect());
    let (digits, power) = match text.split_once(['e', 'E']) {
        None => (text, 0),
        // No sum of money needs a power of ten beyond this, and a longer one is an attack.
        Some((digits, power)) if power.len() <= 3 => {
            (digits, power.parse::<i32>().map_err(|_| not_a_number())?)
        }
        Some((_, power))
            if power
                .trim_start_matches(['+', '-'])
                .bytes()
                .all(|b| b.is_ascii_digit()) =>
        {
            return Err(MoneyError::TooLarge(text.chars().take(64).collect()));
        }
        Some(_) => return Err(not_a_number()),
    };
    let unsigned = digits.strip_prefix('-').unwrap_or(digits);
    let points = unsigned.bytes().filter(|&byte| byte == b'.').count();
    let digit_count = unsigned.bytes().filter(u8::is_ascii_digit).count();
    if points > 1 || digit_count == 0 || digit_count + points != unsigned.len() {
        return Err(not_a_number());
    }
    let too_large = || MoneyError::TooLarge(text.chars().take(64).collect());
    let value = Decimal::from_str_exact(digits).map_err(|_| too_large())?;
    let scale = i64::from(value.scale()) - i64::from(power);
    if scale >= 0 {
        let scale = u32::try_from(scale).map_err(|_| too_large())?;
        return Decimal::try_from_i128_with_scale(value.mantissa(), scale).map_err(|_| too_large());
    }
    let factor = u32::try_from(-scale)
        .ok()
        .and_then(|power| 10_i128.checked_pow(power))
        .ok_or_else(too_large)?;
    let mantissa = value.mantissa().checked_mul(factor).ok_or_else(too_large)?;
    Decimal::try_from_i128_with_scale(mantissa, 0).map_err(|_| too_large())
}

impl fmt::Display for CurrencyCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for CurrencyCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for CurrencyCode {
    type Err = MoneyError;
    fn from_str(text: &str) -> Result<Self, MoneyError> {
        Self::new(text)
    }
}

impl TryFrom<String> for CurrencyCode {
    type Error = MoneyError;
    fn try_from(text: String) -> Result<Self, MoneyError> {
        Self::new(&text)
    }
}

impl From<CurrencyCode> for String {
    fn from(code: CurrencyCode) -> Self {
        code.as_str().to_owned()
    }
}

/// `19.99 USD`
impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.decimal_text(), self.currency.code)
    }
}

impl fmt::Debug for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[derive(Serialize, Deserialize)]
struct WireMoney {
    amount_minor: i64,
    currency: CurrencyCode,
    exponent: u8,
}

impl TryFrom<WireMoney> for Money {
    type Error = MoneyError;
    fn try_from(wire: WireMoney) -> Result<Self, MoneyError> {
        Ok(Self::new(
            wire.amount_minor,
            Currency::new(wire.currency, wire.exponent)?,
        ))
    }
}

impl From<Money> for WireMoney {
    fn from(money: Money) -> Self {
        Self {
            amount_minor: money.amount_minor,
            currency: money.currency.code,
            exponent: money.currency.exponent,
        }
    }
}

#[derive(Serialize, Deserialize)]
struct WireCurrency {
    currency: CurrencyCode,
    exponent: u8,
}

impl TryFrom<WireCurrency> for Currency {
    type Error = MoneyError;
    fn try_from(wire: WireCurrency) -> Result<Self, MoneyError> {
        Self::new(wire.currency, wire.exponent)
    }
}

impl From<Currency> for WireCurrency {
    fn from(currency: Currency) -> Self {
        Self {
            currency: currency.code,
            exponent: currency.exponent,
        }
    }
}

#[cfg(test)]
mod tests;
