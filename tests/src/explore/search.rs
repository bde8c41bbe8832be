//! The search: breadth first, so that what is found is found by a shortest path.
//!
//! A state is told by 128 bits of hash: with a million states, the odds that two are taken for one are
//! about one in 10^26. Each state is judged when it is first reached. Each has a next state in which nothing
//! goes wrong any more; that chain has to end, at rest, from every state.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use super::ground::Ground;
use super::laws;
use super::make;
use super::moves::{self, Move, Why};
use super::shell::Broken;
use super::world::{Body, Replica, World};
use super::worlds::{Scenario, customer, usd};

/// What a search has seen.
#[derive(Debug, Clone)]
pub struct Report {
    /// Which world.
    pub name: &'static str,
    /// Faults on a path, at most.
    pub faults_at_most: u8,
    /// Distinct states.
    pub states: usize,
    /// Moves between them.
    pub transitions: usize,
    /// States in which nothing more happens by itself.
    pub at_rest: usize,
    /// Moves of the longest shortest path.
    pub depth: usize,
    /// Most moves that it takes from any state to come to rest when nothing goes wrong any more.
    pub longest_way_home: usize,
    /// Distinct questions the cores were asked.
    pub questions: usize,
    /// Distinct records.
    pub records: usize,
    /// How often moves of each kind of fault were made.
    pub faults: [usize; moves::KINDS],
    /// What it took.
    pub took: Duration,
}

/// A law was broken on this path.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) law: Broken,
    /// The shortest there is.
    pub(super) path: Vec<Move>,
}

struct Node {
    parent: u32,
    step: Move,
    /// The state after the fair move; [`REST`] when there is none.
    next: u32,
}

/// No shortest path is longer, unless something goes on for ever.
const LONGEST_PATH: usize = 120;

const REST: u32 = u32::MAX;

/// The world at its beginning.
pub(super) fn beginning(ground: &mut Ground) -> World {
    let scenario: Scenario = ground.scenario.clone();
    let ledger = match scenario.holds {
        None => super::ledger::Ledger::default(),
        Some(minor) => super::ledger::Ledger::holding(&customer(), usd(minor)),
    };
    let mut world = World {
        sagas: Vec::new(),
        messages: Vec::new(),
        replicas: [Replica::new(0), Replica::new(0)],
        net: Vec::new(),
        ledger: ground.ledgers.keep(ledger),
        core: ground.core.empty(),
        cut: 0,
        sent: 0,
        spent: false,
        log: Vec::new(),
        cases: Vec::new(),
        used: [0; moves::KINDS],
    };
    for sent in scenario.first {
        let (saga_id, workflow, said) = sent.parts();
        let number = ground.saga(&saga_id, workflow);
        let said = ground.say(said);
        let slot = world.slot(number);
        world.put(slot, Body::Said(said));
    }
    world
}

fn mark(world: &World) -> (u64, u64) {
    let mut first = DefaultHasher::new();
    let mut second = DefaultHasher::new();
    second.write_u8(1);
    world.hash(&mut first);
    world.hash(&mut second);
    (first.finish(), second.finish())
}

/// Looks at every state within the bounds.
pub(super) fn search(scenario: Scenario) -> Result<Report, Box<Failure>> {
    let began = tokio::time::Instant::now();
    let name = scenario.name;
    let faults_at_most = scenario.bounds.total;
    let mut ground = Ground::new(scenario);
    let world = beginning(&mut ground);
    let mut known: HashMap<(u64, u64), u32> = HashMap::from([(mark(&world), 0)]);
    let mut nodes = vec![Node {
        parent: 0,
        step: Move::Tick,
        next: REST,
    }];
    let mut frontier = vec![(0_u32, world)];
    let mut report = Report {
        name,
        faults_at_most,
        states: 0,
        transitions: 0,
        at_rest: 0,
        depth: 0,
        longest_way_home: 0,
        questions: 0,
        records: 0,
        faults: [0; moves::KINDS],
        took: Duration::ZERO,
    };
    while !frontier.is_empty() {
        let mut next = Vec::new();
        for (number, world) in frontier {
            let fail = |nodes: &[Node], law, step: Option<Move>| {
                let mut path = path_to(nodes, number);
                path.extend(step);
                Box::new(Failure { law, path })
            };
            if report.depth == LONGEST_PATH {
                let law = format!("a path of more than {LONGEST_PATH} moves: it has no end");
                return Err(fail(&nodes, law, None));
            }
            let possible = moves::possible(&world, &ground);
            let fair = moves::fair(&possible);
            if fair.is_none() {
                laws::at_rest(&ground, &world).map_err(|law| fail(&nodes, law, None))?;
                report.at_rest += 1;
            }
            for (place, (step, why)) in possible.into_iter().enumerate() {
                report.transitions += 1;
                if let Why::Fault(kind) = why {
                    report.faults[kind] += 1;
                }
                let mut after = world.clone();
                make::make(&mut after, &mut ground, step, why)
                    .map_err(|law| fail(&nodes, law, Some(step)))?;
                let count = u32::try_from(nodes.len()).expect("fewer states than that");
                let reached = match known.entry(mark(&after)) {
                    Entry::Occupied(entry) => *entry.get(),
                    Entry::Vacant(entry) => {
                        laws::on_state(&mut ground, &after)
                            .map_err(|law| fail(&nodes, law, Some(step)))?;
                        entry.insert(count);
                        nodes.push(Node {
                            parent: number,
                            step,
                            next: REST,
                        });
                        next.push((count, after));
                        count
                    }
                };
                if fair == Some(place) {
                    nodes[index(number)].next = reached;
                }
            }
        }
        report.depth += usize::from(!next.is_empty());
        frontier = next;
    }
    report.longest_way_home = ways_home(&nodes)?;
    report.states = nodes.len();
    report.questions = ground.questions();
    report.records = ground.distinct_records();
    report.took = began.elapsed();
    Ok(report)
}

/// From every state, moves in which nothing goes wrong lead to rest. Returns the longest such way.
fn ways_home(nodes: &[Node]) -> Result<usize, Box<Failure>> {
    // 0: not known yet; otherwise one more than the moves it takes.
    let mut ways = vec![0_usize; nodes.len()];
    for start in 0..nodes.len() {
        let mut passed = Vec::new();
        let mut at = start;
        while ways[at] == 0 && nodes[at].next != REST {
            passed.push(at);
            if passed.len() > nodes.len() {
                let number = u32::try_from(start).expect("a state");
                return Err(Box::new(Failure {
                    law: "it never comes to rest, although nothing goes wrong any more".to_owned(),
                    path: path_to(nodes, number),
                }));
            }
            at = index(nodes[at].next);
        }
        ways[at] = ways[at].max(1);
        let mut way = ways[at];
        for at in passed.into_iter().rev() {
            way += 1;
            ways[at] = way;
        }
    }
    Ok(ways.iter().max().map_or(0, |longest| longest - 1))
}

fn index(number: u32) -> usize {
    usize::try_from(number).expect("an index")
}

fn path_to(nodes: &[Node], mut number: u32) -> Vec<Move> {
    let mut path = Vec::new();
    while number != 0 {
        let node = &nodes[index(number)];
        path.push(node.step);
        number = node.parent;
    }
    path.reverse();
    path
}
