//! Adapter: the NATS micro service `wallet-agent`, as `nats micro ls|info|stats` show it.
//!
//! Three endpoints under `billing.<region>.wallet`, all in the one queue group `wallet`: two names
//! would make two agents execute one request. The subscription loop never waits: a request gets a
//! slot at once, or `Busy`; queueing it would only move it past its deadline.

mod answer;
mod metrics;
mod request;

pub use metrics::Metrics;

use crate::telemetry;
use crate::wallet::{self, Wallet};
use answer::Answer;
use async_nats::service::endpoint::Endpoint;
use async_nats::service::{Request, Service, ServiceExt as _};
use async_nats::{Client, HeaderMap};
use contracts::codec::Encoding;
use contracts::command::{CommandHeader, WalletCommand, WalletGet, WalletVerb};
use contracts::header;
use contracts::id::Region;
use contracts::reply::{WalletReply, WalletView};
use contracts::subject;
use futures::StreamExt as _;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

/// Name of the micro service.
pub const SERVICE: &str = "wallet-agent";

/// The queue group of every agent everywhere.
pub const QUEUE_GROUP: &str = "wallet";

/// What this participant can be relied on for.
pub const CAPABILITIES: &str = "tombstone,fence,status";

/// Wait that `Busy` asks for: about as long as a few operations take.
const BUSY_RETRY_AFTER_MS: u64 = 50;

/// Longest wait for replies to reach the socket at the end.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// Why the service could not be started.
#[derive(Debug, thiserror::Error)]
#[error("the NATS service cannot be started")]
pub struct StartError(#[source] async_nats::Error);

/// A served region.
#[derive(Debug)]
pub struct WalletService {
    service: Service,
    id: String,
    client: Client,
    stop: CancellationToken,
    loops: TaskTracker,
    commands: TaskTracker,
}

/// What every command needs.
#[derive(Clone)]
struct Server {
    wallet: Wallet,
    region: Region,
    client: Client,
    slots: Arc<Semaphore>,
    metrics: Metrics,
}

impl WalletService {
    /// Serves `wallet` as the wallet of `region`, executing at most `max_in_flight` commands at once.
    ///
    /// # Errors
    /// [`StartError`], when the connection is closed for good.
    pub async fn start(
        client: Client,
        wallet: Wallet,
        region: Region,
        max_in_flight: usize,
        metrics: Metrics,
    ) -> Result<Self, StartError> {
        let service = client
            .service_builder()
            .description(format!("Moves money in the wallet of region {region}"))
            .metadata(HashMap::from([
                ("region".to_owned(), region.to_string()),
                (
                    "build".to_owned(),
                    option_env!("BUILD_ID").unwrap_or("dev").to_owned(),
                ),
                ("capabilities".to_owned(), CAPABILITIES.to_owned()),
            ]))
            .queue_group(QUEUE_GROUP)
            .start(SERVICE, env!("CARGO_PKG_VERSION"))
            .await
            .map_err(StartError)?;
        let group = service.group(subject::wallet_group(&region));
        let server = Server {
            wallet,
            region,
            client: client.clone(),
            slots: Arc::new(Semaphore::new(max_in_flight.min(Semaphore::MAX_PERMITS))),
            metrics,
        };
        let (stop, loops, commands) = (
            CancellationToken::new(),
            TaskTracker::new(),
            TaskTracker::new(),
        );
        for verb in WalletVerb::ALL {
            let endpoint = group
                .endpoint_builder()
                .name(verb.as_str())
                .add(verb.as_str())
                .await
                .map_err(StartError)?;
            let server = server.clone();
            loops.spawn(serve(
                server,
                verb,
                endpoint,
                commands.clone(),
                stop.clone(),
            ));
        }
        let id = service.info().await.id;
        Ok(Self {
            service,
            id,
            client,
            stop,
            loops,
            commands,
        })
    }

    /// Subject on which this very instance answers a ping.
    #[must_use]
    pub fn ping_subject(&self) -> String {
        format!("$SRV.PING.{SERVICE}.{}", self.id)
    }

    /// Takes no new commands, finishes the running ones (for at most `grace`) and sends their
    /// replies. A command that outlasts `grace` has an unknown outcome for its sender, who asks again;
    /// so has one that arrives within the round trip in which the server hears of the unsubscription,
    /// as the client library drops it.
    pub async fn stop(self, grace: Duration) {
        self.stop.cancel();
        self.loops.close();
        self.commands.close();
        let finished = async {
            self.loops.wait().await;
            self.commands.wait().await;
        };
        if tokio::time::timeout(grace, finished).await.is_err() {
            tracing::warn!(
                running = self.commands.len(),
                "stopped while commands were running"
            );
        }
        match tokio::time::timeout(FLUSH_TIMEOUT, self.client.flush()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "replies may have been lost"),
            Err(_elapsed) => tracing::warn!("not connected: replies may have been lost"),
        }
        if let Err(error) = self.service.stop().await {
            tracing::warn!(%error, "the service did not stop cleanly");
        }
    }
}

