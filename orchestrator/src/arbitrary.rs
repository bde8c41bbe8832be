//! JSON of any content, and JSON damaged in one place, for the property tests.

use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::Value;

/// Any JSON value without structure, the extremes of numbers and instants among it.
pub(crate) fn scalar() -> impl Strategy<Value = Value> {
    let extremes = prop::sample::select(vec![
        Value::from(0),
        Value::from(-1),
        Value::from(u64::MAX),
        Value::from(u64::from(u32::MAX)),
        Value::from(i64::MIN),
        Value::from(1e300),
        Value::from(""),
        Value::from("\0"),
        Value::from("9999-12-30T22:00:00.999999999Z"),
        Value::from("-009999-01-02T01:59:59Z"),
    ]);
    prop_oneof![
        3 => extremes,
        1 => Just(Value::Null),
        1 => any::<bool>().prop_map(Value::from),
        1 => any::<i64>().prop_map(Value::from),
        1 => any::<f64>().prop_map(Value::from),
        1 => ".{0,8}".prop_map(Value::from),
    ]
}

/// Any JSON value.
pub(crate) fn json() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(".{0,6}", inner, 0..4)
                .prop_map(|map| Value::from(map.into_iter().collect::<serde_json::Map<_, _>>())),
        ]
    })
}

/// Puts `with` in the place of a value somewhere inside, by a walk that the numbers choose.
pub(crate) fn replace(value: &mut Value, walk: &[Index], with: Value) {
    let Some((step, rest)) = walk.split_first() else {
        *value = with;
        return;
    };
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            let at = step.index(fields.len());
            replace(fields.values_mut().nth(at).expect("a field"), rest, with);
        }
        Value::Array(items) if !items.is_empty() => {
            let at = step.index(items.len());
            replace(&mut items[at], rest, with);
        }
        _ => *value = with,
    }
}

/// What stands somewhere inside, by such a walk.
pub(crate) fn pick<'a>(value: &'a Value, walk: &[Index]) -> &'a Value {
    let Some((step, rest)) = walk.split_first() else {
        return value;
    };
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            let at = step.index(fields.len());
            pick(fields.values().nth(at).expect("a field"), rest)
        }
        Value::Array(items) if !items.is_empty() => pick(&items[step.index(items.len())], rest),
        _ => value,
    }
}
