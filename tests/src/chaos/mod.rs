//! A whole system under steady load while its parts are killed, frozen, restarted and cut off at random.
//!
//! Real servers, real processes: three orchestrators, two agents a region, one core server and a leaf node a
//! region. Links between orchestrators and core and between leaf nodes and core go through a `proxy`, which
//! cuts, slows and swallows. What is done to whom and when comes from a seed, see `plan`; how the processes
//! interleave does not. At the end all faults are taken back, everything comes to rest, and `books` compares.

mod books;
mod plan;
mod proxy;
mod report;
mod stage;
mod traffic;

use crate::load::Random;
use anyhow::{Context as _, Result, ensure};
use jiff::SignedDuration;
use plan::Plan;
use report::Report;
use stage::Stage;
use std::time::Duration;
use tokio::time::Instant;
use traffic::Traffic;

/// Longest wait until everything is at rest after the last fault. A compensation backs off for up to a minute,
/// and its last attempt may have met the last fault.
const AT_REST: Duration = Duration::from_secs(240);

/// A saga without progress for so long would be a difference; at rest there is none.
const STUCK: SignedDuration = SignedDuration::from_mins(15);

/// Faults begin for so long when no time is given: each kind once, one almost every second.
const SHORT: Duration = Duration::from_secs(16);

/// What a run is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Decides what is done to whom and when.
    pub seed: u64,
    /// How long faults begin; the last ones end some seconds later.
    pub length: Duration,
}

impl Settings {
    /// From `SAGA_SEED` and `SAGA_CHAOS_MINUTES`. Without minutes a short run, always of the same seed; a long
    /// one draws a new seed.
    ///
    /// # Errors
    /// When one is no number.
    pub fn from_environment() -> Result<Self> {
        let number = |name: &str| match std::env::var(name) {
            Ok(text) if !text.is_empty() => text
                .parse::<u64>()
                .map(Some)
                .with_context(|| format!("{name}={text}")),
            _ => Ok(None),
        };
        let minutes = number("SAGA_CHAOS_MINUTES")?;
        let seed = number("SAGA_SEED")?;
        Ok(Self {
            seed: seed.unwrap_or_else(|| minutes.map_or(1, |_| Random::new_seed() % 1_000_000)),
            length: minutes.map_or(SHORT, |minutes| Duration::from_secs(60 * minutes.max(1))),
        })
    }

    /// How a person repeats this run.
    #[must_use]
    pub fn again(&self) -> String {
        if self.length == SHORT {
            format!("make chaos SEED={}", self.seed)
        } else {
            format!(
                "make chaos MINUTES={} SEED={}",
                self.length.as_secs() / 60,
                self.seed
            )
        }
    }
}

/// Runs it and gives what happened. Tells what it does, as it does it, on stderr.
///
/// # Errors
/// When something does not come to rest, an effect is doubled or lost, a process crashed by itself, books do
/// not agree, or a kind of fault never happened. Logs and stores are kept then.
pub async fn run(settings: Settings) -> Result<Report> {
    eprintln!(
        "chaos: seed {}, faults begin for {:?}; {}",
        settings.seed,
        settings.length,
        settings.again()
    );
    let plan = Plan::draw(settings.seed, settings.length);
    let mut stage = Stage::start().await?;
    match run_on(&mut stage, &plan, settings).await {
        Ok(report) => Ok(report),
        Err(error) => {
            stage.system.site.keep_files();
            Err(error.context(format!("to repeat: {}", settings.again())))
        }
    }
}

async fn run_on(stage: &mut Stage, plan: &Plan, settings: Settings) -> Result<Report> {
    stage.system.close_wallets().await?;
    let traffic = Traffic::start(&stage.system, settings.seed).await?;
    let mut report = Report::new(settings, plan);
    stage.play(plan, &mut report).await?;
    let healed = Instant::now();
    eprintln!("chaos: all faults are taken back, no more load");
    let deposits = traffic.stop().await?;
    let settled = stage.settle(healed + AT_REST, &mut report).await;
    if settled.is_err() {
        eprintln!("{report}");
    }
    settled?;
    report.recovered_after = healed.elapsed();
    report.audit = stage.system.audit_now().await?;
    report.books = books::compare(&stage.system, &deposits).await?;
    // What a person would run in the evening comes to the same.
    let (_, differences) = stage.system.reconcile(STUCK).await?;
    ensure!(differences.is_empty(), "reconcile: {differences:#?}");
    eprintln!("{report}");
    ensure!(
        report.books.wrong.is_empty(),
        "{}",
        report.books.wrong.join("\n")
    );
    ensure!(
        report.audit.cases == 0,
        "messages that nobody could take in: {}",
        stage.cases().await?.join("\n")
    );
    ensure!(
        report.crashes.is_empty(),
        "ended by themselves: {}",
        report.crashes.join("\n")
    );
    ensure!(
        report.stuck.is_empty(),
        "asked to end: {}",
        report.stuck.join("\n")
    );
    let never = report.never();
    ensure!(never.is_empty(), "never happened: {}", never.join(", "));
    Ok(report)
}
