//! One write to the server: a publish with its acknowledgement, or an atomic batch (ADR-50).
//!
//! The client library has no batch publisher for its own version, hence the headers by hand.

use std::error::Error as _;
use std::time::Duration;

use async_nats::client::Request;
use async_nats::header;
use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::publish::PublishAck;
use async_nats::jetstream::response::Response;
use async_nats::jetstream::{self, ErrorCode};
use async_nats::{Client, HeaderMap};
use bytes::Bytes;

/// A message of a write. The first message of a write is its record.
#[derive(Debug, Clone)]
pub(super) struct Message {
    pub(super) subject: String,
    pub(super) headers: HeaderMap,
    pub(super) payload: Bytes,
}

/// The server's verdict.
#[derive(Debug)]
pub(super) enum Verdict {
    /// All stored; the sequence of the last message.
    Stored(u64),
    /// Nothing stored: an expected sequence did not hold (10071, or 10164 under load and in clusters).
    Conflict,
    /// Nothing stored, for another definite reason.
    Rejected(String),
    /// No verdict.
    Unknown(String),
}

/// How long an acknowledgement is waited for.
const ACK_TIMEOUT: Duration = Duration::from_secs(5);

/// Refusals of these very bytes, however often they are sent: too large, or asking for what cannot be.
/// Any other refusal may pass (a shortage, an election, a batch that the server gave up on).
const LASTING: [ErrorCode; 8] = [
    ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM,
    ErrorCode::STREAM_HEADER_EXCEEDS_MAXIMUM,
    ErrorCode::ATOMIC_PUBLISH_DISABLED,
    ErrorCode::ATOMIC_PUBLISH_UNSUPPORTED_HEADER,
    ErrorCode::ATOMIC_PUBLISH_INVALID_BATCH_ID,
    ErrorCode::ATOMIC_PUBLISH_TOO_LARGE_BATCH,
    ErrorCode::ATOMIC_PUBLISH_CONTAINS_DUPLICATE_MESSAGE,
    ErrorCode::MESSAGE_SCHEDULES_SCHEDULER_INVALID,
];

/// The server's text when a commit takes back a timer that is not armed (10212).
pub(super) fn is_no_schedule(rejection: &str) -> bool {
    rejection.starts_with("10212 ")
}

/// Publishes one message and waits for its acknowledgement.
pub(super) async fn publish(js: &jetstream::Context, message: Message) -> Verdict {
    let publish = PublishMessage::build()
        .payload(message.payload)
        .headers(message.headers);
    let ack = match js.send_publish(message.subject, publish).await {
        Ok(ack) => ack,
        Err(error) if error.kind() == PublishErrorKind::MaxPayloadExceeded => {
            return Verdict::Rejected(format!("too large for a message: {error}"));
        }
        Err(error) => return Verdict::Unknown(error.to_string()),
    };
    match ack.await {
        Ok(ack) => Verdict::Stored(ack.sequence),
        Err(error) if error.kind() == PublishErrorKind::WrongLastSequence => Verdict::Conflict,
        Err(error) => error
            .source()
            .and_then(|source| source.downcast_ref::<jetstream::Error>())
            .map_or_else(|| Verdict::Unknown(error.to_string()), verdict),
    }
}

/// Publishes messages as one atomic batch: all stored, or none.
pub(super) async fn publish_batch(
    client: &Client,
    batch_id: &str,
    messages: Vec<Message>,
) -> Verdict {
    let count = messages.len();
    for (index, message) in messages.into_iter().enumerate() {
        let number = index + 1;
        let mut headers = message.headers;
        headers.insert(header::NATS_BATCH_ID, batch_id);
        headers.insert(header::NATS_BATCH_SEQUENCE, number.to_string().as_str());
        let last = number == count;
        if last {
            headers.insert(header::NATS_BATCH_COMMIT, header::NATS_BATCH_COMMIT_FINAL);
        }
        if number == 1 || last {
            let request = Request::new()
                .headers(headers)
                .payload(message.payload)
                .timeout(Some(ACK_TIMEOUT));
            let reply = match client.send_request(message.subject, request).await {
                Ok(reply) => reply,
                Err(error) => return Verdict::Unknown(error.to_string()),
            };
            // The first message is answered with nothing when it is accepted.
            if last || !reply.payload.is_empty() {
                return match serde_json::from_slice::<Response<PublishAck>>(&reply.payload) {
                    Ok(Response::Ok(ack)) => Verdict::Stored(ack.sequence),
                    Ok(Response::Err { error }) => verdict(&error),
                    Err(error) => Verdict::Unknown(format!("acknowledgement: {error}")),
                };
            }
        } else {
            #[expect(
                clippy::disallowed_methods,
                reason = "covered by the acknowledgement of the whole batch"
            )]
            let sent = client
                .publish_with_headers(message.subject, headers, message.payload)
                .await;
            if let Err(error) = sent {
                return Verdict::Unknown(error.to_string());
            }
        }
    }
    Verdict::Rejected("an empty batch".to_owned())
}

/// Sorts the server's error: conflict, definite rejection, or nothing said about the write.
fn verdict(error: &jetstream::Error) -> Verdict {
    match error.error_code() {
        ErrorCode::STREAM_WRONG_LAST_SEQUENCE | ErrorCode::STREAM_WRONG_LAST_SEQUENCE_CONSTANT => {
            Verdict::Conflict
        }
        code if LASTING.contains(&code) => Verdict::Rejected(format!("{} {error}", code.0)),
        // Nothing is stored by this try; whether it ever will be is not for us to say. Tried again.
        _ => Verdict::Unknown(error.to_string()),
    }
}
