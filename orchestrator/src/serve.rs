//! `orchestrator serve`: wires the parts, runs until told to stop, and drains.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_nats::Client;
use async_nats::connection::State;
use async_nats::jetstream;
use contracts::id::Region;
use jiff::SignedDuration;
use region_agent::bus::WalletService;
use region_agent::health::{self, Health};
use region_agent::ledger::{Ledger, LedgerError};
use region_agent::nats_options::{NatsOptions, NatsOptionsError, WhenUnreachable};
use region_agent::wallet::Wallet;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::callback::{ProfileError, Providers, ProvidersConfig};
use crate::clock::Clock;
use crate::consume;
use crate::doctor::{self, Report};
use crate::driver::{Engine, Limits};
use crate::fx::{NatsRates, RateSource, RateTable, RateTableError};
use crate::intake::Intake;
use crate::metrics::Metrics;
use crate::participants::{CoreSide, Participants, RegionBus};
use crate::partition::Partition;
use crate::payments::{Payments, PaymentsError};
use crate::regions::{RegionCache, Regions};
use crate::saga::rules::Rules;
use crate::setup::{self, SetupError};
use crate::store::Store;
use crate::timers::Timers;
use crate::workflows::Workflows;

/// Everything `serve` needs to know, checked.
#[derive(Debug, Clone)]
pub struct ServeConfig {
    /// Name of this replica in logs and records.
    pub name: String,
    /// The connection.
    pub nats: NatsOptions,
    /// What is stored where.
    pub partition: Partition,
    /// Payments database: `sqlite:` or `postgres:` url.
    pub payments_url: String,
    /// Ledger of the default region's wallet: `sqlite:` or `postgres:` url.
    pub wallet_url: String,
    /// Connections to each PostgreSQL database at most.
    pub connections: u32,
    /// The region whose wallet is called in process.
    pub default_region: Region,
    /// The other regions.
    pub regions: Vec<Region>,
    /// Providers and currencies.
    pub providers: ProvidersConfig,
    /// Where rates come from.
    pub fx: FxConfig,
    /// Address of `/metrics`, `/healthz` and `/readyz`; none when absent.
    pub listen: Option<SocketAddr>,
    /// What this installation lays down for its sagas.
    pub rules: Rules,
    /// See [`Limits`].
    pub limits: Limits,
    /// How long sagas at work may take to end at shutdown before they are given back.
    pub grace: Duration,
    /// Serve although the doctor calls the servers unsafe.
    pub allow_unsafe_durability: bool,
}

/// Where rates come from.
#[derive(Debug, Clone)]
pub enum FxConfig {
    /// Fixed rates, `"EUR/USD" = "1.1000"`.
    Table(BTreeMap<String, String>),
    /// A service on `billing.core.fx.quote`, asked for at most so long.
    Nats(Duration),
}