/// One endpoint's loop. Ends when told to stop and everything that had arrived is taken.
async fn serve(
    server: Server,
    verb: WalletVerb,
    mut endpoint: Endpoint,
    commands: TaskTracker,
    stop: CancellationToken,
) {
    let mut stopping = false;
    loop {
        tokio::select! {
            () = stop.cancelled(), if !stopping => {
                stopping = true;
                if let Err(error) = endpoint.stop().await {
                    tracing::warn!(%error, verb = verb.as_str(), "unsubscribing");
                }
            }
            request = endpoint.next() => {
                let Some(request) = request else { return };
                let server = server.clone();
                match server.slots.clone().try_acquire_owned() {
                    Ok(slot) => {
                        commands.spawn(async move {
                            server.answer(verb, request).await;
                            drop(slot);
                        });
                    }
                    Err(_full) => {
                        commands.spawn(async move { server.refuse_busy(verb, request).await });
                    }
                }
            }
        }
    }
}

impl Server {
    async fn answer(&self, verb: WalletVerb, request: Request) {
        let timer = self.metrics.start(verb);
        let headers = request.message.headers.as_ref();
        let answer = match verb {
            WalletVerb::Get => self.get(headers, &request.message.payload).await,
            WalletVerb::Update | WalletVerb::Revert => {
                self.command(verb, headers, &request.message.payload).await
            }
        };
        self.metrics.finish(timer, verb, answer.name);
        self.send(request, answer).await;
    }

    async fn refuse_busy(&self, verb: WalletVerb, request: Request) {
        let headers = request.message.headers.as_ref();
        let answer = match verb {
            WalletVerb::Get => Answer::view(
                headers,
                &WalletView::Unavailable {
                    message: "too much work at hand; ask again".to_owned(),
                },
            ),
            WalletVerb::Update | WalletVerb::Revert => Answer::reply(
                headers,
                &WalletReply::Busy {
                    retry_after_ms: BUSY_RETRY_AFTER_MS,
                },
            ),
        };
        self.metrics.count(verb, answer.name);
        self.send(request, answer).await;
    }

    async fn get(&self, headers: Option<&HeaderMap>, body: &[u8]) -> Answer {
        let view = match decode::<WalletGet>(headers, body) {
            Ok(get) => self.wallet.get(&get).await,
            Err(invalid) => WalletView::Invalid {
                field: invalid.field,
                message: invalid.message,
            },
        };
        Answer::view(headers, &view)
    }

    async fn command(&self, verb: WalletVerb, headers: Option<&HeaderMap>, body: &[u8]) -> Answer {
        let (header, command) = match read_command(verb, headers, body, &self.wallet) {
            Ok(read) => read,
            Err(invalid) => return Answer::reply(headers, &invalid.into()),
        };
        let span = telemetry::command_span(verb.as_str(), &self.region, &header);
        telemetry::continue_trace(&span, headers);
        let reply = self
            .wallet
            .execute(&header, &command)
            .instrument(span.clone())
            .await;
        let mut answer = Answer::reply(headers, &reply);
        span.record("answer", answer.name);
        telemetry::inject_span(&span, &mut answer.headers);
        span.in_scope(|| tracing::debug!(answer = answer.name, "answered"));
        answer
    }

    /// Sends the answer. A refusal carries its body *and* the error headers of the service
    /// convention, which the library's own error path would send without a body.
    #[expect(
        clippy::disallowed_methods,
        reason = "a reply that is lost is asked for again under the same id"
    )]
    async fn send(&self, mut request: Request, answer: Answer) {
        let Some(reply_to) = request.message.reply.clone() else {
            tracing::debug!(answer = answer.name, "nobody asked for the answer");
            return;
        };
        let sent = match answer.refusal {
            None => {
                request
                    .respond_with_headers(Ok(answer.body), answer.headers)
                    .await
            }
            Some(refusal) => {
                let sent = self
                    .client
                    .publish_with_headers(reply_to, answer.headers, answer.body)
                    .await;
                // Counts the error for `nats micro stats`: an empty subject is refused by the client
                // itself, so that nothing is sent a second time.
                request.message.reply = Some(async_nats::Subject::from(""));
                if request.respond(Err(refusal)).await.is_ok() {
                    tracing::warn!("an error was counted by sending it");
                }
                sent
            }
        };
        if let Err(error) = sent {
            tracing::warn!(%error, answer = answer.name, "the answer was not sent");
        }
    }
}

fn read_command(
    verb: WalletVerb,
    headers: Option<&HeaderMap>,
    body: &[u8],
    wallet: &Wallet,
) -> Result<(CommandHeader, WalletCommand), request::Invalid> {
    let now = wallet.clock().now();
    let header = request::command_header(headers, wallet::default_deadline(now))?;
    let command = match verb {
        WalletVerb::Update => WalletCommand::Update(decode(headers, body)?),
        WalletVerb::Revert => WalletCommand::Revert(decode(headers, body)?),
        WalletVerb::Get => {
            return Err(request::Invalid {
                field: "subject".to_owned(),
                message: "get is a question, not a command".to_owned(),
            });
        }
    };
    Ok((header, command))
}

fn decode<T: serde::de::DeserializeOwned>(
    headers: Option<&HeaderMap>,
    body: &[u8],
) -> Result<T, request::Invalid> {
    let content_type = request::single(headers, header::CONTENT_TYPE)?;
    let invalid = |field: &str, error: contracts::codec::CodecError| request::Invalid {
        field: field.to_owned(),
        message: error.to_string(),
    };
    Encoding::from_content_type(content_type)
        .map_err(|error| invalid(header::CONTENT_TYPE, error))?
        .decode(body)
        .map_err(|error| invalid("body", error))
}
