//! What the servers tell about themselves: version, syncing, clock, disk.

use super::{Check, Options};
use crate::jsapi::ApiError;
use crate::monitor;
use async_nats::Client;
use futures::StreamExt as _;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use std::time::Duration;

const MIN_VERSION: (u64, u64) = (2, 15);
/// JetStream API level of schedules with roll-up; 2.15 servers have 5.
const MIN_API_LEVEL: u64 = 4;
const MIN_PAYLOAD: usize = 256 * 1024;
const WANTED_PAYLOAD: usize = 1024 * 1024;
const SKEW_WARN: SignedDuration = SignedDuration::from_millis(500);
const SKEW_UNSAFE: SignedDuration = SignedDuration::from_secs(5);
const DISK_WARN_PERCENT: u64 = 70;
const DISK_UNSAFE_PERCENT: u64 = 90;
const VARZ: &str = "$SYS.REQ.SERVER.PING.VARZ";
/// How long the first answer may take, and how long to wait for one more.
const FIRST_ANSWER: Duration = Duration::from_secs(2);
const NEXT_ANSWER: Duration = Duration::from_millis(400);

/// What one server told.
pub(super) struct ServerFacts {
    varz: Value,
    /// Ours when we asked and when we had the answer.
    asked: Timestamp,
    answered: Timestamp,
}

impl ServerFacts {
    fn name(&self) -> &str {
        self.varz["server_name"].as_str().unwrap_or("?")
    }
}

/// Asks over the own connection, then the system account, then the monitoring addresses.
pub(super) async fn learn(client: &Client, options: &Options) -> Vec<ServerFacts> {
    let mut facts = ping(client, options.now).await;
    if let (true, Some(system)) = (facts.is_empty(), &options.system) {
        facts = ping(system, options.now).await;
    }
    if facts.is_empty() {
        for address in &options.monitors {
            let asked = (options.now)();
            match monitor::get(address, "/varz").await {
                Ok(varz) => facts.push(ServerFacts {
                    varz,
                    asked,
                    answered: (options.now)(),
                }),
                Err(error) => tracing::warn!(%error, "monitoring address does not answer"),
            }
        }
    }
    facts.retain(|facts| facts.varz["jetstream"]["config"].is_object());
    facts
}

/// Every server answers for itself, so answers are collected until none comes any more.
async fn ping(client: &Client, now: fn() -> Timestamp) -> Vec<ServerFacts> {
    let mut facts = Vec::new();
    let inbox = client.new_inbox();
    let Ok(mut answers) = client.subscribe(inbox.clone()).await else {
        return facts;
    };
    let asked = now();
    if client
        .publish_with_reply(VARZ, inbox, "{}".into())
        .await
        .is_err()
    {
        return facts;
    }
    let mut wait = FIRST_ANSWER;
    while let Ok(Some(message)) = tokio::time::timeout(wait, answers.next()).await {
        let Ok(answer) = serde_json::from_slice::<Value>(&message.payload) else {
            break; // "no responders" has no body
        };
        facts.push(ServerFacts {
            varz: answer["data"].clone(),
            asked,
            answered: now(),
        });
        wait = NEXT_ANSWER;
    }
    facts
}

/// All checks that read `varz`.
pub(super) fn check(
    facts: &[ServerFacts],
    client: &Client,
    options: &Options,
    checks: &mut Vec<Check>,
) {
    if facts.is_empty() {
        let info = client.server_info();
        checks.push(version(&info.server_name, &info.version));
        checks.push(Check::not_safe(
            "sync",
            "no server tells whether it syncs before it acknowledges",
            format!(
                "let the account import {VARZ} as nats/core-accounts.conf does, or give system account \
                 credentials or a monitoring address"
            ),
        ));
        return;
    }
    let replicas = usize::from(options.partition.replicas());
    if facts.len() < replicas {
        checks.push(Check::warn(
            "servers",
            format!(
                "{} of at least {replicas} servers answer: the others were not checked",
                facts.len()
            ),
            "bring the missing servers back, then look again",
        ));
    }
    for server in facts {
        let reported = server.varz["version"].as_str().unwrap_or("?");
        checks.push(version(server.name(), reported));
        checks.push(sync(server.name(), &server.varz["jetstream"]["config"]));
        checks.push(skew(server));
        checks.push(disk(server));
    }
}

fn version(server: &str, version: &str) -> Check {
    let name = format!("version {server}");
    let mut numbers = version.split('.').map(|part| part.parse::<u64>().ok());
    match (numbers.next().flatten(), numbers.next().flatten()) {
        (Some(major), Some(minor)) if (major, minor) >= MIN_VERSION => {
            Check::ok(name, format!("nats-server {version}"))
        }
        _ => Check::not_safe(
            name,
            format!(
                "nats-server {version}; older ones lose acknowledged writes of compacted blocks"
            ),
            format!(
                "run nats-server {}.{}.0 or newer",
                MIN_VERSION.0, MIN_VERSION.1
            ),
        ),
    }
}

fn sync(server: &str, config: &Value) -> Check {
    let name = format!("sync {server}");
    if config["sync_always"].as_bool() == Some(true) {
        return Check::ok(name, "every write is on disk before it is acknowledged");
    }
    let seconds = config["sync_interval"].as_u64().unwrap_or(0) / 1_000_000_000;
    Check::not_safe(
        name,
        format!(
            "writes are synced every {seconds} s: a power cut takes back what was acknowledged"
        ),
        "set `sync_interval: always` in the server's jetstream block, see nats/profiles",
    )
}

