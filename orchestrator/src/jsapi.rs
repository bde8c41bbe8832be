//! JetStream API requests as plain JSON: a typed client drops the fields it does not know.

use async_nats::Client;
use serde_json::Value;
use std::time::Duration;

/// A stream that does not exist.
pub(crate) const STREAM_NOT_FOUND: u64 = 10059;
/// A consumer that does not exist.
pub(crate) const CONSUMER_NOT_FOUND: u64 = 10014;
/// Longest wait for one answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// How often a server that is still starting or electing is asked again, and how far apart.
const ATTEMPTS: u32 = 40;
const PAUSE: Duration = Duration::from_millis(250);

/// Why the JetStream API gave no usable answer.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// The server refused; the code is the server's `err_code`.
    #[error("{subject}: {description} ({code})")]
    Refused {
        /// What was asked.
        subject: String,
        /// The server's error code.
        code: u64,
        /// The server's words.
        description: String,
    },
    /// No answer at all.
    #[error(
        "{subject}: no answer; is JetStream enabled, and may this user ask? (last error: {last})"
    )]
    NoAnswer {
        /// What was asked.
        subject: String,
        /// The client's words.
        last: String,
    },
    /// An answer that is not JSON.
    #[error("{subject}: answer is not JSON: {source}")]
    NotJson {
        /// What was asked.
        subject: String,
        /// The parse error.
        source: serde_json::Error,
    },
}

/// Asks `$JS.API.<what>`. A server that is starting, electing or unreachable is asked again for about ten
/// seconds; every question asked here may be repeated.
pub(crate) async fn ask(client: &Client, what: &str, body: &Value) -> Result<Value, ApiError> {
    let subject = format!("$JS.API.{what}");
    let mut attempt = 1;
    loop {
        let result = ask_once(client, &subject, body).await;
        let transient = match &result {
            Ok(_) | Err(ApiError::NotJson { .. }) => false,
            // 10008: no leader yet; 10005 and 10009: peers or shards not there yet.
            Err(ApiError::Refused { code, .. }) => matches!(code, 10005 | 10008 | 10009),
            Err(ApiError::NoAnswer { last, .. }) => last.contains("no responders"),
        };
        if !transient || attempt == ATTEMPTS {
            return result;
        }
        attempt += 1;
        tokio::time::sleep(PAUSE).await;
    }
}

async fn ask_once(client: &Client, subject: &str, body: &Value) -> Result<Value, ApiError> {
    let no_answer = |last: String| ApiError::NoAnswer {
        subject: subject.to_owned(),
        last,
    };
    let payload = if body.is_null() {
        Vec::new()
    } else {
        body.to_string().into_bytes()
    };
    let request = client.request(subject.to_owned(), payload.into());
    let message = match tokio::time::timeout(ANSWER_TIMEOUT, request).await {
        Ok(Ok(message)) => message,
        Ok(Err(error)) => return Err(no_answer(error.to_string())),
        Err(_elapsed) => return Err(no_answer("timed out".to_owned())),
    };
    let answer: Value =
        serde_json::from_slice(&message.payload).map_err(|source| ApiError::NotJson {
            subject: subject.to_owned(),
            source,
        })?;
    match answer.get("error") {
        None | Some(Value::Null) => Ok(answer),
        Some(error) => Err(ApiError::Refused {
            subject: subject.to_owned(),
            code: error["err_code"].as_u64().unwrap_or_default(),
            description: error["description"].as_str().unwrap_or("?").to_owned(),
        }),
    }
}
