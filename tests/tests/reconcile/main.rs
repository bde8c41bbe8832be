//! `orchestrator reconcile` on real servers, databases and processes: silent where everything agrees and
//! while sagas run, and it names each kind of difference with its saga, its money and a way out.

mod agreeing;
mod differing;
mod events;
mod many;
mod standing;

use anyhow::{Result, ensure};
use contracts::money::Money;
use jiff::SignedDuration;
use orchestrator::reconcile::{Difference, Kind};
use orchestrator::saga::record::Status;
use saga_tests::deposit::Deposit;
use saga_tests::system::System;
use std::time::Duration;

pub(crate) const BOUND: Duration = Duration::from_secs(90);
pub(crate) const PATIENT: SignedDuration = SignedDuration::from_mins(15);

/// A system in which one deposit of each of these names has completed in a region.
pub(crate) async fn completed(
    system: &mut System,
    names: &[&str],
    region: &'static str,
) -> Result<Vec<Deposit>> {
    let deposits: Vec<Deposit> = names
        .iter()
        .map(|name| Deposit::new(*name, region))
        .collect();
    for deposit in &deposits {
        system.deposit(deposit).await?;
    }
    for deposit in &deposits {
        let record = system.until_ended(&deposit.saga_id(), BOUND).await?;
        ensure!(record.status == Status::Completed, "{record:#?}");
    }
    Ok(deposits)
}

/// What must be named: kind, saga, sum in cents and the beginning of the way out.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Named(
    pub(crate) Kind,
    pub(crate) String,
    pub(crate) Option<i64>,
    pub(crate) String,
);

impl Named {
    pub(crate) fn new(kind: Kind, saga: impl Into<String>, minor: i64, fix: &str) -> Self {
        Self(kind, saga.into(), Some(minor), fix.to_owned())
    }

    /// What a difference says, with as much of its way out as is expected of it.
    fn of(difference: &Difference, fix: &str) -> Self {
        let command = &difference.fix.command;
        let length = fix.len().min(command.len());
        Self(
            difference.kind,
            difference.saga_id.clone(),
            difference.amount.map(Money::amount_minor),
            command[..length].to_owned(),
        )
    }
}

pub(crate) fn compare(found: &[Difference], expected: &[Named]) -> Result<()> {
    let mut left: Vec<&Difference> = found.iter().collect();
    for named in expected {
        let place = left
            .iter()
            .position(|difference| Named::of(difference, &named.3) == *named);
        match place {
            Some(place) => drop(left.remove(place)),
            None => anyhow::bail!("{named:?} is not among {left:#?}"),
        }
    }
    ensure!(left.is_empty(), "nobody expects {left:#?}");
    Ok(())
}
