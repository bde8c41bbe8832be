//! Everything a decision can ask of the shell.

use contracts::audit::AuditEntry;
use contracts::id::{OperationId, Region};
use jiff::Timestamp;
use serde_json::Value;

use super::record::{CaseReason, Participant, SagaRecord};

/// What to do about an input.
#[derive(Debug)]
pub enum Decision {
    /// Store the record together with the events, then perform the commands, in that order.
    Commit(Box<Commit>),
    /// Nothing changes. At-least-once delivery makes this ordinary, not an error.
    Ignore(Box<SagaRecord>, Ignored),
}

/// One atomic write and what may leave after it.
#[derive(Debug)]
pub struct Commit {
    /// The new state.
    pub record: SagaRecord,
    /// Commands to send once the state is stored.
    pub commands: Vec<Command>,
    /// Events that belong to the same write.
    pub events: Vec<Event>,
    /// Whether the write may wait for the next one.
    pub persist: Persist,
    /// What has to be done about messages that this saga does not take in itself. Each is idempotent
    /// and is done before the write, so that a crash between the two repeats it.
    pub notes: Vec<Note>,
    /// What became of an operator's request, when one was decided on; it belongs to the same write.
    pub audit: Option<Box<AuditEntry>>,
}

/// Whether a commit must be stored before its commands leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Persist {
    /// Store now: a later decision depends on it, or a command could move money.
    Now,
    /// All commands are repeatable: losing this state only repeats them.
    WithNext,
}

/// A command to a participant.
#[derive(Debug, Clone, PartialEq)]
pub struct Command {
    /// Which step it belongs to.
    pub step: String,
    /// Which operation.
    pub operation_id: OperationId,
    /// Who performs it.
    pub participant: Participant,
    /// What is asked, such as `wallet.update`.
    pub kind: String,
    /// The parameters.
    pub request: Value,
    /// 1 for the first sending.
    pub attempt: u32,
    /// The saga's epoch.
    pub fence: u64,
    /// Not to be started after this instant.
    pub deadline: Timestamp,
}

/// An event for the log.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Its name, the last token of the subject.
    pub name: &'static str,
    /// The region it is about.
    pub region: Region,
    /// What it says.
    pub body: Value,
}

/// Something about a message that the saga itself does not take in.
#[derive(Debug, Clone, PartialEq)]
pub enum Note {
    /// Keep the message for a person.
    OpenCase {
        /// Which kind of case.
        reason: CaseReason,
        /// What is the matter with it.
        message: String,
        /// What the message said.
        input: Value,
    },
    /// The message is new and this saga has ended without it: start the next generation.
    StartNext {
        /// The message, the same on every redelivery.
        message_id: String,
        /// The message's input.
        input: Value,
    },
}

/// Why an input changed nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ignored {
    /// This very message is accounted for already.
    Seen,
    /// Nothing is due.
    NothingDue,
    /// The operation is settled, and the answer agrees.
    Settled,
    /// We drive it already.
    OwnAlready,
    /// The saga has ended.
    Ended,
    /// A person has stopped the saga's clocks.
    Held,
    /// The record cannot be read or written; a case says so.
    Poisoned,
    /// It answers a command that was sent on facts forgotten since.
    Forgotten,
}
