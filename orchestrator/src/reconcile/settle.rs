//! What did not agree while the sides went by is read again, one saga at a time, before it is named.
//!
//! The order makes it safe beside a running system. The record is read first and once more at the end, and
//! only an unchanged one counts: a movement booked in between was then asked for by this very revision,
//! which knows it as on its way. What a record claims was done before the record said so, so the other
//! sides, read later, must have it; and a wallet is asked for nothing before the record that asks is stored.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use contracts::id::{OperationId, Region};
use jiff::SignedDuration;

use super::books::Books;
use super::difference::{Difference, Kind};
use super::judge::{Rules, judge};
use super::lot::{CORRECTIONS, correction};
use super::sides::{EventSide, RecordSide, Sides};
use super::source::Scope;
use super::{ReconcileError, unreadable};
use crate::saga::earlier_generations;

/// How often a saga that keeps moving is read again.
const ROUNDS: u32 = 6;

/// How long the server may take to copy an event.
const COPYING: Duration = Duration::from_secs(10);

/// How often a copy is looked for.
const LOOK: Duration = Duration::from_millis(100);

/// What became of a suspect.
pub(super) struct Settled {
    /// Everything known of it in the end; `None` when it is none of the range's.
    pub(super) sides: Option<Sides>,
    pub(super) differences: Vec<Difference>,
}

/// Reads suspects again.
pub(super) struct Settler<'a> {
    pub(super) books: &'a Books,
    pub(super) rules: &'a Rules,
    pub(super) scope: Scope,
    /// Times from which on a fact without a record belongs to the range; a little before its beginning.
    pub(super) edge: Scope,
    pub(super) only: Option<&'a BTreeSet<Region>>,
    /// An event was waited for in vain: no other is.
    pub(super) copies_are_late: AtomicBool,
}

impl Settler<'_> {
    pub(super) async fn settle(&self, suspect: Sides) -> Result<Settled, ReconcileError> {
        let nothing = Settled {
            sides: None,
            differences: Vec::new(),
        };
        let mut round = 1;
        loop {
            let record = match self.books.record(&suspect.key).await? {
                None => None,
                Some(Ok(record)) => Some(record),
                Some(Err(problem)) => {
                    return Ok(Settled {
                        differences: vec![unreadable(&suspect.key, &problem)],
                        sides: Some(suspect),
                    });
                }
            };
            if !self.is_of_the_range(&suspect, record.as_ref()) {
                return Ok(nothing);
            }
            let sides = self.read(&suspect, record).await?;
            let again = self.books.record(&suspect.key).await?;
            let (before, after) = (
                sides.record.as_ref().map(|record| record.revision),
                again.and_then(Result::ok).map(|record| record.revision),
            );
            if before != after {
                if round == ROUNDS {
                    // It moves: that is no difference, and the next run finds where it went.
                    return Ok(Settled {
                        sides: Some(sides),
                        differences: Vec::new(),
                    });
                }
                round += 1;
                continue;
            }
            return self.judge(sides).await;
        }
    }

    fn is_of_the_range(&self, suspect: &Sides, record: Option<&RecordSide>) -> bool {
        let of_the_range = |record: &RecordSide| {
            let ended_at = record.ended_at.filter(|_| !record.is_open());
            let here = self
                .only
                .is_none_or(|only| record.regions().any(|region| only.contains(region)));
            here && self.scope.has(record.started_at, ended_at)
        };
        record.is_some_and(of_the_range)
            || suspect
                .times()
                .any(|at| self.edge.since <= at && at < self.edge.until)
    }

    /// All sides of a suspect as they are now.
    async fn read(
        &self,
        suspect: &Sides,
        record: Option<RecordSide>,
    ) -> Result<Sides, ReconcileError> {
        let mut sides = Sides::new(suspect.key.clone());
        let mut wanted: BTreeSet<(Region, OperationId)> = suspect
            .operations
            .iter()
            .map(|operation| {
                (
                    operation.region.clone(),
                    operation.view.operation_id.clone(),
                )
            })
            .collect();
        if let Some(record) = &record {
            for movement in &record.moves {
                wanted.insert((movement.region.clone(), movement.operation_id.clone()));
                let undo = movement
                    .undo_id
                    .iter()
                    .map(|undo| (movement.region.clone(), undo.clone()));
                wanted.extend(undo);
                let earlier = earlier_generations(&record.saga_id).into_iter();
                wanted.extend(earlier.map(|saga| (movement.region.clone(), saga.own_operation())));
            }
        }
        // A correction may have been booked long after the range.
        for movement in record.iter().flat_map(|record| &record.moves) {
            for number in 1..=CORRECTIONS {
                let id = correction(&movement.operation_id, number);
                let region = &movement.region;
                let Some(operation) = self.books.operation(region, &id).await? else {
                    break;
                };
                wanted.remove(&(region.clone(), id));
                sides.operations.push(operation);
            }
        }
        for (region, id) in &wanted {
            sides
                .operations
                .extend(self.books.operation(region, id).await?);
        }
        let payment_id = record.as_ref().and_then(|record| record.payment_id.clone());
        let of_row = || {
            suspect
                .payment
                .as_ref()
                .map(|payment| payment.payment_id.clone())
        };
        if let Some(payment_id) = payment_id.or_else(of_row) {
            sides.payment = self.books.payment(&payment_id).await?;
        }
        sides.events = self
            .books
            .events_of(&self.books.events, &suspect.key)
            .await?;
        sides.record = record.map(Box::new);
        Ok(sides)
    }

    /// Judges, and tells an event that was never written from one that other teams cannot see (yet).
    async fn judge(&self, mut sides: Sides) -> Result<Settled, ReconcileError> {
        let mut differences = judge(&sides, self.rules);
        let is_missing = |difference: &Difference| difference.kind == Kind::EventMissing;
        if differences.iter().any(is_missing) {
            let written = self.books.events_of(&self.books.state, &sides.key).await?;
            if !written.is_empty() {
                let mut not_copied = Vec::new();
                if self.is_past_keeping(&sides) {
                    sides.events = written;
                } else if let Some(copied) = self.wait_for_copies(&sides.key).await? {
                    sides.events = copied;
                } else {
                    sides.events = written;
                    not_copied = differences
                        .into_iter()
                        .filter(is_missing)
                        .map(Difference::not_copied)
                        .collect();
                }
                differences = judge(&sides, self.rules);
                differences.extend(not_copied);
            }
        }
        Ok(Settled {
            sides: Some(sides),
            differences,
        })
    }

    /// Whether the copy was taken away by its age.
    fn is_past_keeping(&self, sides: &Sides) -> bool {
        let kept = SignedDuration::try_from(self.books.events_age).unwrap_or(SignedDuration::MAX);
        let ended_at = sides.record.as_ref().and_then(|record| record.ended_at);
        !kept.is_zero() && ended_at.is_some_and(|at| at.duration_until(self.rules.now) > kept)
    }

    /// Copies are made by the server in its own time.
    async fn wait_for_copies(&self, key: &str) -> Result<Option<Vec<EventSide>>, ReconcileError> {
        if self.copies_are_late.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let looking = async {
            loop {
                let events = self.books.events_of(&self.books.events, key).await?;
                if !events.is_empty() {
                    return Ok::<_, ReconcileError>(events);
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        match tokio::time::timeout(COPYING, looking).await {
            Ok(events) => events.map(Some),
            Err(_elapsed) => {
                self.copies_are_late.store(true, Ordering::Relaxed);
                Ok(None)
            }
        }
    }
}
