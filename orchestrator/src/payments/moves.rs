//! Which changes of a payment are legal. Pure; the database only carries them out.
//!
//! | from \ by | its own saga | another saga | nobody's (announced) |
//! |---|---|---|---|
//! | absent | take; close (so that a late take meets it) | | |
//! | pending | take again, succeed, fail, cancel, review | take only with money, from one that only waits | take, fail, cancel, review |
//! | successful | succeed (same), fail or cancel after its compensation | never | |
//! | failed, cancelled | stays | take again: a success after a failure is not lost | take |
//! | review | succeed, fail, cancel | never | |

use super::model::{ExpectedPayment, Found, FoundPayment, Marked, Payment, PaymentStatus, Refused};
use crate::callback::{CallbackFact, FactField, PaymentIdentity, money_differs};
use contracts::id::{Region, SagaId};
use contracts::money::Money;
use contracts::quote::Quote;
use jiff::Timestamp;
use serde::Serialize;

/// What `find_or_create` decides upon.
#[derive(Debug)]
pub(super) struct Find<'a> {
    pub(super) saga_id: &'a SagaId,
    pub(super) fact: &'a CallbackFact,
    pub(super) expected: Option<&'a ExpectedPayment>,
    /// The claim, else the directory's answer, else the default.
    pub(super) region: Region,
    pub(super) now: Timestamp,
}

/// A change of status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Mark<'a> {
    Successful { quote: &'a Quote, credited: Money },
    Failed { reason: Option<String> },
    Cancelled { reason: Option<String> },
    Review { reason: Option<String> },
}

/// The row as it is to be stored (`None`: unchanged), and the answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Move<T> {
    pub(super) row: Option<Payment>,
    pub(super) answer: T,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    Own,
    Other,
    Nobody,
}

fn owner(row: &Payment, saga_id: &SagaId) -> Owner {
    match &row.saga_id {
        None => Owner::Nobody,
        Some(owner) if owner == saga_id => Owner::Own,
        Some(_) => Owner::Other,
    }
}

/// Decides whether the saga gets the payment.
pub(super) fn find(stored: Option<&Payment>, find: &Find<'_>) -> Move<Found> {
    let refused = |refused| Move {
        row: None,
        answer: Found::Refused(refused),
    };
    let fact = find.fact;
    if let Some(row) = stored
        && let Some(refusal) = not_for(row, find)
    {
        return refused(refusal);
    }
    let fields = contradictions(stored, find);
    if !fields.is_empty() {
        return refused(Refused::Mismatch {
            message: mismatch_message(stored, find),
            fields,
        });
    }
    let expected = find.expected;
    let customer = fact
        .customer
        .clone()
        .or_else(|| stored.and_then(|row| row.customer.clone()))
        .or_else(|| expected.and_then(|expected| expected.customer.clone()));
    let Some(customer) = customer else {
        return refused(Refused::CustomerUnknown);
    };
    let mut row = stored
        .cloned()
        .unwrap_or_else(|| Payment::new(fact.payment.clone(), find.now));
    let region = region(&row, find);
    row.merchant_reference = row
        .merchant_reference
        .or_else(|| fact.merchant_reference.clone());
    row.expected = row
        .expected
        .or_else(|| expected.and_then(|expected| expected.amount));
    row.wallet_currency = fact
        .wallet_currency
        .or(row.wallet_currency)
        .or_else(|| expected.and_then(|expected| expected.wallet_currency));
    if fact.meaning.is_paid() {
        row.paid = fact.amount;
    } else if row.status.is_closed() {
        row.paid = None;
    }
    row.status = PaymentStatus::Pending;
    row.saga_id = Some(find.saga_id.clone());
    row.customer = Some(customer.clone());
    row.region = Some(region.clone());
    row.reason = None;
    row.updated_at = find.now;
    let sum_currency = fact.amount.or(row.paid).map(Money::currency);
    let answer = Found::Payment(FoundPayment {
        payment_id: row.payment_id.clone(),
        customer,
        region,
        paid: row.paid,
        wallet_currency: row.wallet_currency.or(sum_currency),
        created: stored.is_none(),
        may_credit: fact.meaning.is_paid(),
    });
    // What its own saga has finished, or a person looks at, is only read again.
    let is_settled = stored.is_some_and(|row| {
        matches!(
            row.status,
            PaymentStatus::Successful | PaymentStatus::Review
        )
    });
    Move {
        row: (!is_settled).then_some(row),
        answer,
    }
}

