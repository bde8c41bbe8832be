//! What comes in from outside besides raw callbacks: starts, signals and operators' requests. JSON.

use crate::id::{OperationId, SagaId, StepName};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Asks for a new saga. The same workflow and id is the same saga: the second request is a repeat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartRequest {
    /// The workflow to run.
    pub workflow: String,
    /// The caller's own id; with the workflow it makes the saga id.
    pub id: String,
    /// What the workflow reads.
    pub input: Value,
}

/// Says something to a saga.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signal {
    /// To whom.
    pub saga_id: SagaId,
    /// Which signal, such as `psp-callback`.
    pub name: StepName,
    /// The sender's own id; the same id is the same signal for good.
    pub id: String,
    /// What is said.
    #[serde(default)]
    pub body: Value,
}

/// An operator's request on one saga, or on a case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperatorRequest {
    /// Which saga.
    pub saga_id: SagaId,
    /// The request's own id; a repeat changes nothing.
    pub id: String,
    /// What to do.
    #[serde(flatten)]
    pub verb: OperatorVerb,
    /// Why, for the record.
    pub reason: String,
    /// Who asks.
    pub by: String,
}

/// What an operator may ask for. In the JSON its name is `verb`, and what it takes stands beside it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "snake_case")]
pub enum OperatorVerb {
    /// Turn the saga back and settle its effects; refused after the pivot.
    Cancel,
    /// Give the case to somebody.
    Assign {
        /// To whom.
        owner: String,
    },
    /// Ask the participants again about every operation whose outcome is not certain.
    Recheck,
    /// Say what became of an operation, or close a case that no saga waits for.
    Resolve {
        /// Which operation; may be left out when only one is open.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        operation_id: Option<OperationId>,
        /// What was found; left out to close a case that is no saga.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        finding: Option<Finding>,
        /// How that is known.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        evidence: String,
        /// What the participant would have answered, where the workflow reads it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reply: Option<Value>,
    },
    /// Turn the saga back even after its pivot, and settle all its effects.
    Compensate,
    /// Send now what waits to be sent again, try refused compensations again, run the workflow again.
    RetryNow,
    /// Stop the saga's clocks: nothing is sent and no deadline passes.
    Hold,
    /// Let a held saga go on; its deadlines move by the time it was held.
    Release,
    /// Agree, as a second person, to a request that waits for one.
    Approve {
        /// The id of that request.
        request: String,
    },
}

/// What a person found out about an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finding {
    /// It stands.
    Applied,
    /// It has had no effect. An attempt may still be on its way: the step's undo forbids it where it can.
    NotApplied,
}

/// Bytes of the longest id of a request.
const MAX_ID: usize = 1024;

/// Bytes of the longest name of a person.
const MAX_NAME: usize = 256;

impl OperatorRequest {
    /// What is missing: a request without a reason, an identity or an id is none.
    ///
    /// # Errors
    /// What is wrong, for a person.
    pub fn check(&self) -> Result<(), String> {
        text("id", &self.id, MAX_ID)?;
        text("by", &self.by, MAX_NAME)?;
        text("reason", &self.reason, usize::MAX)?;
        match &self.verb {
            OperatorVerb::Assign { owner } => text("owner", owner, MAX_NAME),
            OperatorVerb::Approve { request } => text("request", request, MAX_ID),
            OperatorVerb::Resolve {
                finding: Some(_),
                evidence,
                ..
            } => text("evidence", evidence, usize::MAX),
            OperatorVerb::Resolve { finding: None, .. }
            | OperatorVerb::Cancel
            | OperatorVerb::Recheck
            | OperatorVerb::Compensate
            | OperatorVerb::RetryNow
            | OperatorVerb::Hold
            | OperatorVerb::Release => Ok(()),
        }
    }

    /// Tells requests under one id apart, however their JSON was laid out.
    #[must_use]
    pub fn digest(&self) -> String {
        let text = serde_json::to_string(self).unwrap_or_default();
        crate::subject::short_digest(text.as_bytes())
    }
}

impl OperatorVerb {
    /// As people type it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Assign { .. } => "assign",
            Self::Recheck => "recheck",
            Self::Resolve { .. } => "resolve",
            Self::Compensate => "compensate",
            Self::RetryNow => "retry-now",
            Self::Hold => "hold",
            Self::Release => "release",
            Self::Approve { .. } => "approve",
        }
    }
}

fn text(field: &str, text: &str, max: usize) -> Result<(), String> {
    if text.trim().is_empty() {
        return Err(format!("{field}: must not be empty"));
    }
    if text.len() > max {
        return Err(format!("{field}: has more than {max} bytes"));
    }
    Ok(())
}
