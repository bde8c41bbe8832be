//! The intake: callbacks, starts, signals and operators' requests become inputs of sagas.
//!
//! A message is acknowledged when what it said is stored and its saga is ended, parked or somebody
//! else's. What cannot be understood becomes a case, so nothing is dropped and nothing is retried for
//! ever.

use std::collections::BTreeMap;

use async_nats::HeaderMap;
use contracts::codec::Encoding;
use contracts::id::{Provider, SagaId};
use contracts::intake::{OperatorRequest, Signal, StartRequest};
use contracts::{header, subject};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tracing::Instrument as _;

use crate::callback::{Providers, RawCallback, Unreadable};
use crate::consume::{Handle, Handled, Incoming};
use crate::driver::{Delivery, Engine, Redelivery, Settled};
use crate::saga::CASE_WORKFLOW;
use crate::saga::input::{self, Arrival, Input};
use crate::saga::record::CaseReason;
use crate::telemetry;
use crate::workflows::deposit;

/// Bytes of a message kept with a case; the intake stream keeps the whole message.
const MAX_EVIDENCE: usize = 16 * 1024;

/// Bytes of the largest start, signal or operator's request: a record holds a handful of them and must
/// fit into one message. Callbacks may be larger, since only their facts go further.
const MAX_REQUEST: usize = 16 * 1024;

/// Turns intake messages into inputs.
#[derive(Debug, Clone)]
pub struct Intake {
    engine: Engine,
    providers: std::sync::Arc<Providers>,
}

/// Where a message stands in its stream.
struct Position {
    sequence: u64,
    delivered: u64,
    digest: String,
}

impl Intake {
    /// An intake for an engine.
    #[must_use]
    pub fn new(engine: Engine, providers: Providers) -> Self {
        Self {
            engine,
            providers: std::sync::Arc::new(providers),
        }
    }

    async fn settle(&self, message: &Incoming, at: &Position) -> Settled {
        match subject::parse_intake(&message.subject) {
            subject::Intake::Callback { provider } => self.callback(message, provider, at).await,
            subject::Intake::Start => self.start(message, at).await,
            subject::Intake::Signal => self.signal(message, at).await,
            subject::Intake::Operator => self.operator(message, at).await,
            subject::Intake::Other => {
                let reason = format!("nothing is taken in on subject {}", message.subject);
                self.unreadable(message, at, 0, &reason).await
            }
        }
    }

    async fn callback(&self, message: &Incoming, provider: &str, at: &Position) -> Settled {
        let raw = match raw_callback(message, provider) {
            Ok(raw) => raw,
            Err(reason) => return self.unreadable(message, at, 0, &reason).await,
        };
        let items = self.providers.parse(&raw);
        // Items of a batch are judged and driven on their own; the message waits for all of them.
        let each = items
            .into_iter()
            .enumerate()
            .map(|(item, fact)| async move {
                match fact {
                    Ok(fact) => self.fact(&fact, at, item).await,
                    Err(unreadable) => self.no_fact(message, at, item, &unreadable).await,
                }
            });
        all(futures::future::join_all(each).await)
    }

    async fn fact(
        &self,
        fact: &crate::callback::CallbackFact,
        at: &Position,
        item: usize,
    ) -> Settled {
        let Ok(input) = serde_json::to_value(fact) else {
            return Settled::Again("a fact that cannot be stored".to_owned());
        };
        let saga_id = deposit::saga_id(&fact.payment);
        let arrival = Arrival {
            message_id: message_id(at, item),
            input,
        };
        let delivery = Delivery::Start {
            workflow: &deposit::DEPOSIT,
            arrival,
        };
        self.engine
            .deliver(&saga_id, delivery, redelivery(at))
            .await
    }

    async fn no_fact(
        &self,
        message: &Incoming,
        at: &Position,
        item: usize,
        unreadable: &Unreadable,
    ) -> Settled {
        if !unreadable.code.is_case() {
            tracing::info!(reason = %unreadable, sequence = at.sequence, "callback recorded and ignored");
            self.engine.metrics().intake("ignored");
            return Settled::Done;
        }
        let mut evidence = evidence(message, at);
        evidence["unreadable"] = json!(unreadable);
        let id = case_id(message, at, item);
        self.engine
            .open_case(id, CaseReason::Unreadable, unreadable.to_string(), evidence)
            .await
    }

