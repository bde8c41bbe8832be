//! Compares, for a range of time, what four sides say: saga records, payments (SQL), wallets (through the
//! region agents) and the log of events. Names each difference with its saga, its money and a way out.
//!
//! Which sagas: those that lived in the range, however short, so that two runs whose ranges meet miss none
//! and a saga that is stuck is named every time. A fact without a record belongs to the range in which it
//! came to be; one of the minute before is named as well, so that what was booked while the last run read
//! is named twice rather than never.
//!
//! How: the sides are read once, in pages, merged by time. A saga on which all sides agree is added up and
//! let go. What is left in the end is read again one by one (`settle`) and named only if it still
//! differs, so a running system raises no false alarm. Held in memory: eight bytes for each saga that was
//! compared, a page for each side, and the sagas that do not agree yet, among them those whose facts lie far
//! apart in time.
//!
//! Not compared: balances and entries with the operations they come from, which is `region-agent ledger
//! verify` in each region, and what providers and banks say.
//!
//! It only reads, with the rights of the operator (or of the orchestrator), and a payments database may be
//! opened read-only. `judge` is pure and knows no side's code.

mod about;
mod books;
mod difference;
mod judge;
mod lot;
mod settle;
mod sides;
mod source;
mod tally;
#[cfg(test)]
mod tests;

pub use difference::{Difference, Fix, Kind, Says};
pub use tally::{Counts, Report, Sums};

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::AtomicBool;

use async_nats::Client;
use contracts::id::Region;
use futures::{StreamExt as _, TryStreamExt as _};
use jiff::{SignedDuration, Timestamp};

use crate::partition::Partition;
use crate::payments::{Payments, PaymentsError};
use books::Books;
use difference::Subject;
use judge::{Rules, judge};
use settle::Settler;
use sides::{RecordSide, Sides};
use source::{Fact, Item, Scope, Source, Window};
use tally::Tally;

/// How far beyond the range the sides are read: as long as a deposit may wait. What lies farther is looked
/// up saga by saga.
const MARGIN: SignedDuration = SignedDuration::from_hours(1);

/// A fact without a record belongs to a range that begins so little after it, too.
const EDGE: SignedDuration = SignedDuration::from_mins(1);

/// A saga that is open and was written so recently is kept until all sides have been read: its next facts
/// are about to come by.
const LIVELY: SignedDuration = SignedDuration::from_mins(10);

/// Suspects that are read again at once.
const AT_ONCE: usize = 8;

/// Facts between two reports of progress.
const REPORT_EVERY: u64 = 500;

/// What is compared.
#[derive(Debug, Clone)]
pub struct Options {
    /// From this instant on.
    pub since: Timestamp,
    /// Before this one.
    pub until: Timestamp,
    /// The regions whose wallets are asked. Unless `only` is given, those that records name are added.
    pub regions: BTreeSet<Region>,
    /// Only these regions.
    pub only: Option<BTreeSet<Region>>,
    /// How long an open saga may be without progress.
    pub stuck: SignedDuration,
    /// What is stored where.
    pub partition: Partition,
    /// The clock.
    pub now: Timestamp,
}

/// What happens while it compares.
#[derive(Debug)]
pub enum Progress {
    /// A difference was found.
    Found(Box<Difference>),
    /// So far.
    Read {
        /// Facts read.
        facts: u64,
        /// Messages still to come, as far as known.
        left: u64,
        /// Sagas on which not all sides have been heard.
        open: usize,
    },
    /// Sagas that are read again.
    Settling {
        /// How many are left.
        left: usize,
    },
}

/// Why nothing can be said.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// NATS refuses or does not answer.
    #[error("{what} cannot be read")]
    Nats {
        /// What was asked for.
        what: &'static str,
        /// Why.
        #[source]
        source: async_nats::Error,
    },
    /// A stream that has more to come went silent.
    #[error("a stream stopped in the middle of what it had")]
    Silence,
    /// Nobody answers for a region's wallet.
    #[error("the wallet of {region} does not answer: {message}")]
    NoWallet {
        /// Whose.
        region: Region,
        /// What happened.
        message: String,
    },
    /// A wallet answers what cannot be used.
    #[error("the wallet of {region} cannot be compared: {message}")]
    Wallet {
        /// Whose.
        region: Region,
        /// What it said.
        message: String,
    },
    /// The payments database.
    #[error(transparent)]
    Payments(#[from] PaymentsError),
}

