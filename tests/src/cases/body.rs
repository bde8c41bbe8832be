//! Bodies as a case writes them, written out.

use super::case::Fill;
use serde_json::{Map, Value, json};

/// What the cases call a status is a meaning here.
pub(super) fn signal_body(body: &Value) -> Value {
    match body.get("status").and_then(Value::as_str) {
        Some(meaning) => json!({ "meaning": meaning }),
        None => body.clone(),
    }
}

/// The body with `{i}` and `{A*700}` written out.
pub(super) fn expand(body: &Map<String, Value>, number: usize) -> Map<String, Value> {
    let expanded = body.iter().map(|(name, value)| {
        let value = match value {
            Value::String(text) => Value::String(expand_text(text, number)),
            other => other.clone(),
        };
        (name.clone(), value)
    });
    expanded.collect()
}

/// The text with `{i}` and one `{A*700}` written out.
#[must_use]
pub(super) fn expand_text(text: &str, number: usize) -> String {
    let text = text.replace("{i}", &number.to_string());
    let Some((head, rest)) = text.split_once('{') else {
        return text;
    };
    let long = rest.split_once('}').and_then(|(inside, tail)| {
        let (what, times) = inside.split_once('*')?;
        Some(format!("{head}{}{tail}", what.repeat(times.parse().ok()?)))
    });
    long.unwrap_or(text)
}

pub(super) fn filled(body: &Map<String, Value>, fill: &Fill) -> Map<String, Value> {
    let times = fill.bytes.div_ceil(fill.with.len().max(1));
    let mut body = expand(body, 1);
    body.insert(fill.field.clone(), fill.with.repeat(times).into());
    body
}
