//! Small worlds, looked at exhaustively: every order of what may happen, within stated bounds.
//!
//! One process, no I/O, no clock: the real saga core with the real deposit, the real participant core over
//! rows in memory, a model of the driver for two replicas, of the network, the consumers and the core's own
//! side. Each send, delivery, loss, repetition, delay, write, crash, sleep and timer is a move; the search
//! makes every possible move in every state it reaches, and the judge looks at each state, each write, each
//! command that leaves, and at where all comes to rest.
//!
//! | module | what |
//! |---|---|
//! | `worlds` | the worlds, and how much may go wrong in each |
//! | `world` | a state |
//! | `moves`, `make` | what may happen in a state; what it does |
//! | `shell` | the driver: load, decide, commit, perform, acknowledge |
//! | `ledger`, `core_side` | the wallet; payments, rates, payouts |
//! | `ground`, `time` | values by number, decisions remembered; time |
//! | `laws`, `facts` | the judge; what it reads in a record |
//! | `search` | the search, and the way home from every state |
//!
//! The search is our own and not that of a model checker's crate (stateright was looked at): a state here is
//! a few dozen numbers into shared tables, each distinct question is put to the cores once, and time is
//! taken out of states by moving the future closer instead. A general checker would clone and hash whole
//! records for each of some hundred thousand states, and knows neither "from every state there is a way
//! home" nor what is a fault and has to be paid for from a budget.
//!
//! What is bounded: faults on a path, of all kinds together and of each kind; and the messages of a world.
//! What is not: time, attempts, the order of anything. A search that does not come to its own end fails.

mod core_side;
mod facts;
mod ground;
mod laws;
mod ledger;
mod make;
mod moves;
mod search;
mod shell;
mod time;
mod world;
mod worlds;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use ground::Ground;
use moves::{Move, NAMES, Why};
use search::Failure;
use world::World;
use worlds::Scenario;

pub use search::Report;

/// Names of all worlds.
#[must_use]
pub fn names() -> Vec<&'static str> {
    worlds::all()
        .into_iter()
        .map(|scenario| scenario.name)
        .collect()
}

/// Looks at all of a world.
///
/// # Errors
/// The law that was broken, with the shortest path there, move by move.
///
/// # Panics
/// When there is no world of this name.
pub fn explore(name: &str) -> Result<Report, String> {
    search::search(find(name)).map_err(|failure| told(name, &failure))
}

/// Goes a path again and tells each move.
///
/// # Errors
/// The law that is broken at its end.
///
/// # Panics
/// When the file is no such path.
pub fn replay(file: &Path) -> Result<String, String> {
    let text = std::fs::read_to_string(file).expect("a file with a path");
    let (name, path): (String, Vec<Move>) = serde_json::from_str(&text).expect("a path");
    let (told, law) = walk(find(&name), &path);
    match law {
        None => Ok(told),
        Some(law) => Err(format!("{told}{law}\n")),
    }
}

fn find(name: &str) -> Scenario {
    let mut all = worlds::all().into_iter();
    all.find(|scenario| scenario.name == name)
        .expect("a world of this name")
}

/// What a person reads of a failure; the path is kept in a file as well.
fn told(name: &str, failure: &Failure) -> String {
    let (mut text, _) = walk(find(name), &failure.path);
    writeln!(text, "broken: {}", failure.law).expect("a string");
    let file = directory().join(format!("explore-{name}.json"));
    let path = serde_json::to_string(&(name, &failure.path)).expect("JSON");
    match std::fs::write(&file, path) {
        Ok(()) => writeln!(
            text,
            "again: EXPLORE_REPLAY={} cargo test -p saga-tests --test explore",
            file.display()
        )
        .expect("a string"),
        Err(error) => writeln!(text, "the path could not be kept: {error}").expect("a string"),
    }
    text
}

/// Where paths are kept: beside the test binaries.
fn directory() -> PathBuf {
    let binary = std::env::current_exe().unwrap_or_default();
    binary.parent().map(Path::to_owned).unwrap_or_default()
}

