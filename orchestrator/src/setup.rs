//! Streams and consumers, declared as JSON in `nats/` and made exactly so.
//!
//! What is missing is created. What exists is compared field by field and never altered: a stream that
//! differs holds money records, and only a person knows why it differs. Running it again changes nothing.
//! Any number of orchestrators may run it at once, since creating what exists alike is a repeat.

use crate::jsapi::{self, ApiError};
use crate::partition::Partition;
use async_nats::Client;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::fmt;

const STATE: &str = include_str!("../../nats/streams/KV_saga.json");
const EVENTS: &str = include_str!("../../nats/streams/BILLING_EVENTS.json");
const AUDIT: &str = include_str!("../../nats/streams/BILLING_AUDIT.json");
const INTAKE: &str = include_str!("../../nats/streams/BILLING_INTAKE.json");
const REGIONS: &str = include_str!("../../nats/streams/KV_regions.json");
const INTAKE_CONSUMER: &str = include_str!("../../nats/consumers/orchestrator.json");
const TIMERS_CONSUMER: &str = include_str!("../../nats/consumers/timers.json");

/// Fields that are the operators' own and say nothing about safety.
const NOT_COMPARED: [&str; 3] = ["metadata", "placement", "stream_name"];

/// A stream or a consumer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Asset {
    /// A stream.
    Stream {
        /// Its name.
        name: String,
    },
    /// A durable consumer.
    Consumer {
        /// The stream it reads.
        stream: String,
        /// Its name.
        name: String,
    },
}

impl fmt::Display for Asset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stream { name } => write!(f, "stream {name}"),
            Self::Consumer { stream, name } => write!(f, "consumer {name} on {stream}"),
        }
    }
}

/// One field of a live asset that is not as declared.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    /// The field.
    pub field: String,
    /// As declared; `null` where the declaration leaves it out.
    pub wanted: Value,
    /// As found on the server.
    pub found: Value,
}

impl Difference {
    /// Whether the deviation loses nothing: more copies, a longer history, a pause, another description, a
    /// consumer's limits. Those decide how much is at work at once and how soon another replica takes over,
    /// which is an operator's to tune: messages are kept alive by whatever time the consumer gives.
    #[must_use]
    pub fn is_harmless(&self) -> bool {
        match self.field.as_str() {
            "description" | "pause_until" => true,
            "num_replicas" => self.found.as_u64() > self.wanted.as_u64(),
            // Some of each: nothing at all, or "no limit", is another matter.
            "ack_wait" | "max_ack_pending" | "max_waiting" => self.found.as_u64() > Some(0),
            // A history may be longer; "one message a subject" of the intake and the cache may not.
            "max_msgs_per_subject" => {
                self.wanted.as_u64() > Some(1) && self.found.as_u64() > self.wanted.as_u64()
            }
            _ => false,
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} is {}, wanted {}",
            self.field, self.found, self.wanted
        )
    }
}

/// How a live asset compares with its declaration.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum AssetState {
    /// It was missing and has been created.
    Created,
    /// Every field is as declared.
    AsDeclared,
    /// It exists with other settings and was left alone.
    Differs {
        /// Every field that differs.
        differences: Vec<Difference>,
    },
    /// It does not exist, and nothing was to be created.
    Missing,
}

/// One asset and its state.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AssetReport {
    /// Which.
    #[serde(flatten)]
    pub asset: Asset,
    /// How it is.
    #[serde(flatten)]
    pub state: AssetState,
    /// What the server tells about it (`STREAM.INFO` or `CONSUMER.INFO`); `null` when it was not asked.
    #[serde(skip)]
    pub info: Value,
}

/// All assets of a partition, streams before their consumers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SetupReport {
    /// One entry an asset.
    pub assets: Vec<AssetReport>,
}

impl SetupReport {
    /// True when everything exists as declared.
    #[must_use]
    pub fn is_as_declared(&self) -> bool {
        self.assets
            .iter()
            .all(|asset| matches!(asset.state, AssetState::Created | AssetState::AsDeclared))
    }

    /// True when everything exists and what differs is harmless, such as a consumer that a person paused.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.assets.iter().all(|asset| match &asset.state {
            AssetState::Created | AssetState::AsDeclared => true,
            AssetState::Differs { differences } => differences.iter().all(Difference::is_harmless),
            AssetState::Missing => false,
        })
    }

    /// For a person, one line an asset and one a difference.
    #[must_use]
    pub fn render(&self) -> String {
        let mut text = String::new();
        for AssetReport { asset, state, .. } in &self.assets {
            match state {
                AssetState::Created => text.push_str(&format!("created   {asset}\n")),
                AssetState::AsDeclared => text.push_str(&format!("unchanged {asset}\n")),
                AssetState::Missing => text.push_str(&format!("missing   {asset}\n")),
                AssetState::Differs { differences } => {
                    text.push_str(&format!("differs   {asset} (not altered)\n"));
                    for difference in differences {
                        text.push_str(&format!("            {difference}\n"));
                    }
                }
            }
        }
        text
    }
}

