//! Adyen notifications: a batch of items, each with its own signature.
//!
//! | event | success | meaning |
//! |---|---|---|
//! | `AUTHORISATION` | true | authorised, or paid with `authorisation_means_paid` |
//! | `AUTHORISATION`, `CAPTURE` | false | refused, may succeed |
//! | `CAPTURE` | true | paid: one capture of `originalReference` |
//! | `CANCELLATION`, `TECHNICAL_CANCEL` | true | cancelled |
//! | `OFFER_CLOSED`, `EXPIRE` | true | expired |
//! | `PENDING` | true | pending |
//! | `REFUND`, `CHARGEBACK`, `CAPTURE_FAILED`, … | true | reversal of `originalReference` |
//! | `NOTIFICATION_OF_CHARGEBACK`, `REQUEST_FOR_INFORMATION` | true | reversal opened |
//! | `REFUND` | false | reversal undone |
//! | `REFUND_FAILED`, `REFUNDED_REVERSED`, `CHARGEBACK_REVERSED`, … | true | reversal undone |
//! | a cancellation or the like that was refused | false | ignored: nothing has changed |
//!
//! The signature covers eight fields joined with `:` and *no escape*, as the provider computes it; it
//! covers neither `live`, `eventDate`, `reason` nor `additionalData`. So a customer read from
//! `additionalData` is only as trustworthy as the transport; a payment made beforehand, found by
//! reference, has the last word.

use super::fact::{CallbackFact, Meaning, PaymentIdentity, short_text};
use super::item::{self, Known};
use super::json::Object;
use super::profile::{Currencies, ProviderProfile, fold};
use super::signature::hmac_sha256_fits;
use super::unreadable::{Problem, Unreadable, UnreadableCode};
use super::{CallbackFormat, RawCallback};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use contracts::money::Money;

/// Reads Adyen notifications.
#[derive(Debug, Clone, Copy)]
pub struct Adyen;

impl CallbackFormat for Adyen {
    #[expect(
        clippy::result_large_err,
        reason = "as large as the fact it stands for; made once a callback"
    )]
    fn parse(
        &self,
        raw: &RawCallback,
        profile: &ProviderProfile,
        currencies: &Currencies,
    ) -> Vec<Result<CallbackFact, Unreadable>> {
        let refuse = |problem: Problem| vec![Err(problem.report(&raw.provider, 0))];
        let (is_test, items) = match open(raw) {
            Ok(opened) => opened,
            Err(problem) => return refuse(problem),
        };
        if items.is_empty() {
            return refuse(Problem::field(
                UnreadableCode::BadBody,
                "notificationItems",
                "holds no item: there is nothing to act on",
            ));
        }
        items
            .iter()
            .enumerate()
            .map(|(position, element)| {
                item::judge(&raw.provider, position, profile, |known| {
                    known.test = is_test;
                    let item = element
                        .object()?
                        .required_object("NotificationRequestItem")?;
                    read(&item, raw, profile, currencies, known)
                })
            })
            .collect()
    }
}

fn open(raw: &RawCallback) -> Result<(bool, Vec<super::json::Element<'_>>), Problem> {
    let envelope = Object::parse(&raw.body)?;
    let is_test = envelope.flag("live")? == Some(false);
    Ok((is_test, envelope.list("notificationItems")?))
}

/// What an event code means when it succeeded, folded to lower case.
const EVENTS: &[(&str, Meaning)] = &[
    ("authorisation", Meaning::Authorised),
    ("capture", Meaning::Paid),
    ("cancellation", Meaning::Cancelled),
    ("technical_cancel", Meaning::Cancelled),
    ("offer_closed", Meaning::Expired),
    ("expire", Meaning::Expired),
    ("pending", Meaning::Pending),
    ("refund", Meaning::Reversal),
    ("chargeback", Meaning::Reversal),
    ("second_chargeback", Meaning::Reversal),
    ("prearbitration_lost", Meaning::Reversal),
    ("capture_failed", Meaning::Reversal),
    ("notification_of_chargeback", Meaning::ReversalOpened),
    ("request_for_information", Meaning::ReversalOpened),
    ("refund_failed", Meaning::ReversalUndone),
    ("refunded_reversed", Meaning::ReversalUndone),
    ("chargeback_reversed", Meaning::ReversalUndone),
    ("prearbitration_won", Meaning::ReversalUndone),
];

/// Event codes about a payment whose own reference is `originalReference`.
const MODIFICATIONS_NEED_ORIGINAL: [&str; 3] = ["capture", "capture_failed", "refund"];

