//! Reads saga records with the rights of a person: single messages of the state stream, and short-lived
//! consumers with names of their own. Nothing here needs the right to write.

use std::time::Duration;

use async_nats::Client;
use async_nats::jetstream;
use async_nats::jetstream::consumer::DeliverPolicy;
use async_nats::jetstream::consumer::pull::{Ordered, OrderedConfig};
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::stream::{
    LastRawMessageErrorKind, RawMessageErrorKind, Stream as JetStream,
};
use bytes::Bytes;
use contracts::id::SagaId;
use futures::StreamExt as _;
use jiff::Timestamp;

use crate::partition::Partition;
use crate::saga::record::SagaRecord;
use crate::store;

/// Longest wait for the next message of a scan that has more to come.
const NEXT_MESSAGE: Duration = Duration::from_secs(20);

/// The records of a partition, for reading.
pub(super) struct Records {
    stream: JetStream<()>,
    js: jetstream::Context,
    partition: Partition,
}

/// Which saga: named by its id or by its key in the bucket. Compared byte for byte, never a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SagaKey(String);

/// One revision of a record as stored.
#[derive(Debug, Clone)]
pub(super) struct Raw {
    pub(super) key: String,
    pub(super) revision: u64,
    pub(super) written_at: Timestamp,
    payload: Bytes,
}

/// One revision of a record, read.
#[derive(Debug, Clone)]
pub(super) struct Revision {
    pub(super) key: String,
    pub(super) revision: u64,
    pub(super) written_at: Timestamp,
    pub(super) record: SagaRecord,
}

/// Why records cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The stream does not answer, or this user may not ask.
    #[error("stream {stream} cannot be read: is it set up, and may this user read it?")]
    Unreachable {
        /// Which stream.
        stream: String,
        /// Why.
        #[source]
        source: async_nats::Error,
    },
    /// What is stored is no record of this version.
    #[error(
        "record {key}, revision {revision}, cannot be decoded (see `nats kv get saga {key} --raw`): {problem}"
    )]
    Undecodable {
        /// Its key.
        key: String,
        /// Its revision.
        revision: u64,
        /// What is wrong.
        problem: String,
    },
    /// There is no such saga.
    #[error("there is no saga {0}: give the whole id or key as `orchestrator saga list` prints it")]
    Missing(String),
}

impl Records {
    /// For reading over this connection.
    pub(super) async fn open(client: &Client, partition: &Partition) -> Result<Self, ReadError> {
        let js = crate::serve::context(client);
        let name = partition.state_stream();
        match js.get_stream_no_info(name).await {
            Ok(stream) => Ok(Self {
                stream,
                js,
                partition: partition.clone(),
            }),
            Err(error) => Err(unreachable(name, error)),
        }
    }

    /// The JetStream context behind it.
    pub(super) fn js(&self) -> &jetstream::Context {
        &self.js
    }

    /// What is stored where.
    pub(super) fn partition(&self) -> &Partition {
        &self.partition
    }

    /// The newest revision, from the stream's leader.
    pub(super) async fn load(&self, key: &SagaKey) -> Result<Revision, ReadError> {
        let subject = self.partition.record_subject(&key.0);
        let found = self.stream.get_last_raw_message_by_subject(&subject).await;
        match found {
            Ok(message) => match self.raw(&message)? {
                Some(raw) => raw.decode(),
                None => Err(ReadError::Missing(key.to_string())),
            },
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => {
                Err(ReadError::Missing(key.to_string()))
            }
            Err(error) => Err(self.unreachable(error)),
        }
    }

    /// All revisions still kept, oldest first.
    pub(super) async fn history(&self, key: &SagaKey) -> Result<Vec<Revision>, ReadError> {
        let subject = self.partition.record_subject(&key.0);
        let mut revisions = Vec::new();
        let mut from = 1;
        loop {
            let found = self
                .stream
                .get_first_raw_message_by_subject(&subject, from)
                .await;
            let message = match found {
                Ok(message) => message,
                Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => {
                    return Ok(revisions);
                }
                Err(error) => return Err(self.unreachable(error)),
            };
            from = message.sequence + 1;
            if let Some(raw) = self.raw(&message)? {
                revisions.push(raw.decode()?);
            }
        }
    }

    /// The newest revision of every record there is now, in the order they were written, one at a time.
    pub(super) async fn scan(&self) -> Result<Scan, ReadError> {
        let subject = self.partition.record_subject(">");
        let feed = self
            .feed(vec![subject], DeliverPolicy::LastPerSubject)
            .await?;
        Ok(Scan {
            left: feed.pending,
            feed,
        })
    }

    /// The newest revisions of these sagas, when they exist, and every one that follows.
    pub(super) async fn watch(&self, keys: &[&str]) -> Result<Feed, ReadError> {
        let subjects = keys.iter().map(|key| self.partition.record_subject(key));
        self.feed(subjects.collect(), DeliverPolicy::LastPerSubject)
            .await
    }

    /// Every revision of any saga from now on.
    pub(super) async fn watch_all(&self) -> Result<Feed, ReadError> {
        let subject = self.partition.record_subject(">");
        self.feed(vec![subject], DeliverPolicy::New).await
    }

    async fn feed(
        &self,
        mut subjects: Vec<String>,
        deliver_policy: DeliverPolicy,
    ) -> Result<Feed, ReadError> {
        let mut config = OrderedConfig {
            name: Some(format!("cli-{}", crate::clock::draw_id())),
            description: Some("orchestrator saga".to_owned()),
            deliver_policy,
            ..OrderedConfig::default()
        };
        match (subjects.pop(), subjects.is_empty()) {
            (Some(only), true) => config.filter_subject = only,
            (last, _) => {
                subjects.extend(last);
                config.filter_subjects = subjects;
            }
        }
        let consumer = self
            .stream
            .create_consumer(config)
            .await
            .map_err(|error| self.unreachable(error))?;
        let pending = consumer.cached_info().num_pending;
        let messages = consumer
            .messages()
            .await
            .map_err(|error| self.unreachable(error))?;
        Ok(Feed {
            messages,
            pending,
            prefix: self.partition.record_subject(""),
            stream: self.partition.state_stream().to_owned(),
        })
    }

