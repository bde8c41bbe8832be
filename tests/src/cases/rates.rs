//! A rate service that answers from a script.

use async_nats::{Client, HeaderMap};
use contracts::codec::Encoding;
use contracts::header;
use contracts::quote::{RateReply, RateRequest};
use contracts::subject;
use futures::StreamExt as _;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::task::JoinHandle;

/// What is answered next, by pair.
pub type Script = BTreeMap<String, Vec<String>>;

/// The service; ends when dropped.
#[derive(Debug)]
pub struct Rates {
    script: Arc<Mutex<Script>>,
    task: JoinHandle<()>,
}

impl Rates {
    /// Serves on a connection of user `rates`.
    ///
    /// # Errors
    /// When the subscription is refused.
    pub async fn start(client: Client) -> anyhow::Result<Self> {
        let script: Arc<Mutex<Script>> = Arc::default();
        let mut requests = client
            .queue_subscribe(subject::FX_QUOTE, "fx".to_owned())
            .await?;
        client.flush().await?;
        let answers = Arc::clone(&script);
        let task = tokio::spawn(async move {
            while let Some(request) = requests.next().await {
                let reply = reply(&answers, &request.payload);
                let (Some(to), Ok(body)) = (request.reply, Encoding::MessagePack.encode(&reply))
                else {
                    continue;
                };
                answer(&client, to, body).await;
            }
        });
        Ok(Self { script, task })
    }

    /// Adds to the script.
    pub fn script(&self, more: &Script) {
        let mut script = self.script.lock().unwrap_or_else(PoisonError::into_inner);
        for (pair, answers) in more {
            script.insert(pair.clone(), answers.iter().rev().cloned().collect());
        }
    }
}

impl Drop for Rates {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn reply(script: &Mutex<Script>, request: &[u8]) -> RateReply {
    let unavailable = |message: &str| RateReply::Unavailable {
        message: message.to_owned(),
    };
    let Ok(RateRequest { from, to }) = Encoding::MessagePack.decode(request) else {
        return unavailable("no request");
    };
    let mut script = script.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(answers) = script.get_mut(&format!("{from}/{to}")) else {
        return unavailable("no such pair");
    };
    let next = if answers.len() > 1 {
        answers.pop()
    } else {
        answers.last().cloned()
    };
    match next {
        Some(rate) if rate != "error" => RateReply::Rate {
            rate,
            source: "script".to_owned(),
            quoted_at: orchestrator::clock::wall_clock(),
        },
        Some(_) | None => unavailable("the script says so"),
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "an answer that gets lost is asked for again"
)]
async fn answer(client: &Client, to: async_nats::Subject, body: Vec<u8>) {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, Encoding::MessagePack.content_type());
    client
        .publish_with_headers(to, headers, body.into())
        .await
        .ok();
}
