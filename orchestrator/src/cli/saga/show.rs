//! `orchestrator saga show`.

mod timeline;

#[cfg(test)]
pub(in crate::cli) use timeline::render as page;

use serde::Serialize;

use crate::cli::moment::instant;
use crate::cli::output::{self, Format, OutputFlag};
use crate::cli::records::{Records, Revision, SagaKey};
use crate::cli::{CliError, Exit, waiting};
use crate::clock::wall_clock;
use crate::saga::record::{SagaRecord, Status};
use jiff::Timestamp;

pub(super) const HELP: &str = "\
Examples:
  orchestrator saga show deposit/acme/p1
  orchestrator saga show deposit=2Facme=2Fp1 --history
  orchestrator saga show deposit/acme/p1 -o json | jq .record.steps

Exit codes: 0 shown; 1 the record cannot be decoded; 2 there is no such saga; 3 NATS cannot be reached; 64 usage.";

/// Flags of `saga show`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Show {
    /// The saga's id, or its key in the bucket
    #[arg(value_name = "ID")]
    saga: SagaKey,
    /// Also every revision still kept, with its cause: the journal of decisions
    #[arg(long)]
    history: bool,
    #[command(flatten)]
    output: OutputFlag,
}

/// The saga as printed for a program.
#[derive(Serialize)]
struct Shown<'a> {
    key: &'a str,
    revision: u64,
    changed_at: Timestamp,
    waits_for: String,
    record: &'a SagaRecord,
    #[serde(skip_serializing_if = "Option::is_none")]
    history: Option<Vec<Entry<'a>>>,
}

/// One revision.
#[derive(Serialize)]
struct Entry<'a> {
    revision: u64,
    changed_at: Timestamp,
    status: Status,
    epoch: u64,
    owner: &'a str,
    cause: &'a str,
}

impl<'a> Entry<'a> {
    fn new(revision: &'a Revision) -> Self {
        Self {
            revision: revision.revision,
            changed_at: revision.written_at,
            status: revision.record.status,
            epoch: revision.record.epoch,
            owner: &revision.record.owner,
            cause: &revision.record.cause,
        }
    }
}

pub(super) async fn run(command: &Show, records: &Records) -> Result<Exit, CliError> {
    let shown = records.load(&command.saga).await?;
    let history = match command.history {
        true => Some(records.history(&command.saga).await?),
        false => None,
    };
    let now = wall_clock();
    match command.output.output {
        Format::Json => output::write_json(&Shown {
            key: &shown.key,
            revision: shown.revision,
            changed_at: shown.written_at,
            waits_for: output::clean(&waiting::sentence(&shown.record, now)),
            record: &shown.record,
            history: history
                .as_ref()
                .map(|history| history.iter().map(Entry::new).collect()),
        })?,
        Format::Table => {
            let mut text = timeline::render(&shown, now);
            if let Some(history) = &history {
                text.push_str("\nHistory\n");
                text.push_str(&journal(history));
            }
            output::write(&text)?;
        }
    }
    Ok(Exit::Done)
}

fn journal(history: &[Revision]) -> String {
    let rows = history.iter().map(|revision| {
        let entry = Entry::new(revision);
        [
            entry.revision.to_string(),
            instant(entry.changed_at),
            entry.status.to_string(),
            entry.epoch.to_string(),
            entry.cause.to_owned(),
        ]
    });
    output::table(
        ["REVISION", "AT", "STATUS", "EPOCH", "CAUSE"],
        rows.collect(),
    )
}
