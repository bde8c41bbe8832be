//! Adyen notifications, each item signed as the provider signs it.

use super::*;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

const KEY: &str = "00112233445566778899AABBCCDDEEFF00112233445566778899AABBCCDDEEFF";

fn adyen() -> Providers {
    providers(&format!(
        "[providers.adyen]\nformat = \"adyen\"\nsecrets = [\"{KEY}\"]\n"
    ))
}

struct Item {
    code: &'static str,
    success: &'static str,
    psp: &'static str,
    original: &'static str,
    reference: &'static str,
    value: &'static str,
    currency: &'static str,
    more: &'static str,
}

const AUTHORISATION: Item = Item {
    code: "AUTHORISATION",
    success: "true",
    psp: "PSP1",
    original: "",
    reference: "ord-1:a/b",
    value: "4000",
    currency: "EUR",
    more: "",
};

const CAPTURE: Item = Item {
    code: "CAPTURE",
    psp: "PSP2",
    original: "PSP1",
    ..AUTHORISATION
};

impl Item {
    fn signature(&self) -> String {
        let text = [
            self.psp,
            self.original,
            "Acc",
            self.reference,
            self.value,
            self.currency,
            self.code,
            self.success,
        ]
        .join(":");
        BASE64.encode(hmac(&hex::decode(KEY).expect("hex"), text.as_bytes()))
    }

