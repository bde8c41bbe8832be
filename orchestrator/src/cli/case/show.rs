//! `orchestrator case show`.

use contracts::audit::OperatorAnswer;
use contracts::money::Money;
use jiff::Timestamp;
use serde::Serialize;

use crate::cli::moment::{both, instant};
use crate::cli::output::{self, Format, OutputFlag, clean, table};
use crate::cli::records::{Revision, SagaKey};
use crate::cli::saga::records;
use crate::cli::waiting::{pasteable, reason, sentence, turned};
use crate::cli::{CliError, Exit};
use crate::clock::wall_clock;
use crate::config::Config;
use crate::saga::by_hand::{ByHand, OperatorAction};
use crate::saga::operator::{Verb, open_operations};
use crate::saga::record::{Case, SagaRecord, Status};
use crate::saga::{CASE_WORKFLOW, Turn, amount_at_risk, next_verbs, rules};

pub(super) const HELP: &str = "\
Examples:
  orchestrator case show deposit/acme/p1
  orchestrator case show case/intake/7-0/5f4dcc3b5aa7 -o json | jq .next

What can be done stands last, each with a command to be completed and typed.
Exit codes: 0 shown; 1 the record cannot be decoded; 2 there is no such case; 3 NATS cannot be reached; 64 usage.";

/// Flags of `case show`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Show {
    /// The case's or saga's id, or its key in the bucket
    #[arg(value_name = "ID")]
    saga: SagaKey,
    #[command(flatten)]
    output: OutputFlag,
}

/// The case as printed for a program.
#[derive(Serialize)]
struct Shown<'a> {
    saga_id: &'a str,
    key: &'a str,
    revision: u64,
    status: Status,
    waits_for: String,
    case: Option<&'a Case>,
    amount_at_risk: Vec<Money>,
    #[serde(skip_serializing_if = "ByHand::is_empty")]
    by_hand: &'a ByHand,
    next: Vec<Next>,
}

/// Something that can be done.
#[derive(Serialize)]
struct Next {
    verb: &'static str,
    command: String,
}

pub(super) async fn run(command: &Show, config: &Config) -> Result<Exit, CliError> {
    let shown = records(config).await?.load(&command.saga).await?;
    let now = wall_clock();
    match command.output.output {
        Format::Table => output::write(&page(&shown, now))?,
        Format::Json => output::write_json(&Shown {
            saga_id: shown.record.saga_id.as_str(),
            key: &shown.key,
            revision: shown.revision,
            status: shown.record.status,
            waits_for: clean(&sentence(&shown.record, now)),
            case: shown.record.case.as_ref(),
            amount_at_risk: amount_at_risk(&shown.record),
            by_hand: &shown.record.by_hand,
            next: next(&shown.record, now),
        })?,
    }
    Ok(Exit::Done)
}

/// The whole page.
pub(in crate::cli) fn page(shown: &Revision, now: Timestamp) -> String {
    let record = &shown.record;
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        text.push_str(&format!("{name:11} {}\n", clean(value)));
    };
    line("case", record.saga_id.as_str());
    line("key", &shown.key);
    line("status", record.status.as_str());
    match &record.case {
        None => line("reason", "there is no open case"),
        Some(case) => {
            line("reason", reason(case.reason));
            line("message", &case.message);
            line("since", &both(case.since, now));
            line("owner", case.owner.as_deref().unwrap_or("nobody"));
            if let Some(operation) = &case.operation_id {
                line("operation", operation.as_str());
            }
        }
    }
    line("at risk", &sums(&amount_at_risk(record)));
    if record.workflow != CASE_WORKFLOW {
        line("direction", &turned(record));
    }
    if let Some(held) = &record.by_hand.held {
        let by = format!("{} by {}: {}", both(held.since, now), held.by, held.reason);
        line("held", &by);
    }
    if let Some(proposal) = &record.by_hand.proposal {
        let request = &proposal.request;
        let what = format!(
            "{} by {}: {}; somebody else agrees with request {}",
            request.verb.name(),
            request.by,
            request.reason,
            request.id
        );
        line("proposed", &what);
    }
    if let Some(result) = &record.result {
        line("result", &result.to_string());
    }
    if !record.by_hand.actions.is_empty() {
        text.push_str("\nDone by hand\n");
        text.push_str(&actions(&record.by_hand.actions));
    }
    if let Some(case) = &record.case
        && !case.evidence.is_null()
    {
        text.push_str(&format!("\nEvidence\n{}\n", printable(&case.evidence)));
    }
    let next = next(record, now);
    if !next.is_empty() {
        text.push_str("\nWhat can be done (each also with --dry-run, to see beforehand)\n");
        for Next { command, .. } in next {
            text.push_str(&format!("  {command}\n"));
        }
    }
    text
}

