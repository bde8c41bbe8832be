//! Reads a provider's JSON as it was written: numbers as text, duplicate keys refused, unread fields
//! skipped without a copy.
//!
//! An [`Object`] is opened one level at a time over the bytes received. Numbers are never turned
//! into floats: `19.99`, `1E3` and a twenty-digit id stay the text they are.

use super::unreadable::{Problem, UnreadableCode};
use serde::de::{Deserializer as _, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// One JSON object; keys are unique.
#[derive(Debug, Clone)]
pub(super) struct Object<'a> {
    /// Where it is, `data.object` or empty for the whole body.
    path: String,
    fields: BTreeMap<String, &'a RawValue>,
}

/// The body as text: UTF-8, a byte order mark before it ignored.
///
/// # Errors
/// [`UnreadableCode::BadBody`].
pub(super) fn body_text(body: &[u8]) -> Result<&str, Problem> {
    let body = body.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(body);
    std::str::from_utf8(body).map_err(|error| {
        Problem::whole(
            UnreadableCode::BadBody,
            format!("the body is not UTF-8 from byte {} on", error.valid_up_to()),
        )
    })
}

impl<'a> Object<'a> {
    /// Opens the body.
    ///
    /// # Errors
    /// [`UnreadableCode::BadBody`] for anything but one JSON object, [`UnreadableCode::DuplicateKey`].
    pub(super) fn parse(body: &'a [u8]) -> Result<Self, Problem> {
        Self::open(body_text(body)?, String::new())
    }

    fn open(text: &'a str, path: String) -> Result<Self, Problem> {
        let mut duplicate = None;
        let mut json = serde_json::Deserializer::from_str(text);
        let fields = json
            .deserialize_map(Fields {
                duplicate: &mut duplicate,
            })
            .and_then(|fields| json.end().map(|()| fields));
        match (fields, duplicate) {
            (_, Some(key)) => Err(Problem::field(
                UnreadableCode::DuplicateKey,
                join(&path, &key),
                "stands there more than once: the sender must say it once, as readers would differ",
            )),
            (Ok(fields), None) => Ok(Self { path, fields }),
            (Err(error), None) => Err(Problem {
                code: UnreadableCode::BadBody,
                field: (!path.is_empty()).then_some(path),
                message: format!("is not a JSON object: {error}"),
            }),
        }
    }

    /// The path of one of its fields.
    #[must_use]
    pub(super) fn path_of(&self, name: &str) -> String {
        join(&self.path, name)
    }

    /// Text, or the text of a number or a flag, as several providers write an id now so, now so.
    /// Absent, null: `None`.
    ///
    /// # Errors
    /// [`UnreadableCode::BadField`] for an object, a list or text with a broken escape.
    pub(super) fn text(&self, name: &str) -> Result<Option<String>, Problem> {
        let Some(raw) = self.raw(name) else {
            return Ok(None);
        };
        match raw.as_bytes().first() {
            Some(b'"') => serde_json::from_str(raw)
                .map(Some)
                .map_err(|error| self.bad(name, format!("is not valid text: {error}"))),
            Some(b'{' | b'[') => Err(self.bad(name, "must be text")),
            _ => Ok(Some(raw.to_owned())),
        }
    }

    /// As [`text`](Self::text), with empty text taken for absent.
    ///
    /// # Errors
    /// As [`text`](Self::text).
    pub(super) fn filled_text(&self, name: &str) -> Result<Option<String>, Problem> {
        Ok(self.text(name)?.filter(|text| !text.is_empty()))
    }

    /// `true` or `false`, also as text; any other text is an error and not "true".
    ///
    /// # Errors
    /// [`UnreadableCode::BadField`].
    pub(super) fn flag(&self, name: &str) -> Result<Option<bool>, Problem> {
        let Some(text) = self.text(name)? else {
            return Ok(None);
        };
        if text.eq_ignore_ascii_case("true") {
            Ok(Some(true))
        } else if text.eq_ignore_ascii_case("false") {
            Ok(Some(false))
        } else {
            Err(self.bad(name, "must be true or false"))
        }
    }

    /// An object inside; absent, null: `None`. Some providers send an empty list for an empty
    /// object: `None` as well.
    ///
    /// # Errors
    /// [`UnreadableCode::BadField`], [`UnreadableCode::DuplicateKey`].
    pub(super) fn object(&self, name: &str) -> Result<Option<Self>, Problem> {
        let Some(raw) = self.raw(name) else {
            return Ok(None);
        };
        match raw.as_bytes().first() {
            Some(b'{') => Self::open(raw, self.path_of(name)).map(Some),
            Some(b'[') if self.list(name)?.is_empty() => Ok(None),
            _ => Err(self.bad(name, "must be an object")),
        }
    }

    /// An object inside that must be there.
    ///
    /// # Errors
    /// [`UnreadableCode::BadField`], [`UnreadableCode::DuplicateKey`].
    pub(super) fn required_object(&self, name: &str) -> Result<Self, Problem> {
        self.object(name)?
            .ok_or_else(|| self.bad(name, "is missing: an object is needed here"))
    }

