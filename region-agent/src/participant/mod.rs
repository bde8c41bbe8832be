//! The core: what a wallet answers to a command. Pure: no I/O, no clock, no randomness.
//!
//! The shell ([`crate::wallet`]) claims the operation id, loads [`Known`] under lock, calls
//! [`decide`], writes what a [`Decision::Record`] asks for, commits, and only then answers.
//!
//! | arrives | answer | written |
//! |---|---|---|
//! | id already stored, same parameters | the stored answer, even late or with an old fence | fence |
//! | id already stored, other parameters | `Conflict` naming the fields | fence |
//! | update of a tombstoned id | `Cancelled` | fence |
//! | unseen, fence below the highest seen for the saga | `Stale` | – |
//! | unseen, at or after its deadline | `Expired` | fence |
//! | update that the wallet refuses | `Rejected`, final | operation |
//! | update | `Applied`, `Moved` | operation, movement |
//! | revert of an applied update | `Applied`, `Offset` | operation, opposite movement, target |
//! | revert of an unseen update | `Applied`, `Tombstoned` | operation, tombstone |
//! | revert of a rejected or tombstoned update | `Applied`, `Tombstoned` | operation |
//! | revert of an update that another revert has offset | `Applied` with that `Offset` | operation |
//! | revert that the wallet refuses | `Rejected`, **not stored** | fence |
//! | revert of a revert, or of itself; amount not above zero; overlong memo | `Invalid` | – |
//!
//! Two choices need a reason. A *stored answer* is repeated whatever the fence and the deadline:
//! repeating moves nothing, and the sender who asks late is the one who most needs to know. A *new*
//! execution never happens with a stale fence or past its deadline. And a *refused revert* is not
//! final: a compensation must work as soon as the customer has funds again or his wallet is reopened.

mod revert;
mod update;

#[cfg(test)]
mod tests;

use contracts::command::{CommandHeader, Movement, WalletCommand, WalletUpdate};
use contracts::header;
use contracts::id::{CustomerId, OperationId};
use contracts::money::{CurrencyCode, Money};
use contracts::reply::{OperationState, RejectCode, WalletReply};
use jiff::Timestamp;

/// Everything the ledger knows that bears on one command, read under lock.
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// What is stored under the command's own id. When present, nothing else here is looked at.
    pub operation: Option<StoredOperation>,
    /// The highest fence seen for the command's saga; 0 when none, or when it names no saga.
    pub seen_fence: u64,
    /// A revert's target, when stored.
    pub target: Option<StoredOperation>,
    /// The revert that has offset the target, when one has.
    pub offset_by: Option<StoredOperation>,
    /// The account that an update moves, or that a revert moves back.
    pub account: AccountState,
}

/// An operation as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredOperation {
    /// What it was asked to do.
    pub parameters: Parameters,
    /// What became of it.
    pub state: OperationState,
    /// What was answered.
    pub reply: WalletReply,
}

/// What makes two commands under one id the same command. A memo is no part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parameters {
    /// An update.
    Update {
        /// Whose wallet.
        customer: CustomerId,
        /// Which way.
        movement: Movement,
        /// How much.
        money: Money,
    },
    /// A revert.
    Revert {
        /// The operation to offset.
        target: OperationId,
    },
    /// A tombstone: the command itself never arrived, only its revert.
    NeverSeen,
}

/// A customer's wallet, and his account in one currency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AccountState {
    /// Whether there is a wallet and whether it takes movements.
    pub wallet: WalletState,
    /// The only currency the wallet takes, when it is restricted to one.
    pub sole_currency: Option<CurrencyCode>,
    /// What the wallet holds in the command's currency code; the exponent may be another.
    pub balance: Option<Money>,
}

/// Whether a customer's wallet takes movements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WalletState {
    /// None yet; the first credit opens it.
    #[default]
    Absent,
    /// Open.
    Open,
    /// Closed; every movement is refused until it is opened again.
    Closed,
}

