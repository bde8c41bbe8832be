//! Stripe events, signed as the provider signs them.

use super::*;

const SECRET: &str = "whsec_old_example";

fn stripe() -> Providers {
    providers(
        "[providers.stripe]\nformat = \"stripe\"\nsecrets = [\"whsec_new_example\", \"whsec_old_example\"]\nignored_events = [\"customer.*\"]\n",
    )
}

fn signed_at(body: &str, second: i64, secret: &str) -> RawCallback {
    let text = format!("{second}.{body}");
    let tag = hex::encode(hmac(secret.as_bytes(), text.as_bytes()));
    raw("stripe", body.to_owned()).with_header(
        "Stripe-Signature",
        format!("t={second},v0=00,v1=abcd,v1={tag}"),
    )
}

fn event(kind: &str, livemode: bool, object: &str) -> String {
    format!(
        r#"{{"id":"evt_t1","object":"event","created":1899999990,"livemode":{livemode},"type":"{kind}","data":{{"object":{{{object}}}}}}}"#
    )
}

fn check(kind: &str, object: &str, expected: &str) {
    let body = event(kind, true, object);
    let found = summaries(&stripe(), &signed_at(&body, RECEIVED_S - 10, SECRET));
    assert_eq!(found, [expected], "{kind} {object}");
}

