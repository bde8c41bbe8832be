//! Tables of callbacks and what they mean. Ids, names, secrets and sums are invented.

mod adyen;
mod canonical;
mod properties;
mod stripe;

use super::*;
use figment::Figment;
use figment::providers::{Format as _, Toml};
use hmac::{Hmac, KeyInit as _, Mac as _};
use proptest::prelude::*;
use sha2::Sha256;

/// When every test callback was received.
const RECEIVED_S: i64 = 1_900_000_000;

fn providers(toml: &str) -> Providers {
    let config: ProvidersConfig = Figment::from(Toml::string(toml)).extract().expect("TOML");
    Providers::new(config).expect("profiles")
}

fn raw(provider: &str, body: impl Into<Bytes>) -> RawCallback {
    RawCallback::new(
        Provider::new(provider).expect("provider"),
        body,
        Timestamp::from_second(RECEIVED_S).expect("time"),
    )
}

fn hmac(key: &[u8], text: &[u8]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("key");
    mac.update(text);
    mac.finalize().into_bytes().to_vec()
}

/// What a callback means, in one line: `paid ext-1 19.99 USD`, or the code of its refusal.
fn summary(result: &Result<CallbackFact, Unreadable>) -> String {
    match result {
        Ok(fact) => {
            let mut line = format!("{} {}", fact.meaning, fact.payment.external_id);
            if let Some(capture) = &fact.payment.capture_id {
                line.push_str(&format!("/{capture}"));
            }
            if let Some(amount) = fact.amount {
                line.push_str(&format!(" {amount}"));
            }
            if let Some(reversal) = &fact.reversal_id {
                line.push_str(&format!(" by {reversal}"));
            }
            line
        }
        Err(unreadable) => {
            let code = serde_json::to_value(unreadable.code).expect("JSON");
            let code = code.as_str().expect("text").to_owned();
            match &unreadable.field {
                Some(field) => format!("{code} {field}"),
                None => code,
            }
        }
    }
}

fn summaries(providers: &Providers, raw: &RawCallback) -> Vec<String> {
    providers.parse(raw).iter().map(summary).collect()
}

#[expect(
    clippy::result_large_err,
    reason = "as large as the fact it stands for"
)]
fn one(providers: &Providers, raw: &RawCallback) -> Result<CallbackFact, Unreadable> {
    let mut results = providers.parse(raw);
    assert_eq!(results.len(), 1, "{results:?}");
    results.remove(0)
}

#[test]
fn a_profile_that_cannot_work_is_refused_at_the_start() {
    for (toml, part) in [
        ("[providers.\"A B\"]", "[providers.A B]"),
        ("[providers.s]\nformat = \"stripe\"", "set `secrets`"),
        (
            "[providers.a]\nformat = \"adyen\"\nsecrets = [\"zz\"]",
            "hexadecimal",
        ),
        ("[currencies]\nABC = 19", "at most 18"),
        ("[providers.p.exponents]\nISK = 40", "at most 18"),
    ] {
        let config: ProvidersConfig = Figment::from(Toml::string(toml)).extract().expect("TOML");
        let error = Providers::new(config).expect_err(toml).to_string();
        assert!(error.contains(part), "{toml}: {error}");
    }
}

#[test]
fn an_unknown_provider_is_read_as_canonical_or_kept_for_a_person() {
    let body = r#"{"external_id":"e","status":"paid","amount":"1","currency":"USD"}"#;
    let accepting = Providers::default();
    assert_eq!(
        summaries(&accepting, &raw("new", body)),
        ["paid e 1.00 USD"]
    );
    let refusing = providers("unknown_providers = \"refuse\"");
    assert_eq!(
        summaries(&refusing, &raw("new", body)),
        ["unknown_provider"]
    );
}

#[test]
fn secrets_do_not_show() {
    let profile = ProviderProfile {
        secrets: vec![Secret::new("whsec-visible")],
        ..ProviderProfile::default()
    };
    assert!(!format!("{profile:?}").contains("visible"));
}

#[test]
fn cases_without_an_id_are_told_apart_by_their_bodies() {
    let (first, second) = (raw("p", r#"{"a":1}"#), raw("p", r#"{"a":2}"#));
    let id = |raw: &RawCallback| {
        let refusal = one(&Providers::default(), raw).expect_err("no id");
        refusal.case_id(&raw.body)
    };
    assert_ne!(id(&first), id(&second));
    assert_eq!(id(&first), id(&first.clone()));
}

/// One callback of each format, to be damaged.
fn samples() -> Vec<(&'static str, String)> {
    vec![
        (
            "plain",
            r#"{"external_id":"e-1","event_type":"checkout.completed","status":"paid","payment_status":"paid","fraud_status":"accept","amount":"1.50","amount_minor":150,"currency":"USD","customer":"c","region":"eu","wallet_currency":"EUR","live":"true","refund_id":null}"#
                .to_owned(),
        ),
        (
            "s",
            r#"{"id":"evt_1","type":"charge.refunded","livemode":true,"created":1,"data":{"object":{"id":"ch_1","payment_intent":"pi_1","amount":5,"amount_refunded":5,"currency":"isk","refunds":{"data":[{"id":"re_1","amount":500}]},"metadata":{"customer":"c"}}}}"#
                .to_owned(),
        ),
        (
            "a",
            r#"{"live":"true","notificationItems":[{"NotificationRequestItem":{"amount":{"currency":"EUR","value":4000},"eventCode":"CAPTURE","eventDate":"2030-01-01T10:00:00+01:00","merchantAccountCode":"M","merchantReference":"r","pspReference":"P1","originalReference":"P0","success":"true","additionalData":{"metadata.region":"eu"}}}]}"#
                .to_owned(),
        ),
    ]
}

fn all_formats() -> Providers {
    providers(
        "[providers.s]\nformat = \"stripe\"\nverified_by_gateway = true\n\
         [providers.a]\nformat = \"adyen\"\nverified_by_gateway = true\n\
         [providers.signed]\nformat = \"stripe\"\nsecrets = [\"x\"]\n",
    )
}

proptest! {
    #[test]
    fn no_bytes_panic(
        body in prop::collection::vec(any::<u8>(), 0..200),
        header in ".{0,60}",
    ) {
        let providers = all_formats();
        for name in ["plain", "s", "a", "signed"] {
            let raw = raw(name, body.clone()).with_header("Stripe-Signature", header.clone());
            prop_assert!(!providers.parse(&raw).is_empty());
        }
    }

    #[test]
    fn no_damaged_sample_panics(
        which in 0_usize..3,
        at in any::<prop::sample::Index>(),
        len in 0_usize..12,
        filling in prop_oneof![
            Just("null".to_owned()), Just("-1".to_owned()), Just("1e999".to_owned()),
            Just("[]".to_owned()), Just("{}".to_owned()), Just("\"\"".to_owned()),
            Just("99999999999999999999999999999999".to_owned()), "\\PC{0,8}", ".{0,4}",
        ],
    ) {
        let (name, sample) = samples().remove(which);
        let mut bytes = sample.into_bytes();
        let start = at.index(bytes.len());
        let end = (start + len).min(bytes.len());
        bytes.splice(start..end, filling.into_bytes());
        let results = all_formats().parse(&raw(name, bytes));
        prop_assert!(!results.is_empty());
        for fact in results.into_iter().flatten() {
            let json = serde_json::to_string(&fact).expect("JSON");
            prop_assert_eq!(serde_json::from_str::<CallbackFact>(&json).expect("fact"), fact);
        }
    }
}
