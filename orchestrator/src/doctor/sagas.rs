//! Does anything drive each open saga? An unacknowledged message or an armed timer must, except where a
//! saga waits for a person; a saga that nothing drives stands still for ever.
//!
//! Records are streamed one by one, so memory does not grow with them. The servers do not tell which
//! single messages are unacknowledged: one beyond the consumer's floor, while some are outstanding, is
//! given the benefit of the doubt. So nothing is reported while it may be on its way, and everything is
//! once the consumers have come to rest.

use super::Check;
use crate::partition::Partition;
use crate::saga::CASE_WORKFLOW;
use crate::saga::record::{SagaRecord, Status};
use crate::store;
use async_nats::jetstream::consumer::{self, AckPolicy, DeliverPolicy, PullConsumer};
use async_nats::jetstream::stream::{LastRawMessageErrorKind, Stream};
use async_nats::jetstream::{self, consumer::pull};
use contracts::subject;
use futures::StreamExt as _;
use serde::Serialize;
use std::time::Duration;

/// Sagas named in a report; the rest is counted.
const NAMED: usize = 20;

/// A scan that hears nothing for so long has lost its consumer.
const SILENCE: Duration = Duration::from_secs(10);

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SagaFindings {
    /// All records.
    pub records: u64,
    /// Sagas that have not ended, cases aside.
    pub open: u64,
    /// Records that wait for a person.
    pub for_a_person: u64,
    /// Open sagas that a timer, armed or just fired, will wake.
    pub on_a_timer: u64,
    /// Open sagas whose message is, or may be, unacknowledged.
    pub on_a_message: u64,
    /// How many sagas nothing drives.
    pub undriven_count: u64,
    /// The first of them.
    pub undriven: Vec<Undriven>,
}

/// A saga that nothing drives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Undriven {
    /// Its key.
    pub key: String,
    /// What is missing.
    pub why: String,
}

/// Why the sagas could not be examined.
#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    /// The server refused or did not answer.
    #[error("{what}")]
    Nats {
        /// What was asked.
        what: &'static str,
        /// Why it failed.
        #[source]
        source: async_nats::Error,
    },
    /// The records stopped coming.
    #[error("no record came for {SILENCE:?}")]
    Silence,
}

/// Reads every record and looks for what drives it. Changes nothing; may run while sagas do.
///
/// # Errors
/// [`ScanError`].
pub async fn sagas(
    js: &jetstream::Context,
    partition: &Partition,
) -> Result<SagaFindings, ScanError> {
    let state = js
        .get_stream(partition.state_stream())
        .await
        .map_err(nats("state stream"))?;
    // Taken first: what was acknowledged by now has left its trace in the records read from now on.
    let scan = Scan {
        intake: Acknowledged::of(js, partition.intake_stream(), partition.intake_consumer())
            .await?,
        timers: Acknowledged::of(js, partition.state_stream(), partition.timers_consumer()).await?,
        state,
        partition,
    };
    let mut findings = SagaFindings::default();
    let consumer: PullConsumer = scan
        .state
        .create_consumer(pull::Config {
            description: Some("reads all saga records once".to_owned()),
            deliver_policy: DeliverPolicy::LastPerSubject,
            ack_policy: AckPolicy::None,
            filter_subject: partition.record_subject(">"),
            inactive_threshold: Duration::from_secs(10),
            memory_storage: true,
            num_replicas: 1,
            ..pull::Config::default()
        })
        .await
        .map_err(nats("consumer of records"))?;
    let mut left = consumer.cached_info().num_pending;
    let mut messages = consumer
        .messages()
        .await
        .map_err(nats("consumer of records"))?;
    while left > 0 {
        let message = match tokio::time::timeout(SILENCE, messages.next()).await {
            Ok(Some(Ok(message))) => message,
            Ok(Some(Err(error))) => return Err(nats("records")(error)),
            Ok(None) | Err(_) => return Err(ScanError::Silence),
        };
        left = message
            .info()
            .map_err(|source| ScanError::Nats {
                what: "records",
                source,
            })?
            .pending;
        scan.look(&message.subject, &message.payload, &mut findings)
            .await?;
    }
    Ok(findings)
}

