//! A world: real servers as `nats/` configures them, orchestrators, wallets and a rate service.

use super::case::{Case, WorldKind};
use super::flows;
use super::instance::Instance;
use super::rates::Rates;
use super::view::View;
use super::wallet::RegionWallet;
use anyhow::{Context as _, ensure};
use async_nats::jetstream;
use bytes::Bytes;
use contracts::id::{Provider, Region};
use contracts::subject;
use jiff::SignedDuration;
use orchestrator::callback::ProvidersConfig;
use orchestrator::driver::Limits;
use orchestrator::partition::Partition;
use orchestrator::payments::Payments;
use orchestrator::regions::{RegionCache, Regions};
use orchestrator::saga::rules::Rules;
use orchestrator::serve::{Build, FxConfig, ServeConfig};
use orchestrator::site::{Core, Leaf, Options, Server, Site, User};
use region_agent::clock::Clock;
use region_agent::ledger::Ledger;
use region_agent::nats_options::{NatsOptions, Secret};
use region_agent::wallet::Wallet;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a rate is waited for.
const RATE_TIMEOUT: Duration = Duration::from_secs(2);

/// How soon a message comes again where orchestrators are killed.
const SHORT_ACK_WAIT: Duration = Duration::from_secs(2);

/// Messages out at a time where they are few.
const FEW: i64 = 8;

/// A system under test.
#[derive(Debug)]
pub struct World {
    /// Which.
    pub kind: WorldKind,
    /// Its servers.
    pub site: tokio::sync::Mutex<Site>,
    /// What is stored.
    pub view: View,
    /// Its payments, opened a second time.
    pub payments: Payments,
    /// The ledger of the default region, opened a second time.
    pub local: Wallet,
    /// The wallets of the other regions.
    pub regions: BTreeMap<String, tokio::sync::Mutex<RegionWallet>>,
    /// The rate service.
    pub rates: Rates,
    /// The orchestrators.
    pub instances: tokio::sync::Mutex<Vec<Instance>>,
    /// Stores callbacks, as the gateway does.
    pub gateway: jetstream::Context,
    /// Speaks to sagas, as a person does.
    pub operator: jetstream::Context,
    /// Everything an orchestrator may do.
    pub core: jetstream::Context,
    /// What is stored where.
    pub partition: Partition,
    /// What orchestrators are started with from now on.
    pub crew: Mutex<Crew>,
    config: ServeConfig,
    // Last, as the databases lie in it.
    _dir: tempfile::TempDir,
}

/// What orchestrators are started with.
#[derive(Debug, Clone, Default)]
pub struct Crew {
    /// What is built in.
    pub build: Build,
    /// Seconds that single ones are ahead besides, by name.
    pub clocks: BTreeMap<String, i64>,
}

impl Crew {
    /// Of version 1, on the right clock.
    ///
    /// # Errors
    /// Never: there is a version 1.
    pub fn usual() -> anyhow::Result<Self> {
        Ok(Self {
            build: Build {
                workflows: flows::build("v1").context("version 1")?,
                ..Build::default()
            },
            clocks: BTreeMap::new(),
        })
    }

    fn member(&self, name: &str) -> Build {
        let ahead = self.clocks.get(name).copied().unwrap_or(0);
        Build {
            clock_ahead: self.build.clock_ahead + SignedDuration::from_secs(ahead),
            ..self.build.clone()
        }
    }
}

