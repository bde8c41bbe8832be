//! Workflows that only the cases have: what others lost money with, built on this engine and on the real
//! wallets. They are no part of the product.
//!
//! | workflow | steps |
//! |---|---|
//! | `transfer` | debit, credit (the pivot); version 2 takes a fee between the two |
//! | `freeze_money`, `unfreeze_money`, `spend_frozen_assets` | the same, to and from an account of the freeze |
//! | `withdrawal` | hold, limits, approval or cancel in time, payout (the pivot) |
//! | `p2p_order` | escrow, accepted and paid in time or disputed, release (the pivot) |

mod p2p;
mod step;
mod transfer;
mod withdrawal;

use contracts::id::{Region, SagaId};
use contracts::money::{Currency, Money};
use orchestrator::saga::flow::{Cx, Flow};
use orchestrator::saga::record::{CaseReason, SagaRecord};
use orchestrator::saga::{ArrivalMeaning, Workflow};
use orchestrator::workflows::{Workflows, deposit};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The event of a workflow of this module that has done everything.
pub const FLOW_COMPLETED: &str = "flow_completed";

/// Decimals of the one currency here that ISO 4217 does not list.
const USDT: u8 = 6;

/// The workflows of a build, by its name.
#[must_use]
pub fn build(name: &str) -> Option<Workflows> {
    let transfers: &[&'static Workflow] = match name {
        "v1" => &[&transfer::V1],
        "v2" => &[&transfer::V1, &transfer::V2],
        "v2-only" => &[&transfer::V2],
        "v1-renamed" => &[&transfer::V1_RENAMED],
        _ => return None,
    };
    let mut workflows: Vec<&'static Workflow> = vec![
        &deposit::DEPOSIT,
        &transfer::FREEZE,
        &transfer::UNFREEZE,
        &transfer::SPEND,
        &withdrawal::WITHDRAWAL,
        &p2p::P2P_ORDER,
    ];
    workflows.extend(transfers);
    Some(Workflows::new(workflows))
}

/// A currency of ISO 4217, or USDT.
///
/// # Errors
/// When it is neither.
pub fn currency(code: &str) -> Result<Currency, String> {
    let code = code.parse().map_err(|error| format!("currency: {error}"))?;
    Currency::iso(code)
        .or_else(|error| match code.as_str() {
            "USDT" => Currency::new(code, USDT),
            _ => Err(error),
        })
        .map_err(|error| format!("currency: {error}"))
}

/// A sum above zero.
fn sum(amount: &str, code: &str) -> Result<Money, String> {
    let money =
        Money::parse(amount, currency(code)?).map_err(|error| format!("amount: {error}"))?;
    if money.is_positive() {
        Ok(money)
    } else {
        Err(format!("amount: {amount} is not above zero"))
    }
}

/// A sum that was checked when the saga was identified.
fn known_sum(cx: &Cx<'_>, amount: &str, code: &str) -> Flow<Money> {
    sum(amount, code).or_else(|error| cx.review(CaseReason::Poison, error))
}

fn region_or_default(region: Option<&Region>) -> Region {
    region
        .cloned()
        .unwrap_or_else(|| Region::new("default").expect("a region's name"))
}

fn identified(workflow: &str, id: &str) -> SagaId {
    SagaId::from_parts(workflow, &[id])
}

/// The same id is the same request, or a conflict.
fn arrival(record: &SagaRecord, input: &Value) -> ArrivalMeaning {
    if record.input == *input {
        return ArrivalMeaning::Duplicate;
    }
    ArrivalMeaning::Review {
        reason: CaseReason::ConflictingFact,
        message: "the same id came with another request".to_owned(),
    }
}

fn no_signals(name: &str, _body: &Value) -> Result<(), String> {
    Err(format!("nothing waits for {name}"))
}

/// Reads what was checked when the saga was identified.
fn read<T: DeserializeOwned>(cx: &Cx<'_>, input: &Value) -> Flow<T> {
    serde_json::from_value(input.clone())
        .or_else(|error| cx.review(CaseReason::Poison, error.to_string()))
}

/// Ends a saga that has done everything, with its event.
fn completed(cx: &mut Cx<'_>, region: &Region) -> Flow<Value> {
    cx.phase("done");
    let event = json!({ "saga_id": cx.saga_id() });
    cx.emit(FLOW_COMPLETED, region, &event)?;
    Ok(event)
}
