//! Stores callbacks as the gateway does.

use crate::deposit::Deposit;
use anyhow::Context as _;
use async_nats::{Client, HeaderMap};
use serde_json::Value;
use std::time::Duration;

/// Whether a callback was new to the intake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored {
    /// Stored now.
    New,
    /// The very same is stored already.
    Before,
}

/// Stores callbacks as the gateway does.
#[derive(Debug, Clone)]
pub struct Sender {
    gateway: Client,
    within: Duration,
}

/// Longest wait until a callback is on disk, unless told otherwise.
const STORED_WITHIN: Duration = Duration::from_secs(30);

impl Sender {
    /// With the gateway's connection.
    #[must_use]
    pub fn new(gateway: Client) -> Self {
        Self {
            gateway,
            within: STORED_WITHIN,
        }
    }

    /// The same, which waits so long until a callback is on disk.
    #[must_use]
    pub fn within(self, within: Duration) -> Self {
        Self { within, ..self }
    }

    /// Stores a callback and waits until it is on disk, trying again while the server is away.
    ///
    /// # Errors
    /// When it is not acknowledged in time (half a minute unless told otherwise), or refused.
    pub async fn send(&self, deposit: &Deposit, event_id: &str) -> anyhow::Result<Stored> {
        self.send_with(deposit, event_id, HeaderMap::new()).await
    }

    /// As [`Sender::send`], with headers.
    ///
    /// # Errors
    /// As [`Sender::send`].
    pub async fn send_with(
        &self,
        deposit: &Deposit,
        event_id: &str,
        headers: HeaderMap,
    ) -> anyhow::Result<Stored> {
        /// The server's code for "this subject holds its one message already".
        const STORED_BEFORE: u64 = 10077;
        let body = deposit.body();
        let subject = contracts::subject::callback(&deposit.provider(), event_id, body.as_bytes());
        let sending = async {
            loop {
                let request = self.gateway.request_with_headers(
                    subject.clone(),
                    headers.clone(),
                    body.clone().into(),
                );
                let bound = Duration::from_secs(3);
                if let Ok(Ok(reply)) = tokio::time::timeout(bound, request).await {
                    let answer: Value = serde_json::from_slice(&reply.payload)?;
                    match answer["error"]["err_code"].as_u64() {
                        None => return Ok(Stored::New),
                        Some(STORED_BEFORE) => return Ok(Stored::Before),
                        // Starting or electing.
                        Some(_) if answer["error"]["code"] == 503 => {}
                        Some(_) => anyhow::bail!("{subject}: {answer}"),
                    }
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(self.within, sending)
            .await
            .with_context(|| format!("{subject} is not acknowledged"))?
    }
}
