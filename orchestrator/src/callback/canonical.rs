//! Our own flat body, which a gateway produces, and any JSON that a map of fields can bring to it.
//!
//! | field | kind | meaning |
//! |---|---|---|
//! | `external_id` | text or number | the provider's id of the payment; needed |
//! | `status` | text | a word of the provider's map; without it `event_type` is looked up |
//! | `event_type`, `event_id` | text | for a person, and for the rules below |
//! | `amount` | decimal text or number | major units |
//! | `amount_minor` | integer | scaled by `exponent`, else by the provider's decimals |
//! | `amount_received` | decimal text or number | what came in, where it is not `amount` |
//! | `currency` | code | of the sum |
//! | `customer`, `region`, `wallet_currency` | text | whom, where and in which currency to credit |
//! | `account` | text | the merchant account |
//! | `action_id` or `capture_id` | text | one capture of several of this payment |
//! | `refund_id`, `dispute_id` or `reversal_id` | text | the notice is about this reversal |
//! | `payment_status`, `fraud_status` | text | a `paid` counts only when these agree |
//! | `merchant_reference`, `reason` or `status_text` | text | our reference; free text |
//! | `test`, `live` | flag or its text | the provider's test system |
//! | `occurred_at` | RFC 3339 | for a person |
//!
//! Fields not listed are ignored, so send times and attempt counters are no part of any fact.
//! There is no signature: whoever may publish callbacks of this provider is trusted.

use super::fact::{CallbackFact, Meaning, PaymentIdentity, short_text};
use super::item::{self, Known};
use super::json::Object;
use super::profile::{CanonicalField as Field, Currencies, ProviderProfile, fold};
use super::unreadable::{Problem, Unreadable, UnreadableCode};
use super::{CallbackFormat, RawCallback};
use contracts::money::{Currency, Money};

/// Reads the canonical body.
#[derive(Debug, Clone, Copy)]
pub struct Canonical;

impl CallbackFormat for Canonical {
    fn parse(
        &self,
        raw: &RawCallback,
        profile: &ProviderProfile,
        currencies: &Currencies,
    ) -> Vec<Result<CallbackFact, Unreadable>> {
        vec![item::judge(&raw.provider, 0, profile, |known| {
            let body = Body {
                object: Object::parse(&raw.body)?,
                profile,
            };
            read(&body, raw, currencies, known)
        })]
    }
}

/// Status words of a payment, as common among providers; `[providers.<name>.statuses]` says more.
const STATUSES: &[(&str, Meaning)] = &[
    ("paid", Meaning::Paid),
    ("success", Meaning::Paid),
    ("success=true", Meaning::Paid),
    ("succeeded", Meaning::Paid),
    ("successful", Meaning::Paid),
    ("captured", Meaning::Paid),
    ("capture", Meaning::Paid),
    ("settled", Meaning::Paid),
    ("settlement", Meaning::Paid),
    ("complete", Meaning::Paid),
    ("completed", Meaning::Paid),
    ("confirmed", Meaning::Paid),
    ("f", Meaning::Paid),
    ("authorized", Meaning::Authorised),
    ("authorised", Meaning::Authorised),
    ("waiting_for_capture", Meaning::Authorised),
    ("requires_capture", Meaning::Authorised),
    ("pending", Meaning::Pending),
    ("processing", Meaning::Pending),
    ("in_progress", Meaning::Pending),
    ("open", Meaning::Pending),
    ("created", Meaning::Pending),
    ("unpaid", Meaning::Pending),
    ("challenge", Meaning::PendingReview),
    ("in_review", Meaning::PendingReview),
    ("pending_review", Meaning::PendingReview),
    ("deny", Meaning::RefusedMaySucceed),
    ("denied", Meaning::RefusedMaySucceed),
    ("declined", Meaning::RefusedMaySucceed),
    ("refused", Meaning::RefusedMaySucceed),
    ("rejected", Meaning::RefusedMaySucceed),
    ("success=false", Meaning::RefusedMaySucceed),
    ("failed", Meaning::Failed),
    ("failure", Meaning::Failed),
    ("expired", Meaning::Expired),
    ("expire", Meaning::Expired),
    ("canceled", Meaning::Cancelled),
    ("cancelled", Meaning::Cancelled),
    ("cancel", Meaning::Cancelled),
    ("voided", Meaning::Cancelled),
    ("refunded", Meaning::Reversal),
    ("partially_refunded", Meaning::Reversal),
    ("reversed", Meaning::Reversal),
    ("charged_back", Meaning::Reversal),
    ("chargeback", Meaning::Reversal),
    ("return_debit", Meaning::Reversal),
    ("disputed", Meaning::ReversalOpened),
];

