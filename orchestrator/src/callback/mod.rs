//! From a provider's raw callback to facts. Pure: no IO, no clock, no randomness.
//!
//! [`Providers::parse`] picks the adapter and returns, item by item, a [`CallbackFact`] or an
//! [`Unreadable`]. One message may hold several facts, each judged alone, so that one tampered item
//! of a batch refuses only itself. The raw body goes no further than here.
//!
//! **Trust.** A signature is verified over the bytes received, with the provider's own scheme, when
//! the profile has secrets. Without secrets the boundary is the intake: whoever may publish on
//! `billing.callback.<provider>.…` is believed, and the configuration has to say so
//! (`verified_by_gateway`) for formats that sign.
//!
//! **Identity.** A payment is provider + merchant account + external id (+ capture id); a fact is a
//! payment + a [`Meaning`] (+ reversal id). The same fact with another sum, currency or customer
//! ([`same_fact_differs`]) is a case for a person.

pub mod adyen;
pub mod canonical;
mod fact;
mod item;
mod json;
mod profile;
mod providers;
mod signature;
pub mod stripe;
mod unreadable;

#[cfg(test)]
mod tests;

pub use fact::{
    CallbackFact, FactField, MAX_TEXT_LEN, Meaning, PaymentIdentity, money_differs,
    same_fact_differs, short_text,
};
pub use profile::{
    CanonicalField, Currencies, DEFAULT_MAX_BODY_BYTES, FormatName, ProfileError, ProviderProfile,
};
pub use providers::{Providers, ProvidersConfig, UnknownProviders};
pub use signature::Secret;
pub use unreadable::{Problem, Unreadable, UnreadableCode};

use bytes::Bytes;
use contracts::id::Provider;
use jiff::Timestamp;
use std::collections::BTreeMap;

/// A callback as the gateway took it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawCallback {
    /// Whose endpoint it came to.
    pub provider: Provider,
    /// Path and query it was posted to; some providers put a status there.
    pub url: Option<String>,
    /// The HTTP headers, names in lower case; some providers put the event id or signature there.
    pub headers: BTreeMap<String, String>,
    /// The body, byte for byte.
    pub body: Bytes,
    /// When the gateway took it.
    pub received_at: Timestamp,
}

impl RawCallback {
    /// A callback without headers.
    pub fn new(provider: Provider, body: impl Into<Bytes>, received_at: Timestamp) -> Self {
        Self {
            provider,
            url: None,
            headers: BTreeMap::new(),
            body: body.into(),
            received_at,
        }
    }

    /// Adds a header; the name is put in lower case.
    #[must_use]
    pub fn with_header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.insert(name.to_ascii_lowercase(), value.into());
        self
    }

    /// A header by its lower-case name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }
}

/// Reads one provider's callbacks. The result has an entry for each item of the message, in order,
/// and never none: a message with nothing in it is an [`Unreadable`] too.
///
/// An adapter has the whole raw callback, since ids, signatures and statuses stand in headers,
/// bodies (JSON or form) and addresses, and numbers must be read from their text.
pub trait CallbackFormat {
    /// Reads a message.
    fn parse(
        &self,
        raw: &RawCallback,
        profile: &ProviderProfile,
        currencies: &Currencies,
    ) -> Vec<Result<CallbackFact, Unreadable>>;
}
