//! Settings: flags over environment (`REGION_AGENT_*`) over TOML (`--config`) over defaults.
//!
//! Everything is parsed before anything connects; a bad value is one line that names it.

use crate::nats_options::{self, NatsOptions, Secret};
use crate::settings::{self, Text, field, parse};
use crate::telemetry::LogFormat;
use contracts::id::Region;
use figment::providers::Serialized;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use crate::settings::ConfigError;

/// Prefix of our environment variables.
pub const ENVIRONMENT_PREFIX: &str = "REGION_AGENT_";

const ENVIRONMENT: [(&str, &str); 8] = [
    ("REGION", "region"),
    ("LEDGER", "ledger"),
    ("LEDGER_CONNECTIONS", "ledger_connections"),
    ("LISTEN", "listen"),
    ("MAX_IN_FLIGHT", "max_in_flight"),
    ("SHUTDOWN_GRACE", "shutdown_grace"),
    ("LOG", "log"),
    ("LOG_FORMAT", "log_format"),
];

/// Settings as given, nothing filled in. A flag, an environment variable and a TOML key of one name
/// mean the same.
#[derive(Debug, Clone, Default, clap::Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Region served, the second token of `billing.<region>.wallet.<verb>`
    #[arg(long, value_name = "NAME", global = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<Text>,
    /// Ledger: sqlite:///path.db or postgres://user@host/database [default: sqlite://wallet.db]
    #[arg(long, value_name = "URL", global = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ledger: Option<Secret>,
    /// Connections to PostgreSQL at most [default: 16]
    #[arg(long, value_name = "N", global = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ledger_connections: Option<Text>,
    /// Address of /metrics, /healthz and /readyz [default: 127.0.0.1:9465]
    #[arg(long, value_name = "ADDR", global = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<Text>,
    /// Commands executed at once; more are answered `busy` [default: 64]
    #[arg(long, value_name = "N", global = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_in_flight: Option<Text>,
    /// How long running commands may take to finish at shutdown [default: 20s]
    #[arg(long, value_name = "TIME", global = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shutdown_grace: Option<Text>,
    /// Log filter in the form of RUST_LOG [default: info]
    #[arg(long, value_name = "FILTER", global = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<Text>,
    /// Log lines: text or json [default: text]
    #[arg(long, value_name = "FORMAT", global = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_format: Option<Text>,
    /// The connection to NATS.
    #[command(flatten)]
    pub nats: NatsOptions,
}

/// Settings, complete and checked.
#[derive(Debug, Clone)]
pub struct Config {
    /// Region served; `None` when not given, which only `serve` minds.
    pub region: Option<Region>,
    /// Ledger url.
    pub ledger: Secret,
    /// Connections to PostgreSQL at most.
    pub ledger_connections: u32,
    /// Address of the health endpoints.
    pub listen: SocketAddr,
    /// Commands executed at once.
    pub max_in_flight: usize,
    /// How long running commands may take to finish at shutdown.
    pub shutdown_grace: Duration,
    /// Log filter.
    pub log: String,
    /// Log line format.
    pub log_format: LogFormat,
    /// The connection to NATS, its context filled in.
    pub nats: NatsOptions,
}

impl Config {
    /// Merges flags, environment and an optional TOML file, and checks every value.
    ///
    /// # Errors
    /// [`ConfigError`], naming the field.
    pub fn load(flags: &Settings, file: Option<&Path>) -> Result<Self, ConfigError> {
        let environment = |name: &str| std::env::var(format!("{ENVIRONMENT_PREFIX}{name}")).ok();
        Self::from_settings(merge(flags, environment, file)?)
    }

