//! The sides as streams in the order of time: records and events from JetStream, payments from SQL,
//! operations from the region agents. Each holds at most a page.

use std::collections::VecDeque;
use std::time::Duration;

use async_nats::jetstream::consumer::DeliverPolicy;
use async_nats::jetstream::consumer::pull::{Ordered, OrderedConfig};
use async_nats::jetstream::stream::Stream as JetStream;
use contracts::command::OperationRange;
use contracts::id::Region;
use contracts::reply::WalletView;
use contracts::subject;
use futures::StreamExt as _;
use jiff::Timestamp;
use serde::Deserialize;

use super::ReconcileError;
use super::books::{Books, nats};
use super::sides::{EventSide, OperationSide, PaymentSide, RecordSide};
use crate::payments::{PaymentPlace, PaymentStatus};
use crate::saga::record::Status;
use crate::store;
use crate::workflows::deposit;

/// Longest silence of a stream that has more to come.
const SILENCE: Duration = Duration::from_secs(20);

/// One fact of one side.
#[derive(Debug)]
pub(super) enum Item {
    /// A record whose saga is within the range.
    Record(Box<RecordSide>),
    /// A record whose saga is not.
    Outside,
    Unreadable(String),
    Payment(PaymentSide),
    Operation(Box<OperationSide>),
    Event(EventSide),
}

/// A fact with the key of its saga and the time by which the sides are merged.
#[derive(Debug)]
pub(super) struct Fact {
    pub(super) at: Timestamp,
    pub(super) key: String,
    pub(super) item: Item,
}

/// The times that are read. Wider than the range by a margin: a saga's facts come one after the other, and
/// what lies beyond the margin is looked up one by one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    pub(super) since: Timestamp,
    pub(super) until: Timestamp,
}

/// One side.
pub(super) struct Source {
    waiting: VecDeque<Fact>,
    more: More,
}

/// Where further facts come from.
enum More {
    Records {
        feed: Feed,
        scope: Scope,
    },
    Events {
        feed: Feed,
        until: Timestamp,
    },
    Payments {
        window: Window,
        after: Option<PaymentPlace>,
    },
    Wallet {
        region: Region,
        window: Window,
        after: Option<String>,
    },
    Nothing,
}

/// Which sagas are within the range: those that lived in it, however short.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scope {
    pub(super) since: Timestamp,
    pub(super) until: Timestamp,
}

impl Scope {
    /// Whether a saga that started and ended then is within the range.
    pub(super) fn has(&self, started_at: Timestamp, ended_at: Option<Timestamp>) -> bool {
        started_at < self.until && ended_at.is_none_or(|ended_at| ended_at >= self.since)
    }
}

/// What decides whether a record is read as a whole.
#[derive(Deserialize)]
struct Brief {
    workflow: String,
    status: Status,
    started_at: Timestamp,
    #[serde(default)]
    ended_at: Option<Timestamp>,
}

impl Source {
    pub(super) async fn records(books: &Books, scope: Scope) -> Result<Self, ReconcileError> {
        let filter = books.partition.record_subject(">");
        let feed = Feed::open(&books.state, filter, DeliverPolicy::LastPerSubject).await?;
        Ok(Self::new(More::Records { feed, scope }))
    }

    pub(super) async fn events(books: &Books, window: Window) -> Result<Self, ReconcileError> {
        // A copy is never older than what it is a copy of.
        let start_time = async_nats::datetime::from_nanos(window.since.as_nanosecond())
            .map_err(nats("start of events"))?;
        let policy = DeliverPolicy::ByStartTime { start_time };
        let feed = Feed::open(&books.events, subject::EVENTS.to_owned(), policy).await?;
        Ok(Self::new(More::Events {
            feed,
            until: window.until,
        }))
    }

    pub(super) fn payments(window: Window) -> Self {
        Self::new(More::Payments {
            window,
            after: None,
        })
    }

    pub(super) fn wallet(region: Region, window: Window) -> Self {
        Self::new(More::Wallet {
            region,
            window,
            after: None,
        })
    }

    fn new(more: More) -> Self {
        Self {
            waiting: VecDeque::new(),
            more,
        }
    }

    /// The time of the next fact; `None` when there is none.
    pub(super) async fn peek(
        &mut self,
        books: &Books,
    ) -> Result<Option<Timestamp>, ReconcileError> {
        while self.waiting.is_empty() {
            if matches!(self.more, More::Nothing) {
                return Ok(None);
            }
            self.fill(books).await?;
        }
        Ok(self.waiting.front().map(|fact| fact.at))
    }

    /// The next fact, which [`Source::peek`] has seen.
    pub(super) fn take(&mut self) -> Option<Fact> {
        self.waiting.pop_front()
    }

    /// Messages that a stream has yet to deliver, as far as it says.
    pub(super) fn left(&self) -> u64 {
        match &self.more {
            More::Records { feed, .. } | More::Events { feed, .. } => feed.left,
            More::Payments { .. } | More::Wallet { .. } | More::Nothing => 0,
        }
    }