    async fn start(&self, message: &Incoming, at: &Position) -> Settled {
        let request: StartRequest = match decode(message) {
            Ok(request) => request,
            Err(reason) => return self.unreadable(message, at, 0, &reason).await,
        };
        let Some(workflow) = self.engine.workflows().latest(&request.workflow) else {
            let known = self
                .engine
                .workflows()
                .names()
                .collect::<Vec<_>>()
                .join(", ");
            let reason = format!("workflow: {:?} is none of {known}", request.workflow);
            return self.unreadable(message, at, 0, &reason).await;
        };
        let saga_id = match (workflow.identify)(&request.id, &request.input) {
            Ok(saga_id) => saga_id,
            Err(reason) => return self.unreadable(message, at, 0, &reason).await,
        };
        let arrival = Arrival {
            message_id: message_id(at, 0),
            input: request.input,
        };
        self.engine
            .deliver(
                &saga_id,
                Delivery::Start { workflow, arrival },
                redelivery(at),
            )
            .await
    }

    async fn signal(&self, message: &Incoming, at: &Position) -> Settled {
        let signal: Signal = match decode(message) {
            Ok(signal) => signal,
            Err(reason) => return self.unreadable(message, at, 0, &reason).await,
        };
        if let Some(workflow) = self.engine.workflows().of(&signal.saga_id)
            && let Err(reason) = (workflow.check_signal)(signal.name.as_str(), &signal.body)
        {
            return self.unreadable(message, at, 0, &reason).await;
        }
        let input = Input::Signal(input::Signal {
            message_id: message_id(at, 0),
            name: signal.name.to_string(),
            id: signal.id,
            body: signal.body,
        });
        self.to_existing(message, at, &signal.saga_id, input).await
    }

    async fn operator(&self, message: &Incoming, at: &Position) -> Settled {
        let request: OperatorRequest = match decode(message) {
            Ok(request) => request,
            Err(reason) => return self.unreadable(message, at, 0, &reason).await,
        };
        if let Err(reason) = request.check() {
            return self.unreadable(message, at, 0, &reason).await;
        }
        let saga_id = request.saga_id.clone();
        let input = Input::Operator(input::Operator {
            message_id: message_id(at, 0),
            request,
        });
        self.to_existing(message, at, &saga_id, input).await
    }

    async fn to_existing(
        &self,
        message: &Incoming,
        at: &Position,
        saga_id: &SagaId,
        input: Input,
    ) -> Settled {
        let settled = self
            .engine
            .deliver(saga_id, Delivery::Input(input), redelivery(at))
            .await;
        if settled != Settled::Missing {
            return settled;
        }
        let id = case_id(message, at, 0);
        let reason = format!("saga {saga_id} does not exist: check the id");
        self.engine
            .open_case(id, CaseReason::OrphanSignal, reason, evidence(message, at))
            .await
    }

    async fn unreadable(
        &self,
        message: &Incoming,
        at: &Position,
        item: usize,
        reason: &str,
    ) -> Settled {
        let id = case_id(message, at, item);
        self.engine
            .open_case(
                id,
                CaseReason::Unreadable,
                reason.to_owned(),
                evidence(message, at),
            )
            .await
    }
}

impl Handle for Intake {
    async fn handle(&self, message: &Incoming) -> Handled {
        let at = Position {
            sequence: message.sequence,
            delivered: message.delivered,
            digest: subject::short_digest(&message.payload),
        };
        let span = telemetry::intake_span(message);
        match self.settle(message, &at).instrument(span).await {
            Settled::Done => {
                self.engine.metrics().intake("settled");
                Handled::Done
            }
            Settled::Again(reason) => Handled::Again(reason),
            Settled::Missing => Handled::Again("the saga went missing".to_owned()),
            Settled::Left => Handled::Left,
        }
    }
}

fn message_id(at: &Position, item: usize) -> String {
    message_id_of(at.sequence, item, &at.digest)
}

/// What a record notes as seen: the message itself, the same on every redelivery and different for each
/// item of a batch. With the digest of the body ([`subject::short_digest`]) it stays another message's when
/// the intake stream is made anew and counts from 1 again.
#[must_use]
pub fn message_id_of(sequence: u64, item: usize, digest: &str) -> String {
    let digest = digest.get(..12).unwrap_or(digest);
    if item == 0 {
        format!("intake:{sequence}@{digest}")
    } else {
        format!("intake:{sequence}:{item}@{digest}")
    }
}

