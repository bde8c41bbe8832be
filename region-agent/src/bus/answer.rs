//! An answer as it leaves: body in the request's encoding, headers, and the error code if it refuses.

use super::request;
use async_nats::service::error::Error;
use async_nats::{HeaderMap, HeaderValue};
use bytes::Bytes;
use contracts::codec::{CodecError, Encoding};
use contracts::header;
use contracts::reply::{WalletReply, WalletView};
use serde::Serialize;

/// Headers handed back, so that an answer can be told without the question.
const ECHOED: [&str; 5] = [
    header::SAGA_ID,
    header::OPERATION_ID,
    header::ATTEMPT,
    header::TRACEPARENT,
    header::TRACESTATE,
];

/// Longest error text in a header; the body has it whole.
const MAX_STATUS_LEN: usize = 200;

/// One answer.
pub(super) struct Answer {
    /// Its kind, for metrics and logs.
    pub(super) name: &'static str,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// Set when the answer is not what was asked for.
    pub(super) refusal: Option<Error>,
}

impl Answer {
    /// An answer to an update or a revert.
    pub(super) fn reply(asked: Option<&HeaderMap>, reply: &WalletReply) -> Self {
        let (name, code, status) = reply_status(reply);
        Self::new(asked, reply, name, code, status)
    }

    /// An answer to a get.
    pub(super) fn view(asked: Option<&HeaderMap>, view: &WalletView) -> Self {
        let (name, code, status) = view_status(view);
        Self::new(asked, view, name, code, status)
    }

    fn new<T: Serialize>(
        asked: Option<&HeaderMap>,
        value: &T,
        name: &'static str,
        code: Option<usize>,
        status: String,
    ) -> Self {
        let content_type = request::single(asked, header::CONTENT_TYPE).unwrap_or(None);
        // A type we do not read gets its refusal in JSON.
        let encoding = Encoding::from_content_type(content_type).unwrap_or(Encoding::Json);
        let encoded = match content_type {
            None => encoding.encode_readable(value),
            Some(_) => encoding.encode(value),
        };
        let mut headers = echo(asked);
        headers.insert(header::CONTENT_TYPE, encoding.content_type());
        let (body, mut refusal) = match encoded {
            Ok(body) => (
                Bytes::from(body),
                code.map(|code| Error {
                    status: header_text(&status),
                    code,
                }),
            ),
            Err(error) => (Bytes::new(), Some(not_encoded(&error))),
        };
        if let Some(error) = &mut refusal {
            // Printable ASCII by now, so neither insert can be refused.
            headers.insert(header::SERVICE_ERROR, error.status.as_str());
            headers.insert(header::SERVICE_ERROR_CODE, error.code.to_string());
        }
        Self {
            name,
            headers,
            body,
            refusal,
        }
    }
}

fn not_encoded(error: &CodecError) -> Error {
    Error {
        status: header_text(&error.to_string()),
        code: 500,
    }
}

fn echo(asked: Option<&HeaderMap>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for name in ECHOED {
        if let Ok(Some(value)) = request::single(asked, name)
            && let Ok(value) = value.parse::<HeaderValue>()
        {
            headers.insert(name, value);
        }
    }
    headers
}

/// Text that may stand in a header: printable ASCII, cut short.
fn header_text(text: &str) -> String {
    text.chars()
        .take(MAX_STATUS_LEN)
        .map(|character| match character {
            ' '..='~' => character,
            _ => '?',
        })
        .collect()
}

/// Name, error code (as in HTTP) and error text of a reply.
fn reply_status(reply: &WalletReply) -> (&'static str, Option<usize>, String) {
    match reply {
        WalletReply::Applied { .. } => ("applied", None, String::new()),
        WalletReply::Rejected { message, .. } => ("rejected", Some(422), message.clone()),
        WalletReply::Cancelled { .. } => (
            "cancelled",
            Some(410),
            "reverted before it arrived".to_owned(),
        ),
        WalletReply::Conflict { fields, .. } => (
            "conflict",
            Some(409),
            format!("known with other {}", fields.join(", ")),
        ),
        WalletReply::Stale { seen_fence } => (
            "stale",
            Some(412),
            format!("fence {seen_fence} has been seen"),
        ),
        WalletReply::Expired { deadline, .. } => {
            ("expired", Some(408), format!("deadline was {deadline}"))
        }
        WalletReply::Busy { retry_after_ms } => (
            "busy",
            Some(429),
            format!("try again after {retry_after_ms} ms"),
        ),
        WalletReply::Invalid { field, message } => {
            ("invalid", Some(400), format!("{field}: {message}"))
        }
        WalletReply::Unavailable { message } => ("unavailable", Some(503), message.clone()),
        WalletReply::Unknown => ("unknown", Some(500), "unknown answer".to_owned()),
    }
}

/// Name, error code (as in HTTP) and error text of a view.
fn view_status(view: &WalletView) -> (&'static str, Option<usize>, String) {
    match view {
        WalletView::Operation(_) => ("operation", None, String::new()),
        WalletView::Wallet { .. } => ("wallet", None, String::new()),
        WalletView::Operations { .. } => ("operations", None, String::new()),
        WalletView::UnknownOperation { .. } => (
            "unknown_operation",
            Some(404),
            "no such operation here, or not yet".to_owned(),
        ),
        WalletView::Invalid { field, message } => {
            ("invalid", Some(400), format!("{field}: {message}"))
        }
        WalletView::Unavailable { message } => ("unavailable", Some(503), message.clone()),
    }
}
