//! What many worlds came to.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::chance::KINDS;
use super::script::INPUT_KINDS;
use super::{Outcome, Script};

/// Sums over worlds.
#[derive(Debug, Default)]
pub struct Report {
    worlds: u64,
    faults: BTreeMap<String, u64>,
    inputs: BTreeMap<&'static str, u64>,
    standings: BTreeMap<String, usize>,
    lasted: Duration,
}

impl Report {
    /// Adds a world.
    pub fn add(&mut self, script: &Script, outcome: &Outcome) {
        self.worlds += 1;
        self.lasted += outcome.lasted;
        for fault in &outcome.struck {
            let kind = fault.split('|').next().unwrap_or_default();
            *self.faults.entry(kind.to_owned()).or_default() += 1;
        }
        for input in &script.inputs {
            *self.inputs.entry(input.what.kind()).or_default() += 1;
        }
        for (standing, count) in &outcome.standings {
            *self.standings.entry(standing.clone()).or_default() += count;
        }
    }

    /// Kinds of faults and inputs that have never occurred.
    #[must_use]
    pub fn never(&self) -> Vec<&'static str> {
        let faults = KINDS.iter().map(|(kind, _)| *kind);
        let faults = faults.filter(|kind| !self.faults.contains_key(*kind));
        let inputs = INPUT_KINDS.into_iter();
        faults
            .chain(inputs.filter(|kind| !self.inputs.contains_key(kind)))
            .collect()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sagas: usize = self.standings.values().sum();
        let hours = self.lasted.as_secs() / 3_600;
        writeln!(
            f,
            "{} schedules, {sagas} sagas, {hours} h of virtual time",
            self.worlds
        )?;
        writeln!(f, "\n{:<34}{:>8}", "fault injected", "times")?;
        for (kind, count) in &self.faults {
            writeln!(f, "{kind:<34}{count:>8}")?;
        }
        writeln!(f, "\n{:<34}{:>8}", "input", "times")?;
        for (kind, count) in &self.inputs {
            writeln!(f, "{kind:<34}{count:>8}")?;
        }
        writeln!(f, "\n{:<34}{:>8}", "workflow and how it stands", "sagas")?;
        for (standing, count) in &self.standings {
            writeln!(f, "{standing:<34}{count:>8}")?;
        }
        Ok(())
    }
}
