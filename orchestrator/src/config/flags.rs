//! The flags behind the settings: each has the name of the TOML key it overrides.

use region_agent::nats_options::{NatsOptions, Secret};
use region_agent::settings::Text;
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// Flags of every command.
#[derive(Debug, Clone, Default, clap::Args, Serialize)]
pub struct CommonFlags {
    /// Log filter in the form of RUST_LOG [default: info to serve, else errors alone]
    #[arg(long, value_name = "FILTER", global = true, help_heading = "Log")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<Text>,
    /// Log lines: text or json [default: text]
    #[arg(long, value_name = "FORMAT", global = true, help_heading = "Log")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_format: Option<Text>,
    /// The connection to NATS.
    #[command(flatten)]
    pub nats: NatsOptions,
}

/// Flags of commands that compare streams with what is declared.
#[derive(Debug, Clone, Default, clap::Args, Serialize)]
pub struct PartitionFlags {
    /// Servers that hold a copy of everything, 1 or 3 [default: 1]
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<Text>,
}

/// Flags of commands that read the books of all sides.
#[derive(Debug, Clone, Default, clap::Args, Serialize)]
pub struct BooksFlags {
    /// Payments, to be read: sqlite://FILE or postgres://user@host/database
    #[arg(long, value_name = "URL", conflicts_with = "without_payments")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payments: Option<Secret>,
}

/// Flags of `serve`.
#[derive(Debug, Clone, Default, clap::Args, Serialize)]
pub struct ServeFlags {
    /// Name of this replica in logs and records [default: orchestrator]
    #[arg(long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<Text>,
    /// Payments: sqlite://FILE or postgres://user@host/database [default: sqlite://orchestrator.db]
    #[arg(long, value_name = "URL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payments: Option<Secret>,
    /// Wallet ledger of the default region, likewise [default: sqlite://wallet-default.db]
    #[arg(long, value_name = "URL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wallet: Option<Secret>,
    /// Connections to each PostgreSQL database at most [default: 16]
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<Text>,
    /// Region whose wallet is called in process [default: default]
    #[arg(long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_region: Option<Text>,
    /// The other regions, separated by commas
    #[arg(long, value_name = "NAMES")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub regions: Option<Names>,
    /// Rates.
    #[command(flatten)]
    pub fx: FxFlags,
    /// Address of /metrics, /healthz and /readyz, or none [default: 127.0.0.1:9464]
    #[arg(long, value_name = "ADDR")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<Text>,
    /// How long a message is held for a saga before the saga is parked [default: 2s]
    #[arg(long, value_name = "TIME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold: Option<Text>,
    /// Commands that may be out to one region at a time [default: 128]
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region_slots: Option<Text>,
    /// How long sagas at work may take to end at shutdown before they are given back [default: 20s]
    #[arg(long, value_name = "TIME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace: Option<Text>,
    /// Serve although the doctor says that acknowledged does not mean safe
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_unsafe_durability: Option<Text>,
    /// Copies.
    #[command(flatten)]
    #[serde(flatten)]
    pub partition: PartitionFlags,
}

/// Flags about rates.
#[derive(Debug, Clone, Default, clap::Args, Serialize)]
pub struct FxFlags {
    /// Rates: table ([fx.rates] of the config file) or nats (billing.core.fx.quote) [default: table]
    #[arg(id = "fx_source", long = "fx-source", value_name = "SOURCE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<Text>,
    /// How long the rate service may take to answer [default: 2s]
    #[arg(id = "fx_timeout", long = "fx-timeout", value_name = "TIME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Text>,
}

/// Names, as a TOML array or as text with commas between.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Names(Vec<String>);

impl Names {
    /// Each name as written.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

impl FromStr for Names {
    type Err = std::convert::Infallible;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let names = text.split(',').map(str::trim);
        Ok(Self(
            names
                .filter(|name| !name.is_empty())
                .map(str::to_owned)
                .collect(),
        ))
    }
}

impl<'de> Deserialize<'de> for Names {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Text(String),
            List(Vec<String>),
        }
        match Form::deserialize(deserializer)? {
            Form::Text(text) => text.parse().map_err(serde::de::Error::custom),
            Form::List(names) => Ok(Self(names)),
        }
    }
}
