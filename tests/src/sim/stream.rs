//! The state stream of a world: records with revisions, events, timers; and a replica's way to it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_nats::jetstream::stream::LastRawMessageErrorKind;
use contracts::id::SagaId;
use futures::future::BoxFuture;
use jiff::Timestamp;
use orchestrator::store::{
    CommitOutcome, LoadError, StateLog, Stored, StreamError, Timer, Write, decode,
};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::replica::Process;
use super::world::World;
use crate::judge::Observation;

/// One stream for everything, as the server keeps it.
#[derive(Debug, Default)]
pub(super) struct Stream {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    sequence: u64,
    records: BTreeMap<String, (u64, Vec<u8>)>,
    events: BTreeSet<String>,
    timers: BTreeMap<String, Timestamp>,
}

/// A write on its way: what it says is fixed when it is sent.
#[derive(Debug, Clone)]
struct Sent {
    saga: String,
    text: Vec<u8>,
    expected: u64,
    events: Vec<(String, String, Value)>,
    timer: Timer,
}

impl Sent {
    fn new(write: &Write<'_>) -> serde_json::Result<Self> {
        let saga = &write.record.saga_id;
        Ok(Self {
            saga: saga.to_string(),
            text: serde_json::to_vec(write.record)?,
            expected: write.expected,
            events: write
                .events
                .iter()
                .map(|event| {
                    let subject = contracts::subject::event(&event.region, saga, event.name);
                    (subject, event.name.to_owned(), event.body.clone())
                })
                .collect(),
            timer: write.timer,
        })
    }
}

impl Stream {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether no timer is armed.
    pub(super) fn has_no_timer(&self) -> bool {
        self.lock().timers.is_empty()
    }

    /// All or nothing; `None` when an expected sequence does not hold.
    fn apply(&self, world: &World, sent: &Sent) -> Option<u64> {
        let mut state = self.lock();
        let stored = state.records.get(&sent.saga).map_or(0, |(at, _)| *at);
        let fresh = |(subject, _, _): &(String, String, Value)| !state.events.contains(subject);
        if stored != sent.expected || !sent.events.iter().all(fresh) {
            return None;
        }
        state.sequence += 1;
        let revision = state.sequence;
        let (saga, text) = (sent.saga.clone(), sent.text.clone());
        let mut seen = vec![Observation::RecordWritten {
            saga: saga.clone(),
            revision,
            text: String::from_utf8_lossy(&text).into_owned(),
        }];
        state.records.insert(saga.clone(), (revision, text));
        for (subject, name, body) in &sent.events {
            state.sequence += 1;
            state.events.insert(subject.clone());
            seen.push(Observation::EventLogged {
                saga: saga.clone(),
                name: name.clone(),
                body: body.clone(),
            });
        }
        match sent.timer {
            Timer::Keep => {}
            Timer::Arm(at) => {
                state.sequence += 1;
                state.timers.insert(saga.clone(), at);
                seen.push(Observation::TimerArmed { saga });
            }
            Timer::Cancel => {
                if state.timers.remove(&saga).is_some() {
                    seen.push(Observation::TimerGone { saga });
                }
            }
        }
        drop(state);
        self.changed.notify_one();
        world.saw(seen);
        Some(revision)
    }

    fn read(&self, saga: &SagaId) -> Option<(u64, Vec<u8>)> {
        self.lock().records.get(saga.as_str()).cloned()
    }

    /// Fires timers for as long as the world lasts.
    pub(super) async fn fire(world: Arc<World>) {
        loop {
            let next = {
                let state = world.stream.lock();
                let due = state.timers.iter().map(|(saga, at)| {
                    let point = format!("{saga}@{at}");
                    let late = match world.chance.strikes("timer-late", &point) {
                        true => world.chance.between("lateness", &point, 1_000, 20_000),
                        false => world.chance.between("granularity", &point, 0, 300),
                    };
                    let wait = Duration::try_from(at.duration_since(world.now()));
                    // The server's schedules have whole milliseconds, and are never early.
                    let wait = wait.unwrap_or(Duration::ZERO) + Duration::from_millis(1);
                    (wait + late, saga.clone(), *at)
                });
                due.min()
            };
            let Some((wait, saga, at)) = next else {
                world.stream.changed.notified().await;
                continue;
            };
            tokio::select! {
                biased;
                () = world.stream.changed.notified() => {}
                () = tokio::time::sleep(wait) => world.stream.fire_one(&world, saga, at),
            }
        }
    }

    fn fire_one(&self, world: &Arc<World>, saga: String, at: Timestamp) {
        let mut state = self.lock();
        if state.timers.get(&saga) != Some(&at) {
            return;
        }
        state.timers.remove(&saga);
        state.sequence += 1;
        let sequence = state.sequence;
        drop(state);
        world.tell(&saga, "timer fires");
        let body = json!({ "saga_id": saga, "wake_at": at });
        let key = SagaId::new(saga.clone()).map_or_else(|_| saga.clone(), |id| id.key());
        let number = world.ordinal(&format!("due/{saga}"));
        let message = format!("due:{saga}#{number}");
        world.saw(vec![Observation::TimerFired {
            saga,
            message: message.clone(),
        }]);
        let subject = contracts::subject::due(&key);
        // The rollup: what had fired for this saga before is no longer there.
        world.timers.purge(world, &subject, sequence);
        world
            .timers
            .store(world, sequence, message, subject, body.to_string().into());
    }
}

