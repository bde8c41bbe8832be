//! `orchestrator reconcile` against a [`System`]: as a library for what runs long, and as the program.

use crate::system::{DEFAULT_REGION, REGIONS, System};
use anyhow::Context as _;
use async_nats::Client;
use contracts::id::Region;
use jiff::SignedDuration;
use orchestrator::clock::wall_clock;
use orchestrator::partition::Partition;
use orchestrator::payments::Payments;
use orchestrator::reconcile::{self, Difference, Options, Report};
use orchestrator::regions::Regions;
use orchestrator::site::User;
use serde_json::Value;
use std::process::Stdio;
use std::time::Duration;

/// Longest run of the program.
const BOUND: Duration = Duration::from_secs(300);

/// What a run of the program said.
#[derive(Debug, Clone)]
pub struct Ran {
    /// Its exit code.
    pub code: Option<i32>,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Ran {
    /// Its lines as JSON, the summary last.
    ///
    /// # Errors
    /// When one is none.
    pub fn json(&self) -> anyhow::Result<Vec<Value>> {
        let lines = self.out.lines();
        lines
            .map(|line| serde_json::from_str(line).with_context(|| format!("{self:#?}")))
            .collect()
    }
}

impl System {
    /// What `orchestrator reconcile` compares of the last day, for [`reconcile::differences`].
    ///
    /// # Errors
    /// When a name of a region is none.
    pub fn reconcile_options(&self, stuck: SignedDuration) -> anyhow::Result<Options> {
        let now = wall_clock();
        let regions = REGIONS.into_iter().map(Region::new);
        Ok(Options {
            since: now - SignedDuration::from_hours(24),
            until: now,
            regions: regions.collect::<Result<_, _>>()?,
            only: None,
            stuck,
            partition: Partition::only(1),
            now,
        })
    }

    /// Compares everything of the last day with the rights of an operator.
    ///
    /// # Errors
    /// When a side cannot be read.
    pub async fn reconcile(
        &self,
        stuck: SignedDuration,
    ) -> anyhow::Result<(Report, Vec<Difference>)> {
        let operator = self.site.connect(User::Operator).await?;
        self.reconcile_as(&operator, &self.reconcile_options(stuck)?)
            .await
    }

    /// As [`System::reconcile`], as somebody and of what.
    ///
    /// # Errors
    /// When a side cannot be read.
    pub async fn reconcile_as(
        &self,
        client: &Client,
        options: &Options,
    ) -> anyhow::Result<(Report, Vec<Difference>)> {
        let regions = Regions::new(options.regions.clone(), Region::new(DEFAULT_REGION)?);
        let payments = Payments::open_to_read(&self.databases.payments, regions).await?;
        let compared = reconcile::differences(client, Some(&payments), options).await;
        payments.close().await;
        Ok(compared?)
    }

    /// Runs `orchestrator reconcile` as a user, with these arguments.
    ///
    /// # Errors
    /// When it cannot be run or does not end.
    pub async fn run_reconcile(&self, user: User, arguments: &[&str]) -> anyhow::Result<Ran> {
        self.run_orchestrator(user, &[&["reconcile"], arguments].concat())
            .await
    }

    /// Runs `orchestrator` as a user, with these arguments.
    ///
    /// # Errors
    /// When it cannot be run or does not end.
    pub async fn run_orchestrator(&self, user: User, arguments: &[&str]) -> anyhow::Result<Ran> {
        let mut command = tokio::process::Command::new(&self.binaries.orchestrator);
        command
            .args(arguments)
            .current_dir(self.site.dir())
            .envs(self.site.login(user).environment("ORCHESTRATOR_"))
            .env("ORCHESTRATOR_REGIONS", "eu,asia")
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let output = tokio::time::timeout(BOUND, command.output())
            .await
            .context("orchestrator does not end")??;
        Ok(Ran {
            code: output.status.code(),
            out: String::from_utf8(output.stdout)?,
            err: String::from_utf8(output.stderr)?,
        })
    }

    /// Runs `region-agent` beside a region's ledger.
    ///
    /// # Errors
    /// When it cannot be run.
    pub async fn run_agent(&self, region: &str, arguments: &[&str]) -> anyhow::Result<Ran> {
        let ledger = self.databases.ledgers.get(region).context("region")?;
        let output = tokio::process::Command::new(&self.binaries.agent)
            .args(arguments)
            .current_dir(self.site.dir())
            .env("REGION_AGENT_LEDGER", ledger)
            .stdin(Stdio::null())
            .output()
            .await?;
        Ok(Ran {
            code: output.status.code(),
            out: String::from_utf8(output.stdout)?,
            err: String::from_utf8(output.stderr)?,
        })
    }

    /// Changes a database behind everybody's back.
    ///
    /// # Errors
    /// When it refuses, or nothing is changed.
    pub async fn plant(&self, url: &str, statement: &str) -> anyhow::Result<()> {
        sqlx::any::install_default_drivers();
        let pool = sqlx::AnyPool::connect(url).await?;
        let changed = sqlx::query(sqlx::AssertSqlSafe(statement.to_owned()))
            .execute(&pool)
            .await?;
        pool.close().await;
        anyhow::ensure!(changed.rows_affected() > 0, "{statement} changes nothing");
        Ok(())
    }
}
