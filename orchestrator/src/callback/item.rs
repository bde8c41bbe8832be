//! One item of a provider's message: what every format does alike when it turns fields into a fact.

use super::fact::{CallbackFact, Meaning, short_text};
use super::profile::{Currencies, ProviderProfile};
use super::unreadable::{Problem, Unreadable, UnreadableCode};
use contracts::id::{CustomerId, ExternalId, IdError, Provider, Region};
use contracts::money::{Currency, CurrencyCode, Money, MoneyError, parse_decimal};

/// What is known of an item while it is read, so that a report about it can say so.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// The payment's id as written.
    pub(super) external_id: Option<String>,
    /// The event's name as written.
    pub(super) event_type: Option<String>,
    /// The meaning.
    pub(super) meaning: Option<Meaning>,
    /// Whether it says that it comes from a test system.
    pub(super) test: bool,
}

/// Reads one item with `read` and applies the rules that hold for every format: test mode, lookups,
/// and sums that money-moving meanings need.
///
/// # Errors
/// [`Unreadable`], with whatever is known of the item.
#[expect(
    clippy::result_large_err,
    reason = "as large as the fact it stands for; made once a callback"
)]
pub(super) fn judge(
    provider: &Provider,
    position: usize,
    profile: &ProviderProfile,
    read: impl FnOnce(&mut Known) -> Result<CallbackFact, Problem>,
) -> Result<CallbackFact, Unreadable> {
    let mut known = Known::default();
    let read = read(&mut known).and_then(check_amount);
    let (problem, fact) = match read {
        Err(problem) if known.test && !profile.accept_test && !problem.code.is_untrusted() => {
            (test_mode(), None)
        }
        Ok(fact) if known.test && !profile.accept_test => (test_mode(), Some(fact)),
        Ok(fact) if fact.meaning == Meaning::LookupNeeded => (needs_lookup(), Some(fact)),
        Ok(fact) => return Ok(fact),
        Err(problem) => (problem, None),
    };
    let mut report = problem.report(provider, position);
    report.external_id = known.external_id.as_deref().and_then(short_text);
    report.event_type = known.event_type.as_deref().and_then(short_text);
    report.meaning = known.meaning;
    report.fact = fact.map(Box::new);
    Err(report)
}

fn test_mode() -> Problem {
    Problem::whole(
        UnreadableCode::TestMode,
        "comes from the provider's test system: recorded, not acted on (accept_test = true accepts such)",
    )
}

fn needs_lookup() -> Problem {
    Problem::whole(
        UnreadableCode::NeedsLookup,
        "names a payment but not its state: ask the provider for it, then start the saga by hand",
    )
}

/// A sum that moves money is there and above zero. The sign of a reversal belongs to its meaning.
fn check_amount(mut fact: CallbackFact) -> Result<CallbackFact, Problem> {
    let bad = |code, message: String| Err(Problem::field(code, "amount", message));
    match fact.amount {
        None if fact.meaning.needs_amount() => bad(
            UnreadableCode::MissingAmount,
            format!(
                "is missing, and {} without a sum moves nothing",
                fact.meaning
            ),
        ),
        Some(amount) if fact.meaning.is_reversal() && amount.amount_minor() < 0 => {
            let minor = amount.amount_minor().checked_neg();
            let Some(minor) = minor else {
                return bad(
                    UnreadableCode::BadAmount,
                    format!("{amount} is out of range"),
                );
            };
            fact.amount = Some(Money::new(minor, amount.currency()));
            Ok(fact)
        }
        Some(amount)
            if amount.amount_minor() < 0
                || (fact.meaning.needs_amount() && !amount.is_positive()) =>
        {
            bad(
                UnreadableCode::BadAmount,
                format!("{amount} is not above zero, as {} needs", fact.meaning),
            )
        }
        Some(_) | None => Ok(fact),
    }
}

/// The id of the payment, which must be there.
///
/// # Errors
/// [`UnreadableCode::MissingId`] or [`UnreadableCode::BadId`].
pub(super) fn external_id(text: Option<String>, field: &str) -> Result<ExternalId, Problem> {
    optional_id(text, field)?.ok_or_else(|| {
        Problem::field(
            UnreadableCode::MissingId,
            field,
            "is missing or empty: find the payment by the raw body and start the saga by hand",
        )
    })
}

