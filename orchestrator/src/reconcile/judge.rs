//! The core of reconciliation: what of one saga does not agree. Pure.
//!
//! | record says | wallet must | payment must | log must |
//! |---|---|---|---|
//! | completed | hold each movement as asked for | be successful, of this saga, same sum, customer, region | hold each event once, with the same sum, customer, region |
//! | turned back, refused | hold none | not be successful or pending (where the saga owns it) | hold each event once, and none of a completion |
//! | open | hold what is known to be applied, not what is known not to be | – (it may be ahead) | hold none |
//! | no record | hold none that stands | not be successful, nor pending for long | hold none |
//!
//! A movement is held in the region that the record names and in no other. It is the sum of what was booked
//! under its id, of its offset and of what people booked to correct it ([`super::lot`]).
//!
//! An open saga is no difference in itself: only one without progress for longer than allowed, measured
//! from what was last confirmed. One that waits until a known instant is given until then as well.

use std::collections::BTreeSet;

use contracts::event::{DEPOSIT_COMPLETED, DEPOSIT_TURNED_BACK};
use jiff::{SignedDuration, Timestamp};

use super::about::{About, of_event, of_move, of_operation, of_payment, record_says};
use super::difference::{Difference, Fix, Kind, Says, Subject};
use super::lot::{Holds, Lot, corrected};
use super::sides::{
    EventBody, EventSide, Move, OperationSide, PaymentSide, RecordSide, Said, Sides,
};
use crate::payments::PaymentStatus;
use crate::saga::record::Status;

/// What is judged by.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    pub(super) now: Timestamp,
    /// How long an open saga may be without progress.
    pub(super) stuck: SignedDuration,
    /// Whether the payments database was read.
    pub(super) payments: bool,
}

/// Names everything that does not agree; nothing when all is as it must be or on its way there.
pub(super) fn judge(sides: &Sides, rules: &Rules) -> Vec<Difference> {
    let mut found = Found {
        sides,
        differences: Vec::new(),
    };
    match &sides.record {
        None => found.without_record(rules),
        Some(record) => {
            found.wallet(record);
            if rules.payments {
                found.payment(record);
            }
            found.events(record);
            found.progress(record, rules);
        }
    }
    found.differences
}

/// What the wallet must hold of a movement; `None` while nobody can tell.
fn must_hold(record: &RecordSide, movement: &Move) -> Option<Holds> {
    let turned_back = !record.is_open() && record.status != Status::Completed;
    if movement.is_gone(record.is_open()) || (movement.stands() && turned_back) {
        Some(Holds::Nothing)
    } else if movement.stands() {
        // Its offset may be booked already, and the record has yet to hear of it.
        Some(match movement.undo {
            Said::Open => Holds::AskedOrOffset,
            Said::Nothing | Said::NotApplied | Said::Applied => Holds::Asked,
        })
    } else {
        None
    }
}

struct Found<'a> {
    sides: &'a Sides,
    differences: Vec<Difference>,
}

