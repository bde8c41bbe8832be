//! `orchestrator setup` and `orchestrator doctor`.

use super::output::{self, Format, OutputFlag};
use super::{CliError, Exit, connect};
use crate::config::{Config, PartitionFlags};
use crate::doctor::{self, Check, Level};
use crate::setup;
use region_agent::nats_options::{NatsOptions, WhenUnreachable};
use serde::Serialize;

pub(super) const SETUP_HELP: &str = "\
Examples:
  orchestrator setup --context core
  orchestrator setup --replicas 3 -o json

What is missing is created; what exists is compared field by field and never altered.
Exit codes: 0 everything is as declared; 1 something differs; 3 NATS cannot be reached; 64 usage.";

pub(super) const DOCTOR_HELP: &str = "\
Examples:
  orchestrator doctor --context core
  orchestrator doctor --monitor http://nats-1:8222 --monitor http://nats-2:8222
  orchestrator doctor --system-context sys -o json

Exit codes: 0 safe (look at warnings); 1 unsafe; 3 NATS cannot be reached; 64 usage.";

/// Flags of `setup`.
#[derive(Debug, clap::Args)]
pub(super) struct Setup {
    #[command(flatten)]
    pub(super) partition: PartitionFlags,
    #[command(flatten)]
    output: OutputFlag,
}

/// Flags of `doctor`.
#[derive(Debug, clap::Args)]
pub(super) struct Doctor {
    #[command(flatten)]
    pub(super) partition: PartitionFlags,
    /// Context of the NATS CLI in the system account, where our own account may not ask the servers
    #[arg(long, value_name = "NAME")]
    system_context: Option<String>,
    /// Monitoring address of a server, asked when nothing else answers; give it once for each server
    #[arg(long = "monitor", value_name = "URL")]
    monitors: Vec<String>,
    #[command(flatten)]
    output: OutputFlag,
}

pub(super) async fn setup(command: &Setup, config: &Config) -> Result<Exit, CliError> {
    let client = connect(config, "orchestrator setup").await?;
    let report = setup::apply(&client, &config.partition).await?;
    match command.output.output {
        Format::Table => output::write(&report.render())?,
        Format::Json => output::write_json(&report)?,
    }
    Ok(if report.is_as_declared() {
        Exit::Done
    } else {
        Exit::Failed
    })
}

/// The report with its verdict, as printed for a program.
#[derive(Serialize)]
struct Verdict<'a> {
    level: Level,
    checks: &'a [Check],
}

pub(super) async fn doctor(command: &Doctor, config: &Config) -> Result<Exit, CliError> {
    let client = connect(config, "orchestrator doctor").await?;
    let system = match &command.system_context {
        None => None,
        Some(name) => {
            let options = NatsOptions {
                context: Some(name.clone()),
                ..NatsOptions::default()
            };
            let connected = options
                .connect("orchestrator doctor", WhenUnreachable::Fail)
                .await;
            Some(connected.map_err(CliError::Connect)?)
        }
    };
    let options = doctor::Options {
        system,
        monitors: command.monitors.clone(),
        ..crate::serve::doctor_options(&config.partition)
    };
    let mut report = doctor::examine(&client, &options).await;
    let js = crate::serve::context(&client);
    report
        .checks
        .push(doctor::sagas_check(&js, &config.partition).await);
    let level = report.level();
    match command.output.output {
        Format::Table => output::write(&report.render())?,
        Format::Json => output::write_json(&Verdict {
            level,
            checks: &report.checks,
        })?,
    }
    Ok(match level {
        Level::Ok | Level::Warn => Exit::Done,
        Level::Unsafe => Exit::Failed,
    })
}
