//! A region's wallet: the real one, behind faults.
//!
//! Serves `billing.<region>.wallet.*` as the region's agent does, and keeps note of every command that
//! reached it.

use anyhow::Context as _;
use async_nats::{Client, HeaderMap, Message, Subscriber};
use contracts::codec::Encoding;
use contracts::command::{CommandHeader, WalletCommand, WalletGet};
use contracts::header;
use contracts::id::{OperationId, Region};
use contracts::reply::{RejectCode, WalletReply};
use contracts::subject;
use futures::StreamExt as _;
use region_agent::wallet::{Wallet, default_deadline};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The queue group of every agent.
const QUEUE_GROUP: &str = "wallet";

/// How a command is treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Executed, never answered.
    TimeoutEffectApplied,
    /// Neither executed nor answered.
    TimeoutNoEffect,
    /// Refused for good, not executed.
    DefiniteReject,
    /// Executed at once, answered after so long.
    ReplyDelay(Duration),
    /// Executed only after so long.
    DelayInNetwork(Duration),
    /// Taken and kept until faults are cleared.
    Hang,
}

/// A fault for the sagas of one case.
#[derive(Debug, Clone)]
pub struct Fault {
    /// `update` or `revert`.
    pub verb: String,
    /// How.
    pub mode: Mode,
    /// For how many commands.
    pub times: u64,
    /// The beginnings of the ids of the sagas it is for.
    pub sagas: Vec<String>,
    /// How the ids of the operations end that it is for; of all when absent.
    pub operation: Option<String>,
}

/// A command as it arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// `update` or `revert`.
    pub verb: String,
    /// Its operation.
    pub operation_id: OperationId,
    /// The attempt it said it was.
    pub attempt: u32,
    /// What it was answered, in a word.
    pub answer: Option<String>,
}

/// A region's wallet.
#[derive(Debug)]
pub struct RegionWallet {
    region: Region,
    shared: Arc<Shared>,
    tasks: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    wallet: Wallet,
    faults: Mutex<Vec<Fault>>,
    seen: Mutex<Vec<Seen>>,
    cleared: watch::Sender<u64>,
}

impl RegionWallet {
    /// A wallet that nobody can reach yet.
    #[must_use]
    pub fn new(region: Region, wallet: Wallet) -> Self {
        Self {
            region,
            shared: Arc::new(Shared {
                wallet,
                faults: Mutex::default(),
                seen: Mutex::default(),
                cleared: watch::Sender::new(0),
            }),
            tasks: Vec::new(),
        }
    }

    /// One more instance, in the queue group of all agents.
    ///
    /// # Errors
    /// When the subscription cannot be made.
    pub async fn serve(&mut self, client: Client) -> anyhow::Result<()> {
        let requests = client
            .queue_subscribe(self.subjects(), QUEUE_GROUP.to_owned())
            .await
            .context("wallet subscription")?;
        self.take(client, requests).await
    }

    /// One more instance, outside the queue group: it gets what others get as well.
    ///
    /// # Errors
    /// When the subscription cannot be made.
    pub async fn serve_beside(&mut self, client: Client) -> anyhow::Result<()> {
        let requests = client
            .subscribe(self.subjects())
            .await
            .context("wallet subscription")?;
        self.take(client, requests).await
    }

    /// Takes all instances away: whoever asks is told that nobody is there.
    pub fn leave(&mut self) {
        for task in self.tasks.drain(..) {
            task.abort();
        }
    }

    /// Whether there is an instance.
    #[must_use]
    pub fn is_served(&self) -> bool {
        !self.tasks.is_empty()
    }

    /// Adds a fault.
    pub fn fault(&self, fault: Fault) {
        lock(&self.shared.faults).push(fault);
    }

    /// Ends the faults for sagas that begin so.
    pub fn clear(&self, sagas: &[String]) {
        let of_these = |saga: &String| sagas.iter().any(|start| saga.starts_with(start.as_str()));
        lock(&self.shared.faults).retain(|fault| !fault.sagas.iter().any(of_these));
        self.shared.cleared.send_modify(|count| *count += 1);
    }

    /// Every command of sagas that begin so.
    #[must_use]
    pub fn seen(&self, sagas: &[String]) -> Vec<Seen> {
        lock(&self.shared.seen)
            .iter()
            .filter(|seen| {
                let id = seen.operation_id.as_str();
                let id = id.strip_prefix("revert-").unwrap_or(id);
                sagas.iter().any(|saga| id.starts_with(saga.as_str()))
            })
            .cloned()
            .collect()
    }

    /// Which region.
    #[must_use]
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// The wallet behind it.
    #[must_use]
    pub fn wallet(&self) -> &Wallet {
        &self.shared.wallet
    }

    fn subjects(&self) -> String {
        format!("{}.*", subject::wallet_group(&self.region))
    }

