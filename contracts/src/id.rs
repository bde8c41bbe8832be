//! Ids: one newtype per kind, compared byte for byte, never folded or trimmed.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Longest id accepted from outside, in bytes (providers issue tokens of over 512).
pub const MAX_EXTERNAL_ID_LEN: usize = 1024;

/// Why a text is no id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// Nothing identifies nothing; two empty ids would be one.
    #[error("must not be empty")]
    Empty,
    /// Longer than the stated maximum.
    #[error("is {len} bytes long; at most {max} are accepted")]
    TooLong {
        /// Length found, in bytes.
        len: usize,
        /// Longest accepted, in bytes.
        max: usize,
    },
    /// Holds a character that its use does not admit.
    #[error("{id:?} may hold only {allowed}")]
    Charset {
        /// The text refused.
        id: String,
        /// What would have been accepted.
        allowed: &'static str,
    },
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident, $check:path) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Takes the text as it is, or says why it is no such id.
            ///
            /// # Errors
            /// [`IdError`], see its variants.
            pub fn new(text: impl Into<String>) -> Result<Self, IdError> {
                let text = text.into();
                $check(&text)?;
                Ok(Self(text))
            }

            /// The id as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// The id as one subject token or KV key, see [`crate::key`].
            #[must_use]
            pub fn key(&self) -> String {
                crate::key::encode(&self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({:?})", stringify!($name), self.0)
            }
        }

        impl std::str::FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                Self::new(text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;
            fn try_from(text: String) -> Result<Self, IdError> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0
            }
        }
    };
}

text_id!(
    /// One saga: `<workflow>/<part>/<part>…`, printable ASCII, so that it can stand in a header.
    /// Made by [`SagaId::from_parts`], which keeps different parts apart.
    SagaId,
    check_printable
);
text_id!(
    /// One step in one direction, the same on every attempt: `<saga id>` for the pivot wallet
    /// movement, `<saga id>/<step>` in general, `revert-<…>` for the compensation.
    OperationId,
    check_printable
);
text_id!(
    /// A customer as the provider or the platform names him: any text, 1 to 1024 bytes.
    CustomerId,
    check_external
);
text_id!(
    /// An id issued by somebody else: any text, 1 to 1024 bytes.
    ExternalId,
    check_external
);
text_id!(
    /// A provider as configured, such as `stripe`: `a-z0-9-`, at most 32.
    Provider,
    check_name
);
text_id!(
    /// A region, the second token of a wallet subject: `a-z0-9-`, at most 32.
    Region,
    check_name
);
text_id!(
    /// A workflow, step or signal: `a-z0-9-` (and `#` before a repetition's number), at most 64.
    StepName,
    check_step
);

impl SagaId {
    /// Joins a workflow and parts from outside injectively: a byte outside `A-Za-z0-9_.:~@+-` in a
    /// part becomes `%XX`, so no part can contain the `/` between parts.
    ///
    /// ```
    /// use contracts::id::SagaId;
    /// assert_eq!(SagaId::from_parts("deposit", &["p", "a b", "INV/7"]).as_str(), "deposit/p/a%20b/INV%2F7");
    /// ```
    #[must_use]
    pub fn from_parts(workflow: &str, parts: &[&str]) -> Self {
        use fmt::Write as _;
        let mut id = workflow.to_owned();
        for part in parts {
            id.push('/');
            for byte in part.bytes() {
                if byte.is_ascii_alphanumeric() || b"_.:~@+-".contains(&byte) {
                    id.push(char::from(byte));
                } else {
                    write!(id, "%{byte:02X}").unwrap_or_default();
                }
            }
        }
        Self(id)
    }

    /// Operation id of a step of this saga; the pivot movement of a wallet has the saga's own id.
    #[must_use]
    pub fn operation(&self, step: &str) -> OperationId {
        OperationId(format!("{}/{step}", self.0))
    }

    /// The operation id that is the saga's own id.
    #[must_use]
    pub fn own_operation(&self) -> OperationId {
        OperationId(self.0.clone())
    }
}

impl OperationId {
    /// Operation id under which the state of this operation is asked for.
    #[must_use]
    pub fn status(&self) -> Self {
        Self(format!("status-{}", self.0))
    }

    /// Operation id of the compensation of this operation.
    #[must_use]
    pub fn revert(&self) -> Self {
        Self(format!("revert-{}", self.0))
    }
}

fn check_external(text: &str) -> Result<(), IdError> {
    match text.len() {
        0 => Err(IdError::Empty),
        len if len > MAX_EXTERNAL_ID_LEN => Err(IdError::TooLong {
            len,
            max: MAX_EXTERNAL_ID_LEN,
        }),
        _ => Ok(()),
    }
}

/// Escaping triples a byte and a saga id has a handful of parts, hence the larger maximum.
fn check_printable(text: &str) -> Result<(), IdError> {
    const MAX: usize = 12 * MAX_EXTERNAL_ID_LEN;
    if text.is_empty() {
        return Err(IdError::Empty);
    }
    if text.len() > MAX {
        return Err(IdError::TooLong {
            len: text.len(),
            max: MAX,
        });
    }
    if text.bytes().all(|byte| byte.is_ascii_graphic()) {
        Ok(())
    } else {
        Err(IdError::Charset {
            id: text.to_owned(),
            allowed: "printable ASCII without blanks",
        })
    }
}

fn check_name(text: &str) -> Result<(), IdError> {
    check_lower(text, 32, b"-", "a-z, 0-9 and '-'")
}

fn check_step(text: &str) -> Result<(), IdError> {
    check_lower(text, 64, b"-#", "a-z, 0-9, '-' and '#'")
}

fn check_lower(text: &str, max: usize, extra: &[u8], allowed: &'static str) -> Result<(), IdError> {
    if text.is_empty() {
        return Err(IdError::Empty);
    }
    if text.len() > max {
        return Err(IdError::TooLong {
            len: text.len(),
            max,
        });
    }
    if text
        .bytes()
        .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || extra.contains(&b))
    {
        Ok(())
    } else {
        Err(IdError::Charset {
            id: text.to_owned(),
            allowed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_separator_inside_a_part_does_not_merge_ids() {
        let one = SagaId::from_parts("deposit", &["a", "b/c"]);
        let two = SagaId::from_parts("deposit", &["a/b", "c"]);
        assert_ne!(one, two);
    }

    #[test]
    fn names_with_blanks_or_dots_are_refused() {
        for text in ["", "EU", "eu.asia", "eu asia", ">", &"x".repeat(33)] {
            assert!(Region::new(text).is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn parts_stay_apart(a in prop::collection::vec(".{0,12}", 1..4), b in prop::collection::vec(".{0,12}", 1..4)) {
            let id = |parts: &[String]| SagaId::from_parts("w", &parts.iter().map(String::as_str).collect::<Vec<_>>());
            prop_assert_eq!(id(&a) == id(&b), a == b);
            prop_assert!(SagaId::new(id(&a).as_str()).is_ok());
        }
    }
}
