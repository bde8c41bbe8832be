//! A durable consumer of a world: at least once, to any replica, until acknowledged.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_nats::jetstream::AckKind;
use bytes::Bytes;
use jiff::Timestamp;
use orchestrator::consume::{Acknowledge, Incoming};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::replica::Replica;
use super::world::World;
use crate::judge::Observation;

/// How long a delivered message may stay silent, as configured for the real consumers.
pub(super) const ACK_WAIT: Duration = Duration::from_secs(10);

/// Which of the two consumers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Intake,
    Timers,
}

#[derive(Debug)]
pub(super) struct Consumer {
    kind: Kind,
    max_ack_pending: usize,
    messages: Mutex<BTreeMap<u64, Message>>,
    changed: Notify,
}

#[derive(Debug)]
struct Message {
    id: String,
    subject: String,
    payload: Bytes,
    published: Timestamp,
    delivered: u64,
    place: Place,
}

#[derive(Debug, Clone, Copy)]
enum Place {
    /// To be delivered from then on.
    Ready(Instant),
    /// Delivered; not again before then.
    Out(Instant),
}

impl Consumer {
    pub(super) fn new(kind: Kind, max_ack_pending: usize) -> Self {
        Self {
            kind,
            max_ack_pending,
            messages: Mutex::default(),
            changed: Notify::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Message>> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Somebody may take messages again.
    pub(super) fn look_again(&self) {
        self.changed.notify_one();
    }

    pub(super) fn store(
        &self,
        world: &World,
        sequence: u64,
        id: String,
        subject: String,
        payload: Bytes,
    ) {
        let message = Message {
            id,
            subject,
            payload,
            published: world.now(),
            delivered: 0,
            place: Place::Ready(Instant::now()),
        };
        self.lock().insert(sequence, message);
        self.changed.notify_one();
    }

    /// Deletes the messages of a subject below a sequence.
    pub(super) fn purge(&self, world: &World, subject: &str, below: u64) {
        let mut gone = Vec::new();
        self.lock().retain(|sequence, message| {
            let goes = *sequence < below && message.subject == subject;
            if goes {
                gone.push(Observation::MessageAcked {
                    message: message.id.clone(),
                });
            }
            !goes
        });
        world.saw(gone);
    }

    /// Delivers for as long as the world lasts.
    pub(super) async fn run(world: Arc<World>, kind: Kind) {
        let consumer = world.consumer(kind);
        loop {
            let replicas = world.replicas.listening();
            let next = consumer.deliver_what_is_due(&world, &replicas);
            let next = next.unwrap_or_else(|| Instant::now() + Duration::from_secs(3_600));
            tokio::select! {
                biased;
                () = consumer.changed.notified() => {}
                () = tokio::time::sleep_until(next) => {}
            }
        }
    }

    /// Delivers, and says when to look next.
    fn deliver_what_is_due(
        &self,
        world: &Arc<World>,
        replicas: &[Arc<Replica>],
    ) -> Option<Instant> {
        if replicas.is_empty() {
            return None;
        }
        let now = Instant::now();
        let mut messages = self.lock();
        let is_out = |message: &Message| matches!(message.place, Place::Out(until) if until > now);
        let mut out = messages.values().filter(|message| is_out(message)).count();
        let mut next: Option<Instant> = None;
        for (sequence, message) in messages.iter_mut() {
            let (Place::Ready(at) | Place::Out(at)) = message.place;
            if at > now {
                next = Some(next.map_or(at, |next| next.min(at)));
                continue;
            }
            if out >= self.max_ack_pending {
                continue;
            }
            out += 1;
            message.delivered += 1;
            let point = format!("{}@{}", message.id, message.delivered);
            let until = match world.chance.strikes("redelivered-early", &point) {
                true => world.chance.between("early", &point, 0, 6_000),
                false => ACK_WAIT,
            };
            message.place = Place::Out(now + until);
            next = Some(next.map_or(now + until, |next| next.min(now + until)));
            let number = usize::try_from(world.chance.draw("replica", &point)).unwrap_or(0);
            let replica = replicas[number % replicas.len()].clone();
            let incoming = Incoming {
                subject: message.subject.clone(),
                headers: None,
                payload: message.payload.clone(),
                sequence: *sequence,
                delivered: message.delivered,
                published: message.published,
            };
            let delivery = Delivery {
                world: world.clone(),
                replica: replica.clone(),
                kind: self.kind,
                sequence: *sequence,
                point,
            };
            let (world, kind) = (world.clone(), self.kind);
            tokio::spawn(async move {
                let latency = world.chance.between("delivery", &delivery.point, 0, 3);
                tokio::time::sleep(latency).await;
                replica.take(kind, &incoming, &delivery).await;
            });
        }
        next
    }

    fn settle(&self, world: &World, sequence: u64, kind: AckKind) {
        let now = Instant::now();
        let mut messages = self.lock();
        let Some(message) = messages.get_mut(&sequence) else {
            return;
        };
        match kind {
            AckKind::Ack | AckKind::Term | AckKind::Next => {
                let id = message.id.clone();
                messages.remove(&sequence);
                drop(messages);
                world.tell("", &format!("{id} acknowledged"));
                world.saw(vec![Observation::MessageAcked { message: id }]);
            }
            AckKind::Nak(pause) => message.place = Place::Ready(now + pause.unwrap_or_default()),
            AckKind::Progress => message.place = Place::Out(now + ACK_WAIT),
        }
        self.changed.notify_one();
    }
}

/// One delivery to one replica.
pub(super) struct Delivery {
    world: Arc<World>,
    replica: Arc<Replica>,
    kind: Kind,
    sequence: u64,
    point: String,
}

impl Acknowledge for Delivery {
    async fn acknowledge(&self, kind: AckKind) {
        let (world, chance) = (&self.world, &self.world.chance);
        let fault = match kind {
            AckKind::Progress => "progress-lost",
            AckKind::Ack | AckKind::Nak(_) | AckKind::Term | AckKind::Next => {
                let process = &self.replica.process;
                process.pass(world, &format!("ack/{}", self.point)).await;
                "ack-lost"
            }
        };
        self.replica.process.alive().await;
        if chance.strikes(fault, &self.point) {
            world.tell("", &format!("FAULT {fault} of {}", self.point));
            return;
        }
        tokio::time::sleep(chance.between("ack", &self.point, 0, 3)).await;
        world.consumer(self.kind).settle(world, self.sequence, kind);
    }
}