impl ReconcileError {
    /// Whether a side could not be reached, which asking later may help.
    #[must_use]
    pub fn is_unreachable(&self) -> bool {
        match self {
            Self::Nats { .. } | Self::Silence | Self::NoWallet { .. } => true,
            Self::Payments(error) => !error.is_definite(),
            Self::Wallet { .. } => false,
        }
    }
}

/// Compares. Without `payments` that side is not compared, and the report says so. Changes nothing and may
/// run while sagas do. `watch` hears of each difference as it is found.
///
/// # Errors
/// [`ReconcileError`] when a side cannot be read: then nothing is known to agree.
pub async fn reconcile(
    client: &Client,
    payments: Option<&Payments>,
    options: &Options,
    watch: &mut (dyn FnMut(Progress) + Send),
) -> Result<Report, ReconcileError> {
    let books = Books::open(client, options, payments).await?;
    let window = Window {
        since: shifted(options.since, -MARGIN),
        until: shifted(options.until, MARGIN),
    };
    let scope = Scope {
        since: options.since,
        until: options.until,
    };
    let mut sources = vec![
        Source::records(&books, scope).await?,
        Source::events(&books, window).await?,
        Source::payments(window),
    ];
    let mut join = Join::new(options, scope, payments.is_some());
    let known = options.only.as_ref().unwrap_or(&options.regions);
    for region in known {
        join.asked.insert(region.clone());
        sources.push(Source::wallet(region.clone(), window));
    }
    let mut facts: u64 = 0;
    while let Some(fact) = earliest(&mut sources, &books).await? {
        facts += 1;
        join.take(fact, watch);
        for region in join.unasked() {
            sources.push(Source::wallet(region, window));
        }
        if facts.is_multiple_of(REPORT_EVERY) {
            let left = sources.iter().map(Source::left).sum();
            watch(Progress::Read {
                facts,
                left,
                open: join.open.len(),
            });
        }
    }
    join.settle(&books, watch).await
}

/// As [`reconcile`], with all differences in one list: for few.
///
/// # Errors
/// [`ReconcileError`].
pub async fn differences(
    client: &Client,
    payments: Option<&Payments>,
    options: &Options,
) -> Result<(Report, Vec<Difference>), ReconcileError> {
    let mut found = Vec::new();
    let mut watch = |progress| {
        if let Progress::Found(difference) = progress {
            found.push(*difference);
        }
    };
    let report = reconcile(client, payments, options, &mut watch).await?;
    Ok((report, found))
}

/// The next fact of all sides by time.
async fn earliest(sources: &mut [Source], books: &Books) -> Result<Option<Fact>, ReconcileError> {
    let mut first: Option<(usize, Timestamp)> = None;
    for (index, source) in sources.iter_mut().enumerate() {
        if let Some(at) = source.peek(books).await?
            && first.is_none_or(|(_, earliest)| at < earliest)
        {
            first = Some((index, at));
        }
    }
    Ok(first.and_then(|(index, _)| sources.get_mut(index)?.take()))
}

/// The sides as they meet.
struct Join<'a> {
    options: &'a Options,
    rules: Rules,
    scope: Scope,
    tally: Tally,
    /// Sagas on which not all sides have been heard, by key.
    open: HashMap<String, Sides>,
    /// Regions whose wallets are read, and those a fact has named since.
    asked: BTreeSet<Region>,
    named: BTreeSet<Region>,
}

impl<'a> Join<'a> {
    fn new(options: &'a Options, scope: Scope, payments: bool) -> Self {
        Self {
            options,
            rules: Rules {
                now: options.now,
                stuck: options.stuck,
                payments,
            },
            scope,
            tally: Tally::new(options, payments),
            open: HashMap::new(),
            asked: BTreeSet::new(),
            named: BTreeSet::new(),
        }
    }

    fn take(&mut self, fact: Fact, watch: &mut (dyn FnMut(Progress) + Send)) {
        let Fact { key, item, .. } = fact;
        match item {
            Item::Unreadable(problem) => {
                self.tally.found(&unreadable(&key, &problem), watch);
                return;
            }
            // What was seen of it came before its end; what comes later is asked about in the end.
            Item::Outside => {
                if self
                    .open
                    .get(&key)
                    .is_some_and(|sides| !self.has_fact_of_the_range(sides))
                {
                    self.open.remove(&key);
                }
                return;
            }
            Item::Record(record) => {
                if !self.is_wanted(record.regions()) {
                    self.open.remove(&key);
                    return;
                }
                // Not a region that was only claimed: it may be none.
                let moves = record.moves.iter();
                self.named
                    .extend(moves.map(|movement| movement.region.clone()));
                self.sides(&key).record = Some(record);
            }
            Item::Payment(payment) => {
                if !self.is_wanted(payment.region.iter()) {
                    return;
                }
                self.named.extend(payment.region.clone());
                self.sides(&key).payment = Some(payment);
            }
            Item::Operation(operation) => self.sides(&key).operations.push(*operation),
            Item::Event(event) => {
                let region = Region::new(event.region.clone()).ok();
                if !self.is_wanted(region.iter()) {
                    return;
                }
                self.sides(&key).events.push(event);
            }
        }
        let may_go = |sides: &Sides| self.agrees(sides) && !self.is_lively(sides);
        if self.open.get(&key).is_some_and(may_go)
            && let Some(sides) = self.open.remove(&key)
        {
            self.tally.compared(&sides);
        }
    }

