//! What a wallet's reply means to a saga: the one place where answers become outcomes.

use contracts::command::{
    CommandHeader, WalletCommand, WalletGet, WalletRevert, WalletUpdate, WalletVerb,
};
use contracts::id::{Region, SagaId};
use contracts::reply::{Effect, RejectCode, WalletReply, WalletView};
use jiff::SignedDuration;
use region_agent::telemetry;
use region_agent::wallet::Wallet;
use serde_json::json;
use tracing::Instrument as _;

use crate::callback::short_text;
use crate::saga::action::Command;
use crate::saga::input::Answer;

/// Maps a reply. Only a definite answer to this very command is an outcome; whatever leaves room for an
/// effect is unknown.
#[must_use]
pub fn answer(reply: WalletReply, command: &Command) -> Answer {
    match &reply {
        WalletReply::Applied {
            operation_id,
            effect,
            ..
        } if *operation_id != command.operation_id || !is_asked_for(effect, command) => {
            Answer::Unknown {
                message: "the participant reports an effect that was not asked for".to_owned(),
            }
        }
        WalletReply::Rejected { operation_id, .. }
        | WalletReply::Cancelled { operation_id }
        | WalletReply::Conflict { operation_id, .. }
            if *operation_id != command.operation_id =>
        {
            Answer::Unknown {
                message: "the participant answers another operation".to_owned(),
            }
        }
        WalletReply::Applied { .. } => serde_json::to_value(&reply).map_or_else(
            |error| Answer::Unknown {
                message: error.to_string(),
            },
            Answer::Applied,
        ),
        WalletReply::Rejected { code, message, .. } => Answer::Refused {
            code: reject_code(*code).to_owned(),
            message: shortened(message),
        },
        WalletReply::Cancelled { .. } => Answer::Refused {
            code: "tombstoned".to_owned(),
            message: "a revert came first; the operation can never be applied".to_owned(),
        },
        WalletReply::Conflict { fields, .. } => Answer::Conflict {
            fields: fields
                .iter()
                .take(16)
                .map(|field| shortened(field))
                .collect(),
        },
        WalletReply::Stale { seen_fence } if *seen_fence > HIGHEST_FENCE => Answer::Unknown {
            message: format!("fence {seen_fence} is none of ours"),
        },
        WalletReply::Stale { seen_fence } => Answer::Stale {
            seen_fence: *seen_fence,
        },
        // Said of this delivery of the command alone. Where the network has made two of it, the other may
        // meet room, or an agent whose clock is behind; only a tombstone keeps it from having an effect.
        // The pause that a busy participant asks for is shorter than any of ours.
        WalletReply::Expired { .. } => Answer::Unknown {
            message: "expired".to_owned(),
        },
        WalletReply::Busy { .. } => Answer::Unknown {
            message: "busy".to_owned(),
        },
        WalletReply::Invalid { field, message } => Answer::Unacceptable {
            code: "invalid".to_owned(),
            message: shortened(&format!("{field}: {message}")),
        },
        WalletReply::Unavailable { message } => Answer::Unknown {
            message: shortened(message),
        },
        WalletReply::Unknown => Answer::Unknown {
            message: "an answer of a newer participant".to_owned(),
        },
    }
}

/// Maps what a wallet says of an operation. Not to know it is no answer: it may still be on its way.
#[must_use]
pub fn status(view: WalletView, get: &WalletGet) -> Answer {
    match view {
        WalletView::Operation(operation)
            if Some(&operation.operation_id) == get.operation_id.as_ref() =>
        {
            let state = json!({ "state": operation.state, "reply": operation.reply });
            Answer::Applied(state)
        }
        WalletView::UnknownOperation { .. } => not_executed("not_found", SignedDuration::ZERO),
        WalletView::Invalid { field, message } => Answer::Unacceptable {
            code: "invalid".to_owned(),
            message: shortened(&format!("{field}: {message}")),
        },
        WalletView::Unavailable { message } => Answer::Unknown {
            message: shortened(&message),
        },
        WalletView::Operation(_) | WalletView::Wallet { .. } | WalletView::Operations { .. } => {
            Answer::Unknown {
                message: "the participant answers another question".to_owned(),
            }
        }
    }
}

/// The highest fence that may be one of ours. A saga's fence rises above what a participant has seen, and
/// must stay within the signed numbers that participants keep it in, or none would take its commands again.
const HIGHEST_FENCE: u64 = u64::MAX >> 2;

/// Whether the effect is the one the command asks for.
fn is_asked_for(effect: &Effect, command: &Command) -> bool {
    match (effect, asked(command)) {
        (
            Effect::Moved {
                customer,
                movement,
                money,
                ..
            },
            Ok(Asked::To(WalletCommand::Update(update))),
        ) => (customer, movement, money) == (&update.customer, &update.movement, &update.money),
        (
            Effect::Offset { target, .. } | Effect::Tombstoned { target },
            Ok(Asked::To(WalletCommand::Revert(revert))),
        ) => *target == revert.target,
        (Effect::Moved { .. } | Effect::Offset { .. } | Effect::Tombstoned { .. }, _) => false,
    }
}