/// What to write, and what to answer once it is committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Nothing to write; the answer repeats or follows from what is stored.
    Repeat(WalletReply),
    /// Not executed: write nothing under this id, so that the same id may be tried again.
    Refuse(WalletReply),
    /// Store the operation with its effect in one transaction, then answer.
    Record(Box<Recorded>),
}

/// One operation to store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// State to store it in.
    pub state: OperationState,
    /// Answer to store and send.
    pub reply: WalletReply,
    /// Money to move.
    pub booking: Option<Booking>,
    /// What becomes of a revert's target.
    pub target: TargetChange,
}

/// One movement on a customer's account; the ledger books the other half on a system account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Booking {
    /// Whose account.
    pub customer: CustomerId,
    /// Which way.
    pub movement: Movement,
    /// How much; above zero.
    pub money: Money,
    /// The balance after it.
    pub balance: Money,
}

/// What a revert does to its target's row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetChange {
    /// Nothing: no target, or one that is settled already.
    Keep,
    /// Forbid it for ever.
    Tombstone,
    /// It stands offset by this operation from now on.
    MarkReverted,
}

/// Decides the answer to one command; see the table of this module.
#[must_use]
pub fn decide(
    known: &Known,
    header: &CommandHeader,
    command: &WalletCommand,
    now: Timestamp,
) -> Decision {
    if let Some(invalid) = invalid(header, command) {
        return Decision::Refuse(invalid);
    }
    if let Some(stored) = &known.operation {
        return Decision::Repeat(repeat(stored, &header.operation_id, command));
    }
    if header.saga_id.is_some() && header.fence < known.seen_fence {
        return Decision::Refuse(WalletReply::Stale {
            seen_fence: known.seen_fence,
        });
    }
    if now >= header.deadline {
        return Decision::Refuse(WalletReply::Expired {
            deadline: header.deadline,
            now,
        });
    }
    match command {
        WalletCommand::Update(update) => {
            update::on_update(&known.account, &header.operation_id, update, now)
        }
        WalletCommand::Revert(revert) => {
            revert::on_revert(known, &header.operation_id, &revert.target, now)
        }
    }
}

/// What no wallet could ever execute. Checked before anything is read or written, so the shell may
/// also ask this alone.
#[must_use]
pub fn invalid(header: &CommandHeader, command: &WalletCommand) -> Option<WalletReply> {
    let invalid = |field: &str, message: String| {
        Some(WalletReply::Invalid {
            field: field.to_owned(),
            message,
        })
    };
    if i64::try_from(header.fence).is_err() {
        return invalid(
            header::FENCE,
            format!("{} is larger than {}", header.fence, i64::MAX),
        );
    }
    if memo(command).is_some_and(|memo| memo.len() > MAX_MEMO_LEN) {
        return invalid("memo", format!("is longer than {MAX_MEMO_LEN} bytes"));
    }
    match command {
        WalletCommand::Update(update) if !update.money.is_positive() => invalid(
            "money.amount_minor",
            "must be above zero; the direction is in `movement`".to_owned(),
        ),
        WalletCommand::Revert(revert) if revert.target == header.operation_id => invalid(
            "target",
            "a revert needs an Operation-Id of its own, such as revert-<target>".to_owned(),
        ),
        WalletCommand::Update(_) | WalletCommand::Revert(_) => None,
    }
}

/// The parameters of a command.
#[must_use]
pub fn parameters(command: &WalletCommand) -> Parameters {
    match command {
        WalletCommand::Update(WalletUpdate {
            customer,
            movement,
            money,
            memo: _,
        }) => Parameters::Update {
            customer: customer.clone(),
            movement: *movement,
            money: *money,
        },
        WalletCommand::Revert(revert) => Parameters::Revert {
            target: revert.target.clone(),
        },
    }
}