    fn raw(&self, message: &StreamMessage) -> Result<Option<Raw>, ReadError> {
        let written_at = Timestamp::from_nanosecond(message.time.unix_timestamp_nanos())
            .map_err(|error| self.unreachable(error))?;
        Ok(Raw::new(
            &self.partition.record_subject(""),
            &message.subject,
            message.sequence,
            written_at,
            message.payload.clone(),
        ))
    }

    fn unreachable(&self, source: impl Into<async_nats::Error>) -> ReadError {
        unreachable(self.partition.state_stream(), source)
    }
}

/// Revisions as they are written.
pub(super) struct Feed {
    messages: Ordered,
    /// How many there were when it began.
    pending: u64,
    prefix: String,
    stream: String,
}

impl Feed {
    /// The next revision; waits for it.
    pub(super) async fn next(&mut self) -> Result<Raw, ReadError> {
        loop {
            let ended = || std::io::Error::other("the consumer ended");
            let message = match self.messages.next().await {
                Some(Ok(message)) => message,
                Some(Err(error)) => return Err(unreachable(&self.stream, error)),
                None => return Err(unreachable(&self.stream, ended())),
            };
            let info = message
                .info()
                .map_err(|error| unreachable(&self.stream, error))?;
            let written_at = Timestamp::from_nanosecond(info.published.unix_timestamp_nanos())
                .map_err(|error| unreachable(&self.stream, error))?;
            let sequence = info.stream_sequence;
            if let Some(raw) = Raw::new(
                &self.prefix,
                &message.subject,
                sequence,
                written_at,
                message.payload.clone(),
            ) {
                return Ok(raw);
            }
        }
    }
}

/// The records there were when the scan began.
pub(super) struct Scan {
    feed: Feed,
    left: u64,
}

impl Scan {
    /// The next record; `None` when all have been seen.
    pub(super) async fn next(&mut self) -> Result<Option<Raw>, ReadError> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        match tokio::time::timeout(NEXT_MESSAGE, self.feed.next()).await {
            Ok(raw) => raw.map(Some),
            Err(_elapsed) => {
                let silence =
                    std::io::Error::other(format!("nothing more within {NEXT_MESSAGE:?}"));
                Err(unreachable(&self.feed.stream, silence))
            }
        }
    }
}

impl Raw {
    /// A message as a revision; `None` for what marks a deleted key.
    fn new(
        prefix: &str,
        subject: &str,
        revision: u64,
        written_at: Timestamp,
        payload: Bytes,
    ) -> Option<Self> {
        let key = subject.strip_prefix(prefix)?.to_owned();
        (!payload.is_empty()).then_some(Self {
            key,
            revision,
            written_at,
            payload,
        })
    }

    /// Reads a part of the record.
    pub(super) fn part<T: serde::de::DeserializeOwned>(&self) -> Result<T, ReadError> {
        serde_json::from_slice(&self.payload).map_err(|error| self.undecodable(error.to_string()))
    }

    /// Reads the record.
    pub(super) fn decode(&self) -> Result<Revision, ReadError> {
        let record = store::decode(&self.payload).map_err(|problem| self.undecodable(problem))?;
        Ok(Revision {
            key: self.key.clone(),
            revision: self.revision,
            written_at: self.written_at,
            record,
        })
    }

    fn undecodable(&self, problem: String) -> ReadError {
        ReadError::Undecodable {
            key: self.key.clone(),
            revision: self.revision,
            problem,
        }
    }
}

impl SagaKey {
    /// The key of a saga.
    pub(super) fn of(saga_id: &SagaId) -> Self {
        Self(saga_id.key())
    }

    /// As in the bucket.
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for SagaKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match contracts::key::decode(&self.0) {
            Some(id) => f.write_str(&id),
            None => f.write_str(&self.0),
        }
    }
}

impl std::str::FromStr for SagaKey {
    type Err = String;

    /// An id has a slash after its workflow and a key never has one, so the two cannot be mixed up.
    fn from_str(text: &str) -> Result<Self, String> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-=".contains(&byte);
        if !text.is_empty() && text.bytes().all(plain) {
            return Ok(Self(text.to_owned()));
        }
        match SagaId::new(text) {
            Ok(saga_id) => Ok(Self::of(&saga_id)),
            Err(error) => Err(format!(
                "a saga id such as deposit/acme/p1, or its key: {error}"
            )),
        }
    }
}

fn unreachable(stream: &str, source: impl Into<async_nats::Error>) -> ReadError {
    ReadError::Unreachable {
        stream: stream.to_owned(),
        source: source.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_and_its_key_name_the_same_saga_and_a_pattern_names_none() {
        for (text, key) in [
            ("deposit/acme/p1", "deposit=2Facme=2Fp1"),
            ("deposit=2Facme=2Fp1", "deposit=2Facme=2Fp1"),
            ("deposit/>", "deposit=2F=3E"),
            ("deposit.*", "deposit=2E=2A"),
            (">", "=3E"),
        ] {
            let parsed: SagaKey = text.parse().expect(text);
            assert_eq!(parsed.as_str(), key, "{text}");
        }
        for text in ["", "deposit/a b", "deposit/\u{e9}"] {
            assert!(text.parse::<SagaKey>().is_err(), "{text:?}");
        }
    }
}
