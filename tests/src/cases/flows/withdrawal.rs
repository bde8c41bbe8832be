//! Money leaves: held, within a limit, approved in time, paid out.

use super::step::{Move, Named, until};
use super::{arrival, completed, identified, read, sum};
use contracts::id::CustomerId;
use jiff::SignedDuration;
use orchestrator::saga::Workflow;
use orchestrator::saga::flow::{Cx, Flow};
use serde::Deserialize;
use serde_json::Value;

/// By what an administrator approves.
const ADMIN: &str = "complete-admin-confirmation";

/// By what the customer confirms.
const SECOND_FACTOR: &str = "complete-2fa-confirmation";

/// By what the customer takes it back.
const CANCEL: &str = "cancel";

/// How long each is waited for.
const ADMIN_WITHIN: SignedDuration = SignedDuration::from_hours(72);
const SECOND_FACTOR_WITHIN: SignedDuration = SignedDuration::from_hours(1);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Withdrawal {
    customer: CustomerId,
    amount: String,
    currency: String,
    /// The account it goes to.
    to: CustomerId,
    /// For a person.
    #[expect(dead_code, reason = "part of the request, and of no key")]
    payee_name: Option<String>,
    /// What it needs besides funds.
    #[serde(default)]
    needs: Need,
    /// Whether the customer has limits: what is left of them is what the wallets `<customer>-soft` and
    /// `<customer>-hard` hold, so that a limit is used and given back like money.
    #[serde(default)]
    limits: bool,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Need {
    #[default]
    Nothing,
    SecondFactor,
    Admin,
}

macro_rules! named {
    ($type:ident, $name:literal) => {
        #[derive(Debug)]
        struct $type;
        impl Named for $type {
            const NAME: &'static str = $name;
        }
    };
}

named!(Hold, "hold");
named!(SoftLimit, "soft-limit");
named!(HardLimit, "hard-limit");
named!(Payout, "payout");

/// The workflow.
pub(super) static WITHDRAWAL: Workflow = Workflow {
    name: "withdrawal",
    version: 1,
    deadline: SignedDuration::from_hours(96),
    identify: |id, input| {
        let asked = Withdrawal::deserialize(input).map_err(|error| format!("input: {error}"))?;
        sum(&asked.amount, &asked.currency)?;
        Ok(identified("withdrawal", id))
    },
    check_signal: |name, _body| {
        if [ADMIN, SECOND_FACTOR, CANCEL].contains(&name) {
            Ok(())
        } else {
            Err(format!("a withdrawal does not wait for {name}"))
        }
    },
    run,
    arrival,
    turned_back: |_| None,
};

fn run(cx: &mut Cx<'_>, input: &Value) -> Flow<Value> {
    let asked: Withdrawal = read(cx, input)?;
    let money = super::known_sum(cx, &asked.amount, &asked.currency)?;
    let region = super::region_or_default(None);
    if Move::<Hold>::debit(&region, &asked.customer, money)
        .attempt(cx)?
        .is_err()
    {
        return cx.refuse("insufficient");
    }
    let mut needs = asked.needs;
    if asked.limits {
        let soft = limit(cx, &asked.customer, "soft")?;
        let hard = limit(cx, &asked.customer, "hard")?;
        if Move::<SoftLimit>::debit(&region, &soft, money)
            .attempt(cx)?
            .is_err()
        {
            needs = Need::Admin;
            let left = Move::<HardLimit>::debit(&region, &hard, money).attempt(cx)?;
            if left.is_err() {
                return cx.refuse("above the limit");
            }
        }
    }
    let approval = match needs {
        Need::Nothing => None,
        Need::SecondFactor => Some((SECOND_FACTOR, SECOND_FACTOR_WITHIN)),
        Need::Admin => Some((ADMIN, ADMIN_WITHIN)),
    };
    if let Some((name, within)) = approval {
        cx.phase("approval");
        let instant = orchestrator::saga::policy::after(cx.now()?, within);
        match until(cx, &[name, CANCEL], instant)? {
            None => return cx.time_out("not approved in time"),
            Some((name, _)) if name == CANCEL => return cx.refuse("taken back"),
            Some(_) => {}
        }
    }
    Move::<Payout>::credit(&region, &asked.to, money).run_as_pivot(cx)?;
    completed(cx, &region)
}

fn limit(cx: &Cx<'_>, customer: &CustomerId, which: &str) -> Flow<CustomerId> {
    CustomerId::new(format!("{customer}-{which}")).or_else(|error| {
        cx.review(
            orchestrator::saga::record::CaseReason::Poison,
            error.to_string(),
        )
    })
}
