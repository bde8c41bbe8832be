//! Pull requests by hand: as many messages as there is room for, and nothing fetched ahead.
//!
//! The client library's stream asks for more as soon as half of a batch is read, also while it is being
//! emptied at a shutdown. What it has fetched by then burns its acknowledgement time in a buffer.

use async_nats::jetstream::{self, Message, consumer::PullConsumer};
use async_nats::{Client, StatusCode, Subscriber};
use futures::StreamExt as _;
use serde_json::json;
use std::time::Duration;

/// How long the server keeps a request that it cannot fill.
const EXPIRES: Duration = Duration::from_secs(30);

/// How often the server says that it still has our request.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// Without a word for so long the request is lost, as after a reconnect.
const SILENCE: Duration = Duration::from_secs(3);

/// One consumer's messages, for one subscriber.
#[derive(Debug)]
pub(super) struct Pull {
    context: jetstream::Context,
    client: Client,
    request_subject: String,
    inbox: String,
    subscriber: Subscriber,
}

/// What the server had to say.
#[derive(Debug)]
pub(super) enum Heard {
    /// A message.
    Message(Box<Message>),
    /// The request is used up, has expired or is lost: ask again.
    Ended,
    /// It was refused, or nobody is there to take it: ask again later.
    Refused(String),
    /// The subscription has ended: the connection is closed for good.
    Closed,
}

impl Pull {
    pub(super) async fn open(
        context: &jetstream::Context,
        consumer: &PullConsumer,
    ) -> Result<Self, async_nats::SubscribeError> {
        let client = context.client();
        let inbox = client.new_inbox();
        let info = consumer.cached_info();
        Ok(Self {
            context: context.clone(),
            request_subject: format!(
                "$JS.API.CONSUMER.MSG.NEXT.{}.{}",
                info.stream_name, info.name
            ),
            subscriber: client.subscribe(inbox.clone()).await?,
            client,
            inbox,
        })
    }

    /// Asks for so many messages.
    pub(super) async fn ask(&self, count: usize) -> Result<(), async_nats::PublishError> {
        let request = json!({
            "batch": count,
            "expires": nanoseconds(EXPIRES),
            "idle_heartbeat": nanoseconds(HEARTBEAT),
        });
        self.client
            .publish_with_reply(
                self.request_subject.clone(),
                self.inbox.clone(),
                request.to_string().into(),
            )
            .await
    }

    /// What comes next. Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> Heard {
        loop {
            let message = match tokio::time::timeout(SILENCE, self.subscriber.next()).await {
                Err(_elapsed) => return Heard::Ended,
                Ok(None) => return Heard::Closed,
                Ok(Some(message)) => message,
            };
            match message.status {
                None | Some(StatusCode::OK) => return Heard::Message(Box::new(self.take(message))),
                Some(StatusCode::IDLE_HEARTBEAT) => {}
                Some(StatusCode::TIMEOUT | StatusCode::NOT_FOUND) => return Heard::Ended,
                Some(status) => {
                    let description = message.description.as_deref().unwrap_or_default();
                    return Heard::Refused(format!("{status} {description}"));
                }
            }
        }
    }

    /// Ends the subscription and gives what had come or was on its way.
    pub(super) async fn close(mut self) -> Vec<Message> {
        if let Err(error) = self.subscriber.drain().await {
            tracing::debug!(%error, "the subscription did not end cleanly");
        }
        let mut rest = Vec::new();
        while let Ok(Some(message)) = tokio::time::timeout(SILENCE, self.subscriber.next()).await {
            if matches!(message.status, None | Some(StatusCode::OK)) {
                rest.push(self.take(message));
            }
        }
        rest
    }

    fn take(&self, message: async_nats::Message) -> Message {
        Message {
            message,
            context: self.context.clone(),
        }
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