/// The same words when the notice is about a refund, chargeback or dispute.
const REVERSAL_STATUSES: &[(&str, Meaning)] = &[
    ("return_debit", Meaning::Reversal),
    ("lost", Meaning::Reversal),
    ("won", Meaning::ReversalUndone),
    ("returned", Meaning::ReversalUndone),
    ("needs_response", Meaning::ReversalOpened),
];

/// Event types, for a notice without a status.
const EVENTS: &[(&str, Meaning)] = &[
    ("payment_captured", Meaning::Paid),
    ("payment_paid", Meaning::Paid),
    ("payment_approved", Meaning::Authorised),
    ("payment_authorized", Meaning::Authorised),
    ("payment_pending", Meaning::Pending),
    ("payment_declined", Meaning::RefusedMaySucceed),
    ("payment_failed", Meaning::Failed),
    ("payment_expired", Meaning::Expired),
    ("payment_canceled", Meaning::Cancelled),
    ("payment_voided", Meaning::Cancelled),
    ("payment_refunded", Meaning::Reversal),
];

/// Words by which a checkout says that its form is done, which is not yet money.
const FORM_DONE: [&str; 3] = ["complete", "completed", "confirmed"];

struct Body<'a> {
    object: Object<'a>,
    profile: &'a ProviderProfile,
}

impl Body<'_> {
    fn path(&self, field: Field) -> &str {
        match self.profile.fields.get(&field) {
            Some(path) => path,
            None => default_path(field),
        }
    }

    fn text(&self, field: Field) -> Result<Option<String>, Problem> {
        let text = self.object.text_at(self.path(field))?;
        Ok(text.filter(|text| !text.is_empty()))
    }

    fn flag(&self, field: Field) -> Result<Option<bool>, Problem> {
        match self.text(field)?.as_deref().map(fold).as_deref() {
            None => Ok(None),
            Some("true") => Ok(Some(true)),
            Some("false") => Ok(Some(false)),
            Some(_) => Err(Problem::field(
                UnreadableCode::BadField,
                self.path(field),
                "must be true or false",
            )),
        }
    }

    /// Text that no payment fails for, whatever stands there.
    fn comment(&self, field: Field) -> Option<String> {
        self.text(field).ok().flatten()
    }

    fn first_of(&self, fields: &[Field]) -> Result<Option<(String, &str)>, Problem> {
        for &field in fields {
            if let Some(text) = self.text(field)? {
                return Ok(Some((text, self.path(field))));
            }
        }
        Ok(None)
    }
}

