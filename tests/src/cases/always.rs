//! What holds for every case.

use super::found::Found;
use super::judge::{MOVEMENT, OPENING, not_accounted_for, payment_key};
use super::runner::Run;
use super::world::Sent;
use contracts::id::OperationId;
use contracts::money::Money;
use contracts::reply::OperationState;
use orchestrator::payments::Payment;
use orchestrator::saga::record::{Outcome, SagaRecord, Status};
use orchestrator::workflows::deposit;
use std::collections::BTreeSet;

/// No record may come near the size of a message, whatever came in.
const LARGEST_RECORD: usize = 64 * 1024;

/// Bytes of a message that a case record holds at most.
const EVIDENCE: usize = 16 * 1024;

/// What must hold whatever the case is about.
pub(super) fn always(run: &Run<'_>, found: &Found, wrong: &mut Vec<String>) {
    for payment in &found.payments {
        credits_equal_row(payment, found, wrong);
    }
    for record in found.sagas() {
        effects_are_accounted_for(record, found, wrong);
    }
    for times in found.finished.iter().map(|saga| {
        let same = found.finished.iter().filter(|other| *other == saga);
        same.count()
    }) {
        if times != 1 {
            wrong.push(format!("an event is {times} times in the log"));
        }
    }
    for entry in &found.entries {
        let id = entry.operation_id.as_str();
        let id = id.strip_prefix("revert-").unwrap_or(id);
        if !found.issued.contains(id) && !id.starts_with(OPENING) {
            wrong.push(format!("the ledger holds {id}, which is no saga's"));
        }
    }
    for stored in &found.records {
        if stored.bytes > LARGEST_RECORD {
            let id = &stored.record.saga_id;
            wrong.push(format!("the record of {id} has {} bytes", stored.bytes));
        }
        evidence_is_the_message(&stored.record, &run.sent, wrong);
    }
    let missing = not_accounted_for(&found.records, &run.sent);
    if missing.len() != run.case.expect.ignored {
        wrong.push(format!("messages {missing:?} are not accounted for"));
    }
}

fn credits_equal_row(payment: &Payment, found: &Found, wrong: &mut Vec<String>) {
    let first = deposit::saga_id(&payment.identity).to_string();
    let again = format!("{first}/again:");
    let held: Vec<Money> = found
        .operations
        .iter()
        .filter(|(id, _)| **id == first || id.starts_with(&again))
        .flat_map(|(_, states)| states)
        .filter(|(state, _)| *state == OperationState::Applied)
        .filter_map(|(_, money)| *money)
        .collect();
    let row: Vec<Money> = payment.credited.into_iter().collect();
    if held != row {
        let key = payment_key(payment);
        wrong.push(format!(
            "payment {key} says {row:?} and the wallet holds {held:?} of it"
        ));
    }
}

fn effects_are_accounted_for(record: &SagaRecord, found: &Found, wrong: &mut Vec<String>) {
    let id = record.saga_id.as_str();
    let unsettled = record.operations().find(|operation| {
        operation.outcome.is_pending() || matches!(operation.outcome, Outcome::Unknown { .. })
    });
    let in_wallet = movements(record);
    let in_wallet = in_wallet
        .iter()
        .filter_map(|operation| found.operations.get(operation.as_str()));
    let applied = in_wallet
        .flatten()
        .filter(|(state, _)| *state == OperationState::Applied)
        .count();
    match record.status {
        Status::Completed => {
            if let Some(operation) = unsettled {
                wrong.push(format!(
                    "{id} is completed and {} is not settled",
                    operation.operation_id
                ));
            }
            let stand = record
                .steps
                .iter()
                .filter(|step| step.forward.kind == MOVEMENT)
                .filter(|step| matches!(step.forward.outcome, Outcome::Applied { .. }))
                .count();
            if applied != stand || stand == 0 {
                wrong.push(format!(
                    "{id} is completed with {stand} movements, and {applied} stand"
                ));
            }
            let mut deposited = found.deposits.iter().map(|deposit| &deposit.saga_id);
            if !found.finished.contains(&record.saga_id)
                && !deposited.any(|saga| *saga == record.saga_id)
            {
                wrong.push(format!("{id} is completed without its event"));
            }
        }
        Status::Compensated | Status::Cancelled | Status::Failed => {
            if applied != 0 {
                wrong.push(format!(
                    "{id} is {} and a movement of it stands",
                    record.status
                ));
            }
            let undone = record
                .steps
                .iter()
                .filter(|step| step.forward.outcome.may_have_effect());
            let mut undos = undone.filter_map(|step| step.undo.as_ref());
            if let Some(undo) = undos.find(|undo| !matches!(undo.outcome, Outcome::Applied { .. }))
            {
                wrong.push(format!(
                    "{id} is {} and {} is not applied",
                    record.status, undo.operation_id
                ));
            }
        }
        Status::Running | Status::Waiting | Status::Compensating => {
            // Its messages are acknowledged, so only a timer wakes it.
            if record.timer_at.is_none() {
                wrong.push(format!("{id} is {} and nothing wakes it", record.status));
            }
        }
        Status::NeedsReview => {
            if record.case.is_none() {
                wrong.push(format!("{id} waits for a person without a reason"));
            }
        }
    }
}

/// The movements on wallets that a saga has asked for or may have.
pub(super) fn movements(record: &SagaRecord) -> BTreeSet<OperationId> {
    let steps = record.steps.iter();
    let asked = steps.filter(|step| step.forward.kind == MOVEMENT);
    let mut movements: BTreeSet<OperationId> = asked
        .map(|step| step.forward.operation_id.clone())
        .collect();
    if record.workflow == deposit::DEPOSIT.name {
        movements.insert(record.saga_id.own_operation());
    }
    movements
}

/// What a case record shows of a message is the message.
fn evidence_is_the_message(record: &SagaRecord, sent: &[Sent], wrong: &mut Vec<String>) {
    let Some(case) = record.case.as_ref() else {
        return;
    };
    let evidence = &case.evidence;
    let Some(sent) = sent
        .iter()
        .find(|sent| evidence["sequence"] == sent.sequence)
    else {
        return;
    };
    let body = &sent.body[..sent.body.len().min(EVIDENCE)];
    let shown = match (
        evidence["body"]["text"].as_str(),
        evidence["body"]["hex"].as_str(),
    ) {
        (Some(text), _) => text.as_bytes().to_vec(),
        (None, Some(hex)) => hex::decode(hex).unwrap_or_default(),
        (None, None) => Vec::new(),
    };
    if shown != body {
        wrong.push(format!("{} does not show its message", record.saga_id));
    }
}
