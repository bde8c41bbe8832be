//! The whole system on one machine, and a story told to it: `orchestrator demo` and `orchestrator up`.
//!
//! Core and leaf servers, an agent process a region and the orchestrator are started as they would run
//! anywhere, with their accounts and TLS links. A gateway's callbacks are posted, and when everything
//! has come to rest the books are compared with what was paid. `demo` then takes all of it down and
//! its verdict is the exit code; `up` leaves it running for a person to look at.

mod callbacks;
mod checks;
mod connect;
mod expected;
mod found;
mod look;
mod progress;
mod report;
mod story;
mod system;
mod tell;

use crate::clock::wall_clock;
use crate::payments::PaymentsError;
use crate::site::{Place, SiteError};
use expected::Expected;
use jiff::Timestamp;
use progress::{Audience, Progress};
use region_agent::ledger::LedgerError;
use report::Report;
use std::future::Future;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::time::Duration;
use system::System;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Where `up` keeps its files unless told otherwise.
pub const USUAL_DIR: &str = "target/up";

/// How often `up` looks whether its processes still run.
const LOOK: Duration = Duration::from_millis(500);

/// How the result is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// For a person: progress on standard error, tables on standard output.
    Text,
    /// For a program: one JSON object on standard output and nothing else there.
    Json,
}

/// What the checks say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// Every check holds.
    Holds,
    /// At least one does not; the report names it.
    Fails,
}

/// Why there is no verdict.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// A server or a process.
    #[error(transparent)]
    Site(#[from] SiteError),
    /// The other binary is missing.
    #[error(
        "{0} is missing: `cargo build --workspace --bins` (or `make build`) makes both programs"
    )]
    NoAgent(PathBuf),
    /// Our own program cannot be found.
    #[error("the path of this program")]
    OwnProgram(#[source] io::Error),
    /// Streams or the directory could not be made.
    #[error("set-up: {0}")]
    Setup(String),
    /// A ledger.
    #[error("ledger")]
    Ledger(#[from] LedgerError),
    /// The payments database.
    #[error("payments")]
    Payments(#[from] PaymentsError),
    /// The story is not one; found by a test.
    #[error("the story: {0}")]
    Story(String),
    /// A message whose storage nobody confirmed.
    #[error("{subject} was not stored: {reason}")]
    NotStored {
        /// Where to.
        subject: String,
        /// What was answered.
        reason: String,
    },
    /// The records cannot be followed.
    #[error("following the records: {0}")]
    Watch(String),
    /// Something that was asked for the checks did not answer.
    #[error("looking at what came of it: {0}")]
    Look(String),
    /// Somebody wanted it to end.
    #[error("interrupted; everything has been stopped")]
    Interrupted,
    /// The result cannot be written.
    #[error("standard output")]
    Output(#[from] io::Error),
}

/// Starts everything, tells the story, checks what came of it, and takes everything down.
///
/// # Errors
/// [`DemoError`]; nothing is left running, and logs are kept where they may help.
pub async fn demo(output: Output) -> Result<Verdict, DemoError> {
    let progress = Progress::new(match output {
        Output::Text => Audience::Person,
        Output::Json => Audience::Program,
    });
    unless_interrupted(Box::pin(async {
        let began = wall_clock();
        let mut system = System::start(Place::Temporary, &progress).await?;
        let report = match tell_and_check(&mut system, &progress, began).await {
            Ok(report) => report,
            Err(error) => {
                show_logs(&mut system, &progress);
                return Err(error);
            }
        };
        if report.verdict() == Verdict::Fails {
            show_logs(&mut system, &progress);
        }
        progress.step("stopping the orchestrator and the agents");
        system.stop().await?;
        progress.finish();
        match output {
            Output::Json => write(&report.json()?)?,
            Output::Text => {
                write(&report.text())?;
                write(&connect::after_the_demo())?;
            }
        }
        Ok(report.verdict())
    }))
    .await
}

/// Starts the same system at its usual ports with its files in `dir`, tells the story unless an earlier
/// run has, and leaves it running until interrupted.
///
/// # Errors
/// [`DemoError`]; also when one of the processes ends by itself. Nothing is left running.
pub async fn up(dir: PathBuf) -> Result<Verdict, DemoError> {
    let progress = Progress::new(Audience::Person);
    let mut interrupts = Interrupts::new()?;
    let starting = Box::pin(async {
        let began = wall_clock();
        let mut system = System::start(Place::Kept(dir), &progress).await?;
        if system.has_been_told().await? {
            progress
                .step("the story has been told before; sagas and balances are as they were left");
            return Ok((system, Verdict::Holds));
        }
        match tell_and_check(&mut system, &progress, began).await {
            Ok(report) => {
                if report.verdict() == Verdict::Fails {
                    show_logs(&mut system, &progress);
                }
                progress.finish();
                write(&report.text())?;
                Ok((system, report.verdict()))
            }
            Err(error) => {
                show_logs(&mut system, &progress);
                Err(error)
            }
        }
    });
    let (mut system, verdict) = tokio::select! {
        started = starting => started?,
        () = interrupts.any() => return Err(DemoError::Interrupted),
    };
    progress.finish();
    write(&connect::to_the_running(&system))?;
    let running = async {
        loop {
            system.must_run()?;
            tokio::time::sleep(LOOK).await;
        }
    };
    let ended: Result<(), SiteError> = tokio::select! {
        ended = running => ended,
        () = interrupts.any() => Ok(()),
    };
    ended?;
    progress.step("stopping; the next `up` goes on from here");
    system.stop().await?;
    Ok(verdict)
}

async fn tell_and_check(
    system: &mut System,
    progress: &Progress,
    began: Timestamp,
) -> Result<Report, DemoError> {
    let expected = Expected::of_the_story()?;
    let (told, records) = tell::tell(system, &expected, progress).await?;
    progress.step("asking ledgers, event log, payments and state store what came of it");
    let found = look::look(system, &expected, told, records).await?;
    let took = wall_clock().duration_since(began);
    Ok(Report::new(&expected, &found, took.unsigned_abs()))
}

/// Keeps the logs, says where they are, and shows the end of the one that is most likely to tell why.
fn show_logs(system: &mut System, progress: &Progress) {
    progress.finish();
    system.site.keep_files();
    eprintln!(
        "logs are in {}; the end of the orchestrator's:\n{}",
        system.site.dir().join("logs").display(),
        system.site.log_tail(system::ORCHESTRATOR)
    );
}

/// Runs `work` unless somebody wants us to end: it is then dropped, and with it every process.
async fn unless_interrupted<T>(
    work: impl Future<Output = Result<T, DemoError>>,
) -> Result<T, DemoError> {
    let mut interrupts = Interrupts::new()?;
    tokio::select! {
        result = work => result,
        () = interrupts.any() => Err(DemoError::Interrupted),
    }
}

/// The signals by which a terminal, a person or a supervisor ends a program.
struct Interrupts([Signal; 3]);

impl Interrupts {
    fn new() -> io::Result<Self> {
        Ok(Self([
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
            signal(SignalKind::hangup())?,
        ]))
    }

    async fn any(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
