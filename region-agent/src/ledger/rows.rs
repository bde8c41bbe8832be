//! Rows to our types and back.

use super::{LedgerError, text};
use crate::participant::{Parameters, StoredOperation, WalletState};
use contracts::command::{Movement, WalletRevert, WalletUpdate};
use contracts::id::SagaId;
use contracts::money::{Currency, CurrencyCode, Money};
use contracts::reply::{OperationState, OperationView, WalletReply};
use sha2::{Digest as _, Sha256};
use sqlx::Row as _;
use sqlx::any::AnyRow;

/// The columns of an operation, in the order [`operation`] and [`operation_view`] take them by name.
pub(super) const OPERATION: &str = "SELECT operation_id, saga_id, kind, state, params, fence, reply, reverted_by, created_at \
     FROM operations WHERE operation_key = $1";

/// A page of operations after a place, by the index `operations_by_time`.
pub(super) const OPERATIONS: &str = "SELECT operation_key, operation_id, saga_id, kind, state, params, fence, reply, reverted_by, created_at \
     FROM operations WHERE (created_at, operation_key) > ($1, $2) AND created_at < $3 \
     AND state <> 'claimed' ORDER BY created_at, operation_key LIMIT $4";

const UPDATE: &str = "update";
const REVERT: &str = "revert";

/// Parameters as they are stored.
pub(super) struct ParameterColumns {
    pub(super) kind: &'static str,
    pub(super) movement: Option<&'static str>,
    pub(super) params: Option<String>,
    pub(super) params_digest: Option<String>,
}

impl ParameterColumns {
    pub(super) fn new(parameters: &Parameters) -> Result<Self, LedgerError> {
        let (kind, movement, params) = match parameters {
            Parameters::Update {
                customer,
                movement,
                money,
            } => {
                let body = WalletUpdate {
                    customer: customer.clone(),
                    movement: *movement,
                    money: *money,
                    memo: None,
                };
                (
                    UPDATE,
                    Some(movement_text(*movement)),
                    Some(text::json(&body)?),
                )
            }
            Parameters::Revert { target } => {
                let body = WalletRevert {
                    target: target.clone(),
                    memo: None,
                };
                (REVERT, None, Some(text::json(&body)?))
            }
            // Only updates can be reverted, so only they leave a tombstone.
            Parameters::NeverSeen => (UPDATE, None, None),
        };
        let params_digest = params
            .as_ref()
            .map(|params| hex::encode(Sha256::digest(params.as_bytes())));
        Ok(Self {
            kind,
            movement,
            params,
            params_digest,
        })
    }
}

pub(super) fn operation(row: &AnyRow) -> Result<StoredOperation, LedgerError> {
    let kind: String = get(row, "kind")?;
    let params: Option<String> = get(row, "params")?;
    let parameters = match (kind.as_str(), params) {
        (UPDATE, None) => Parameters::NeverSeen,
        (UPDATE, Some(params)) => {
            let body: WalletUpdate = text::from_json(&params)?;
            Parameters::Update {
                customer: body.customer,
                movement: body.movement,
                money: body.money,
            }
        }
        (REVERT, Some(params)) => {
            let body: WalletRevert = text::from_json(&params)?;
            Parameters::Revert {
                target: body.target,
            }
        }
        (_, params) => {
            return Err(LedgerError::Corrupt(format!(
                "operation of kind {kind:?} with parameters {params:?}"
            )));
        }
    };
    Ok(StoredOperation {
        parameters,
        state: state(row)?,
        reply: reply(row)?,
    })
}

pub(super) fn operation_view(row: &AnyRow) -> Result<OperationView, LedgerError> {
    let saga_id: Option<String> = get(row, "saga_id")?;
    let operation_id: String = get(row, "operation_id")?;
    Ok(OperationView {
        operation_id: text::unescape(&operation_id)?.parse().map_err(corrupt_id)?,
        saga_id: saga_id
            .map(|saga| text::unescape(&saga)?.parse::<SagaId>().map_err(corrupt_id))
            .transpose()?,
        kind: get(row, "kind")?,
        state: state(row)?,
        fence: u64::try_from(get::<i64>(row, "fence")?)
            .map_err(|error| LedgerError::Corrupt(format!("fence: {error}")))?,
        created_at: text::from_time(&get::<String>(row, "created_at")?)?,
        reply: reply(row)?,
    })
}

fn reply(row: &AnyRow) -> Result<WalletReply, LedgerError> {
    text::from_json(&get::<String>(row, "reply")?)
}

fn state(row: &AnyRow) -> Result<OperationState, LedgerError> {
    match get::<String>(row, "state")?.as_str() {
        "applied" => Ok(OperationState::Applied),
        "rejected" => Ok(OperationState::Rejected),
        "tombstoned" => Ok(OperationState::Tombstoned),
        "reverted" => Ok(OperationState::Reverted),
        other => Err(LedgerError::Corrupt(format!("operation state {other:?}"))),
    }
}

pub(super) fn state_text(state: OperationState) -> &'static str {
    match state {
        OperationState::Applied => "applied",
        OperationState::Rejected => "rejected",
        OperationState::Tombstoned => "tombstoned",
        OperationState::Reverted => "reverted",
    }
}

pub(super) fn movement_text(movement: Movement) -> &'static str {
    match movement {
        Movement::Credit => "credit",
        Movement::Debit => "debit",
    }
}

pub(super) fn wallet_state(column: &str) -> Result<WalletState, LedgerError> {
    match column {
        "open" => Ok(WalletState::Open),
        "closed" => Ok(WalletState::Closed),
        other => Err(LedgerError::Corrupt(format!("wallet state {other:?}"))),
    }
}

pub(super) fn currency_code(column: &str) -> Result<CurrencyCode, LedgerError> {
    column
        .parse()
        .map_err(|error| LedgerError::Corrupt(format!("currency: {error}")))
}

/// Money out of the columns `amount` (or as named), `currency` and `exponent`.
pub(super) fn money(row: &AnyRow, amount_column: &str) -> Result<Money, LedgerError> {
    let code = currency_code(&get::<String>(row, "currency")?)?;
    let exponent = u8::try_from(get::<i64>(row, "exponent")?)
        .map_err(|error| LedgerError::Corrupt(format!("exponent: {error}")))?;
    let currency =
        Currency::new(code, exponent).map_err(|error| LedgerError::Corrupt(error.to_string()))?;
    Ok(Money::new(get(row, amount_column)?, currency))
}

/// One column; a wrong type is corruption, such as SQLite's floating point after an overflow.
pub(super) fn get<T>(row: &AnyRow, column: &str) -> Result<T, LedgerError>
where
    T: for<'r> sqlx::Decode<'r, sqlx::Any> + sqlx::Type<sqlx::Any>,
{
    row.try_get(column)
        .map_err(|error| LedgerError::Corrupt(format!("column {column}: {error}")))
}

pub(super) fn corrupt_id(error: contracts::id::IdError) -> LedgerError {
    LedgerError::Corrupt(format!("id: {error}"))
}
