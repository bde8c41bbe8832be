//! A callback, or one item of it, that gives no fact: kept for a person, never lost, never guessed.

use super::fact::{CallbackFact, Meaning};
use contracts::id::Provider;
use contracts::subject::short_digest;
use serde::{Deserialize, Serialize};

/// Why there is no fact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnreadableCode {
    /// The provider is not configured, and unknown ones are refused.
    UnknownProvider,
    /// The body names another provider than the one it came from.
    ProviderMismatch,
    /// Longer than the profile's maximum.
    BodyTooLarge,
    /// Not the JSON or form that the provider sends.
    BadBody,
    /// One key twice in one object: readers would differ, so nobody reads it.
    DuplicateKey,
    /// No id of the payment: nothing identifies nothing.
    MissingId,
    /// An id longer than the maximum, or holding NUL.
    BadId,
    /// A field of another kind than stated.
    BadField,
    /// No signature where one is required.
    SignatureMissing,
    /// The signature fits none of the secrets.
    SignatureInvalid,
    /// The signature is older (or younger) than the tolerance: perhaps a replay.
    SignatureTooOld,
    /// A status word or event type that the provider's map does not hold.
    UnknownStatus,
    /// A sum without a currency.
    MissingCurrency,
    /// A currency neither in ISO 4217 nor configured, or no currency code at all.
    UnknownCurrency,
    /// A sum that is needed and not there.
    MissingAmount,
    /// Not a number, too precise, out of range, zero or negative.
    BadAmount,
    /// The notice does not say the state; no lookup at the provider exists yet.
    NeedsLookup,
    /// From the provider's test system on a live one: recorded and ignored.
    TestMode,
    /// An event that the profile says is not about payments: recorded and ignored.
    IgnoredEvent,
}

/// What becomes a case for a person (or, when [`is_case`](Self::is_case) says no, only a trace).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("callback of {provider}, item {item}: {}{message}", field_prefix(field.as_deref()))]
pub struct Unreadable {
    /// Why.
    pub code: UnreadableCode,
    /// The provider it came from.
    pub provider: Provider,
    /// Position in a batch; 0 for a message that holds one.
    pub item: usize,
    /// The field to look at, by its path in the body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// What is wrong with it and what mends it.
    pub message: String,
    /// The payment id as far as known, shortened; not an identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_id: Option<String>,
    /// The event's name as far as known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_type: Option<String>,
    /// The meaning as far as known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meaning: Option<Meaning>,
    /// What it would have said, for test mode and for lookups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fact: Option<Box<CallbackFact>>,
}

/// What is wrong with one field, before it is known which callback it belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Why.
    pub code: UnreadableCode,
    /// The field, by its path in the body.
    pub field: Option<String>,
    /// What is wrong with it and what mends it.
    pub message: String,
}

impl UnreadableCode {
    /// Whether a person must look at it; otherwise a trace is enough.
    #[must_use]
    pub fn is_case(self) -> bool {
        match self {
            Self::TestMode | Self::IgnoredEvent => false,
            Self::UnknownProvider
            | Self::ProviderMismatch
            | Self::BodyTooLarge
            | Self::BadBody
            | Self::DuplicateKey
            | Self::MissingId
            | Self::BadId
            | Self::BadField
            | Self::SignatureMissing
            | Self::SignatureInvalid
            | Self::SignatureTooOld
            | Self::UnknownStatus
            | Self::MissingCurrency
            | Self::UnknownCurrency
            | Self::MissingAmount
            | Self::BadAmount
            | Self::NeedsLookup => true,
        }
    }

    /// Whether it shows that the sender may not be the provider.
    #[must_use]
    pub fn is_untrusted(self) -> bool {
        matches!(
            self,
            Self::SignatureMissing
                | Self::SignatureInvalid
                | Self::SignatureTooOld
                | Self::ProviderMismatch
        )
    }
}

impl Unreadable {
    /// Whether a person must look at it; otherwise a trace is enough.
    #[must_use]
    pub fn is_case(&self) -> bool {
        self.code.is_case()
    }

    /// A key of this case that needs no id in the body: the digest of the body, and the item. Two
    /// callbacks without an id are thus two cases, and a redelivery of one is the same case.
    #[must_use]
    pub fn case_id(&self, body: &[u8]) -> String {
        format!("{}-{}", short_digest(body), self.item)
    }
}

impl Problem {
    /// A problem with a named field.
    pub fn field(
        code: UnreadableCode,
        field: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            code,
            field: Some(field.into()),
            message: message.into(),
        }
    }

    /// A problem with the message as a whole.
    pub fn whole(code: UnreadableCode, message: impl Into<String>) -> Self {
        Self {
            code,
            field: None,
            message: message.into(),
        }
    }

    /// The report of this problem for one item of a provider's message.
    #[must_use]
    pub fn report(self, provider: &Provider, item: usize) -> Unreadable {
        Unreadable {
            code: self.code,
            provider: provider.clone(),
            item,
            field: self.field,
            message: self.message,
            external_id: None,
            event_type: None,
            meaning: None,
            fact: None,
        }
    }
}

fn field_prefix(field: Option<&str>) -> String {
    field.map_or_else(String::new, |field| format!("field {field}: "))
}