fn read(
    body: &Body<'_>,
    raw: &RawCallback,
    currencies: &Currencies,
    known: &mut Known,
) -> Result<CallbackFact, Problem> {
    known.external_id = body.text(Field::ExternalId)?;
    known.event_type = body.text(Field::EventType)?;
    known.test = body.flag(Field::Test)? == Some(true) || body.flag(Field::Live)? == Some(false);
    if let Some(named) = body.text(Field::Provider)?
        && named != raw.provider.as_str()
    {
        return Err(Problem::field(
            UnreadableCode::ProviderMismatch,
            body.path(Field::Provider),
            format!(
                "names {named:?}, but the callback came in for {}: ids of two issuers must not mix",
                raw.provider
            ),
        ));
    }
    if known
        .event_type
        .as_deref()
        .is_some_and(|event| body.profile.ignores(event))
    {
        return Err(Problem::whole(
            UnreadableCode::IgnoredEvent,
            "the profile says that such events are no payments",
        ));
    }
    let external_id = item::external_id(known.external_id.clone(), body.path(Field::ExternalId))?;
    let reversal = body.first_of(&[Field::RefundId, Field::DisputeId, Field::ReversalId])?;
    let meaning = meaning(body, known.event_type.as_deref(), reversal.is_some())?;
    known.meaning = Some(meaning);
    let capture = body.first_of(&[Field::ActionId, Field::CaptureId])?;
    let (capture_id, reversal_id) = (optional_id(capture)?, optional_id(reversal)?);
    Ok(CallbackFact {
        payment: PaymentIdentity {
            provider: raw.provider.clone(),
            account: item::account(
                body.text(Field::Account)?,
                &body.profile.account,
                body.path(Field::Account),
            )?,
            external_id,
            capture_id,
        },
        meaning,
        amount: amount(body, currencies)?,
        customer: item::customer(customer_text(body)?, body.path(Field::Customer))?,
        region: item::region(body.text(Field::Region)?, body.path(Field::Region))?,
        wallet_currency: body
            .text(Field::WalletCurrency)?
            .map(|code| item::currency(&code, body.path(Field::WalletCurrency), currencies))
            .transpose()?,
        event_id: body
            .comment(Field::EventId)
            .and_then(|text| short_text(&text)),
        event_type: known.event_type.as_deref().and_then(short_text),
        merchant_reference: item::reference(body.comment(Field::MerchantReference)),
        reversal_id,
        reason: body
            .comment(Field::Reason)
            .or_else(|| body.comment(Field::StatusText))
            .and_then(|text| short_text(&text)),
        test: known.test,
        occurred_at: body
            .comment(Field::OccurredAt)
            .and_then(|text| text.parse().ok()),
    })
}

fn optional_id(
    found: Option<(String, &str)>,
) -> Result<Option<contracts::id::ExternalId>, Problem> {
    found.map_or(Ok(None), |(text, path)| item::optional_id(Some(text), path))
}

fn customer_text(body: &Body<'_>) -> Result<Option<String>, Problem> {
    let text = body.text(Field::Customer)?;
    Ok(match &body.profile.customer_before {
        None => text,
        Some(mark) => text.and_then(|text| Some(text.rsplit_once(mark)?.0.to_owned())),
    })
}

/// The word's meaning, lowered by whatever else in the notice says that money has not come yet.
fn meaning(body: &Body<'_>, event: Option<&str>, has_reversal: bool) -> Result<Meaning, Problem> {
    let Some(status) = body.text(Field::Status)? else {
        return event
            .and_then(|event| body.profile.event_type(event, EVENTS))
            .ok_or_else(|| unknown(body.path(Field::EventType), event, "event_types"));
    };
    let path = body.path(Field::Status);
    let word = |status: &str, path: &str| {
        body.profile
            .status(status, STATUSES)
            .ok_or_else(|| unknown(path, Some(status), "statuses"))
    };
    if has_reversal || event.is_some_and(is_reversal_event) {
        return match body.profile.status(&status, REVERSAL_STATUSES) {
            Some(meaning) if meaning.is_reversal() => Ok(meaning),
            Some(_) | None => word(&status, path).map(of_a_reversal),
        };
    }
    let mut meaning = word(&status, path)?;
    let is_checkout = event.is_some_and(|event| fold(event).starts_with("checkout."));
    let payment_status = body.text(Field::PaymentStatus)?;
    if is_checkout
        && payment_status.is_none()
        && meaning.is_paid()
        && FORM_DONE.contains(&fold(&status).as_str())
    {
        meaning = Meaning::Pending;
    }
    if meaning.is_paid()
        && let Some(payment_status) = payment_status
    {
        meaning = word(&payment_status, body.path(Field::PaymentStatus))?;
    }
    if meaning.is_paid()
        && let Some(fraud) = body.text(Field::FraudStatus)?
    {
        meaning = match fold(&fraud).as_str() {
            "accept" | "accepted" => meaning,
            "challenge" => Meaning::PendingReview,
            "deny" | "denied" => Meaning::RefusedMaySucceed,
            _ => {
                return Err(unknown(
                    body.path(Field::FraudStatus),
                    Some(&fraud),
                    "statuses",
                ));
            }
        };
    }
    Ok(meaning)
}

fn is_reversal_event(event: &str) -> bool {
    let event = fold(event);
    ["refund", "chargeback", "dispute"]
        .iter()
        .any(|kind| event.split(['.', '_', '-']).any(|part| part == *kind))
}

