//! The judge: an independent idea of what may and may not happen to money.
//!
//! It shares no code with what it judges. It sees observations, as plain data of its own, in the order in
//! which they happened, and keeps its own books. Whoever runs a world (random or exhaustive) feeds it:
//!
//! ```no_run
//! use saga_tests::judge::{Judge, Observation};
//! let mut judge = Judge::new();
//! judge.observe(Observation::MessageStored { message: "intake:1".into(), about: "deposit/p/1".into() });
//! judge.check_after_move().expect("nothing is broken");
//! judge.check_at_rest().expect("and all has come to its end");
//! ```
//!
//! * [`Judge::observe`] takes one observation and notes what it breaks.
//! * [`Judge::check_after_move`] gives the first [`Breach`] noted so far, and looks at what concerns
//!   several observations at once (each open saga is driven; ended sagas have moved exactly what they say).
//!   Call it when a move is over: after a write, its events and its timer have all been told.
//! * [`Judge::check_at_rest`] is for the end: faults off, time run on, everything delivered.
//!
//! What it wants to be told:
//!
//! | observation | when |
//! |---|---|
//! | `RecordWritten` | a record is in the stream: its JSON text, its revision |
//! | `EventLogged`, `TimerArmed`, `TimerGone` | the rest of the same write |
//! | `TimerFired` | the due message is stored, under that message id |
//! | `MoneyReported` | a provider says that money has come |
//! | `MessageStored`, `MessageAcked` | a message about a saga is in a stream; it is acknowledged |
//! | `CommandLeft` | a command leaves the process that issued it |
//! | `CommandArrived` | a participant takes it up, before it does anything |
//! | `OperationSeen`, `EntrySeen` | rows of a wallet as they read after a command |
//! | `BalanceSeen`, `PaymentSeen` | rows as they read at the end |

mod breach;
mod drivers;
mod ledger;
mod observation;
mod records;
mod settled;
#[cfg(test)]
mod tests;

pub use breach::{Breach, Invariant};
pub use observation::{EntryRow, Observation, OperationRow, PaymentRow};

use std::collections::BTreeSet;

use drivers::Drivers;
use ledger::Books;
use records::Records;

/// Keeps its own books on a world and says what is wrong with it.
#[derive(Debug, Default)]
pub struct Judge {
    records: Records,
    books: Books,
    drivers: Drivers,
    payments: Vec<PaymentRow>,
    /// Sagas of payments for which money has come.
    money: BTreeSet<String>,
    noted: Vec<Breach>,
}

impl Judge {
    /// A judge who has seen nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes in what has happened.
    pub fn observe(&mut self, observation: Observation) {
        let noted = &mut self.noted;
        match observation {
            Observation::RecordWritten {
                saga,
                revision,
                text,
            } => {
                self.books.touch(&saga);
                self.records.written(&saga, revision, &text, noted);
                self.drivers.touch(&saga);
            }
            Observation::EventLogged { saga, name, body } => {
                self.books.touch(&saga);
                self.records.event(&saga, &name, body, noted);
            }
            Observation::TimerArmed { saga } => self.drivers.armed(&saga),
            Observation::TimerGone { saga } => self.drivers.disarmed(&saga),
            Observation::TimerFired { saga, message } => self.drivers.fired(&saga, message),
            Observation::MessageStored { message, about } => self.drivers.stored(message, about),
            Observation::MoneyReported { saga } => {
                self.money.insert(saga);
            }
            Observation::MessageAcked { message } => {
                let stated = self.drivers.acked(&message);
                if stated && !self.records.is_accounted_for(&message) {
                    noted.push(Breach::new(
                        Invariant::AcknowledgedIsAccountedFor,
                        "",
                        format!("{message} was acknowledged, and no record or case knows of it"),
                    ));
                }
            }
            Observation::CommandLeft {
                saga,
                operation,
                participant,
                kind,
                request,
                fence,
            } => {
                let command = records::Sent {
                    operation,
                    participant,
                    kind,
                    request,
                    fence,
                };
                self.records.command_left(&saga, &command, noted);
            }
            Observation::CommandArrived {
                wallet,
                saga,
                operation,
                fence,
                deadline_passed,
            } => {
                self.books
                    .arrived(&wallet, &saga, operation, fence, deadline_passed);
            }
            Observation::OperationSeen(row) => self.books.operation(row, noted),
            Observation::EntrySeen(row) => self.books.entry(row, noted),
            Observation::BalanceSeen {
                wallet,
                customer,
                currency,
                balance_minor,
            } => self
                .books
                .balance(&wallet, &customer, &currency, balance_minor, noted),
            Observation::PaymentSeen(row) => self.payments.push(row),
        }
    }

    /// What is broken now.
    ///
    /// # Errors
    /// The first breach.
    pub fn check_after_move(&mut self) -> Result<(), Breach> {
        self.books.check_sums(&mut self.noted);
        for saga in self.drivers.touched() {
            let driven = self.drivers.is_driven(&saga);
            if let Some(record) = self.records.latest(&saga)
                && record.needs_driver()
                && !driven
            {
                self.noted.push(Breach::new(
                    Invariant::OpenSagaIsDriven,
                    &saga,
                    format!(
                        "it is {} at revision {}, and neither a message nor a timer will wake it",
                        record.status(),
                        record.revision()
                    ),
                ));
            }
        }
        for saga in self.books.touched() {
            if let Some(record) = self.records.latest(&saga) {
                settled::check(
                    record,
                    &self.books,
                    self.records.events_of(&saga),
                    &mut self.noted,
                );
            }
        }
        self.first()
    }

    /// What is not as it must be when faults are off and time has run on.
    ///
    /// # Errors
    /// The first breach.
    pub fn check_at_rest(&mut self) -> Result<(), Breach> {
        self.check_after_move()?;
        for record in self.records.all() {
            if !record.is_terminal() && record.status() != "needs_review" && !record.asks_in_vain()
            {
                self.noted.push(Breach::new(
                    Invariant::ComesToAnEnd,
                    record.saga(),
                    format!("it is still {}: {}", record.status(), record.cause()),
                ));
            }
            settled::check(
                record,
                &self.books,
                self.records.events_of(record.saga()),
                &mut self.noted,
            );
        }
        let in_vain = |saga: &str| {
            let record = self.records.latest(saga);
            record.is_some_and(records::Record::asks_in_vain)
        };
        if let Some((message, _)) = self.drivers.left_over().find(|(_, saga)| !in_vain(saga)) {
            self.noted.push(Breach::new(
                Invariant::ComesToAnEnd,
                "",
                format!("{message} was never acknowledged"),
            ));
        }
        settled::check_payments(&self.records, &self.payments, &mut self.noted);
        for saga in &self.money {
            settled::check_money(saga, &self.records, &mut self.noted);
        }
        self.first()
    }

    /// How each saga stands: its id and its status.
    pub fn standings(&self) -> impl Iterator<Item = (&str, &str)> {
        self.records
            .all()
            .map(|record| (record.saga(), record.status()))
    }

    fn first(&self) -> Result<(), Breach> {
        match self.noted.first() {
            None => Ok(()),
            Some(breach) => Err(breach.clone()),
        }
    }
}
