//! Callbacks as the providers would post them, signed with their own schemes.
//!
//! Written against the providers' documents and not with the code that reads them, so that the two
//! cannot be wrong in the same way.

use super::DemoError;
use super::story::{Deposit, Notice, Psp, Says};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use contracts::money::{Currency, CurrencyCode, Money};
use hmac::{Hmac, KeyInit as _, Mac as _};
use jiff::Timestamp;
use serde_json::{Value, json};
use sha2::Sha256;

/// The secret of the webhook endpoint at the first provider. Of no use anywhere else.
pub(super) const STRIPE_SECRET: &str = "whsec_demo_not_a_real_secret";
/// The key of the second provider's notifications, in hex. Of no use anywhere else.
pub(super) const ADYEN_KEY: &str =
    "0D1E2F3041525364758697A8B9CADBEC0D1E2F3041525364758697A8B9CADBEC";
/// The merchant account there.
pub(super) const ADYEN_ACCOUNT: &str = "DemoMerchant";

/// When the story happens according to the providers; fixed, so that a retold story is the same.
const HAPPENED_AT: &str = "2026-01-31T12:00:00+01:00";
const HAPPENED_AT_S: i64 = 1_769_857_200;

/// A callback on its way to the gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Post {
    pub(super) psp: Psp,
    pub(super) event_id: &'static str,
    pub(super) body: Vec<u8>,
    /// The HTTP header that the signature stands in, where it stands in one.
    pub(super) signature: Option<(&'static str, String)>,
    /// How many facts it tells.
    pub(super) items: usize,
}

/// Writes and signs the callback of these notices; `now` is when it is signed.
///
/// # Errors
/// When the story is wrong: no notice, or a sum that is none.
pub(super) fn post(
    event_id: &'static str,
    notices: &[Notice],
    now: Timestamp,
) -> Result<Post, DemoError> {
    let Some(Notice(first, says)) = notices.first() else {
        return Err(DemoError::Story(format!("{event_id} tells nothing")));
    };
    let body = match first.psp {
        Psp::Stripe => stripe_event(event_id, first, *says)?,
        Psp::Adyen => adyen_batch(notices)?,
        Psp::Paylink => paylink_body(event_id, first, *says),
    };
    let body = body.to_string().into_bytes();
    let signature = match first.psp {
        Psp::Stripe => Some(("Stripe-Signature", stripe_signature(&body, now))),
        Psp::Adyen | Psp::Paylink => None,
    };
    Ok(Post {
        psp: first.psp,
        event_id,
        body,
        signature,
        items: notices.len(),
    })
}

/// The amount of a sum of the story.
///
/// # Errors
/// When it is none.
pub(super) fn money((text, code): (&str, &str)) -> Result<Money, DemoError> {
    CurrencyCode::new(code)
        .and_then(Currency::iso)
        .and_then(|currency| Money::parse(text, currency))
        .map_err(|error| DemoError::Story(format!("{text} {code}: {error}")))
}

fn stripe_event(event_id: &str, deposit: &Deposit, says: Says) -> Result<Value, DemoError> {
    let amount = money(deposit.paid)?.amount_minor();
    let currency = deposit.paid.1.to_ascii_lowercase();
    let mut metadata = json!({ "customer": deposit.customer });
    if deposit.claimed {
        metadata["region"] = json!(deposit.home);
    }
    if deposit.paid.1 != deposit.credited.1 {
        metadata["wallet_currency"] = json!(deposit.credited.1);
    }
    let charge_id = deposit.id.replace("pi_", "ch_");
    let intent = |status: &str, received: i64| {
        json!({
            "id": deposit.id, "object": "payment_intent", "amount": amount,
            "amount_received": received, "currency": currency, "status": status,
            "latest_charge": charge_id, "metadata": metadata,
        })
    };
    let (kind, object) = match says {
        Says::Paid => ("payment_intent.succeeded", intent("succeeded", amount)),
        Says::Pending => ("payment_intent.processing", intent("processing", 0)),
        Says::Refused => (
            "payment_intent.payment_failed",
            intent("requires_payment_method", 0),
        ),
        Says::Expired => ("payment_intent.canceled", intent("canceled", 0)),
        Says::ChargePaid => (
            "charge.succeeded",
            json!({
                "id": charge_id, "object": "charge", "amount": amount, "amount_captured": amount,
                "captured": true, "currency": currency, "paid": true, "status": "succeeded",
                "payment_intent": deposit.id, "metadata": metadata,
            }),
        ),
    };
    Ok(json!({
        "id": event_id, "object": "event", "created": HAPPENED_AT_S, "livemode": true,
        "type": kind, "data": { "object": object },
    }))
}

fn adyen_batch(notices: &[Notice]) -> Result<Value, DemoError> {
    let items: Result<Vec<Value>, DemoError> = notices.iter().map(adyen_item).collect();
    Ok(json!({ "live": "true", "notificationItems": items? }))
}

