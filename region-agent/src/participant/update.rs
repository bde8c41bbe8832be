//! An update that was never seen before.

use super::{AccountState, Booking, Decision, Recorded, TargetChange, balance_after};
use contracts::command::WalletUpdate;
use contracts::id::OperationId;
use contracts::reply::{Effect, OperationState, WalletReply};
use jiff::Timestamp;

/// Books the movement, or refuses it for good: an id seen to fail stays failed, so that a sender
/// who compensates after a refusal cannot be overtaken by a retry that succeeds.
pub(super) fn on_update(
    account: &AccountState,
    operation_id: &OperationId,
    update: &WalletUpdate,
    now: Timestamp,
) -> Decision {
    let recorded = match balance_after(account, update.movement, update.money) {
        Ok(balance) => Recorded {
            state: OperationState::Applied,
            reply: WalletReply::Applied {
                operation_id: operation_id.clone(),
                effect: Effect::Moved {
                    customer: update.customer.clone(),
                    movement: update.movement,
                    money: update.money,
                    balance,
                },
                applied_at: now,
            },
            booking: Some(Booking {
                customer: update.customer.clone(),
                movement: update.movement,
                money: update.money,
                balance,
            }),
            target: TargetChange::Keep,
        },
        Err((code, message)) => Recorded {
            state: OperationState::Rejected,
            reply: WalletReply::Rejected {
                operation_id: operation_id.clone(),
                code,
                message,
            },
            booking: None,
            target: TargetChange::Keep,
        },
    };
    Decision::Record(Box::new(recorded))
}
