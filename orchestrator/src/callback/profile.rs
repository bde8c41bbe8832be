//! How one provider is read: `[providers.<name>]` in the configuration.
//!
//! ```toml
//! unknown_providers = "refuse"          # default "accept": read as canonical, unsigned
//!
//! [currencies]
//! BTC = 8                               # beyond ISO 4217
//!
//! [providers.stripe]
//! format = "stripe"
//! secrets = ["whsec_new", "whsec_old"]
//! ignored_events = ["customer.*", "invoice.*"]
//!
//! [providers.polar]                     # canonical, with words of its own
//! statuses = { confirmed = "pending" }
//! exponents = { ISK = 2 }
//!
//! [providers.nested]                    # {id, type, data: {id, amount, currency, reference: "cust-a:1"}}
//! event_types = { "money.in" = "paid" }
//! customer_before = ":"
//! [providers.nested.fields]
//! external_id = "data.id"
//! event_id = "id"
//! event_type = "type"
//! amount_minor = "data.amount"
//! amount = "data.none"
//! currency = "data.currency"
//! customer = "data.reference"
//! ```

use super::fact::Meaning;
use super::signature::Secret;
use contracts::money::{Currency, CurrencyCode, MAX_EXPONENT, MoneyError};
use serde::Deserialize;
use std::collections::BTreeMap;

/// Largest body read unless the profile says otherwise: what one NATS message holds by default.
pub const DEFAULT_MAX_BODY_BYTES: usize = 1_048_576;

/// How long before (or after) its reception a callback may have been signed.
pub(super) const DEFAULT_SIGNATURE_TOLERANCE_S: u32 = 300;

/// Which adapter reads the callbacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FormatName {
    /// Our own flat fields, see [`super::canonical`]; other JSON through [`ProviderProfile::fields`].
    #[default]
    Canonical,
    /// See [`super::stripe`].
    Stripe,
    /// See [`super::adyen`].
    Adyen,
}

/// How one provider is read. Everything has a default that suits its format.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProviderProfile {
    /// Which adapter.
    pub format: FormatName,
    /// The merchant account, for callbacks that name none.
    pub account: String,
    /// The secrets to verify with; any may fit, so that one can be replaced without a gap. In hex
    /// for `adyen`.
    pub secrets: Vec<Secret>,
    /// Says that a gateway in front has verified the signature, so that no secret is needed here.
    pub verified_by_gateway: bool,
    /// Seconds that signing and reception may lie apart.
    pub signature_tolerance_s: u32,
    /// Bytes of the largest body read.
    pub max_body_bytes: usize,
    /// Decimals that this provider scales its integers by, where they are not the currency's own.
    pub exponents: BTreeMap<CurrencyCode, u8>,
    /// Status words, added to (and stronger than) the format's own.
    pub statuses: BTreeMap<String, Meaning>,
    /// Event types, for callbacks without a status; added to (and stronger than) the format's own.
    pub event_types: BTreeMap<String, Meaning>,
    /// Event types that are no payments; a trailing `*` stands for any ending.
    pub ignored_events: Vec<String>,
    /// Whether facts of the provider's test system count.
    pub accept_test: bool,
    /// `adyen`: whether an authorisation is captured at once, so that it means paid. A capture is
    /// then the same fact, and several captures of one payment become a case.
    pub authorisation_means_paid: bool,
    /// `canonical`: where a field stands in this provider's body, as names joined with dots:
    /// `external_id = "data.id"`.
    pub fields: BTreeMap<CanonicalField, String>,
    /// `canonical`: the customer is what stands before the last such text in its field, for a
    /// reference made of a customer and a number.
    pub customer_before: Option<String>,
}

/// A field of the canonical body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(
    missing_docs,
    reason = "each is the field of its name in the table of the canonical format"
)]
pub enum CanonicalField {
    ExternalId,
    EventType,
    EventId,
    Status,
    PaymentStatus,
    FraudStatus,
    Amount,
    AmountMinor,
    AmountReceived,
    Exponent,
    Currency,
    Customer,
    Region,
    WalletCurrency,
    Provider,
    Account,
    ActionId,
    CaptureId,
    RefundId,
    DisputeId,
    ReversalId,
    MerchantReference,
    Reason,
    StatusText,
    Test,
    Live,
    OccurredAt,
}

/// The currencies we hold: ISO 4217 and the configured ones (`[currencies] BTC = 8`).
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(transparent)]
pub struct Currencies {
    configured: BTreeMap<CurrencyCode, u8>,
}

/// Why a profile cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// The name of the section is no provider name.
    #[error("[providers.{name}]: {reason}")]
    Name {
        /// The name as written.
        name: String,
        /// What is wrong.
        reason: String,
    },
    /// A signed format without a secret.
    #[error(
        "[providers.{0}]: set `secrets`, or `verified_by_gateway = true` if a gateway in front verifies signatures"
    )]
    NoSecret(String),
    /// A secret that the format cannot use.
    #[error("[providers.{0}]: `secrets` of the format adyen are hexadecimal keys")]
    SecretNotHex(String),
    /// More decimals than we count with.
    #[error("{section}: {code} = {exponent} decimals; at most {MAX_EXPONENT} are supported")]
    Exponent {
        /// The section of the configuration.
        section: String,
        /// The currency.
        code: CurrencyCode,
        /// The decimals as written.
        exponent: u8,
    },
}

