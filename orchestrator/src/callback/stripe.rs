//! Stripe events: one event, one object; every object of a payment maps to its payment intent.
//!
//! | event | meaning |
//! |---|---|
//! | `payment_intent.succeeded` | paid, `amount_received` |
//! | `charge.succeeded`, `charge.captured` | paid, the captured part; authorised when `captured` is false |
//! | `checkout.session.completed`, `….async_payment_succeeded` | by `payment_status` |
//! | `payment_intent.payment_failed`, `charge.failed` | refused, may succeed |
//! | `….canceled`, `….expired` | cancelled, expired |
//! | `charge.refunded`, `refund.*`, `charge.refund.updated` | reversal, by the refund's own status |
//! | `charge.dispute.*` | reversal opened, reversal (funds withdrawn, lost), undone (won) |
//!
//! Sums are integers in Stripe's own decimals, signed bytes are the raw body (`Stripe-Signature`),
//! `metadata` carries `customer`, `region` and `wallet_currency`. Other event types are cases
//! unless listed in `ignored_events`.

use super::fact::{CallbackFact, Meaning, PaymentIdentity, short_text};
use super::item::{self, Known};
use super::json::Object;
use super::profile::{Currencies, ProviderProfile, fold};
use super::signature::check_timed_header;
use super::unreadable::{Problem, Unreadable, UnreadableCode};
use super::{CallbackFormat, RawCallback};
use contracts::id::ExternalId;
use contracts::money::Money;
use jiff::Timestamp;

/// Reads Stripe events.
#[derive(Debug, Clone, Copy)]
pub struct Stripe;

impl CallbackFormat for Stripe {
    fn parse(
        &self,
        raw: &RawCallback,
        profile: &ProviderProfile,
        currencies: &Currencies,
    ) -> Vec<Result<CallbackFact, Unreadable>> {
        vec![item::judge(&raw.provider, 0, profile, |known| {
            if !profile.secrets.is_empty() {
                check_timed_header(
                    raw.header("stripe-signature"),
                    &raw.body,
                    &profile.secrets,
                    raw.received_at,
                    profile.signature_tolerance_s,
                )?;
            }
            read(&Object::parse(&raw.body)?, raw, profile, currencies, known)
        })]
    }
}

/// Event types whose meaning does not depend on the object.
const EVENTS: &[(&str, Meaning)] = &[
    ("payment_intent.succeeded", Meaning::Paid),
    (
        "payment_intent.amount_capturable_updated",
        Meaning::Authorised,
    ),
    ("payment_intent.created", Meaning::Pending),
    ("payment_intent.processing", Meaning::Pending),
    ("payment_intent.requires_action", Meaning::Pending),
    ("payment_intent.partially_funded", Meaning::Pending),
    ("payment_intent.payment_failed", Meaning::RefusedMaySucceed),
    ("payment_intent.canceled", Meaning::Cancelled),
    ("charge.succeeded", Meaning::Paid),
    ("charge.captured", Meaning::Paid),
    ("charge.pending", Meaning::Pending),
    ("charge.failed", Meaning::RefusedMaySucceed),
    ("charge.expired", Meaning::Expired),
    ("charge.refunded", Meaning::Reversal),
    ("charge.dispute.created", Meaning::ReversalOpened),
    ("charge.dispute.updated", Meaning::ReversalOpened),
    ("charge.dispute.funds_withdrawn", Meaning::Reversal),
    ("charge.dispute.funds_reinstated", Meaning::ReversalUndone),
    ("checkout.session.async_payment_succeeded", Meaning::Paid),
    ("checkout.session.async_payment_failed", Meaning::Failed),
    ("checkout.session.expired", Meaning::Expired),
    ("refund.failed", Meaning::ReversalUndone),
];

/// Words of a refund, a dispute that is closed, and a checkout's `payment_status`.
const STATUSES: &[(&str, Meaning)] = &[
    ("refund:succeeded", Meaning::Reversal),
    ("refund:pending", Meaning::ReversalOpened),
    ("refund:requires_action", Meaning::ReversalOpened),
    ("refund:failed", Meaning::ReversalUndone),
    ("refund:canceled", Meaning::ReversalUndone),
    ("dispute:won", Meaning::ReversalUndone),
    ("dispute:warning_closed", Meaning::ReversalUndone),
    ("dispute:lost", Meaning::Reversal),
    ("checkout:paid", Meaning::Paid),
    ("checkout:unpaid", Meaning::Pending),
];

/// The kinds of object that tell of a payment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    PaymentIntent,
    Charge,
    Checkout,
    Refund,
    Dispute,
}