/// As [`sagas`], for a report: what cannot be learnt is a finding.
pub async fn sagas_check(js: &jetstream::Context, partition: &Partition) -> Check {
    match sagas(js, partition).await {
        Ok(findings) => findings.check(),
        Err(error) => Check::not_safe(
            "sagas",
            crate::telemetry::chain(&error),
            "let this user read KV_saga and make consumers on it, then ask again",
        ),
    }
}

impl SagaFindings {
    /// The same as one check.
    #[must_use]
    pub fn check(&self) -> Check {
        let found = format!(
            "{} open of {} records ({} on a message, {} on a timer), {} for a person",
            self.open, self.records, self.on_a_message, self.on_a_timer, self.for_a_person
        );
        if self.undriven_count == 0 {
            return Check::ok("sagas", found);
        }
        let named: Vec<String> = self
            .undriven
            .iter()
            .map(|undriven| format!("{} ({})", undriven.key, undriven.why))
            .collect();
        Check::not_safe(
            "sagas",
            format!(
                "{found}; nothing drives {}: {}",
                self.undriven_count,
                named.join(", ")
            ),
            "read the record (`nats kv get saga <key>`) and wake it by a message \
             {\"saga_id\": …} on billing.due.<key>; then find out who acknowledged its driver",
        )
    }

    fn undriven(&mut self, key: &str, why: impl Into<String>) {
        self.undriven_count += 1;
        if self.undriven.len() < NAMED {
            self.undriven.push(Undriven {
                key: key.to_owned(),
                why: why.into(),
            });
        }
    }
}

/// Who drives a saga, as far as its record says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Needs {
    /// It has ended.
    Nothing,
    /// A person has to decide.
    Person,
    /// A message or a timer.
    Driver,
    /// It has not ended, and nothing is due.
    Stuck,
}

impl Needs {
    fn of(record: &SagaRecord) -> Self {
        if record.status.is_terminal() {
            Self::Nothing
        } else if record.workflow == CASE_WORKFLOW || record.is_held() {
            Self::Person
        } else if record.wake_at.is_some() {
            Self::Driver
        } else if record.status == Status::NeedsReview {
            Self::Person
        } else {
            Self::Stuck
        }
    }
}

/// What drives a saga.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Driver {
    Message,
    Timer,
}

struct Scan<'a> {
    intake: Acknowledged,
    timers: Acknowledged,
    state: Stream,
    partition: &'a Partition,
}

impl Scan<'_> {
    async fn look(
        &self,
        record_subject: &str,
        payload: &[u8],
        findings: &mut SagaFindings,
    ) -> Result<(), ScanError> {
        let prefix = self.partition.record_subject("");
        let key = record_subject
            .strip_prefix(&prefix)
            .unwrap_or(record_subject);
        // A deleted record leaves an empty mark.
        if payload.is_empty() {
            return Ok(());
        }
        findings.records += 1;
        let Ok(mut record) = store::decode(payload) else {
            findings.undriven(key, "its record cannot be read");
            return Ok(());
        };
        let mut revision = None;
        loop {
            match Needs::of(&record) {
                Needs::Nothing => return Ok(()),
                Needs::Person => {
                    findings.for_a_person += 1;
                    return Ok(());
                }
                Needs::Stuck if revision.is_some() => {
                    findings.open += 1;
                    findings.undriven(key, "it waits for nothing");
                    return Ok(());
                }
                Needs::Driver | Needs::Stuck => {}
            }
            if let Some(driver) = self.driver(key, &record).await? {
                findings.open += 1;
                match driver {
                    Driver::Message => findings.on_a_message += 1,
                    Driver::Timer => findings.on_a_timer += 1,
                }
                return Ok(());
            }
            // It may have moved on since it was read: it counts only if it stands as it was.
            let Some((latest, latest_revision)) = self.latest(record_subject).await? else {
                return Ok(());
            };
            if revision == Some(latest_revision) {
                findings.open += 1;
                findings.undriven(key, "neither an unacknowledged message nor an armed timer");
                return Ok(());
            }
            revision = Some(latest_revision);
            record = latest;
        }
    }

    async fn driver(&self, key: &str, record: &SagaRecord) -> Result<Option<Driver>, ScanError> {
        if self.last(&subject::timer(key)).await?.is_some() {
            return Ok(Some(Driver::Timer));
        }
        if let Some(fired) = self.last(&subject::due(key)).await?
            && self.timers.may_be_outstanding(fired.sequence)
        {
            return Ok(Some(Driver::Timer));
        }
        let mut sequences = record
            .seen
            .iter()
            .filter_map(|id| intake_sequence(id))
            .peekable();
        let held = if sequences.peek().is_none() {
            // The next generation of a saga is driven by its predecessor's message.
            self.intake.any_outstanding()
        } else {
            sequences.any(|sequence| self.intake.may_be_outstanding(sequence))
        };
        Ok(held.then_some(Driver::Message))
    }

    async fn latest(&self, record_subject: &str) -> Result<Option<(SagaRecord, u64)>, ScanError> {
        let Some(message) = self.last(record_subject).await? else {
            return Ok(None);
        };
        Ok(store::decode(&message.payload)
            .ok()
            .map(|record| (record, message.sequence)))
    }

    async fn last(
        &self,
        subject: &str,
    ) -> Result<Option<async_nats::jetstream::message::StreamMessage>, ScanError> {
        match self.state.get_last_raw_message_by_subject(subject).await {
            Ok(message) => Ok(Some(message)),
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(None),
            Err(error) => Err(nats("message of the state stream")(error)),
        }
    }
}

