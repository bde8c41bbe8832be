//! The commands of the binary: a noun, then a verb.
//!
//! Each command asks for what it needs, prints what it found and says in its exit code how it went
//! ([`Exit`]). Nothing here decides about money: starts, signals and cancels are messages for the intake,
//! and what became of them is read from the saga's record.

mod argument;
mod callback;
mod case;
mod demo;
mod moment;
mod output;
mod reconcile;
mod records;
mod saga;
mod serve;
mod setup;
mod store;
#[cfg(test)]
mod tests;
mod waiting;

pub use records::ReadError;
pub use saga::SpeakError;
pub use store::StoreError;

use crate::config::{self, CommonFlags, Config, ConfigError, PartitionFlags, Role, ServeFlags};
use crate::demo::DemoError;
use crate::reconcile::ReconcileError;
use crate::serve::ServeError;
use clap::{Parser, Subcommand};
use region_agent::nats_options::{NatsOptionsError, WhenUnreachable};
use std::path::PathBuf;
use std::process::ExitCode;

/// Drives sagas that move money across regions, on NATS JetStream
#[derive(Debug, Parser)]
#[command(name = "orchestrator", version, after_help = AFTER_HELP)]
pub struct Cli {
    /// TOML file with settings [default: orchestrator.toml, if it is there]
    #[arg(
        long,
        value_name = "FILE",
        global = true,
        env = "ORCHESTRATOR_CONFIG",
        hide_env_values = true
    )]
    config: Option<PathBuf>,
    #[command(flatten)]
    common: CommonFlags,
    #[command(subcommand)]
    command: Command,
}

const AFTER_HELP: &str = "\
Settings: a flag wins over ORCHESTRATOR_<NAME> (as in ORCHESTRATOR_NATS_URL), which wins over the config file.
Exit codes: 0 done; 1 failed, refused, or something is wrong; 2 not found; 3 NATS cannot be reached;
64 wrong arguments or settings.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Take callbacks and drive sagas until told to stop
    #[command(after_help = serve::HELP)]
    Serve(Box<ServeFlags>),
    /// Create the streams and consumers, and compare those that exist
    #[command(after_help = setup::SETUP_HELP)]
    Setup(setup::Setup),
    /// Say whether this installation may be trusted with money, and how to mend it
    #[command(after_help = setup::DOCTOR_HELP)]
    Doctor(setup::Doctor),
    /// Ask about sagas and speak to them
    Saga {
        #[command(subcommand)]
        command: saga::Saga,
    },
    /// Look at what waits for a person, and do something about it
    Case {
        #[command(subcommand)]
        command: case::Case,
    },
    /// Providers' callbacks
    Callback {
        #[command(subcommand)]
        command: callback::Callback,
    },
    /// Compare records, payments, wallets and events, and name every difference
    #[command(after_help = reconcile::HELP)]
    Reconcile(Box<reconcile::Reconcile>),
    /// Start the whole system on this machine, tell it a story, check the books, take it down
    #[command(after_help = demo::DEMO_HELP)]
    Demo(demo::Demo),
    /// Start the whole system on this machine at its usual ports, and leave it running
    #[command(after_help = demo::UP_HELP)]
    Up(demo::Up),
}

/// How a command went; its number is the exit code of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// As asked.
    Done,
    /// Failed, refused, or something was found to be wrong.
    Failed,
    /// There is no such thing.
    NotFound,
    /// NATS could not be reached.
    Unreachable,
    /// Wrong arguments or settings.
    Usage,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Done => 0,
            Exit::Failed => 1,
            Exit::NotFound => 2,
            Exit::Unreachable => 3,
            Exit::Usage => 64,
        })
    }
}