/// Any other id; empty is absent.
///
/// # Errors
/// [`UnreadableCode::BadId`].
pub(super) fn optional_id(
    text: Option<String>,
    field: &str,
) -> Result<Option<ExternalId>, Problem> {
    text.filter(|text| !text.is_empty())
        .map(|text| {
            refuse_nul(&text, field)?;
            ExternalId::new(text).map_err(|error| bad_id(field, &error))
        })
        .transpose()
}

/// The customer; empty is absent, since the payment's own row may know him.
///
/// # Errors
/// [`UnreadableCode::BadId`].
pub(super) fn customer(text: Option<String>, field: &str) -> Result<Option<CustomerId>, Problem> {
    text.filter(|text| !text.is_empty())
        .map(|text| {
            refuse_nul(&text, field)?;
            CustomerId::new(text).map_err(|error| bad_id(field, &error))
        })
        .transpose()
}

/// The merchant account: as an id, but part of an identity also when it is empty.
///
/// # Errors
/// [`UnreadableCode::BadId`].
pub(super) fn account(text: Option<String>, default: &str, field: &str) -> Result<String, Problem> {
    Ok(optional_id(text, field)?.map_or_else(|| default.to_owned(), String::from))
}

/// The region claimed; whether it is a configured one is checked when the payment is made.
///
/// # Errors
/// [`UnreadableCode::BadField`] for what can be no region's name.
pub(super) fn region(text: Option<String>, field: &str) -> Result<Option<Region>, Problem> {
    text.filter(|text| !text.is_empty())
        .map(|text| {
            Region::new(text).map_err(|error| {
                Problem::field(UnreadableCode::BadField, field, format!("{error}"))
            })
        })
        .transpose()
}

/// Our own reference. Too long or with NUL it finds nothing, which fails no payment.
#[must_use]
pub(super) fn reference(text: Option<String>) -> Option<ExternalId> {
    optional_id(text, "").ok().flatten()
}

/// A currency we hold.
///
/// # Errors
/// [`UnreadableCode::UnknownCurrency`].
pub(super) fn currency(
    code: &str,
    field: &str,
    currencies: &Currencies,
) -> Result<Currency, Problem> {
    CurrencyCode::new(code)
        .and_then(|code| currencies.get(code))
        .map_err(|error| {
            Problem::field(
                UnreadableCode::UnknownCurrency,
                field,
                format!("unknown currency: {error}"),
            )
        })
}

/// A currency that a sum needs.
///
/// # Errors
/// [`UnreadableCode::MissingCurrency`] or [`UnreadableCode::UnknownCurrency`].
pub(super) fn required_currency(
    code: Option<String>,
    field: &str,
    currencies: &Currencies,
) -> Result<Currency, Problem> {
    match code.filter(|code| !code.is_empty()) {
        Some(code) => currency(&code, field, currencies),
        None => Err(Problem::field(
            UnreadableCode::MissingCurrency,
            field,
            "is missing: a sum without a currency is no money",
        )),
    }
}

/// A sum in major units, from its decimal text.
///
/// # Errors
/// [`UnreadableCode::BadAmount`].
pub(super) fn major(text: &str, currency: Currency, field: &str) -> Result<Money, Problem> {
    Money::parse(text, currency).map_err(|error| bad_amount(field, &error))
}

/// A sum as an integer that the sender scaled by `exponent` decimals.
///
/// # Errors
/// [`UnreadableCode::BadAmount`].
pub(super) fn minor(
    text: &str,
    exponent: u8,
    currency: Currency,
    field: &str,
) -> Result<Money, Problem> {
    let value = parse_decimal(text).map_err(|error| bad_amount(field, &error))?;
    if !value.fract().is_zero() {
        return Err(Problem::field(
            UnreadableCode::BadAmount,
            field,
            format!("{value} is no integer, as a sum in minor units is"),
        ));
    }
    i64::try_from(value.trunc().mantissa())
        .map_err(|_| MoneyError::TooLarge(value.to_string()))
        .and_then(|minor| Money::from_minor(minor, exponent, currency))
        .map_err(|error| bad_amount(field, &error))
}

fn refuse_nul(text: &str, field: &str) -> Result<(), Problem> {
    if text.contains('\0') {
        return Err(Problem::field(
            UnreadableCode::BadId,
            field,
            "holds NUL, which no id does",
        ));
    }
    Ok(())
}

fn bad_id(field: &str, error: &IdError) -> Problem {
    Problem::field(UnreadableCode::BadId, field, format!("{error}"))
}

fn bad_amount(field: &str, error: &MoneyError) -> Problem {
    Problem::field(UnreadableCode::BadAmount, field, format!("{error}"))
}