/// JSON over several lines, without what could command a terminal.
fn printable(value: &serde_json::Value) -> String {
    format!("{value:#}")
        .lines()
        .map(clean)
        .collect::<Vec<_>>()
        .join("\n")
}

/// Several sums in one line.
pub(in crate::cli) fn sums(amounts: &[Money]) -> String {
    if amounts.is_empty() {
        return "nothing".to_owned();
    }
    let texts: Vec<String> = amounts.iter().map(ToString::to_string).collect();
    texts.join(", ")
}

/// What people did.
pub(in crate::cli) fn actions(actions: &[OperatorAction]) -> String {
    let rows = actions.iter().map(|action| {
        let answer = match &action.answer {
            OperatorAnswer::Accepted => "accepted".to_owned(),
            OperatorAnswer::Refused { why } => format!("refused: {why}"),
            OperatorAnswer::Proposed { why } => format!("proposed: {why}"),
        };
        [
            instant(action.at),
            action.verb.name().to_owned(),
            action.by.clone(),
            action.reason.clone(),
            answer,
            action.id.clone(),
        ]
    });
    table(
        ["AT", "VERB", "BY", "REASON", "ANSWER", "REQUEST"],
        rows.collect(),
    )
}

fn next(record: &SagaRecord, now: Timestamp) -> Vec<Next> {
    let turn = Turn {
        now,
        replica: "cli",
        rules: &rules::DEFAULT,
    };
    next_verbs(record, turn)
        .into_iter()
        .flat_map(|verb| {
            commands(record, verb, now)
                .into_iter()
                .map(move |command| Next {
                    verb: verb.name(),
                    command,
                })
        })
        .collect()
}

fn commands(record: &SagaRecord, verb: Verb, now: Timestamp) -> Vec<String> {
    let id = pasteable(record.saga_id.as_str());
    let case =
        |verb: &str, more: &str| format!("orchestrator case {verb} {id}{more} --reason TEXT");
    match verb {
        Verb::Cancel => vec![format!("orchestrator saga cancel {id} --reason TEXT")],
        Verb::Assign => vec![case("assign", " --owner NAME")],
        Verb::Resolve if record.workflow == CASE_WORKFLOW => vec![case("resolve", "")],
        Verb::Resolve => open_operations(record, now)
            .into_iter()
            .flat_map(|open| {
                let findings = match open.may_be_not_applied {
                    true => &["--applied", "--not-applied"][..],
                    false => &["--applied"][..],
                };
                let operation = pasteable(open.operation_id.as_str());
                findings
                    .iter()
                    .map(|finding| {
                        let more = format!(" {finding} --operation {operation} --evidence TEXT");
                        case("resolve", &more)
                    })
                    .collect::<Vec<_>>()
            })
            .collect(),
        Verb::Approve => {
            let request = record.by_hand.proposal.as_ref();
            let request = request.map_or("ID", |proposal| proposal.request.id.as_str());
            vec![case(
                "approve",
                &format!(" --request {}", pasteable(request)),
            )]
        }
        Verb::Recheck | Verb::Compensate | Verb::RetryNow | Verb::Hold | Verb::Release => {
            vec![case(verb.name(), "")]
        }
    }
}
