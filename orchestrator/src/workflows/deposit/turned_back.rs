//! What others are told of a deposit that ended without a credit.

use contracts::event::{DEPOSIT_TURNED_BACK, DepositTurnedBack};
use contracts::id::Region;
use serde::Deserialize;
use serde_json::Value;

use super::Confirmation;
use crate::callback::CallbackFact;
use crate::saga::action::Event;
use crate::saga::record::{Direction, SagaRecord};

/// The event of a deposit that has just ended without one; `None` when it never began.
pub(super) fn event(record: &SagaRecord) -> Option<Event> {
    let first = CallbackFact::deserialize(&record.input).ok()?;
    let (Direction::Cancelling { message, .. }, Some(ended_at)) =
        (&record.direction, record.ended_at)
    else {
        return None;
    };
    let taken_up = record
        .signals
        .iter()
        .filter(|signal| record.is_consumed(&signal.id))
        .filter_map(|signal| Confirmation::deserialize(&signal.body).ok());
    // Whatever came last counts; what nobody took up starts the next generation.
    let mut fact = first;
    for confirmation in taken_up {
        fact = confirmation.onto(&fact);
    }
    let region = record
        .attributes
        .get("region")
        .and_then(|region| Region::new(region).ok())
        .or(fact.region);
    let body = DepositTurnedBack {
        saga_id: record.saga_id.clone(),
        provider: fact.payment.provider.to_string(),
        external_id: fact.payment.external_id.to_string(),
        customer: fact.customer,
        paid: fact.amount.filter(|_| fact.meaning.is_paid()),
        status: record.status.to_string(),
        reason: message.clone(),
        ended_at,
    };
    Some(Event {
        name: DEPOSIT_TURNED_BACK,
        region: region.or_else(|| Region::new(UNKNOWN_REGION).ok())?,
        body: serde_json::to_value(body).unwrap_or(Value::Null),
    })
}

/// Stands in the subject where no region had been found yet.
const UNKNOWN_REGION: &str = "unknown";
