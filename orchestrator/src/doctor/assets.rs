//! Streams and consumers against their declarations, and where their copies are.

use super::Check;
use crate::partition::Partition;
use crate::setup::{self, Asset, AssetReport, AssetState, Difference};
use async_nats::Client;
use serde_json::Value;

/// One check an asset, and one for the copies of each stream.
pub(super) async fn check(client: &Client, partition: &Partition, checks: &mut Vec<Check>) {
    let report = match setup::inspect(client, partition).await {
        Ok(report) => report,
        Err(error) => {
            checks.push(Check::not_safe(
                "streams",
                error.to_string(),
                "let this user read STREAM.INFO and CONSUMER.INFO",
            ));
            return;
        }
    };
    if partition.replicas() == 1 {
        checks.push(Check::warn(
            "copies",
            "one copy of everything: a lost disk is lost records",
            "run three servers (nats/profiles/three-nodes-*.conf) and streams with three replicas",
        ));
    }
    for asset in &report.assets {
        checks.push(configuration(asset));
        if partition.replicas() == 1 {
            continue;
        }
        if let (Asset::Stream { name }, Some(_)) = (&asset.asset, asset.info.as_object()) {
            checks.push(copies(name, &asset.info));
        }
    }
}

fn configuration(asset: &AssetReport) -> Check {
    let name = asset.asset.to_string();
    match &asset.state {
        AssetState::Created | AssetState::AsDeclared => Check::ok(name, "as declared"),
        AssetState::Missing => Check::not_safe(name, "does not exist", "run `orchestrator setup`"),
        AssetState::Differs { differences } => {
            let found = differences
                .iter()
                .map(Difference::to_string)
                .collect::<Vec<_>>()
                .join("; ");
            let mend = "set the declared values with `nats stream edit` or `nats consumer edit`, or \
                        change the declaration in nats/; nothing is altered on its own";
            if differences.iter().all(Difference::is_harmless) {
                Check::warn(name, found, mend)
            } else {
                Check::not_safe(name, found, mend)
            }
        }
    }
}

fn copies(stream: &str, info: &Value) -> Check {
    let name = format!("copies {stream}");
    let mend = "bring the servers that hold the other copies back";
    let peers = info["cluster"]["replicas"].as_array();
    let behind: Vec<&str> = peers
        .into_iter()
        .flatten()
        .filter(|peer| {
            peer["current"].as_bool() != Some(true) || peer["offline"].as_bool() == Some(true)
        })
        .filter_map(|peer| peer["name"].as_str())
        .collect();
    if info["cluster"]["leader"]
        .as_str()
        .unwrap_or_default()
        .is_empty()
    {
        Check::not_safe(name, "no leader: nothing can be written", mend)
    } else if behind.is_empty() {
        Check::ok(name, "all copies are current")
    } else {
        Check::warn(name, format!("not current: {}", behind.join(", ")), mend)
    }
}
