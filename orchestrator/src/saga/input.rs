//! Everything that can happen to a saga.

use contracts::id::OperationId;
use contracts::intake::OperatorRequest;
use jiff::SignedDuration;
use serde_json::Value;

/// Something happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// A request to start this saga came again (or another message about the same thing).
    Arrival(Arrival),
    /// A participant answered.
    Reply(Reply),
    /// Somebody said something to the saga.
    Signal(Signal),
    /// Somebody asked to turn back.
    Cancel(Cancel),
    /// An operator asked for something.
    Operator(Operator),
    /// Something may be due. Firing early or twice is safe.
    Timer,
    /// This replica continues what another one left: its driver message was redelivered.
    Resume,
}

/// A message that would have started the saga if it did not exist.
#[derive(Debug, Clone, PartialEq)]
pub struct Arrival {
    /// The intake message, the same on every redelivery.
    pub message_id: String,
    /// What the message would have started the saga with.
    pub input: Value,
}

/// A participant's answer to one attempt.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    /// Which operation.
    pub operation_id: OperationId,
    /// Which attempt, for diagnosis.
    pub attempt: u32,
    /// What it said.
    pub answer: Answer,
}

/// What an answer means, whoever gave it.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// It stands.
    Applied(Value),
    /// Definitely refused: it has no effect and never will.
    Refused {
        /// Short code.
        code: String,
        /// For a person.
        message: String,
    },
    /// This attempt was not executed and never will be (nobody there, not sent); earlier ones may have been.
    NotExecuted {
        /// Short code.
        code: String,
        /// Wait at least so long before the next attempt.
        retry_after: SignedDuration,
    },
    /// The command was not sent: the way to its participant is closed or full. That was no attempt.
    HeldBack {
        /// Short code.
        code: String,
        /// Wait at least so long before it is tried again.
        retry_after: SignedDuration,
    },
    /// This attempt was not executed, and no repetition of it will be as it stands: the participant or
    /// the way to it does not understand it. Says nothing of earlier attempts.
    Unacceptable {
        /// Short code.
        code: String,
        /// For a person.
        message: String,
    },
    /// The participant or the way to it cannot tell.
    Unknown {
        /// For a person.
        message: String,
    },
    /// The operation id is known with other parameters.
    Conflict {
        /// The fields that differ.
        fields: Vec<String>,
    },
    /// The participant has seen a higher fence for this saga.
    Stale {
        /// That fence.
        seen_fence: u64,
    },
}

/// Something said to a saga.
#[derive(Debug, Clone, PartialEq)]
pub struct Signal {
    /// The intake message that brought it.
    pub message_id: String,
    /// Which signal.
    pub name: String,
    /// The sender's id.
    pub id: String,
    /// What is said.
    pub body: Value,
}

/// A request to turn back.
#[derive(Debug, Clone, PartialEq)]
pub struct Cancel {
    /// The intake message that brought it.
    pub message_id: String,
    /// Why.
    pub reason: String,
    /// Who asks.
    pub by: String,
}

/// An operator's request.
#[derive(Debug, Clone, PartialEq)]
pub struct Operator {
    /// The intake message that brought it.
    pub message_id: String,
    /// What is asked for.
    pub request: OperatorRequest,
}