impl Default for ProviderProfile {
    fn default() -> Self {
        Self {
            format: FormatName::Canonical,
            account: String::new(),
            secrets: Vec::new(),
            verified_by_gateway: false,
            signature_tolerance_s: DEFAULT_SIGNATURE_TOLERANCE_S,
            max_body_bytes: DEFAULT_MAX_BODY_BYTES,
            exponents: BTreeMap::new(),
            statuses: BTreeMap::new(),
            event_types: BTreeMap::new(),
            ignored_events: Vec::new(),
            accept_test: false,
            authorisation_means_paid: false,
            fields: BTreeMap::new(),
            customer_before: None,
        }
    }
}

impl ProviderProfile {
    /// A profile of this format with its defaults.
    #[must_use]
    pub fn of_format(format: FormatName) -> Self {
        Self {
            format,
            ..Self::default()
        }
    }

    /// Folds the words once, and says what of the profile cannot be used.
    ///
    /// # Errors
    /// [`ProfileError`].
    pub fn checked(mut self, name: &str) -> Result<Self, ProfileError> {
        self.statuses = fold_keys(self.statuses);
        self.event_types = fold_keys(self.event_types);
        self.ignored_events = self.ignored_events.iter().map(|word| fold(word)).collect();
        if self.format != FormatName::Canonical
            && self.secrets.is_empty()
            && !self.verified_by_gateway
        {
            return Err(ProfileError::NoSecret(name.to_owned()));
        }
        if self.format == FormatName::Adyen
            && self
                .secrets
                .iter()
                .any(|secret| secret.hex_bytes().is_none())
        {
            return Err(ProfileError::SecretNotHex(name.to_owned()));
        }
        check_exponents(&format!("[providers.{name}.exponents]"), &self.exponents)?;
        Ok(self)
    }

    /// The decimals by which this provider scales integers of a currency: the profile's own, else
    /// the format's, else the currency's.
    #[must_use]
    pub fn sender_exponent(&self, currency: Currency) -> u8 {
        let code = currency.code();
        self.exponents
            .get(&code)
            .copied()
            .or_else(|| self.format.exponent(code))
            .unwrap_or_else(|| currency.exponent())
    }

    /// The meaning of a status word: ASCII case and edge blanks are ignored, nothing else.
    #[must_use]
    pub fn status(&self, word: &str, of_format: &[(&str, Meaning)]) -> Option<Meaning> {
        look_up(&self.statuses, word, of_format)
    }

    /// The meaning of an event type, folded likewise.
    #[must_use]
    pub fn event_type(&self, event: &str, of_format: &[(&str, Meaning)]) -> Option<Meaning> {
        look_up(&self.event_types, event, of_format)
    }

    /// Whether the profile says that such events are no payments.
    #[must_use]
    pub fn ignores(&self, event: &str) -> bool {
        let event = fold(event);
        self.ignored_events
            .iter()
            .any(|pattern| match pattern.strip_suffix('*') {
                Some(start) => event.starts_with(start),
                None => event == *pattern,
            })
    }
}

impl FormatName {
    /// Where a provider's decimals are known to differ from ISO 4217.
    fn exponent(self, code: CurrencyCode) -> Option<u8> {
        match (self, code.as_str()) {
            (Self::Stripe | Self::Adyen, "ISK") | (Self::Stripe, "UGX") => Some(2),
            (Self::Stripe, "MGA") | (Self::Adyen, "CLP" | "CVE" | "IDR") => Some(0),
            (Self::Canonical | Self::Stripe | Self::Adyen, _) => None,
        }
    }
}

impl Currencies {
    /// ISO 4217 and these.
    ///
    /// # Errors
    /// [`ProfileError::Exponent`].
    pub fn new(configured: BTreeMap<CurrencyCode, u8>) -> Result<Self, ProfileError> {
        check_exponents("[currencies]", &configured)?;
        Ok(Self { configured })
    }

    /// The currency of a code. There is no default number of decimals.
    ///
    /// # Errors
    /// [`MoneyError::UnknownCurrency`].
    pub fn get(&self, code: CurrencyCode) -> Result<Currency, MoneyError> {
        match self.configured.get(&code) {
            Some(&exponent) => Currency::new(code, exponent),
            None => Currency::iso(code),
        }
    }
}

/// A word as compared: ASCII lower case, no blanks at the edges. No locale, no Unicode folding.
#[must_use]
pub(super) fn fold(word: &str) -> String {
    word.trim_matches(|c: char| c.is_ascii_whitespace())
        .to_ascii_lowercase()
}

fn look_up(
    own: &BTreeMap<String, Meaning>,
    word: &str,
    of_format: &[(&str, Meaning)],
) -> Option<Meaning> {
    let word = fold(word);
    own.get(&word).copied().or_else(|| {
        of_format
            .iter()
            .find(|(known, _)| *known == word)
            .map(|(_, meaning)| *meaning)
    })
}

fn fold_keys(words: BTreeMap<String, Meaning>) -> BTreeMap<String, Meaning> {
    words
        .into_iter()
        .map(|(word, meaning)| (fold(&word), meaning))
        .collect()
}

fn check_exponents(
    section: &str,
    exponents: &BTreeMap<CurrencyCode, u8>,
) -> Result<(), ProfileError> {
    match exponents
        .iter()
        .find(|(_, exponent)| **exponent > MAX_EXPONENT)
    {
        None => Ok(()),
        Some((&code, &exponent)) => Err(ProfileError::Exponent {
            section: section.to_owned(),
            code,
            exponent,
        }),
    }
}
