//! A durable pull consumer as a loop: each message in its own task, kept alive while it is worked on,
//! acknowledged only when it is settled.

mod incoming;
mod pull;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::consumer::PullConsumer;
use async_nats::jetstream::{self, AckKind, Message};
pub use incoming::Incoming;
use pull::{Heard, Pull};
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
    fn handle(&self, message: &Incoming) -> impl Future<Output = Handled> + Send;
}

/// Says what became of one delivery of a message.
pub trait Acknowledge: Send + Sync {
    /// Says it. A lost acknowledgement means a redelivery, which is harmless.
    fn acknowledge(&self, kind: AckKind) -> impl Future<Output = ()> + Send;
}

/// Messages asked for at a time.
const BATCH: usize = 100;

/// Messages at work at once. More would only wait longer for the databases, until their steps time out.
const AT_WORK: usize = 256;

/// Pause before a lost subscription is made anew.
const REOPEN_PAUSE: Duration = Duration::from_millis(500);

/// First and longest pause before a message that was given back comes again.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(30);

/// Consumes until `stop`, then hands on what has not been begun and waits for the messages at work.
pub async fn run<H: Handle>(
    context: jetstream::Context,
    consumer: PullConsumer,
    handler: H,
    stop: CancellationToken,
) {
    let ack_wait = consumer.cached_info().config.ack_wait;
    let tasks = TaskTracker::new();
    let slots = Arc::new(Semaphore::new(AT_WORK));
    while !stop.is_cancelled() {
        let mut pull = match Pull::open(&context, &consumer).await {
            Ok(pull) => pull,
            Err(error) => {
                tracing::warn!(%error, "the consumer cannot be opened; trying again");
                pause(&stop).await;
                continue;
            }
        };
        loop {
            let heard = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                heard = fill(&mut pull, &slots, |message, slot| {
                    let handler = handler.clone();
                    let stop = stop.clone();
                    tasks.spawn(async move {
                        take(&handler, &message, ack_wait, &stop).await;
                        drop(slot);
                    });
                }) => heard,
            };
            match heard {
                Filled::Ended => {}
                Filled::Refused(reason) => {
                    tracing::debug!(reason, "a request for messages was refused");
                    pause(&stop).await;
                }
                Filled::Closed => {
                    tracing::warn!("the consumer's subscription ended; opening it again");
                    pause(&stop).await;
                    break;
                }
            }
        }
        // They go back at once instead of when their time is up.
        for message in pull.close().await {
            message.acknowledge(AckKind::Nak(None)).await;
        }
    }
    tasks.close();
    tasks.wait().await;
}

/// How a request for messages came to its end.
enum Filled {
    Ended,
    Refused(String),
    Closed,
}

/// Asks for as many messages as there is room for and begins each as it comes. Dropping the future
/// loses no message: one that has come is begun before the next is awaited.
async fn fill(
    pull: &mut Pull,
    slots: &Arc<Semaphore>,
    mut begin: impl FnMut(Message, Option<OwnedSemaphorePermit>),
) -> Filled {
    let Ok(mut room) = slots.clone().acquire_owned().await else {
        return Filled::Closed;
    };
    while room.num_permits() < BATCH
        && let Ok(more) = slots.clone().try_acquire_owned()
    {
        room.merge(more);
    }
    if let Err(error) = pull.ask(room.num_permits()).await {
        return Filled::Refused(error.to_string());
    }
    loop {
        match pull.next().await {
            Heard::Message(message) => begin(*message, room.split(1)),
            Heard::Ended => return Filled::Ended,
            Heard::Refused(reason) => return Filled::Refused(reason),
            Heard::Closed => return Filled::Closed,
        }
        if room.num_permits() == 0 {
            return Filled::Ended;
        }
    }
}

async fn pause(stop: &CancellationToken) {
    tokio::select! {
        () = stop.cancelled() => {}
        () = tokio::time::sleep(REOPEN_PAUSE) => {}
    }
}

async fn take<H: Handle>(
    handler: &H,
    message: &Message,
    ack_wait: Duration,
    stop: &CancellationToken,
) {
    match Incoming::read(message) {
        Ok(incoming) => settle(handler, &incoming, message, ack_wait, stop).await,
        Err(reason) => {
            tracing::warn!(reason, subject = %message.subject, "given back");
            message.acknowledge(AckKind::Nak(Some(LONGEST_RETRY))).await;
        }
    }
}

/// Works on a message, telling the server every now and then that it is alive, and says at last what
/// became of it.
pub async fn settle<H: Handle, A: Acknowledge>(
    handler: &H,
    message: &Incoming,
    delivery: &A,
    ack_wait: Duration,
    stop: &CancellationToken,
) {
    let work = handler.handle(message);
    tokio::pin!(work);
    let mut alive = tokio::time::interval(ack_wait / 3);
    alive.tick().await;
    let handled = loop {
        tokio::select! {
            biased;
            handled = &mut work => break handled,
            _ = alive.tick() => delivery.acknowledge(AckKind::Progress).await,
        }
    };
    match handled {
        Handled::Done => delivery.acknowledge(AckKind::Ack).await,
        Handled::Left => tracing::debug!(subject = %message.subject, "left to its other holder"),
        Handled::Again(reason) => {
            let delivered = message.delivered;
            let doublings = u32::try_from(delivered.clamp(1, 6) - 1).unwrap_or(0);
            let pause = (FIRST_RETRY * 2_u32.pow(doublings)).min(LONGEST_RETRY);
            // A replica that stops hands its messages on at once.
            let pause = if stop.is_cancelled() {
                None
            } else {
                Some(pause)
            };
            tracing::info!(reason, delivered, subject = %message.subject, "given back");
            delivery.acknowledge(AckKind::Nak(pause)).await;
        }
    }
}

impl Acknowledge for Message {
    async fn acknowledge(&self, kind: AckKind) {
        if let Err(error) = self.ack_with(kind).await {
            tracing::debug!(%error, "an acknowledgement was not sent");
        }
    }
}