    async fn take(&mut self, client: Client, mut requests: Subscriber) -> anyhow::Result<()> {
        client.flush().await.context("wallet subscription")?;
        let shared = Arc::clone(&self.shared);
        self.tasks.push(tokio::spawn(async move {
            while let Some(request) = requests.next().await {
                let (shared, client) = (Arc::clone(&shared), client.clone());
                tokio::spawn(async move { shared.on_request(&client, request).await });
            }
        }));
        Ok(())
    }
}

impl Drop for RegionWallet {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Shared {
    async fn on_request(&self, client: &Client, request: Message) {
        let verb = request.subject.rsplit('.').next().unwrap_or_default();
        if verb == "get" {
            let view = match decode::<WalletGet>(&request) {
                Ok(get) => self.wallet.get(&get).await,
                Err(_) => return,
            };
            answer(client, &request, &view).await;
            return;
        }
        let Ok((header, command)) = self.read(verb, &request) else {
            return;
        };
        let number = {
            let mut seen = lock(&self.seen);
            seen.push(Seen {
                verb: verb.to_owned(),
                operation_id: header.operation_id.clone(),
                attempt: header.attempt,
                answer: None,
            });
            seen.len() - 1
        };
        let reply = match self.fault_for(verb, &header) {
            None => self.wallet.execute(&header, &command).await,
            Some(Mode::TimeoutNoEffect) => return,
            Some(Mode::TimeoutEffectApplied) => {
                self.wallet.execute(&header, &command).await;
                return;
            }
            Some(Mode::DefiniteReject) => WalletReply::Rejected {
                operation_id: header.operation_id.clone(),
                code: RejectCode::WalletClosed,
                message: "refused by the case".to_owned(),
            },
            Some(Mode::ReplyDelay(delay)) => {
                let reply = self.wallet.execute(&header, &command).await;
                tokio::time::sleep(delay).await;
                reply
            }
            Some(Mode::DelayInNetwork(delay)) => {
                tokio::time::sleep(delay).await;
                self.wallet.execute(&header, &command).await
            }
            Some(Mode::Hang) => {
                if self.cleared.subscribe().changed().await.is_err() {
                    return;
                }
                self.wallet.execute(&header, &command).await
            }
        };
        let word = serde_json::to_value(&reply).ok();
        let word = word.and_then(|reply| Some(reply["answer"].as_str()?.to_owned()));
        lock(&self.seen)[number].answer = word;
        answer(client, &request, &reply).await;
    }

    fn read(
        &self,
        verb: &str,
        request: &Message,
    ) -> anyhow::Result<(CommandHeader, WalletCommand)> {
        let now = self.wallet.clock().now();
        let header = CommandHeader {
            saga_id: text(request, header::SAGA_ID),
            operation_id: text(request, header::OPERATION_ID).context("no operation id")?,
            attempt: text(request, header::ATTEMPT).unwrap_or(1),
            fence: text(request, header::FENCE).unwrap_or(0),
            deadline: text(request, header::DEADLINE).unwrap_or_else(|| default_deadline(now)),
        };
        let command = match verb {
            "update" => WalletCommand::Update(decode(request)?),
            "revert" => WalletCommand::Revert(decode(request)?),
            other => anyhow::bail!("{other} is no command"),
        };
        Ok((header, command))
    }

    fn fault_for(&self, verb: &str, header: &CommandHeader) -> Option<Mode> {
        let saga = header.saga_id.as_ref()?.as_str();
        let operation = header.operation_id.as_str();
        let mut faults = lock(&self.faults);
        let fault = faults.iter_mut().find(|fault| {
            let is_for = |start: &String| saga.starts_with(start.as_str());
            let ends = |end: &String| operation.ends_with(end.as_str());
            fault.times > 0
                && fault.verb == verb
                && fault.operation.as_ref().is_none_or(ends)
                && fault.sagas.iter().any(is_for)
        })?;
        fault.times -= 1;
        Some(fault.mode)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn text<T: FromStr>(request: &Message, name: &str) -> Option<T> {
    request
        .headers
        .as_ref()?
        .get(name)
        .and_then(|value| value.as_str().parse().ok())
}

fn encoding(request: &Message) -> Encoding {
    let content_type: Option<String> = text(request, header::CONTENT_TYPE);
    Encoding::from_content_type(content_type.as_deref()).unwrap_or(Encoding::Json)
}

fn decode<T: DeserializeOwned>(request: &Message) -> anyhow::Result<T> {
    Ok(encoding(request).decode(&request.payload)?)
}

#[expect(
    clippy::disallowed_methods,
    reason = "an answer that gets lost is asked for again"
)]
async fn answer<T: Serialize>(client: &Client, request: &Message, reply: &T) {
    let encoding = encoding(request);
    let (Some(to), Ok(body)) = (request.reply.clone(), encoding.encode(reply)) else {
        return;
    };
    let mut headers = HeaderMap::new();
    for name in [header::SAGA_ID, header::OPERATION_ID, header::ATTEMPT] {
        if let Some(value) = text::<String>(request, name) {
            headers.insert(name, value.as_str());
        }
    }
    headers.insert(header::CONTENT_TYPE, encoding.content_type());
    client
        .publish_with_headers(to, headers, body.into())
        .await
        .ok();
}
