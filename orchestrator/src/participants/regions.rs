//! Commands to regions over NATS, with replies on a subject of our own.
//!
//! A request of the client library forgets its reply subject when the caller gives up. Here a late
//! reply still arrives, and its subject tells which command it answers: it is handed on as a fact.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_nats::connection::State;
use async_nats::{Client, HeaderMap, Message, StatusCode};
use contracts::codec::Encoding;
use contracts::command::{WalletCommand, WalletVerb};
use contracts::id::{Region, SagaId};
use contracts::reply::WalletReply;
use contracts::{header, subject};
use futures::StreamExt as _;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::{mpsc, oneshot};

use super::gate::Gate;
use super::wallet_answer::{Asked, answer, asked, held_back, not_executed, status};
use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::saga::action::Command;
use crate::saga::input::{Answer, Reply};
use crate::saga::policy::after;
use crate::saga::record::Participant;
use crate::telemetry;

/// An answer that came after its command had been given up.
pub type LateReply = (SagaId, Reply);

/// Sends commands to region agents.
#[derive(Debug, Clone)]
pub struct RegionBus(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    client: Client,
    clock: Clock,
    reply_prefix: String,
    next: AtomicU64,
    sent: Mutex<HashMap<u64, Sent>>,
    gates: HashMap<Region, Gate>,
    metrics: Metrics,
}

/// A command that is out. The number in its reply subject leads back to it, and nothing else does: what an
/// answer says of itself is the participant's word, and another region's agent may have written it.
#[derive(Debug)]
struct Sent {
    saga_id: SagaId,
    command: Command,
    /// Who waits, until it gives up.
    waiter: oneshot::Sender<Message>,
    /// Until when a late answer is still a fact.
    forget_at: Timestamp,
    /// The way it went.
    gate: Gate,
}

/// How long after a command's deadline a late answer is still matched to it.
const LATE_FOR: SignedDuration = SignedDuration::from_mins(10);

/// Commands between two looks for those that may be forgotten.
const SWEEP_EVERY: u64 = 1024;

impl RegionBus {
    /// Subscribes to this replica's reply subject, `<inbox prefix>.<replica>.<number>`. Late replies go
    /// to `late`. To each of the regions at most `slots` commands are out at a time.
    ///
    /// # Errors
    /// When the subscription is refused.
    pub async fn open(
        client: Client,
        clock: Clock,
        inbox_prefix: &str,
        regions: &BTreeSet<Region>,
        slots: usize,
        metrics: Metrics,
        late: mpsc::UnboundedSender<LateReply>,
    ) -> Result<Self, async_nats::SubscribeError> {
        let reply_prefix = format!("{inbox_prefix}.{}", contracts::key::encode(clock.replica()));
        let mut replies = client.subscribe(format!("{reply_prefix}.*")).await?;
        let bus = Self(Arc::new(Inner {
            client,
            clock,
            reply_prefix,
            next: AtomicU64::new(1),
            sent: Mutex::new(HashMap::new()),
            gates: regions
                .iter()
                .map(|region| (region.clone(), Gate::new(slots)))
                .collect(),
            metrics,
        }));
        let inner = Arc::downgrade(&bus.0);
        tokio::spawn(async move {
            while let Some(message) = replies.next().await {
                let Some(inner) = inner.upgrade() else { return };
                inner.on_reply(message, &late);
            }
        });
        Ok(bus)
    }

    /// Sends a command and waits for its answer until its deadline; `None` when none came.
    pub(super) async fn perform(
        &self,
        region: &Region,
        saga_id: &SagaId,
        command: &Command,
    ) -> Option<Answer> {
        let inner = &self.0;
        let Some(gate) = inner.gates.get(region) else {
            return Some(Answer::Unacceptable {
                code: "unknown_region".to_owned(),
                message: format!("region {region} is not configured"),
            });
        };
        // The client would keep the request and send it after a reconnect, long after we gave up.
        if inner.client.connection_state() != State::Connected {
            return Some(held_back("disconnected", SignedDuration::ZERO));
        }
        let (name, body) = match asked(command) {
            Ok(Asked::To(WalletCommand::Update(update))) => (
                subject::wallet(region, WalletVerb::Update),
                Encoding::MessagePack.encode(&update),
            ),
            Ok(Asked::To(WalletCommand::Revert(revert))) => (
                subject::wallet(region, WalletVerb::Revert),
                Encoding::MessagePack.encode(&revert),
            ),
            Ok(Asked::About(get)) => (
                subject::wallet(region, WalletVerb::Get),
                Encoding::MessagePack.encode(&get),
            ),
            Err(refusal) => return Some(refusal),
        };
        let body = match body {
            Ok(body) => body,
            Err(error) => {
                return Some(Answer::Unacceptable {
                    code: "invalid".to_owned(),
                    message: error.to_string(),
                });
            }
        };
        let _room = match gate.enter(inner.clock.now()).await {
            Ok(room) => room,
            Err(refusal) => {
                inner.metrics.held_from_region(region);
                return Some(refusal);
            }
        };
        let number = inner.next.fetch_add(1, Ordering::Relaxed);
        let (sender, reply) = oneshot::channel();
        inner.note(number, saga_id, command, sender, gate);
        let sent = inner
            .client
            .publish_with_reply_and_headers(
                name,
                format!("{}.{number}", inner.reply_prefix),
                headers(saga_id, command),
                body.into(),
            )
            .await;
        if let Err(error) = sent {
            inner.lock().remove(&number);
            return Some(Answer::Unknown {
                message: error.to_string(),
            });
        }
        let wait = command.deadline.duration_since(inner.clock.now());
        let wait = Duration::try_from(wait).unwrap_or(Duration::ZERO);
        match tokio::time::timeout(wait, reply).await {
            Ok(Ok(message)) => Some(decode(&message, command)),
            Ok(Err(_)) | Err(_) => {
                if gate.silent(inner.clock.now()) {
                    tracing::warn!(saga.region = %region, "does not answer: commands are held back");
                }
                inner.metrics.region_silent(region, gate.is_closed());
                None
            }
        }
    }

