//! The canonical body: the rules on words, sums, ids and test systems.

use super::*;
use contracts::money::{CurrencyCode, Money};

fn read(toml: &str, provider: &str, body: &str) -> String {
    summaries(&providers(toml), &raw(provider, body.to_owned())).join(", ")
}

fn check(body: &str, expected: &str) {
    assert_eq!(read("", "p", body), expected, "{body}");
}

/// A body that says `paid`, with these fields as well.
fn paid(fields: &str) -> String {
    format!(r#"{{"external_id":"e","event_type":"x","status":"paid","customer":"c",{fields}}}"#)
}

#[test]
fn sums_are_read_from_their_text_or_refused() {
    for (fields, expected) in [
        (r#""amount":19.99,"currency":"USD""#, "paid e 19.99 USD"),
        (r#""amount":"8.20","currency":"USD""#, "paid e 8.20 USD"),
        (r#""amount":0.1,"currency":"USD""#, "paid e 0.10 USD"),
        (r#""amount":"8.170","currency":"USD""#, "paid e 8.17 USD"),
        (r#""amount":1E3,"currency":"USD""#, "paid e 1000.00 USD"),
        (r#""amount":1.5e+1,"currency":"USD""#, "paid e 15.00 USD"),
        (r#""amount":".50","currency":"usd""#, "paid e 0.50 USD"),
        (r#""amount":"7.125","currency":"TND""#, "paid e 7.125 TND"),
        (r#""amount":"80.00","currency":"JPY""#, "paid e 80 JPY"),
        (
            r#""amount":"2147483648","currency":"VND""#,
            "paid e 2147483648 VND",
        ),
        (r#""amount":"8.165","currency":"USD""#, "bad_amount amount"),
        (r#""amount":5.06e-6,"currency":"USD""#, "bad_amount amount"),
        (r#""amount":1e400,"currency":"USD""#, "bad_amount amount"),
        (r#""amount":"-5.00","currency":"USD""#, "bad_amount amount"),
        (
            r#""amount":"1,000.00","currency":"USD""#,
            "bad_amount amount",
        ),
        (r#""amount":"80.50","currency":"JPY""#, "bad_amount amount"),
        (
            r#""amount":"92233720368547758.08","currency":"EUR""#,
            "bad_amount amount",
        ),
        (r#""amount":"0.00","currency":"USD""#, "bad_amount amount"),
        (r#""currency":"USD""#, "missing_amount amount"),
        (r#""amount":null,"currency":"USD""#, "missing_amount amount"),
        (r#""amount":{},"currency":"USD""#, "bad_field amount"),
        (r#""amount":"1.00""#, "missing_currency currency"),
        (
            r#""amount":"1.00","currency":"US$""#,
            "unknown_currency currency",
        ),
        (
            r#""amount_minor":1000,"currency":"XQQ""#,
            "unknown_currency currency",
        ),
        (
            r#""amount":"1","currency":"BTC""#,
            "unknown_currency currency",
        ),
        (r#""amount_minor":1624,"currency":"JPY""#, "paid e 1624 JPY"),
        (
            r#""amount_minor":18600,"currency":"KWD""#,
            "paid e 18.600 KWD",
        ),
        (
            r#""amount_minor":"500","exponent":2,"currency":"JPY""#,
            "paid e 5 JPY",
        ),
        (
            r#""amount_minor":10.5,"currency":"USD""#,
            "bad_amount amount_minor",
        ),
        (
            r#""amount_minor":9223372036854775808,"currency":"USD""#,
            "bad_amount amount_minor",
        ),
        (
            r#""amount_minor":5,"exponent":300,"currency":"USD""#,
            "bad_field exponent",
        ),
        (
            r#""amount":"10","amount_minor":1000,"currency":"USD""#,
            "paid e 10.00 USD",
        ),
        (
            r#""amount":"10","amount_minor":10,"currency":"USD""#,
            "bad_amount amount_minor",
        ),
        (
            r#""amount":"10","amount_received":"6","currency":"USD""#,
            "paid e 6.00 USD",
        ),
    ] {
        check(&paid(fields), expected);
    }
}

#[test]
fn decimals_are_those_of_the_provider_and_the_currency() {
    let toml = "[currencies]\nBTC = 8\nETH = 18\n[providers.scaled.exponents]\nISK = 2\nUGX = 2\n";
    for (provider, fields, expected) in [
        (
            "scaled",
            r#""amount_minor":500000,"currency":"ISK""#,
            "paid e 5000 ISK",
        ),
        (
            "plain",
            r#""amount_minor":5000,"currency":"ISK""#,
            "paid e 5000 ISK",
        ),
        (
            "scaled",
            r#""amount_minor":500,"currency":"UGX""#,
            "paid e 5 UGX",
        ),
        (
            "scaled",
            r#""amount_minor":550,"currency":"UGX""#,
            "bad_amount amount_minor",
        ),
        (
            "plain",
            r#""amount":"0.00000001","currency":"BTC""#,
            "paid e 0.00000001 BTC",
        ),
        (
            "plain",
            r#""amount":"0.000000000000000001","currency":"ETH""#,
            "paid e 0.000000000000000001 ETH",
        ),
        (
            "plain",
            r#""amount":"1.0000000000000000001","currency":"ETH""#,
            "bad_amount amount",
        ),
        (
            "plain",
            r#""amount":"18446744073709551615.000000000000000001","currency":"ETH""#,
            "bad_amount amount",
        ),
    ] {
        assert_eq!(read(toml, provider, &paid(fields)), expected, "{fields}");
    }
}

/// A body with these fields and a sum.
fn with_sum(fields: &str) -> String {
    format!(r#"{{"external_id":"e","amount":"1.00","currency":"USD",{fields}}}"#)
}

#[test]
fn a_word_means_what_its_provider_means_by_it() {
    for (fields, expected) in [
        (r#""status":"PAID""#, "paid"),
        (r#""status":"Succeeded""#, "paid"),
        (r#""status":" success ""#, "paid"),
        (r#""status":"F""#, "paid"),
        (r#""status":"CONFIRMED""#, "paid"),
        (r#""status":"success=true""#, "paid"),
        (r#""status":"success=false""#, "refused_may_succeed"),
        (r#""status":"deny""#, "refused_may_succeed"),
        (r#""status":"failed""#, "failed"),
        (r#""status":"cancelled""#, "cancelled"),
        (r#""status":"canceled""#, "cancelled"),
        (r#""status":"expired""#, "expired"),
        (r#""status":"authorized""#, "authorised"),
        (r#""status":"SU\u0130CCESS""#, "unknown_status status"),
        (r#""status":"whatever""#, "unknown_status status"),
        (
            r#""status":null,"event_type":"paid""#,
            "unknown_status event_type",
        ),
        (r#""event_type":"payment_captured""#, "paid"),
        (r#""status":"capture","fraud_status":"accept""#, "paid"),
        (
            r#""status":"capture","fraud_status":"challenge""#,
            "pending_review",
        ),
        (
            r#""status":"capture","fraud_status":"hm""#,
            "unknown_status fraud_status",
        ),
        (
            r#""event_type":"checkout.completed","status":"complete","payment_status":"unpaid""#,
            "pending",
        ),
        (
            r#""event_type":"checkout.completed","status":"complete","payment_status":"paid""#,
            "paid",
        ),
        (
            r#""event_type":"checkout.updated","status":"confirmed""#,
            "pending",
        ),
        (
            r#""event_type":"checkout.completed","status":"paid""#,
            "paid",
        ),
        (
            r#""event_type":"checkout.async_failed","status":"failed""#,
            "failed",
        ),
        (
            r#""event_type":"CHARGEBACK","status":"RETURN_DEBIT""#,
            "reversal",
        ),
        (
            r#""event_type":"refund.created","status":"succeeded","refund_id":"r""#,
            "reversal by r",
        ),
        (
            r#""event_type":"refund.failed","status":"failed","refund_id":"r""#,
            "reversal_undone by r",
        ),
        (r#""status":"succeeded","dispute_id":"d""#, "reversal by d"),
        (
            r#""event_type":"dispute.closed","status":"won","dispute_id":"d""#,
            "reversal_undone by d",
        ),
    ] {
        let found = read("", "p", &with_sum(fields)).replace(" e 1.00 USD", "");
        assert_eq!(found, expected, "{fields}");
    }
    let toml = "[providers.polar.statuses]\nConfirmed = \"pending\"\nsent = \"paid\"\n";
    assert_eq!(
        read(toml, "polar", &with_sum(r#""status":"confirmed""#)),
        "pending e 1.00 USD"
    );
    assert_eq!(
        read(toml, "polar", &with_sum(r#""status":"SENT""#)),
        "paid e 1.00 USD"
    );
    assert_eq!(
        read(toml, "other", &with_sum(r#""status":"sent""#)),
        "unknown_status status"
    );
}

#[test]
fn ids_are_kept_byte_for_byte() {
    for id in [
        "INV/7",
        "a b",
        "tab\there",
        "a..b",
        "*",
        ">",
        "caf\u{e9}",
        "cafe\u{301}",
        "k-1 ",
        "5ab4Qz",
        &"A".repeat(1024),
    ] {
        let id_json = serde_json::to_string(id).expect("JSON");
        let body = format!(r#"{{"external_id":{id_json},"status":"pending"}}"#);
        let fact = one(&Providers::default(), &raw("p", body)).expect(id);
        assert_eq!(fact.payment.external_id.as_str(), id);
    }
    check(
        r#"{"external_id":99999999999999999999,"status":"pending"}"#,
        "pending 99999999999999999999",
    );
    check(
        r#"{"external_id":"","status":"paid"}"#,
        "missing_id external_id",
    );
    check(r#"{"status":"paid"}"#, "missing_id external_id");
    check(
        r#"{"external_id":"a\u0000","status":"pending"}"#,
        "bad_id external_id",
    );
    let long = format!(
        r#"{{"external_id":"{}","status":"pending"}}"#,
        "A".repeat(1025)
    );
    check(&long, "bad_id external_id");
}

#[test]
fn odd_bodies_are_read_or_kept_for_a_person() {
    check(
        &format!("\u{feff}{}", with_sum(r#""status":"paid""#)),
        "paid e 1.00 USD",
    );
    check(
        &with_sum(r#""status":"failed","status":"paid""#),
        "duplicate_key status",
    );
    check("not JSON", "bad_body");
    check("[]", "bad_body");
    check(
        &with_sum(r#""status":"paid","region":"no region""#),
        "bad_field region",
    );
    check(
        &with_sum(r#""status":"paid","provider":"q""#),
        "provider_mismatch provider",
    );
    let big = with_sum(&format!(
        r#""status":"paid","junk":"{}""#,
        "x".repeat(900_000)
    ));
    check(&big, "paid e 1.00 USD");
    let fact = one(&Providers::default(), &raw("p", big)).expect("fact");
    assert!(serde_json::to_string(&fact).expect("JSON").len() < 1000);
    let too_big = with_sum(&format!(
        r#""status":"paid","junk":"{}""#,
        "x".repeat(1_100_000)
    ));
    check(&too_big, "body_too_large");
}

#[test]
fn a_comment_fails_no_payment() {
    let text = format!("\\u0000\\u0007{}", "long ".repeat(4000));
    let body = with_sum(&format!(
        r#""status":"paid","status_text":"{text}","event_id":{{}}"#
    ));
    let fact = one(&Providers::default(), &raw("p", body)).expect("fact");
    let reason = fact.reason.expect("reason");
    assert!(
        reason.len() <= MAX_TEXT_LEN && !reason.contains('\0'),
        "{reason}"
    );
}

#[test]
fn facts_of_test_systems_are_traced_and_not_acted_on() {
    for fields in [
        r#""test":true"#,
        r#""test":"true""#,
        r#""live":"false""#,
        r#""live":false"#,
    ] {
        let body = with_sum(&format!(r#""status":"paid",{fields}"#));
        let refusal = one(&Providers::default(), &raw("p", body.clone())).expect_err(fields);
        assert_eq!(refusal.code, UnreadableCode::TestMode, "{fields}");
        assert!(!refusal.is_case());
        assert_eq!(
            refusal
                .fact
                .and_then(|fact| fact.amount)
                .map(|a| a.to_string()),
            Some("1.00 USD".to_owned())
        );
        let accepting = "[providers.p]\naccept_test = true\n";
        assert_eq!(read(accepting, "p", &body), "paid e 1.00 USD");
    }
    check(
        &with_sum(r#""status":"paid","test":false,"live":"true""#),
        "paid e 1.00 USD",
    );
    check(
        &with_sum(r#""status":"paid","test":"maybe""#),
        "bad_field test",
    );
}

#[test]
fn another_body_is_mapped_by_its_fields() {
    let toml = r#"
        [providers.nested]
        customer_before = ":"
        ignored_events = ["report.*"]
        [providers.nested.event_types]
        "money.in" = "paid"
        [providers.nested.fields]
        external_id = "data.id"
        event_id = "id"
        event_type = "type"
        amount_minor = "data.amount"
        amount = "data.nothing"
        currency = "data.currency"
        customer = "data.reference"
        merchant_reference = "data.reference"
    "#;
    let body = |event: &str| {
        format!(
            r#"{{"id":"evt-9","type":"{event}","data":{{"id":"pay-9","amount":1000,"currency":"EUR","reference":"cust-a:1"}}}}"#
        )
    };
    let providers = providers(toml);
    for event in ["payment_captured", "Money.In"] {
        let fact = one(&providers, &raw("nested", body(event))).expect(event);
        assert_eq!(summary(&Ok(fact.clone())), "paid pay-9 10.00 EUR");
        assert_eq!(
            fact.customer.as_ref().map(ToString::to_string).as_deref(),
            Some("cust-a")
        );
        assert_eq!(fact.event_id.as_deref(), Some("evt-9"));
        assert_eq!(
            fact.merchant_reference
                .as_ref()
                .map(ToString::to_string)
                .as_deref(),
            Some("cust-a:1")
        );
    }
    let ignored = one(&providers, &raw("nested", body("report.ready"))).expect_err("ignored");
    assert_eq!(ignored.code, UnreadableCode::IgnoredEvent);
}

#[test]
fn the_same_fact_is_told_by_payment_and_meaning_alone() {
    let read = |provider: &str, fields: &str| {
        one(&Providers::default(), &raw(provider, with_sum(fields))).expect(fields)
    };
    let first = read(
        "p",
        r#""status":"captured","event_type":"payment.captured","customer":"c","delivery_attempt":1"#,
    );
    let second = read(
        "p",
        r#""status":"paid","event_type":"order.paid","customer":"c","delivery_attempt":2"#,
    );
    assert!(first.is_same_fact(&second));
    assert_eq!(same_fact_differs(&first, &second), []);
    let failed = read("p", r#""status":"failed","customer":"c""#);
    let capture = read("p", r#""status":"captured","customer":"c","action_id":"a""#);
    let elsewhere = read("q", r#""status":"paid","customer":"c""#);
    for other in [&failed, &capture, &elsewhere] {
        assert!(!first.is_same_fact(other), "{other:?}");
    }
    let mut changed = first.clone();
    changed.amount = Some(
        Money::parse(
            "1.00",
            Currencies::default()
                .get(CurrencyCode::new("EUR").expect("code"))
                .expect("EUR"),
        )
        .expect("sum"),
    );
    changed.customer = Some("d".parse().expect("id"));
    assert_eq!(
        same_fact_differs(&first, &changed),
        [FactField::Currency, FactField::Customer]
    );
    changed.amount = Some(Money::new(999, first.amount.expect("sum").currency()));
    changed.customer = None;
    assert_eq!(same_fact_differs(&first, &changed), [FactField::Amount]);
}
