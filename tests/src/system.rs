//! A whole running system for a test: the servers of a [`Site`], the streams, orchestrators and region
//! agents as child processes, and their databases, which the test reads as well.

use crate::deposit::Deposit;
use crate::sender::{Sender, Stored};
use anyhow::{Context as _, ensure};
use async_nats::jetstream::kv;
use async_nats::{Client, jetstream};
use contracts::id::Region;
use orchestrator::partition::Partition;
use orchestrator::payments::Payments;
use orchestrator::regions::{RegionCache, Regions};
use orchestrator::site::{Leaf, Options, Server, Site, User};
use orchestrator::{serve, setup};
use region_agent::ledger::Ledger;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Longest wait for a process of ours to be ready; debug builds on a busy machine.
const READY: Duration = Duration::from_secs(30);

/// The region whose wallet the orchestrator calls in process.
pub const DEFAULT_REGION: &str = "default";

/// All regions of a [`System`].
pub const REGIONS: [&str; 3] = ["eu", "asia", DEFAULT_REGION];

/// Where payments and ledgers lie.
#[derive(Debug, Clone)]
pub struct Databases {
    /// The core's payments.
    pub payments: String,
    /// One ledger a region.
    pub ledgers: BTreeMap<&'static str, String>,
}

impl Databases {
    /// SQLite files in a directory.
    #[must_use]
    pub fn sqlite(directory: &Path) -> Self {
        let url = |name: &str| format!("sqlite://{}", directory.join(name).display());
        Self {
            payments: url("payments.db"),
            ledgers: REGIONS
                .map(|region| (region, url(&format!("wallet-{region}.db"))))
                .into(),
        }
    }

    /// New databases on a PostgreSQL server.
    ///
    /// # Errors
    /// When the server refuses.
    pub async fn postgres(server: &crate::postgres::Postgres) -> anyhow::Result<Self> {
        let mut ledgers = BTreeMap::new();
        for region in REGIONS {
            let name = format!("wallet_{region}");
            ledgers.insert(region, server.create_database(&name).await?);
        }
        Ok(Self {
            payments: server.create_database("payments").await?,
            ledgers,
        })
    }
}

/// A running system. Everything ends when it is dropped.
#[derive(Debug)]
pub struct System {
    /// Servers and processes.
    pub site: Site,
    /// Databases, to be read by the test.
    pub databases: Databases,
    /// JetStream as the orchestrator sees it.
    pub js: jetstream::Context,
    core: Client,
    gateway: Client,
    pub(crate) records: kv::Store,
    pub(crate) listen: BTreeMap<String, String>,
    pub(crate) binaries: Binaries,
}

/// Programs under test.
#[derive(Debug, Clone)]
pub(crate) struct Binaries {
    pub(crate) orchestrator: PathBuf,
    pub(crate) agent: PathBuf,
}

impl Binaries {
    /// Beside the test's own executable: `target/<profile>/deps/<test>`.
    fn find() -> anyhow::Result<Self> {
        let test = std::env::current_exe()?;
        let directory = test
            .parent()
            .and_then(Path::parent)
            .context("where binaries are")?;
        let binaries = Self {
            orchestrator: directory.join("orchestrator"),
            agent: directory.join("region-agent"),
        };
        for program in [&binaries.orchestrator, &binaries.agent] {
            ensure!(
                program.is_file(),
                "{} is missing: run `cargo build --workspace --bins` first",
                program.display()
            );
        }
        Ok(binaries)
    }
}

impl System {
    /// Servers, streams and databases; no orchestrator and no agent yet.
    ///
    /// # Errors
    /// When a server does not start.
    pub async fn start() -> anyhow::Result<Self> {
        Self::start_on(None).await
    }

    /// As [`System::start`], on these databases instead of SQLite files.
    ///
    /// # Errors
    /// When a server does not start.
    pub async fn start_on(databases: Option<Databases>) -> anyhow::Result<Self> {
        let site = Site::start(Options::default()).await.context("one node")?;
        let core = site.connect(User::Orchestrator).await?;
        let gateway = site.connect(User::Gateway).await?;
        let report = setup::apply(&core, &Partition::only(1)).await?;
        ensure!(report.is_as_declared(), "{}", report.render());
        let js = serve::context(&core);
        let records = js.get_key_value(Partition::only(1).bucket()).await?;
        let databases = databases.unwrap_or_else(|| Databases::sqlite(site.dir()));
        Ok(Self {
            site,
            databases,
            js,
            core,
            gateway,
            records,
            listen: BTreeMap::new(),
            binaries: Binaries::find()?,
        })
    }

