//! What cannot be stored: tried again when it passes, kept for a person when it lasts.

use contracts::id::SagaId;

use super::{Actor, Matter, Progress, Settled};
use crate::saga::CASE_WORKFLOW;
use crate::saga::action::Ignored;
use crate::saga::input::Input;
use crate::saga::record::CaseReason;

impl Actor {
    /// What passes is tried again later. What lasts is kept as a case of its own, so that one saga that
    /// cannot be read or stored never holds up its messages, let alone others'. Each message is a case of
    /// its own: it is acknowledged, so this is where a person finds what it said.
    pub(super) async fn give_up_on(&mut self, trouble: Trouble, said: Said) -> Progress {
        let reason = match trouble {
            Trouble::Passing(reason) => return Progress::Failed(reason),
            Trouble::Lasting(reason) => reason,
        };
        self.forget();
        let mut parts = vec![self.saga_id.as_str(), "poison"];
        let mut evidence = serde_json::json!({ "saga_id": self.saga_id });
        match &said {
            // The message behind a takeover is decided on right after it, and finds the same trouble.
            Said::Takeover => return Progress::Ignored(Ignored::Poisoned),
            Said::Nothing => {}
            Said::Message { id, body } => {
                parts.push(id);
                evidence["message_id"] = id.as_str().into();
                evidence["message"] = body.clone();
            }
        }
        let id = SagaId::from_parts(CASE_WORKFLOW, &parts);
        let opened = self
            .engine
            .open_case(id, CaseReason::Poison, reason, evidence)
            .await;
        match opened {
            Settled::Done | Settled::Missing | Settled::Left => {
                Progress::Ignored(Ignored::Poisoned)
            }
            Settled::Again(reason) => Progress::Failed(reason),
        }
    }
}

/// Why nothing was stored.
pub(super) enum Trouble {
    /// The same may work later.
    Passing(String),
    /// It will not, however often it is tried.
    Lasting(String),
}

impl Trouble {
    pub(super) fn reason(&self) -> &str {
        match self {
            Self::Passing(reason) | Self::Lasting(reason) => reason,
        }
    }
}

/// What a decision was about to take in.
pub(super) enum Said {
    /// A message, which goes when it is acknowledged.
    Message {
        /// The same on every redelivery.
        id: String,
        /// What it says.
        body: serde_json::Value,
    },
    /// Another replica's saga, before the message that brought us here.
    Takeover,
    /// A timer or an answer.
    Nothing,
}

impl Matter {
    /// What a message said, for the case that keeps it.
    pub(super) fn said(&self) -> Said {
        let message = |id: &str, body: &serde_json::Value| Said::Message {
            id: id.to_owned(),
            body: body.clone(),
        };
        match self {
            Self::Start { arrival, .. } | Self::Input(Input::Arrival(arrival)) => {
                message(&arrival.message_id, &arrival.input)
            }
            Self::Input(Input::Signal(signal)) => message(&signal.message_id, &signal.body),
            Self::Input(Input::Cancel(cancel)) => {
                message(&cancel.message_id, &cancel.reason.clone().into())
            }
            Self::Input(Input::Resume) => Said::Takeover,
            Self::Input(Input::Reply(_) | Input::Timer) => Said::Nothing,
        }
    }
}