/// Why set-up could not be finished.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The server refused or did not answer.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// A declaration in `nats/` is broken; found by a test.
    #[error("declaration of {asset}: {reason}")]
    Declaration {
        /// Which.
        asset: String,
        /// What is wrong.
        reason: String,
    },
}

impl SetupError {
    /// Whether nobody answered, as opposed to a refusal.
    #[must_use]
    pub fn is_no_answer(&self) -> bool {
        match self {
            Self::Api(ApiError::NoAnswer { .. }) => true,
            Self::Api(ApiError::Refused { .. } | ApiError::NotJson { .. })
            | Self::Declaration { .. } => false,
        }
    }
}

/// What an asset must be like.
#[derive(Debug, Clone)]
struct Declared {
    asset: Asset,
    config: Map<String, Value>,
}

/// Creates what is missing, compares what exists, alters nothing.
///
/// # Errors
/// [`SetupError`] when the server refuses or does not answer; a difference is no error but a report.
pub async fn apply(client: &Client, partition: &Partition) -> Result<SetupReport, SetupError> {
    let mut assets = Vec::new();
    for declared in declarations(partition)? {
        let mut report = look(client, &declared).await?;
        if report.state == AssetState::Missing {
            create(client, &declared).await?;
            // Compared again: what the server made of it counts, and another orchestrator may have been first.
            report = look(client, &declared).await?;
            if report.state == AssetState::AsDeclared {
                report.state = AssetState::Created;
            }
        }
        assets.push(report);
    }
    Ok(SetupReport { assets })
}

/// Compares without creating anything.
///
/// # Errors
/// As [`apply`].
pub async fn inspect(client: &Client, partition: &Partition) -> Result<SetupReport, SetupError> {
    let mut assets = Vec::new();
    for declared in declarations(partition)? {
        assets.push(look(client, &declared).await?);
    }
    Ok(SetupReport { assets })
}

async fn look(client: &Client, declared: &Declared) -> Result<AssetReport, SetupError> {
    let asset = declared.asset.clone();
    let (what, not_found) = match &asset {
        Asset::Stream { name } => (format!("STREAM.INFO.{name}"), [jsapi::STREAM_NOT_FOUND; 2]),
        Asset::Consumer { stream, name } => (
            format!("CONSUMER.INFO.{stream}.{name}"),
            [jsapi::STREAM_NOT_FOUND, jsapi::CONSUMER_NOT_FOUND],
        ),
    };
    match jsapi::ask(client, &what, &Value::Null).await {
        Ok(info) => {
            let found = info["config"].as_object().cloned().unwrap_or_default();
            let differences = compare(&declared.config, &found);
            let state = if differences.is_empty() {
                AssetState::AsDeclared
            } else {
                AssetState::Differs { differences }
            };
            Ok(AssetReport { asset, state, info })
        }
        Err(ApiError::Refused { code, .. }) if not_found.contains(&code) => Ok(AssetReport {
            asset,
            state: AssetState::Missing,
            info: Value::Null,
        }),
        Err(error) => Err(error.into()),
    }
}