impl World {
    /// Starts everything but orchestrators, configured for these cases.
    ///
    /// # Errors
    /// What could not be started.
    pub async fn start(kind: WorldKind, cases: &[Case]) -> anyhow::Result<Self> {
        let (core, replicas) = match kind {
            WorldKind::Shared | WorldKind::Restarts | WorldKind::FewPending => (Core::OneNode, 1),
            WorldKind::ThreeNodes => (Core::ThreeNodes, 3),
        };
        let options = Options {
            core,
            ..Options::default()
        };
        let site = Site::start(options).await.context("site")?;
        let partition = Partition::only(replicas);
        let client = site.connect(User::Orchestrator).await?;
        let setup = orchestrator::setup::apply(&client, &partition).await?;
        ensure!(setup.is_as_declared(), "{}", setup.render());
        let core = orchestrator::serve::context(&client);
        tune(kind, &core, &partition).await?;
        let dir = tempfile::tempdir()?;
        let config = config(&site, &partition, dir.path().to_owned(), cases)?;
        let payments = payments(&config).await?;
        let local = wallet(&config.wallet_url).await?;
        let mut regions = BTreeMap::new();
        for leaf in Leaf::ALL {
            let region: Region = leaf.region().parse()?;
            let url = format!("sqlite://{}/{region}.db", dir.path().display());
            let mut served = RegionWallet::new(region, wallet(&url).await?);
            served.serve(site.connect(User::Agent(leaf)).await?).await?;
            regions.insert(leaf.region().to_owned(), tokio::sync::Mutex::new(served));
        }
        let rates = Rates::start(site.connect(User::Rates).await?).await?;
        let view = View::start(core.clone(), partition.clone());
        Ok(Self {
            kind,
            view,
            payments,
            local,
            regions,
            rates,
            instances: tokio::sync::Mutex::default(),
            gateway: jetstream::new(site.connect(User::Gateway).await?),
            operator: jetstream::new(site.connect(User::Operator).await?),
            core,
            partition,
            crew: Mutex::new(Crew::usual()?),
            config,
            site: tokio::sync::Mutex::new(site),
            _dir: dir,
        })
    }

    /// Starts orchestrators until there are so many.
    ///
    /// # Errors
    /// When one does not serve.
    pub async fn staff(&self, count: usize) -> anyhow::Result<()> {
        let mut instances = self.instances.lock().await;
        while instances.len() < count {
            let mut config = self.config.clone();
            config.name = format!("instance-{}", instances.len() + 1);
            let build = self.crew().member(&config.name);
            instances.push(Instance::start(config, build).await?);
        }
        Ok(())
    }

    /// What orchestrators are started with.
    pub fn crew(&self) -> MutexGuard<'_, Crew> {
        self.crew.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Kills all orchestrators where they stand.
    ///
    /// # Errors
    /// When one goes on all the same.
    pub async fn kill_all(&self) -> anyhow::Result<()> {
        for instance in self.instances.lock().await.drain(..) {
            instance.kill().await?;
        }
        Ok(())
    }

    /// Asks all orchestrators to end and waits for them.
    ///
    /// # Errors
    /// When one ends with an error, or not at all.
    pub async fn stop_all(&self) -> anyhow::Result<()> {
        for instance in self.instances.lock().await.drain(..) {
            instance.stop().await?;
        }
        Ok(())
    }

    /// The ledgers of all regions.
    pub async fn ledgers(&self) -> Vec<Ledger> {
        let mut ledgers = vec![self.local.ledger().clone()];
        for region in self.regions.values() {
            ledgers.push(region.lock().await.wallet().ledger().clone());
        }
        ledgers
    }

    /// Messages of the intake that are neither settled nor given up: those out, and those to come.
    ///
    /// # Errors
    /// When the server does not answer.
    pub async fn unsettled(&self) -> anyhow::Result<u64> {
        let stream = self
            .core
            .get_stream_no_info(self.partition.intake_stream())
            .await?;
        let info = stream
            .consumer_info(self.partition.intake_consumer())
            .await?;
        Ok(info.num_pending + u64::try_from(info.num_ack_pending)?)
    }
}

/// A message that the intake has stored.
#[derive(Debug, Clone)]
pub struct Sent {
    /// Its sequence.
    pub sequence: u64,
    /// What it says.
    pub body: Bytes,
}

