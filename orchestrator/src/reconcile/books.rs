//! Single questions to each side: pages, and one saga at a time.

use std::time::Duration;

use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::stream::{
    LastRawMessageErrorKind, RawMessageErrorKind, Stream as JetStream,
};
use async_nats::{Client, HeaderMap, RequestErrorKind};
use contracts::codec::Encoding;
use contracts::command::{OperationRange, WalletGet, WalletVerb};
use contracts::id::{OperationId, Region};
use contracts::reply::WalletView;
use contracts::{header, subject};
use jiff::Timestamp;

use super::sides::{EventSide, OperationSide, PaymentSide, RecordSide};
use super::source::Window;
use super::{Options, ReconcileError};
use crate::partition::Partition;
use crate::payments::{PaymentPage, PaymentPlace, Payments};
use crate::store;

/// Longest wait for a wallet's answer.
const ANSWER: Duration = Duration::from_secs(10);

/// How often a wallet is asked that is busy or does not answer.
const ATTEMPTS: u32 = 4;

/// Wait before a busy wallet is asked again.
const PAUSE: Duration = Duration::from_millis(250);

/// Everything that is compared, for reading.
pub(super) struct Books {
    client: Client,
    pub(super) partition: Partition,
    /// Records, and the events as they were committed.
    pub(super) state: JetStream<()>,
    /// The events that other teams read.
    pub(super) events: JetStream<()>,
    /// How long those are kept; zero for ever.
    pub(super) events_age: Duration,
    pub(super) payments: Option<Payments>,
    /// The clock.
    pub(super) now: Timestamp,
}

impl Books {
    pub(super) async fn open(
        client: &Client,
        options: &Options,
        payments: Option<&Payments>,
    ) -> Result<Self, ReconcileError> {
        let js = crate::serve::context(client);
        let partition = &options.partition;
        let state = js
            .get_stream_no_info(partition.state_stream())
            .await
            .map_err(nats("state stream"))?;
        let events = js
            .get_stream_no_info(partition.events_stream())
            .await
            .map_err(nats("stream of events"))?;
        let events_age = events
            .get_info()
            .await
            .map_err(nats("stream of events"))?
            .config
            .max_age;
        Ok(Self {
            client: client.clone(),
            partition: partition.clone(),
            state,
            events,
            events_age,
            payments: payments.cloned(),
            now: options.now,
        })
    }

    pub(super) async fn payments_page(
        &self,
        window: Window,
        after: Option<&PaymentPlace>,
    ) -> Result<PaymentPage, ReconcileError> {
        match &self.payments {
            Some(payments) => Ok(payments
                .page_of_time(window.since, window.until, after)
                .await?),
            None => Ok(PaymentPage {
                payments: Vec::new(),
                next: None,
            }),
        }
    }

    pub(super) async fn payment(
        &self,
        payment_id: &str,
    ) -> Result<Option<PaymentSide>, ReconcileError> {
        match &self.payments {
            Some(payments) => Ok(payments.by_id(payment_id).await?.map(PaymentSide::of)),
            None => Ok(None),
        }
    }

    pub(super) async fn operations(
        &self,
        region: &Region,
        range: OperationRange,
    ) -> Result<WalletView, ReconcileError> {
        self.wallet(
            region,
            &WalletGet {
                operations: Some(range),
                ..WalletGet::default()
            },
        )
        .await
    }

    /// One operation of a wallet; `None` when the wallet does not know it.
    pub(super) async fn operation(
        &self,
        region: &Region,
        id: &OperationId,
    ) -> Result<Option<OperationSide>, ReconcileError> {
        let get = WalletGet {
            operation_id: Some(id.clone()),
            ..WalletGet::default()
        };
        match self.wallet(region, &get).await? {
            WalletView::Operation(view) => Ok(Some(OperationSide {
                region: region.clone(),
                view,
            })),
            WalletView::UnknownOperation { .. } => Ok(None),
            view @ (WalletView::Wallet { .. }
            | WalletView::Operations { .. }
            | WalletView::Invalid { .. }
            | WalletView::Unavailable { .. }) => Err(ReconcileError::Wallet {
                region: region.clone(),
                message: format!("asked for operation {id}, it answers {view:?}"),
            }),
        }
    }

