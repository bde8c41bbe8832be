//! `orchestrator demo` and `orchestrator up`.

use super::{CliError, Exit};
use crate::demo::{self, Output, Verdict};
use std::path::PathBuf;

pub(super) const DEMO_HELP: &str = "\
Examples:
  orchestrator demo
  orchestrator demo --json

Needs nats-server 2.15 or newer (`make tools` gets one) and region-agent beside this program. Takes free
ports and a temporary directory, and leaves nothing behind; after a failure the logs are kept.
Exit codes: 0 every check holds; 1 one does not, or the system could not be run.";

pub(super) const UP_HELP: &str = "\
Examples:
  orchestrator up
  orchestrator up --dir /tmp/saga

Listens at the ports of nats/dev.env, tells the story once, prints how to connect, and runs until Ctrl-C.
What is stored stays in the directory: the next `up` there goes on from it.
Exit codes: 0 stopped; 1 a check failed, a process ended by itself, or the system could not be run.";

/// Flags of `demo`.
#[derive(Debug, clap::Args)]
pub(super) struct Demo {
    /// Print one JSON object instead of tables
    #[arg(long)]
    json: bool,
}

/// Flags of `up`.
#[derive(Debug, clap::Args)]
pub(super) struct Up {
    /// Where stores, ledgers and logs lie
    #[arg(long, value_name = "DIR", default_value = demo::USUAL_DIR)]
    dir: PathBuf,
}

pub(super) async fn demo(command: &Demo) -> Result<Exit, CliError> {
    let output = if command.json {
        Output::Json
    } else {
        Output::Text
    };
    Ok(exit(Box::pin(demo::demo(output)).await?))
}

pub(super) async fn up(command: Up) -> Result<Exit, CliError> {
    Ok(exit(Box::pin(demo::up(command.dir)).await?))
}

fn exit(verdict: Verdict) -> Exit {
    match verdict {
        Verdict::Holds => Exit::Done,
        Verdict::Fails => Exit::Failed,
    }
}
