//! Adapter to the state stream: a commit is the record at its expected revision, its events and its
//! timer, in one atomic write.
//!
//! A single message when there is only the record, an atomic batch (ADR-50) otherwise. Concurrent
//! commits are coalesced: while one write is on its way the next one fills. What became of a write is
//! one of four things, see [`CommitOutcome`]; an unknown one is settled by writing the same bytes at
//! the same expected revision again and comparing the nonce, never by reading first.

mod batch;
mod log;
#[cfg(test)]
mod tests;
mod writer;

use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::{self, stream::LastRawMessageErrorKind};
use bytes::Bytes;
use contracts::audit::AuditEntry;
use contracts::id::SagaId;
use contracts::{header, subject};
use jiff::Timestamp;
use serde::Serialize as _;
use tokio::sync::{mpsc, oneshot};

use crate::clock::Clock;
use crate::partition::Partition;
use crate::saga::action::Event;
use crate::saga::record::SagaRecord;

pub use log::StateLog;

/// The records of one partition.
#[derive(Debug, Clone)]
pub struct Store {
    js: jetstream::Context,
    partition: Partition,
    clock: Clock,
    writer: mpsc::Sender<writer::Job>,
}

/// A record and its revision.
#[derive(Debug, Clone)]
pub struct Stored {
    /// The state.
    pub record: SagaRecord,
    /// Its revision: the sequence of its message, 0 for a saga without a record.
    pub revision: u64,
}

/// One atomic write.
#[derive(Debug)]
pub struct Write<'a> {
    /// The new state.
    pub record: &'a SagaRecord,
    /// The revision it replaces; 0 when there must be none.
    pub expected: u64,
    /// Events that belong to it.
    pub events: &'a [Event],
    /// What became of an operator's request that it decides on.
    pub audit: Option<&'a AuditEntry>,
    /// What becomes of the saga's timer.
    pub timer: Timer,
}

/// What a write does to the saga's timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timer {
    /// Leave it.
    Keep,
    /// Arm it, or arm it anew, for this instant.
    Arm(Timestamp),
    /// Take it back.
    Cancel,
}

/// What became of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommitOutcome {
    /// All of it is stored; the record has this revision.
    Written(u64),
    /// None of it is stored: somebody else wrote the record since. Load, decide again.
    Conflict,
    /// None of it is stored, and the same write will be refused again.
    Rejected(String),
    /// Not settled while the server could not be reached. Nothing may be sent on the strength of it.
    Unknown(String),
}

/// Why a record cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The server did not answer; try again.
    #[error("the state stream cannot be read now")]
    Unreachable(#[source] async_nats::jetstream::stream::LastRawMessageError),
    /// What is stored is no record of ours: a case for a person.
    #[error("record {key} cannot be decoded: {message}")]
    Undecodable {
        /// Its key.
        key: String,
        /// What is wrong.
        message: String,
    },
}

impl Store {
    /// Binds to an existing stream and starts the writer task, which ends with the last clone.
    ///
    /// # Errors
    /// When the stream does not exist or cannot be reached.
    pub async fn open(
        js: jetstream::Context,
        partition: Partition,
        clock: Clock,
    ) -> Result<Self, jetstream::context::GetStreamError> {
        js.get_stream(partition.state_stream()).await?;
        let (writer, jobs) = mpsc::channel(writer::QUEUE);
        tokio::spawn(writer::run(js.clone(), jobs));
        Ok(Self {
            js,
            partition,
            clock,
            writer,
        })
    }

    /// Reads a record from the stream's leader; `None` when the saga has none.
    ///
    /// # Errors
    /// [`LoadError`].
    pub async fn load(&self, saga_id: &SagaId) -> Result<Option<Stored>, LoadError> {
        let subject = self.partition.record_subject(&saga_id.key());
        let stream = self
            .js
            .get_stream_no_info(self.partition.state_stream())
            .await
            .map_err(|_| LoadError::Unreachable(LastRawMessageErrorKind::Other.into()))?;
        let message = match stream.get_last_raw_message_by_subject(&subject).await {
            Ok(message) => message,
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => {
                return Ok(None);
            }
            Err(error) => return Err(LoadError::Unreachable(error)),
        };
        let record = decode(&message.payload).map_err(|message| LoadError::Undecodable {
            key: saga_id.key(),
            message,
        })?;
        Ok(Some(Stored {
            record,
            revision: message.sequence,
        }))
    }

    /// Writes all of it or none of it.
    pub async fn commit(&self, write: &Write<'_>) -> CommitOutcome {
        let nonce = self.clock.nonce();
        let mut messages = match self.messages(write, &nonce) {
            Ok(messages) => messages,
            Err(error) => return CommitOutcome::Rejected(error.to_string()),
        };
        let mut cancel = write.timer == Timer::Cancel;
        loop {
            let (done, outcome) = oneshot::channel();
            let job = writer::Job {
                messages: messages.clone(),
                nonce: nonce.clone(),
                done,
            };
            if self.writer.send(job).await.is_err() {
                return CommitOutcome::Unknown("the writer has stopped".to_owned());
            }
            let outcome = outcome
                .await
                .unwrap_or_else(|_| CommitOutcome::Unknown("the writer has stopped".to_owned()));
            // A timer that has fired meanwhile cannot be taken back; its firing is harmless.
            if cancel
                && matches!(&outcome, CommitOutcome::Rejected(text) if batch::is_no_schedule(text))
            {
                cancel = false;
                if let Some(record) = messages.first_mut() {
                    record.headers = record_headers(write.expected, &nonce, None);
                }
                continue;
            }
            return outcome;
        }
    }

