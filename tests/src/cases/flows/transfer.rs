//! From one wallet to another, and the same under the names of freezing.

use super::step::{Move, Named};
use super::{arrival, completed, identified, no_signals, read, sum};
use contracts::id::{CustomerId, Region, SagaId};
use contracts::money::Money;
use jiff::SignedDuration;
use orchestrator::saga::Workflow;
use orchestrator::saga::flow::{Cx, Flow};
use serde::Deserialize;
use serde_json::Value;

/// What is asked for. A freeze names no second wallet: it has an account of its own.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Transfer {
    from: CustomerId,
    to: CustomerId,
    amount: String,
    currency: String,
    region: Option<Region>,
}

/// A freeze, by whose id the money is found again.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Freeze {
    freeze: Option<String>,
    customer: CustomerId,
    amount: String,
    currency: String,
}

#[derive(Debug)]
struct Debit;
impl Named for Debit {
    const NAME: &'static str = "debit";
}

#[derive(Debug)]
struct Take;
impl Named for Take {
    const NAME: &'static str = "take";
}

#[derive(Debug)]
struct Fee;
impl Named for Fee {
    const NAME: &'static str = "fee";
}

#[derive(Debug)]
struct Credit;
impl Named for Credit {
    const NAME: &'static str = "credit";
}

#[derive(Debug)]
struct Pay;
impl Named for Pay {
    const NAME: &'static str = "pay";
}

/// Debit, credit.
pub(super) static V1: Workflow = TRANSFER;

const TRANSFER: Workflow = Workflow {
    name: "transfer",
    version: 1,
    deadline: SignedDuration::from_hours(1),
    identify: |id, input| {
        let transfer = Transfer::deserialize(input).map_err(|error| format!("input: {error}"))?;
        sum(&transfer.amount, &transfer.currency)?;
        if transfer.from == transfer.to {
            return Err("to: is the wallet it comes from".to_owned());
        }
        Ok(identified("transfer", id))
    },
    check_signal: no_signals,
    run: |cx, input| {
        let (transfer, money) = transfer(cx, input)?;
        let region = transfer.region();
        Move::<Debit>::debit(&region, &transfer.from, money).run(cx)?;
        Move::<Credit>::credit(&region, &transfer.to, money).run_as_pivot(cx)?;
        completed(cx, &region)
    },
    arrival,
    turned_back: |_| None,
};

/// Debit, a fee of one hundredth of the currency's unit more, and the credit under a new name.
pub(super) static V2: Workflow = Workflow {
    version: 2,
    run: |cx, input| {
        let (transfer, money) = transfer(cx, input)?;
        let region = transfer.region();
        Move::<Debit>::debit(&region, &transfer.from, money).run(cx)?;
        Move::<Fee>::debit(&region, &transfer.from, Money::new(1, money.currency())).run(cx)?;
        Move::<Pay>::credit(&region, &transfer.to, money).run_as_pivot(cx)?;
        completed(cx, &region)
    },
    ..TRANSFER
};

/// Version 1 with its first step renamed, as nobody should do it.
pub(super) static V1_RENAMED: Workflow = Workflow {
    run: |cx, input| {
        let (transfer, money) = transfer(cx, input)?;
        let region = transfer.region();
        Move::<Take>::debit(&region, &transfer.from, money).run(cx)?;
        Move::<Credit>::credit(&region, &transfer.to, money).run_as_pivot(cx)?;
        completed(cx, &region)
    },
    ..TRANSFER
};

/// From the customer to the account of the freeze.
pub(super) static FREEZE: Workflow = Workflow {
    name: "freeze_money",
    identify: |id, input| identify_freeze("freeze_money", id, input),
    run: |cx, input| {
        let id = own_id(cx.saga_id()).to_owned();
        between(cx, input, |freeze| (freeze.customer.clone(), account(&id)))
    },
    ..TRANSFER
};

/// Back to the customer.
pub(super) static UNFREEZE: Workflow = Workflow {
    name: "unfreeze_money",
    identify: |id, input| identify_freeze("unfreeze_money", id, input),
    run: |cx, input| {
        between(cx, input, |freeze| {
            (account(freeze.id()), freeze.customer.clone())
        })
    },
    ..TRANSFER
};

/// Out of the account of the freeze for good.
pub(super) static SPEND: Workflow = Workflow {
    name: "spend_frozen_assets",
    identify: |id, input| identify_freeze("spend_frozen_assets", id, input),
    run: |cx, input| {
        between(cx, input, |freeze| {
            let spent = format!("spent-{}", freeze.id());
            (account(freeze.id()), customer(spent))
        })
    },
    ..TRANSFER
};

impl Transfer {
    fn region(&self) -> Region {
        super::region_or_default(self.region.as_ref())
    }
}

impl Freeze {
    fn id(&self) -> &str {
        self.freeze.as_deref().unwrap_or_default()
    }
}

fn transfer(cx: &mut Cx<'_>, input: &Value) -> Flow<(Transfer, Money)> {
    let transfer: Transfer = read(cx, input)?;
    let money = super::known_sum(cx, &transfer.amount, &transfer.currency)?;
    Ok((transfer, money))
}

fn identify_freeze(workflow: &str, id: &str, input: &Value) -> Result<SagaId, String> {
    let freeze = Freeze::deserialize(input).map_err(|error| format!("input: {error}"))?;
    sum(&freeze.amount, &freeze.currency)?;
    if (workflow == FREEZE.name) != freeze.freeze.is_none() {
        return Err("freeze: names the freeze, unless this is one".to_owned());
    }
    Ok(identified(workflow, id))
}

fn between(
    cx: &mut Cx<'_>,
    input: &Value,
    ends: impl FnOnce(&Freeze) -> (CustomerId, CustomerId),
) -> Flow<Value> {
    let freeze: Freeze = read(cx, input)?;
    let money = super::known_sum(cx, &freeze.amount, &freeze.currency)?;
    let region = super::region_or_default(None);
    let (from, to) = ends(&freeze);
    Move::<Debit>::debit(&region, &from, money).run(cx)?;
    Move::<Credit>::credit(&region, &to, money).run_as_pivot(cx)?;
    completed(cx, &region)
}

/// What the caller called it: the last part of the saga's id.
fn own_id(saga: &SagaId) -> &str {
    saga.as_str().rsplit('/').next().unwrap_or_default()
}

fn account(freeze: &str) -> CustomerId {
    customer(format!("frozen-{freeze}"))
}

fn customer(name: String) -> CustomerId {
    CustomerId::new(name).expect("a customer's name")
}