    async fn fill(&mut self, books: &Books) -> Result<(), ReconcileError> {
        let ended = match &mut self.more {
            More::Records { feed, scope } => match feed.next().await? {
                None => true,
                Some(message) => {
                    self.waiting.extend(record(books, &message, scope));
                    false
                }
            },
            More::Events { feed, until } => match feed.next().await? {
                Some(message) if message.at < *until => {
                    let event = EventSide::of(&message.subject, &message.payload, message.at);
                    self.waiting.extend(event.map(|(key, event)| Fact {
                        at: message.at,
                        key,
                        item: Item::Event(event),
                    }));
                    false
                }
                Some(_) | None => true,
            },
            More::Payments { window, after } => {
                let page = books.payments_page(*window, after.as_ref()).await?;
                for payment in page.payments {
                    let saga_id = match &payment.saga_id {
                        Some(saga_id) => saga_id.clone(),
                        // What a deposit would be called that had to mark it.
                        None if payment.status == PaymentStatus::Successful => {
                            deposit::saga_id(&payment.identity)
                        }
                        // One that is announced, and that no saga has taken, is nobody's yet.
                        None => continue,
                    };
                    self.waiting.push_back(Fact {
                        at: payment.created_at,
                        key: saga_id.key(),
                        item: Item::Payment(PaymentSide::of(payment)),
                    });
                }
                *after = page.next;
                after.is_none()
            }
            More::Wallet {
                region,
                window,
                after,
            } => {
                let range = OperationRange {
                    since: window.since,
                    until: window.until,
                    after: after.take(),
                    limit: None,
                };
                let WalletView::Operations { operations, next } =
                    books.operations(region, range).await?
                else {
                    return Err(ReconcileError::Wallet {
                        region: region.clone(),
                        message: "it lists no operations: is the agent of an older build?"
                            .to_owned(),
                    });
                };
                for view in operations {
                    let operation = OperationSide {
                        region: region.clone(),
                        view,
                    };
                    self.waiting.push_back(Fact {
                        at: operation.view.created_at,
                        key: operation.saga_key(),
                        item: Item::Operation(Box::new(operation)),
                    });
                }
                *after = next;
                after.is_none()
            }
            More::Nothing => true,
        };
        if ended {
            self.more = More::Nothing;
        }
        Ok(())
    }
}

/// A record as a fact; `None` for what marks a deleted one, and for a case that is no saga.
fn record(books: &Books, message: &Message, scope: &Scope) -> Option<Fact> {
    let key = message
        .subject
        .strip_prefix(&books.partition.record_subject(""))?;
    if message.payload.is_empty() {
        return None;
    }
    let fact = |item| {
        Some(Fact {
            at: message.at,
            key: key.to_owned(),
            item,
        })
    };
    match serde_json::from_slice::<Brief>(&message.payload) {
        Err(error) => return fact(Item::Unreadable(error.to_string())),
        Ok(brief) if brief.workflow == crate::saga::CASE_WORKFLOW => return None,
        Ok(brief) => {
            let ended_at = brief.ended_at.filter(|_| brief.status.is_terminal());
            if !scope.has(brief.started_at, ended_at) {
                return fact(Item::Outside);
            }
        }
    }
    match store::decode(&message.payload) {
        Ok(record) => fact(Item::Record(Box::new(RecordSide::of(
            &record,
            message.sequence,
            message.at,
            books.now,
        )))),
        Err(error) => fact(Item::Unreadable(error)),
    }
}

/// A message of a stream.
struct Message {
    subject: String,
    sequence: u64,
    at: Timestamp,
    payload: bytes::Bytes,
}

/// What a stream held when it was opened, in order.
struct Feed {
    messages: Ordered,
    /// The stream's last message when it was opened: what comes later is not waited for.
    last: u64,
    left: u64,
}

impl Feed {
    async fn open(
        stream: &JetStream<()>,
        filter: String,
        deliver_policy: DeliverPolicy,
    ) -> Result<Self, ReconcileError> {
        let last = stream
            .get_info()
            .await
            .map_err(nats("stream"))?
            .state
            .last_sequence;
        let consumer = stream
            .create_consumer(OrderedConfig {
                name: Some(format!("reconcile-{}", crate::clock::draw_id())),
                description: Some("orchestrator reconcile".to_owned()),
                filter_subject: filter,
                deliver_policy,
                ..OrderedConfig::default()
            })
            .await
            .map_err(nats("consumer of a stream"))?;
        let left = consumer.cached_info().num_pending;
        let messages = consumer
            .messages()
            .await
            .map_err(nats("consumer of a stream"))?;
        Ok(Self {
            messages,
            last,
            left,
        })
    }

    async fn next(&mut self) -> Result<Option<Message>, ReconcileError> {
        if self.left == 0 {
            return Ok(None);
        }
        let message = match tokio::time::timeout(SILENCE, self.messages.next()).await {
            Ok(Some(Ok(message))) => message,
            Ok(Some(Err(error))) => return Err(nats("messages of a stream")(error)),
            Ok(None) | Err(_) => return Err(ReconcileError::Silence),
        };
        let info = message.info().map_err(nats("a message of a stream"))?;
        self.left = info.pending;
        if info.stream_sequence > self.last {
            self.left = 0;
            return Ok(None);
        }
        Ok(Some(Message {
            sequence: info.stream_sequence,
            at: Timestamp::from_nanosecond(info.published.unix_timestamp_nanos())
                .map_err(nats("the time of a message"))?,
            subject: message.subject.to_string(),
            payload: message.payload.clone(),
        }))
    }
}
