//! One movement on one wallet, as a step under a name of its own.

use contracts::command::{Movement, WalletRevert, WalletUpdate};
use contracts::id::{CustomerId, OperationId, Region};
use contracts::money::Money;
use contracts::reply::WalletReply;
use jiff::{SignedDuration, Timestamp};
use orchestrator::saga::flow::{Cx, Flow, Refusal, Request, Selected, Step};
use orchestrator::saga::record::Participant;
use serde::{Serialize, Serializer};
use serde_json::Value;
use std::marker::PhantomData;

/// The name of a step.
pub(super) trait Named {
    const NAME: &'static str;
}

/// A movement.
#[derive(Debug)]
pub(super) struct Move<N> {
    region: Region,
    update: WalletUpdate,
    name: PhantomData<N>,
}

impl<N: Named> Move<N> {
    pub(super) fn debit(region: &Region, customer: &CustomerId, money: Money) -> Self {
        Self::new(region, customer, money, Movement::Debit)
    }

    pub(super) fn credit(region: &Region, customer: &CustomerId, money: Money) -> Self {
        Self::new(region, customer, money, Movement::Credit)
    }

    fn new(region: &Region, customer: &CustomerId, money: Money, movement: Movement) -> Self {
        Self {
            region: region.clone(),
            update: WalletUpdate {
                customer: customer.clone(),
                movement,
                money,
                memo: None,
            },
            name: PhantomData,
        }
    }

    /// Asks for it; `Err` when the wallet refuses.
    pub(super) fn attempt(self, cx: &mut Cx<'_>) -> Flow<Result<WalletReply, Refusal>> {
        let undo = self.undo(cx);
        cx.step(self).undo(&undo).run_or_refusal()
    }

    /// Asks for it; a refusal turns the saga back.
    pub(super) fn run(self, cx: &mut Cx<'_>) -> Flow<WalletReply> {
        let undo = self.undo(cx);
        cx.step(self).undo(&undo).run()
    }

    /// As [`Self::run`]; once it is done, the saga only goes forward.
    pub(super) fn run_as_pivot(self, cx: &mut Cx<'_>) -> Flow<WalletReply> {
        let undo = self.undo(cx);
        cx.step(self).undo(&undo).pivot().run()
    }

    fn undo(&self, cx: &Cx<'_>) -> Revert {
        Revert {
            region: self.region.clone(),
            target: cx.saga_id().operation(N::NAME),
        }
    }
}

impl<N> Serialize for Move<N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.update.serialize(serializer)
    }
}

impl<N> Request for Move<N> {
    const KIND: &'static str = "wallet.update";
    fn participant(&self) -> Participant {
        Participant::Region(self.region.clone())
    }
}

impl<N: Named> Step for Move<N> {
    const NAME: &'static str = N::NAME;
    type Reply = WalletReply;
}

/// Offsets a movement.
#[derive(Debug)]
struct Revert {
    region: Region,
    target: OperationId,
}

impl Serialize for Revert {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        WalletRevert {
            target: self.target.clone(),
            memo: None,
        }
        .serialize(serializer)
    }
}

impl Request for Revert {
    const KIND: &'static str = "wallet.revert";
    fn participant(&self) -> Participant {
        Participant::Region(self.region.clone())
    }
}

/// Waits for the first of several signals until an instant; `None` when it has passed.
pub(super) fn until(
    cx: &mut Cx<'_>,
    names: &[&'static str],
    instant: Timestamp,
) -> Flow<Option<(String, Value)>> {
    let within = instant.duration_since(cx.now()?).max(SignedDuration::ZERO);
    Ok(match cx.select::<Value>(names, within)? {
        Selected::Signal { name, body } => Some((name, body)),
        Selected::Deadline => None,
    })
}
