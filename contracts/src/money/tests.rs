//! Exactness of sums and of their text.

use super::*;
use proptest::prelude::*;

fn currency(code: &str, exponent: u8) -> Currency {
    Currency::new(CurrencyCode::new(code).expect("code"), exponent).expect("exponent")
}

fn check(text: &str, code: &str, exponent: u8, expected: Result<i64, &str>) {
    let found = Money::parse(text, currency(code, exponent));
    match expected {
        Ok(minor) => assert_eq!(found.map(Money::amount_minor), Ok(minor), "{text} {code}"),
        Err(part) => {
            let error = found.expect_err(text).to_string();
            assert!(error.contains(part), "{text} {code}: {error}");
        }
    }
}

#[test]
fn decimal_text_is_read_exactly_or_refused() {
    check("19.99", "USD", 2, Ok(1999));
    check("8.20", "USD", 2, Ok(820));
    check("0.1", "USD", 2, Ok(10));
    check("8.170", "USD", 2, Ok(817));
    check(".50", "USD", 2, Ok(50));
    check("5", "USD", 2, Ok(500));
    check("5.", "USD", 2, Ok(500));
    check("-5.00", "USD", 2, Ok(-500));
    check("1E3", "USD", 2, Ok(100_000));
    check("1.5e+1", "USD", 2, Ok(1500));
    check("5e4", "PHP", 2, Ok(5_000_000));
    check("80.00", "JPY", 0, Ok(80));
    check("7.125", "TND", 3, Ok(7125));
    check("0.000000000000000001", "ETH", 18, Ok(1));
    check("9223372036854775807", "JPY", 0, Ok(i64::MAX));
    for text in ["8.165", "5.06e-6"] {
        check(text, "USD", 2, Err("more decimals"));
    }
    check("80.50", "JPY", 0, Err("more decimals"));
    check("1.0000000000000000001", "ETH", 18, Err("more decimals"));
    for text in [
        "92233720368547758.08",
        "1e400",
        "1e40",
        "18446744073709551615.000000000000000001",
    ] {
        check(text, "EUR", 2, Err("larger than"));
    }
    check("9223372036854775807", "KWD", 3, Err("larger than"));
    for text in [
        "1,000.00", "", " 1", "1 ", "+1", "1_000", "NaN", "inf", "0x10", "1.2.3", "--1", ".", "e5",
        "1e", "\u{661}",
    ] {
        check(text, "USD", 2, Err("not a decimal"));
    }
}

#[test]
fn a_sender_with_other_decimals_is_rescaled_or_refused() {
    let isk = Currency::iso(CurrencyCode::new("isk").expect("code")).expect("ISO");
    assert_eq!(
        Money::from_minor(500_000, 2, isk).map(Money::amount_minor),
        Ok(5000)
    );
    assert_eq!(
        Money::from_minor(5000, 0, isk).map(Money::amount_minor),
        Ok(5000)
    );
    let ugx = Currency::iso(CurrencyCode::new("UGX").expect("code")).expect("ISO");
    assert!(matches!(
        Money::from_minor(550, 2, ugx),
        Err(MoneyError::TooPrecise { .. })
    ));
}

#[test]
fn iso_decimals_are_those_of_the_standard() {
    for (code, exponent) in [
        ("USD", 2),
        ("JPY", 0),
        ("KRW", 0),
        ("CLP", 0),
        ("KWD", 3),
        ("BHD", 3),
        ("IDR", 2),
    ] {
        let code = CurrencyCode::new(code).expect("code");
        assert_eq!(
            Currency::iso(code).map(Currency::exponent),
            Ok(exponent),
            "{code}"
        );
    }
    for code in ["XQQ", "BTC"] {
        let code = CurrencyCode::new(code).expect("code");
        assert_eq!(Currency::iso(code), Err(MoneyError::UnknownCurrency(code)));
    }
    assert!(CurrencyCode::new("US$").is_err());
}

proptest! {
    #[test]
    fn shown_text_reads_back(minor: i64, exponent in 0_u8..=18) {
        let money = Money::new(minor, currency("TST", exponent));
        prop_assert_eq!(Money::parse(&money.decimal_text(), money.currency()), Ok(money));
    }

    #[test]
    fn no_text_panics(text in ".{0,40}") {
        let _unchecked = Money::parse(&text, currency("USD", 2)).is_ok();
    }
}
