//! What is done to whom and when, drawn from a seed before anything starts.

use crate::load::Random;
use orchestrator::site::Leaf;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Orchestrators.
pub(super) const ORCHESTRATORS: [&str; 3] = ["orchestrator-1", "orchestrator-2", "orchestrator-3"];

/// Agents, two a region.
pub(super) const AGENTS: [(&str, Leaf); 4] = [
    ("agent-eu-1", Leaf::Eu),
    ("agent-eu-2", Leaf::Eu),
    ("agent-asia-1", Leaf::Asia),
    ("agent-asia-2", Leaf::Asia),
];

/// Leaf nodes.
pub(super) const LEAVES: [(&str, Leaf); 2] = [("leaf-eu", Leaf::Eu), ("leaf-asia", Leaf::Asia)];

/// The core server.
pub(super) const CORE: &str = "core";

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fault {
    /// `kill -9`, and started again after a while.
    Kill,
    /// Asked to end, and started again.
    Restart,
    /// Frozen for longer than a message is waited for, and let run again.
    Freeze,
    /// Connections closed and refused.
    Cut,
    /// One direction only.
    OneWay,
    /// Everything late.
    Slow,
    /// Nothing passes; what was under way arrives later.
    BlackHole,
}

/// To which kind of thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Where {
    Orchestrator,
    Agent,
    LeafNode,
    Core,
    OrchestratorLink,
    RegionLink,
}

/// A kind of fault, as counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Kind {
    pub(super) fault: Fault,
    pub(super) at: Where,
}

/// One fault of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Planned {
    pub(super) begins: Duration,
    pub(super) lasts: Duration,
    pub(super) kind: Kind,
    /// The process, or the one at the near end of the link.
    pub(super) target: &'static str,
    /// Chooses what a kind leaves open: which way, how slow.
    pub(super) draw: u64,
}

/// All of it, in order of time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) faults: Vec<Planned>,
}

impl Kind {
    /// Every kind: processes are killed, restarted and frozen, links are cut in four ways.
    pub(super) fn all() -> Vec<Self> {
        let processes = [
            Where::Orchestrator,
            Where::Agent,
            Where::LeafNode,
            Where::Core,
        ];
        let links = [Where::OrchestratorLink, Where::RegionLink];
        let of = |places: &[Where], faults: &[Fault]| {
            let pairs = places
                .iter()
                .flat_map(|&at| faults.iter().map(move |&fault| Self { fault, at }));
            pairs.collect::<Vec<_>>()
        };
        let mut all = of(&processes, &[Fault::Kill, Fault::Restart, Fault::Freeze]);
        all.extend(of(
            &links,
            &[Fault::Cut, Fault::OneWay, Fault::Slow, Fault::BlackHole],
        ));
        all
    }

    fn targets(self) -> Vec<&'static str> {
        match self.at {
            Where::Orchestrator | Where::OrchestratorLink => ORCHESTRATORS.into(),
            Where::Agent => AGENTS.map(|(name, _)| name).into(),
            Where::LeafNode | Where::RegionLink => LEAVES.map(|(name, _)| name).into(),
            Where::Core => vec![CORE],
        }
    }

    fn lasts(self, random: &mut Random) -> Duration {
        let (least, most) = match self.fault {
            Fault::Kill => (200, 4_000),
            // Nothing else is done to it meanwhile.
            Fault::Restart => (3_000, 6_000),
            // The server waits 10 s for an acknowledgement, and drops a silent connection after 15.
            Fault::Freeze => (11_000, 17_000),
            Fault::Cut => (500, 10_000),
            Fault::OneWay | Fault::BlackHole => (3_000, 17_000),
            Fault::Slow => (2_000, 8_000),
        };
        Duration::from_millis(least + random.below(most - least))
    }
}

impl Plan {
    /// Kinds come in rounds, each kind once a round in any order, so that none is missing in the end. Nothing
    /// is done to a process, or its link, that has not got over the fault before.
    pub(super) fn draw(seed: u64, length: Duration) -> Self {
        let mut random = Random::new(seed);
        let mut faults: Vec<Planned> = Vec::new();
        let mut free_at: BTreeMap<&str, Duration> = BTreeMap::new();
        let kinds = Kind::all();
        let count = u32::try_from(kinds.len()).unwrap_or(u32::MAX);
        // One round in a short run; in a long one a round takes about a minute, with a calm at its end.
        let round = length.min(Duration::from_secs(50));
        let mut from = Duration::ZERO;
        while from < length {
            let mut kinds = kinds.clone();
            shuffle(&mut kinds, &mut random);
            // What lasts longest begins first, where a round is all there is.
            if length == round {
                kinds.sort_by_key(|kind| kind.fault != Fault::Freeze);
            }
            for (slot, kind) in (0_u32..).zip(kinds) {
                let at = from + round * slot / count;
                let mut targets = kind.targets();
                shuffle(&mut targets, &mut random);
                let free =
                    |target: &&'static str| free_at.get(*target).copied().unwrap_or_default();
                let target = targets
                    .iter()
                    .copied()
                    .min_by_key(|target| free(target).max(at))
                    .unwrap_or(CORE);
                let begins = free(&target).max(at);
                let lasts = kind.lasts(&mut random);
                // Time to come back before it is the next one's turn.
                free_at.insert(target, begins + lasts + Duration::from_millis(1_500));
                faults.push(Planned {
                    begins,
                    lasts,
                    kind,
                    target,
                    draw: random.draw(),
                });
            }
            from += round + Duration::from_millis(5_000 + random.below(10_000));
        }
        // The last round may be cut short, but the first one is the whole run when it is short.
        if length > round {
            faults.retain(|fault| fault.begins < length);
        }
        faults.sort_by_key(|fault| fault.begins);
        Self { faults }
    }
}

fn shuffle<T>(items: &mut [T], random: &mut Random) {
    for last in (1..items.len()).rev() {
        let bound = u64::try_from(last + 1).unwrap_or(u64::MAX);
        items.swap(last, usize::try_from(random.below(bound)).unwrap_or(0));
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Kill => "kill",
            Self::Restart => "restart",
            Self::Freeze => "freeze",
            Self::Cut => "cut",
            Self::OneWay => "one way",
            Self::Slow => "slow",
            Self::BlackHole => "black hole",
        })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = match self.at {
            Where::Orchestrator => "orchestrator",
            Where::Agent => "agent",
            Where::LeafNode => "leaf node",
            Where::Core => "core server",
            Where::OrchestratorLink => "orchestrator - core",
            Where::RegionLink => "region - core",
        };
        f.pad(&format!("{}: {at}", self.fault))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_plan_with_every_kind_and_one_fault_at_a_time_at_each_process() {
        for seed in 0..50 {
            for length in [super::super::SHORT, Duration::from_secs(300)] {
                let plan = Plan::draw(seed, length);
                assert_eq!(plan, Plan::draw(seed, length));
                assert_ne!(plan, Plan::draw(seed + 1, length));
                for kind in Kind::all() {
                    assert!(
                        plan.faults.iter().any(|fault| fault.kind == kind),
                        "{kind} in {seed}"
                    );
                }
                let mut ends: BTreeMap<&str, Duration> = BTreeMap::new();
                for fault in &plan.faults {
                    let end = ends.entry(fault.target).or_default();
                    assert!(fault.begins >= *end, "{fault:?}");
                    *end = fault.begins + fault.lasts;
                }
            }
        }
    }
}
