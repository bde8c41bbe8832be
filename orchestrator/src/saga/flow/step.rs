//! One step being described, found in the record or asked for.

use contracts::id::StepName;
use serde_json::{Value, json};

use super::{Cx, Flow, Refusal, Request, Step, Suspend, UNREACHABLE, broken};
use crate::saga::policy::Policy;
use crate::saga::record::{CaseReason, Operation, Outcome, Participant, StepRecord, TurnReason};

/// A step being described; ends with [`StepBuilder::run`].
#[derive(Debug)]
pub struct StepBuilder<'c, 'a, S> {
    cx: &'c mut Cx<'a>,
    step: S,
    undo: Option<Undo>,
    pivot: bool,
    patient: bool,
    own_id: bool,
}

#[derive(Debug)]
struct Undo {
    participant: Participant,
    kind: &'static str,
    request: Result<Value, serde_json::Error>,
    repeatable: bool,
}

impl<'c, 'a, S: Step> StepBuilder<'c, 'a, S> {
    pub(super) fn new(cx: &'c mut Cx<'a>, step: S) -> Self {
        Self {
            cx,
            step,
            undo: None,
            pivot: false,
            patient: false,
            own_id: false,
        }
    }

    /// Names what offsets the step. It is stored before the step's command leaves. A step without an
    /// undo is one whose effect needs no settling.
    #[must_use]
    pub fn undo<R: Request>(mut self, undo: &R) -> Self {
        self.undo = Some(Undo {
            participant: undo.participant(),
            kind: R::KIND,
            request: serde_json::to_value(undo),
            repeatable: R::REPEATABLE,
        });
        self
    }

    /// After this step is applied the saga only goes forward.
    #[must_use]
    pub fn pivot(mut self) -> Self {
        self.pivot = true;
        self
    }

    /// Retries up to the saga's deadline and then asks a person instead of turning back.
    #[must_use]
    pub fn patient(mut self) -> Self {
        self.patient = true;
        self
    }

    /// The operation id is the saga's own id: for the one movement a saga is about.
    #[must_use]
    pub fn own_operation(mut self) -> Self {
        self.own_id = true;
        self
    }

    /// The participant's reply.
    ///
    /// # Errors
    /// Suspends while it is not known. A definite refusal turns the saga back, or after the pivot
    /// opens a case.
    pub fn run(self) -> Flow<S::Reply> {
        let past_pivot = self.cx.record.is_past_pivot();
        match self.run_or_refusal()? {
            Ok(reply) => Ok(reply),
            Err(Refusal {
                step,
                code,
                message,
            }) if past_pivot => Err(Suspend::Review {
                reason: CaseReason::RefusedAfterPivot,
                message: format!("step {step} was refused after the pivot: {code}: {message}"),
            }),
            Err(Refusal {
                step,
                code,
                message,
            }) => Err(Suspend::Stop {
                reason: TurnReason::StepRefused,
                message: format!("step {step}: {code}: {message}"),
            }),
        }
    }

    /// The participant's reply, or its definite refusal for the workflow to decide on.
    ///
    /// # Errors
    /// Suspends while neither is known. A step that could not be delivered, or has no outcome, turns
    /// the saga back.
    pub fn run_or_refusal(self) -> Flow<Result<S::Reply, Refusal>> {
        let name = self.cx.numbered(S::NAME);
        match self.resolve(&name)? {
            Outcome::Applied { reply, .. } => {
                serde_json::from_value(reply)
                    .map(Ok)
                    .map_err(|error| Suspend::Review {
                        reason: CaseReason::UnreadableReply,
                        message: format!(
                            "the workflow cannot read the reply of step {name}: {error}"
                        ),
                    })
            }
            Outcome::NotApplied { code, message, .. } if code == UNREACHABLE => {
                Err(Suspend::Stop {
                    reason: TurnReason::StepUnreachable,
                    message: format!("step {name} could not be delivered: {message}"),
                })
            }
            Outcome::NotApplied { code, message, .. } => Ok(Err(Refusal {
                step: name,
                code,
                message,
            })),
            Outcome::Unknown { last, .. } => Err(Suspend::Stop {
                reason: TurnReason::OutcomeUnknown,
                message: format!("step {name}: no definite answer within its budget: {last}"),
            }),
            Outcome::Planned | Outcome::InFlight { .. } | Outcome::BackingOff { .. } => {
                Err(Suspend::Waiting)
            }
        }
    }

    /// Finds the step in the record and compares what it asks for, or adds it to what is wanted.
    fn resolve(self, name: &str) -> Flow<Outcome> {
        let request = serde_json::to_value(&self.step).map_err(|error| broken(name, &error))?;
        let participant = self.step.participant();
        let digest = digest_of(&participant, S::KIND, &request);
        if let Some(known) = self
            .cx
            .record
            .steps
            .iter()
            .find(|step| step.name.as_str() == name)
        {
            if known.forward.digest != digest {
                return Err(Suspend::Review {
                    reason: CaseReason::Nondeterministic,
                    message: format!(
                        "step {name} asks for something else than when it was issued: the code changed under a \
                         live saga; nothing was sent"
                    ),
                });
            }
            return Ok(known.forward.outcome.clone());
        }
        let saga_id = &self.cx.record.saga_id;
        let operation_id = if self.own_id {
            saga_id.own_operation()
        } else if S::REPEATABLE {
            // It may leave on facts that are forgotten, and be asked for again on other ones.
            saga_id.operation(&format!("{name}/{}", &digest[..REQUEST_MARK]))
        } else {
            saga_id.operation(name)
        };
        let undo = match self.undo {
            None => None,
            Some(undo) => {
                let request = undo.request.map_err(|error| broken(name, &error))?;
                Some(Operation {
                    operation_id: operation_id.revert(),
                    digest: digest_of(&undo.participant, undo.kind, &request),
                    participant: undo.participant,
                    kind: undo.kind.to_owned(),
                    request,
                    repeatable: undo.repeatable,
                    attempts: 0,
                    outcome: Outcome::Planned,
                })
            }
        };
        let policy = match (self.cx.record.is_past_pivot(), self.patient) {
            (true, _) => Policy::UntilDone,
            (false, true) => Policy::Patient,
            (false, false) => Policy::Forward,
        };
        self.cx.wanted.push(StepRecord {
            name: StepName::new(name).map_err(|error| broken(name, &error))?,
            policy,
            pivot: self.pivot,
            forward: Operation {
                operation_id,
                participant,
                kind: S::KIND.to_owned(),
                request,
                digest,
                repeatable: S::REPEATABLE,
                attempts: 0,
                outcome: Outcome::Planned,
            },
            undo,
            status: None,
        });
        Ok(Outcome::Planned)
    }
}

/// SHA-256 over participant, kind and parameters. Object keys are sorted in [`Value`], so equal
/// parameters have equal text.
#[must_use]
fn digest_of(participant: &Participant, kind: &str, request: &Value) -> String {
    use sha2::{Digest, Sha256};
    let text = json!([participant, kind, request]).to_string();
    hex::encode(&Sha256::digest(text.as_bytes())[..16])
}

/// Digits of a request's digest in the id of a repeatable operation.
const REQUEST_MARK: usize = 12;