fn walk(scenario: Scenario, path: &[Move]) -> (String, Option<String>) {
    let mut ground = Ground::new(scenario);
    let mut world = search::beginning(&mut ground);
    let mut text = String::new();
    for (number, step) in path.iter().enumerate() {
        let possible = moves::possible(&world, &ground);
        let why = possible.iter().find(|(possible, _)| possible == step);
        let why = why.map_or(Why::Chosen, |(_, why)| *why);
        let fault = match why {
            Why::Fault(kind) => format!("  [{}]", NAMES[kind]),
            Why::Urgent | Why::SomeTime(_) | Why::Chosen => String::new(),
        };
        let about = about(&world, &ground, *step);
        writeln!(text, "{:3}  {step:?}{about}{fault}", number + 1).expect("a string");
        let before = world.clone();
        let made = make::make(&mut world, &mut ground, *step, why)
            .and_then(|()| laws::on_state(&mut ground, &world));
        write!(text, "{}", changes(&before, &world, &ground)).expect("a string");
        if let Err(law) = made {
            return (text, Some(law));
        }
    }
    (text, None)
}

/// What a move is about, where its numbers do not say.
fn about(world: &World, ground: &Ground, step: Move) -> String {
    match step {
        Move::Deliver { message, .. } | Move::Redeliver(message) => {
            let message = &world.messages[usize::from(message)];
            match message.body {
                world::Body::Due => ": a timer".to_owned(),
                world::Body::Said(said) => format!(": {}", ground.said.get(said).message_id()),
            }
        }
        Move::Receive { packet, .. }
        | Move::ReceiveUnclear { packet, .. }
        | Move::Nobody(packet)
        | Move::Answer(packet)
        | Move::Lose(packet)
        | Move::Duplicate(packet)
        | Move::Delay(packet) => {
            let packet = &world.net[usize::from(packet)];
            let command = ground.command(packet.cmd);
            let what = match packet.answer {
                None => format!("due in {} ms", ground.deadline_ms(packet.cmd)),
                Some(answer) => format!("{:?}", ground.answer(answer).answer),
            };
            let id = &command.operation_id;
            format!(
                ": {id} attempt {} fence {}, {what}",
                command.attempt, command.fence
            )
        }
        Move::Core {
            replica,
            saga,
            call,
            ..
        }
        | Move::CoreSilent {
            replica,
            saga,
            call,
        }
        | Move::CoreUnclear {
            replica,
            saga,
            call,
            ..
        } => {
            let actor = &world.replicas[usize::from(replica)].actors[usize::from(saga)];
            let command = ground.command(actor.calls[usize::from(call)].cmd);
            format!(": {}", command.operation_id)
        }
        _ => String::new(),
    }
}

/// What changed in the store, the books and the time.
fn changes(before: &World, after: &World, ground: &Ground) -> String {
    let mut text = String::new();
    for (index, saga) in after.sagas.iter().enumerate() {
        let was = before.sagas.get(index).and_then(|saga| saga.stored);
        if let Some((rec, _)) = saga.stored
            && was.map(|was| was.0) != Some(rec)
        {
            let record = ground.record(rec);
            write!(
                text,
                "       stored: {} {} epoch {} owner {}",
                record.saga_id, record.status, record.epoch, record.owner
            )
            .expect("a string");
            for step in &record.steps {
                for operation in step.operations() {
                    let outcome = format!("{:?}", operation.outcome);
                    let word = outcome.split([' ', '(', '{']).next().unwrap_or_default();
                    write!(text, " | {} {word}", operation.kind).expect("a string");
                }
            }
            text.push('\n');
        }
    }
    if before.ledger != after.ledger {
        let books = &ground.ledgers.get(after.ledger).books;
        writeln!(text, "       books: {books}").expect("a string");
    }
    text
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}: {} states, {} transitions, complete; at most {} faults on a path; depth {}, {} at rest, at most \
             {} moves home; {} records, {} questions to the cores; {:.1?}",
            self.name,
            self.states,
            self.transitions,
            self.faults_at_most,
            self.depth,
            self.at_rest,
            self.longest_way_home,
            self.records,
            self.questions,
            self.took,
        )?;
        let made = self.faults.iter().zip(NAMES).filter(|(made, _)| **made > 0);
        let made: Vec<String> = made.map(|(made, name)| format!("{name} {made}")).collect();
        if made.is_empty() {
            return Ok(());
        }
        write!(f, "\n    faults made: {}", made.join(", "))
    }
}
