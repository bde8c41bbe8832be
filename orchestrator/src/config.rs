//! Settings: flags over environment (`ORCHESTRATOR_*`) over TOML (`--config`) over defaults.
//!
//! Everything is parsed before anything connects; a bad value is one line that names it.
//! `orchestrator.example.toml` shows every key.

mod flags;
mod rules;
#[cfg(test)]
mod tests;

pub use flags::{BooksFlags, CommonFlags, FxFlags, Names, PartitionFlags, ServeFlags};
pub use region_agent::settings::ConfigError;

use crate::callback::{Providers, ProvidersConfig};
use crate::driver::Limits;
use crate::fx::RateTable;
use crate::partition::Partition;
use crate::serve::{FxConfig, ServeConfig};
use crate::telemetry::LogFormat;
use contracts::id::Region;
use figment::Figment;
use figment::providers::Serialized;
use figment::value::Value;
use region_agent::nats_options::{self, NatsOptions, Secret};
use region_agent::settings::{self, Text, field, parse};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Prefix of our environment variables.
pub const ENVIRONMENT_PREFIX: &str = "ORCHESTRATOR_";

const ENVIRONMENT: [(&str, &str); 17] = [
    ("NAME", "name"),
    ("PAYMENTS", "payments"),
    ("WALLET", "wallet"),
    ("CONNECTIONS", "connections"),
    ("DEFAULT_REGION", "default_region"),
    ("REGIONS", "regions"),
    ("FX_SOURCE", "fx.source"),
    ("FX_TIMEOUT", "fx.timeout"),
    ("LISTEN", "listen"),
    ("HOLD", "hold"),
    ("REGION_SLOTS", "region_slots"),
    ("GRACE", "grace"),
    ("REPLICAS", "replicas"),
    ("ALLOW_UNSAFE_DURABILITY", "allow_unsafe_durability"),
    ("UNKNOWN_PROVIDERS", "unknown_providers"),
    ("LOG", "log"),
    ("LOG_FORMAT", "log_format"),
];

/// Names that stand where a region stands in our subjects.
const RESERVED_REGIONS: [&str; 9] = [
    "audit", "callback", "start", "signal", "operator", "event", "timer", "due", "core",
];

/// What the layers may hold, nothing filled in.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Settings {
    name: Option<Text>,
    payments: Option<Secret>,
    wallet: Option<Secret>,
    connections: Option<Text>,
    default_region: Option<Text>,
    regions: Option<Names>,
    /// These four are admitted here and read as their own types by [`Config::serve`].
    providers: Option<Value>,
    currencies: Option<Value>,
    unknown_providers: Option<Value>,
    participants: Option<Value>,
    fx: FxSettings,
    review: ReviewSettings,
    listen: Option<Text>,
    hold: Option<Text>,
    region_slots: Option<Text>,
    grace: Option<Text>,
    replicas: Option<Text>,
    allow_unsafe_durability: Option<Text>,
    log: Option<Text>,
    log_format: Option<Text>,
    nats: NatsOptions,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct FxSettings {
    source: Option<Text>,
    timeout: Option<Text>,
    rates: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ReviewSettings {
    second_person_above: BTreeMap<String, Text>,
}

/// As whom a command acts, which settles the defaults of its connection and of its log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Drives sagas.
    Orchestrator,
    /// Makes and examines streams with the orchestrator's rights, for a person who waits.
    Setup,
    /// Reads and speaks to sagas.
    Operator,
    /// Stores callbacks.
    Gateway,
}

/// Settings of every command, checked; those of [`Config::serve`] are checked when asked for.
#[derive(Debug)]
pub struct Config {
    /// The connection, its context filled in.
    pub nats: NatsOptions,
    /// What is stored where.
    pub partition: Partition,
    /// Log filter.
    pub log: String,
    /// Log line format.
    pub log_format: LogFormat,
    settings: Settings,
    layers: Figment,
}

/// Where the books of all sides are, for reading.
#[derive(Debug, Clone)]
pub struct BooksConfig {
    /// Payments database, when one is given: `sqlite:` or `postgres:` url.
    pub payments_url: Option<String>,
    /// The region whose wallet the orchestrator serves itself.
    pub default_region: Region,
    /// All regions that are configured, the default one among them.
    pub regions: BTreeSet<Region>,
}

