//! Text columns: ids and memos as people read them, parameters and answers as JSON, times.

use super::LedgerError;
use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Escapes what a PostgreSQL text cannot hold: NUL becomes `\0`, and so backslash becomes `\\`.
pub(super) fn escape(text: &str) -> String {
    if !text.contains(['\\', '\0']) {
        return text.to_owned();
    }
    text.replace('\\', "\\\\").replace('\0', "\\0")
}

/// Undoes [`escape`].
pub(super) fn unescape(column: &str) -> Result<String, LedgerError> {
    if !column.contains('\\') {
        return Ok(column.to_owned());
    }
    let mut text = String::with_capacity(column.len());
    let mut rest = column.chars();
    while let Some(character) = rest.next() {
        text.push(match (character, character == '\\') {
            (plain, false) => plain,
            (_, true) => match rest.next() {
                Some('\\') => '\\',
                Some('0') => '\0',
                Some(_) | None => {
                    return Err(LedgerError::Corrupt(format!("escaped text {column:?}")));
                }
            },
        });
    }
    Ok(text)
}

/// A value as JSON text. JSON escapes NUL, so the text fits both databases.
pub(super) fn json<T: Serialize>(value: &T) -> Result<String, LedgerError> {
    let bytes = contracts::codec::Encoding::Json
        .encode(value)
        .map_err(|error| LedgerError::Corrupt(error.to_string()))?;
    String::from_utf8(bytes).map_err(|error| LedgerError::Corrupt(error.to_string()))
}

/// Reads JSON text that this build or an earlier one wrote.
pub(super) fn from_json<T: DeserializeOwned>(column: &str) -> Result<T, LedgerError> {
    contracts::codec::Encoding::Json
        .decode(column.as_bytes())
        .map_err(|error| LedgerError::Corrupt(format!("{column}: {error}")))
}

/// A time as fixed-width text, so that times sort as text.
pub(super) fn time(at: Timestamp) -> String {
    format!("{at:.6}")
}

/// Reads a time.
pub(super) fn from_time(column: &str) -> Result<Timestamp, LedgerError> {
    column
        .parse()
        .map_err(|error| LedgerError::Corrupt(format!("time {column:?}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_survives_the_escape() {
        for text in ["", "plain", "a\0b", "\\0", "\\\\\0", "é\u{0}\\"] {
            let column = escape(text);
            assert!(!column.contains('\0'), "{text:?}");
            assert_eq!(unescape(&column).expect("escaped"), text);
        }
        assert!(unescape("a\\").is_err());
        assert!(unescape("a\\x").is_err());
    }

    #[test]
    fn times_have_one_width() {
        let at = Timestamp::from_microsecond(1_700_000_000_000_000).expect("time");
        assert_eq!(time(at), "2023-11-14T22:13:20.000000Z");
        assert_eq!(from_time(&time(at)).expect("time"), at);
    }
}