/// What a payment's word means when a refund or dispute says it of itself: a `failed` refund leaves
/// the deposit alone and gives the money back.
fn of_a_reversal(meaning: Meaning) -> Meaning {
    match meaning {
        Meaning::Paid | Meaning::Reversal => Meaning::Reversal,
        Meaning::Authorised
        | Meaning::Pending
        | Meaning::PendingReview
        | Meaning::LookupNeeded
        | Meaning::ReversalOpened => Meaning::ReversalOpened,
        Meaning::RefusedMaySucceed
        | Meaning::Failed
        | Meaning::Expired
        | Meaning::Cancelled
        | Meaning::ReversalUndone => Meaning::ReversalUndone,
    }
}

fn unknown(path: &str, word: Option<&str>, table: &str) -> Problem {
    let shown = word.and_then(short_text);
    Problem::field(
        UnreadableCode::UnknownStatus,
        path,
        match shown {
            Some(word) => format!(
                "{word:?} is not in this provider's map: add it under [providers.<name>.{table}] once its meaning is known"
            ),
            None => "is missing, and there is no status either".to_owned(),
        },
    )
}

/// The sum, by whichever of its three fields; what came in wins over what was asked for.
fn amount(body: &Body<'_>, currencies: &Currencies) -> Result<Option<Money>, Problem> {
    let (asked, received) = (body.text(Field::Amount)?, body.text(Field::AmountReceived)?);
    let scaled = body.text(Field::AmountMinor)?;
    let code = body.text(Field::Currency)?;
    if asked.is_none() && received.is_none() && scaled.is_none() {
        // An unknown currency is reported also where no sum is needed: it will be one later.
        return match code {
            Some(code) => {
                item::currency(&code, body.path(Field::Currency), currencies).map(|_| None)
            }
            None => Ok(None),
        };
    }
    let currency = item::required_currency(code, body.path(Field::Currency), currencies)?;
    let asked = asked
        .map(|text| item::major(&text, currency, body.path(Field::Amount)))
        .transpose()?;
    let scaled = scaled
        .map(|text| {
            let exponent = sender_exponent(body, currency)?;
            item::minor(&text, exponent, currency, body.path(Field::AmountMinor))
        })
        .transpose()?;
    if let (Some(asked), Some(scaled)) = (asked, scaled)
        && asked != scaled
    {
        return Err(Problem::field(
            UnreadableCode::BadAmount,
            body.path(Field::AmountMinor),
            format!(
                "says {scaled}, and {} says {asked}",
                body.path(Field::Amount)
            ),
        ));
    }
    let received = received
        .map(|text| item::major(&text, currency, body.path(Field::AmountReceived)))
        .transpose()?;
    Ok(received.or(asked).or(scaled))
}

fn sender_exponent(body: &Body<'_>, currency: Currency) -> Result<u8, Problem> {
    match body.text(Field::Exponent)? {
        None => Ok(body.profile.sender_exponent(currency)),
        Some(text) => text
            .parse()
            .ok()
            .filter(|exponent| *exponent <= contracts::money::MAX_EXPONENT)
            .ok_or_else(|| {
                Problem::field(
                    UnreadableCode::BadField,
                    body.path(Field::Exponent),
                    "must be a number of decimals from 0 to 18",
                )
            }),
    }
}

fn default_path(field: Field) -> &'static str {
    match field {
        Field::ExternalId => "external_id",
        Field::EventType => "event_type",
        Field::EventId => "event_id",
        Field::Status => "status",
        Field::PaymentStatus => "payment_status",
        Field::FraudStatus => "fraud_status",
        Field::Amount => "amount",
        Field::AmountMinor => "amount_minor",
        Field::AmountReceived => "amount_received",
        Field::Exponent => "exponent",
        Field::Currency => "currency",
        Field::Customer => "customer",
        Field::Region => "region",
        Field::WalletCurrency => "wallet_currency",
        Field::Provider => "provider",
        Field::Account => "account",
        Field::ActionId => "action_id",
        Field::CaptureId => "capture_id",
        Field::RefundId => "refund_id",
        Field::DisputeId => "dispute_id",
        Field::ReversalId => "reversal_id",
        Field::MerchantReference => "merchant_reference",
        Field::Reason => "reason",
        Field::StatusText => "status_text",
        Field::Test => "test",
        Field::Live => "live",
        Field::OccurredAt => "occurred_at",
    }
}
