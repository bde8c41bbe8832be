//! Rates between currencies: where they come from, and the quote that is pinned.
//!
//! A quote is asked for once a saga and then stored as a fact: every attempt, the payment, the event
//! and any revert carry that one. No source invents a rate: there is no 1:1, no inverse of the
//! opposite pair and no path over a third currency.

use async_nats::{Client, HeaderMap};
use contracts::codec::Encoding;
use contracts::header;
use contracts::money::{Currency, CurrencyCode, Money, MoneyError, parse_decimal};
use contracts::quote::{Quote, RateReply, RateRequest, Rounding, convert};
use contracts::subject;
use futures::StreamExt as _;
use jiff::Timestamp;
use rust_decimal::Decimal;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The source of a quote within one currency.
pub const IDENTITY: &str = "identity";

/// Where rates come from.
#[derive(Debug, Clone)]
pub enum RateSource {
    /// Fixed rates of the configuration, `[fx.rates] "EUR/USD" = "1.1000"`.
    Table(Arc<RateTable>),
    /// A service that answers on `billing.core.fx.quote`.
    Nats(NatsRates),
}

/// Fixed rates, by pair.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RateTable {
    rates: BTreeMap<(CurrencyCode, CurrencyCode), Decimal>,
}

/// A rate service reached over NATS.
#[derive(Debug, Clone)]
pub struct NatsRates {
    client: Client,
    timeout: Duration,
}

/// Why there is no quote.
#[derive(Debug, thiserror::Error)]
pub enum QuoteError {
    /// No rate now; nothing is credited meanwhile, and asking again is right.
    #[error("no rate {from}/{to} now: {message}")]
    Unavailable {
        /// Currency paid in.
        from: CurrencyCode,
        /// Currency wanted.
        to: CurrencyCode,
        /// For a person.
        message: String,
    },
    /// The configuration has no such pair; asking again does not help.
    #[error("no rate {from}/{to} is configured: add \"{from}/{to}\" under [fx.rates]")]
    UnknownPair {
        /// Currency paid in.
        from: CurrencyCode,
        /// Currency wanted.
        to: CurrencyCode,
    },
    /// The sum converts to less than half of the smallest unit.
    #[error("the converted sum is too small: {0}")]
    TooSmall(MoneyError),
    /// The converted sum leaves the range.
    #[error("the converted sum is too large: {0}")]
    TooLarge(MoneyError),
}

/// Why a table of rates cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RateTableError {
    /// The key is no pair of codes.
    #[error("[fx.rates] {0:?}: write a pair such as \"EUR/USD\"")]
    Pair(String),
    /// The value is no rate.
    #[error("[fx.rates] {pair:?} = {rate:?}: write a decimal number above zero as text")]
    Rate {
        /// The pair.
        pair: String,
        /// The text.
        rate: String,
    },
}

impl QuoteError {
    /// Whether asking again may help. The other kinds are definite.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unavailable { .. } => true,
            Self::UnknownPair { .. } | Self::TooSmall(_) | Self::TooLarge(_) => false,
        }
    }
}

impl RateTable {
    /// Reads pairs and rates; both are text, so that no rate passes through a float.
    ///
    /// # Errors
    /// [`RateTableError`], naming the line.
    pub fn new(rates: &BTreeMap<String, String>) -> Result<Self, RateTableError> {
        let mut table = BTreeMap::new();
        for (pair, rate) in rates {
            let codes = pair.split_once('/').and_then(|(from, to)| {
                Some((CurrencyCode::new(from).ok()?, CurrencyCode::new(to).ok()?))
            });
            let codes = codes.ok_or_else(|| RateTableError::Pair(pair.clone()))?;
            let value = parse_decimal(rate)
                .ok()
                .filter(|value| value.mantissa() > 0)
                .ok_or_else(|| RateTableError::Rate {
                    pair: pair.clone(),
                    rate: rate.clone(),
                })?;
            table.insert(codes, value);
        }
        Ok(Self { rates: table })
    }

    /// The rate of a pair, exactly as configured.
    #[must_use]
    pub fn rate(&self, from: CurrencyCode, to: CurrencyCode) -> Option<Decimal> {
        self.rates.get(&(from, to)).copied()
    }