#[test]
fn every_object_maps_to_its_payment_intent() {
    let intent = r#""id":"pi_t1","object":"payment_intent","amount":1999,"currency":"usd","metadata":{"customer":"c"}"#;
    let charge = r#""id":"ch_t1","payment_intent":"pi_t1","amount":1999,"currency":"usd""#;
    for (kind, object, expected) in [
        (
            "payment_intent.succeeded",
            format!(r#"{intent},"amount_received":1999,"status":"succeeded""#),
            "paid pi_t1 19.99 USD",
        ),
        (
            "payment_intent.succeeded",
            format!(r#"{intent},"amount_received":1999,"status":"processing""#),
            "unknown_status data.object.status",
        ),
        ("payment_intent.succeeded", intent.to_owned(), "missing_amount amount"),
        ("payment_intent.processing", intent.to_owned(), "pending pi_t1 19.99 USD"),
        ("payment_intent.payment_failed", intent.to_owned(), "refused_may_succeed pi_t1 19.99 USD"),
        ("payment_intent.canceled", intent.to_owned(), "cancelled pi_t1 19.99 USD"),
        ("payment_intent.amount_capturable_updated", intent.to_owned(), "authorised pi_t1 19.99 USD"),
        ("charge.succeeded", format!(r#"{charge},"amount_captured":1999,"paid":true"#), "paid pi_t1 19.99 USD"),
        (
            "charge.succeeded",
            format!(r#"{charge},"amount_captured":0,"captured":false"#),
            "authorised pi_t1 19.99 USD",
        ),
        ("charge.captured", format!(r#"{charge},"captured":true,"amount_captured":500"#), "paid pi_t1 5.00 USD"),
        ("charge.succeeded", r#""id":"ch_t2","payment_intent":null,"amount":1,"currency":"usd""#.to_owned(), "paid ch_t2 0.01 USD"),
        ("charge.refunded", format!(r#"{charge},"amount_refunded":300"#), "reversal pi_t1 3.00 USD"),
        (
            "charge.refunded",
            format!(r#"{charge},"amount_refunded":300,"refunds":{{"data":[{{"id":"re_t2","amount":200}},{{"id":"re_t1","amount":100}}]}}"#),
            "reversal pi_t1 2.00 USD by re_t2",
        ),
        (
            "refund.created",
            r#""id":"re_t1","payment_intent":"pi_t1","amount":300,"currency":"usd","status":"succeeded""#.to_owned(),
            "reversal pi_t1 3.00 USD by re_t1",
        ),
        (
            "charge.refund.updated",
            r#""id":"re_t1","payment_intent":{"id":"pi_t1"},"amount":300,"currency":"usd","status":"failed""#.to_owned(),
            "reversal_undone pi_t1 3.00 USD by re_t1",
        ),
        (
            "charge.dispute.created",
            r#""id":"dp_t1","charge":"ch_t1","payment_intent":"pi_t1","amount":1999,"currency":"usd","status":"needs_response""#.to_owned(),
            "reversal_opened pi_t1 19.99 USD by dp_t1",
        ),
        (
            "charge.dispute.closed",
            r#""id":"dp_t1","payment_intent":"pi_t1","amount":1999,"currency":"usd","status":"lost""#.to_owned(),
            "reversal pi_t1 19.99 USD by dp_t1",
        ),
        (
            "checkout.session.completed",
            r#""id":"cs_t1","payment_intent":"pi_t1","amount_total":250000,"currency":"eur","status":"complete","payment_status":"unpaid""#.to_owned(),
            "pending pi_t1 2500.00 EUR",
        ),
        (
            "checkout.session.completed",
            r#""id":"cs_t1","payment_intent":"pi_t1","amount_total":250000,"currency":"eur","payment_status":"paid""#.to_owned(),
            "paid pi_t1 2500.00 EUR",
        ),
        (
            "checkout.session.async_payment_failed",
            r#""id":"cs_t1","payment_intent":"pi_t1","amount_total":250000,"currency":"eur","payment_status":"unpaid""#.to_owned(),
            "failed pi_t1 2500.00 EUR",
        ),
        ("invoice.paid", r#""id":"in_1""#.to_owned(), "unknown_status type"),
        ("customer.created", r#""id":"cus_1""#.to_owned(), "ignored_event"),
    ] {
        check(kind, &object, expected);
    }
}

#[test]
fn its_decimals_are_its_own() {
    for (currency, amount, expected) in [
        ("isk", 500_000, "paid pi 5000 ISK"),
        ("ugx", 500, "paid pi 5 UGX"),
        ("ugx", 550, "bad_amount data.object.amount_received"),
        ("mga", 300, "paid pi 300.00 MGA"),
        ("jpy", 80, "paid pi 80 JPY"),
        ("kwd", 6000, "paid pi 6.000 KWD"),
        ("xqq", 1, "unknown_currency data.object.currency"),
    ] {
        let object =
            format!(r#""id":"pi","amount":1,"amount_received":{amount},"currency":"{currency}""#);
        check("payment_intent.succeeded", &object, expected);
    }
}

#[test]
fn claims_come_from_the_metadata() {
    let body = event(
        "payment_intent.succeeded",
        true,
        r#""id":"pi","amount_received":100,"currency":"eur","metadata":{"customer":"cust-a","region":"eu","wallet_currency":"usd","reference":"ord-1"}"#,
    );
    let fact = one(&stripe(), &signed_at(&body, RECEIVED_S, SECRET)).expect("fact");
    assert_eq!(fact.customer.map(String::from).as_deref(), Some("cust-a"));
    assert_eq!(fact.region.map(String::from).as_deref(), Some("eu"));
    assert_eq!(
        fact.wallet_currency
            .map(|c| c.code().to_string())
            .as_deref(),
        Some("USD")
    );
    assert_eq!(
        fact.merchant_reference.map(String::from).as_deref(),
        Some("ord-1")
    );
    assert_eq!(fact.event_id.as_deref(), Some("evt_t1"));
    assert_eq!(
        fact.occurred_at.map(Timestamp::as_second),
        Some(1_899_999_990)
    );
}

#[test]
fn only_what_a_secret_signed_lately_is_believed() {
    let body = event(
        "payment_intent.succeeded",
        true,
        r#""id":"pi","amount_received":100,"currency":"eur""#,
    );
    let found = |raw: &RawCallback| summaries(&stripe(), raw).remove(0);
    for secret in ["whsec_new_example", SECRET] {
        assert_eq!(
            found(&signed_at(&body, RECEIVED_S - 300, secret)),
            "paid pi 1.00 EUR"
        );
    }
    let header = "header stripe-signature";
    assert_eq!(
        found(&signed_at(&body, RECEIVED_S, "other")),
        format!("signature_invalid {header}")
    );
    assert_eq!(
        found(&signed_at(&body, RECEIVED_S - 301, SECRET)),
        format!("signature_too_old {header}")
    );
    assert_eq!(
        found(&signed_at(&body, RECEIVED_S + 301, SECRET)),
        format!("signature_too_old {header}")
    );
    assert_eq!(
        found(&raw("stripe", body.clone())),
        format!("signature_missing {header}")
    );
    let mut tampered = signed_at(&body, RECEIVED_S, SECRET);
    tampered.body = body.replace("100", "999").into();
    assert_eq!(found(&tampered), format!("signature_invalid {header}"));
    for bad in [
        "",
        "t=",
        "t=x,v1=00",
        "v1=00",
        "t=1900000000",
        "t=1900000000,v1=zz",
    ] {
        let raw = raw("stripe", body.clone()).with_header("stripe-signature", bad);
        assert_eq!(
            found(&raw),
            format!("signature_invalid {header}"),
            "{bad:?}"
        );
    }
}

/// A signature computed by another program, so that test and code cannot agree on a mistake.
#[test]
fn a_signature_computed_elsewhere_fits() {
    const BODY: &str = r#"{"type":"payment_intent.succeeded","livemode":true,"data":{"object":{"id":"pi_v","amount_received":700,"currency":"usd"}}}"#;
    let raw = raw("stripe", BODY).with_header(
        "stripe-signature",
        "t=1900000000,v1=7d7818a95d298bdc138b57675c4ea9bc87e514c681d6bdb86e2f740b23f29b4c",
    );
    assert_eq!(summaries(&stripe(), &raw), ["paid pi_v 7.00 USD"]);
}

#[test]
fn a_test_event_is_told_after_the_signature() {
    let body = event(
        "payment_intent.succeeded",
        false,
        r#""id":"pi","amount":10000,"amount_received":6000,"currency":"kwd""#,
    );
    let refusal = one(&stripe(), &signed_at(&body, RECEIVED_S, SECRET)).expect_err("test");
    assert_eq!(refusal.code, UnreadableCode::TestMode);
    assert_eq!(refusal.external_id.as_deref(), Some("pi"));
    assert_eq!(
        summary(&Ok(*refusal.fact.expect("fact"))),
        "paid pi 6.000 KWD"
    );
    let forged = one(&stripe(), &signed_at(&body, RECEIVED_S, "other")).expect_err("forged");
    assert_eq!(forged.code, UnreadableCode::SignatureInvalid);
}
