//! Is this installation one that may be trusted with money? One list of checks for start-up and for people.
//!
//! A check that cannot be made counts as unsafe: "not known to sync" is "does not sync".

mod assets;
mod sagas;
mod servers;

pub use sagas::{SagaFindings, ScanError, Undriven, sagas, sagas_check};

use crate::jsapi;
use crate::partition::Partition;
use async_nats::Client;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// As it should be.
    Ok,
    /// Works, and should be looked at.
    Warn,
    /// Acknowledged writes or whole sagas can be lost; start-up refuses.
    Unsafe,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What was looked at: `sync`, `replicas`, `stream KV_saga`…
    pub name: String,
    /// How it is.
    pub level: Level,
    /// What was found, in a sentence.
    pub found: String,
    /// How to mend it; absent when there is nothing to mend.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mend: Option<String>,
}

impl Check {
    /// A check that passed.
    #[must_use]
    pub fn ok(name: impl Into<String>, found: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            level: Level::Ok,
            found: found.into(),
            mend: None,
        }
    }

    /// Something to look at, and how to mend it.
    #[must_use]
    pub fn warn(
        name: impl Into<String>,
        found: impl Into<String>,
        mend: impl Into<String>,
    ) -> Self {
        Self {
            level: Level::Warn,
            mend: Some(mend.into()),
            ..Self::ok(name, found)
        }
    }

    /// Something that start-up refuses, and how to mend it.
    #[must_use]
    pub fn not_safe(
        name: impl Into<String>,
        found: impl Into<String>,
        mend: impl Into<String>,
    ) -> Self {
        Self {
            level: Level::Unsafe,
            mend: Some(mend.into()),
            ..Self::ok(name, found)
        }
    }
}

/// Everything that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// In the order they were made.
    pub checks: Vec<Check>,
}

impl Report {
    /// The worst of all checks.
    #[must_use]
    pub fn level(&self) -> Level {
        self.checks
            .iter()
            .map(|check| check.level)
            .max()
            .unwrap_or(Level::Ok)
    }

    /// Those that start-up refuses.
    pub fn refusals(&self) -> impl Iterator<Item = &Check> {
        self.checks
            .iter()
            .filter(|check| check.level == Level::Unsafe)
    }

    /// For a person: one line a check, the worst last, with what to do about it.
    #[must_use]
    pub fn render(&self) -> String {
        let mut checks: Vec<&Check> = self.checks.iter().collect();
        checks.sort_by_key(|check| check.level);
        let width = checks
            .iter()
            .map(|check| check.name.len())
            .max()
            .unwrap_or(0);
        let mut text = String::new();
        for check in checks {
            let level = match check.level {
                Level::Ok => "ok",
                Level::Warn => "warn",
                Level::Unsafe => "UNSAFE",
            };
            text.push_str(&format!(
                "{level:6}  {:width$}  {}\n",
                check.name, check.found
            ));
            if let Some(mend) = &check.mend {
                text.push_str(&format!("{:6}  {:width$}  -> {mend}\n", "", ""));
            }
        }
        text
    }
}

/// Where to ask, besides the connection itself.
#[derive(Debug, Clone)]
pub struct Options {
    /// What is expected to exist.
    pub partition: Partition,
    /// A connection in the system account, where the orchestrator's own account does not import
    /// `$SYS.REQ.SERVER.PING.VARZ` (the configurations in `nats/` do).
    pub system: Option<Client>,
    /// Monitoring addresses (`http://host:8222`), one a server, asked when nothing else answers.
    pub monitors: Vec<String>,
    /// The clock.
    pub now: fn() -> Timestamp,
}

/// Looks at servers, streams, consumers, clocks and disks. Changes nothing, and never fails: what cannot
/// be learnt is a finding.
pub async fn examine(client: &Client, options: &Options) -> Report {
    let mut checks = Vec::new();
    let account = jsapi::ask(client, "INFO", &Value::Null).await;
    checks.push(servers::jetstream(&account));
    checks.push(servers::max_payload(client.server_info().max_payload));
    let facts = servers::learn(client, options).await;
    servers::check(&facts, client, options, &mut checks);
    if let Ok(account) = account {
        checks.extend(servers::account_storage(&account));
        assets::check(client, &options.partition, &mut checks).await;
    }
    Report { checks }
}
