//! Reads a NATS server's monitoring endpoint: one bounded `GET`, JSON back.

use serde_json::Value;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const TIMEOUT: Duration = Duration::from_secs(3);
/// Far more than any monitoring page we read.
const MAX_ANSWER: u64 = 16 * 1024 * 1024;

/// Why a monitoring endpoint could not be read.
#[derive(Debug, thiserror::Error)]
pub enum MonitorError {
    /// Only plain HTTP on a trusted network is spoken.
    #[error("{0}: a monitoring address is http://host:port or host:port")]
    Address(String),
    /// Nothing listens, or it broke off.
    #[error("http://{address}{path}")]
    Io {
        /// `host:port`.
        address: String,
        /// The page.
        path: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// No answer in time.
    #[error("http://{address}{path}: no answer within {TIMEOUT:?}")]
    TimedOut {
        /// `host:port`.
        address: String,
        /// The page.
        path: String,
    },
    /// An answer other than 200, or not JSON where that was asked for.
    #[error("http://{address}{path}: {answer}")]
    Answer {
        /// `host:port`.
        address: String,
        /// The page.
        path: String,
        /// What came instead.
        answer: String,
    },
}

/// Fetches `path` (such as `/varz`) from `address` (`http://host:port` or `host:port`).
///
/// # Errors
/// [`MonitorError`].
pub async fn get(address: &str, path: &str) -> Result<Value, MonitorError> {
    let body = text(address, path).await?;
    serde_json::from_str(&body).map_err(|error| MonitorError::Answer {
        address: address.to_owned(),
        path: path.to_owned(),
        answer: error.to_string(),
    })
}

/// Fetches a page that need not be JSON, such as `/readyz` of our own programs.
///
/// # Errors
/// [`MonitorError`].
pub async fn text(address: &str, path: &str) -> Result<String, MonitorError> {
    let address = address
        .strip_prefix("http://")
        .unwrap_or(address)
        .trim_end_matches('/');
    if address.contains('/') || !address.contains(':') {
        return Err(MonitorError::Address(address.to_owned()));
    }
    let answer = match tokio::time::timeout(TIMEOUT, fetch(address, path)).await {
        Err(_elapsed) => {
            return Err(MonitorError::TimedOut {
                address: address.to_owned(),
                path: path.to_owned(),
            });
        }
        Ok(Err(source)) => {
            return Err(MonitorError::Io {
                address: address.to_owned(),
                path: path.to_owned(),
                source,
            });
        }
        Ok(Ok(answer)) => answer,
    };
    let wrong = |answer: &str| MonitorError::Answer {
        address: address.to_owned(),
        path: path.to_owned(),
        answer: answer.chars().take(300).collect(),
    };
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .ok_or_else(|| wrong(&answer))?;
    let status = head.lines().next().unwrap_or_default();
    if status.split(' ').nth(1) != Some("200") {
        return Err(wrong(&format!("{status} {body}")));
    }
    Ok(body.to_owned())
}

async fn fetch(address: &str, path: &str) -> Result<String, std::io::Error> {
    let mut stream = TcpStream::connect(address).await?;
    // HTTP/1.0: the answer is neither chunked nor kept open.
    let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream
        .take(MAX_ANSWER)
        .read_to_string(&mut answer)
        .await
        .map(|_| answer)
}
