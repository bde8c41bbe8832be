//! What a difference is about, and what each side says of it in words.

use contracts::command::Movement;
use contracts::id::{OperationId, Region};
use contracts::money::Money;
use contracts::reply::OperationState;

use super::difference::{Book, Says};
use super::sides::{EventSide, Move, OperationSide, PaymentSide, RecordSide, Said};

/// What a difference is about.
#[derive(Default)]
pub(super) struct About<'a> {
    pub(super) operation_id: Option<&'a OperationId>,
    pub(super) region: Option<&'a Region>,
    pub(super) amount: Option<Money>,
    pub(super) book: Option<Book>,
    pub(super) says: Says,
}

pub(super) fn of_operation(operation: &OperationSide) -> About<'_> {
    About {
        operation_id: Some(&operation.view.operation_id),
        region: Some(&operation.region),
        amount: operation.booked().map(|(_, _, money)| money),
        says: Says {
            wallet: Some(wallet_says(Some(operation))),
            ..Says::default()
        },
        book: None,
    }
}

pub(super) fn of_move<'a>(movement: &'a Move, booked: Option<&OperationSide>) -> About<'a> {
    let update = &movement.update;
    let record = format!(
        "{} of {} for {}, {}",
        direction(update.movement),
        update.money,
        update.customer,
        match (movement.forward, movement.undo) {
            (Said::Applied, Said::Applied) => "applied and offset",
            (Said::Applied, Said::Open) => "applied and being offset",
            (Said::Applied, Said::Nothing | Said::NotApplied) => "applied",
            (Said::NotApplied, _) => "not applied",
            (Said::Open | Said::Nothing, Said::Applied) => "forbidden by its revert",
            (Said::Open, _) => "on its way",
            (Said::Nothing, _) => "not sent",
        }
    );
    About {
        operation_id: Some(&movement.operation_id),
        region: Some(&movement.region),
        amount: Some(update.money),
        book: None,
        says: Says {
            record: Some(record),
            wallet: Some(wallet_says(booked)),
            ..Says::default()
        },
    }
}

pub(super) fn of_payment(payment: &PaymentSide) -> About<'_> {
    let mut text = payment.status.to_string();
    if let Some(credited) = payment.credited {
        text.push_str(&format!(", {credited} credited"));
    }
    if let Some(customer) = &payment.customer {
        text.push_str(&format!(" to {customer}"));
    }
    match &payment.saga_id {
        Some(saga_id) => text.push_str(&format!(", of saga {saga_id}")),
        None => text.push_str(", of no saga"),
    }
    About {
        region: payment.region.as_ref(),
        amount: payment.credited,
        says: Says {
            payment: Some(text),
            ..Says::default()
        },
        ..About::default()
    }
}

pub(super) fn of_event(event: &EventSide) -> About<'_> {
    let (text, region, amount) = match &event.body {
        Ok(body) => {
            let mut text = format!("{}: saga {}", event.subject, body.saga_id);
            if let Some(credited) = body.credited {
                text.push_str(&format!(", {credited} credited"));
            }
            if let Some(customer) = &body.customer {
                text.push_str(&format!(", customer {customer}"));
            }
            if let Some(status) = &body.status {
                text.push_str(&format!(", {status}"));
            }
            (text, body.region.as_ref(), body.credited)
        }
        Err(error) => (format!("{}: {error}", event.subject), None, None),
    };
    About {
        region,
        amount,
        says: Says {
            event: Some(text),
            ..Says::default()
        },
        ..About::default()
    }
}

pub(super) fn record_says(record: Option<&RecordSide>) -> String {
    match record {
        None => "there is no record".to_owned(),
        Some(record) if record.is_open() => {
            format!(
                "{}, last progress {}",
                record.status, record.last_progress_at
            )
        }
        Some(record) => record.status.to_string(),
    }
}

fn wallet_says(operation: Option<&OperationSide>) -> String {
    let Some(operation) = operation else {
        return "knows no such operation".to_owned();
    };
    let state = match operation.view.state {
        OperationState::Applied => "applied",
        OperationState::Rejected => "rejected",
        OperationState::Tombstoned => "forbidden",
        OperationState::Reverted => "applied and offset",
    };
    match operation.booked() {
        Some((customer, movement, money)) => format!(
            "{} of {money} for {customer}, {state}, first seen {}",
            direction(movement),
            operation.view.created_at
        ),
        None => format!("{state}, first seen {}", operation.view.created_at),
    }
}

pub(super) fn direction(movement: Movement) -> &'static str {
    match movement {
        Movement::Credit => "credit",
        Movement::Debit => "debit",
    }
}