fn skew(server: &ServerFacts) -> Check {
    let name = format!("clock {}", server.name());
    let told = server.varz["now"]
        .as_str()
        .and_then(|text| text.parse::<Timestamp>().ok());
    let Some(told) = told else {
        return Check::warn(
            name,
            "the server does not tell its time",
            "compare the clocks by hand",
        );
    };
    // The answer was written somewhere between the two: what lies outside is certain skew.
    let (amount, direction) = if told < server.asked {
        (server.asked.duration_since(told), "behind")
    } else if told > server.answered {
        (told.duration_since(server.answered), "ahead of")
    } else {
        (SignedDuration::ZERO, "with")
    };
    let found = format!("{} ms {direction} ours", amount.as_millis());
    let mend = "synchronise the clocks: deadlines of commands are absolute";
    if amount >= SKEW_UNSAFE {
        Check::not_safe(name, found, mend)
    } else if amount >= SKEW_WARN {
        Check::warn(name, found, mend)
    } else {
        Check::ok(name, found)
    }
}

fn disk(server: &ServerFacts) -> Check {
    let jetstream = &server.varz["jetstream"];
    let used = jetstream["stats"]["storage"].as_u64();
    let limit = jetstream["config"]["max_storage"].as_u64();
    let name = format!("disk {}", server.name());
    match (used, limit) {
        (Some(used), Some(limit)) if limit > 0 => share(name, used, limit),
        _ => Check::warn(
            name,
            "the server does not tell what it stores",
            "watch its disk by other means",
        ),
    }
}

fn share(name: String, used: u64, limit: u64) -> Check {
    let percent = used.saturating_mul(100) / limit;
    let mib = |bytes: u64| bytes / (1024 * 1024);
    let found = format!("{} of {} MiB used, {percent} %", mib(used), mib(limit));
    let mend =
        "give it more room, or let ended sagas leave; when it is full no saga can be finished";
    if percent >= DISK_UNSAFE_PERCENT {
        Check::not_safe(name, found, mend)
    } else if percent >= DISK_WARN_PERCENT {
        Check::warn(name, found, mend)
    } else {
        Check::ok(name, found)
    }
}

/// Enabled for this account, and new enough.
pub(super) fn jetstream(account: &Result<Value, ApiError>) -> Check {
    match account {
        Err(error) => Check::not_safe(
            "jetstream",
            error.to_string(),
            "enable JetStream on the server and for this account, and let this user ask $JS.API.INFO",
        ),
        Ok(account) => {
            let level = account["api"]["level"].as_u64().unwrap_or(0);
            if level >= MIN_API_LEVEL {
                Check::ok("jetstream", format!("enabled, API level {level}"))
            } else {
                Check::not_safe(
                    "jetstream",
                    format!("API level {level}: no atomic batches with schedules"),
                    format!(
                        "run nats-server {}.{} or newer",
                        MIN_VERSION.0, MIN_VERSION.1
                    ),
                )
            }
        }
    }
}

/// The account's own storage limit, where it has one.
pub(super) fn account_storage(account: &Value) -> Option<Check> {
    let limit = account["limits"]["max_storage"].as_i64()?;
    let limit = u64::try_from(limit).ok().filter(|&limit| limit > 0)?;
    let used = account["storage"].as_u64().unwrap_or(0);
    Some(share("account storage".to_owned(), used, limit))
}

/// Room for a callback, and for a record with a long history of steps.
pub(super) fn max_payload(bytes: usize) -> Check {
    let found = format!("{} KiB a message", bytes / 1024);
    let mend = "set `max_payload: 1MB` on every server";
    if bytes < MIN_PAYLOAD {
        Check::not_safe("max_payload", found, mend)
    } else if bytes < WANTED_PAYLOAD {
        Check::warn("max_payload", found, mend)
    } else {
        Check::ok("max_payload", found)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;
    use serde_json::json;

    #[test]
    fn old_and_unreadable_versions_are_unsafe() {
        for (text, level) in [
            ("2.15.1", Level::Ok),
            ("2.16.0-dev", Level::Ok),
            ("3.0.0", Level::Ok),
            ("2.14.9", Level::Unsafe),
            ("?", Level::Unsafe),
        ] {
            assert_eq!(version("core", text).level, level, "{text}");
        }
    }

    #[test]
    fn skew_is_only_what_the_round_trip_cannot_explain() {
        let at = |text: &str| text.parse::<Timestamp>().expect("timestamp");
        for (now, level) in [
            ("2026-01-01T00:00:01Z", Level::Ok),
            ("2026-01-01T00:00:02.400Z", Level::Ok),
            ("2026-01-01T00:00:03Z", Level::Warn),
            ("2025-12-31T23:59:50Z", Level::Unsafe),
        ] {
            let facts = ServerFacts {
                varz: json!({ "server_name": "core", "now": now }),
                asked: at("2026-01-01T00:00:00Z"),
                answered: at("2026-01-01T00:00:02Z"),
            };
            assert_eq!(skew(&facts).level, level, "{now}");
        }
    }

    #[test]
    fn a_full_disk_is_unsafe() {
        for (used, level) in [(10, Level::Ok), (70, Level::Warn), (95, Level::Unsafe)] {
            assert_eq!(share("disk".to_owned(), used, 100).level, level);
        }
    }

    #[test]
    fn only_sync_always_is_safe() {
        assert_eq!(sync("a", &json!({ "sync_always": true })).level, Level::Ok);
        assert_eq!(
            sync("a", &json!({ "sync_interval": 120_000_000_000_u64 })).level,
            Level::Unsafe
        );
        assert_eq!(sync("a", &Value::Null).level, Level::Unsafe);
    }
}
