//! What cannot be stored: tried again when it passes, kept for a person when it lasts.

use contracts::id::SagaId;
use jiff::SignedDuration;

use super::{Actor, Matter, Progress, Settled};
use crate::saga::CASE_WORKFLOW;
use crate::saga::action::Ignored;
use crate::saga::input::Input;
use crate::saga::policy::after;
use crate::saga::record::CaseReason;

impl Actor {
    /// What passes is tried again later. What lasts is kept as a case of its own, so that one saga that
    /// cannot be read or stored never holds up its messages, let alone others'. Each message is a case of
    /// its own: it is acknowledged, so this is where a person finds what it said.
    pub(super) async fn give_up_on(&mut self, trouble: Trouble, matter: &Matter) -> Progress {
        let reason = match trouble {
            Trouble::Passing(reason) => return Progress::Failed(reason),
            Trouble::Lasting(reason) => reason,
        };
        self.forget();
        let mut parts = vec![self.saga_id.as_str(), "poison"];
        let mut evidence = serde_json::json!({ "saga_id": self.saga_id });
        match said(matter) {
            // The message behind a takeover is decided on right after it, and finds the same trouble.
            Said::Takeover => return Progress::Ignored(Ignored::Poisoned),
            Said::Nothing => {}
            Said::Message { id, body } => {
                parts.push(id);
                evidence["message_id"] = id.into();
                evidence["message"] = body;
            }
        }
        let id = SagaId::from_parts(CASE_WORKFLOW, &parts);
        let opened = self
            .engine
            .open_case(id, CaseReason::Poison, reason, evidence)
            .await;
        // What is stored stands, and something must drive it on: its timer, if it has anything to wait for.
        // Not at once: what is due meets the same trouble, and would again and again.
        if self.load().await.is_ok() {
            let earliest = after(self.engine.0.clock.now(), TROUBLE_PAUSE);
            self.park_from(earliest).await;
        }
        match opened {
            Settled::Done | Settled::Missing | Settled::Left => {
                Progress::Ignored(Ignored::Poisoned)
            }
            Settled::Again(reason) => Progress::Failed(reason),
        }
    }
}

/// How long a saga that could not be decided on or stored is left alone.
const TROUBLE_PAUSE: SignedDuration = SignedDuration::from_mins(1);

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
enum Said<'a> {
    /// A message, which goes when it is acknowledged.
    Message {
        /// The same on every redelivery.
        id: &'a str,
        /// What it says.
        body: serde_json::Value,
    },
    /// Another replica's saga, before the message that brought us here.
    Takeover,
    /// A timer or an answer.
    Nothing,
}

fn said(matter: &Matter) -> Said<'_> {
    let (id, body) = match matter {
        Matter::Start { arrival, .. } | Matter::Input(Input::Arrival(arrival)) => {
            (&arrival.message_id, arrival.input.clone())
        }
        Matter::Input(Input::Signal(signal)) => (&signal.message_id, signal.body.clone()),
        Matter::Input(Input::Cancel(cancel)) => (&cancel.message_id, cancel.reason.clone().into()),
        Matter::Input(Input::Operator(operator)) => {
            (&operator.message_id, serde_json::json!(operator.request))
        }
        Matter::Input(Input::Resume) => return Said::Takeover,
        Matter::Input(Input::Reply(_) | Input::Timer) | Matter::Answer(_) => return Said::Nothing,
    };
    Said::Message { id, body }
}