    fn messages(
        &self,
        write: &Write<'_>,
        nonce: &str,
    ) -> Result<Vec<batch::Message>, serde_json::Error> {
        let key = write.record.saga_id.key();
        let cancelled = (write.timer == Timer::Cancel).then(|| subject::timer(&key));
        let mut messages = vec![batch::Message {
            subject: self.partition.record_subject(&key),
            headers: record_headers(write.expected, nonce, cancelled.as_deref()),
            payload: encode(write.record)?,
        }];
        for event in write.events {
            messages.push(batch::Message {
                subject: subject::event(&event.region, &write.record.saga_id, event.name),
                headers: once_headers(&write.record.saga_id),
                payload: serde_json::to_vec(&event.body)?.into(),
            });
        }
        if let Some(entry) = write.audit {
            let request = &entry.request;
            messages.push(batch::Message {
                subject: subject::audit(&write.record.saga_id, &request.id, &request.digest()),
                headers: once_headers(&write.record.saga_id),
                payload: serde_json::to_vec(entry)?.into(),
            });
        }
        if let Timer::Arm(at) = write.timer {
            let mut headers = HeaderMap::new();
            headers.insert(
                async_nats::header::NATS_SCHEDULE,
                format!("@at {}", whole_millisecond_up(at)).as_str(),
            );
            headers.insert(
                async_nats::header::NATS_SCHEDULE_TARGET,
                subject::due(&key).as_str(),
            );
            headers.insert(async_nats::header::NATS_SCHEDULE_ROLLUP, "sub");
            headers.insert(header::SAGA_ID, write.record.saga_id.as_str());
            let body = serde_json::json!({ "saga_id": write.record.saga_id, "wake_at": at });
            messages.push(batch::Message {
                subject: subject::timer(&key),
                headers,
                payload: body.to_string().into_bytes().into(),
            });
        }
        Ok(messages)
    }

    /// The partition this store holds.
    #[must_use]
    pub fn partition(&self) -> &Partition {
        &self.partition
    }

    /// Deletes a fired timer that has been acted upon, and older ones of the same saga, but none that
    /// fired since.
    ///
    /// # Errors
    /// When the server refuses or does not answer; the message is harmless.
    pub async fn forget_due(&self, due_subject: &str, sequence: u64) -> Result<(), StreamError> {
        let stream = self
            .js
            .get_stream_no_info(self.partition.state_stream())
            .await?;
        stream
            .purge()
            .filter(due_subject)
            .sequence(sequence.saturating_add(1))
            .await?;
        Ok(())
    }
}

/// A request to the stream failed.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The stream cannot be reached.
    #[error("the state stream cannot be reached")]
    Stream(#[from] jetstream::context::GetStreamError),
    /// The purge failed.
    #[error("fired timers cannot be purged")]
    Purge(#[from] jetstream::stream::PurgeError),
}

/// How long a write of unknown outcome is tried again before its caller is told.
const SETTLE_LIMIT: Duration = Duration::from_secs(60);

/// Decodes a stored record.
///
/// # Errors
/// What is wrong, for a person.
pub fn decode(payload: &[u8]) -> Result<SagaRecord, String> {
    serde_json::from_slice(payload).map_err(|error| error.to_string())
}

/// Indented by one blank: a person reads it with `nats kv get`, and it stays small.
fn encode(record: &SagaRecord) -> Result<Bytes, serde_json::Error> {
    let mut bytes = Vec::with_capacity(2048);
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b" ");
    record.serialize(&mut serde_json::Serializer::with_formatter(
        &mut bytes, formatter,
    ))?;
    Ok(bytes.into())
}

/// Of what stands on its subject once and for good.
fn once_headers(saga_id: &SagaId) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(async_nats::header::NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, "0");
    headers.insert(header::SAGA_ID, saga_id.as_str());
    headers
}

fn record_headers(expected: u64, nonce: &str, cancelled_timer: Option<&str>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(
        async_nats::header::NATS_EXPECTED_LAST_SUBJECT_SEQUENCE,
        expected.to_string().as_str(),
    );
    headers.insert(header::COMMIT_NONCE, nonce);
    if let Some(timer) = cancelled_timer {
        headers.insert(async_nats::header::NATS_SCHEDULER, timer);
        headers.insert(async_nats::header::NATS_SCHEDULE_NEXT, "purge");
    }
    headers
}

/// The server's schedules have a granularity of a quarter second and fire early never; a due message
/// before its time would only be ignored, so the instant goes up to the next millisecond.
fn whole_millisecond_up(at: Timestamp) -> Timestamp {
    at.round(
        jiff::TimestampRound::new()
            .smallest(jiff::Unit::Millisecond)
            .mode(jiff::RoundMode::Ceil),
    )
    .unwrap_or(at)
}
