//! `orchestrator saga list` and `orchestrator case list`.

use std::collections::{BTreeMap, VecDeque};

use jiff::{SignedDuration, Timestamp};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::records;
use crate::cli::case::sums as at_risk;
use crate::cli::moment::{from_now, instant};
use crate::cli::output::{self, Format, OutputFlag, clean};
use crate::cli::records::{Raw, ReadError, Records, Revision};
use crate::cli::{CliError, Exit, waiting};
use crate::clock::wall_clock;
use crate::config::Config;
use crate::saga::amount_at_risk;
use crate::saga::record::Status;

pub(super) const HELP: &str = "\
Examples:
  orchestrator saga list --status needs_review
  orchestrator saga list --stuck 15m
  orchestrator saga list --workflow deposit --attribute customer=cust-a --limit 10
  orchestrator saga list -o json | jq -r '.sagas[].saga_id'

Exit codes: 0 listed, also when there is none; 1 a record cannot be decoded; 3 NATS cannot be reached; 64 usage.";

pub(in crate::cli) const CASES_HELP: &str = "\
Examples:
  orchestrator case list
  orchestrator case list --workflow case -o json

A case is a saga, or a message that no saga could take in, that waits for a person; also listed is what is overdue
and goes on being tried, and what somebody holds. `orchestrator case show ID` says what can be done.
Exit codes: 0 listed, also when there is none; 1 a record cannot be decoded; 3 NATS cannot be reached; 64 usage.";

/// Flags of `saga list`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct List {
    /// Only this status: running, waiting, compensating, needs_review, completed, compensated, cancelled or failed
    #[arg(long, value_name = "STATUS", value_parser = status)]
    status: Option<Status>,
    /// Only open sagas to which nothing has been confirmed from outside for so long, such as 15m
    #[arg(long, value_name = "TIME", value_parser = age)]
    stuck: Option<SignedDuration>,
    #[command(flatten)]
    filter: Filter,
}

/// Flags of `case list`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Cases {
    #[command(flatten)]
    filter: Filter,
}

#[derive(Debug, clap::Args)]
struct Filter {
    /// Only sagas of this workflow
    #[arg(long, value_name = "NAME")]
    workflow: Option<String>,
    /// Only sagas with this search attribute; all of them when given more than once
    #[arg(long = "attribute", value_name = "NAME=VALUE", value_parser = attribute)]
    attributes: Vec<(String, String)>,
    /// At most so many, those that changed last
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
    #[command(flatten)]
    output: OutputFlag,
}

fn status(text: &str) -> Result<Status, String> {
    let names = || Status::ALL.map(Status::as_str).join(", ");
    Status::ALL
        .into_iter()
        .find(|status| status.as_str() == text)
        .ok_or_else(|| format!("one of {}", names()))
}

fn age(text: &str) -> Result<SignedDuration, String> {
    let age = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    SignedDuration::try_from(age).map_err(|error| error.to_string())
}

fn attribute(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        Some(_) | None => Err("write NAME=VALUE, such as customer=cust-a".to_owned()),
    }
}

/// What a filter reads of a record: the rest is decoded only for what is printed.
#[derive(Deserialize)]
struct Brief {
    workflow: String,
    status: Status,
    last_progress_at: Timestamp,
    #[serde(default)]
    attributes: BTreeMap<String, String>,
    #[serde(default)]
    case: Option<IgnoredAny>,
    #[serde(default)]
    by_hand: BriefByHand,
}

#[derive(Default, Deserialize)]
struct BriefByHand {
    #[serde(default)]
    held: Option<IgnoredAny>,
}

impl Brief {
    fn is_case(&self) -> bool {
        self.status == Status::NeedsReview || self.case.is_some() || self.by_hand.held.is_some()
    }
}

/// What was found.
struct Found {
    /// Newest first.
    revisions: Vec<Revision>,
    /// How many more match.
    more: u64,
    undecodable: Vec<ReadError>,
}

pub(super) async fn run(command: &List, records: &Records) -> Result<Exit, CliError> {
    let now = wall_clock();
    let wanted = Wanted {
        status: command.status,
        // Counted from the last confirmation, not from the last write: a saga that tries in vain writes too.
        stuck_since: command
            .stuck
            .map(|age| now.checked_sub(age).unwrap_or(Timestamp::MIN)),
        cases: false,
        filter: &command.filter,
    };
    let found = find(&wanted, records).await?;
    match command.filter.output.output {
        Format::Json => output::write_json(&Listing::new(&found, now))?,
        Format::Table => output::write(&sagas(&found.revisions, now))?,
    }
    Ok(conclude(&found, &command.filter))
}

pub(in crate::cli) async fn cases(command: &Cases, config: &Config) -> Result<Exit, CliError> {
    let records = records(config).await?;
    let wanted = Wanted {
        status: None,
        stuck_since: None,
        cases: true,
        filter: &command.filter,
    };
    let found = find(&wanted, &records).await?;
    match command.filter.output.output {
        Format::Json => output::write_json(&Listing::new(&found, wall_clock()))?,
        Format::Table => output::write(&reasons(&found.revisions))?,
    }
    Ok(conclude(&found, &command.filter))
}