    /// What a service with this table answers.
    #[must_use]
    pub fn answer(&self, request: &RateRequest, now: Timestamp) -> RateReply {
        match self.rate(request.from, request.to) {
            Some(rate) => RateReply::Rate {
                rate: rate.to_string(),
                source: "reference".to_owned(),
                quoted_at: now,
            },
            None => RateReply::Unavailable {
                message: format!("no rate {}/{}", request.from, request.to),
            },
        }
    }
}

impl NatsRates {
    /// Asks over this connection and waits for so long.
    #[must_use]
    pub fn new(client: Client, timeout: Duration) -> Self {
        Self { client, timeout }
    }

    async fn ask(&self, request: &RateRequest) -> Result<RateReply, String> {
        let body = Encoding::MessagePack
            .encode(request)
            .map_err(|error| error.to_string())?;
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, Encoding::MessagePack.content_type());
        let message = async_nats::Request::new()
            .headers(headers)
            .payload(body.into())
            .timeout(Some(self.timeout));
        let reply = self
            .client
            .send_request(subject::FX_QUOTE, message)
            .await
            .map_err(|error| error.to_string())?;
        encoding_of(reply.headers.as_ref())
            .and_then(|encoding| encoding.decode(&reply.payload))
            .map_err(|error| error.to_string())
    }
}

impl RateSource {
    /// Converts `amount`, with a rate obtained now. Within one currency nothing is asked.
    ///
    /// # Errors
    /// [`QuoteError`]; see [`QuoteError::is_transient`].
    pub async fn quote(
        &self,
        amount: Money,
        to: Currency,
        now: Timestamp,
    ) -> Result<Quote, QuoteError> {
        let (from, wanted) = (amount.currency().code(), to.code());
        if amount.currency() == to {
            return pin(amount, to, Decimal::ONE, IDENTITY.to_owned(), now);
        }
        let unavailable = |message: String| QuoteError::Unavailable {
            from,
            to: wanted,
            message,
        };
        match self {
            Self::Table(table) => {
                let rate = table
                    .rate(from, wanted)
                    .ok_or(QuoteError::UnknownPair { from, to: wanted })?;
                pin(amount, to, rate, "configuration".to_owned(), now)
            }
            Self::Nats(rates) => {
                let request = RateRequest { from, to: wanted };
                match rates.ask(&request).await.map_err(unavailable)? {
                    RateReply::Rate {
                        rate,
                        source,
                        quoted_at,
                    } => {
                        let rate = parse_decimal(&rate)
                            .ok()
                            .filter(|rate| rate.mantissa() > 0)
                            .ok_or_else(|| {
                                unavailable(format!("{source} answered {rate:?}, which is no rate"))
                            })?;
                        pin(amount, to, rate, source, quoted_at)
                    }
                    RateReply::Unavailable { message } => Err(unavailable(message)),
                }
            }
        }
    }
}

/// Answers rate requests from a fixed table until the connection ends: a reference for a real
/// service, and what the demonstration runs on.
///
/// # Errors
/// When the subscription cannot be made.
pub async fn serve_reference(
    client: Client,
    table: Arc<RateTable>,
    clock: impl Fn() -> Timestamp,
) -> Result<(), async_nats::SubscribeError> {
    let mut requests = client
        .queue_subscribe(subject::FX_QUOTE, "fx".to_owned())
        .await?;
    while let Some(request) = requests.next().await {
        let Some(reply_to) = request.reply else {
            continue;
        };
        let (encoding, reply) = match encoding_of(request.headers.as_ref()) {
            Ok(encoding) => match encoding.decode::<RateRequest>(&request.payload) {
                Ok(asked) => (encoding, table.answer(&asked, clock())),
                Err(error) => (encoding, refused(&error.to_string())),
            },
            Err(error) => (Encoding::Json, refused(&error.to_string())),
        };
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, encoding.content_type());
        let Ok(body) = encoding.encode(&reply) else {
            continue;
        };
        #[expect(
            clippy::disallowed_methods,
            reason = "a reply is never acknowledged; whoever asked sees a timeout and asks again"
        )]
        let sent = client
            .publish_with_headers(reply_to, headers, body.into())
            .await;
        if let Err(error) = sent {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "a rate could not be answered"
            );
        }
    }
    Ok(())
}