/// A replica's way to the stream.
#[derive(Debug)]
pub(super) struct Log {
    pub(super) world: Arc<World>,
    pub(super) process: Arc<Process>,
}

/// How long the real store settles a write of unknown outcome.
const SETTLE_LIMIT: Duration = Duration::from_secs(60);

impl Log {
    async fn write(&self, write: &Write<'_>) -> CommitOutcome {
        let sent = match Sent::new(write) {
            Ok(sent) => sent,
            Err(error) => return CommitOutcome::Rejected(error.to_string()),
        };
        let (world, chance) = (&self.world, &self.world.chance);
        let number = world.ordinal(&format!("commit/{}", sent.saga));
        let point = format!("{}#{number}", sent.saga);
        self.process.pass(world, &format!("commit/{point}")).await;
        let strikes = |kind| {
            let strikes = chance.strikes(kind, &point);
            if strikes {
                world.tell(&sent.saga, &format!("FAULT {kind} at commit {number}"));
            }
            strikes
        };
        let latency = match strikes("commit-slow") {
            true => chance.between("slow", &point, 300, 9_000),
            false => chance.between("latency", &point, 0, 3),
        };
        tokio::time::sleep(latency).await;
        let outcome = if strikes("commit-conflict") {
            CommitOutcome::Conflict
        } else if strikes("commit-unreachable") {
            tokio::time::sleep(SETTLE_LIMIT).await;
            CommitOutcome::Unknown("the server cannot be reached".to_owned())
        } else if strikes("commit-unknown-written") {
            // By it or by nobody: when the answer is lost, it is not known which.
            world.stream.apply(world, &sent);
            tokio::time::sleep(SETTLE_LIMIT).await;
            CommitOutcome::Unknown("no acknowledgement came".to_owned())
        } else if strikes("commit-unknown-written-later") {
            let after = chance.between("after", &point, 0, 20_000);
            let (world, sent) = (world.clone(), sent.clone());
            world.in_flight(1);
            tokio::spawn(async move {
                tokio::time::sleep(SETTLE_LIMIT + after).await;
                world.stream.apply(&world, &sent);
                world.in_flight(-1);
            });
            tokio::time::sleep(SETTLE_LIMIT).await;
            CommitOutcome::Unknown("no acknowledgement came".to_owned())
        } else {
            let outcome = world.stream.apply(world, &sent);
            if strikes("commit-late-answer") {
                tokio::time::sleep(chance.between("late", &point, 300, 9_000)).await;
            }
            outcome.map_or(CommitOutcome::Conflict, CommitOutcome::Written)
        };
        self.process
            .pass(world, &format!("committed/{point}"))
            .await;
        if !matches!(outcome, CommitOutcome::Written(_)) {
            let (name, expected) = (&self.process.name, sent.expected);
            world.tell(&sent.saga, &format!("{name} at {expected}: {outcome:?}"));
        }
        outcome
    }

    async fn look(&self, saga_id: &SagaId) -> Result<Option<Stored>, LoadError> {
        let (world, chance) = (&self.world, &self.world.chance);
        let number = world.ordinal(&format!("load/{saga_id}"));
        let point = format!("{saga_id}#{number}");
        self.process.pass(world, &format!("load/{point}")).await;
        if chance.strikes("load-unreachable", &point) {
            tokio::time::sleep(Duration::from_secs(5)).await;
            self.process.alive().await;
            return Err(LoadError::Unreachable(
                LastRawMessageErrorKind::Other.into(),
            ));
        }
        let latency = match chance.strikes("load-slow", &point) {
            true => chance.between("load-slow", &point, 300, 4_000),
            false => chance.between("load", &point, 0, 3),
        };
        tokio::time::sleep(latency / 2).await;
        let stored = world.stream.read(saga_id);
        tokio::time::sleep(latency / 2).await;
        self.process.alive().await;
        let Some((revision, text)) = stored else {
            return Ok(None);
        };
        let record = decode(&text).map_err(|message| LoadError::Undecodable {
            key: saga_id.key(),
            message,
        })?;
        Ok(Some(Stored { record, revision }))
    }

    async fn forget(&self, due_subject: &str, sequence: u64) -> Result<(), StreamError> {
        let (world, chance) = (&self.world, &self.world.chance);
        let point = format!("{due_subject}#{sequence}");
        self.process.pass(world, &format!("forget/{point}")).await;
        if !chance.strikes("forget-fails", &point) {
            tokio::time::sleep(chance.between("forget", &point, 0, 3)).await;
            world
                .timers
                .purge(world, due_subject, sequence.saturating_add(1));
        }
        self.process.alive().await;
        Ok(())
    }
}

impl StateLog for Log {
    fn load<'a>(&'a self, saga_id: &'a SagaId) -> BoxFuture<'a, Result<Option<Stored>, LoadError>> {
        Box::pin(self.look(saga_id))
    }

    fn commit<'a>(&'a self, write: &'a Write<'a>) -> BoxFuture<'a, CommitOutcome> {
        Box::pin(self.write(write))
    }

    fn forget_due<'a>(
        &'a self,
        due_subject: &'a str,
        sequence: u64,
    ) -> BoxFuture<'a, Result<(), StreamError>> {
        Box::pin(self.forget(due_subject, sequence))
    }
}