impl Found<'_> {
    fn name(&mut self, kind: Kind, about: About<'_>) {
        let saga_id = self.sides.saga_text();
        let record = self.sides.record.as_deref();
        let subject = Subject {
            saga: &saga_id,
            key: &self.sides.key,
            operation: about.operation_id,
            region: about.region,
            open: record.is_some_and(RecordSide::is_open),
            verbs: record.map_or(&[], |record| record.verbs.as_slice()),
            book: about.book.as_ref(),
        };
        let says = Says {
            record: about.says.record.or_else(|| Some(record_says(record))),
            ..about.says
        };
        let payment_id = record.and_then(|record| record.payment_id.clone());
        let of_row = || {
            self.sides
                .payment
                .as_ref()
                .map(|payment| payment.payment_id.clone())
        };
        self.differences.push(Difference {
            kind,
            fix: Fix::of(kind, &subject),
            saga_key: self.sides.key.clone(),
            payment_id: payment_id.or_else(of_row),
            operation_id: about.operation_id.cloned(),
            region: about.region.cloned(),
            amount: about.amount,
            says,
            saga_id,
        });
    }

    fn without_record(&mut self, rules: &Rules) {
        for operation in self
            .sides
            .operations
            .iter()
            .filter(|operation| operation.stands())
        {
            self.name(Kind::WalletWithoutSaga, of_operation(operation));
        }
        if let Some(payment) = &self.sides.payment {
            let old = payment.updated_at.duration_until(rules.now) > rules.stuck;
            let taken = payment.saga_id.is_some();
            if payment.status == PaymentStatus::Successful
                || (payment.status == PaymentStatus::Pending && taken && old)
            {
                self.name(Kind::PaymentWithoutSaga, of_payment(payment));
            }
        }
        for event in &self.sides.events {
            self.name(
                event_kind(event, Kind::EventWithoutCompletion),
                of_event(event),
            );
        }
    }

    fn wallet(&mut self, record: &RecordSide) {
        let sides = self.sides;
        for movement in &record.moves {
            if let Some(holds) = must_hold(record, movement) {
                self.lot(record, movement, &Lot::of(movement, sides), holds);
            }
        }
        for operation in sides
            .operations
            .iter()
            .filter(|operation| operation.stands())
        {
            let id = operation.view.operation_id.as_str();
            let is_own = |movement: &&Move| {
                movement.operation_id.as_str() == id
                    || movement
                        .undo_id
                        .as_ref()
                        .is_some_and(|undo| undo.as_str() == id)
            };
            let is_correction = |movement: &&Move| {
                corrected(id) == Some(movement.operation_id.as_str())
                    && must_hold(record, movement).is_some()
            };
            let mut here = record
                .moves
                .iter()
                .filter(|movement| movement.region == operation.region);
            if here.any(|movement| is_own(&movement) || is_correction(&movement)) {
                continue;
            }
            let elsewhere = record.moves.iter().any(|movement| is_own(&movement));
            let kind = if elsewhere || record.moves.iter().any(Move::stands) {
                Kind::ExtraMovement
            } else {
                Kind::WalletUnexpected
            };
            self.name(kind, of_operation(operation));
        }
    }

    /// A movement with its offset and its corrections.
    fn lot(&mut self, record: &RecordSide, movement: &Move, lot: &Lot<'_>, holds: Holds) {
        if lot.agrees(holds) {
            return;
        }
        if lot.agrees_without_corrections(holds) {
            for correction in lot.standing_corrections() {
                self.name(Kind::ExtraMovement, of_operation(correction));
            }
            return;
        }
        let stands = lot.original.is_some_and(OperationSide::stands);
        let kind = match holds {
            Holds::Nothing if stands && lot.offset().is_none() => {
                if movement.undo == Said::Applied || movement.stands() {
                    Kind::RevertMissing
                } else {
                    Kind::WalletUnexpected
                }
            }
            Holds::Nothing if lot.original.is_some() => Kind::WalletDiffers,
            Holds::Asked | Holds::AskedOrOffset if stands => Kind::WalletDiffers,
            Holds::AskedOrOffset if lot.offset().is_some() => Kind::WalletDiffers,
            Holds::Nothing | Holds::Asked | Holds::AskedOrOffset => Kind::WalletMissing,
        };
        let open = record.is_open();
        let book = if kind != Kind::WalletMissing {
            // A revert books nothing that the wallet has answered already.
            let revert = stands && !lot.has_revert() && lot.corrections.is_empty();
            (!revert).then(|| lot.correct(holds)).flatten()
        } else if open && movement.undo != Said::Nothing {
            // Its compensation is under way: what is not there will be forbidden.
            None
        } else if lot.original.is_none() {
            Some(lot.book())
        } else {
            (!open).then(|| lot.correct(holds)).flatten()
        };
        let booked = lot.original.or_else(|| lot.offset());
        let about = of_move(movement, booked);
        self.name(kind, About { book, ..about });
    }

    fn payment(&mut self, record: &RecordSide) {
        let payment = self.sides.payment.as_ref();
        let own = payment.filter(|payment| payment.saga_id.as_ref() == Some(&record.saga_id));
        // Marked in the name of no saga, for the payment this one is about.
        if let Some(payment) = payment
            && record.status != Status::Completed
            && payment.saga_id.is_none()
            && payment.status == PaymentStatus::Successful
        {
            self.name(Kind::PaymentWithoutCompletion, of_payment(payment));
        }
        match record.status {
            Status::Completed => self.payment_of_completed(record, payment),
            Status::Compensated | Status::Cancelled | Status::Failed => {
                match own.map(|payment| (payment, payment.status)) {
                    Some((payment, PaymentStatus::Successful)) => {
                        self.name(Kind::PaymentWithoutCompletion, of_payment(payment))
                    }
                    Some((payment, PaymentStatus::Pending)) => {
                        self.name(Kind::PaymentLeftOpen, of_payment(payment))
                    }
                    Some((
                        _,
                        PaymentStatus::Failed | PaymentStatus::Cancelled | PaymentStatus::Review,
                    ))
                    | None => {}
                }
            }
            // It marks its payment before it says so.
            Status::Running | Status::Waiting | Status::Compensating | Status::NeedsReview => {}
        }
    }

    fn payment_of_completed(&mut self, record: &RecordSide, payment: Option<&PaymentSide>) {
        let Some(payment) = payment else {
            if record.payment_id.is_some() {
                let says = Says {
                    payment: Some("there is no such payment".to_owned()),
                    ..Says::default()
                };
                let about = record
                    .main_move()
                    .map(|movement| of_move(movement, None))
                    .unwrap_or_default();
                self.name(Kind::PaymentMissing, About { says, ..about });
            }
            return;
        };
        let movement = record.main_move();
        let about = || {
            let of_row = of_payment(payment);
            About {
                amount: of_row
                    .amount
                    .or_else(|| movement.map(|movement| movement.update.money)),
                ..of_row
            }
        };
        let own = payment.saga_id.as_ref() == Some(&record.saga_id);
        if own && payment.status != PaymentStatus::Successful {
            self.name(Kind::PaymentNotSuccessful, about());
            return;
        }
        let same = movement.is_none_or(|movement| {
            payment.credited == Some(movement.update.money)
                && payment.customer.as_ref() == Some(&movement.update.customer)
                && payment.region.as_ref() == Some(&movement.region)
        });
        if !own || !same {
            self.name(Kind::PaymentDiffers, about());
        }
    }

    fn events(&mut self, record: &RecordSide) {
        let movement = record.main_move();
        let mut names: BTreeSet<&str> = record.events.iter().map(String::as_str).collect();
        names.insert(DEPOSIT_COMPLETED);
        for name in names.into_iter().filter(|name| is_due(record, name)) {
            let mut events = self.sides.events.iter().filter(|event| event.name == name);
            if events.next().is_none() {
                let says = Says {
                    event: Some(format!("there is no {name}")),
                    ..Says::default()
                };
                let about = movement.map(|movement| of_move(movement, None));
                let about = about.unwrap_or_default();
                self.name(Kind::EventMissing, About { says, ..about });
            }
            for repeat in events {
                self.name(Kind::EventRepeated, of_event(repeat));
            }
        }
        for event in &self.sides.events {
            if !is_due(record, &event.name) {
                let kind = event_kind(event, Kind::EventWithoutCompletion);
                self.name(kind, of_event(event));
                continue;
            }
            match &event.body {
                Ok(body) if is_told(record, event, body) => {}
                Ok(_) => self.name(Kind::EventDiffers, of_event(event)),
                // An event of a later build is counted, and not understood here.
                Err(_) if !is_known(&event.name) => {}
                Err(_) => self.name(Kind::EventUnreadable, of_event(event)),
            }
        }
    }

    fn progress(&mut self, record: &RecordSide, rules: &Rules) {
        let long_ago = |since: Timestamp| since.duration_until(rules.now) > rules.stuck;
        let open = record.is_open();
        let movement = || {
            record
                .main_move()
                .map(|movement| of_move(movement, None))
                .unwrap_or_default()
        };
        for (operation_id, since) in &record.unknown {
            if !open || record.status == Status::NeedsReview || long_ago(*since) {
                let record = Some(format!(
                    "{operation_id} is of unknown outcome since {since}"
                ));
                let says = Says {
                    record,
                    ..Says::default()
                };
                self.name(
                    Kind::UnknownOutcome,
                    About {
                        operation_id: Some(operation_id),
                        says,
                        ..movement()
                    },
                );
            }
        }
        if !open || !long_ago(record.last_progress_at) {
            return;
        }
        if record.held {
            self.name(Kind::WaitsForPerson, movement());
            return;
        }
        match record.status {
            Status::NeedsReview => self.name(Kind::WaitsForPerson, movement()),
            Status::Waiting if record.waits_until.is_some_and(|until| !long_ago(until)) => {}
            Status::Running | Status::Waiting | Status::Compensating => {
                self.name(Kind::Stuck, movement())
            }
            Status::Completed | Status::Compensated | Status::Cancelled | Status::Failed => {}
        }
    }
}