async fn create(client: &Client, declared: &Declared) -> Result<(), SetupError> {
    let (what, body) = match &declared.asset {
        Asset::Stream { name } => (
            format!("STREAM.CREATE.{name}"),
            Value::Object(declared.config.clone()),
        ),
        Asset::Consumer { stream, name } => (
            format!("CONSUMER.CREATE.{stream}.{name}"),
            json!({ "stream_name": stream, "action": "create", "config": declared.config }),
        ),
    };
    match jsapi::ask(client, &what, &body).await {
        Ok(_) => Ok(()),
        // Somebody else made it in between, perhaps with other settings: the comparison that follows tells.
        Err(ApiError::Refused {
            code: 10058 | 10148,
            ..
        }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Every field of either side, unset and default taken as the same.
fn compare(wanted: &Map<String, Value>, found: &Map<String, Value>) -> Vec<Difference> {
    let fields: BTreeSet<&String> = wanted.keys().chain(found.keys()).collect();
    fields
        .into_iter()
        .filter(|field| !NOT_COMPARED.contains(&field.as_str()))
        .filter_map(|field| {
            let wanted = set(wanted.get(field));
            let found = set(found.get(field));
            (wanted != found).then(|| Difference {
                field: field.clone(),
                wanted,
                found,
            })
        })
        .collect()
}

/// The value, or `null` for every way in which the server writes "not set".
fn set(value: Option<&Value>) -> Value {
    match value {
        None => Value::Null,
        Some(value) => {
            let unset = match value {
                Value::Null | Value::Bool(false) => true,
                Value::Bool(true) => false,
                Value::Number(number) => number.as_i64() == Some(0),
                Value::String(text) => text.is_empty() || text == "0001-01-01T00:00:00Z",
                Value::Array(items) => items.is_empty(),
                Value::Object(fields) => fields.is_empty(),
            };
            if unset { Value::Null } else { value.clone() }
        }
    }
}

fn declarations(partition: &Partition) -> Result<Vec<Declared>, SetupError> {
    let stream = |name: &str, text: &str| {
        declare(
            Asset::Stream {
                name: name.to_owned(),
            },
            text,
            partition.replicas(),
        )
    };
    let consumer = |stream: &str, name: &str, text: &str| {
        let asset = Asset::Consumer {
            stream: stream.to_owned(),
            name: name.to_owned(),
        };
        // 0: as many copies as the stream has.
        declare(asset, text, 0)
    };
    Ok(vec![
        stream(partition.state_stream(), STATE)?,
        stream(partition.events_stream(), EVENTS)?,
        stream(partition.audit_stream(), AUDIT)?,
        stream(partition.intake_stream(), INTAKE)?,
        stream(partition.regions_stream(), REGIONS)?,
        consumer(
            partition.intake_stream(),
            partition.intake_consumer(),
            INTAKE_CONSUMER,
        )?,
        consumer(
            partition.state_stream(),
            partition.timers_consumer(),
            TIMERS_CONSUMER,
        )?,
    ])
}

fn declare(asset: Asset, text: &str, replicas: u8) -> Result<Declared, SetupError> {
    let broken = |asset: &Asset, reason: String| SetupError::Declaration {
        asset: asset.to_string(),
        reason,
    };
    let mut config: Map<String, Value> =
        serde_json::from_str(text).map_err(|error| broken(&asset, error.to_string()))?;
    let (Asset::Stream { name } | Asset::Consumer { name, .. }) = &asset;
    if config.get("name").and_then(Value::as_str) != Some(name) {
        return Err(broken(&asset, format!("is not named {name}")));
    }
    config.insert("num_replicas".to_owned(), json!(replicas));
    Ok(Declared { asset, config })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declarations_are_sound_and_follow_the_partition() {
        for replicas in [1, 3] {
            let all = declarations(&Partition::only(replicas)).expect("declarations");
            assert_eq!(all.len(), 7);
            for declared in all {
                let wanted = match declared.asset {
                    Asset::Stream { .. } => json!(replicas),
                    Asset::Consumer { .. } => json!(0),
                };
                assert_eq!(declared.config["num_replicas"], wanted);
            }
        }
    }

    #[test]
    fn subjects_are_those_of_the_contracts() {
        let all = declarations(&Partition::only(1)).expect("declarations");
        let subjects = |index: usize| all[index].config["subjects"].clone();
        assert_eq!(
            subjects(0),
            json!([
                "$KV.saga.>",
                contracts::subject::EVENTS,
                contracts::subject::AUDIT,
                contracts::subject::TIMERS,
                contracts::subject::DUE
            ])
        );
        for (stream, copied) in [
            (1, contracts::subject::EVENTS),
            (2, contracts::subject::AUDIT),
        ] {
            let source = &all[stream].config["sources"][0];
            assert_eq!(source["filter_subject"], copied);
            assert_eq!(source["name"], "KV_saga");
        }
        assert_eq!(subjects(3), json!(contracts::subject::INTAKE));
        assert_eq!(all[6].config["filter_subject"], contracts::subject::DUE);
    }

    #[test]
    fn every_deviation_is_named() {
        let wanted = json!({ "a": 1, "b": true, "c": [], "e": ["x"] });
        let found = json!({ "a": 2, "d": "new", "e": ["x"], "f": false, "metadata": { "x": "y" },
            "pause_until": "0001-01-01T00:00:00Z" });
        let named: Vec<String> = compare(
            wanted.as_object().expect("object"),
            found.as_object().expect("object"),
        )
        .iter()
        .map(|difference| difference.field.clone())
        .collect();
        assert_eq!(named, ["a", "b", "d"]);
    }

    #[test]
    fn only_deviations_that_lose_nothing_are_harmless() {
        for (field, wanted, found, harmless) in [
            ("num_replicas", json!(1), json!(3), true),
            ("num_replicas", json!(3), json!(1), false),
            ("max_msgs_per_subject", json!(16), json!(64), true),
            ("max_msgs_per_subject", json!(16), json!(1), false),
            ("max_msgs_per_subject", json!(1), json!(5), false),
            ("max_age", json!(null), json!(1), false),
            ("description", json!("a"), json!("b"), true),
            ("max_ack_pending", json!(4096), json!(8), true),
            ("max_ack_pending", json!(4096), json!(-1), false),
            ("ack_wait", json!(30), json!(2), true),
            ("ack_wait", json!(30), json!(null), false),
            ("max_deliver", json!(-1), json!(5), false),
        ] {
            let difference = Difference {
                field: field.to_owned(),
                wanted,
                found,
            };
            assert_eq!(difference.is_harmless(), harmless, "{difference}");
        }
    }
}
