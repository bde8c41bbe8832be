//! One bounded HTTP `GET`: status and body.

use anyhow::Context as _;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// The status code.
    pub status: u16,
    /// The body.
    pub body: String,
}

/// Fetches `path` from `host:port`.
///
/// # Errors
/// When nobody answers within ten seconds, or not with HTTP.
pub async fn get(address: &str, path: &str) -> anyhow::Result<Page> {
    let fetching = async {
        let mut stream = TcpStream::connect(address).await?;
        // HTTP/1.0: the answer is neither chunked nor kept open.
        let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        anyhow::Ok(answer)
    };
    let answer = tokio::time::timeout(Duration::from_secs(10), fetching)
        .await
        .with_context(|| format!("http://{address}{path}"))??;
    let (head, body) = answer.split_once("\r\n\r\n").context("no HTTP")?;
    let status = head.split(' ').nth(1).context("no status")?.parse()?;
    Ok(Page {
        status,
        body: body.to_owned(),
    })
}

/// The value of a counter without labels on a page of metrics; 0 when it is not there.
#[must_use]
pub fn counter(page: &str, name: &str) -> u64 {
    page.lines()
        .filter_map(|line| line.split_once(' '))
        .find(|(found, _)| *found == name)
        .and_then(|(_, value)| value.parse().ok())
        .unwrap_or(0)
}