fn case_id(message: &Incoming, at: &Position, item: usize) -> SagaId {
    case_id_of(at.sequence, item, &message.payload)
}

/// The case made of an intake message that no saga takes in: one a message and item. The digest keeps
/// ids apart if the intake stream is ever made anew.
#[must_use]
pub fn case_id_of(sequence: u64, item: usize, payload: &[u8]) -> SagaId {
    let digest = subject::short_digest(payload);
    let number = format!("{sequence}-{item}");
    SagaId::from_parts(CASE_WORKFLOW, &["intake", &number, &digest[..12]])
}

fn evidence(message: &Incoming, at: &Position) -> Value {
    let shown = &message.payload[..message.payload.len().min(MAX_EVIDENCE)];
    let headers: BTreeMap<String, String> = message
        .headers
        .iter()
        .flat_map(HeaderMap::iter)
        .filter_map(|(name, values)| Some((name.to_string(), values.first()?.as_str().to_owned())))
        .collect();
    let body = match std::str::from_utf8(shown) {
        Ok(text) => json!({ "text": text }),
        Err(_) => json!({ "hex": hex::encode(shown) }),
    };
    json!({
        "subject": message.subject,
        "sequence": at.sequence,
        "headers": headers,
        "body": body,
        "body_bytes": message.payload.len(),
    })
}

fn redelivery(at: &Position) -> Redelivery {
    if at.delivered > 1 {
        Redelivery::Again
    } else {
        Redelivery::First
    }
}

/// What becomes of a message by what became of its items: it goes back if one has to.
fn all(mut each: Vec<Settled>) -> Settled {
    let unsettled = each
        .iter()
        .position(|settled| matches!(settled, Settled::Again(_) | Settled::Missing))
        .or_else(|| each.iter().position(|settled| *settled == Settled::Left));
    unsettled.map_or(Settled::Done, |index| each.swap_remove(index))
}

fn decode<T: DeserializeOwned>(message: &Incoming) -> Result<T, String> {
    if message.payload.len() > MAX_REQUEST {
        let length = message.payload.len();
        return Err(format!(
            "the body has {length} bytes, more than the {MAX_REQUEST} a saga takes in"
        ));
    }
    let content_type = message
        .headers
        .as_ref()
        .and_then(|headers| headers.get(header::CONTENT_TYPE))
        .map(async_nats::HeaderValue::as_str);
    Encoding::from_content_type(content_type)
        .and_then(|encoding| encoding.decode(&message.payload))
        .map_err(|error| error.to_string())
}

/// The callback as the gateway took it: body, HTTP headers and URL.
fn raw_callback(message: &Incoming, provider: &str) -> Result<RawCallback, String> {
    let provider =
        Provider::new(provider).map_err(|error| format!("provider in the subject: {error}"))?;
    let mut headers = BTreeMap::new();
    let mut url = None;
    let mut received_at = message.published;
    for (name, values) in message.headers.iter().flat_map(HeaderMap::iter) {
        let Some(value) = values.first().map(async_nats::HeaderValue::as_str) else {
            continue;
        };
        let name: &str = name.as_ref();
        if name.eq_ignore_ascii_case(header::HTTP_URL) {
            url = Some(value.to_owned());
        } else if name.eq_ignore_ascii_case(header::RECEIVED_AT) {
            received_at = value
                .parse()
                .map_err(|error| format!("{}: {error}", header::RECEIVED_AT))?;
        } else if name.eq_ignore_ascii_case(header::CONTENT_TYPE) {
            headers.insert("content-type".to_owned(), value.to_owned());
        } else if let Some(http) = name.get(..header::HTTP_PREFIX.len())
            && http.eq_ignore_ascii_case(header::HTTP_PREFIX)
        {
            headers.insert(
                name[header::HTTP_PREFIX.len()..].to_ascii_lowercase(),
                value.to_owned(),
            );
        }
    }
    Ok(RawCallback {
        provider,
        url,
        headers,
        body: message.payload.clone(),
        received_at,
    })
}
