//! A revert that was never seen before.

use super::{
    Booking, Decision, Known, Parameters, Recorded, StoredOperation, TargetChange, balance_after,
};
use contracts::command::Movement;
use contracts::id::{CustomerId, OperationId};
use contracts::money::Money;
use contracts::reply::{Effect, OperationState, WalletReply};
use jiff::Timestamp;

/// Offsets what was applied, or forbids what was not.
pub(super) fn on_revert(
    known: &Known,
    operation_id: &OperationId,
    target_id: &OperationId,
    now: Timestamp,
) -> Decision {
    let nothing_to_offset = |target| {
        let effect = Effect::Tombstoned {
            target: target_id.clone(),
        };
        record(operation_id, effect, now, None, target)
    };
    let Some(target) = &known.target else {
        return nothing_to_offset(TargetChange::Tombstone);
    };
    match (&target.parameters, target.state) {
        (Parameters::Revert { .. }, _) => Decision::Refuse(WalletReply::Invalid {
            field: "target".to_owned(),
            message: format!("{target_id} is a revert itself: book a new update instead"),
        }),
        (
            Parameters::Update {
                customer,
                movement,
                money,
            },
            OperationState::Applied,
        ) => offset(
            known,
            operation_id,
            target_id,
            customer,
            opposite(*movement),
            *money,
            now,
        ),
        (Parameters::Update { .. }, OperationState::Reverted) => {
            already_offset(known.offset_by.as_ref(), operation_id)
        }
        // It was refused or forbidden for good; there is nothing to undo and nothing to forbid.
        (Parameters::Update { .. }, OperationState::Rejected | OperationState::Tombstoned)
        | (
            Parameters::NeverSeen,
            OperationState::Applied
            | OperationState::Rejected
            | OperationState::Tombstoned
            | OperationState::Reverted,
        ) => nothing_to_offset(TargetChange::Keep),
    }
}

fn offset(
    known: &Known,
    operation_id: &OperationId,
    target_id: &OperationId,
    customer: &CustomerId,
    movement: Movement,
    money: Money,
    now: Timestamp,
) -> Decision {
    match balance_after(&known.account, movement, money) {
        Ok(balance) => {
            let effect = Effect::Offset {
                target: target_id.clone(),
                customer: customer.clone(),
                movement,
                money,
                balance,
            };
            let booking = Booking {
                customer: customer.clone(),
                movement,
                money,
                balance,
            };
            record(
                operation_id,
                effect,
                now,
                Some(booking),
                TargetChange::MarkReverted,
            )
        }
        Err((code, message)) => Decision::Refuse(WalletReply::Rejected {
            operation_id: operation_id.clone(),
            code,
            message,
        }),
    }
}

/// A second revert, under another id, of an update that stands offset: nothing moves again, and the
/// answer tells what the first one did and when. Stored, so that it is repeated like any other.
fn already_offset(first: Option<&StoredOperation>, operation_id: &OperationId) -> Decision {
    match first.map(|first| &first.reply) {
        Some(WalletReply::Applied {
            operation_id: _,
            effect,
            applied_at,
        }) => record(
            operation_id,
            effect.clone(),
            *applied_at,
            None,
            TargetChange::Keep,
        ),
        Some(
            WalletReply::Rejected { .. }
            | WalletReply::Cancelled { .. }
            | WalletReply::Conflict { .. }
            | WalletReply::Stale { .. }
            | WalletReply::Expired { .. }
            | WalletReply::Busy { .. }
            | WalletReply::Invalid { .. }
            | WalletReply::Unavailable { .. }
            | WalletReply::Unknown,
        )
        | None => Decision::Refuse(WalletReply::Unavailable {
            message: "the target is marked as reverted, but the revert is not in the ledger: \
                      run `region-agent ledger verify`"
                .to_owned(),
        }),
    }
}

fn record(
    operation_id: &OperationId,
    effect: Effect,
    applied_at: Timestamp,
    booking: Option<Booking>,
    target: TargetChange,
) -> Decision {
    Decision::Record(Box::new(Recorded {
        state: OperationState::Applied,
        reply: WalletReply::Applied {
            operation_id: operation_id.clone(),
            effect,
            applied_at,
        },
        booking,
        target,
    }))
}

fn opposite(movement: Movement) -> Movement {
    match movement {
        Movement::Credit => Movement::Debit,
        Movement::Debit => Movement::Credit,
    }
}
