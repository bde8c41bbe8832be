//! What comes in from outside besides raw callbacks: starts, signals and operators' requests. JSON.

use crate::id::{SagaId, StepName};
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

/// An operator's request on one saga.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperatorRequest {
    /// Which saga.
    pub saga_id: SagaId,
    /// The request's own id; a repeat changes nothing.
    pub id: String,
    /// What to do.
    pub verb: OperatorVerb,
    /// Why, for the record.
    pub reason: String,
    /// Who asks.
    pub by: String,
}

/// What an operator may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OperatorVerb {
    /// Turn the saga back and settle its effects; refused after the pivot.
    Cancel,
}
