//! `orchestrator saga watch`.

use std::time::Duration;

use serde::Serialize;

use crate::cli::moment::instant;
use crate::cli::output::{self, Format, OutputFlag, clean};
use crate::cli::records::{Feed, Records, Revision, SagaKey};
use crate::cli::{CliError, Exit};
use crate::saga::record::{SagaRecord, Status};
use jiff::Timestamp;

pub(super) const HELP: &str = "\
Examples:
  orchestrator saga watch deposit/acme/p1
  orchestrator saga watch deposit/acme/p1 --timeout 5m && echo paid
  orchestrator saga watch --all -o json | jq -r '.record.status'

Watching one saga ends when the saga ends. With -o json each revision is one line.
Exit codes: 0 it completed; 1 it ended otherwise, or had not ended within --timeout; 2 there is no such saga;
3 NATS cannot be reached; 64 usage.";

/// Flags of `saga watch`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Watch {
    /// The saga's id, or its key in the bucket
    #[arg(value_name = "ID", required_unless_present = "all")]
    saga: Option<SagaKey>,
    /// Every saga, from now on
    #[arg(long, conflicts_with = "saga")]
    all: bool,
    /// Give up after this time
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    timeout: Option<Duration>,
    #[command(flatten)]
    output: OutputFlag,
}

#[derive(Serialize)]
struct Line<'a> {
    key: &'a str,
    revision: u64,
    changed_at: Timestamp,
    record: &'a SagaRecord,
}

pub(super) async fn run(command: &Watch, records: &Records) -> Result<Exit, CliError> {
    let mut feed = match &command.saga {
        Some(key) => {
            records.load(key).await?;
            records.watch(&[key.as_str()]).await?
        }
        None => records.watch_all().await?,
    };
    let watching = follow(command, &mut feed);
    let Some(bound) = command.timeout else {
        return watching.await;
    };
    match tokio::time::timeout(bound, watching).await {
        Ok(result) => result,
        Err(_elapsed) if command.all => Ok(Exit::Done),
        Err(_elapsed) => {
            output::remark(&format!(
                "orchestrator: not ended within {}",
                humantime::format_duration(bound)
            ));
            Ok(Exit::Failed)
        }
    }
}

async fn follow(command: &Watch, feed: &mut Feed) -> Result<Exit, CliError> {
    loop {
        let revision = match feed.next().await?.decode() {
            Ok(revision) => revision,
            Err(error) if command.all => {
                output::remark(&format!("orchestrator: {error}"));
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        match command.output.output {
            Format::Json => output::write_json_line(&Line {
                key: &revision.key,
                revision: revision.revision,
                changed_at: revision.written_at,
                record: &revision.record,
            })?,
            Format::Table => output::write(&line(&revision))?,
        }
        if !command.all && revision.record.status.is_terminal() {
            return Ok(match revision.record.status {
                Status::Completed => Exit::Done,
                Status::Running
                | Status::Waiting
                | Status::Compensating
                | Status::NeedsReview
                | Status::Compensated
                | Status::Cancelled
                | Status::Failed => Exit::Failed,
            });
        }
    }
}

fn line(revision: &Revision) -> String {
    let record = &revision.record;
    let phase = record.phase.as_deref().unwrap_or("-");
    let text = format!(
        "{}  {}  {:12}  {phase:12}  {}",
        instant(revision.written_at),
        record.saga_id,
        record.status.as_str(),
        record.cause
    );
    format!("{}\n", clean(&text))
}