    /// With one agent a region and one orchestrator called `orchestrator`, all ready.
    ///
    /// # Errors
    /// When something does not start.
    pub async fn start_whole() -> anyhow::Result<Self> {
        let mut system = Self::start().await?;
        system.spawn_agents()?;
        system.spawn_orchestrator("orchestrator", &[])?;
        for name in ["agent-eu", "agent-asia", "orchestrator"] {
            system.ready(name).await?;
        }
        Ok(system)
    }

    /// Starts an orchestrator under a name. `extra` are further variables, without their prefix.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawn_orchestrator(&mut self, name: &str, extra: &[(&str, &str)]) -> anyhow::Result<()> {
        const PREFIX: &str = "ORCHESTRATOR_";
        let listen = Site::free_address()?.to_string();
        let mut command = Command::new(&self.binaries.orchestrator);
        command
            .arg("serve")
            .current_dir(self.site.dir())
            .envs(self.site.login(User::Orchestrator).environment(PREFIX));
        for (key, value) in [
            ("NAME", name),
            ("PAYMENTS", &self.databases.payments),
            ("WALLET", &self.databases.ledgers[DEFAULT_REGION]),
            ("DEFAULT_REGION", DEFAULT_REGION),
            ("REGIONS", "eu,asia"),
            ("LISTEN", &listen),
            ("GRACE", "2s"),
        ]
        .into_iter()
        .chain(extra.iter().copied())
        {
            set(&mut command, PREFIX, key, value);
        }
        self.site.spawn(name, command)?;
        self.listen.insert(name.to_owned(), listen);
        Ok(())
    }

    /// Starts an agent of a leaf's region under a name. `extra` are further variables, without their
    /// prefix.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawn_agent(
        &mut self,
        name: &str,
        leaf: Leaf,
        extra: &[(&str, &str)],
    ) -> anyhow::Result<()> {
        const PREFIX: &str = "REGION_AGENT_";
        let listen = Site::free_address()?.to_string();
        let mut command = Command::new(&self.binaries.agent);
        command
            .arg("serve")
            .current_dir(self.site.dir())
            .envs(self.site.login(User::Agent(leaf)).environment(PREFIX));
        for (key, value) in [
            ("REGION", leaf.region()),
            ("LEDGER", &self.databases.ledgers[leaf.region()]),
            ("LISTEN", &listen),
        ]
        .into_iter()
        .chain(extra.iter().copied())
        {
            set(&mut command, PREFIX, key, value);
        }
        self.site.spawn(name, command)?;
        self.listen.insert(name.to_owned(), listen);
        Ok(())
    }

    /// Starts one agent a region, `agent-<region>`.
    ///
    /// # Errors
    /// When one cannot be started.
    pub fn spawn_agents(&mut self) -> anyhow::Result<()> {
        for leaf in Leaf::ALL {
            self.spawn_agent(&format!("agent-{leaf}"), leaf, &[])?;
        }
        Ok(())
    }

    /// Waits until a counter of a process is as wanted, and gives it.
    ///
    /// # Errors
    /// When it is not in time.
    pub async fn until_counter(
        &mut self,
        process: &str,
        name: &str,
        bound: Duration,
        wanted: impl Fn(u64) -> bool,
    ) -> anyhow::Result<u64> {
        let address = self.health_of(process).to_owned();
        let what = format!("{name} of {process}");
        let count = self
            .site
            .until(&what, bound, async |_| {
                let page = crate::http::get(&address, "/metrics").await;
                let count = page.map(|page| crate::http::counter(&page.body, name));
                Ok(count.ok().filter(|count| wanted(*count)))
            })
            .await?;
        Ok(count)
    }

    /// The orchestrator's program as a user, to be given arguments.
    #[must_use]
    pub fn program(&self, user: User) -> Command {
        let mut command = Command::new(&self.binaries.orchestrator);
        command
            .current_dir(self.site.dir())
            .envs(self.site.login(user).environment("ORCHESTRATOR_"));
        command
    }

    /// What `orchestrator doctor` writes, run by a user.
    ///
    /// # Errors
    /// When it cannot be run.
    pub async fn doctor(&self, user: User) -> anyhow::Result<String> {
        let output = tokio::process::Command::new(&self.binaries.orchestrator)
            .arg("doctor")
            .envs(self.site.login(user).environment("ORCHESTRATOR_"))
            .output()
            .await?;
        Ok(format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        ))
    }

    /// Waits until a process of ours says that it is ready.
    ///
    /// # Errors
    /// When it ends, or is not ready in time.
    pub async fn ready(&mut self, name: &str) -> anyhow::Result<()> {
        let address = self.listen.get(name).context("no such process")?.clone();
        let known = name.to_owned();
        self.site
            .until(&format!("{name} ready"), READY, async |site| {
                if !site.is_running(&known)? {
                    let log = site.log_tail(&known);
                    return Err(orchestrator::site::SiteError::Ended {
                        name: known.clone(),
                        status: "while it was awaited".to_owned(),
                        log,
                    });
                }
                let answer = crate::http::get(&address, "/readyz").await;
                Ok(answer.is_ok_and(|page| page.status == 200).then_some(()))
            })
            .await?;
        Ok(())
    }

    /// `host:port` of a process's health pages.
    #[must_use]
    pub fn health_of(&self, name: &str) -> &str {
        self.listen.get(name).map_or("", String::as_str)
    }

    /// Starts a process again as it was started first, killing it before if it runs.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn restart(&mut self, name: &str) -> anyhow::Result<()> {
        Ok(self.site.restart(name)?)
    }

    /// Kills the core server as `kill -9` does and starts it again on the same store.
    ///
    /// # Errors
    /// When it does not come back.
    pub async fn crash_core(&mut self) -> anyhow::Result<()> {
        self.site.kill(&self.site.server_name(Server::Core(1)))?;
        Ok(self.site.restart_server(Server::Core(1)).await?)
    }

    /// Stores a deposit's callback as the gateway does, under an event id of the caller's choice.
    ///
    /// # Errors
    /// When it is not acknowledged; a repeat of the same callback is.
    pub async fn send_callback(&self, deposit: &Deposit, event_id: &str) -> anyhow::Result<Stored> {
        self.sender().send(deposit, event_id).await
    }

    /// Something that stores callbacks and can be moved to another task.
    #[must_use]
    pub fn sender(&self) -> Sender {
        Sender::new(self.gateway.clone())
    }

    /// Stores a deposit's callback once.
    ///
    /// # Errors
    /// As [`System::send_callback`].
    pub async fn deposit(&self, deposit: &Deposit) -> anyhow::Result<()> {
        let stored = self.send_callback(deposit, &deposit.external_id).await?;
        ensure!(
            stored == Stored::New,
            "{} was there before",
            deposit.external_id
        );
        Ok(())
    }

    /// The connection with the orchestrator's rights.
    #[must_use]
    pub fn core(&self) -> &Client {
        &self.core
    }

    /// A region's ledger, opened by the test.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub async fn ledger(&self, region: &str) -> anyhow::Result<Ledger> {
        let url = self.databases.ledgers.get(region).context("region")?;
        Ok(Ledger::open_with(url, 2).await?)
    }

    /// The payments, opened by the test.
    ///
    /// # Errors
    /// When they cannot be opened.
    pub async fn payments(&self) -> anyhow::Result<Payments> {
        let region = |name: &str| Region::new(name);
        let regions = Regions::new([region("eu")?, region("asia")?], region(DEFAULT_REGION)?);
        Ok(Payments::open(&self.databases.payments, 2, regions, RegionCache::Off).await?)
    }

    /// Waits until the intake holds so many callbacks.
    ///
    /// # Errors
    /// When it does not in time.
    pub async fn until_stored(&self, count: usize, bound: Duration) -> anyhow::Result<()> {
        let looking = async {
            loop {
                let stream = self.js.get_stream(Partition::only(1).intake_stream()).await;
                if stream.is_ok_and(|stream| {
                    stream.cached_info().state.messages >= u64::try_from(count).unwrap_or(u64::MAX)
                }) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(bound, looking)
            .await
            .with_context(|| format!("{count} callbacks are not stored within {bound:?}"))
    }

    /// What the server tells of the consumer of the intake.
    ///
    /// # Errors
    /// When it does not.
    pub async fn intake(&self) -> anyhow::Result<jetstream::consumer::Info> {
        let partition = Partition::only(1);
        let mut consumer: jetstream::consumer::PullConsumer = self
            .js
            .get_consumer_from_stream(partition.intake_consumer(), partition.intake_stream())
            .await?;
        Ok(consumer.info().await?.clone())
    }
}

fn set(command: &mut Command, prefix: &str, key: &str, value: &str) {
    // Variables of others, such as the exporter's, keep their own names.
    if key.starts_with("OTEL_") {
        command.env(key, value);
    } else {
        command.env(format!("{prefix}{key}"), value);
    }
}