fn not_for(row: &Payment, find: &Find<'_>) -> Option<Refused> {
    let owned_by_other = || Refused::OwnedByOther {
        saga_id: row.saga_id.clone().unwrap_or_else(|| find.saga_id.clone()),
        status: row.status,
    };
    match (row.status, owner(row, find.saga_id)) {
        (
            PaymentStatus::Pending | PaymentStatus::Successful | PaymentStatus::Review,
            Owner::Own,
        )
        | (PaymentStatus::Pending, Owner::Nobody)
        | (PaymentStatus::Failed | PaymentStatus::Cancelled, Owner::Other | Owner::Nobody) => None,
        (PaymentStatus::Failed | PaymentStatus::Cancelled, Owner::Own) => {
            Some(Refused::Closed { status: row.status })
        }
        // Money beats waiting; two sagas with money for one payment never both get it.
        (PaymentStatus::Pending, Owner::Other) => {
            let takes_over = row.paid.is_none() && find.fact.meaning.is_paid();
            (!takes_over).then(owned_by_other)
        }
        (PaymentStatus::Successful | PaymentStatus::Review, Owner::Other | Owner::Nobody) => {
            Some(owned_by_other())
        }
    }
}

fn contradictions(stored: Option<&Payment>, find: &Find<'_>) -> Vec<FactField> {
    let fact = find.fact;
    let mut fields = Vec::new();
    let mut announced = find
        .expected
        .cloned()
        .unwrap_or_else(|| ExpectedPayment::of(fact.payment.provider.clone()));
    if let Some(row) = stored {
        announced.amount = row.expected.or(announced.amount);
        announced.customer = row.customer.clone().or(announced.customer);
        announced.wallet_currency = row.wallet_currency.or(announced.wallet_currency);
        // A region pinned for a saga that has closed is not a claim about the next one.
        if owner(row, find.saga_id) != Owner::Other {
            announced.region = row.region.clone().or(announced.region);
        }
        if let (Some(before), Some(now), true) = (row.paid, fact.amount, fact.meaning.is_paid())
            && !row.status.is_closed()
        {
            fields.extend(money_differs(before, now));
        }
    }
    if !fact.meaning.is_paid() {
        announced.amount = None;
    }
    fields.extend(announced.differs(fact));
    fields.sort_unstable();
    fields.dedup();
    fields
}

/// A region once pinned for this saga, or announced, stays; a claim has been compared with it.
fn region(row: &Payment, find: &Find<'_>) -> Region {
    let pinned = match owner(row, find.saga_id) {
        Owner::Own | Owner::Nobody => row.region.clone(),
        Owner::Other => None,
    };
    pinned
        .or_else(|| find.fact.region.clone())
        .or_else(|| find.expected.and_then(|expected| expected.region.clone()))
        .unwrap_or_else(|| find.region.clone())
}

fn mismatch_message(stored: Option<&Payment>, find: &Find<'_>) -> String {
    let show = |money: Option<Money>, customer: Option<&str>| {
        format!(
            "{} of {}",
            money.map_or_else(|| "no sum".to_owned(), |money| money.to_string()),
            customer
                .and_then(crate::callback::short_text)
                .unwrap_or_else(|| "no customer".to_owned())
        )
    };
    let known = show(
        stored
            .and_then(|row| row.paid.or(row.expected))
            .or_else(|| find.expected.and_then(|expected| expected.amount)),
        stored
            .and_then(|row| row.customer.as_ref())
            .or_else(|| {
                find.expected
                    .and_then(|expected| expected.customer.as_ref())
            })
            .map(contracts::id::CustomerId::as_str),
    );
    let came = show(
        find.fact.amount,
        find.fact
            .customer
            .as_ref()
            .map(contracts::id::CustomerId::as_str),
    );
    format!("the payment is known as {known}, the callback says {came}")
}