fn read(
    event: &Object<'_>,
    raw: &RawCallback,
    profile: &ProviderProfile,
    currencies: &Currencies,
    known: &mut Known,
) -> Result<CallbackFact, Problem> {
    known.event_type = event.filled_text("type")?;
    known.test = event.flag("livemode")? == Some(false);
    let event_type = known.event_type.clone().unwrap_or_default();
    if profile.ignores(&event_type) {
        return Err(Problem::whole(
            UnreadableCode::IgnoredEvent,
            "the profile says that such events are no payments",
        ));
    }
    let object = event.required_object("data")?.required_object("object")?;
    let Some(kind) = kind(&event_type) else {
        return Err(unknown_event(&event_type));
    };
    let (id, id_field) = payment_id(kind, &object)?;
    known.external_id = id;
    let external_id = item::external_id(known.external_id.clone(), &id_field)?;
    let meaning = meaning(kind, &event_type, &object, profile)?;
    known.meaning = Some(meaning);
    let metadata = object.object("metadata")?;
    let from_metadata = |name: &str| match &metadata {
        Some(metadata) => metadata.filled_text(name),
        None => Ok(None),
    };
    let metadata_path = |name: &str| object.path_of(&format!("metadata.{name}"));
    Ok(CallbackFact {
        payment: PaymentIdentity {
            provider: raw.provider.clone(),
            account: item::account(event.filled_text("account")?, &profile.account, "account")?,
            external_id,
            capture_id: None,
        },
        meaning,
        amount: amount(kind, &event_type, &object, profile, currencies)?,
        customer: item::customer(from_metadata("customer")?, &metadata_path("customer"))?,
        region: item::region(from_metadata("region")?, &metadata_path("region"))?,
        wallet_currency: from_metadata("wallet_currency")?
            .map(|code| item::currency(&code, &metadata_path("wallet_currency"), currencies))
            .transpose()?,
        event_id: event.filled_text("id")?.as_deref().and_then(short_text),
        event_type: short_text(&event_type),
        merchant_reference: item::reference(
            from_metadata("reference")?.or(object.filled_text("client_reference_id")?),
        ),
        reversal_id: reversal_id(kind, &object)?,
        reason: reason(&object),
        test: known.test,
        occurred_at: event
            .filled_text("created")?
            .and_then(|seconds| Timestamp::from_second(seconds.parse().ok()?).ok()),
    })
}

fn kind(event_type: &str) -> Option<Kind> {
    let event = fold(event_type);
    [
        ("payment_intent.", Kind::PaymentIntent),
        ("charge.dispute.", Kind::Dispute),
        ("charge.refund.", Kind::Refund),
        ("charge.", Kind::Charge),
        ("refund.", Kind::Refund),
        ("checkout.session.", Kind::Checkout),
    ]
    .iter()
    .find(|(start, _)| event.starts_with(start))
    .map(|(_, kind)| *kind)
}

/// The payment intent, whichever object the event is about; a charge or a checkout without one is
/// its own payment.
fn payment_id(kind: Kind, object: &Object<'_>) -> Result<(Option<String>, String), Problem> {
    let own = || Ok((object.filled_text("id")?, object.path_of("id")));
    let named = |name: &str| {
        // An expanded reference is an object with the id inside.
        let id = object
            .text_at(&format!("{name}.id"))?
            .map_or_else(|| object.filled_text(name), |id| Ok(Some(id)))?;
        Ok((id, object.path_of(name)))
    };
    match kind {
        Kind::PaymentIntent => own(),
        Kind::Charge | Kind::Checkout => match named("payment_intent")? {
            (None, _) => own(),
            found => Ok(found),
        },
        Kind::Refund | Kind::Dispute => match named("payment_intent")? {
            (None, _) => named("charge"),
            found => Ok(found),
        },
    }
}

