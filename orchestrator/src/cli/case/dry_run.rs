//! What `--dry-run` prints: the very decision an orchestrator would take, on a copy of the record.

use contracts::audit::OperatorAnswer;
use contracts::intake::OperatorRequest;
use serde::Serialize;

use crate::cli::output::{self, Format, clean, table};
use crate::cli::records::Revision;
use crate::cli::waiting::{participant, turned};
use crate::cli::{CliError, Exit};
use crate::clock::wall_clock;
use crate::saga::action::Command;
use crate::saga::operator::Delta;
use crate::saga::record::{Participant, Status};
use crate::saga::rules::Rules;
use crate::saga::{Preview, Turn, preview};
use crate::workflows::Workflows;

/// As printed for a program.
#[derive(Serialize)]
struct Shown<'a> {
    saga_id: &'a str,
    revision: u64,
    verb: &'static str,
    #[serde(flatten)]
    answer: &'a OperatorAnswer,
    status: Status,
    direction: String,
    commands: Vec<Leaves<'a>>,
    /// Sent once more, under their ids, if another replica decides than the one that drives the saga.
    again: Vec<Leaves<'a>>,
    following: Vec<Leaves<'a>>,
    ends: Status,
    money: &'a [Delta],
}

/// A command that would leave.
#[derive(Serialize)]
struct Leaves<'a> {
    step: &'a str,
    operation_id: &'a str,
    participant: &'a Participant,
    kind: &'a str,
    attempt: u32,
    request: &'a serde_json::Value,
}

impl<'a> Leaves<'a> {
    fn all(commands: &'a [Command]) -> Vec<Self> {
        commands
            .iter()
            .map(|command| Self {
                step: &command.step,
                operation_id: command.operation_id.as_str(),
                participant: &command.participant,
                kind: &command.kind,
                attempt: command.attempt,
                request: &command.request,
            })
            .collect()
    }
}

/// Decides on a copy and prints what came of it.
pub(in crate::cli) fn print(
    shown: &Revision,
    request: &OperatorRequest,
    rules: &Rules,
    format: Format,
) -> Result<Exit, CliError> {
    let workflows = Workflows::default();
    let record = &shown.record;
    let turn = Turn {
        now: wall_clock(),
        replica: &record.owner,
        rules,
    };
    let workflow = workflows.find(&record.workflow, record.version);
    let preview = preview(workflow, record, request, turn);
    match format {
        Format::Json => output::write_json(&Shown {
            saga_id: record.saga_id.as_str(),
            revision: shown.revision,
            verb: request.verb.name(),
            answer: &preview.answer,
            status: preview.record.status,
            direction: clean(&turned(&preview.record)),
            commands: Leaves::all(&preview.commands),
            again: Leaves::all(&preview.again),
            following: Leaves::all(&preview.following),
            ends: preview.status,
            money: &preview.money,
        })?,
        Format::Table => output::write(&page(shown, request, &preview))?,
    }
    Ok(match preview.answer {
        OperatorAnswer::Accepted | OperatorAnswer::Proposed { .. } => Exit::Done,
        OperatorAnswer::Refused { .. } => Exit::Failed,
    })
}

fn page(shown: &Revision, request: &OperatorRequest, preview: &Preview) -> String {
    let verb = request.verb.name();
    let answer = match &preview.answer {
        OperatorAnswer::Accepted => format!("{verb} would be accepted"),
        OperatorAnswer::Refused { why } => format!("{verb} would be refused: {why}"),
        OperatorAnswer::Proposed { why } => format!("{verb} would wait for a second person: {why}"),
    };
    let mut text = clean(&format!(
        "{}  {answer} (revision {}; nothing was stored)",
        shown.record.saga_id, shown.revision
    ));
    text.push('\n');
    if preview.answer != OperatorAnswer::Accepted {
        return text;
    }
    let after = &preview.record;
    let held = if after.is_held() { ", held" } else { "" };
    text.push_str(&clean(&format!(
        "then: {}{held}, {}",
        after.status,
        turned(after)
    )));
    text.push('\n');
    if preview.commands.is_empty() {
        text.push_str("\nNothing leaves at once.\n");
    } else {
        text.push_str("\nCommands that leave at once\n");
        text.push_str(&commands(&preview.commands));
    }
    if !preview.again.is_empty() {
        text.push_str(
            "\nIn flight, and sent once more under their ids if another replica takes the saga over by this\n",
        );
        text.push_str(&commands(&preview.again));
    }
    if !preview.following.is_empty() {
        text.push_str("\nCommands that follow, each when the one before it has been applied\n");
        text.push_str(&commands(&preview.following));
    }
    if preview.money.is_empty() {
        text.push_str("\nNo money moves by these.\n");
    } else {
        text.push_str("\nMoney\n");
        text.push_str(&money(&preview.money));
    }
    if preview.status != after.status {
        text.push_str(&format!(
            "\nWhen all of it is applied: {}\n",
            preview.status
        ));
    }
    text
}

fn commands(commands: &[Command]) -> String {
    let rows = commands.iter().map(|command| {
        [
            command.step.clone(),
            command.operation_id.to_string(),
            participant(&command.participant),
            command.kind.clone(),
            command.attempt.to_string(),
        ]
    });
    table(
        ["STEP", "OPERATION", "PARTICIPANT", "KIND", "ATTEMPT"],
        rows.collect(),
    )
}

fn money(deltas: &[Delta]) -> String {
    let rows = deltas.iter().map(|delta| {
        let certain = match delta.certain {
            true => "",
            false => "only if what it offsets was applied",
        };
        [
            delta.customer.to_string(),
            participant(&delta.participant),
            delta.money.to_string(),
            certain.to_owned(),
        ]
    });
    table(["CUSTOMER", "WALLET AT", "MOVES", ""], rows.collect())
}
