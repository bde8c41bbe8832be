//! Sending again because a person asks for it.

use jiff::{SignedDuration, Timestamp};

use super::sending::send;
use super::{Side, all, operation};
use crate::saga::Turn;
use crate::saga::action::Command;
use crate::saga::policy::after;
use crate::saga::record::{Outcome, SagaRecord};

/// Asks for an operation once more under its own id, with a new budget. Whoever executed it repeats the
/// stored answer; whoever did not executes it now. What was sent before may have been applied, so from
/// here on nothing but a definite answer proves that it was not.
pub(in crate::saga) fn ask_again(
    record: &mut SagaRecord,
    index: usize,
    side: Side,
    turn: Turn<'_>,
) -> Option<Command> {
    let operation = operation(record, index, side);
    let doubtful = match &operation.outcome {
        Outcome::Planned => return None,
        Outcome::BackingOff { doubtful, .. } => *doubtful,
        Outcome::InFlight { .. }
        | Outcome::Applied { .. }
        | Outcome::NotApplied { .. }
        | Outcome::Unknown { .. } => true,
    };
    operation.outcome = Outcome::BackingOff {
        issued_at: turn.now,
        retry_at: turn.now,
        tries: 0,
        doubtful,
        last: "asked again by a person".to_owned(),
    };
    send(record, index, side, turn)
}

/// Sends everything that waits for its next attempt, without the wait.
pub(in crate::saga) fn send_now(record: &mut SagaRecord, turn: Turn<'_>) -> Vec<Command> {
    let mut commands = Vec::new();
    for (index, side) in all(record) {
        if let Outcome::BackingOff { .. } = operation(record, index, side).outcome {
            commands.extend(send(record, index, side, turn));
        }
    }
    commands
}

/// Moves what operations wait for by the time their saga was held. An attempt that is out keeps its own
/// deadline: that is the participant's clock, which nobody has stopped.
pub(in crate::saga) fn release(record: &mut SagaRecord, since: Timestamp, held: SignedDuration) {
    for (index, side) in all(record) {
        match &mut operation(record, index, side).outcome {
            Outcome::InFlight { issued_at, .. } => *issued_at = after(*issued_at, held),
            Outcome::BackingOff {
                issued_at,
                retry_at,
                ..
            } => {
                *issued_at = after(*issued_at, held);
                // What began to wait while the saga was held has waited long enough.
                let left = retry_at.duration_since(since).min(LONGEST_LEFT);
                *retry_at = after(after(since, held), left);
            }
            Outcome::Planned
            | Outcome::Applied { .. }
            | Outcome::NotApplied { .. }
            | Outcome::Unknown { .. } => {}
        }
    }
}

/// Longest wait that is left when a saga is let go on: that between two attempts.
const LONGEST_LEFT: SignedDuration = SignedDuration::from_secs(60);