/// Goes through all records once and keeps the last ones that match, however many there are.
async fn find(wanted: &Wanted<'_>, records: &Records) -> Result<Found, ReadError> {
    let mut scan = records.scan().await?;
    let mut kept: VecDeque<Raw> = VecDeque::new();
    let mut found = Found {
        revisions: Vec::new(),
        more: 0,
        undecodable: Vec::new(),
    };
    while let Some(raw) = scan.next().await? {
        match raw.part::<Brief>() {
            Ok(brief) if wanted.matches(&brief) => {
                kept.push_back(raw);
                if kept.len() > wanted.filter.limit {
                    kept.pop_front();
                    found.more += 1;
                }
            }
            Ok(_) => {}
            Err(error) => found.undecodable.push(error),
        }
    }
    for raw in kept.iter().rev() {
        match raw.decode() {
            Ok(revision) => found.revisions.push(revision),
            Err(error) => found.undecodable.push(error),
        }
    }
    Ok(found)
}

/// Which records are listed.
struct Wanted<'a> {
    status: Option<Status>,
    stuck_since: Option<Timestamp>,
    /// Only what waits for a person, with what is overdue and goes on being tried, and what a person holds.
    cases: bool,
    filter: &'a Filter,
}

impl Wanted<'_> {
    fn matches(&self, brief: &Brief) -> bool {
        let Filter {
            workflow,
            attributes,
            ..
        } = self.filter;
        self.status.is_none_or(|status| status == brief.status)
            && self
                .stuck_since
                .is_none_or(|since| !brief.status.is_terminal() && brief.last_progress_at <= since)
            && (!self.cases || brief.is_case())
            && workflow
                .as_ref()
                .is_none_or(|workflow| *workflow == brief.workflow)
            && attributes
                .iter()
                .all(|(name, value)| brief.attributes.get(name) == Some(value))
    }
}

fn conclude(found: &Found, filter: &Filter) -> Exit {
    if filter.output.output == Format::Table {
        match (found.more, found.revisions.len()) {
            (0, 0) => output::remark("none"),
            (0, _) => {}
            (more, _) => output::remark(&format!("{more} more; give --limit or narrow it down")),
        }
    }
    for error in &found.undecodable {
        output::remark(&format!("orchestrator: {error}"));
    }
    if found.undecodable.is_empty() {
        Exit::Done
    } else {
        Exit::Failed
    }
}

fn sagas(revisions: &[Revision], now: Timestamp) -> String {
    let rows = revisions.iter().map(|revision| {
        let record = &revision.record;
        let attributes: Vec<String> = ["customer", "region", "amount"]
            .into_iter()
            .map(|name| record.attributes.get(name).cloned().unwrap_or_default())
            .collect();
        let [customer, region, amount] = attributes.try_into().unwrap_or_default();
        [
            name(revision),
            record.status.to_string(),
            record.phase.clone().unwrap_or_default(),
            customer,
            region,
            amount,
            from_now(record.started_at, now),
            from_now(revision.written_at, now),
        ]
    });
    let head = [
        "SAGA", "STATUS", "PHASE", "CUSTOMER", "REGION", "AMOUNT", "STARTED", "CHANGED",
    ];
    output::table(head, rows.collect())
}

fn reasons(revisions: &[Revision]) -> String {
    let rows = revisions.iter().map(|revision| {
        let case = revision.record.case.as_ref();
        let held = revision.record.by_hand.held.as_ref();
        let owner = case.and_then(|case| case.owner.clone());
        let (reason, since, message) = match (case, held) {
            (Some(case), _) => (
                waiting::reason(case.reason),
                Some(case.since),
                &case.message,
            ),
            (None, Some(held)) => ("held", Some(held.since), &held.reason),
            (None, None) => ("", None, &revision.record.cause),
        };
        [
            name(revision),
            reason.to_owned(),
            since.map_or_else(String::new, instant),
            owner.unwrap_or_default(),
            at_risk(&amount_at_risk(&revision.record)),
            message.clone(),
        ]
    });
    let head = ["SAGA", "REASON", "SINCE", "OWNER", "AT RISK", "MESSAGE"];
    output::table(head, rows.collect())
}

/// Longest id shown where its key is shorter; either can be pasted back.
const LONGEST_ID: usize = 96;

/// The id, or the key where the id would push everything off the screen.
fn name(revision: &Revision) -> String {
    let id = revision.record.saga_id.as_str();
    if id.len() > LONGEST_ID && revision.key.len() < id.len() {
        revision.key.clone()
    } else {
        id.to_owned()
    }
}

/// The list as printed for a program.
#[derive(Serialize)]
struct Listing<'a> {
    sagas: Vec<Entry<'a>>,
    more: u64,
    undecodable: Vec<String>,
}

#[derive(Serialize)]
struct Entry<'a> {
    saga_id: &'a str,
    key: &'a str,
    revision: u64,
    workflow: &'a str,
    version: u32,
    status: Status,
    #[serde(skip_serializing_if = "Option::is_none")]
    phase: Option<&'a str>,
    started_at: Timestamp,
    changed_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_at: Option<Timestamp>,
    attributes: &'a BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    case: Option<&'a crate::saga::record::Case>,
    waits_for: String,
}

impl<'a> Listing<'a> {
    fn new(found: &'a Found, now: Timestamp) -> Self {
        let entry = |revision: &'a Revision| {
            let record = &revision.record;
            Entry {
                saga_id: record.saga_id.as_str(),
                key: &revision.key,
                revision: revision.revision,
                workflow: &record.workflow,
                version: record.version,
                status: record.status,
                phase: record.phase.as_deref(),
                started_at: record.started_at,
                changed_at: revision.written_at,
                ended_at: record.ended_at,
                attributes: &record.attributes,
                case: record.case.as_ref(),
                waits_for: clean(&waiting::sentence(record, now)),
            }
        };
        Self {
            sagas: found.revisions.iter().map(entry).collect(),
            more: found.more,
            undecodable: found.undecodable.iter().map(ToString::to_string).collect(),
        }
    }
}
