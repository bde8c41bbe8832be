//! A durable pull consumer as a loop: each message in its own task, kept alive while it is worked on,
//! acknowledged only when it is settled.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::consumer::PullConsumer;
use async_nats::jetstream::consumer::pull::{MessagesError, Stream};
use async_nats::jetstream::{AckKind, Message};
use futures::{FutureExt as _, StreamExt as _};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// What became of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Handled {
    /// Acknowledge it.
    Done,
    /// Give it back.
    Again(String),
    /// Say nothing: another replica works on this very message. It comes again if that one dies.
    Left,
}

/// Works on messages. Being called again for the same message must be harmless.
pub trait Handle: Clone + Send + Sync + 'static {
    /// Works on one message until it may be acknowledged or given back.
    fn handle(&self, message: &Message) -> impl Future<Output = Handled> + Send;
}

/// Messages asked for at a time; what is fetched ahead burns its acknowledgement time.
const BATCH: usize = 100;

/// Messages at work at once. More would only wait longer for the databases, until their steps time out.
const AT_WORK: usize = 256;

/// Pause before a lost subscription is made anew.
const REOPEN_PAUSE: Duration = Duration::from_millis(500);

/// First and longest pause before a message that was given back comes again.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(30);

/// Consumes until `stop`, then waits for the messages at work.
pub async fn run<H: Handle>(consumer: PullConsumer, handler: H, stop: CancellationToken) {
    let ack_wait = consumer.cached_info().config.ack_wait;
    let tasks = TaskTracker::new();
    let slots = Arc::new(Semaphore::new(AT_WORK));
    while !stop.is_cancelled() {
        let opened = consumer
            .stream()
            .max_messages_per_batch(BATCH)
            .expires(Duration::from_secs(30))
            .heartbeat(Duration::from_secs(5))
            .messages()
            .await;
        let mut messages = match opened {
            Ok(messages) => messages,
            Err(error) => {
                tracing::warn!(%error, "the consumer cannot be opened; trying again");
                pause(&stop).await;
                continue;
            }
        };
        loop {
            let next = tokio::select! {
                biased;
                () = stop.cancelled() => {
                    hand_on(&mut messages).await;
                    break;
                }
                next = next(&mut messages, &slots) => next,
            };
            match next {
                Some(Ok((message, slot))) => {
                    let handler = handler.clone();
                    let stop = stop.clone();
                    tasks.spawn(async move {
                        settle(&handler, message, ack_wait, &stop).await;
                        drop(slot);
                    });
                }
                Some(Err(error)) => {
                    // A missed heartbeat or a reconnect; the stream goes on or ends by itself.
                    tracing::debug!(%error, "consumer");
                }
                None => {
                    tracing::warn!("the consumer's subscription ended; opening it again");
                    pause(&stop).await;
                    break;
                }
            }
        }
    }
    tasks.close();
    tasks.wait().await;
}

/// A message, once there is room to work on it.
async fn next(
    messages: &mut Stream,
    slots: &Arc<Semaphore>,
) -> Option<Result<(Message, OwnedSemaphorePermit), MessagesError>> {
    let slot = slots.clone().acquire_owned().await.ok()?;
    let message = messages.next().await?;
    Some(message.map(|message| (message, slot)))
}

/// Messages fetched ahead and not begun go back at once instead of when their time is up.
async fn hand_on(messages: &mut Stream) {
    while let Some(Some(Ok(message))) = messages.next().now_or_never() {
        acknowledge(&message, AckKind::Nak(None)).await;
    }
}

async fn pause(stop: &CancellationToken) {
    tokio::select! {
        () = stop.cancelled() => {}
        () = tokio::time::sleep(REOPEN_PAUSE) => {}
    }
}

/// Works on a message, telling the server every now and then that it is alive.
async fn settle<H: Handle>(
    handler: &H,
    message: Message,
    ack_wait: Duration,
    stop: &CancellationToken,
) {
    let work = handler.handle(&message);
    tokio::pin!(work);
    let mut alive = tokio::time::interval(ack_wait / 3);
    alive.tick().await;
    let handled = loop {
        tokio::select! {
            handled = &mut work => break handled,
            _ = alive.tick() => acknowledge(&message, AckKind::Progress).await,
        }
    };
    match handled {
        Handled::Done => acknowledge(&message, AckKind::Ack).await,
        Handled::Left => tracing::debug!(subject = %message.subject, "left to its other holder"),
        Handled::Again(reason) => {
            let delivered = message.info().map_or(1, |info| info.delivered);
            let doublings = u32::try_from(delivered.clamp(1, 6) - 1).unwrap_or(0);
            let pause = (FIRST_RETRY * 2_u32.pow(doublings)).min(LONGEST_RETRY);
            // A replica that stops hands its messages on at once.
            let pause = if stop.is_cancelled() {
                None
            } else {
                Some(pause)
            };
            tracing::info!(reason, delivered, subject = %message.subject, "given back");
            acknowledge(&message, AckKind::Nak(pause)).await;
        }
    }
}

/// A lost acknowledgement means a redelivery, which is harmless.
async fn acknowledge(message: &Message, kind: AckKind) {
    if let Err(error) = message.ack_with(kind).await {
        tracing::debug!(%error, "an acknowledgement was not sent");
    }
}
