//! Values of every kind that the messages are made of.

use contracts::id::{CustomerId, ExternalId, OperationId, Region, SagaId, StepName};
use contracts::money::{Currency, CurrencyCode, MAX_EXPONENT, Money};
use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::Value;

/// Any text: controls, NUL, astral characters, wildcards and separators among it.
pub(crate) fn text(max: usize) -> impl Strategy<Value = String> {
    let odd = prop::sample::select(vec![
        '.',
        '*',
        '>',
        ' ',
        '/',
        '=',
        '%',
        '-',
        '_',
        '\0',
        '\n',
        '\r',
        '\t',
        'é',
        '\u{feff}',
        '\u{202e}',
        '\u{1f4b6}',
        '\u{10ffff}',
    ]);
    prop::collection::vec(
        prop_oneof![3 => any::<char>(), 2 => odd, 3 => prop::char::range('a', 'z')],
        0..max,
    )
    .prop_map(String::from_iter)
}

/// Text that names something outside: 1 to 1024 bytes.
pub(crate) fn external() -> impl Strategy<Value = String> {
    prop_oneof![text(24), text(250)]
        .prop_filter("an id", |text| ExternalId::new(text.as_str()).is_ok())
}

pub(crate) fn saga() -> impl Strategy<Value = SagaId> {
    prop::collection::vec(text(20), 1..4).prop_map(|parts| {
        SagaId::from_parts(
            "deposit",
            &parts.iter().map(String::as_str).collect::<Vec<_>>(),
        )
    })
}

pub(crate) fn operation() -> impl Strategy<Value = OperationId> {
    (saga(), prop::option::of(name(30)), any::<bool>()).prop_map(|(saga, step, revert)| {
        let operation = step.map_or_else(|| saga.own_operation(), |step| saga.operation(&step));
        if revert {
            operation.revert()
        } else {
            operation
        }
    })
}

pub(crate) fn name(max: usize) -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(b"abz019-".to_vec()), 1..max)
        .prop_map(|bytes| bytes.into_iter().map(char::from).collect())
}

pub(crate) fn step() -> impl Strategy<Value = StepName> {
    name(60).prop_map(|name| StepName::new(name).expect("a name"))
}

pub(crate) fn region() -> impl Strategy<Value = Region> {
    name(32).prop_map(|name| Region::new(name).expect("a region"))
}

pub(crate) fn customer() -> impl Strategy<Value = CustomerId> {
    external().prop_map(|text| CustomerId::new(text).expect("a customer"))
}

pub(crate) fn code() -> impl Strategy<Value = CurrencyCode> {
    "[A-Z0-9]{3,8}".prop_map(|code| CurrencyCode::new(&code).expect("a code"))
}

pub(crate) fn currency() -> impl Strategy<Value = Currency> {
    (code(), 0..=MAX_EXPONENT)
        .prop_map(|(code, exponent)| Currency::new(code, exponent).expect("an exponent"))
}

pub(crate) fn money() -> impl Strategy<Value = Money> {
    (any::<i64>(), currency()).prop_map(|(minor, currency)| Money::new(minor, currency))
}

pub(crate) fn instant() -> impl Strategy<Value = Timestamp> {
    let (first, last) = (Timestamp::MIN.as_second(), Timestamp::MAX.as_second());
    (
        prop_oneof![
            first..last,
            0..4_000_000_000_i64,
            Just(last),
            Just(first + 1)
        ],
        prop_oneof![Just(0), 0..1_000_000_000_i32],
    )
        .prop_map(|(second, nanosecond)| {
            Timestamp::new(second, nanosecond).unwrap_or(Timestamp::MAX)
        })
}

/// Any JSON, floats of every magnitude among it.
pub(crate) fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        text(8).prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map(text(6), inner, 0..5)
                .prop_map(|map| Value::from(map.into_iter().collect::<serde_json::Map<_, _>>())),
        ]
    })
}