/// What a person wrote beside a command.
#[must_use]
pub fn memo(command: &WalletCommand) -> Option<&str> {
    match command {
        WalletCommand::Update(update) => update.memo.as_deref(),
        WalletCommand::Revert(revert) => revert.memo.as_deref(),
    }
}

/// The answer to an id that is stored already.
fn repeat(
    stored: &StoredOperation,
    operation_id: &OperationId,
    command: &WalletCommand,
) -> WalletReply {
    if stored.parameters == Parameters::NeverSeen {
        return WalletReply::Cancelled {
            operation_id: operation_id.clone(),
        };
    }
    let fields = differing_fields(&stored.parameters, &parameters(command));
    if fields.is_empty() {
        return stored.reply.clone();
    }
    WalletReply::Conflict {
        operation_id: operation_id.clone(),
        fields: fields.into_iter().map(str::to_owned).collect(),
    }
}

/// Names the fields in which two commands differ, as they are spelled in the body.
fn differing_fields(stored: &Parameters, arrived: &Parameters) -> Vec<&'static str> {
    match (stored, arrived) {
        (
            Parameters::Update {
                customer,
                movement,
                money,
            },
            Parameters::Update {
                customer: other_customer,
                movement: other_movement,
                money: other_money,
            },
        ) => {
            let (currency, other_currency) = (money.currency(), other_money.currency());
            [
                ("customer", customer != other_customer),
                ("movement", movement != other_movement),
                (
                    "money.amount_minor",
                    money.amount_minor() != other_money.amount_minor(),
                ),
                ("money.currency", currency.code() != other_currency.code()),
                (
                    "money.exponent",
                    currency.exponent() != other_currency.exponent(),
                ),
            ]
            .into_iter()
            .filter_map(|(field, differs)| differs.then_some(field))
            .collect()
        }
        (
            Parameters::Revert { target },
            Parameters::Revert {
                target: other_target,
            },
        ) => {
            if target == other_target {
                Vec::new()
            } else {
                vec!["target"]
            }
        }
        (
            Parameters::Update { .. } | Parameters::Revert { .. } | Parameters::NeverSeen,
            Parameters::Update { .. } | Parameters::Revert { .. } | Parameters::NeverSeen,
        ) => vec!["kind"],
    }
}

/// The balance after a movement, or why the wallet refuses it.
fn balance_after(
    account: &AccountState,
    movement: Movement,
    money: Money,
) -> Result<Money, (RejectCode, String)> {
    let currency = money.currency();
    if account.wallet == WalletState::Closed {
        return Err((RejectCode::WalletClosed, "the wallet is closed".to_owned()));
    }
    if let Some(sole) = account
        .sole_currency
        .filter(|sole| *sole != currency.code())
    {
        return Err((
            RejectCode::WrongCurrency,
            format!("the wallet holds {sole} only, not {}", currency.code()),
        ));
    }
    let balance = account.balance.unwrap_or_else(|| Money::new(0, currency));
    if balance.currency() != currency {
        return Err((
            RejectCode::WrongCurrency,
            format!(
                "the wallet holds {} with {} decimals, not with {}",
                currency.code(),
                balance.currency().exponent(),
                currency.exponent()
            ),
        ));
    }
    match movement {
        Movement::Credit => balance.checked_add(money).map_err(|_| {
            (
                RejectCode::BalanceOverflow,
                format!("{balance} and {money} together are more than a wallet can hold"),
            )
        }),
        Movement::Debit => balance
            .amount_minor()
            .checked_sub(money.amount_minor())
            .filter(|left| *left >= 0)
            .map(|left| Money::new(left, currency))
            .ok_or_else(|| {
                (
                    RejectCode::InsufficientFunds,
                    format!("the balance is {balance}, less than {money}"),
                )
            }),
    }
}

/// Longest memo stored, in bytes: a line or two, not an attachment.
pub const MAX_MEMO_LEN: usize = 4096;
