//! The system on this machine: servers, an agent process a region, the orchestrator process, rates.

use super::DemoError;
use super::callbacks::{ADYEN_KEY, STRIPE_SECRET};
use super::progress::Progress;
use super::story;
use crate::clock::{Clock, wall_clock};
use crate::fx::{self, RateTable};
use crate::jsapi;
use crate::monitor;
use crate::partition::Partition;
use crate::payments::Payments;
use crate::regions::{RegionCache, Regions};
use crate::setup;
use crate::site::{Leaf, Options, Place, Site, SiteError, User};
use async_nats::Client;
use contracts::command::{WalletGet, WalletVerb};
use contracts::id::{CustomerId, Region};
use contracts::reply::WalletView;
use contracts::subject;
use region_agent::ledger::Ledger;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

/// Longest wait for a process to be ready; generous, because machines are busy.
const READY: Duration = Duration::from_secs(30);
/// Longest wait for a process to end by itself: its own grace and a little.
const END: Duration = Duration::from_secs(25);
/// The name of the orchestrator's process, and of its log.
pub(super) const ORCHESTRATOR: &str = "orchestrator";

/// Where health and metrics are served when the system runs at its usual ports.
const USUAL: (&str, [(Leaf, &str); 2]) = (
    "127.0.0.1:9464",
    [(Leaf::Eu, "127.0.0.1:9465"), (Leaf::Asia, "127.0.0.1:9466")],
);

/// Everything that runs. Dropping it kills every process.
#[derive(Debug)]
pub(super) struct System {
    pub(super) site: Site,
    pub(super) listen: Listen,
    /// A person with the NATS CLI.
    pub(super) operator: Client,
    /// Who takes callbacks from the internet.
    pub(super) gateway: Client,
    rates: JoinHandle<()>,
}

/// Where health and metrics are served.
#[derive(Debug, Clone)]
pub(super) struct Listen {
    pub(super) orchestrator: SocketAddr,
    pub(super) agents: BTreeMap<Leaf, SocketAddr>,
}

impl System {
    /// Starts everything and waits until each part has answered.
    ///
    /// # Errors
    /// [`DemoError`]; what was started has been killed, and its files are kept.
    pub(super) async fn start(place: Place, progress: &Progress) -> Result<Self, DemoError> {
        let agent = agent_program()?;
        progress.step("starting NATS: a core server, and leaf nodes for eu and asia over TLS");
        let listen = Listen::at(&place)?;
        let options = Options {
            place,
            ..Options::default()
        };
        let mut site = Site::start(options).await?;
        match Self::start_on(&mut site, &agent, &listen, progress).await {
            Ok((operator, gateway, rates)) => Ok(Self {
                site,
                listen,
                operator,
                gateway,
                rates,
            }),
            Err(error) => {
                site.keep_files();
                Err(error)
            }
        }
    }

    async fn start_on(
        site: &mut Site,
        agent: &Path,
        listen: &Listen,
        progress: &Progress,
    ) -> Result<(Client, Client, JoinHandle<()>), DemoError> {
        progress.step("making streams, ledgers and the region directory");
        let orchestrator = site.connect(User::Orchestrator).await?;
        let report = setup::apply(&orchestrator, &Partition::default())
            .await
            .map_err(|error| DemoError::Setup(error.to_string()))?;
        if !report.is_usable() {
            return Err(DemoError::Setup(report.render()));
        }
        write_logins(site)?;
        close_wallets(site.dir()).await?;
        fill_directory(site.dir()).await?;
        let rates = serve_rates(site.connect(User::Rates).await?)?;
        let operator = site.connect(User::Operator).await?;

        progress.step("starting region-agent for eu and asia");
        for (leaf, address) in &listen.agents {
            let command = agent_command(site, agent, *leaf, *address);
            site.spawn(&agent_name(*leaf), command)?;
        }
        for leaf in listen.agents.keys() {
            agent_ready(site, &operator, *leaf).await?;
        }

        progress.step("starting orchestrator serve");
        let command = orchestrator_command(site, listen.orchestrator)?;
        site.spawn(ORCHESTRATOR, command)?;
        let address = listen.orchestrator.to_string();
        site.until("orchestrator ready", READY, async |site| {
            must_run(site, ORCHESTRATOR)?;
            Ok(monitor::text(&address, "/readyz").await.ok())
        })
        .await?;
        let gateway = site.connect(User::Gateway).await?;
        Ok((operator, gateway, rates))
    }

    /// Asks every process to end and waits until it has.
    ///
    /// # Errors
    /// [`DemoError`] when one does not.
    pub(super) async fn stop(mut self) -> Result<(), DemoError> {
        // First who sends commands, then who carries them out.
        self.site.terminate(ORCHESTRATOR, END).await?;
        for leaf in Leaf::ALL {
            self.site.terminate(&agent_name(leaf), END).await?;
        }
        self.rates.abort();
        Ok(())
    }