/// A participant's text as it is kept in a record.
fn shortened(text: &str) -> String {
    short_text(text).unwrap_or_default()
}

/// Calls the wallet of this process, in a span like that of an agent.
pub(super) async fn perform_locally(
    wallet: &Wallet,
    region: &Region,
    saga_id: &SagaId,
    command: &Command,
) -> Answer {
    let request = match asked(command) {
        Ok(Asked::To(request)) => request,
        Ok(Asked::About(get)) => return status(wallet.get(&get).await, &get),
        Err(refusal) => return refusal,
    };
    let header = header(saga_id, command);
    let verb = match &request {
        WalletCommand::Update(_) => WalletVerb::Update,
        WalletCommand::Revert(_) => WalletVerb::Revert,
    };
    let span = telemetry::command_span(verb.as_str(), region, &header);
    answer(
        wallet.execute(&header, &request).instrument(span).await,
        command,
    )
}

/// What travels beside the command.
#[must_use]
pub fn header(saga_id: &SagaId, command: &Command) -> CommandHeader {
    CommandHeader {
        saga_id: Some(saga_id.clone()),
        operation_id: command.operation_id.clone(),
        attempt: command.attempt,
        fence: command.fence,
        deadline: command.deadline,
    }
}

/// What a saga can ask of a wallet.
#[derive(Debug, Clone)]
pub enum Asked {
    /// To move money, or to forbid it.
    To(WalletCommand),
    /// What became of an operation.
    About(WalletGet),
}

/// What a saga's command asks of a wallet.
///
/// # Errors
/// The answer of a participant that would not understand it.
pub fn asked(command: &Command) -> Result<Asked, Answer> {
    let invalid = |error: serde_json::Error| Answer::Unacceptable {
        code: "invalid".to_owned(),
        message: format!("{}: {error}", command.kind),
    };
    let request = command.request.clone();
    match command.kind.as_str() {
        "wallet.update" => serde_json::from_value::<WalletUpdate>(request)
            .map(|update| Asked::To(WalletCommand::Update(update)))
            .map_err(invalid),
        "wallet.revert" => serde_json::from_value::<WalletRevert>(request)
            .map(|revert| Asked::To(WalletCommand::Revert(revert)))
            .map_err(invalid),
        "wallet.get" => serde_json::from_value::<WalletGet>(request)
            .map(Asked::About)
            .map_err(invalid),
        other => Err(Answer::Unacceptable {
            code: "invalid".to_owned(),
            message: format!("{other} is nothing a wallet can be asked for"),
        }),
    }
}

/// A command that was not sent.
pub(super) fn held_back(code: &str, retry_after: SignedDuration) -> Answer {
    Answer::HeldBack {
        code: code.to_owned(),
        retry_after,
    }
}

/// An attempt that had no effect.
pub(super) fn not_executed(code: &str, retry_after: SignedDuration) -> Answer {
    Answer::NotExecuted {
        code: code.to_owned(),
        retry_after,
    }
}

fn reject_code(code: RejectCode) -> &'static str {
    match code {
        RejectCode::InsufficientFunds => "insufficient_funds",
        RejectCode::WalletClosed => "wallet_closed",
        RejectCode::WrongCurrency => "wrong_currency",
        RejectCode::BalanceOverflow => "balance_overflow",
        RejectCode::Other => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::saga::record::Participant;
    use jiff::Timestamp;
    use serde_json::Value;

    fn to_a_revert(reply: WalletReply) -> Answer {
        let saga_id = SagaId::from_parts("deposit", &["p", "x"]);
        let command = Command {
            step: "undo of credit-wallet".to_owned(),
            operation_id: saga_id.own_operation().revert(),
            participant: Participant::Core,
            kind: "wallet.revert".to_owned(),
            request: Value::Null,
            attempt: 1,
            fence: 1,
            deadline: Timestamp::MAX,
        };
        answer(reply, &command)
    }

    #[test]
    fn a_fence_stays_within_what_participants_can_keep() {
        let seen = |seen_fence| to_a_revert(WalletReply::Stale { seen_fence });
        assert_eq!(seen(7), Answer::Stale { seen_fence: 7 });
        assert!(i64::try_from(HIGHEST_FENCE + 1).is_ok());
        for none_of_ours in [HIGHEST_FENCE + 1, u64::MAX >> 1, u64::MAX] {
            assert!(matches!(seen(none_of_ours), Answer::Unknown { .. }));
        }
    }

    #[test]
    fn what_is_said_of_one_delivery_is_no_proof() {
        let replies = [
            WalletReply::Busy { retry_after_ms: 50 },
            WalletReply::Expired {
                deadline: Timestamp::UNIX_EPOCH,
                now: Timestamp::MAX,
            },
        ];
        for reply in replies {
            assert!(matches!(to_a_revert(reply), Answer::Unknown { .. }));
        }
    }
}