    /// The connection it sends on.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.0.client
    }
}

impl Inner {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Sent>> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(
        &self,
        number: u64,
        saga_id: &SagaId,
        command: &Command,
        waiter: oneshot::Sender<Message>,
        gate: &Gate,
    ) {
        let mut sent = self.lock();
        if number.is_multiple_of(SWEEP_EVERY) {
            let now = self.clock.now();
            sent.retain(|_, sent| sent.forget_at > now);
        }
        let entry = Sent {
            saga_id: saga_id.clone(),
            command: command.clone(),
            waiter,
            forget_at: after(command.deadline, LATE_FOR),
            gate: gate.clone(),
        };
        sent.insert(number, entry);
    }

    fn heard(&self, sent: &Sent) {
        let Participant::Region(region) = &sent.command.participant else {
            return;
        };
        if sent.gate.is_closed() {
            tracing::info!(saga.region = %region, "answers again");
        }
        sent.gate.heard();
        self.metrics.region_silent(region, false);
    }

    fn on_reply(&self, message: Message, late: &mpsc::UnboundedSender<LateReply>) {
        let number = message.subject.rsplit('.').next();
        let number = number.and_then(|number| number.parse::<u64>().ok());
        // A second answer to one command finds nothing any more.
        let Some(sent) = number.and_then(|number| self.lock().remove(&number)) else {
            return tracing::debug!(subject = %message.subject, "an answer to no command of ours");
        };
        if message.status != Some(StatusCode::NO_RESPONDERS) {
            self.heard(&sent);
        }
        let Err(message) = sent.waiter.send(message) else {
            return;
        };
        let reply = Reply {
            operation_id: sent.command.operation_id.clone(),
            attempt: sent.command.attempt,
            answer: decode(&message, &sent.command),
        };
        if late.send((sent.saga_id, reply)).is_err() {
            tracing::debug!("a late answer came while stopping");
        }
    }
}

fn headers(saga_id: &SagaId, command: &Command) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(header::SAGA_ID, saga_id.as_str());
    headers.insert(header::OPERATION_ID, command.operation_id.as_str());
    headers.insert(header::ATTEMPT, command.attempt.to_string().as_str());
    headers.insert(header::FENCE, command.fence.to_string().as_str());
    headers.insert(header::DEADLINE, command.deadline.to_string().as_str());
    headers.insert(header::CONTENT_TYPE, Encoding::MessagePack.content_type());
    telemetry::inject(&mut headers);
    headers
}

fn decode(message: &Message, command: &Command) -> Answer {
    if message.status == Some(StatusCode::NO_RESPONDERS) {
        return not_executed("no_responders", SignedDuration::ZERO);
    }
    if message.payload.len() > MAX_REPLY {
        let length = message.payload.len();
        return Answer::Unknown {
            message: format!("the reply has {length} bytes, more than the {MAX_REPLY} read"),
        };
    }
    let content_type = message
        .headers
        .as_ref()
        .and_then(|headers| headers.get(header::CONTENT_TYPE))
        .map(async_nats::HeaderValue::as_str);
    let read = Encoding::from_content_type(content_type).and_then(|encoding| {
        Ok(match asked(command) {
            Ok(Asked::About(get)) => status(encoding.decode(&message.payload)?, &get),
            Ok(Asked::To(_)) | Err(_) => {
                answer(encoding.decode::<WalletReply>(&message.payload)?, command)
            }
        })
    });
    read.unwrap_or_else(|error| Answer::Unknown {
        message: format!("the reply cannot be read: {error}"),
    })
}

/// Bytes of the largest reply read: it becomes part of a record, which must fit into one message.
const MAX_REPLY: usize = 32 * 1024;