    /// Whether the intake holds what an earlier run has told.
    ///
    /// # Errors
    /// [`DemoError::Look`].
    pub(super) async fn has_been_told(&self) -> Result<bool, DemoError> {
        let what = format!("STREAM.INFO.{}", Partition::default().intake_stream());
        let info = jsapi::ask(&self.operator, &what, &Value::Null)
            .await
            .map_err(|error| DemoError::Look(error.to_string()))?;
        Ok(info["state"]["last_seq"].as_u64() != Some(0))
    }

    /// Fails, with the end of its log, when a process has ended by itself.
    ///
    /// # Errors
    /// [`SiteError::Ended`].
    pub(super) fn must_run(&mut self) -> Result<(), SiteError> {
        must_run(&mut self.site, ORCHESTRATOR)?;
        for leaf in Leaf::ALL {
            must_run(&mut self.site, &agent_name(leaf))?;
        }
        Ok(())
    }
}

impl Drop for System {
    fn drop(&mut self) {
        self.rates.abort();
    }
}

impl Listen {
    fn at(place: &Place) -> Result<Self, DemoError> {
        let free = |_: &str| Site::free_address().map_err(DemoError::from);
        let usual = |text: &str| {
            text.parse()
                .map_err(|error| DemoError::Setup(format!("{text}: {error}")))
        };
        let address = |text: &str| match place {
            Place::Temporary => free(text),
            Place::Kept(_) => usual(text),
        };
        Ok(Self {
            orchestrator: address(USUAL.0)?,
            agents: USUAL
                .1
                .into_iter()
                .map(|(leaf, text)| Ok((leaf, address(text)?)))
                .collect::<Result<_, DemoError>>()?,
        })
    }
}

/// The payments database in a site's directory.
pub(super) fn payments_url(dir: &Path) -> String {
    sqlite(&dir.join("payments.db"))
}

/// The ledger of a region in a site's directory.
pub(super) fn ledger_url(dir: &Path, region: &str) -> String {
    sqlite(&dir.join(format!("wallet-{region}.db")))
}

/// Regions as the orchestrator is configured with.
///
/// # Errors
/// When the story names a region that cannot be one.
pub(super) fn regions() -> Result<Regions, DemoError> {
    let region = |name: &str| {
        Region::new(name).map_err(|error| DemoError::Story(format!("{name}: {error}")))
    };
    let known = [region(story::EU)?, region(story::ASIA)?];
    Ok(Regions::new(known, region(story::DEFAULT)?))
}

/// Settings with which our command line speaks as this user, in a site's directory.
pub(super) fn login_file(dir: &Path, user: User) -> PathBuf {
    dir.join(format!("{}.toml", user.name()))
}

