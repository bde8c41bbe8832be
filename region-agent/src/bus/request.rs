//! Headers of a request. A bad value is refused by name, with what would have been right.

use async_nats::HeaderMap;
use contracts::command::CommandHeader;
use contracts::header;
use contracts::id::{OperationId, SagaId};
use contracts::reply::WalletReply;
use jiff::Timestamp;
use std::fmt;
use std::str::FromStr;

/// A header or body that cannot be understood.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Invalid {
    /// The header or field to mend.
    pub(super) field: String,
    /// What is wrong and how to mend it.
    pub(super) message: String,
}

impl From<Invalid> for WalletReply {
    fn from(invalid: Invalid) -> Self {
        Self::Invalid {
            field: invalid.field,
            message: invalid.message,
        }
    }
}

/// Reads who sends a command. Only the operation id must be given: a person types few headers.
pub(super) fn command_header(
    headers: Option<&HeaderMap>,
    default_deadline: Timestamp,
) -> Result<CommandHeader, Invalid> {
    let operation_id = parse::<OperationId>(
        headers,
        header::OPERATION_ID,
        "1 to 12288 printable ASCII bytes",
    )?
    .ok_or_else(|| Invalid {
        field: header::OPERATION_ID.to_owned(),
        message: "missing: every movement needs an id of its own, so that a repeat is \
                          known as one; add it with -H 'Operation-Id:<unique id>'"
            .to_owned(),
    })?;
    Ok(CommandHeader {
        saga_id: parse::<SagaId>(headers, header::SAGA_ID, "1 to 12288 printable ASCII bytes")?,
        operation_id,
        attempt: parse(headers, header::ATTEMPT, "a number from 1")?.unwrap_or(1),
        fence: parse(headers, header::FENCE, "a number from 0")?.unwrap_or(0),
        deadline: parse(
            headers,
            header::DEADLINE,
            "an RFC 3339 time such as 2026-01-31T12:00:00Z",
        )?
        .unwrap_or(default_deadline),
    })
}

/// A header that may be there once. Its name may be typed in any case, as in HTTP.
pub(super) fn single<'a>(
    headers: Option<&'a HeaderMap>,
    name: &str,
) -> Result<Option<&'a str>, Invalid> {
    let mut values = headers
        .into_iter()
        .flat_map(HeaderMap::iter)
        .filter(|(found, _)| AsRef::<str>::as_ref(*found).eq_ignore_ascii_case(name))
        .flat_map(|(_, values)| values);
    let first = values.next().map(async_nats::HeaderValue::as_str);
    if values.next().is_some() {
        return Err(Invalid {
            field: name.to_owned(),
            message: "given more than once".to_owned(),
        });
    }
    Ok(first)
}

fn parse<T: FromStr<Err: fmt::Display>>(
    headers: Option<&HeaderMap>,
    name: &str,
    expected: &str,
) -> Result<Option<T>, Invalid> {
    single(headers, name)?
        .map(|text| {
            text.parse().map_err(|error| Invalid {
                field: name.to_owned(),
                message: format!("{:?}: {error}; give {expected}", shortened(text)),
            })
        })
        .transpose()
}

fn shortened(text: &str) -> String {
    text.chars().take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(headers: &[(&str, &str)], expected: Result<(&str, u32, u64), &str>) {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, *value);
        }
        let deadline = Timestamp::from_second(10).expect("time");
        match (command_header(Some(&map), deadline), expected) {
            (Ok(found), Ok((operation_id, attempt, fence))) => assert_eq!(
                (found.operation_id.as_str(), found.attempt, found.fence),
                (operation_id, attempt, fence),
                "{headers:?}"
            ),
            (Err(found), Err(field)) => assert_eq!(found.field, field, "{headers:?}"),
            (found, expected) => panic!("{headers:?}: {found:?}, not {expected:?}"),
        }
    }

    #[test]
    fn headers_are_read_or_refused_by_name() {
        check(&[("Operation-Id", "a")], Ok(("a", 1, 0)));
        check(
            &[("operation-ID", "a"), ("Attempt", "2"), ("Fence", "7")],
            Ok(("a", 2, 7)),
        );
        check(&[], Err("Operation-Id"));
        check(&[("Operation-Id", "a b")], Err("Operation-Id"));
        check(
            &[("Operation-Id", "a"), ("Operation-Id", "b")],
            Err("Operation-Id"),
        );
        check(
            &[("Operation-Id", "a"), ("operation-id", "b")],
            Err("Operation-Id"),
        );
        for (name, value) in [
            ("Attempt", "-1"),
            ("Fence", "x"),
            ("Fence", "18446744073709551616"),
            ("Deadline", "tomorrow"),
            ("Saga-Id", "\u{e9}"),
        ] {
            check(&[("Operation-Id", "a"), (name, value)], Err(name));
        }
    }
}