    fn json(&self) -> String {
        let original = if self.original.is_empty() {
            String::new()
        } else {
            format!(r#""originalReference":"{}","#, self.original)
        };
        format!(
            r#"{{"NotificationRequestItem":{{"amount":{{"currency":"{}","value":{}}},"eventCode":"{}","eventDate":"2030-01-01T10:00:00+01:00","merchantAccountCode":"Acc","merchantReference":"{}",{original}"pspReference":"{}","reason":"Acquirer Error","success":"{}","additionalData":{{{}"hmacSignature":"{}"}}}}}}"#,
            self.currency,
            self.value,
            self.code,
            self.reference,
            self.psp,
            self.success,
            self.more,
            self.signature(),
        )
    }
}

fn batch(live: &str, items: &[String]) -> RawCallback {
    let items = items.join(",");
    raw(
        "adyen",
        format!(r#"{{"live":"{live}","notificationItems":[{items}]}}"#),
    )
}

fn check(item: &Item, expected: &str) {
    let found = summaries(&adyen(), &batch("true", &[item.json()]));
    assert_eq!(found, [expected], "{} {}", item.code, item.success);
}

#[test]
fn a_code_means_two_things_by_its_success() {
    let of = |code, success| Item {
        code,
        success,
        ..CAPTURE
    };
    check(&AUTHORISATION, "authorised PSP1 40.00 EUR");
    check(
        &Item {
            success: "false",
            ..AUTHORISATION
        },
        "refused_may_succeed PSP1 40.00 EUR",
    );
    check(
        &Item {
            success: "maybe",
            ..AUTHORISATION
        },
        "bad_field notificationItems[0].NotificationRequestItem.success",
    );
    check(&CAPTURE, "paid PSP1/PSP2 40.00 EUR");
    check(
        &of("CAPTURE", "false"),
        "refused_may_succeed PSP1/PSP2 40.00 EUR",
    );
    check(
        &of("CAPTURE_FAILED", "true"),
        "reversal PSP1/PSP2 40.00 EUR by PSP2",
    );
    check(&of("CANCELLATION", "true"), "cancelled PSP1 40.00 EUR");
    check(&of("CANCELLATION", "false"), "ignored_event");
    check(&of("REFUND", "true"), "reversal PSP1 40.00 EUR by PSP2");
    check(
        &of("REFUND", "false"),
        "reversal_undone PSP1 40.00 EUR by PSP2",
    );
    check(
        &of("REFUND_FAILED", "true"),
        "reversal_undone PSP1 40.00 EUR by PSP2",
    );
    check(&of("CHARGEBACK", "true"), "reversal PSP1 40.00 EUR by PSP2");
    check(
        &of("NOTIFICATION_OF_CHARGEBACK", "true"),
        "reversal_opened PSP1 40.00 EUR by PSP2",
    );
    check(
        &Item {
            code: "OFFER_CLOSED",
            ..AUTHORISATION
        },
        "expired PSP1 40.00 EUR",
    );
    check(
        &of("REPORT_AVAILABLE", "true"),
        "unknown_status notificationItems[0].NotificationRequestItem.eventCode",
    );
    check(
        &Item {
            original: "",
            ..CAPTURE
        },
        "missing_id notificationItems[0].NotificationRequestItem.originalReference",
    );
}

#[test]
fn an_authorisation_that_means_paid_is_the_same_fact_as_its_capture() {
    let toml = format!(
        "[providers.adyen]\nformat = \"adyen\"\nsecrets = [\"{KEY}\"]\nauthorisation_means_paid = true\n"
    );
    let read = |item: &Item| one(&providers(&toml), &batch("true", &[item.json()])).expect("fact");
    let (authorised, captured) = (read(&AUTHORISATION), read(&CAPTURE));
    assert_eq!(authorised.meaning, Meaning::Paid);
    assert!(authorised.is_same_fact(&captured));
    assert_eq!(same_fact_differs(&authorised, &captured), []);
    let part = read(&Item {
        value: "1000",
        ..CAPTURE
    });
    assert_eq!(same_fact_differs(&authorised, &part), [FactField::Amount]);
}

#[test]
fn one_tampered_item_refuses_itself_alone() {
    let good = Item {
        currency: "ISK",
        value: "500000",
        ..CAPTURE
    }
    .json();
    let tampered = Item {
        currency: "IDR",
        value: "7000",
        ..CAPTURE
    }
    .json()
    .replace("7000", "9000");
    let unsigned = CAPTURE.json().replace("hmacSignature", "other");
    let found = summaries(
        &adyen(),
        &batch("true", &[good, tampered, "7".to_owned(), unsigned]),
    );
    assert_eq!(
        found,
        [
            "paid PSP1/PSP2 5000 ISK",
            "signature_invalid notificationItems[1].NotificationRequestItem.additionalData.hmacSignature",
            "bad_body notificationItems[2]",
            "signature_missing notificationItems[3].NotificationRequestItem.additionalData.hmacSignature",
        ]
    );
}

#[test]
fn its_decimals_are_its_own() {
    for (currency, value, expected) in [
        ("IDR", "9000", "paid PSP1/PSP2 9000.00 IDR"),
        ("CLP", "15990", "paid PSP1/PSP2 15990 CLP"),
        ("CVE", "7", "paid PSP1/PSP2 7.00 CVE"),
        ("JPY", "80", "paid PSP1/PSP2 80 JPY"),
        (
            "ISK",
            "550",
            "bad_amount notificationItems[0].NotificationRequestItem.amount.value",
        ),
    ] {
        check(
            &Item {
                currency,
                value,
                ..CAPTURE
            },
            expected,
        );
    }
}

#[test]
fn claims_come_from_the_additional_data() {
    let item = Item {
        more: r#""shopperReference":"shopper","metadata.customer":"cust-a","metadata.region":"asia","metadata.walletCurrency":"USD","#,
        ..AUTHORISATION
    };
    let fact = one(&adyen(), &batch("true", &[item.json()])).expect("fact");
    assert_eq!(fact.customer.map(String::from).as_deref(), Some("cust-a"));
    assert_eq!(fact.region.map(String::from).as_deref(), Some("asia"));
    assert_eq!(
        fact.wallet_currency
            .map(|c| c.code().to_string())
            .as_deref(),
        Some("USD")
    );
    assert_eq!(fact.payment.account, "Acc");
    assert_eq!(
        fact.merchant_reference.map(String::from).as_deref(),
        Some("ord-1:a/b")
    );
    assert_eq!(fact.reason.as_deref(), Some("Acquirer Error"));
    let shopper = Item {
        more: r#""shopperReference":"shopper","#,
        ..AUTHORISATION
    };
    let fact = one(&adyen(), &batch("true", &[shopper.json()])).expect("fact");
    assert_eq!(fact.customer.map(String::from).as_deref(), Some("shopper"));
}

#[test]
fn a_refusal_and_a_later_success_are_two_facts() {
    let read = |success| {
        let item = Item {
            success,
            ..AUTHORISATION
        };
        one(&adyen(), &batch("true", &[item.json()])).expect("fact")
    };
    assert!(!read("false").is_same_fact(&read("true")));
}

#[test]
fn the_test_system_says_so_as_text() {
    let items = [Item {
        code: "OFFER_CLOSED",
        ..AUTHORISATION
    }
    .json()];
    let refusal = one(&adyen(), &batch("false", &items)).expect_err("test");
    assert_eq!(refusal.code, UnreadableCode::TestMode);
    assert_eq!(refusal.meaning, Some(Meaning::Expired));
    assert_eq!(
        summaries(&adyen(), &batch("maybe", &items)),
        ["bad_field live"]
    );
}

#[test]
fn a_batch_of_nothing_is_a_case() {
    assert_eq!(
        summaries(&adyen(), &batch("true", &[])),
        ["bad_body notificationItems"]
    );
    assert_eq!(
        summaries(&adyen(), &raw("adyen", "[accepted]")),
        ["bad_body"]
    );
}

/// A signature computed by another program, so that test and code cannot agree on a mistake.
#[test]
fn a_signature_computed_elsewhere_fits() {
    let body = AUTHORISATION.json().replace(
        &AUTHORISATION.signature(),
        "WnRBBgoBltpuR8xvyqCayslQT1fAUqCendB88Gt2tTc=",
    );
    assert_eq!(
        summaries(&adyen(), &batch("true", &[body])),
        ["authorised PSP1 40.00 EUR"]
    );
}