    fn sides(&mut self, key: &str) -> &mut Sides {
        self.open
            .entry(key.to_owned())
            .or_insert_with(|| Sides::new(key.to_owned()))
    }

    /// Whether one of these regions is asked for.
    fn is_wanted<'r>(&self, mut regions: impl Iterator<Item = &'r Region>) -> bool {
        match &self.options.only {
            None => true,
            Some(only) => regions.any(|region| only.contains(region)),
        }
    }

    /// Regions that were named and are not read yet.
    fn unasked(&mut self) -> Vec<Region> {
        let named = std::mem::take(&mut self.named);
        if self.options.only.is_some() {
            return Vec::new();
        }
        named
            .into_iter()
            .filter(|region| self.asked.insert(region.clone()))
            .collect()
    }

    fn has_fact_of_the_range(&self, sides: &Sides) -> bool {
        sides
            .times()
            .any(|at| self.scope.since <= at && at < self.scope.until)
    }

    /// Whether all sides were heard and nothing differs. A later generation of a saga is always asked about:
    /// what it follows must have left nothing.
    fn agrees(&self, sides: &Sides) -> bool {
        let Some(record) = sides.record.as_deref() else {
            return false;
        };
        sides.has_all_operations()
            && !is_later_generation(record)
            && judge(sides, &self.rules).is_empty()
    }

    fn is_lively(&self, sides: &Sides) -> bool {
        let since = shifted(self.rules.now, -LIVELY);
        let record = sides.record.as_deref();
        record.is_some_and(|record| record.is_open() && record.written_at > since)
    }

    async fn settle(
        mut self,
        books: &Books,
        watch: &mut (dyn FnMut(Progress) + Send),
    ) -> Result<Report, ReconcileError> {
        let mut suspects = std::mem::take(&mut self.open);
        suspects.retain(|_, sides| {
            let agrees = self.agrees(sides);
            if agrees {
                self.tally.compared(sides);
            }
            !agrees
        });
        let settler = Settler {
            books,
            rules: &self.rules,
            scope: self.scope,
            edge: Scope {
                since: shifted(self.scope.since, -EDGE),
                until: self.scope.until,
            },
            only: self.options.only.as_ref(),
            copies_are_late: AtomicBool::new(false),
        };
        let mut left = suspects.len();
        let settler = &settler;
        let mut settling =
            futures::stream::iter(suspects.into_values().map(|suspect| async move {
                let rest = suspect.clone();
                Ok::<_, ReconcileError>((rest, settler.settle(suspect).await?))
            }))
            .buffer_unordered(AT_ONCE);
        while let Some((rest, settled)) = settling.try_next().await? {
            left -= 1;
            watch(Progress::Settling { left });
            if let Some(sides) = settled.sides {
                self.tally.settled(&sides, &rest);
            }
            for difference in &settled.differences {
                self.tally.found(difference, watch);
            }
        }
        drop(settling);
        Ok(self.tally.report(self.asked))
    }
}

fn is_later_generation(record: &RecordSide) -> bool {
    !crate::saga::earlier_generations(&record.saga_id).is_empty()
}

fn shifted(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.checked_add(by).unwrap_or(at)
}

/// A record that cannot be decoded: its money is unknown.
fn unreadable(key: &str, problem: &str) -> Difference {
    let saga_id = contracts::key::decode(key).unwrap_or_else(|| key.to_owned());
    let subject = Subject {
        saga: &saga_id,
        key,
        operation: None,
        region: None,
        verbs: &[],
        open: true,
        book: None,
    };
    Difference {
        kind: Kind::RecordUnreadable,
        fix: Fix::of(Kind::RecordUnreadable, &subject),
        saga_key: key.to_owned(),
        payment_id: None,
        operation_id: None,
        region: None,
        amount: None,
        says: Says {
            record: Some(problem.to_owned()),
            ..Says::default()
        },
        saga_id,
    }
}
