//! Which money a saga is about: what may have moved and is not settled, and what a command would move.

use contracts::command::{Movement, WalletRevert, WalletUpdate};
use contracts::id::{CustomerId, OperationId};
use contracts::money::Money;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::questions::is_done_although_forbidden;
use crate::saga::action::Command;
use crate::saga::record::{Outcome, Participant, SagaRecord, StepRecord};

/// The kinds of commands that move money.
const UPDATE: &str = "wallet.update";
const REVERT: &str = "wallet.revert";

/// Money that a command would move, seen from a customer's wallet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Delta {
    /// Whose wallet.
    pub customer: CustomerId,
    /// Where it is.
    pub participant: Participant,
    /// Into the wallet above zero, out of it below.
    pub money: Money,
    /// Whether it moves for certain once the command is applied. Not so for the revert of what may never
    /// have been applied: that forbids it instead.
    pub certain: bool,
}

/// Money that may have moved and is not settled, or, where none has moved, what the saga or the message
/// is about. One entry a currency, nothing once the saga has ended.
#[must_use]
pub fn amount_at_risk(record: &SagaRecord) -> Vec<Money> {
    if record.status.is_terminal() {
        return Vec::new();
    }
    let sums = sum(moved(record));
    if !sums.is_empty() {
        return sums;
    }
    let message = record.case.as_ref().map(|case| &case.evidence["message"]);
    std::iter::once(&record.input)
        .chain(message)
        .filter_map(|said| Money::deserialize(said.get("amount")?).ok())
        .take(1)
        .collect()
}

/// Whether a wallet may have moved for this saga and is not settled.
pub(super) fn may_have_moved(record: &SagaRecord) -> bool {
    moved(record).next().is_some()
}

fn moved(record: &SagaRecord) -> impl Iterator<Item = Money> {
    record
        .steps
        .iter()
        .filter(|step| step.forward.outcome.may_have_effect())
        .filter(|step| !is_undone(step))
        .filter_map(|step| update(&step.forward.kind, &step.forward.request))
        .map(|update| update.money)
}

/// What a command moves, if it moves anything.
pub(super) fn delta(record: &SagaRecord, command: &Command) -> Option<Delta> {
    let (update, back, certain) = match command.kind.as_str() {
        UPDATE => (update(UPDATE, &command.request)?, false, true),
        REVERT => {
            let target = WalletRevert::deserialize(&command.request).ok()?.target;
            let step = step_of(record, &target)?;
            let certain = matches!(step.forward.outcome, Outcome::Applied { .. });
            (
                update(&step.forward.kind, &step.forward.request)?,
                true,
                certain,
            )
        }
        _ => return None,
    };
    let into = (update.movement == Movement::Credit) != back;
    let minor = update.money.amount_minor();
    Some(Delta {
        customer: update.customer,
        participant: command.participant.clone(),
        money: Money::new(
            if into { minor } else { minor.checked_neg()? },
            update.money.currency(),
        ),
        certain,
    })
}

fn step_of<'a>(record: &'a SagaRecord, id: &OperationId) -> Option<&'a StepRecord> {
    record
        .steps
        .iter()
        .find(|step| step.forward.operation_id == *id)
}

fn update(kind: &str, request: &Value) -> Option<WalletUpdate> {
    (kind == UPDATE)
        .then(|| WalletUpdate::deserialize(request).ok())
        .flatten()
}

fn is_undone(step: &StepRecord) -> bool {
    !is_done_although_forbidden(step)
        && step
            .undo
            .as_ref()
            .is_some_and(|undo| matches!(undo.outcome, Outcome::Applied { .. }))
}

/// One sum a currency; what a sum cannot hold stands beside it.
fn sum(amounts: impl Iterator<Item = Money>) -> Vec<Money> {
    let mut sums: Vec<Money> = Vec::new();
    for amount in amounts {
        let added = sums
            .iter_mut()
            .find_map(|sum| Some((sum.checked_add(amount).ok()?, sum)));
        match added {
            Some((total, sum)) => *sum = total,
            None => sums.push(amount),
        }
    }
    sums
}