/// Why a command came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// A setting.
    #[error(transparent)]
    Config(ConfigError),
    /// The connection.
    #[error("NATS cannot be reached (see --nats-url and --context)")]
    Connect(#[source] NatsOptionsError),
    /// `serve`.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// `setup`.
    #[error("set-up")]
    Setup(#[from] crate::setup::SetupError),
    /// An argument, found wrong after all of them were parsed.
    #[error("{0}")]
    Argument(String),
    /// Records.
    #[error(transparent)]
    Read(Box<ReadError>),
    /// `saga start`, `signal`, and what people ask for by hand.
    #[error(transparent)]
    Speak(Box<SpeakError>),
    /// `callback send`.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// `reconcile`.
    #[error("nothing is known to agree")]
    Reconcile(#[source] Box<ReconcileError>),
    /// `demo` and `up`.
    #[error(transparent)]
    Demo(#[from] DemoError),
    /// What was found cannot be printed.
    #[error("standard output")]
    Output(#[from] std::io::Error),
}

impl CliError {
    /// The exit code that says so.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self {
            Self::Config(_) | Self::Argument(_) => Exit::Usage,
            Self::Connect(NatsOptionsError::Setting { .. } | NatsOptionsError::File { .. }) => {
                Exit::Usage
            }
            Self::Connect(NatsOptionsError::Connect { .. }) => Exit::Unreachable,
            Self::Serve(ServeError::Setup(error)) | Self::Setup(error) if error.is_no_answer() => {
                Exit::Unreachable
            }
            Self::Read(error) => match error.as_ref() {
                ReadError::Missing(_) => Exit::NotFound,
                ReadError::Unreachable { .. } => Exit::Unreachable,
                ReadError::Undecodable { .. } => Exit::Failed,
            },
            Self::Speak(error) => error.exit(),
            Self::Store(error) => error.exit(),
            Self::Reconcile(error) if error.is_unreachable() => Exit::Unreachable,
            Self::Serve(_)
            | Self::Setup(_)
            | Self::Reconcile(_)
            | Self::Demo(_)
            | Self::Output(_) => Exit::Failed,
        }
    }

    /// Whoever read our output has gone, as `head` does; nothing is wrong.
    #[must_use]
    pub fn is_closed_pipe(&self) -> bool {
        match self {
            Self::Output(error) | Self::Demo(DemoError::Output(error)) => {
                error.kind() == std::io::ErrorKind::BrokenPipe
            }
            _ => false,
        }
    }
}

impl Cli {
    /// The settings of the command, checked before anything connects.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn config(&self) -> Result<Config, ConfigError> {
        let file = self.config.clone().or_else(config::default_file);
        let load = |role: Role, own: &PartitionFlags| {
            Config::load(&self.common, own, file.as_deref(), role)
        };
        match &self.command {
            Command::Serve(flags) => {
                let config = Config::load(
                    &self.common,
                    flags.as_ref(),
                    file.as_deref(),
                    Role::Orchestrator,
                )?;
                config.serve().map(|_| config)
            }
            Command::Setup(command) => load(Role::Setup, &command.partition),
            Command::Doctor(command) => load(Role::Setup, &command.partition),
            Command::Saga { .. } | Command::Case { .. } | Command::Demo(_) | Command::Up(_) => {
                load(Role::Operator, &PartitionFlags::default())
            }
            Command::Reconcile(command) => Config::load(
                &self.common,
                &command.books,
                file.as_deref(),
                Role::Operator,
            ),
            Command::Callback { .. } => load(Role::Gateway, &PartitionFlags::default()),
        }
    }

    /// Runs the command.
    ///
    /// # Errors
    /// [`CliError`]; its [`CliError::exit`] is the exit code.
    pub async fn run(self, config: Config) -> Result<Exit, CliError> {
        match self.command {
            Command::Serve(_) => serve::run(&config).await,
            Command::Setup(command) => setup::setup(&command, &config).await,
            Command::Doctor(command) => setup::doctor(&command, &config).await,
            Command::Saga { command } => command.run(&config).await,
            Command::Case { command } => command.run(&config).await,
            Command::Callback { command } => command.run(&config).await,
            Command::Reconcile(command) => reconcile::run(&command, &config).await,
            Command::Demo(command) => demo::demo(&command).await,
            Command::Up(command) => demo::up(command).await,
        }
    }
}

/// Connects for a command that a person waits for.
async fn connect(config: &Config, name: &str) -> Result<async_nats::Client, CliError> {
    config
        .nats
        .connect(name, WhenUnreachable::Fail)
        .await
        .map_err(CliError::Connect)
}