fn read(
    item: &Object<'_>,
    raw: &RawCallback,
    profile: &ProviderProfile,
    currencies: &Currencies,
    known: &mut Known,
) -> Result<CallbackFact, Problem> {
    let psp_reference = item.filled_text("pspReference")?;
    let original = item.filled_text("originalReference")?;
    known.external_id = original.clone().or_else(|| psp_reference.clone());
    known.event_type = item.filled_text("eventCode")?;
    let event = fold(known.event_type.as_deref().unwrap_or_default());
    let additional = item.object("additionalData")?;
    let additional_text = |name: &str| match &additional {
        Some(additional) => additional.filled_text(name),
        None => Ok(None),
    };
    if !profile.secrets.is_empty() {
        check_signature(item, additional_text("hmacSignature")?, profile)?;
    }
    if profile.ignores(&event) {
        return Err(ignored("the profile says that such events are no payments"));
    }
    let Some(success) = item.flag("success")? else {
        return Err(Problem::field(
            UnreadableCode::BadField,
            item.path_of("success"),
            "is missing: the same event code serves success and failure",
        ));
    };
    let meaning = meaning(&event, success, profile, &item.path_of("eventCode"))?;
    known.meaning = Some(meaning);
    if original.is_none()
        && (MODIFICATIONS_NEED_ORIGINAL.contains(&event.as_str()) || meaning.is_reversal())
    {
        return Err(Problem::field(
            UnreadableCode::MissingId,
            item.path_of("originalReference"),
            "is missing: its pspReference names the modification, not the payment",
        ));
    }
    let external_id = item::external_id(known.external_id.clone(), &item.path_of("pspReference"))?;
    let own_id = item::optional_id(psp_reference, &item.path_of("pspReference"))?;
    let is_capture = event == "capture" || event == "capture_failed";
    let customer = match additional_text("metadata.customer")? {
        Some(customer) => Some(customer),
        None => additional_text("shopperReference")?,
    };
    Ok(CallbackFact {
        payment: PaymentIdentity {
            provider: raw.provider.clone(),
            account: item::account(
                item.filled_text("merchantAccountCode")?,
                &profile.account,
                &item.path_of("merchantAccountCode"),
            )?,
            external_id,
            capture_id: if is_capture && !profile.authorisation_means_paid {
                own_id.clone()
            } else {
                None
            },
        },
        meaning,
        amount: amount(item, profile, currencies)?,
        customer: item::customer(customer, &item.path_of("additionalData.metadata.customer"))?,
        region: item::region(
            additional_text("metadata.region")?,
            &item.path_of("additionalData.metadata.region"),
        )?,
        wallet_currency: additional_text("metadata.walletCurrency")?
            .map(|code| {
                let path = item.path_of("additionalData.metadata.walletCurrency");
                item::currency(&code, &path, currencies)
            })
            .transpose()?,
        event_id: None,
        event_type: known.event_type.as_deref().and_then(short_text),
        merchant_reference: item::reference(item.filled_text("merchantReference")?),
        reversal_id: own_id.filter(|_| meaning.is_reversal()),
        reason: item
            .text("reason")
            .ok()
            .flatten()
            .and_then(|text| short_text(&text)),
        test: known.test,
        occurred_at: item
            .filled_text("eventDate")?
            .and_then(|text| text.parse().ok()),
    })
}

fn meaning(
    event: &str,
    success: bool,
    profile: &ProviderProfile,
    path: &str,
) -> Result<Meaning, Problem> {
    let Some(meaning) = profile.event_type(event, EVENTS) else {
        let shown = short_text(event).unwrap_or_default();
        return Err(Problem::field(
            UnreadableCode::UnknownStatus,
            path,
            format!(
                "{shown:?} has no meaning here: add it to ignored_events, or to event_types once its meaning is known"
            ),
        ));
    };
    match (meaning, success) {
        (Meaning::Authorised, true) if event == "authorisation" => {
            Ok(if profile.authorisation_means_paid {
                Meaning::Paid
            } else {
                Meaning::Authorised
            })
        }
        (_, true) => Ok(meaning),
        (Meaning::Paid | Meaning::Authorised | Meaning::Pending, false) => {
            Ok(Meaning::RefusedMaySucceed)
        }
        // A refund that was announced and then refused gives the money back.
        (Meaning::Reversal, false) if event == "refund" => Ok(Meaning::ReversalUndone),
        (
            Meaning::PendingReview
            | Meaning::RefusedMaySucceed
            | Meaning::Failed
            | Meaning::Expired
            | Meaning::Cancelled
            | Meaning::LookupNeeded
            | Meaning::Reversal
            | Meaning::ReversalOpened
            | Meaning::ReversalUndone,
            false,
        ) => Err(ignored("did not succeed, so nothing has changed")),
    }
}

fn ignored(message: &str) -> Problem {
    Problem::whole(UnreadableCode::IgnoredEvent, message)
}

fn amount(
    item: &Object<'_>,
    profile: &ProviderProfile,
    currencies: &Currencies,
) -> Result<Option<Money>, Problem> {
    let Some(amount) = item.object("amount")? else {
        return Ok(None);
    };
    let Some(value) = amount.filled_text("value")? else {
        return Ok(None);
    };
    let currency = item::required_currency(
        amount.filled_text("currency")?,
        &amount.path_of("currency"),
        currencies,
    )?;
    let exponent = profile.sender_exponent(currency);
    item::minor(&value, exponent, currency, &amount.path_of("value")).map(Some)
}

/// The eight fields as written, so a number is signed as its own text.
fn check_signature(
    item: &Object<'_>,
    signature: Option<String>,
    profile: &ProviderProfile,
) -> Result<(), Problem> {
    let field = item.path_of("additionalData.hmacSignature");
    let Some(signature) = signature else {
        return Err(Problem::field(
            UnreadableCode::SignatureMissing,
            field,
            "is missing: enable HMAC signatures for this webhook at the provider",
        ));
    };
    let text = |path: &str| item.text_at(path).map(Option::unwrap_or_default);
    let signed = [
        text("pspReference")?,
        text("originalReference")?,
        text("merchantAccountCode")?,
        text("merchantReference")?,
        text("amount.value")?,
        text("amount.currency")?,
        text("eventCode")?,
        text("success")?,
    ]
    .join(":");
    let fits = BASE64.decode(&signature).is_ok_and(|tag| {
        profile.secrets.iter().any(|secret| {
            secret
                .hex_bytes()
                .is_some_and(|key| hmac_sha256_fits(&key, &[signed.as_bytes()], &tag))
        })
    });
    if fits {
        Ok(())
    } else {
        Err(Problem::field(
            UnreadableCode::SignatureInvalid,
            field,
            "fits none of the configured keys: this item was changed, or its key is not among `secrets`",
        ))
    }
}
