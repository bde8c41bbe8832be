//! Fired timers: messages on `billing.due.>` wake their sagas.

use contracts::id::SagaId;
use serde::Deserialize;

use crate::consume::{Handle, Handled, Incoming};
use crate::driver::{Delivery, Engine, Redelivery, Settled};
use crate::saga::input::Input;
use crate::telemetry;

/// Turns fired timers into inputs.
#[derive(Debug, Clone)]
pub struct Timers {
    engine: Engine,
}

/// What an armed timer carries; it fires with the same body.
#[derive(Debug, Deserialize)]
struct Due {
    saga_id: SagaId,
}

impl Timers {
    /// Timers for an engine.
    #[must_use]
    pub fn new(engine: Engine) -> Self {
        Self { engine }
    }
}

impl Handle for Timers {
    async fn handle(&self, message: &Incoming) -> Handled {
        let due: Due = match serde_json::from_slice(&message.payload) {
            Ok(due) => due,
            Err(error) => {
                // Only we arm timers. One that names no saga can wake none.
                tracing::error!(%error, subject = %message.subject, "a timer that cannot be read");
                return Handled::Done;
            }
        };
        let delivery = Delivery::Input(Input::Timer);
        match self
            .engine
            .deliver(&due.saga_id, delivery, Redelivery::First)
            .await
        {
            Settled::Done => {
                self.forget(message).await;
                Handled::Done
            }
            Settled::Missing => {
                tracing::warn!(saga.id = %due.saga_id, "a timer fired for a saga without a record");
                Handled::Done
            }
            Settled::Again(reason) => Handled::Again(reason),
            Settled::Left => Handled::Left,
        }
    }
}

impl Timers {
    /// Acted upon, so of no more use: the stream keeps everything until somebody deletes it.
    async fn forget(&self, message: &Incoming) {
        if let Err(error) = self
            .engine
            .store()
            .forget_due(&message.subject, message.sequence)
            .await
        {
            tracing::debug!(
                error = telemetry::chain(&error),
                "a fired timer stays for now"
            );
        }
    }
}
