//! Values that tests are written in, and the one function that checks them.

use super::super::*;
use contracts::command::{WalletRevert, WalletUpdate};
use contracts::id::SagaId;
use contracts::money::Currency;
use contracts::reply::Effect;

pub(super) const NOW: i64 = 1_000;

pub(super) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("time")
}

pub(super) fn id(text: &str) -> OperationId {
    OperationId::new(text).expect("id")
}

pub(super) fn customer() -> CustomerId {
    CustomerId::new("c-1").expect("id")
}

pub(super) fn money_in(code: &str, exponent: u8, minor: i64) -> Money {
    let code = CurrencyCode::new(code).expect("code");
    Money::new(minor, Currency::new(code, exponent).expect("exponent"))
}

pub(super) fn eur(minor: i64) -> Money {
    money_in("EUR", 2, minor)
}

pub(super) fn header_of(operation: &str) -> CommandHeader {
    CommandHeader {
        saga_id: Some(SagaId::new("s").expect("id")),
        operation_id: id(operation),
        attempt: 1,
        fence: 5,
        deadline: at(NOW + 1),
    }
}

pub(super) fn move_money(movement: Movement, money: Money) -> WalletCommand {
    WalletCommand::Update(WalletUpdate {
        customer: customer(),
        movement,
        money,
        memo: None,
    })
}

pub(super) fn credit(minor: i64) -> WalletCommand {
    move_money(Movement::Credit, eur(minor))
}

pub(super) fn debit(minor: i64) -> WalletCommand {
    move_money(Movement::Debit, eur(minor))
}

pub(super) fn revert(target: &str) -> WalletCommand {
    WalletCommand::Revert(WalletRevert {
        target: id(target),
        memo: None,
    })
}

pub(super) fn holding(minor: i64) -> AccountState {
    AccountState {
        wallet: WalletState::Open,
        sole_currency: None,
        balance: Some(eur(minor)),
    }
}

pub(super) fn moved(operation: &str, movement: Movement, minor: i64, balance: i64) -> WalletReply {
    WalletReply::Applied {
        operation_id: id(operation),
        effect: Effect::Moved {
            customer: customer(),
            movement,
            money: eur(minor),
            balance: eur(balance),
        },
        applied_at: at(NOW),
    }
}

pub(super) fn offset_reply(
    operation: &str,
    movement: Movement,
    minor: i64,
    balance: i64,
) -> WalletReply {
    WalletReply::Applied {
        operation_id: id(operation),
        effect: Effect::Offset {
            target: id("op"),
            customer: customer(),
            movement,
            money: eur(minor),
            balance: eur(balance),
        },
        applied_at: at(NOW),
    }
}

pub(super) fn tombstoned(operation: &str) -> WalletReply {
    WalletReply::Applied {
        operation_id: id(operation),
        effect: Effect::Tombstoned { target: id("op") },
        applied_at: at(NOW),
    }
}

pub(super) fn stored(
    command: &WalletCommand,
    state: OperationState,
    reply: WalletReply,
) -> StoredOperation {
    StoredOperation {
        parameters: parameters(command),
        state,
        reply,
    }
}

/// What an expected decision says, in short.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Expected {
    /// Nothing is written; the answer is this.
    Repeat(WalletReply),
    /// Not executed; the answer's kind.
    Refuse(&'static str),
    /// Stored with this answer; the signed movement and the target's change.
    Record(WalletReply, i64, TargetChange),
    /// Stored as refused for good.
    Final(RejectCode),
}

pub(super) fn check(
    known: &Known,
    header: &CommandHeader,
    command: &WalletCommand,
    expected: &Expected,
) {
    let decision = decide(known, header, command, at(NOW));
    let found = match &decision {
        Decision::Repeat(reply) => Expected::Repeat(reply.clone()),
        Decision::Refuse(reply) => Expected::Refuse(kind(reply)),
        Decision::Record(recorded) => match (&recorded.reply, recorded.state) {
            (WalletReply::Rejected { code, .. }, OperationState::Rejected) => {
                assert_eq!(recorded.booking, None, "a refusal moves nothing");
                Expected::Final(*code)
            }
            (reply, state) => {
                assert_eq!(state, OperationState::Applied, "{command:?}");
                let signed =
                    recorded
                        .booking
                        .as_ref()
                        .map_or(0, |booking| match booking.movement {
                            Movement::Credit => booking.money.amount_minor(),
                            Movement::Debit => -booking.money.amount_minor(),
                        });
                Expected::Record(reply.clone(), signed, recorded.target)
            }
        },
    };
    assert_eq!(&found, expected, "{known:?}\n{header:?}\n{command:?}");
}

pub(super) fn kind(reply: &WalletReply) -> &'static str {
    match reply {
        WalletReply::Applied { .. } => "applied",
        WalletReply::Rejected { .. } => "rejected",
        WalletReply::Cancelled { .. } => "cancelled",
        WalletReply::Conflict { .. } => "conflict",
        WalletReply::Stale { .. } => "stale",
        WalletReply::Expired { .. } => "expired",
        WalletReply::Busy { .. } => "busy",
        WalletReply::Invalid { .. } => "invalid",
        WalletReply::Unavailable { .. } => "unavailable",
        WalletReply::Unknown => "unknown",
    }
}

pub(super) fn with_account(account: AccountState) -> Known {
    Known {
        account,
        ..Known::default()
    }
}