fn adyen_item(Notice(deposit, says): &Notice) -> Result<Value, DemoError> {
    let value = money(deposit.paid)?.amount_minor();
    let currency = deposit.paid.1;
    let reference = format!("order-{}", deposit.customer);
    let event_code = match says {
        Says::Paid | Says::ChargePaid | Says::Refused => "AUTHORISATION",
        Says::Pending => "PENDING",
        Says::Expired => "OFFER_CLOSED",
    };
    let success = if *says == Says::Refused {
        "false"
    } else {
        "true"
    };
    // Signed before it left the provider; a distrusted item was made dearer on its way.
    let signed = format!(
        "{}::{ADYEN_ACCOUNT}:{reference}:{value}:{currency}:{event_code}:{success}",
        deposit.id
    );
    let value = match deposit.ends {
        super::story::Ends::Distrusted => value * 10,
        super::story::Ends::Credited
        | super::story::Ends::CreditedAtSecondTry
        | super::story::Ends::Refused
        | super::story::Ends::TurnedBack => value,
    };
    let key = hex::decode(ADYEN_KEY).map_err(|error| DemoError::Story(error.to_string()))?;
    let mut additional = json!({
        "hmacSignature": BASE64.encode(hmac_sha256(&key, &[signed.as_bytes()])),
        "metadata.customer": deposit.customer,
    });
    if deposit.claimed {
        additional["metadata.region"] = json!(deposit.home);
    }
    if deposit.paid.1 != deposit.credited.1 {
        additional["metadata.walletCurrency"] = json!(deposit.credited.1);
    }
    Ok(json!({
        "NotificationRequestItem": {
            "additionalData": additional,
            "amount": { "currency": currency, "value": value },
            "eventCode": event_code,
            "eventDate": HAPPENED_AT,
            "merchantAccountCode": ADYEN_ACCOUNT,
            "merchantReference": reference,
            "pspReference": deposit.id,
            "reason": "",
            "success": success,
        }
    }))
}

fn paylink_body(event_id: &str, deposit: &Deposit, says: Says) -> Value {
    let status = match says {
        Says::Paid | Says::ChargePaid => "paid",
        Says::Refused => "declined",
        Says::Expired => "expired",
        Says::Pending => "pending",
    };
    let mut body = json!({
        "external_id": deposit.id, "event_id": event_id, "status": status,
        "amount": deposit.paid.0, "currency": deposit.paid.1, "customer": deposit.customer,
        "occurred_at": HAPPENED_AT,
    });
    if deposit.claimed {
        body["region"] = json!(deposit.home);
    }
    if deposit.paid.1 != deposit.credited.1 {
        body["wallet_currency"] = json!(deposit.credited.1);
    }
    body
}

fn stripe_signature(body: &[u8], now: Timestamp) -> String {
    let seconds = now.as_second().to_string();
    let tag = hmac_sha256(STRIPE_SECRET.as_bytes(), &[seconds.as_bytes(), b".", body]);
    format!("t={seconds},v1={}", hex::encode(tag))
}

fn hmac_sha256(key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    // HMAC takes keys of any length; there is no other reason to fail.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else {
        return Vec::new();
    };
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use super::super::story::{self, Ends, Telling};
    use super::super::system::providers_toml;
    use super::*;
    use crate::callback::{Providers, ProvidersConfig, RawCallback};
    use crate::clock::wall_clock;
    use contracts::id::Provider;
    use figment::Figment;
    use figment::providers::{Format as _, Toml};

    #[test]
    fn every_callback_is_read_as_it_is_meant() {
        let config: ProvidersConfig = Figment::from(Toml::string(&providers_toml()))
            .extract()
            .expect("sections");
        let providers = Providers::new(config).expect("providers");
        for telling in story::tellings() {
            let Telling::Callback(event_id, notices) = telling else {
                continue;
            };
            let now = wall_clock();
            let post = post(event_id, notices, now).expect("callback");
            let provider = Provider::new(post.psp.name()).expect("provider");
            let mut raw = RawCallback::new(provider, post.body.clone(), now);
            if let Some((name, value)) = &post.signature {
                raw = raw.with_header(name, value);
            }
            let read = providers.parse(&raw);
            assert_eq!(read.len(), notices.len(), "{event_id}");
            for (fact, Notice(deposit, says)) in read.iter().zip(*notices) {
                if deposit.ends == Ends::Distrusted {
                    fact.as_ref().expect_err("tampered with");
                    continue;
                }
                let fact = fact.as_ref().expect("fact");
                assert_eq!(fact.payment.external_id.as_str(), deposit.id);
                assert_eq!(fact.meaning.is_paid(), says.is_paid(), "{event_id}");
                assert_eq!(fact.amount, Some(money(deposit.paid).expect("sum")));
                let region = fact.region.as_ref().map(|region| region.as_str());
                assert_eq!(region, deposit.claimed.then_some(deposit.home));
            }
        }
    }
}