/// Decides on a change of status.
pub(super) fn mark(
    stored: Option<&Payment>,
    saga_id: &SagaId,
    identity: &PaymentIdentity,
    mark: &Mark<'_>,
    now: Timestamp,
) -> Move<Marked> {
    let target = match mark {
        Mark::Successful { .. } => PaymentStatus::Successful,
        Mark::Failed { .. } => PaymentStatus::Failed,
        Mark::Cancelled { .. } => PaymentStatus::Cancelled,
        Mark::Review { .. } => PaymentStatus::Review,
    };
    let refused = |message: &str| Move {
        row: None,
        answer: Marked::Refused {
            status: stored.map(|row| row.status),
            owner: stored.and_then(|row| row.saga_id.clone()),
            message: message.to_owned(),
        },
    };
    let done = |row: Option<Payment>, status| Move {
        answer: Marked::Done {
            payment_id: Payment::id_of(identity),
            status,
        },
        row,
    };
    let Some(row) = stored else {
        return match mark {
            Mark::Successful { .. } => refused("there is no such payment to be successful"),
            Mark::Failed { .. } | Mark::Cancelled { .. } | Mark::Review { .. } => {
                let row = Payment::new(identity.clone(), now);
                done(Some(closed(row, saga_id, target, mark, now)), target)
            }
        };
    };
    let owner = owner(row, saga_id);
    match (row.status, owner, mark) {
        (PaymentStatus::Pending | PaymentStatus::Review, Owner::Own, Mark::Successful { quote, credited }) => {
            if row.paid != Some(quote.source) || quote.target != *credited {
                return refused("the quote is not of the sum that came in, or the credit not of the quote");
            }
            let mut row = row.clone();
            row.status = target;
            row.quote = Some((*quote).clone());
            row.credited = Some(*credited);
            row.reason = None;
            row.updated_at = now;
            done(Some(row), target)
        }
        (PaymentStatus::Successful, Owner::Own, Mark::Successful { credited, .. }) => {
            if row.credited == Some(*credited) {
                done(None, target)
            } else {
                refused("it is successful with another sum")
            }
        }
        (_, Owner::Other | Owner::Nobody, Mark::Successful { .. }) => {
            refused("only the saga that took the payment makes it successful")
        }
        (PaymentStatus::Failed | PaymentStatus::Cancelled, Owner::Own, Mark::Successful { .. }) => {
            refused("its own saga has closed it before")
        }
        (
            PaymentStatus::Pending | PaymentStatus::Review,
            Owner::Own,
            Mark::Failed { .. } | Mark::Cancelled { .. } | Mark::Review { .. },
        )
        | (
            PaymentStatus::Pending,
            Owner::Nobody,
            Mark::Failed { .. } | Mark::Cancelled { .. } | Mark::Review { .. },
        )
        // Its own saga has compensated the credit; nobody else may take a success back.
        | (
            PaymentStatus::Successful,
            Owner::Own,
            Mark::Failed { .. } | Mark::Cancelled { .. },
        ) => done(Some(closed(row.clone(), saga_id, target, mark, now)), target),
        (
            PaymentStatus::Failed | PaymentStatus::Cancelled,
            Owner::Own | Owner::Other | Owner::Nobody,
            Mark::Failed { .. } | Mark::Cancelled { .. },
        ) => done(None, row.status),
        (
            PaymentStatus::Failed | PaymentStatus::Cancelled | PaymentStatus::Successful,
            _,
            Mark::Review { .. },
        ) => refused("it has ended; what is wrong with it needs a saga of its own"),
        (
            PaymentStatus::Pending | PaymentStatus::Review | PaymentStatus::Successful,
            Owner::Other | Owner::Nobody,
            Mark::Failed { .. } | Mark::Cancelled { .. } | Mark::Review { .. },
        ) => refused("another saga has it: a late refusal changes nothing"),
    }
}

fn closed(
    mut row: Payment,
    saga_id: &SagaId,
    status: PaymentStatus,
    mark: &Mark<'_>,
    now: Timestamp,
) -> Payment {
    row.status = status;
    row.saga_id = Some(saga_id.clone());
    row.credited = None;
    row.reason = match mark {
        Mark::Successful { .. } => None,
        Mark::Failed { reason } | Mark::Cancelled { reason } | Mark::Review { reason } => {
            reason.clone()
        }
    };
    row.updated_at = now;
    row
}