/// Why an orchestrator cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The connection.
    #[error("NATS connection")]
    Connect(#[source] NatsOptionsError),
    /// The doctor's findings.
    #[error(
        "refusing to serve: acknowledged would not mean safe. Mend it, or give --allow-unsafe-durability:\n{0}"
    )]
    Unsafe(String),
    /// Streams or consumers are missing or differ.
    #[error("refusing to serve: run `orchestrator setup` first, and mend what differs:\n{0}")]
    NotSetUp(String),
    /// The set-up cannot be looked at.
    #[error("set-up")]
    Setup(#[source] SetupError),
    /// Payments.
    #[error(transparent)]
    Payments(PaymentsError),
    /// The wallet of the default region.
    #[error("wallet ledger of the default region")]
    Ledger(#[source] LedgerError),
    /// Providers.
    #[error("providers")]
    Providers(#[source] ProfileError),
    /// Rates.
    #[error("rates")]
    Rates(#[source] RateTableError),
    /// Anything else that the server refuses.
    #[error("{what}")]
    Nats {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        #[source]
        source: async_nats::Error,
    },
    /// The address for health checks.
    #[error("address {address} for health checks")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why it cannot be had.
        #[source]
        source: std::io::Error,
    },
    /// Metrics.
    #[error("metrics")]
    Metrics(#[source] prometheus::Error),
}

/// What is built in and no setting: a test serves workflows of its own, or on a clock that is wrong.
#[derive(Debug, Clone, Default)]
pub struct Build {
    /// The workflows it knows.
    pub workflows: Workflows,
    /// How far its clock is ahead of the system's; below zero when it is behind.
    pub clock_ahead: SignedDuration,
}

impl Build {
    /// Its clock, and that of the wallet in the same process: they are one.
    fn clocks(&self, name: &str) -> (Clock, region_agent::clock::Clock) {
        use region_agent::clock::Clock as WalletClock;
        if self.clock_ahead.is_zero() {
            return (Clock::new(name), WalletClock::system());
        }
        let clock = Clock::ahead(name, self.clock_ahead);
        let same = clock.clone();
        (clock, WalletClock::told(Arc::new(move || same.now())))
    }
}

/// Serves until `stop` is cancelled, then lets the sagas at work end or gives them back.
///
/// # Errors
/// [`ServeError`] when it cannot start; once it serves, trouble is logged and retried.
pub async fn serve(config: ServeConfig, stop: CancellationToken) -> Result<(), ServeError> {
    serve_build(config, Build::default(), stop).await
}

/// As [`serve`], with what is built in given.
///
/// # Errors
/// As [`serve`].
pub async fn serve_build(
    config: ServeConfig,
    build: Build,
    stop: CancellationToken,
) -> Result<(), ServeError> {
    let (clock, wallet_clock) = build.clocks(&config.name);
    // Bound first: a second replica with the same settings ends here, before it takes messages.
    let listener = match config.listen {
        None => None,
        Some(address) => Some(
            health::bind(address)
                .await
                .map_err(|source| ServeError::Listen { address, source })?,
        ),
    };
    let client = config
        .nats
        .connect(&config.name, WhenUnreachable::KeepTrying)
        .await
        .map_err(ServeError::Connect)?;
    tokio::select! {
        () = stop.cancelled() => return Ok(()),
        () = connected(&client) => {}
    }
    check_safety(&client, &config).await?;

    let metrics = Metrics::new().map_err(ServeError::Metrics)?;
    let parts = open(&config, &client, &clock, wallet_clock, &metrics).await?;
    let js = context(&client);
    let store = Store::open(js.clone(), config.partition.clone(), clock.clone())
        .await
        .map_err(|error| ServeError::Nats {
            what: "state stream",
            source: error.into(),
        })?;
    let partition = &config.partition;
    let intake = consumer(&js, partition.intake_stream(), partition.intake_consumer()).await?;
    let timers = consumer(&js, partition.state_stream(), partition.timers_consumer()).await?;
    let out = intake.cached_info().config.max_ack_pending;
    let engine = Engine::new(
        Arc::new(store),
        build.workflows,
        Arc::new(parts.participants),
        clock.clone(),
        config.rules.clone(),
        config.limits.within(out),
        metrics.clone(),
    );
    tokio::spawn(take_late_replies(engine.clone(), parts.late));

    let consuming = CancellationToken::new();
    let intake = tokio::spawn(consume::run(
        js.clone(),
        intake,
        Intake::new(engine.clone(), parts.providers),
        consuming.clone(),
    ));
    let timers = tokio::spawn(consume::run(
        js.clone(),
        timers,
        Timers::new(engine.clone()),
        consuming.clone(),
    ));
    // The saga's own steps call this wallet in process; here people reach it as they reach the others.
    let service = WalletService::start(
        client.clone(),
        parts.wallet.clone(),
        config.default_region.clone(),
        LOCAL_WALLET_SLOTS,
        region_agent::bus::Metrics::register(metrics.registry()).map_err(ServeError::Metrics)?,
    )
    .await
    .map_err(|error| ServeError::Nats {
        what: "wallet service of the default region",
        source: error.into(),
    })?;
    let serving_health = CancellationToken::new();
    if let Some(listener) = listener {
        let health = health_checks(
            metrics.registry().clone(),
            &client,
            &parts.payments,
            &parts.wallet,
        );
        tokio::spawn(health.serve(listener, serving_health.clone()));
    }
    tracing::info!(replica = clock.replica(), "serving");

    stop.cancelled().await;
    tracing::info!(
        "stopping: no new messages are taken; sagas at work get {:?}",
        config.grace
    );
    consuming.cancel();
    let leaving = async {
        engine.shut_down(config.grace).await;
        for consumer in [intake, timers] {
            if let Err(error) = consumer.await {
                tracing::error!(%error, "a consumer did not stop cleanly");
            }
        }
        service.stop(config.grace).await;
        serving_health.cancel();
        parts.payments.close().await;
        parts.wallet.ledger().close().await;
        if let Err(error) = client.flush().await {
            tracing::warn!(%error, "the last acknowledgements may be lost; their messages will come again");
        }
    };
    // A write whose verdict cannot be had, or an acknowledgement that cannot be sent, must not hold up a stop.
    if tokio::time::timeout(config.grace + LEAVE_WITHIN, leaving)
        .await
        .is_err()
    {
        tracing::warn!(
            "not all could be given back: what is left goes on elsewhere, as after a crash"
        );
    }
    tracing::info!("stopped");
    Ok(())
}

/// Waits for the first connection. Until then every question would only time out, and say nothing of why.
async fn connected(client: &Client) {
    while client.connection_state() != State::Connected {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// A JetStream context with our time limits.
#[must_use]
pub fn context(client: &Client) -> jetstream::Context {
    jetstream::context::ContextBuilder::new()
        .timeout(Duration::from_secs(5))
        .ack_timeout(Duration::from_secs(10))
        .max_ack_inflight(8192)
        .backpressure_on_inflight(true)
        .build(client.clone())
}

async fn check_safety(client: &Client, config: &ServeConfig) -> Result<(), ServeError> {
    let setup = setup::inspect(client, &config.partition)
        .await
        .map_err(ServeError::Setup)?;
    if !setup.is_usable() {
        return Err(ServeError::NotSetUp(setup.render()));
    }
    let report = doctor::examine(client, &doctor_options(&config.partition)).await;
    if report.refusals().next().is_some() {
        if !config.allow_unsafe_durability {
            return Err(ServeError::Unsafe(render_refusals(&report)));
        }
        tracing::warn!(
            "serving although acknowledged does not mean safe:\n{}",
            render_refusals(&report)
        );
    }
    Ok(())
}

/// What the doctor looks at for a partition.
#[must_use]
pub fn doctor_options(partition: &Partition) -> doctor::Options {
    doctor::Options {
        partition: partition.clone(),
        system: None,
        monitors: Vec::new(),
        now: crate::clock::wall_clock,
    }
}

fn render_refusals(report: &Report) -> String {
    Report {
        checks: report.refusals().cloned().collect(),
    }
    .render()
}

/// Longest stay beyond the grace, when a server or a database does not answer any more.
const LEAVE_WITHIN: Duration = Duration::from_secs(10);

/// Commands that the default region's wallet executes at once for callers from outside.
const LOCAL_WALLET_SLOTS: usize = 32;

/// What is opened before anything is consumed.
struct Parts {
    participants: Participants,
    providers: Providers,
    payments: Payments,
    wallet: Wallet,
    late: mpsc::UnboundedReceiver<crate::participants::LateReply>,
}

async fn open(
    config: &ServeConfig,
    client: &Client,
    clock: &Clock,
    wallet_clock: region_agent::clock::Clock,
    metrics: &Metrics,
) -> Result<Parts, ServeError> {
    let providers = Providers::new(config.providers.clone()).map_err(ServeError::Providers)?;
    let regions = Regions::new(
        config.regions.iter().cloned(),
        config.default_region.clone(),
    );
    let known: BTreeSet<Region> = regions.iter().cloned().collect();
    let bucket = context(client)
        .get_key_value(config.partition.regions_bucket())
        .await
        .map_err(|error| ServeError::Nats {
            what: "regions bucket",
            source: error.into(),
        })?;
    let payments = Payments::open(
        &config.payments_url,
        config.connections,
        regions,
        RegionCache::Bucket(Box::new(bucket)),
    )
    .await
    .map_err(ServeError::Payments)?;
    let ledger = Ledger::open_with(&config.wallet_url, config.connections)
        .await
        .map_err(ServeError::Ledger)?;
    let wallet = Wallet::new(ledger, wallet_clock);
    let rates = match &config.fx {
        FxConfig::Table(rates) => {
            RateSource::Table(Arc::new(RateTable::new(rates).map_err(ServeError::Rates)?))
        }
        FxConfig::Nats(timeout) => RateSource::Nats(NatsRates::new(client.clone(), *timeout)),
    };
    let (late_sender, late) = mpsc::unbounded_channel();
    let inbox = config.nats.inbox_prefix.as_deref().unwrap_or("_INBOX");
    let bus = RegionBus::open(
        client.clone(),
        clock.clone(),
        inbox,
        &known,
        config.limits.region_slots,
        metrics.clone(),
        late_sender,
    )
    .await
    .map_err(|error| ServeError::Nats {
        what: "reply subject",
        source: error.into(),
    })?;
    let core = CoreSide::new(payments.clone(), rates, clock.clone());
    let local = Some((config.default_region.clone(), wallet.clone()));
    let participants = Participants::new(core, local, bus);
    Ok(Parts {
        participants,
        providers,
        payments,
        wallet,
        late,
    })
}

async fn consumer(
    js: &jetstream::Context,
    stream: &str,
    name: &str,
) -> Result<jetstream::consumer::PullConsumer, ServeError> {
    js.get_consumer_from_stream(name, stream)
        .await
        .map_err(|error| ServeError::Nats {
            what: "consumer",
            source: error.into(),
        })
}

async fn take_late_replies(
    engine: Engine,
    mut late: mpsc::UnboundedReceiver<crate::participants::LateReply>,
) {
    while let Some((saga_id, reply)) = late.recv().await {
        engine.late_reply(&saga_id, reply);
    }
}

fn health_checks(
    registry: prometheus::Registry,
    client: &Client,
    payments: &Payments,
    wallet: &Wallet,
) -> Health {
    let (nats, payments, wallet) = (client.clone(), payments.clone(), wallet.clone());
    Health::new(registry)
        .with_check("nats", move || {
            let client = nats.clone();
            async move { health::nats_round_trip(&client, "$JS.API.INFO".to_owned()).await }
        })
        .with_check("payments", move || {
            let payments = payments.clone();
            async move { payments.ping().await.map_err(|error| error.to_string()) }
        })
        .with_check("wallet", move || {
            let wallet = wallet.clone();
            async move {
                wallet
                    .ledger()
                    .ping()
                    .await
                    .map_err(|error| error.to_string())
            }
        })
}