impl World {
    /// Stores a callback as the gateway does.
    ///
    /// # Errors
    /// When it is not acknowledged.
    pub async fn callback(
        &self,
        provider: &str,
        event_id: &str,
        body: Bytes,
    ) -> anyhow::Result<Sent> {
        let provider: Provider = provider.parse()?;
        let subject = subject::callback(&provider, event_id, &body);
        let ack = self.gateway.publish(subject, body.clone()).await?.await?;
        Ok(Sent {
            sequence: ack.sequence,
            body,
        })
    }

    /// Whether every orchestrator that was started still runs.
    pub async fn running(&self) -> bool {
        let mut instances = self.instances.lock().await;
        instances.iter_mut().all(Instance::is_running)
    }

    /// Checks the books of all regions.
    ///
    /// # Errors
    /// Every discrepancy.
    pub async fn books_are_right(&self) -> anyhow::Result<()> {
        for ledger in self.ledgers().await {
            let wrong = ledger.verify().await?;
            ensure!(wrong.is_empty(), "books: {wrong:?}");
        }
        Ok(())
    }

    /// Lets agents of eu subscribe outside the queue group, and replaces its wallet's instances by so
    /// many that each get every command.
    ///
    /// # Errors
    /// When the leaf does not come back.
    pub async fn loosen_queue_group(&self, count: usize) -> anyhow::Result<()> {
        self.edit_leaf(QUEUE_ONLY, ANY_SUBSCRIPTION).await?;
        let mut wallet = self.eu().await?;
        wallet.leave();
        for _ in 0..count {
            let client = self
                .site
                .lock()
                .await
                .connect(User::Agent(Leaf::Eu))
                .await?;
            wallet.serve_beside(client).await?;
        }
        Ok(())
    }

    /// Takes [`Self::loosen_queue_group`] back.
    ///
    /// # Errors
    /// When the leaf does not come back.
    pub async fn tighten_queue_group(&self) -> anyhow::Result<()> {
        let mut wallet = self.eu().await?;
        wallet.leave();
        self.edit_leaf(ANY_SUBSCRIPTION, QUEUE_ONLY).await?;
        let client = self
            .site
            .lock()
            .await
            .connect(User::Agent(Leaf::Eu))
            .await?;
        wallet.serve(client).await
    }

    /// Serves the wallets of all regions again that nobody serves.
    ///
    /// # Errors
    /// When a subscription cannot be made.
    pub async fn serve_regions(&self) -> anyhow::Result<()> {
        for leaf in Leaf::ALL {
            let wallet = self.regions.get(leaf.region()).context("no such region")?;
            let mut wallet = wallet.lock().await;
            if !wallet.is_served() {
                let client = self.site.lock().await.connect(User::Agent(leaf)).await?;
                wallet.serve(client).await?;
            }
        }
        Ok(())
    }

    async fn eu(&self) -> anyhow::Result<tokio::sync::MutexGuard<'_, RegionWallet>> {
        let wallet = self
            .regions
            .get(Leaf::Eu.region())
            .context("no region eu")?;
        Ok(wallet.lock().await)
    }

    async fn edit_leaf(&self, from: &str, to: &str) -> anyhow::Result<()> {
        let mut site = self.site.lock().await;
        let path = site.dir().join("nats/leaf-eu.conf");
        let text = std::fs::read_to_string(&path)?;
        ensure!(text.contains(from), "leaf-eu.conf does not say {from}");
        std::fs::write(&path, text.replace(from, to))?;
        site.restart_server(Server::Leaf(Leaf::Eu)).await?;
        Ok(())
    }

    /// Lets many writes race for one place until one of the losers is told just this error.
    ///
    /// # Errors
    /// When none is.
    pub async fn race_until(&self, code: u64) -> anyhow::Result<()> {
        for round in 0..RACES {
            let place = format!("race-{code}-{round}");
            let place = self.partition.record_subject(&place);
            let racing = (0..RACERS).map(|_| self.create(&place));
            let mut told = futures::future::try_join_all(racing).await?;
            // One more that comes when the winner's write stands.
            told.push(self.create(&place).await?);
            let stream = self.core.get_stream_no_info(self.partition.state_stream());
            stream.await?.purge().filter(place).await?;
            let won = told.iter().filter(|told| told.is_none()).count();
            ensure!(won == 1, "{won} of {RACERS} writers won");
            if told.contains(&Some(code)) {
                return Ok(());
            }
        }
        anyhow::bail!("none of {RACES} races ended with {code}")
    }

    /// Writes to a place that must be empty: the error's code, or none.
    async fn create(&self, place: &str) -> anyhow::Result<Option<u64>> {
        let mut headers = async_nats::HeaderMap::new();
        headers.insert(async_nats::header::NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, "0");
        let request = async_nats::Request::new()
            .headers(headers)
            .payload("no record".into());
        let reply = self
            .core
            .client()
            .send_request(place.to_owned(), request)
            .await?;
        let reply: serde_json::Value = serde_json::from_slice(&reply.payload)?;
        Ok(reply["error"]["err_code"].as_u64())
    }
}

