//! What a callback says, in our words: the input of a saga, stored as JSON.

use contracts::id::{CustomerId, ExternalId, Provider, Region, SagaId};
use contracts::money::{Currency, Money};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Longest free text kept of a callback, in bytes; the rest is cut and marked with `…`.
pub const MAX_TEXT_LEN: usize = 256;

/// Which payment, byte for byte: the issuer (provider and merchant account), the id it issued and,
/// where one payment is captured in several parts, the part.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PaymentIdentity {
    /// Who issued the id.
    pub provider: Provider,
    /// The merchant account at the provider; empty when there is only one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub account: String,
    /// The provider's id of the payment, unchanged.
    pub external_id: ExternalId,
    /// The provider's id of one capture of several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capture_id: Option<ExternalId>,
}

/// What a provider's word means for the money.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Meaning {
    /// The money has come and may be credited.
    Paid,
    /// The payer's bank has reserved the money; nothing has come until it is captured.
    Authorised,
    /// The payment is on its way; a later fact decides.
    Pending,
    /// The provider's own people look at it first; a later fact decides.
    PendingReview,
    /// This attempt was refused, but the payer may try again under the same id: a success may follow.
    RefusedMaySucceed,
    /// The provider says that it has failed. A success that comes all the same is not lost.
    Failed,
    /// Nobody paid in time.
    Expired,
    /// Somebody called it off before money came.
    Cancelled,
    /// The notice names a payment but not its state; the provider has to be asked.
    LookupNeeded,
    /// Money that had come has gone back (refund, chargeback, lost dispute).
    Reversal,
    /// Money that had come may go back (dispute opened, refund on its way); nothing has moved yet.
    ReversalOpened,
    /// A reversal did not last (refund returned, dispute won): the money is ours again.
    ReversalUndone,
}

/// One fact about one payment, read from a callback. Small: never the raw body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallbackFact {
    /// Which payment.
    pub payment: PaymentIdentity,
    /// What happened to it.
    pub meaning: Meaning,
    /// How much: what came in (not what was asked for), or what went back. Above zero for
    /// [`Meaning::Paid`] and [`Meaning::Reversal`], which always have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub amount: Option<Money>,
    /// Who paid, when the callback says so; the payment's own row may know as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub customer: Option<CustomerId>,
    /// The region the callback claims; checked against the configured ones when the payment is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<Region>,
    /// The currency to credit, when it is not the one paid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wallet_currency: Option<Currency>,
    /// The provider's id of the notice, for a person; no part of any identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_id: Option<String>,
    /// The provider's name of the event, for a person; no part of any identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_type: Option<String>,
    /// Our own reference that the provider returns, by which a payment made beforehand is found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merchant_reference: Option<ExternalId>,
    /// The provider's id of the refund, chargeback or dispute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reversal_id: Option<ExternalId>,
    /// The provider's free text, shortened and without control characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether it comes from the provider's test system (only where the profile accepts such).
    #[serde(default, skip_serializing_if = "is_false")]
    pub test: bool,
    /// When the provider says it happened. Not an order: see the legal moves of a payment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub occurred_at: Option<Timestamp>,
}

/// A field in which two reports of the same fact contradict each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FactField {
    /// The sum.
    Amount,
    /// The currency of the sum.
    Currency,
    /// Who paid.
    Customer,
    /// The currency to credit.
    WalletCurrency,
    /// The region to credit in.
    Region,
    /// Part of a payment against the whole of it.
    CaptureId,
}

impl PaymentIdentity {
    /// The parts of the identity in their order, empty where absent: what a saga id is made of.
    #[must_use]
    pub fn parts(&self) -> [&str; 4] {
        [
            self.provider.as_str(),
            &self.account,
            self.external_id.as_str(),
            self.capture_id.as_ref().map_or("", ExternalId::as_str),
        ]
    }

    /// The same payment without the capture: what every capture of it has in common.
    #[must_use]
    pub fn whole(&self) -> Self {
        Self {
            capture_id: None,
            ..self.clone()
        }
    }
}

impl std::fmt::Display for PaymentIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", SagaId::from_parts("payment", &self.parts()))
    }
}

impl Meaning {
    /// All meanings.
    pub const ALL: [Self; 12] = [
        Self::Paid,
        Self::Authorised,
        Self::Pending,
        Self::PendingReview,
        Self::RefusedMaySucceed,
        Self::Failed,
        Self::Expired,
        Self::Cancelled,
        Self::LookupNeeded,
        Self::Reversal,
        Self::ReversalOpened,
        Self::ReversalUndone,
    ];