impl Config {
    /// Merges flags, environment and an optional TOML file. `own` are the flags of the command.
    ///
    /// # Errors
    /// [`ConfigError`], naming the field.
    pub fn load(
        common: &CommonFlags,
        own: &impl Serialize,
        file: Option<&Path>,
        role: Role,
    ) -> Result<Self, ConfigError> {
        let environment = |name: &str| std::env::var(format!("{ENVIRONMENT_PREFIX}{name}")).ok();
        Self::merge(common, own, environment, file, role)
    }

    fn merge(
        common: &CommonFlags,
        own: &impl Serialize,
        environment: impl Fn(&str) -> Option<String>,
        file: Option<&Path>,
        role: Role,
    ) -> Result<Self, ConfigError> {
        let names = ENVIRONMENT.into_iter().chain(nats_options::ENVIRONMENT);
        let layers = settings::layers::<Settings>(file, names, environment)?
            .merge(Serialized::defaults(common))
            .merge(Serialized::defaults(own));
        let settings: Settings = settings::extract(&layers)?;
        let mut nats = settings.nats.clone().resolve().map_err(ConfigError::Nats)?;
        if nats.inbox_prefix.is_none() {
            nats.inbox_prefix = Some(role.inbox_prefix(nats.user.as_deref()).to_owned());
        }
        let replicas = parse("replicas", settings.replicas.clone())?.unwrap_or(1);
        if !matches!(replicas, 1 | 3) {
            return Err(field(
                "replicas",
                &format!("{replicas} is neither 1 nor 3: one server, or a majority of three"),
            ));
        }
        let log = settings.log.clone().map(|text| text.0);
        Ok(Self {
            nats,
            partition: Partition::only(replicas),
            log: log.unwrap_or_else(|| role.log().to_owned()),
            log_format: parse("log_format", settings.log_format.clone())?.unwrap_or_default(),
            settings,
            layers,
        })
    }

    /// Everything `serve` needs.
    ///
    /// # Errors
    /// [`ConfigError`], naming the field.
    pub fn serve(&self) -> Result<ServeConfig, ConfigError> {
        let settings = self.settings.clone();
        let connections = parse("connections", settings.connections)?.unwrap_or(16);
        if connections == 0 {
            return Err(field("connections", "must be above 0"));
        }
        let payments_url = database("payments", settings.payments, "sqlite://orchestrator.db")?;
        let wallet_url = database("wallet", settings.wallet, "sqlite://wallet-default.db")?;
        if payments_url == wallet_url {
            return Err(field(
                "wallet",
                "is the database of payments; a ledger needs one of its own",
            ));
        }
        let unsafe_allowed = parse("allow_unsafe_durability", settings.allow_unsafe_durability)?;
        let hold = settings::parse_duration("hold", settings.hold)?;
        let limits = Limits::default();
        let region_slots = parse::<NonZeroUsize>("region_slots", settings.region_slots)?;
        let grace = settings::parse_duration("grace", settings.grace)?;
        Ok(ServeConfig {
            name: replica_name(settings.name)?,
            nats: self.nats.clone(),
            partition: self.partition.clone(),
            payments_url,
            wallet_url,
            connections,
            default_region: self.default_region()?,
            regions: self.regions()?,
            providers: self.providers()?,
            fx: fx(settings.fx)?,
            listen: listen(settings.listen)?,
            rules: self.rules()?,
            limits: Limits {
                hold: hold.unwrap_or(limits.hold),
                region_slots: region_slots.map_or(limits.region_slots, NonZeroUsize::get),
                ..limits
            },
            grace: grace.unwrap_or(Duration::from_secs(20)),
            allow_unsafe_durability: unsafe_allowed.unwrap_or(false),
        })
    }

    /// What a command needs that reads the books. Nothing here has a default place: a wrong one would
    /// show differences that there are not.
    ///
    /// # Errors
    /// [`ConfigError`], naming the field.
    pub fn books(&self) -> Result<BooksConfig, ConfigError> {
        let payments = self.settings.payments.clone();
        let payments_url = payments.map(|url| database("payments", Some(url), ""));
        let default_region = self.default_region()?;
        let mut regions: BTreeSet<Region> = self.regions()?.into_iter().collect();
        regions.insert(default_region.clone());
        Ok(BooksConfig {
            payments_url: payments_url.transpose()?,
            default_region,
            regions,
        })
    }

    fn default_region(&self) -> Result<Region, ConfigError> {
        let name = self.settings.default_region.as_ref();
        let name = name.map_or("default", |text| text.0.as_str());
        region("default_region", name)
    }

    fn regions(&self) -> Result<Vec<Region>, ConfigError> {
        let names = self.settings.regions.iter().flat_map(Names::iter);
        names.map(|name| region("regions", name)).collect()
    }

