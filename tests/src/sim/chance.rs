//! What goes wrong in a world, decided point by point.
//!
//! Each fault is decided by a hash of the seed, the kind of fault and the name of the point where it could
//! strike (an operation and which sending of it, a saga and which commit of it). There is no order of draws,
//! so taking one fault away leaves all others as they are: a schedule is a set of faults, and can be shrunk.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// All kinds of faults, and how many of ten thousand points each strikes where it is at home.
pub const KINDS: &[(&str, u64)] = &[
    ("commit-slow", 250),
    ("commit-conflict", 200),
    ("commit-late-answer", 250),
    ("commit-unreachable", 60),
    ("commit-unknown-written", 60),
    ("commit-unknown-written-later", 60),
    ("load-slow", 200),
    ("load-unreachable", 200),
    ("forget-fails", 1000),
    ("crash", 90),
    ("freeze", 90),
    ("skew", 3000),
    ("redelivered-early", 700),
    ("ack-lost", 400),
    ("progress-lost", 300),
    ("timer-late", 1500),
    ("request-lost", 500),
    ("request-slow", 900),
    ("request-late", 300),
    ("request-twice", 700),
    ("no-responders", 500),
    ("nobody-from-then-on", 400),
    ("disconnected", 200),
    ("reply-lost", 500),
    ("reply-late", 500),
    ("reply-very-late", 200),
    ("reply-twice", 300),
    ("agent-busy", 500),
    ("agent-crash-before", 300),
    ("agent-crash-after", 400),
    ("agent-unavailable", 300),
    ("core-slow", 300),
    ("core-error", 300),
    ("core-error-after", 300),
    ("no-rate", 500),
];

/// Decides.
#[derive(Debug)]
pub struct Chance {
    seed: u64,
    chosen: Option<BTreeSet<String>>,
    on: AtomicBool,
    struck: Mutex<BTreeSet<String>>,
}

impl Chance {
    /// By the seed, or exactly these faults.
    #[must_use]
    pub fn new(seed: u64, chosen: Option<BTreeSet<String>>) -> Self {
        Self {
            seed,
            chosen,
            on: AtomicBool::new(true),
            struck: Mutex::default(),
        }
    }

    /// No fault strikes from now on.
    pub fn calm(&self) {
        self.on.store(false, Ordering::Relaxed);
    }

    /// Whether a fault of this kind strikes here.
    pub fn strikes(&self, kind: &'static str, point: &str) -> bool {
        if !self.on.load(Ordering::Relaxed) {
            return false;
        }
        let id = format!("{kind}|{point}");
        let strikes = match &self.chosen {
            Some(chosen) => chosen.contains(&id),
            None => self.draw(kind, point) % 10_000 < self.rate(kind),
        };
        if strikes {
            let mut struck = self.struck.lock().unwrap_or_else(PoisonError::into_inner);
            struck.insert(id);
        }
        strikes
    }

    /// A duration that belongs to this point.
    pub fn between(&self, what: &str, point: &str, least: u64, most: u64) -> Duration {
        let span = most.saturating_sub(least) + 1;
        Duration::from_millis(least + self.draw(what, point) % span)
    }

    /// A number that belongs to this point.
    pub fn draw(&self, what: &str, point: &str) -> u64 {
        hash(self.seed, &[what, point])
    }

    /// All faults that have struck.
    pub fn struck(&self) -> BTreeSet<String> {
        let struck = self.struck.lock().unwrap_or_else(PoisonError::into_inner);
        struck.clone()
    }

    /// Each seed has its own climate: some kinds do not occur in it, others more often than elsewhere.
    fn rate(&self, kind: &str) -> u64 {
        let usual = KINDS
            .iter()
            .find(|(name, _)| *name == kind)
            .map_or(0, |(_, rate)| *rate);
        match hash(self.seed, &["climate", kind]) % 8 {
            0..=2 => 0,
            3..=5 => usual,
            6 => usual * 2,
            _ => usual * 4,
        }
    }
}

/// FNV-1a with a finish that spreads the low bits; the same on every machine and in every version.
#[must_use]
pub fn hash(seed: u64, parts: &[&str]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let text = parts
        .iter()
        .flat_map(|part| part.bytes().chain(std::iter::once(0xff)));
    for byte in seed.to_le_bytes().into_iter().chain(text) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash ^= hash >> 30;
    hash = hash.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash ^= hash >> 27;
    hash = hash.wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taking_one_fault_away_leaves_the_others() {
        let points: Vec<String> = (0..4000).map(|n| format!("point/{n}")).collect();
        let by_seed = Chance::new(7, None);
        for (kind, _) in KINDS {
            for point in &points {
                by_seed.strikes(kind, point);
            }
        }
        let mut chosen = by_seed.struck();
        assert!(chosen.len() > 100, "{} faults", chosen.len());
        let gone = chosen.pop_first().expect("a fault");
        let again = Chance::new(7, Some(chosen.clone()));
        for (kind, _) in KINDS {
            for point in &points {
                again.strikes(kind, point);
            }
        }
        assert_eq!(again.struck(), chosen);
        assert!(!again.struck().contains(&gone));
    }
}