    /// Checks every value and fills in the defaults.
    ///
    /// # Errors
    /// [`ConfigError`], naming the field.
    pub fn from_settings(settings: Settings) -> Result<Self, ConfigError> {
        let max_in_flight = parse("max_in_flight", settings.max_in_flight)?.unwrap_or(64);
        if max_in_flight == 0 {
            return Err(field("max_in_flight", "must be above 0"));
        }
        let ledger_connections =
            parse("ledger_connections", settings.ledger_connections)?.unwrap_or(16);
        if ledger_connections == 0 {
            return Err(field("ledger_connections", "must be above 0"));
        }
        Ok(Self {
            region: parse("region", settings.region)?,
            ledger: settings
                .ledger
                .unwrap_or_else(|| Secret("sqlite://wallet.db".to_owned())),
            ledger_connections,
            listen: parse("listen", settings.listen)?
                .unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 9465))),
            max_in_flight,
            shutdown_grace: settings::parse_duration("shutdown_grace", settings.shutdown_grace)?
                .unwrap_or(Duration::from_secs(20)),
            log: settings
                .log
                .map_or_else(|| "info".to_owned(), |text| text.0),
            log_format: parse("log_format", settings.log_format)?.unwrap_or_default(),
            nats: settings.nats.resolve().map_err(ConfigError::Nats)?,
        })
    }

    /// The region, which `serve` cannot do without.
    ///
    /// # Errors
    /// [`ConfigError::Field`] when none is given.
    pub fn required_region(&self) -> Result<Region, ConfigError> {
        self.region.clone().ok_or_else(|| {
            field(
                "region",
                "is not set; give --region, REGION_AGENT_REGION or `region` in the config file",
            )
        })
    }
}

fn merge(
    flags: &Settings,
    environment: impl Fn(&str) -> Option<String>,
    file: Option<&Path>,
) -> Result<Settings, ConfigError> {
    let names = ENVIRONMENT.into_iter().chain(nats_options::ENVIRONMENT);
    let figment = settings::layers::<Settings>(file, names, environment)?;
    settings::extract(&figment.merge(Serialized::defaults(flags)))
}

/// The default place of the config file, when it exists.
#[must_use]
pub fn default_file() -> Option<PathBuf> {
    let path = PathBuf::from("region-agent.toml");
    path.exists().then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(flags: &Settings, environment: &[(&str, &str)], toml: &str) -> Result<Config, String> {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("agent.toml");
        std::fs::write(&path, toml).expect("config file");
        let environment = |name: &str| {
            environment
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, value)| (*value).to_owned())
        };
        merge(flags, environment, Some(&path))
            .and_then(Config::from_settings)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn flags_win_over_environment_over_file() {
        let flags = Settings {
            region: Some(Text("flag".to_owned())),
            ..Settings::default()
        };
        let config = load(
            &flags,
            &[("REGION", "env"), ("MAX_IN_FLIGHT", "5"), ("NATS_PASSWORD", "0123"), ("NATS_USER", "u")],
            "region = 'file'\nmax_in_flight = 3\nledger_connections = 9\n[nats]\nurl = 'nats://n:1'\n",
        )
        .expect("config");
        assert_eq!(config.region.expect("region").as_str(), "flag");
        assert_eq!((config.max_in_flight, config.ledger_connections), (5, 9));
        assert_eq!(config.nats.password, Some(Secret("0123".to_owned())));
        assert_eq!(config.nats.url.as_deref(), Some("nats://n:1"));
    }

    #[test]
    fn a_bad_value_is_one_line_naming_the_field() {
        for (toml, field) in [
            ("region = 'EU'", "region"),
            ("max_in_flight = 0", "max_in_flight"),
            ("max_in_flight = 'many'", "max_in_flight"),
            ("listen = '9465'", "listen"),
            ("shutdown_grace = 'soon'", "shutdown_grace"),
            ("log_format = 'xml'", "log_format"),
            ("regoin = 'eu'", "regoin"),
            ("[nats]\nurll = 'x'", "urll"),
            ("[nats]\ntls_first = 'x'", "nats.tls_first"),
        ] {
            let error = load(&Settings::default(), &[], toml).expect_err(toml);
            assert!(error.contains(field), "{toml}: {error}");
            assert!(!error.contains('\n'), "{toml}: {error}");
        }
    }
}