fn write_logins(site: &Site) -> Result<(), DemoError> {
    for user in [User::Operator, User::Gateway] {
        let login = site.login(user);
        // What reconciliation compares besides; nobody else reads them.
        let books = match user {
            User::Operator => format!(
                "payments = {:?}\ndefault_region = \"{}\"\nregions = [\"{}\", \"{}\"]\n\n",
                payments_url(site.dir()),
                story::DEFAULT,
                story::EU,
                story::ASIA
            ),
            _ => String::new(),
        };
        let toml = format!(
            "{books}[nats]\nurl = {:?}\nuser = {:?}\npassword = {:?}\ninbox_prefix = {:?}\n",
            login.url, login.user, login.password, login.inbox_prefix
        );
        write(&login_file(site.dir(), user), &toml)?;
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<(), DemoError> {
    std::fs::write(path, text).map_err(|source| {
        DemoError::Site(SiteError::Io {
            what: path.display().to_string(),
            source,
        })
    })
}

/// How the providers are read: the sections `[providers.…]` of the configuration.
pub(super) fn providers_toml() -> String {
    format!(
        "[providers.stripe]\n\
         format = \"stripe\"\n\
         secrets = [\"{STRIPE_SECRET}\"]\n\n\
         [providers.adyen]\n\
         format = \"adyen\"\n\
         secrets = [\"{ADYEN_KEY}\"]\n\
         authorisation_means_paid = true\n\n\
         [providers.paylink]\n\
         format = \"canonical\"\n"
    )
}

fn sqlite(path: &Path) -> String {
    let path = path.to_string_lossy();
    let path = path
        .replace('%', "%25")
        .replace('?', "%3F")
        .replace('#', "%23");
    format!("sqlite://{path}?mode=rwc")
}

async fn close_wallets(dir: &Path) -> Result<(), DemoError> {
    for (region, customer) in story::CLOSED_WALLETS {
        let customer = customer_id(customer)?;
        let ledger = Ledger::open(&ledger_url(dir, region)).await?;
        ledger.open_wallet(&customer, None, wall_clock()).await?;
        ledger.close_wallet(&customer, wall_clock()).await?;
        ledger.close().await;
    }
    Ok(())
}

async fn fill_directory(dir: &Path) -> Result<(), DemoError> {
    let directory = Payments::open(&payments_url(dir), 1, regions()?, RegionCache::Off).await?;
    for (customer, region) in story::DIRECTORY {
        let region =
            Region::new(region).map_err(|error| DemoError::Story(format!("{region}: {error}")))?;
        directory
            .assign_region(&customer_id(customer)?, &region, wall_clock())
            .await
            .map_err(|error| DemoError::Setup(error.to_string()))?;
    }
    directory.close().await;
    Ok(())
}

fn customer_id(text: &str) -> Result<CustomerId, DemoError> {
    CustomerId::new(text).map_err(|error| DemoError::Story(format!("{text}: {error}")))
}

fn serve_rates(client: Client) -> Result<JoinHandle<()>, DemoError> {
    let rates = story::RATES
        .iter()
        .map(|(pair, rate)| ((*pair).to_owned(), (*rate).to_owned()))
        .collect();
    let table = RateTable::new(&rates).map_err(|error| DemoError::Story(error.to_string()))?;
    let clock = Clock::new("rates");
    Ok(tokio::spawn(async move {
        let served = fx::serve_reference(client, Arc::new(table), move || clock.now()).await;
        if let Err(error) = served {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "no rates are served"
            );
        }
    }))
}

/// The other binary of this build, beside this one.
fn agent_program() -> Result<PathBuf, DemoError> {
    let here = std::env::current_exe().map_err(DemoError::OwnProgram)?;
    let agent = here.with_file_name("region-agent");
    if agent.is_file() {
        Ok(agent)
    } else {
        Err(DemoError::NoAgent(agent))
    }
}

pub(super) fn agent_name(leaf: Leaf) -> String {
    format!("agent-{leaf}")
}

fn agent_command(site: &Site, program: &Path, leaf: Leaf, listen: SocketAddr) -> Command {
    let mut command = own_command(program, site, "REGION_AGENT_");
    command
        .args(["serve", "--region", leaf.region()])
        .args(["--listen", &listen.to_string()])
        .args(["--ledger", &ledger_url(site.dir(), leaf.region())])
        .envs(site.login(User::Agent(leaf)).environment("REGION_AGENT_"));
    command
}

fn orchestrator_command(site: &Site, listen: SocketAddr) -> Result<Command, DemoError> {
    let program = std::env::current_exe().map_err(DemoError::OwnProgram)?;
    let config = site.dir().join("orchestrator.toml");
    write(&config, &orchestrator_toml(site.dir(), listen))?;
    let mut command = own_command(&program, site, crate::config::ENVIRONMENT_PREFIX);
    command.arg("--config").arg(config).arg("serve").envs(
        site.login(User::Orchestrator)
            .environment(crate::config::ENVIRONMENT_PREFIX),
    );
    Ok(command)
}

/// What surrounds us must not change what the demonstration shows.
fn own_command(program: &Path, site: &Site, prefix: &str) -> Command {
    let mut command = Command::new(program);
    command.current_dir(site.dir());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with(prefix) {
            command.env_remove(name);
        }
    }
    command
}

fn orchestrator_toml(dir: &Path, listen: SocketAddr) -> String {
    format!(
        "name = \"demo\"\n\
         payments = {payments:?}\n\
         wallet = {wallet:?}\n\
         default_region = \"{default}\"\n\
         regions = [\"{eu}\", \"{asia}\"]\n\
         listen = \"{listen}\"\n\n\
         [fx]\n\
         source = \"nats\"\n\n\
         {providers}",
        payments = payments_url(dir),
        wallet = ledger_url(dir, story::DEFAULT),
        default = story::DEFAULT,
        eu = story::EU,
        asia = story::ASIA,
        providers = providers_toml(),
    )
}

/// Waits until an agent answers a question that came over the core and its leaf link.
async fn agent_ready(site: &mut Site, operator: &Client, leaf: Leaf) -> Result<(), DemoError> {
    let name = agent_name(leaf);
    let customer = customer_id("nobody")?;
    site.until(&format!("{name} ready"), READY, async |site| {
        must_run(site, &name)?;
        Ok(wallet_of(operator, leaf.region(), &customer).await.ok())
    })
    .await?;
    Ok(())
}

/// Asks a region's agents for a customer's wallet, as `nats req billing.<region>.wallet.get` does.
///
/// # Errors
/// What was wrong, for a person.
pub(super) async fn wallet_of(
    operator: &Client,
    region: &str,
    customer: &CustomerId,
) -> Result<WalletView, String> {
    let region = Region::new(region).map_err(|error| error.to_string())?;
    let question = WalletGet {
        customer: Some(customer.clone()),
        ..WalletGet::default()
    };
    let question = serde_json::to_vec(&question).map_err(|error| error.to_string())?;
    let answer = operator
        .request(subject::wallet(&region, WalletVerb::Get), question.into())
        .await
        .map_err(|error| error.to_string())?;
    serde_json::from_slice(&answer.payload).map_err(|error| error.to_string())
}

fn must_run(site: &mut Site, name: &str) -> Result<(), SiteError> {
    if site.is_running(name)? {
        return Ok(());
    }
    Err(SiteError::Ended {
        name: name.to_owned(),
        status: "by itself".to_owned(),
        log: site.log_tail(name),
    })
}
