//! Every record and event, as the state stream has them: the latest of each, kept up to date.

use super::flows::FLOW_COMPLETED;
use anyhow::Context as _;
use async_nats::jetstream;
use async_nats::jetstream::consumer::{DeliverPolicy, pull};
use contracts::event::{DEPOSIT_COMPLETED, DepositCompleted};
use contracts::id::SagaId;
use contracts::subject;
use futures::StreamExt as _;
use orchestrator::partition::Partition;
use orchestrator::saga::CASE_WORKFLOW;
use orchestrator::saga::record::SagaRecord;
use orchestrator::store;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Pause before the stream is read anew, after its server went away.
const PAUSE: Duration = Duration::from_millis(100);

/// How often a condition that also rests on other things than the stream is looked at.
const POLL: Duration = Duration::from_millis(100);

/// The records and events.
#[derive(Debug)]
pub struct View {
    state: Arc<Mutex<State>>,
    changed: watch::Sender<u64>,
    task: JoinHandle<()>,
}

/// A stored record.
#[derive(Debug, Clone)]
pub struct Stored {
    /// The record.
    pub record: SagaRecord,
    /// The bytes it takes.
    pub bytes: usize,
    /// Its revision.
    pub revision: u64,
}

#[derive(Debug, Deserialize)]
struct FlowCompleted {
    saga_id: SagaId,
}

#[derive(Debug, Default)]
struct State {
    records: BTreeMap<String, (u64, Stored)>,
    deposits: BTreeMap<u64, DepositCompleted>,
    finished: BTreeMap<u64, SagaId>,
}

impl View {
    /// Reads the stream from its beginning and goes on reading.
    #[must_use]
    pub fn start(js: jetstream::Context, partition: Partition) -> Self {
        let state: Arc<Mutex<State>> = Arc::default();
        let changed = watch::Sender::new(0);
        let (into, tell) = (Arc::clone(&state), changed.clone());
        let task = tokio::spawn(async move {
            loop {
                if read(&js, &partition, &into, &tell).await.is_err() {
                    tokio::time::sleep(PAUSE).await;
                }
            }
        });
        Self {
            state,
            changed,
            task,
        }
    }

    /// The records of sagas whose ids begin with one of these, and every case record about one of them
    /// or about one of these intake messages.
    #[must_use]
    pub fn records(&self, sagas: &[String], sequences: &[u64]) -> Vec<Stored> {
        let belongs = |record: &SagaRecord| {
            let about = if record.workflow == CASE_WORKFLOW {
                let evidence = record.case.as_ref().map(|case| &case.evidence);
                let sequence = evidence.and_then(|evidence| evidence["sequence"].as_u64());
                if sequence.is_some_and(|sequence| sequences.contains(&sequence)) {
                    return true;
                }
                evidence
                    .and_then(|evidence| evidence["saga_id"].as_str())
                    .unwrap_or_default()
                    .to_owned()
            } else {
                record.saga_id.to_string()
            };
            sagas.iter().any(|saga| about.starts_with(saga.as_str()))
        };
        let state = self.lock();
        let records = state.records.values().map(|(_, stored)| stored);
        records
            .filter(|stored| belongs(&stored.record))
            .cloned()
            .collect()
    }

    /// The deposit events of sagas whose ids begin with one of these.
    #[must_use]
    pub fn deposits(&self, sagas: &[String]) -> Vec<DepositCompleted> {
        let state = self.lock();
        let deposits = state.deposits.values().filter(|deposit| {
            let saga = deposit.saga_id.as_str();
            sagas.iter().any(|start| saga.starts_with(start.as_str()))
        });
        deposits.cloned().collect()
    }

    /// The sagas of the cases' own workflows that have put their event in the log, once for each event.
    #[must_use]
    pub fn finished(&self, sagas: &[String]) -> Vec<SagaId> {
        let state = self.lock();
        let finished = state.finished.values().filter(|saga| {
            let saga = saga.as_str();
            sagas.iter().any(|start| saga.starts_with(start.as_str()))
        });
        finished.cloned().collect()
    }

    /// Looks again whenever something was written, and now and then besides, until `probe` gives
    /// something or the time is over.
    pub async fn until<T, F>(&self, bound: Duration, mut probe: impl FnMut() -> F) -> Option<T>
    where
        F: Future<Output = Option<T>>,
    {
        let mut changes = self.changed.subscribe();
        let looking = async {
            loop {
                changes.mark_unchanged();
                if let Some(found) = probe().await {
                    return found;
                }
                // Either way it is time to look again.
                tokio::time::timeout(POLL, changes.changed()).await.ok();
            }
        };
        tokio::time::timeout(bound, looking).await.ok()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn read(
    js: &jetstream::Context,
    partition: &Partition,
    into: &Mutex<State>,
    changed: &watch::Sender<u64>,
) -> anyhow::Result<()> {
    let stream = js.get_stream_no_info(partition.state_stream()).await?;
    let consumer = stream
        .create_consumer(pull::OrderedConfig {
            filter_subjects: vec![partition.record_subject(">"), subject::EVENTS.to_owned()],
            deliver_policy: DeliverPolicy::LastPerSubject,
            ..pull::OrderedConfig::default()
        })
        .await?;
    let mut messages = consumer.messages().await?;
    while let Some(message) = messages.next().await {
        let message = message.context("reading the state stream")?;
        let sequence = message.info().map_err(anyhow::Error::msg)?.stream_sequence;
        let mut state = into.lock().unwrap_or_else(PoisonError::into_inner);
        if message.subject.starts_with("$KV.") {
            // What is no record is no saga's either; a case puts such a thing there.
            if let Ok(record) = store::decode(&message.payload) {
                let bytes = message.payload.len();
                let newest = state
                    .records
                    .get(message.subject.as_str())
                    .is_none_or(|(known, _)| *known < sequence);
                if newest {
                    let stored = Stored {
                        record,
                        bytes,
                        revision: sequence,
                    };
                    let stored = (sequence, stored);
                    state.records.insert(message.subject.to_string(), stored);
                }
            }
        } else if message.subject.ends_with(DEPOSIT_COMPLETED)
            && let Ok(deposit) = serde_json::from_slice(&message.payload)
        {
            state.deposits.insert(sequence, deposit);
        } else if message.subject.ends_with(FLOW_COMPLETED) {
            let event: FlowCompleted = serde_json::from_slice(&message.payload)?;
            state.finished.insert(sequence, event.saga_id);
        }
        drop(state);
        changed.send_modify(|count| *count += 1);
    }
    Ok(())
}