    async fn wallet(&self, region: &Region, get: &WalletGet) -> Result<WalletView, ReconcileError> {
        let failed = |message: String| ReconcileError::Wallet {
            region: region.clone(),
            message,
        };
        let encoding = Encoding::MessagePack;
        let body = encoding
            .encode(get)
            .map_err(|error| failed(error.to_string()))?;
        let mut attempt = 1;
        loop {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, encoding.content_type());
            let request = async_nats::Request::new()
                .headers(headers)
                .payload(body.clone().into())
                .timeout(Some(ANSWER));
            let answered = self
                .client
                .send_request(subject::wallet(region, WalletVerb::Get), request)
                .await;
            let problem = match answered {
                Ok(message) => match encoding.decode::<WalletView>(&message.payload) {
                    Ok(WalletView::Unavailable { message }) => message,
                    Ok(WalletView::Invalid { field, message }) => {
                        return Err(failed(format!(
                            "{field}: {message} (is it of an older build?)"
                        )));
                    }
                    Ok(view) => return Ok(view),
                    Err(error) => return Err(failed(error.to_string())),
                },
                Err(error) => match error.kind() {
                    RequestErrorKind::NoResponders => {
                        "nobody serves it, or this user may not ask".to_owned()
                    }
                    RequestErrorKind::TimedOut => format!("no answer within {ANSWER:?}"),
                    RequestErrorKind::InvalidSubject
                    | RequestErrorKind::MaxPayloadExceeded
                    | RequestErrorKind::Other => error.to_string(),
                },
            };
            if attempt == ATTEMPTS {
                return Err(ReconcileError::NoWallet {
                    region: region.clone(),
                    message: problem,
                });
            }
            attempt += 1;
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// The record of this key as it is now; `Err` inside when it cannot be read.
    pub(super) async fn record(
        &self,
        key: &str,
    ) -> Result<Option<Result<RecordSide, String>>, ReconcileError> {
        let subject = self.partition.record_subject(key);
        match self.state.get_last_raw_message_by_subject(&subject).await {
            Ok(message) if message.payload.is_empty() => Ok(None),
            Ok(message) => {
                let at = time_of(&message)?;
                let record = store::decode(&message.payload);
                Ok(Some(record.map(|record| {
                    RecordSide::of(&record, message.sequence, at, self.now)
                })))
            }
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(None),
            Err(error) => Err(nats("a record")(error)),
        }
    }

    /// Every event of a saga in one of the two streams.
    pub(super) async fn events_of(
        &self,
        stream: &JetStream<()>,
        key: &str,
    ) -> Result<Vec<EventSide>, ReconcileError> {
        let subject = subject::events_of(key);
        let (mut events, mut from) = (Vec::new(), 1);
        loop {
            let message = match stream
                .get_first_raw_message_by_subject(&subject, from)
                .await
            {
                Ok(message) => message,
                Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => {
                    return Ok(events);
                }
                Err(error) => return Err(nats("an event")(error)),
            };
            from = message.sequence + 1;
            let at = time_of(&message)?;
            events.extend(
                EventSide::of(&message.subject, &message.payload, at).map(|(_, event)| event),
            );
        }
    }
}

fn time_of(message: &StreamMessage) -> Result<Timestamp, ReconcileError> {
    let nanoseconds = message.time.unix_timestamp_nanos();
    Timestamp::from_nanosecond(nanoseconds).map_err(nats("the time of a message"))
}

pub(super) fn nats<E: Into<async_nats::Error>>(what: &'static str) -> impl Fn(E) -> ReconcileError {
    move |source| ReconcileError::Nats {
        what,
        source: source.into(),
    }
}
