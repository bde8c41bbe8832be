//! `orchestrator case …`: what waits for a person, and what a person can do about it.

mod dry_run;
mod show;
mod verbs;

pub(super) use dry_run::print as print_dry_run;
#[cfg(test)]
pub(super) use show::page as case_page;
pub(super) use show::{actions, sums};
pub(super) use verbs::{
    Asked, HOLD_HELP, Plain, RELEASE_HELP, RETRY_HELP, SAGA_HOLD_HELP, SAGA_RELEASE_HELP,
    SAGA_RETRY_HELP,
};

use clap::Subcommand;
use contracts::intake::OperatorVerb;

use super::saga::{self, Speech, records};
use super::{CliError, Exit};
use crate::config::Config;

/// Verbs of `case`.
#[derive(Debug, Subcommand)]
pub(super) enum Case {
    /// List sagas and messages that wait for a person, the newest first
    #[command(after_help = saga::CASES_HELP)]
    List(saga::Cases),
    /// Show one case: why, whose, since when, what is at risk, and what can be done
    #[command(after_help = show::HELP)]
    Show(show::Show),
    /// Give a case to somebody
    #[command(after_help = verbs::ASSIGN_HELP)]
    Assign(verbs::Assign),
    /// Ask the participants again about every operation whose outcome is not certain
    #[command(after_help = verbs::RECHECK_HELP)]
    Recheck(Plain),
    /// Say what became of an operation, or close a case that is no saga
    #[command(after_help = verbs::RESOLVE_HELP)]
    Resolve(verbs::Resolve),
    /// Turn a saga back, past its pivot too, and settle all its effects
    #[command(after_help = verbs::COMPENSATE_HELP)]
    Compensate(Plain),
    /// Send now what waits, try refused compensations again, run the workflow again
    #[command(after_help = RETRY_HELP)]
    RetryNow(Plain),
    /// Stop a saga's clocks: nothing is sent and no deadline passes
    #[command(after_help = HOLD_HELP)]
    Hold(Plain),
    /// Let a held saga go on; its deadlines move by the time it was held
    #[command(after_help = RELEASE_HELP)]
    Release(Plain),
    /// Agree, as a second person, to a request that waits for one
    #[command(after_help = verbs::APPROVE_HELP)]
    Approve(verbs::Approve),
}

impl Case {
    pub(super) async fn run(self, config: &Config) -> Result<Exit, CliError> {
        let speech = match self {
            Self::List(command) => return saga::cases(&command, config).await,
            Self::Show(command) => return show::run(&command, config).await,
            Self::Assign(command) => command.speech()?,
            Self::Recheck(command) => command.speech(OperatorVerb::Recheck)?,
            Self::Resolve(command) => command.speech()?,
            Self::Compensate(command) => command.speech(OperatorVerb::Compensate)?,
            Self::RetryNow(command) => command.speech(OperatorVerb::RetryNow)?,
            Self::Hold(command) => command.speech(OperatorVerb::Hold)?,
            Self::Release(command) => command.speech(OperatorVerb::Release)?,
            Self::Approve(command) => command.speech()?,
        };
        say(speech, config).await
    }
}

/// Says it, with the rules that a dry run needs.
pub(super) async fn say(speech: Speech, config: &Config) -> Result<Exit, CliError> {
    let rules = config.rules().map_err(CliError::Config)?;
    speech.say(&records(config).await?, &rules).await
}
