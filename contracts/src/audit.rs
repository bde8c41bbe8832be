//! What became of an operator's request: one entry a request, kept for good. JSON.

use crate::intake::OperatorRequest;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// One entry of the audit stream. Stored in the same write as the saga's record, so there is no request
/// that changed a saga and is not here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// The request as it came.
    pub request: OperatorRequest,
    /// What became of it.
    #[serde(flatten)]
    pub answer: OperatorAnswer,
    /// When that was decided.
    pub at: Timestamp,
    /// The replica that decided.
    pub replica: String,
    /// The saga's status before.
    pub status_before: String,
    /// The saga's status afterwards.
    pub status_after: String,
    /// Why the revision of the record was written.
    pub cause: String,
}

/// The answer to an operator's request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum OperatorAnswer {
    /// Done, or under way.
    Accepted,
    /// Not done.
    Refused {
        /// Why not, and what is allowed.
        why: String,
    },
    /// Waits for a second person.
    Proposed {
        /// Why one is needed.
        why: String,
    },
}
