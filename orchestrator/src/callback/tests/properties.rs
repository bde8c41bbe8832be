//! What holds of a callback whatever its bytes: no panic, and a fact is a fact again after it was stored.
//!
//! `PROPTEST_CASES=100000 cargo test -p orchestrator callback` looks longer.

use super::*;
use crate::arbitrary::replace;
use crate::workflows::deposit;
use contracts::key;
use contracts::money::{Currency, CurrencyCode, Money};
use serde_json::{Value, json};
use std::sync::LazyLock;

/// Each body of the recorded cases, and one of each format, to be damaged.
static SAMPLES: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let cases = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/cases");
    let mut bodies: Vec<Value> = std::fs::read_dir(cases)
        .expect("the cases")
        .map(|entry| std::fs::read(entry.expect("an entry").path()).expect("a case"))
        .flat_map(|text| {
            let case: Value = serde_json::from_slice(&text).expect("JSON");
            let steps = case["steps"].as_array().cloned().unwrap_or_default();
            steps
                .into_iter()
                .filter_map(|step| step.get("body").cloned())
        })
        .collect();
    assert!(bodies.len() > 50, "only {} bodies found", bodies.len());
    bodies.extend(
        samples()
            .iter()
            .map(|(_, body)| serde_json::from_str(body).expect("JSON")),
    );
    bodies
});

/// Names that some format reads, at any depth.
static NAMES: LazyLock<Vec<String>> = LazyLock::new(|| {
    fn collect(value: &Value, names: &mut std::collections::BTreeSet<String>) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    names.insert(name.clone());
                    collect(value, names);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| collect(item, names)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let mut names = std::collections::BTreeSet::new();
    SAMPLES.iter().for_each(|body| collect(body, &mut names));
    names.extend(
        [
            "exponent",
            "dispute_id",
            "occurred_at",
            "amount_total",
            "hmacSignature",
        ]
        .map(str::to_owned),
    );
    names.into_iter().collect()
});

/// All formats, and profiles that differ in everything a profile can say.
static PROVIDERS: LazyLock<Providers> = LazyLock::new(|| {
    providers(
        r#"
        [currencies]
        BTC = 8
        USD = 4
        [providers.stripe]
        format = "stripe"
        verified_by_gateway = true
        [providers.stripe-signed]
        format = "stripe"
        secrets = ["x"]
        [providers.adyen]
        format = "adyen"
        verified_by_gateway = true
        authorisation_means_paid = true
        [providers.adyen-signed]
        format = "adyen"
        secrets = ["00ff"]
        [providers.own]
        account = "main"
        accept_test = true
        customer_before = ":"
        statuses = { odd = "paid", open = "reversal" }
        event_types = { "money.in" = "paid" }
        ignored_events = ["customer.*", ""]
        exponents = { ISK = 2, JPY = 18 }
        max_body_bytes = 4096
        [providers.own.fields]
        external_id = "data.id"
        event_type = "type"
        amount_minor = "data.amount"
        currency = "data.currency"
        customer = "data.reference"
        "#,
    )
});

const PROVIDER_NAMES: [&str; 6] = [
    "plain",
    "own",
    "stripe",
    "stripe-signed",
    "adyen",
    "adyen-signed",
];

/// What a field may hold: words that mean something, sums, and what no field should hold.
fn leaf() -> impl Strategy<Value = Value> {
    let words = prop::sample::select(vec![
        "paid",
        "pending",
        "failed",
        "refunded",
        "lost",
        "won",
        "true",
        "false",
        "EUR",
        "USD",
        "ISK",
        "BTC",
        "XQQ",
        "accept",
        "challenge",
        "checkout.completed",
        "charge.refunded",
        "charge.dispute.closed",
        "payment_intent.succeeded",
        "payment_intent.processing",
        "refund.updated",
        "AUTHORISATION",
        "CAPTURE",
        "REFUND",
        "CHARGEBACK",
        "CANCEL_OR_REFUND",
        "2030-01-01T10:00:00+01:00",
        "eu",
        "",
        "\0",
        "c:1",
    ]);
    let sums = prop::sample::select(vec![
        "0",
        "-0",
        "1",
        "19.99",
        "0.001",
        "1e3",
        "1e400",
        "-5",
        "92233720368547758.07",
        "92233720368547758.08",
        "9223372036854775808",
        "-9223372036854775808",
        "0.0000000000000000000000000001",
    ]);
    prop_oneof![
        4 => words.prop_map(Value::from),
        2 => sums.prop_map(Value::from),
        2 => sums_as_numbers(),
        1 => Just(Value::Null),
        1 => any::<bool>().prop_map(Value::from),
        1 => any::<f64>().prop_map(Value::from),
        1 => ".{0,12}".prop_map(Value::from),
        1 => "[a-z]{1000,1100}".prop_map(Value::from),
    ]
}