/// What the permissions of an agent say, and what they say for a case that needs more.
const QUEUE_ONLY: &str = "billing.eu.> wallet";
const ANY_SUBSCRIPTION: &str = "billing.eu.>\", \"billing.eu.> wallet";

/// Races at most, and writers in each.
const RACES: u32 = 50;
const RACERS: u32 = 16;

/// Sets what a world needs to be different at the consumer of the intake.
async fn tune(
    kind: WorldKind,
    js: &jetstream::Context,
    partition: &Partition,
) -> anyhow::Result<()> {
    if !matches!(kind, WorldKind::Restarts | WorldKind::FewPending) {
        return Ok(());
    }
    let consumers = [
        (partition.intake_stream(), partition.intake_consumer()),
        (partition.state_stream(), partition.timers_consumer()),
    ];
    for (stream, name) in consumers {
        let stream = js.get_stream_no_info(stream).await?;
        let consumer: jetstream::consumer::PullConsumer = stream
            .get_consumer(name)
            .await
            .map_err(|error| anyhow::anyhow!("consumer {name}: {error}"))?;
        let mut config = consumer.cached_info().config.clone();
        if kind == WorldKind::Restarts {
            config.ack_wait = SHORT_ACK_WAIT;
        } else if name == partition.intake_consumer() {
            config.max_ack_pending = FEW;
        }
        stream.update_consumer(config).await?;
    }
    Ok(())
}

fn config(
    site: &Site,
    partition: &Partition,
    dir: PathBuf,
    cases: &[Case],
) -> anyhow::Result<ServeConfig> {
    let login = site.login(User::Orchestrator);
    let mut providers = ProvidersConfig::default();
    for case in cases {
        providers.providers.extend(case.given.providers.clone());
        providers.currencies.extend(case.given.currencies.clone());
    }
    Ok(ServeConfig {
        name: String::new(),
        nats: NatsOptions {
            url: Some(login.url),
            user: Some(login.user),
            password: Some(Secret(login.password)),
            inbox_prefix: Some(login.inbox_prefix),
            ..NatsOptions::default()
        },
        partition: partition.clone(),
        payments_url: format!("sqlite://{}/payments.db?mode=rwc", dir.display()),
        wallet_url: format!("sqlite://{}/wallet.db", dir.display()),
        connections: 4,
        default_region: "default".parse()?,
        regions: vec!["eu".parse()?, "asia".parse()?],
        providers,
        fx: FxConfig::Nats(RATE_TIMEOUT),
        listen: None,
        rules: Rules::default(),
        limits: Limits::default(),
        grace: Duration::from_secs(5),
        allow_unsafe_durability: false,
    })
}

async fn payments(config: &ServeConfig) -> anyhow::Result<Payments> {
    let regions = Regions::new(
        config.regions.iter().cloned(),
        config.default_region.clone(),
    );
    let payments = Payments::open(&config.payments_url, 1, regions, RegionCache::Off).await?;
    Ok(payments)
}

async fn wallet(url: &str) -> anyhow::Result<Wallet> {
    Ok(Wallet::new(Ledger::open(url).await?, Clock::system()))
}
