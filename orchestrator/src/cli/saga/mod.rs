//! `orchestrator saga …`: what people ask of sagas and say to them.

mod list;
mod show;
mod speak;
mod watch;

pub(super) use list::{CASES_HELP, Cases, cases};
#[cfg(test)]
pub(super) use show::page;
pub use speak::SpeakError;
pub(super) use speak::{Speech, Wait};

use super::{CliError, Exit, case, connect};
use crate::cli::records::Records;
use crate::config::Config;
use clap::Subcommand;
use contracts::intake::OperatorVerb;

/// Verbs of `saga`.
#[derive(Debug, Subcommand)]
pub(super) enum Saga {
    /// Ask for a new saga; the same id is the same saga
    #[command(after_help = speak::START_HELP)]
    Start(speak::Start),
    /// List sagas, the ones that changed last first
    #[command(after_help = list::HELP)]
    List(list::List),
    /// Show one saga: its steps, and what it waits for
    #[command(after_help = show::HELP)]
    Show(show::Show),
    /// Follow a saga, or all of them, revision by revision
    #[command(after_help = watch::HELP)]
    Watch(watch::Watch),
    /// Say something to a saga
    #[command(after_help = speak::SIGNAL_HELP)]
    Signal(speak::Signal),
    /// Ask a saga to turn back and settle its effects; refused after its pivot
    #[command(after_help = speak::CANCEL_HELP)]
    Cancel(case::Plain),
    /// Send now what waits, and try again what was refused
    #[command(after_help = case::SAGA_RETRY_HELP)]
    Retry(case::Plain),
    /// Stop a saga's clocks: nothing is sent and no deadline passes
    #[command(after_help = case::SAGA_HOLD_HELP)]
    Hold(case::Plain),
    /// Let a held saga go on; its deadlines move by the time it was held
    #[command(after_help = case::SAGA_RELEASE_HELP)]
    Release(case::Plain),
}

impl Saga {
    pub(super) async fn run(self, config: &Config) -> Result<Exit, CliError> {
        // What is wrong with an argument is said before anything connects.
        let speech = match self {
            Self::Start(command) => speak::Speech::start(command)?,
            Self::Signal(command) => speak::Speech::signal(command)?,
            Self::Cancel(command) => command.speech(OperatorVerb::Cancel)?,
            Self::Retry(command) => command.speech(OperatorVerb::RetryNow)?,
            Self::Hold(command) => command.speech(OperatorVerb::Hold)?,
            Self::Release(command) => command.speech(OperatorVerb::Release)?,
            Self::List(command) => return list::run(&command, &records(config).await?).await,
            Self::Show(command) => return show::run(&command, &records(config).await?).await,
            Self::Watch(command) => return watch::run(&command, &records(config).await?).await,
        };
        case::say(speech, config).await
    }
}

/// Opens the records for a command that a person waits for.
pub(super) async fn records(config: &Config) -> Result<Records, CliError> {
    let client = connect(config, "orchestrator cli").await?;
    Ok(Records::open(&client, &config.partition).await?)
}