fn refused(message: &str) -> RateReply {
    RateReply::Unavailable {
        message: format!("cannot read the request: {message}"),
    }
}

fn encoding_of(headers: Option<&HeaderMap>) -> Result<Encoding, contracts::codec::CodecError> {
    Encoding::from_content_type(
        headers
            .and_then(|headers| headers.get(header::CONTENT_TYPE))
            .map(async_nats::HeaderValue::as_str),
    )
}

fn pin(
    amount: Money,
    to: Currency,
    rate: Decimal,
    rate_source: String,
    quoted_at: Timestamp,
) -> Result<Quote, QuoteError> {
    let rounding = Rounding::HalfEven;
    let target = convert(amount, rate, to, rounding).map_err(|error| match error {
        MoneyError::TooSmall { .. } => QuoteError::TooSmall(error),
        MoneyError::BadCode(_)
        | MoneyError::UnknownCurrency(_)
        | MoneyError::BadExponent(..)
        | MoneyError::NotANumber(_)
        | MoneyError::TooPrecise { .. }
        | MoneyError::TooLarge(_)
        | MoneyError::Mixed(..) => QuoteError::TooLarge(error),
    })?;
    Ok(Quote {
        source: amount,
        target,
        rate: rate.to_string(),
        rate_source,
        quoted_at,
        rounding,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn currency(code: &str) -> Currency {
        Currency::iso(CurrencyCode::new(code).expect("code")).expect("ISO")
    }

    fn table(rates: &[(&str, &str)]) -> Result<RateTable, RateTableError> {
        RateTable::new(
            &rates
                .iter()
                .map(|(pair, rate)| ((*pair).to_owned(), (*rate).to_owned()))
                .collect(),
        )
    }

    async fn check(amount: &str, from: &str, to: &str, expected: Result<(&str, &str), &str>) {
        let rates = [
            ("EUR/USD", "1.1000"),
            ("USD/CHF", "0.8993"),
            ("IDR/USD", "0.0000612"),
            ("USD/JPY", "99999999999.9"),
        ];
        let source = RateSource::Table(Arc::new(table(&rates).expect("table")));
        let amount = Money::parse(amount, currency(from)).expect("amount");
        let found = source
            .quote(amount, currency(to), Timestamp::UNIX_EPOCH)
            .await;
        match (found, expected) {
            (Ok(quote), Ok((target, rate))) => {
                assert_eq!(quote.target.decimal_text(), target);
                assert_eq!(quote.rate, rate);
                assert_eq!(quote.source, amount);
            }
            (Err(error), Err(part)) => {
                assert!(error.to_string().contains(part), "{error}");
                assert!(!error.is_transient());
            }
            (found, expected) => panic!("{found:?} for {expected:?}"),
        }
    }

    #[tokio::test]
    async fn a_quote_is_exact_and_its_refusals_are_definite() {
        check("100.00", "EUR", "USD", Ok(("110.00", "1.1000"))).await;
        check("4750.00", "USD", "CHF", Ok(("4271.68", "0.8993"))).await;
        check("19.99", "EUR", "EUR", Ok(("19.99", "1"))).await;
        check(
            "50",
            "IDR",
            "USD",
            Err("too small: 50.00 IDR at rate 0.0000612"),
        )
        .await;
        check("92233720368547758.07", "USD", "JPY", Err("too large")).await;
        check(
            "1.00",
            "USD",
            "EUR",
            Err("add \"USD/EUR\" under [fx.rates]"),
        )
        .await;
    }

    #[test]
    fn a_table_with_a_bad_line_is_refused() {
        for (pair, rate) in [
            ("EURUSD", "1"),
            ("EUR/US$", "1"),
            ("EUR/USD", "0"),
            ("EUR/USD", "-1"),
            ("EUR/USD", "one"),
        ] {
            assert!(table(&[(pair, rate)]).is_err(), "{pair} {rate}");
        }
    }
}
