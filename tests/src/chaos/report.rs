//! What happened in a run, for a person.

use super::Settings;
use super::books::Books;
use super::plan::{Kind, Plan};
use crate::audit::Audit;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// What happened.
#[derive(Debug)]
pub struct Report {
    settings: Settings,
    planned: usize,
    happened: BTreeMap<Kind, u64>,
    missed: BTreeMap<Kind, u64>,
    /// Processes that ended by themselves and were started again, as a supervisor does, by how.
    pub(super) ended: BTreeMap<String, u64>,
    /// Processes that panicked or were killed by somebody else.
    pub(super) crashes: Vec<String>,
    /// Processes that did not end when asked to.
    pub(super) stuck: Vec<String>,
    /// From the end of the last fault to the last saga's rest.
    pub recovered_after: Duration,
    /// Totals that agree.
    pub audit: Audit,
    /// Every payment.
    pub(super) books: Books,
}

impl Report {
    pub(super) fn new(settings: Settings, plan: &Plan) -> Self {
        Self {
            settings,
            planned: plan.faults.len(),
            happened: BTreeMap::new(),
            missed: BTreeMap::new(),
            ended: BTreeMap::new(),
            crashes: Vec::new(),
            stuck: Vec::new(),
            recovered_after: Duration::ZERO,
            audit: Audit::default(),
            books: Books::default(),
        }
    }

    /// One more of this kind.
    pub(super) fn happened(&mut self, kind: Kind) {
        *self.happened.entry(kind).or_default() += 1;
    }

    /// One of this kind found nothing to harm.
    pub(super) fn missed(&mut self, kind: Kind) {
        *self.missed.entry(kind).or_default() += 1;
    }

    /// Kinds of faults that did not happen once.
    pub(super) fn never(&self) -> Vec<String> {
        let kinds = Kind::all().into_iter();
        kinds
            .filter(|kind| !self.happened.contains_key(kind))
            .map(|kind| kind.to_string())
            .collect()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "chaos: seed {}, {} faults",
            self.settings.seed, self.planned
        )?;
        for kind in Kind::all() {
            let count = |counts: &BTreeMap<Kind, u64>| counts.get(&kind).copied().unwrap_or(0);
            let (happened, missed) = (count(&self.happened), count(&self.missed));
            write!(f, "  {kind:<32} {happened:>4}")?;
            match (happened, missed) {
                (0, _) => writeln!(f, "  NEVER HAPPENED")?,
                (_, 0) => writeln!(f)?,
                (_, missed) => writeln!(f, "  ({missed} met nothing)")?,
            }
        }
        for (how, count) in &self.ended {
            writeln!(f, "  {how}: {count} times, started again")?;
        }
        writeln!(f, "sagas: {}", self.audit)?;
        writeln!(f, "{}", self.books)?;
        writeln!(
            f,
            "at rest {:.1?} after the last fault",
            self.recovered_after
        )?;
        write!(f, "to repeat: {}", self.settings.again())
    }
}
