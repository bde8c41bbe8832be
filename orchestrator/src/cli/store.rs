//! Stores messages in the intake: acknowledged means kept, and the same message twice is kept once.

use std::error::Error as _;

use async_nats::HeaderMap;
use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::{self, ErrorCode};
use bytes::Bytes;

use crate::cli::Exit;

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stored {
    /// It is stored under this sequence.
    Now(u64),
    /// Its subject holds a message already; nothing was stored.
    Before,
}

/// Why a message is not known to be stored.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// No acknowledgement came.
    #[error("no acknowledgement: it may be stored or not, so say the same again ({again})")]
    Unknown {
        /// How to repeat it without saying it twice.
        again: String,
        /// Why.
        #[source]
        source: PublishError,
    },
    /// No stream takes the subject.
    #[error(
        "no stream takes {0}: run `orchestrator setup`, and see whether this user may publish there"
    )]
    NoStream(String),
    /// It does not fit.
    #[error("not stored")]
    Refused(#[source] PublishError),
}

impl StoreError {
    /// The exit code that says so.
    pub(super) fn exit(&self) -> Exit {
        match self {
            Self::Unknown { .. } => Exit::Unreachable,
            Self::NoStream(_) | Self::Refused(_) => Exit::Failed,
        }
    }
}

/// Publishes and waits for the acknowledgement. `again` tells a person how to repeat it.
pub(super) async fn store(
    js: &jetstream::Context,
    subject: &str,
    mut headers: HeaderMap,
    body: Bytes,
    again: &str,
) -> Result<Stored, StoreError> {
    crate::telemetry::inject(&mut headers);
    let sent = js
        .publish_with_headers(subject.to_owned(), headers, body)
        .await;
    let acknowledged = match sent {
        Ok(acknowledgement) => acknowledgement.await,
        Err(error) => Err(error),
    };
    match acknowledged {
        Ok(ack) => Ok(Stored::Now(ack.sequence)),
        Err(error) if is_taken(&error) => Ok(Stored::Before),
        Err(error) => Err(match error.kind() {
            PublishErrorKind::StreamNotFound => StoreError::NoStream(subject.to_owned()),
            PublishErrorKind::TimedOut | PublishErrorKind::BrokenPipe => StoreError::Unknown {
                again: again.to_owned(),
                source: error,
            },
            PublishErrorKind::MaxPayloadExceeded
            | PublishErrorKind::WrongLastMessageId
            | PublishErrorKind::WrongLastSequence
            | PublishErrorKind::MaxAckPending
            | PublishErrorKind::Other => StoreError::Refused(error),
        }),
    }
}

/// The stream keeps one message a subject and refuses a second one. The server has no code for that alone.
fn is_taken(error: &PublishError) -> bool {
    error
        .source()
        .and_then(|source| source.downcast_ref::<jetstream::Error>())
        .is_some_and(|error| {
            error.error_code() == ErrorCode::STREAM_STORE_FAILED
                && error
                    .to_string()
                    .contains("maximum messages per subject exceeded")
        })
}