    fn providers(&self) -> Result<ProvidersConfig, ConfigError> {
        let config = ProvidersConfig {
            providers: self.section("providers", self.settings.providers.as_ref())?,
            currencies: self.section("currencies", self.settings.currencies.as_ref())?,
            unknown_providers: self.section(
                "unknown_providers",
                self.settings.unknown_providers.as_ref(),
            )?,
        };
        // Tried once here, so that a bad profile is found before anything connects.
        match Providers::new(config.clone()) {
            Ok(_) => Ok(config),
            Err(error) => Err(field("providers", &error.to_string())),
        }
    }

    /// A part of the layers as its own type: read from the layers, so that an error names key and file.
    fn section<T>(&self, key: &str, given: Option<&Value>) -> Result<T, ConfigError>
    where
        T: DeserializeOwned + Default,
    {
        if given.is_none() {
            return Ok(T::default());
        }
        self.layers
            .extract_inner(key)
            .map_err(|error| field(key, &settings::one_line(&error)))
    }
}

impl Role {
    /// As `nats/core-accounts.conf` admits it: by the user where it is one of those, else by what the
    /// command is for.
    fn inbox_prefix(self, user: Option<&str>) -> &'static str {
        match (user, self) {
            (Some("orchestrator"), _) => "_INBOX_core",
            (Some("operator"), _) => "_INBOX_ops",
            (Some("gateway"), _) => "_INBOX_gateway",
            (_, Self::Orchestrator | Self::Setup) => "_INBOX_core",
            (_, Self::Operator) => "_INBOX_ops",
            (_, Self::Gateway) => "_INBOX_gateway",
        }
    }

    /// A command that a person waits for says what is wrong itself, in one line.
    fn log(self) -> &'static str {
        match self {
            Self::Orchestrator => "info,async_nats=warn",
            Self::Setup | Self::Operator | Self::Gateway => "error,async_nats=off",
        }
    }
}

/// The default place of the config file, when it exists.
#[must_use]
pub fn default_file() -> Option<PathBuf> {
    let path = PathBuf::from("orchestrator.toml");
    path.exists().then_some(path)
}

fn replica_name(name: Option<Text>) -> Result<String, ConfigError> {
    let Some(Text(name)) = name else {
        return Ok("orchestrator".to_owned());
    };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    if name.is_empty() || name.len() > 64 || !name.bytes().all(plain) {
        return Err(field(
            "name",
            &format!("{name:?} may hold only A-Z, a-z, 0-9, '_', '-' and '.', at most 64"),
        ));
    }
    Ok(name)
}

fn database(name: &str, url: Option<Secret>, default: &str) -> Result<String, ConfigError> {
    let url = url.map_or_else(|| default.to_owned(), |secret| secret.0);
    let known = ["sqlite:", "postgres:", "postgresql:"];
    if known.iter().any(|scheme| url.starts_with(scheme)) {
        return Ok(url);
    }
    // Not shown: it may hold a password.
    Err(field(
        name,
        "is not a url that begins with sqlite:// or postgres://",
    ))
}

fn region(name: &str, text: &str) -> Result<Region, ConfigError> {
    let region = Region::new(text).map_err(|error| field(name, &format!("{text:?}: {error}")))?;
    if RESERVED_REGIONS.contains(&text) {
        return Err(field(
            name,
            &format!("{text:?} means something else in our subjects; name the region otherwise"),
        ));
    }
    Ok(region)
}

fn fx(settings: FxSettings) -> Result<FxConfig, ConfigError> {
    let timeout = settings::parse_duration("fx.timeout", settings.timeout)?;
    match settings.source.as_ref().map(|text| text.0.as_str()) {
        None | Some("table") => match RateTable::new(&settings.rates) {
            Ok(_) => Ok(FxConfig::Table(settings.rates)),
            Err(error) => Err(field("fx.rates", &error.to_string())),
        },
        Some("nats") => Ok(FxConfig::Nats(timeout.unwrap_or(Duration::from_secs(2)))),
        Some(other) => Err(field(
            "fx.source",
            &format!("{other:?} is neither table nor nats"),
        )),
    }
}

fn listen(text: Option<Text>) -> Result<Option<SocketAddr>, ConfigError> {
    match text {
        Some(text) if text.0 == "none" => Ok(None),
        text => {
            Ok(Some(parse("listen", text)?.unwrap_or_else(|| {
                SocketAddr::from(([127, 0, 0, 1], 9464))
            })))
        }
    }
}