fn sums_as_numbers() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-99..9999_i64).prop_map(Value::from)
    ]
}

/// JSON of any shape made of names that are read.
fn shaped() -> impl Strategy<Value = Value> {
    leaf().prop_recursive(5, 40, 6, |inner| {
        let names = prop::sample::select(NAMES.as_slice());
        prop_oneof![
            4 => prop::collection::vec((names, inner.clone()), 0..8).prop_map(|fields| {
                Value::from(fields.into_iter().map(|(name, value)| (name.clone(), value)).collect::<serde_json::Map<_, _>>())
            }),
            1 => prop::collection::vec(inner, 0..4).prop_map(Value::from),
        ]
    })
}

/// What everything downstream relies on, for every item of a callback.
fn check(raw: &RawCallback) {
    let results = PROVIDERS.parse(raw);
    assert!(!results.is_empty(), "a message without an item");
    assert_eq!(
        format!("{results:?}"),
        format!("{:?}", PROVIDERS.parse(raw)),
        "read otherwise again"
    );
    for result in results {
        let fact = match result {
            Ok(fact) => fact,
            Err(report) => {
                let json = serde_json::to_string(&report).expect("JSON");
                let _shown = format!("{report} {}", report.case_id(&raw.body));
                assert!(json.len() < 8 * 1024, "a report carries the body: {json}");
                match report.fact {
                    Some(fact) => *fact,
                    None => continue,
                }
            }
        };
        stays_a_fact(&fact);
    }
}

fn stays_a_fact(fact: &CallbackFact) {
    let json = serde_json::to_vec(fact).expect("JSON");
    assert_eq!(
        &serde_json::from_slice::<CallbackFact>(&json).expect("a fact"),
        fact
    );
    let value = serde_json::to_value(fact).expect("JSON");
    assert_eq!(
        &serde_json::from_value::<CallbackFact>(value.clone()).expect("a fact"),
        fact
    );
    // It is about one saga, whose id is one and stands in a subject and a header.
    let saga_id = deposit::saga_id(&fact.payment);
    assert_eq!((deposit::DEPOSIT.identify)("", &value), Ok(saga_id.clone()));
    assert!(
        contracts::id::SagaId::new(saga_id.as_str()).is_ok(),
        "{saga_id}"
    );
    assert!(saga_id.key().len() <= key::MAX_LEN);
    assert!((deposit::DEPOSIT.check_signal)(deposit::PSP_CALLBACK, &value).is_ok());
    if fact.meaning.needs_amount() {
        assert!(fact.amount.is_some_and(Money::is_positive), "{fact:?}");
    }
    assert!(
        fact.amount.is_none_or(|amount| amount.amount_minor() >= 0),
        "{fact:?}"
    );
    for text in [&fact.event_id, &fact.event_type, &fact.reason]
        .into_iter()
        .flatten()
    {
        assert!(
            text.len() <= MAX_TEXT_LEN && !text.chars().any(char::is_control),
            "{text:?}"
        );
    }
}

fn check_everywhere(body: &[u8]) {
    for name in PROVIDER_NAMES {
        check(&raw(name, body.to_vec()));
    }
}