    /// A list inside, as raw elements; absent, null: empty.
    ///
    /// # Errors
    /// [`UnreadableCode::BadField`].
    pub(super) fn list(&self, name: &str) -> Result<Vec<Element<'a>>, Problem> {
        let Some(raw) = self.raw(name) else {
            return Ok(Vec::new());
        };
        let elements = serde_json::Deserializer::from_str(raw)
            .deserialize_seq(Elements)
            .map_err(|error| self.bad(name, format!("must be a list: {error}")))?;
        Ok(elements
            .into_iter()
            .enumerate()
            .map(|(position, raw)| Element {
                path: format!("{}[{position}]", self.path_of(name)),
                raw,
            })
            .collect())
    }

    /// A value by a path of names joined with dots; an object that is absent on the way, or is no
    /// object, makes the value absent.
    ///
    /// # Errors
    /// [`UnreadableCode::DuplicateKey`] on the way, else as [`text`](Self::text).
    pub(super) fn text_at(&self, path: &str) -> Result<Option<String>, Problem> {
        match path.split_once('.') {
            None => self.text(path),
            Some((head, rest)) => match self.raw(head) {
                Some(raw) if raw.starts_with('{') => {
                    Self::open(raw, self.path_of(head))?.text_at(rest)
                }
                _ => Ok(None),
            },
        }
    }

    fn raw(&self, name: &str) -> Option<&'a str> {
        self.fields
            .get(name)
            .map(|raw| raw.get())
            .filter(|raw| *raw != "null")
    }

    fn bad(&self, name: &str, message: impl Into<String>) -> Problem {
        Problem::field(UnreadableCode::BadField, self.path_of(name), message)
    }
}

/// One element of a list.
#[derive(Debug, Clone)]
pub(super) struct Element<'a> {
    path: String,
    raw: &'a RawValue,
}

impl<'a> Element<'a> {
    /// The element as an object.
    ///
    /// # Errors
    /// [`UnreadableCode::BadBody`], [`UnreadableCode::DuplicateKey`].
    pub(super) fn object(&self) -> Result<Object<'a>, Problem> {
        Object::open(self.raw.get(), self.path.clone())
    }
}

fn join(path: &str, name: &str) -> String {
    let name: String = name.chars().take(64).collect();
    if path.is_empty() {
        name
    } else {
        format!("{path}.{name}")
    }
}

struct Fields<'d> {
    duplicate: &'d mut Option<String>,
}

impl<'a> Visitor<'a> for Fields<'_> {
    type Value = BTreeMap<String, &'a RawValue>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = BTreeMap::new();
        while let Some((key, value)) = map.next_entry::<String, &'a RawValue>()? {
            match fields.entry(key) {
                Entry::Vacant(slot) => {
                    slot.insert(value);
                }
                Entry::Occupied(taken) => {
                    self.duplicate.get_or_insert_with(|| taken.key().clone());
                }
            }
        }
        Ok(fields)
    }
}

struct Elements;

impl<'a> Visitor<'a> for Elements {
    type Value = Vec<&'a RawValue>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut elements = Vec::new();
        while let Some(element) = seq.next_element()? {
            elements.push(element);
        }
        Ok(elements)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(json: &str, path: &str) -> Result<Option<String>, UnreadableCode> {
        Object::parse(json.as_bytes())
            .and_then(|object| object.text_at(path))
            .map_err(|problem| problem.code)
    }

    #[test]
    fn numbers_stay_the_text_they_are() {
        for number in ["19.99", "1E3", "1e400", "99999999999999999999", "-0"] {
            let json = format!(r#"{{"a":{{"n": {number} }}}}"#);
            assert_eq!(text(&json, "a.n"), Ok(Some(number.to_owned())));
        }
        assert_eq!(text(r#"{"n":"\u0061\n"}"#, "n"), Ok(Some("a\n".to_owned())));
        assert_eq!(
            text("\u{feff}{\"n\":true}", "n"),
            Ok(Some("true".to_owned()))
        );
        assert_eq!(text(r#"{"n":null}"#, "n"), Ok(None));
        assert_eq!(text(r#"{"n":[]}"#, "n.m"), Ok(None));
    }

    #[test]
    fn what_two_readers_could_take_differently_is_refused() {
        for (json, path, code) in [
            (r#"{"a":1,"a":2}"#, "a", UnreadableCode::DuplicateKey),
            (r#"{"a":1,"\u0061":2}"#, "a", UnreadableCode::DuplicateKey),
            (
                r#"{"x":{"a":1,"a":2}}"#,
                "x.a",
                UnreadableCode::DuplicateKey,
            ),
            (r#"{"a":01}"#, "a", UnreadableCode::BadBody),
            (r#"{"a":1}x"#, "a", UnreadableCode::BadBody),
            (r#"{"a":1,}"#, "a", UnreadableCode::BadBody),
            ("[]", "a", UnreadableCode::BadBody),
            ("", "a", UnreadableCode::BadBody),
            (r#"{"a":"\ud800"}"#, "a", UnreadableCode::BadField),
            (r#"{"a":{}}"#, "a", UnreadableCode::BadField),
        ] {
            assert_eq!(text(json, path), Err(code), "{json}");
        }
        assert_eq!(
            Object::parse(b"{\"a\":\"\xff\"}").map_err(|p| p.code).err(),
            Some(UnreadableCode::BadBody)
        );
    }

    #[test]
    fn deep_nesting_in_an_unread_field_is_harmless() {
        let json = format!(
            r#"{{"a":"x","b":{}{}}}"#,
            "[".repeat(200_000),
            "]".repeat(200_000)
        );
        assert_eq!(text(&json, "a"), Ok(Some("x".to_owned())));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(body in prop::collection::vec(any::<u8>(), 0..64)) {
            let _unchecked = Object::parse(&body).and_then(|object| object.text_at("a.b")).is_ok();
        }
    }
}