fn meaning(
    kind: Kind,
    event_type: &str,
    object: &Object<'_>,
    profile: &ProviderProfile,
) -> Result<Meaning, Problem> {
    let by_status = |kind: &str, field: &str| {
        let status = object.filled_text(field)?.unwrap_or_default();
        profile
            .status(&format!("{kind}:{}", fold(&status)), STATUSES)
            .ok_or_else(|| unknown_status(kind, &object.path_of(field), &status))
    };
    let by_event = || {
        profile
            .event_type(event_type, EVENTS)
            .ok_or_else(|| unknown_event(event_type))
    };
    match (kind, fold(event_type).as_str()) {
        (Kind::Checkout, "checkout.session.completed") => by_status("checkout", "payment_status"),
        (Kind::Dispute, "charge.dispute.closed") => by_status("dispute", "status"),
        (Kind::Refund, "refund.failed") => by_event(),
        (Kind::Refund, _) => by_status("refund", "status"),
        (Kind::Charge, _) => {
            let meaning = by_event()?;
            let is_held = object.flag("captured")? == Some(false);
            Ok(if meaning.is_paid() && is_held {
                Meaning::Authorised
            } else {
                meaning
            })
        }
        (Kind::PaymentIntent, _) => {
            let meaning = by_event()?;
            let status = object.filled_text("status")?;
            if meaning.is_paid()
                && status
                    .as_deref()
                    .is_some_and(|status| status != "succeeded")
            {
                let status = status.unwrap_or_default();
                return Err(unknown_status(
                    "payment_intent",
                    &object.path_of("status"),
                    &status,
                ));
            }
            Ok(meaning)
        }
        (Kind::Checkout | Kind::Dispute, _) => by_event(),
    }
}

fn unknown_event(event_type: &str) -> Problem {
    let shown = short_text(event_type).unwrap_or_default();
    Problem::field(
        UnreadableCode::UnknownStatus,
        "type",
        format!(
            "{shown:?} has no meaning here: add it to ignored_events, or to event_types once its meaning is known"
        ),
    )
}

fn unknown_status(kind: &str, path: &str, status: &str) -> Problem {
    let shown = short_text(status).unwrap_or_default();
    Problem::field(
        UnreadableCode::UnknownStatus,
        path,
        format!(
            "{shown:?} has no meaning here: add \"{kind}:{shown}\" to statuses once its meaning is known"
        ),
    )
}

/// The sum of what happened: received, captured or refunded, not what was asked for.
fn amount(
    kind: Kind,
    event_type: &str,
    object: &Object<'_>,
    profile: &ProviderProfile,
    currencies: &Currencies,
) -> Result<Option<Money>, Problem> {
    let event = fold(event_type);
    let newest_refund = newest_refund(kind, &event, object)?;
    let (holder, fields): (&Object<'_>, &[&str]) = match (kind, event.as_str()) {
        (Kind::PaymentIntent, "payment_intent.succeeded") => (object, &["amount_received"]),
        (Kind::Charge, "charge.refunded") => match &newest_refund {
            Some(refund) => (refund, &["amount"]),
            None => (object, &["amount_refunded"]),
        },
        (Kind::Charge, "charge.captured" | "charge.succeeded")
            if object.flag("captured")? != Some(false) =>
        {
            (object, &["amount_captured", "amount"])
        }
        (Kind::Checkout, _) => (object, &["amount_total"]),
        (Kind::PaymentIntent | Kind::Charge | Kind::Refund | Kind::Dispute, _) => {
            (object, &["amount"])
        }
    };
    for field in fields {
        if let Some(text) = holder.filled_text(field)? {
            let currency = item::required_currency(
                object.filled_text("currency")?,
                &object.path_of("currency"),
                currencies,
            )?;
            let exponent = profile.sender_exponent(currency);
            return item::minor(&text, exponent, currency, &holder.path_of(field)).map(Some);
        }
    }
    Ok(None)
}

fn reversal_id(kind: Kind, object: &Object<'_>) -> Result<Option<ExternalId>, Problem> {
    let id = match kind {
        Kind::Refund | Kind::Dispute => object.filled_text("id")?,
        Kind::Charge => match newest_refund(kind, "charge.refunded", object)? {
            Some(refund) => refund.filled_text("id")?,
            None => None,
        },
        Kind::PaymentIntent | Kind::Checkout => None,
    };
    item::optional_id(id, &object.path_of("id"))
}

/// Older API versions list a charge's refunds inside it, newest first; newer ones send `refund.*`.
fn newest_refund<'a>(
    kind: Kind,
    event: &str,
    object: &Object<'a>,
) -> Result<Option<Object<'a>>, Problem> {
    if kind != Kind::Charge || event != "charge.refunded" {
        return Ok(None);
    }
    match object.object("refunds")? {
        Some(refunds) => refunds
            .list("data")?
            .first()
            .map(super::json::Element::object)
            .transpose(),
        None => Ok(None),
    }
}

/// The first free text that says why; no payment fails for it.
fn reason(object: &Object<'_>) -> Option<String> {
    [
        "last_payment_error.message",
        "failure_message",
        "failure_reason",
        "cancellation_reason",
        "reason",
    ]
    .iter()
    .find_map(|path| object.text_at(path).ok().flatten())
    .as_deref()
    .and_then(short_text)
}