proptest! {
    #[test]
    fn no_shape_breaks_a_format(body in shaped()) {
        check_everywhere(&serde_json::to_vec(&body).expect("JSON"));
    }

    #[test]
    fn no_change_to_a_sample_breaks_a_format(
        which in any::<prop::sample::Index>(),
        walk in prop::collection::vec(any::<prop::sample::Index>(), 0..7),
        value in shaped(),
    ) {
        let mut body = which.get(&SAMPLES).clone();
        replace(&mut body, &walk, value);
        check_everywhere(&serde_json::to_vec(&body).expect("JSON"));
    }

    #[test]
    fn no_byte_changed_in_a_sample_breaks_a_format(
        which in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        cut in 0..9_usize,
        filling in prop::collection::vec(any::<u8>(), 0..6),
    ) {
        let mut bytes = serde_json::to_vec(which.get(&SAMPLES)).expect("JSON");
        let start = at.index(bytes.len());
        let end = (start + cut).min(bytes.len());
        bytes.splice(start..end, filling);
        check_everywhere(&bytes);
    }

    #[test]
    fn two_samples_in_one_body_break_nothing(
        one in any::<prop::sample::Index>(),
        other in any::<prop::sample::Index>(),
        cut in any::<prop::sample::Index>(),
    ) {
        let bytes = |which: prop::sample::Index| serde_json::to_vec(which.get(&SAMPLES)).expect("JSON");
        let (mut first, second) = (bytes(one), bytes(other));
        let at = cut.index(first.len().min(second.len()));
        first.truncate(at);
        first.extend_from_slice(&second[at..]);
        check_everywhere(&first);
    }

    #[test]
    fn headers_break_nothing(
        which in 0..3_usize,
        signature in "t=[0-9]{0,25},v1=[0-9a-f]{0,70}(,v1=.{0,9}){0,3}|.{0,80}",
        url in prop::option::of(".{0,60}"),
    ) {
        let (_, body) = samples().remove(which);
        for name in PROVIDER_NAMES {
            let mut raw = raw(name, body.clone()).with_header("Stripe-Signature", signature.clone());
            raw.url.clone_from(&url);
            check(&raw);
        }
    }

    #[test]
    fn a_sum_is_what_its_digits_say(minor in 1..i64::MAX, exponent in 0..=18_u8, as_number: bool) {
        let code = CurrencyCode::new("TST").expect("code");
        let money = Money::new(minor, Currency::new(code, exponent).expect("exponent"));
        let providers = providers(&format!("[currencies]\nTST = {exponent}\n"));
        let text = money.decimal_text();
        // Written as a number, it must not pass through a float on its way.
        let amount = if as_number { text } else { format!("{text:?}") };
        let body = format!(r#"{{"external_id":"e","status":"paid","amount":{amount},"currency":"TST"}}"#);
        prop_assert_eq!(one(&providers, &raw("p", body)).map(|fact| fact.amount).ok(), Some(Some(money)));
        let body = json!({ "external_id": "e", "status": "paid", "amount_minor": minor, "currency": "TST" });
        let body = body.to_string();
        prop_assert_eq!(one(&providers, &raw("p", body)).map(|fact| fact.amount).ok(), Some(Some(money)));
    }

    #[test]
    fn payments_that_differ_have_sagas_that_differ(
        ids in prop::collection::vec(("[ab/:.é]{1,3}", "[ab/:]{0,2}|account:a|capture:a", prop::option::of("[ab/:]{1,2}|capture:a|again:2")), 2),
    ) {
        let payment = |(id, account, capture): &(String, String, Option<String>)| PaymentIdentity {
            provider: Provider::new("p").expect("provider"),
            account: account.clone(),
            external_id: contracts::id::ExternalId::new(id.as_str()).expect("id"),
            capture_id: capture.as_ref().map(|id| contracts::id::ExternalId::new(id.as_str()).expect("id")),
        };
        let (one, other) = (payment(&ids[0]), payment(&ids[1]));
        let again = |payment| crate::saga::next_generation(&deposit::saga_id(payment));
        prop_assert_eq!(deposit::saga_id(&one) == deposit::saga_id(&other), one == other);
        prop_assert_eq!(again(&one) == again(&other), one == other);
        prop_assert!(deposit::saga_id(&one) != again(&other));
    }
}
