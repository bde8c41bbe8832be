//! Two customers trade: the seller's asset is in escrow until the buyer has paid, or until somebody decides.

use super::step::{Move, Named, until};
use super::{arrival, completed, identified, read, sum};
use contracts::id::CustomerId;
use jiff::{SignedDuration, Timestamp};
use orchestrator::saga::Workflow;
use orchestrator::saga::flow::{Cx, Flow};
use orchestrator::saga::policy::after;
use serde::Deserialize;
use serde_json::Value;

const ACCEPTED: &str = "order-accepted";
const CANCELED: &str = "order-canceled";
const CONFIRMED: &str = "payment-confirmed";
const DISPUTE: &str = "dispute";
const DECISION: &str = "dispute-decision";

/// How long an order waits to be accepted, and an accepted one to be paid.
const WITHIN: SignedDuration = SignedDuration::from_mins(20);

/// How long an order may take in all. A dispute has no timer besides.
const IN_ALL: SignedDuration = SignedDuration::from_hours(24 * 365);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Order {
    seller: CustomerId,
    buyer: CustomerId,
    amount: String,
    asset: String,
}

#[derive(Debug)]
struct Escrow;
impl Named for Escrow {
    const NAME: &'static str = "escrow";
}

#[derive(Debug)]
struct Release;
impl Named for Release {
    const NAME: &'static str = "release";
}

/// The workflow.
pub(super) static P2P_ORDER: Workflow = Workflow {
    name: "p2p_order",
    version: 1,
    deadline: IN_ALL,
    identify: |id, input| {
        let order = Order::deserialize(input).map_err(|error| format!("input: {error}"))?;
        sum(&order.amount, &order.asset)?;
        Ok(identified("p2p_order", id))
    },
    check_signal: |name, body| match name {
        ACCEPTED | CANCELED | CONFIRMED | DISPUTE => Ok(()),
        DECISION if ["buyer", "seller"].contains(&body["winner"].as_str().unwrap_or_default()) => {
            Ok(())
        }
        DECISION => Err("winner: is neither buyer nor seller".to_owned()),
        other => Err(format!("an order does not wait for {other}")),
    },
    run,
    arrival,
    turned_back: |_| None,
};

fn run(cx: &mut Cx<'_>, input: &Value) -> Flow<Value> {
    let order: Order = read(cx, input)?;
    let asset = super::known_sum(cx, &order.amount, &order.asset)?;
    let region = super::region_or_default(None);
    Move::<Escrow>::debit(&region, &order.seller, asset).run(cx)?;

    let by = stage(cx, "CREATED")?;
    match next(cx, "CREATED", &[ACCEPTED, CANCELED], by)? {
        None => return cx.time_out("not accepted in time"),
        Some((name, _)) if name == CANCELED => return cx.refuse("taken back before it was taken"),
        Some(_) => {}
    }
    let by = stage(cx, "ACCEPTED")?;
    match next(cx, "ACCEPTED", &[CONFIRMED, CANCELED, DISPUTE], by)? {
        None => return cx.time_out("not paid in time"),
        Some((name, _)) if name == CANCELED => return cx.refuse("given up by the buyer"),
        Some((name, _)) if name == DISPUTE => {
            cx.phase("DISPUTED");
            let by = after(cx.now()?, IN_ALL);
            match until(cx, &[DECISION], by)? {
                Some((_, body)) if body["winner"] == "buyer" => {}
                Some(_) => return cx.refuse("decided for the seller"),
                None => return cx.time_out("not decided"),
            }
        }
        Some(_) => {}
    }
    Move::<Release>::credit(&region, &order.buyer, asset).run_as_pivot(cx)?;
    completed(cx, &region)
}

/// The stage's name, and when it ends.
fn stage(cx: &mut Cx<'_>, name: &str) -> Flow<Timestamp> {
    cx.phase(name);
    Ok(after(cx.now()?, WITHIN))
}

/// The next signal that counts. A cancel that was meant for another stage does not.
fn next(
    cx: &mut Cx<'_>,
    stage: &str,
    names: &[&'static str],
    by: Timestamp,
) -> Flow<Option<(String, Value)>> {
    loop {
        let came = until(cx, names, by)?;
        let meant = came
            .as_ref()
            .and_then(|(_, body)| body["expected_state"].as_str());
        if meant.is_none_or(|meant| meant == stage) {
            return Ok(came);
        }
    }
}
