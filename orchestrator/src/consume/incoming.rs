//! A message as handlers see it.

use async_nats::HeaderMap;
use async_nats::jetstream::Message;
use bytes::Bytes;
use jiff::Timestamp;

/// One delivery of a stored message.
#[derive(Debug, Clone)]
pub struct Incoming {
    /// Its subject.
    pub subject: String,
    /// Its headers, when it has any.
    pub headers: Option<HeaderMap>,
    /// Its body.
    pub payload: Bytes,
    /// Its place in its stream.
    pub sequence: u64,
    /// How often it has been delivered, this time included.
    pub delivered: u64,
    /// When the server stored it.
    pub published: Timestamp,
}

impl Incoming {
    /// Reads what the server says of a message.
    pub(super) fn read(message: &Message) -> Result<Self, String> {
        let info = message
            .info()
            .map_err(|error| format!("not a JetStream message: {error}"))?;
        let published = Timestamp::from_nanosecond(info.published.unix_timestamp_nanos())
            .map_err(|error| error.to_string())?;
        Ok(Self {
            subject: message.subject.to_string(),
            headers: message.headers.clone(),
            payload: message.payload.clone(),
            sequence: info.stream_sequence,
            delivered: u64::try_from(info.delivered).unwrap_or(1),
            published,
        })
    }
}
