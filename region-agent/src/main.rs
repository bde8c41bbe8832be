//! `region-agent`: arguments, telemetry, wiring, shutdown, exit code.

mod by_hand;

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use contracts::id::CustomerId;
use contracts::money::CurrencyCode;
use prometheus::Registry;
use region_agent::bus::{Metrics, WalletService};
use region_agent::clock::Clock;
use region_agent::config::{Config, Settings, default_file};
use region_agent::health::{self, Health};
use region_agent::ledger::{Ledger, WalletInfo};
use region_agent::nats_options::WhenUnreachable;
use region_agent::participant::WalletState;
use region_agent::telemetry;
use region_agent::wallet::Wallet;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Serves the wallet of one region over NATS
#[derive(Parser)]
#[command(version, after_help = EXIT_CODES)]
struct Arguments {
    /// TOML file with settings [default: region-agent.toml, if it is there]
    #[arg(long, value_name = "FILE", global = true, env = "REGION_AGENT_CONFIG")]
    config: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str = "Settings: a flag wins over REGION_AGENT_<NAME> (as in REGION_AGENT_NATS_URL), \
which wins over the config file.\n\
Exit codes: 0 done; 1 failed, or `ledger verify` found discrepancies; 64 wrong arguments or settings.";

#[derive(Subcommand)]
enum Command {
    /// Serve billing.<region>.wallet.update, .revert and .get until told to stop
    Serve,
    /// Open, close or show a customer's wallet
    Wallet {
        #[command(subcommand)]
        command: WalletCommand,
    },
    /// Work on the ledger
    Ledger {
        #[command(subcommand)]
        command: LedgerCommand,
    },
}

#[derive(Subcommand)]
enum WalletCommand {
    /// Open a wallet, or open a closed one again
    Open {
        /// The customer's id
        customer: CustomerId,
        /// Take this currency only
        #[arg(long, value_name = "CODE")]
        only: Option<CurrencyCode>,
    },
    /// Close a wallet: every movement is refused until it is opened again
    Close {
        /// The customer's id
        customer: CustomerId,
    },
    /// Show a wallet and its balances
    Show {
        /// The customer's id
        customer: CustomerId,
    },
    /// Book one movement by hand, once for its operation id
    Book(by_hand::Book),
    /// Offset one operation by hand by a new entry, or forbid it when it never arrived
    Revert(by_hand::Revert),
}

#[derive(Subcommand)]
enum LedgerCommand {
    /// Check the books: every balance against its entries, every operation against its movements
    Verify,
}

const USAGE: u8 = 64;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let asked_for = !error.use_stderr();
            return match (error.print(), asked_for) {
                (Ok(()), true) => ExitCode::SUCCESS,
                (Ok(()) | Err(_), _) => ExitCode::from(USAGE),
            };
        }
    };
    let file = arguments.config.clone().or_else(default_file);
    let config = Config::load(&arguments.settings, file.as_deref());
    let serving = matches!(arguments.command, Command::Serve);
    let checked = config.and_then(|config| match serving {
        true => config.required_region().map(|_| config),
        false => Ok(config),
    });
    let config = match checked {
        Ok(config) => config,
        Err(error) => {
            eprintln!("region-agent: {error}");
            return ExitCode::from(USAGE);
        }
    };
    let telemetry = match telemetry::start("region-agent", config.log_format, &config.log) {
        Ok(telemetry) => telemetry,
        Err(error) => {
            eprintln!("region-agent: log: {:#}", anyhow::Error::new(error));
            return ExitCode::from(USAGE);
        }
    };
    let outcome = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("the runtime cannot be started")
        .and_then(|runtime| runtime.block_on(run(arguments.command, config)));
    telemetry.finish();
    match outcome {
        Ok(code) => code,
        Err(error) => {
            eprintln!("region-agent: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(command: Command, config: Config) -> anyhow::Result<ExitCode> {
    // A person who forgets --ledger must not book in an empty one, nor be told that it is in order.
    let begins = matches!(
        command,
        Command::Serve
            | Command::Wallet {
                command: WalletCommand::Open { .. }
            }
    );
    if let Some(path) = missing_file(&config.ledger.0).filter(|_| !begins) {
        anyhow::bail!(
            "ledger: {path} does not exist: name the ledger of the region's agent with --ledger"
        );
    }
    let ledger = Ledger::open_with(&config.ledger.0, config.ledger_connections).await?;
    let clock = Clock::system();
    let outcome = match command {
        Command::Serve => serve(config, ledger.clone(), clock).await,
        Command::Wallet { command } => wallet(&ledger, &clock, command).await,
        Command::Ledger {
            command: LedgerCommand::Verify,
        } => verify(&ledger).await,
    };
    ledger.close().await;
    outcome
}

/// The file of an SQLite url, when it does not exist.
fn missing_file(url: &str) -> Option<&str> {
    let path = url.strip_prefix("sqlite:")?;
    let path = path.strip_prefix("//").unwrap_or(path);
    let path = path.split('?').next().unwrap_or(path);
    (path != ":memory:" && !std::path::Path::new(path).exists()).then_some(path)
}

async fn serve(config: Config, ledger: Ledger, clock: Clock) -> anyhow::Result<ExitCode> {
    let region = config.required_region()?;
    // Caught before anything is served, so that no signal ends us with commands running.
    let mut signals = StopSignals::catch()?;
    let stop = CancellationToken::new();
    let stopping = stop.clone();
    // Bound first: a second agent with the same settings ends here, before it takes commands.
    let listener = health::bind(config.listen)
        .await
        .with_context(|| format!("listen: {} cannot be bound", config.listen))?;
    let client = config
        .nats
        .connect(
            &format!("region-agent {region}"),
            WhenUnreachable::KeepTrying,
        )
        .await?;
    let registry = Registry::new();
    let metrics = Metrics::register(&registry)?;
    let service = WalletService::start(
        client.clone(),
        Wallet::new(ledger.clone(), clock),
        region.clone(),
        config.max_in_flight,
        metrics,
    )
    .await?;
    let (pinged, ping_subject) = (client.clone(), service.ping_subject());
    let health = Health::new(registry)
        .with_check("nats", move || {
            let (client, subject) = (pinged.clone(), ping_subject.clone());
            async move { health::nats_round_trip(&client, subject).await }
        })
        .with_check("ledger", move || {
            let ledger = ledger.clone();
            async move { ledger.ping().await.map_err(|error| error.chain()) }
        });
    let health = tokio::spawn(health.serve(listener, stopping));
    tracing::info!(%region, listen = %config.listen, "serving");
    signals.wait().await;
    tracing::info!("stopping");
    service.stop(config.shutdown_grace).await;
    client.drain().await?;
    stop.cancel();
    health.await??;
    Ok(ExitCode::SUCCESS)
}

/// SIGTERM and SIGINT, caught from the moment this is made.
struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    fn catch() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn wait(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

async fn wallet(
    ledger: &Ledger,
    clock: &Clock,
    command: WalletCommand,
) -> anyhow::Result<ExitCode> {
    let customer = match command {
        WalletCommand::Open { customer, only } => {
            ledger.open_wallet(&customer, only, clock.now()).await?;
            customer
        }
        WalletCommand::Close { customer } => {
            ledger.close_wallet(&customer, clock.now()).await?;
            customer
        }
        WalletCommand::Show { customer } => customer,
        WalletCommand::Book(command) => return by_hand::book(ledger, clock, command).await,
        WalletCommand::Revert(command) => return by_hand::revert(ledger, clock, command).await,
    };
    match ledger.show_wallet(&customer).await? {
        Some(info) => {
            show(&info)?;
            Ok(ExitCode::SUCCESS)
        }
        None => {
            eprintln!("region-agent: there is no wallet of {customer}");
            Ok(ExitCode::FAILURE)
        }
    }
}

fn show(info: &WalletInfo) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    let state = match info.state {
        WalletState::Open => "open",
        WalletState::Closed => "closed",
        WalletState::Absent => "absent",
    };
    writeln!(out, "customer  {}", info.customer)?;
    writeln!(out, "state     {state}")?;
    if let Some(currency) = info.sole_currency {
        writeln!(out, "currency  {currency} only")?;
    }
    writeln!(out, "opened    {}", info.opened_at)?;
    if let Some(closed_at) = info.closed_at {
        writeln!(out, "closed    {closed_at}")?;
    }
    for balance in &info.balances {
        writeln!(out, "balance   {balance}")?;
    }
    Ok(())
}

async fn verify(ledger: &Ledger) -> anyhow::Result<ExitCode> {
    let found = ledger.verify().await?;
    let mut out = std::io::stdout().lock();
    for discrepancy in &found {
        writeln!(out, "{discrepancy}")?;
    }
    if found.is_empty() {
        writeln!(out, "the books are right")?;
        return Ok(ExitCode::SUCCESS);
    }
    Ok(ExitCode::FAILURE)
}