/// How far a consumer's messages are acknowledged.
#[derive(Debug, Clone, Copy)]
struct Acknowledged {
    floor: u64,
    delivered: u64,
    outstanding: bool,
    waiting: bool,
}

impl Acknowledged {
    async fn of(js: &jetstream::Context, stream: &str, name: &str) -> Result<Self, ScanError> {
        let mut consumer: PullConsumer = js
            .get_consumer_from_stream(name, stream)
            .await
            .map_err(nats("consumer"))?;
        let info: &consumer::Info = consumer.info().await.map_err(nats("consumer"))?;
        Ok(Self {
            floor: info.ack_floor.stream_sequence,
            delivered: info.delivered.stream_sequence,
            outstanding: info.num_ack_pending > 0,
            waiting: info.num_pending > 0,
        })
    }

    /// False only when this message has been acknowledged for certain.
    fn may_be_outstanding(&self, sequence: u64) -> bool {
        sequence > self.delivered || (sequence > self.floor && self.outstanding)
    }

    fn any_outstanding(&self) -> bool {
        self.outstanding || self.waiting
    }
}

/// `intake:<sequence>@<digest>` or `intake:<sequence>:<item>@<digest>`, as the intake names its messages.
fn intake_sequence(message_id: &str) -> Option<u64> {
    message_id
        .strip_prefix("intake:")?
        .split([':', '@'])
        .next()?
        .parse()
        .ok()
}

fn nats<E: Into<async_nats::Error>>(what: &'static str) -> impl Fn(E) -> ScanError {
    move |source| ScanError::Nats {
        what,
        source: source.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_acknowledged_for_certain_counts_as_acknowledged() {
        let busy = Acknowledged {
            floor: 10,
            delivered: 20,
            outstanding: true,
            waiting: true,
        };
        let at_rest = Acknowledged {
            outstanding: false,
            ..busy
        };
        for (sequence, while_busy, then) in [
            (9, false, false),
            (10, false, false),
            (15, true, false),
            (21, true, true),
        ] {
            assert_eq!(busy.may_be_outstanding(sequence), while_busy, "{sequence}");
            assert_eq!(at_rest.may_be_outstanding(sequence), then, "{sequence}");
        }
    }

    #[test]
    fn intake_messages_are_known_by_their_ids() {
        for (id, sequence) in [
            ("intake:7@0a1b", Some(7)),
            ("intake:7:3@0a1b", Some(7)),
            ("testpay/x/paid", None),
            ("intake:", None),
        ] {
            assert_eq!(intake_sequence(id), sequence, "{id}");
        }
    }
}
