//! The core's own steps: payments and rates.

use std::time::Duration;

use contracts::id::SagaId;
use contracts::money::Currency;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tracing::Instrument as _;

use crate::clock::Clock;
use crate::fx::{QuoteError, RateSource};
use crate::payments::{Found, Marked, Payments, PaymentsError, Refused};
use crate::saga::action::Command;
use crate::saga::input::Answer;
use crate::telemetry;
use crate::workflows::deposit::{
    ConvertCurrency, FindOrCreatePayment, MarkCancelled, MarkFailed, MarkSuccessful,
};

/// Payments and rates, called in process.
#[derive(Debug, Clone)]
pub struct CoreSide {
    payments: Payments,
    rates: RateSource,
    clock: Clock,
}

/// A step that cannot be carried out as asked.
enum Trouble {
    /// The parameters are not those of the step.
    Parameters(serde_json::Error),
    /// The payments database.
    Payments(PaymentsError),
    /// The rate source.
    Quote(QuoteError),
}

impl CoreSide {
    /// Over an open payments database and a rate source.
    #[must_use]
    pub fn new(payments: Payments, rates: RateSource, clock: Clock) -> Self {
        Self {
            payments,
            rates,
            clock,
        }
    }

    /// Carries out a step, within its deadline.
    pub async fn perform(&self, saga_id: &SagaId, command: &Command) -> Answer {
        let now = self.clock.now();
        let wait =
            Duration::try_from(command.deadline.duration_since(now)).unwrap_or(Duration::ZERO);
        // A task of its own: given up on, it still ends its transaction. A future dropped in the midst of one
        // would hand its connection back in an unknown state.
        let work = {
            let (side, saga_id, command) = (self.clone(), saga_id.clone(), command.clone());
            async move { side.step(&saga_id, &command).await }
        };
        let work = tokio::spawn(work.in_current_span());
        match tokio::time::timeout(wait, work).await {
            Ok(Ok(Ok(answer))) => answer,
            Ok(Ok(Err(trouble))) => trouble.into_answer(command),
            Ok(Err(error)) => Answer::Unknown {
                message: error.to_string(),
            },
            Err(_) => Answer::Unknown {
                message: format!("{} took too long", command.kind),
            },
        }
    }

    async fn step(&self, saga_id: &SagaId, command: &Command) -> Result<Answer, Trouble> {
        let now = self.clock.now();
        let operation = &command.operation_id;
        match command.kind.as_str() {
            "payments.find_or_create" => {
                let FindOrCreatePayment { fact } = parameters(command)?;
                match self
                    .payments
                    .find_or_create(operation, saga_id, &fact, now)
                    .await?
                {
                    Found::Payment(payment) => applied(&payment),
                    Found::Refused(refused) => Ok(refusal(&refused)),
                }
            }
            "payments.mark_successful" => {
                let MarkSuccessful { payment, quote } = parameters(command)?;
                match self
                    .payments
                    .mark_successful(operation, saga_id, &payment, &quote, quote.target, now)
                    .await?
                {
                    done @ Marked::Done { .. } => applied(&done),
                    Marked::Refused { message, .. } => Ok(Answer::Refused {
                        code: "illegal_move".to_owned(),
                        message,
                    }),
                }
            }
            // For an undo a refusal means that nothing of this saga is left to undo.
            "payments.mark_cancelled" => {
                let MarkCancelled { payment, reason } = parameters(command)?;
                applied(
                    &self
                        .payments
                        .mark_cancelled(operation, saga_id, &payment, &reason, now)
                        .await?,
                )
            }
            "payments.mark_failed" => {
                let MarkFailed { payment, reason } = parameters(command)?;
                applied(
                    &self
                        .payments
                        .mark_failed(operation, saga_id, &payment, &reason, now)
                        .await?,
                )
            }
            "fx.quote" => {
                let ConvertCurrency { paid, to } = parameters(command)?;
                let to = Currency::new(to.code, to.exponent)
                    .map_err(|error| Trouble::Quote(QuoteError::TooLarge(error)))?;
                applied(
                    &self
                        .rates
                        .quote(paid, to, now)
                        .await
                        .map_err(Trouble::Quote)?,
                )
            }
            other => Ok(Answer::Unacceptable {
                code: "invalid".to_owned(),
                message: format!("{other} is no step of the core"),
            }),
        }
    }
}

impl From<PaymentsError> for Trouble {
    fn from(error: PaymentsError) -> Self {
        Self::Payments(error)
    }
}

impl Trouble {
    fn into_answer(self, command: &Command) -> Answer {
        match self {
            Self::Parameters(error) => Answer::Unacceptable {
                code: "invalid".to_owned(),
                message: format!("{}: {error}", command.kind),
            },
            Self::Payments(PaymentsError::Conflict { .. }) => Answer::Conflict {
                fields: vec!["parameters".to_owned()],
            },
            Self::Payments(error) => {
                tracing::warn!(error = telemetry::chain(&error), "payments");
                Answer::Unknown {
                    message: telemetry::chain(&error),
                }
            }
            Self::Quote(error) if error.is_transient() => {
                tracing::warn!(error = telemetry::chain(&error), "no rate");
                Answer::NotExecuted {
                    code: error.to_string(),
                    retry_after: jiff::SignedDuration::ZERO,
                }
            }
            Self::Quote(error) => {
                let code = match &error {
                    QuoteError::Unavailable { .. } => "rate_unavailable",
                    QuoteError::UnknownPair { .. } => "unknown_pair",
                    QuoteError::TooSmall(_) => "too_small",
                    QuoteError::TooLarge(_) => "too_large",
                };
                Answer::Refused {
                    code: code.to_owned(),
                    message: error.to_string(),
                }
            }
        }
    }
}

fn parameters<T: DeserializeOwned>(command: &Command) -> Result<T, Trouble> {
    serde_json::from_value(command.request.clone()).map_err(Trouble::Parameters)
}

fn applied<T: Serialize>(reply: &T) -> Result<Answer, Trouble> {
    serde_json::to_value(reply)
        .map(Answer::Applied)
        .map_err(Trouble::Parameters)
}

fn refusal(refused: &Refused) -> Answer {
    let (code, message) = match refused {
        Refused::Mismatch { message, .. } => ("mismatch", message.clone()),
        Refused::CustomerUnknown => (
            "customer_unknown",
            "neither the callback nor the payment says who paid: announce the payment or name the customer"
                .to_owned(),
        ),
        Refused::UnknownRegion { region } => {
            ("unknown_region", format!("region {region} is not configured: add it to `regions`"))
        }
        Refused::OwnedByOther { saga_id, status } => {
            ("owned_by_other", format!("saga {saga_id} has this payment ({status:?})"))
        }
        Refused::Closed { status } => ("closed", format!("this saga has closed the payment as {status:?}")),
        Refused::NotADeposit => ("not_a_deposit", "a refund or dispute makes no deposit".to_owned()),
        Refused::BadText { field } => ("bad_text", format!("{field} holds a NUL character")),
    };
    Answer::Refused {
        code: code.to_owned(),
        message,
    }
}