/// Whether the record says that this event is in the log, and has ended so that it must be. A completed
/// deposit has its event whatever the record notes.
fn is_due(record: &RecordSide, name: &str) -> bool {
    let completed = record.status == Status::Completed;
    let noted = record.events.iter().any(|noted| noted == name);
    match name {
        DEPOSIT_COMPLETED => completed && (noted || record.is_deposit),
        DEPOSIT_TURNED_BACK => !completed && noted,
        _ => noted,
    }
}

fn is_known(name: &str) -> bool {
    [DEPOSIT_COMPLETED, DEPOSIT_TURNED_BACK].contains(&name)
}

/// Whether an event tells what the record says.
fn is_told(record: &RecordSide, event: &EventSide, body: &EventBody) -> bool {
    let status = body.status.as_deref();
    let region = body.region.as_ref();
    body.saga_id == record.saga_id
        && status.is_none_or(|status| status == record.status.as_str())
        && region.is_none_or(|region| region.as_str() == event.region)
        && record.main_move().is_none_or(|movement| {
            let update = &movement.update;
            body.credited
                .is_none_or(|credited| credited == update.money)
                && region.is_none_or(|region| *region == movement.region)
                && (body.credited.is_none() || body.customer.as_ref() == Some(&update.customer))
        })
}

fn event_kind(event: &EventSide, otherwise: Kind) -> Kind {
    if event.body.is_err() {
        Kind::EventUnreadable
    } else {
        otherwise
    }
}