    /// The word in JSON, configuration and saga ids.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Paid => "paid",
            Self::Authorised => "authorised",
            Self::Pending => "pending",
            Self::PendingReview => "pending_review",
            Self::RefusedMaySucceed => "refused_may_succeed",
            Self::Failed => "failed",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
            Self::LookupNeeded => "lookup_needed",
            Self::Reversal => "reversal",
            Self::ReversalOpened => "reversal_opened",
            Self::ReversalUndone => "reversal_undone",
        }
    }

    /// Money has come: the one meaning that may lead to a credit.
    #[must_use]
    pub fn is_paid(self) -> bool {
        self == Self::Paid
    }

    /// Neither money nor a refusal yet: wait for another fact.
    #[must_use]
    pub fn is_waiting(self) -> bool {
        matches!(
            self,
            Self::Authorised | Self::Pending | Self::PendingReview | Self::LookupNeeded
        )
    }

    /// No money came. Never undoes a payment that has succeeded; a success may still follow.
    #[must_use]
    pub fn is_refusal(self) -> bool {
        matches!(
            self,
            Self::RefusedMaySucceed | Self::Failed | Self::Expired | Self::Cancelled
        )
    }

    /// About money that had already come: a business action of its own, linked to the deposit.
    #[must_use]
    pub fn is_reversal(self) -> bool {
        matches!(
            self,
            Self::Reversal | Self::ReversalOpened | Self::ReversalUndone
        )
    }

    /// A sum must be known for this meaning, since it is what will be moved.
    #[must_use]
    pub fn needs_amount(self) -> bool {
        matches!(self, Self::Paid | Self::Reversal)
    }
}

impl std::fmt::Display for Meaning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FactField {
    /// The field's name in our JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Amount => "amount",
            Self::Currency => "currency",
            Self::Customer => "customer",
            Self::WalletCurrency => "wallet_currency",
            Self::Region => "region",
            Self::CaptureId => "capture_id",
        }
    }
}

impl std::fmt::Display for FactField {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl CallbackFact {
    /// What makes this fact this fact: the payment, the meaning and the reversal it is about. The
    /// event's name, attempt counters and send times are no part of it.
    #[must_use]
    pub fn identity_parts(&self) -> [&str; 6] {
        let [provider, account, external_id, capture_id] = self.payment.parts();
        [
            provider,
            account,
            external_id,
            capture_id,
            self.meaning.as_str(),
            self.reversal_id.as_ref().map_or("", ExternalId::as_str),
        ]
    }

    /// Whether two callbacks report the same fact, whatever their events are called.
    #[must_use]
    pub fn is_same_fact(&self, other: &Self) -> bool {
        self.identity_parts() == other.identity_parts()
    }
}

/// The fields in which two reports of one fact contradict each other; none makes the second a
/// duplicate, any makes it a conflict for a person. What only one of them states contradicts nothing.
#[must_use]
pub fn same_fact_differs(first: &CallbackFact, second: &CallbackFact) -> Vec<FactField> {
    let mut fields = Vec::new();
    if let (Some(a), Some(b)) = (first.amount, second.amount) {
        fields.extend(money_differs(a, b));
    }
    if let (Some(a), Some(b)) = (&first.customer, &second.customer)
        && a != b
    {
        fields.push(FactField::Customer);
    }
    fields
}

/// The fields in which two sums differ.
#[must_use]
pub fn money_differs(first: Money, second: Money) -> Vec<FactField> {
    let mut fields = Vec::new();
    let (a, b) = (first.currency(), second.currency());
    // Decimals that differ are compared as the same number of units only when they are the same.
    if first.amount_minor() != second.amount_minor() || a.exponent() != b.exponent() {
        fields.push(FactField::Amount);
    }
    if a.code() != b.code() {
        fields.push(FactField::Currency);
    }
    fields
}

/// Free text as kept: control characters (NUL among them) become blanks, and what is longer than
/// [`MAX_TEXT_LEN`] is cut between characters. `None` when nothing is left.
#[must_use]
pub fn short_text(text: &str) -> Option<String> {
    const MARK: char = '…';
    let mut short = String::new();
    let mut last_fit = 0;
    for c in text.chars() {
        let c = if c.is_control() { ' ' } else { c };
        if short.len() + c.len_utf8() > MAX_TEXT_LEN {
            short.truncate(last_fit);
            short.push(MARK);
            break;
        }
        short.push(c);
        if short.len() + MARK.len_utf8() <= MAX_TEXT_LEN {
            last_fit = short.len();
        }
    }
    let trimmed = short.trim();
    (!trimmed.is_empty()).then(|| trimmed.to_owned())
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature serde asks for"
)]
fn is_false(flag: &bool) -> bool {
    !flag
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_meaning_is_of_one_kind_and_keeps_its_word() {
        for meaning in Meaning::ALL {
            let kinds = [
                meaning.is_paid(),
                meaning.is_waiting(),
                meaning.is_refusal(),
                meaning.is_reversal(),
            ];
            assert_eq!(
                kinds.iter().filter(|&&kind| kind).count(),
                1,
                "{meaning} {kinds:?}"
            );
            assert_eq!(
                serde_json::to_string(&meaning).expect("JSON"),
                format!("\"{meaning}\"")
            );
        }
    }

    #[test]
    fn free_text_is_cut_between_characters_and_holds_no_controls() {
        assert_eq!(short_text("a\0b\nc").as_deref(), Some("a b c"));
        assert_eq!(short_text(" \0\t "), None);
        let long = short_text(&"é".repeat(20_000)).expect("text");
        assert!(long.ends_with('…') && long.len() <= MAX_TEXT_LEN, "{long}");
        assert_eq!(
            short_text(&"x".repeat(MAX_TEXT_LEN)),
            Some("x".repeat(MAX_TEXT_LEN))
        );
    }

    proptest! {
        #[test]
        fn short_text_is_short(text in "\\PC{0,400}") {
            prop_assert!(short_text(&text).is_none_or(|short| short.len() <= MAX_TEXT_LEN));
        }
    }
}
