//! The only encode and decode: MessagePack (named fields) between our own processes, JSON for people.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Deepest nesting read, so that a body of brackets cannot exhaust the stack (JSON has its own limit).
const MAX_DEPTH: usize = 64;

/// How a body is encoded; named by its `Content-Type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// `application/json`, also when no type is given: what a person types.
    Json,
    /// `application/msgpack`, structs as maps, so that a field can be added.
    MessagePack,
}

/// A body that is not what its type says.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    /// A type we do not read.
    #[error("Content-Type {0:?} is not read here: use application/json or application/msgpack")]
    UnknownType(String),
    /// Bad JSON, or JSON of another shape; the text names line, column and field.
    #[error("JSON body: {0}")]
    Json(String),
    /// Bad MessagePack, or of another shape.
    #[error("MessagePack body: {0}")]
    MessagePack(String),
}

impl Encoding {
    /// Reads a `Content-Type`; parameters such as a charset are ignored.
    ///
    /// # Errors
    /// [`CodecError::UnknownType`].
    pub fn from_content_type(content_type: Option<&str>) -> Result<Self, CodecError> {
        let Some(content_type) = content_type else {
            return Ok(Self::Json);
        };
        let mime = content_type
            .split(';')
            .next()
            .unwrap_or_default()
            .trim()
            .to_ascii_lowercase();
        match mime.as_str() {
            "" | "application/json" | "text/json" | "text/plain" => Ok(Self::Json),
            "application/msgpack" | "application/x-msgpack" | "application/vnd.msgpack" => {
                Ok(Self::MessagePack)
            }
            _ => Err(CodecError::UnknownType(content_type.to_owned())),
        }
    }

    /// The `Content-Type` to send.
    #[must_use]
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::MessagePack => "application/msgpack",
        }
    }

    /// Encodes a value.
    ///
    /// # Errors
    /// A value that the format cannot hold, such as a map with non-text keys in JSON.
    pub fn encode<T: Serialize>(self, value: &T) -> Result<Vec<u8>, CodecError> {
        match self {
            Self::Json => {
                serde_json::to_vec(value).map_err(|error| CodecError::Json(error.to_string()))
            }
            Self::MessagePack => rmp_serde::to_vec_named(value)
                .map_err(|error| CodecError::MessagePack(error.to_string())),
        }
    }

    /// Encodes a value for the eyes of a person: JSON is indented, MessagePack is as ever.
    ///
    /// # Errors
    /// As [`Encoding::encode`].
    pub fn encode_readable<T: Serialize>(self, value: &T) -> Result<Vec<u8>, CodecError> {
        match self {
            Self::Json => serde_json::to_vec_pretty(value)
                .map_err(|error| CodecError::Json(error.to_string())),
            Self::MessagePack => self.encode(value),
        }
    }

    /// Decodes a whole body; bytes after the value are an error in both formats.
    ///
    /// # Errors
    /// [`CodecError::Json`] or [`CodecError::MessagePack`].
    pub fn decode<T: DeserializeOwned>(self, body: &[u8]) -> Result<T, CodecError> {
        match self {
            Self::Json => {
                serde_json::from_slice(body).map_err(|error| CodecError::Json(error.to_string()))
            }
            Self::MessagePack => {
                let mut rest = body;
                let mut reader = rmp_serde::Deserializer::new(&mut rest);
                reader.set_max_depth(MAX_DEPTH);
                let value = T::deserialize(&mut reader)
                    .map_err(|error| CodecError::MessagePack(error.to_string()))?;
                if rest.is_empty() {
                    Ok(value)
                } else {
                    Err(CodecError::MessagePack("bytes after the value".to_owned()))
                }
            }
        }
    }
}
