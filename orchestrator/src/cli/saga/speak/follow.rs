//! What became of a message: read from the record of the saga it was for.

use std::time::Duration;

use contracts::audit::OperatorAnswer;
use contracts::id::SagaId;
use contracts::intake::OperatorRequest;
use contracts::subject::short_digest;
use serde::Serialize;

use crate::cli::output::{self, Format, clean};
use crate::cli::records::{Feed, ReadError, Records, Revision};
use crate::cli::{CliError, Exit, waiting};
use crate::clock::wall_clock;
use crate::intake::{case_id_of, message_id_of};
use crate::saga::record::{SagaRecord, Status};

/// A message that is stored.
pub(super) struct Message {
    pub(super) saga_id: SagaId,
    pub(super) sequence: u64,
    /// It was stored before.
    pub(super) repeat: bool,
    /// What it asks for by hand, if it does.
    pub(super) asked: Option<OperatorRequest>,
    pub(super) body: Vec<u8>,
}

/// What is known of it after the wait.
enum Fate {
    /// Nobody was asked, or nothing was heard in time.
    Stored,
    /// The saga has accounted for it.
    TakenUp(Box<SagaRecord>),
    /// The saga did not do what was asked.
    Refused(Box<SagaRecord>, String),
    /// It waits for a second person.
    Proposed(Box<SagaRecord>, String),
    /// It was kept for a person.
    Case(Box<SagaRecord>),
}

/// As printed for a program.
#[derive(Serialize)]
struct Said<'a> {
    saga_id: &'a SagaId,
    key: String,
    sequence: u64,
    repeat: bool,
    taken_up: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    proposed: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    case_id: Option<&'a SagaId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
    #[serde(skip_serializing_if = "Option::is_none")]
    waits_for: Option<String>,
}

impl Message {
    /// Waits, at most so long, until the saga rests after it has taken the message up; prints one line.
    pub(super) async fn follow(
        &self,
        records: &Records,
        bound: Option<Duration>,
        format: Format,
    ) -> Result<Exit, CliError> {
        let fate = match bound {
            None => Fate::Stored,
            Some(bound) => {
                let case = case_id_of(self.sequence, 0, &self.body).key();
                let saga = self.saga_id.key();
                let mut feed = records.watch(&[&saga, &case]).await?;
                let mut fate = Fate::Stored;
                match tokio::time::timeout(bound, self.look(&mut feed, &case, &mut fate)).await {
                    Ok(looked) => looked?,
                    Err(_elapsed) => {}
                }
                fate
            }
        };
        self.print(records, &fate, bound, format)?;
        Ok(match fate {
            Fate::Stored | Fate::TakenUp(_) | Fate::Proposed(..) => Exit::Done,
            Fate::Refused(..) | Fate::Case(_) => Exit::Failed,
        })
    }

    /// Follows the records; `fate` holds what is known so far when this is cut short.
    async fn look(&self, feed: &mut Feed, case: &str, fate: &mut Fate) -> Result<(), ReadError> {
        loop {
            let revision = feed.next().await?.decode()?;
            if revision.key == case {
                *fate = Fate::Case(Box::new(revision.record));
                return Ok(());
            }
            if let Some(known) = self.judge(revision) {
                *fate = known;
            }
            let rests = match &*fate {
                Fate::Stored => false,
                Fate::TakenUp(record) => rests(record),
                Fate::Refused(..) | Fate::Proposed(..) | Fate::Case(_) => true,
            };
            if rests {
                return Ok(());
            }
        }
    }

    /// What a revision says of the message; `None` while it has not been taken up.
    fn judge(&self, revision: Revision) -> Option<Fate> {
        let record = Box::new(revision.record);
        let seen =
            record
                .seen
                .contains(&message_id_of(self.sequence, 0, &short_digest(&self.body)));
        let Some(request) = &self.asked else {
            return (seen || self.repeat).then_some(Fate::TakenUp(record));
        };
        let answer = record.by_hand.action(request)?.answer.clone();
        Some(match answer {
            OperatorAnswer::Accepted => Fate::TakenUp(record),
            OperatorAnswer::Refused { why } => Fate::Refused(record, why),
            OperatorAnswer::Proposed { why } => Fate::Proposed(record, why),
        })
    }

    fn print(
        &self,
        records: &Records,
        fate: &Fate,
        bound: Option<Duration>,
        format: Format,
    ) -> Result<(), CliError> {
        let now = wall_clock();
        if format == Format::Json {
            let (record, refused, case_id) = match fate {
                Fate::Stored => (None, None, None),
                Fate::TakenUp(record) | Fate::Proposed(record, _) => (Some(record), None, None),
                Fate::Refused(record, reason) => (Some(record), Some(reason.as_str()), None),
                Fate::Case(record) => (Some(record), None, Some(&record.saga_id)),
            };
            let proposed = match fate {
                Fate::Proposed(_, why) => Some(why.as_str()),
                Fate::Stored | Fate::TakenUp(_) | Fate::Refused(..) | Fate::Case(_) => None,
            };
            output::write_json(&Said {
                saga_id: &self.saga_id,
                key: self.saga_id.key(),
                sequence: self.sequence,
                repeat: self.repeat,
                taken_up: !matches!(fate, Fate::Stored),
                request_id: self.asked.as_ref().map(|request| request.id.as_str()),
                refused,
                proposed,
                case_id,
                status: record.map(|record| record.status),
                waits_for: record.map(|record| clean(&waiting::sentence(record, now))),
            })?;
            return Ok(());
        }
        if self.repeat {
            output::remark(&format!(
                "said before, as message {}; nothing new was stored",
                self.sequence
            ));
        }
        let stream = records.partition().intake_stream();
        let line = match fate {
            Fate::Stored => match bound {
                None => format!("stored as message {} of {stream}", self.sequence),
                Some(bound) => format!(
                    "stored as message {} of {stream}, not taken up within {}: is an orchestrator serving?",
                    self.sequence,
                    humantime::format_duration(bound)
                ),
            },
            Fate::TakenUp(record) => summary(record),
            Fate::Refused(record, reason) => format!("refused: {reason}; {}", summary(record)),
            Fate::Proposed(_, why) => format!("waits for a second person: {why}"),
            Fate::Case(record) => format!(
                "not taken in: kept as case {}: {}",
                record.saga_id,
                record.case.as_ref().map_or("", |case| &case.message)
            ),
        };
        output::write(&clean(&format!("{}  {line}", self.saga_id)))?;
        output::write("\n")?;
        Ok(())
    }
}

fn summary(record: &SagaRecord) -> String {
    format!(
        "{}: {}",
        record.status,
        waiting::sentence(record, wall_clock())
    )
}

/// Whether nothing more happens without news from outside.
fn rests(record: &SagaRecord) -> bool {
    if record.is_held() {
        return true;
    }
    match record.status {
        Status::Running | Status::Compensating => false,
        Status::Waiting
        | Status::NeedsReview
        | Status::Completed
        | Status::Compensated
        | Status::Cancelled
        | Status::Failed => true,
    }
}
