//! One world: its time, its parts, and what has been seen in it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use contracts::command::{CommandHeader, WalletCommand};
use contracts::id::{OperationId, Region};
use jiff::{SignedDuration, Timestamp};
use orchestrator::saga::rules::{Capabilities, Rules};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::chance::Chance;
use super::consumer::{Consumer, Kind};
use super::database::Databases;
use super::replica::Replicas;
use super::script::{REGIONS, Script};
use super::stream::Stream;
use crate::judge::{Breach, Judge, Observation};

/// When every world begins.
const BEGINNING: i64 = 1_893_456_000;

/// Clocks are off by no more than this, in milliseconds. Commands live for ten seconds, and a participant
/// whose clock is further ahead than that would take up none.
const MOST_SKEW: u64 = 3_000;

#[derive(Debug)]
pub(super) struct World {
    start: Instant,
    pub(super) chance: Chance,
    pub(super) databases: Databases,
    pub(super) stream: Stream,
    pub(super) intake: Consumer,
    pub(super) timers: Consumer,
    pub(super) replicas: Replicas,
    /// Done when something is broken.
    pub(super) broken: CancellationToken,
    book: Mutex<Book>,
    ordinals: Mutex<HashMap<String, u32>>,
    in_flight: AtomicI64,
    down: Mutex<BTreeMap<String, (Instant, bool)>>,
    rates: AtomicUsize,
    executed: Mutex<Executed>,
    max_ack_pending: i64,
}

#[derive(Debug, Default)]
struct Book {
    judge: Judge,
    trace: Vec<Line>,
    breach: Option<Breach>,
}

/// One line of what happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// When, in milliseconds from the start.
    pub at: u128,
    /// In which saga; empty when in none.
    pub saga: String,
    /// What.
    pub text: String,
}

/// What wallets have been asked for, and which operations are settled by it.
#[derive(Debug, Default)]
struct Executed {
    commands: Vec<(String, CommandHeader, WalletCommand)>,
    settled: BTreeSet<OperationId>,
}

impl World {
    pub(super) fn new(script: &Script) -> anyhow::Result<Self> {
        static WORLDS: AtomicU64 = AtomicU64::new(0);
        let number = WORLDS.fetch_add(1, Ordering::Relaxed);
        let chance = Chance::new(script.seed, script.faults.clone());
        let max_ack_pending: u32 = if chance.draw("room", "").is_multiple_of(3) {
            8
        } else {
            4096
        };
        let room = usize::try_from(max_ack_pending)?;
        Ok(Self {
            start: Instant::now(),
            chance,
            databases: Databases::open(&format!("world-{number}"))?,
            stream: Stream::default(),
            intake: Consumer::new(Kind::Intake, room),
            timers: Consumer::new(Kind::Timers, room),
            replicas: Replicas::default(),
            broken: CancellationToken::new(),
            book: Mutex::default(),
            ordinals: Mutex::default(),
            in_flight: AtomicI64::new(0),
            down: Mutex::default(),
            rates: AtomicUsize::new(0),
            executed: Mutex::default(),
            max_ack_pending: i64::from(max_ack_pending),
        })
    }

    /// In some worlds the last region's wallet is said to keep no tombstones, so that it has to be asked.
    pub(super) fn rules(&self) -> Rules {
        let mut rules = Rules::default();
        if self.chance.draw("rules", "").is_multiple_of(4)
            && let Some(region) = REGIONS.last().and_then(|region| Region::new(*region).ok())
        {
            let none = Capabilities { tombstone: false };
            rules.capabilities.insert(region, none);
        }
        rules
    }

    pub(super) fn max_ack_pending(&self) -> i64 {
        self.max_ack_pending
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// The true time.
    pub(super) fn now(&self) -> Timestamp {
        self.now_off(SignedDuration::ZERO)
    }

    /// The time on a clock that is off.
    pub(super) fn now_off(&self, skew: SignedDuration) -> Timestamp {
        told(self.start, skew)
    }

    pub(super) fn clock(&self, skew: SignedDuration) -> Arc<dyn Fn() -> Timestamp + Send + Sync> {
        let start = self.start;
        Arc::new(move || told(start, skew))
    }

    /// How much the clock of this name is off, when it is.
    pub(super) fn skew(&self, name: &str) -> SignedDuration {
        let ahead = self.chance.between("ahead", name, 0, 2 * MOST_SKEW);
        SignedDuration::try_from(ahead).unwrap_or(SignedDuration::ZERO)
            - SignedDuration::from_millis(i64::try_from(MOST_SKEW).unwrap_or(0))
    }

    pub(super) fn consumer(&self, kind: Kind) -> &Consumer {
        match kind {
            Kind::Intake => &self.intake,
            Kind::Timers => &self.timers,
        }
    }

    /// 1 for the first of its name, then 2, and so on.
    pub(super) fn ordinal(&self, name: &str) -> u32 {
        let mut ordinals = self.ordinals.lock().unwrap_or_else(PoisonError::into_inner);
        let ordinal = ordinals.entry(name.to_owned()).or_insert(0);
        *ordinal += 1;
        *ordinal
    }

    /// Something is on its way, or has arrived.
    pub(super) fn in_flight(&self, change: i64) {
        self.in_flight.fetch_add(change, Ordering::Relaxed);
    }

    /// Nothing is on its way, undelivered or armed.
    pub(super) fn is_quiet(&self) -> bool {
        self.in_flight.load(Ordering::Relaxed) == 0
            && self.intake.is_empty()
            && self.timers.is_empty()
            && self.stream.has_no_timer()
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what happened, for a person.
    pub(super) fn tell(&self, saga: &str, text: &str) {
        let line = Line {
            at: self.elapsed().as_millis(),
            saga: saga.to_owned(),
            text: text.to_owned(),
        };
        self.book().trace.push(line);
    }

    /// One move: what it showed goes to the judge.
    pub(super) fn saw(&self, seen: Vec<Observation>) {
        if seen.is_empty() {
            return;
        }
        for observation in &seen {
            if let Observation::RecordWritten {
                saga,
                revision,
                text,
            } = observation
            {
                self.tell(saga, &summary(*revision, text));
            }
        }
        let mut book = self.book();
        for observation in seen {
            book.judge.observe(observation);
        }
        let verdict = book.judge.check_after_move();
        self.take_verdict(&mut book, verdict);
    }

    /// What the judge says at the end.
    pub(super) fn judge_at_rest(&self) {
        let seen = self.databases.at_rest();
        let mut book = self.book();
        for observation in seen {
            book.judge.observe(observation);
        }
        let verdict = book.judge.check_at_rest();
        self.take_verdict(&mut book, verdict);
    }

    fn take_verdict(&self, book: &mut Book, verdict: Result<(), Breach>) {
        if let (Err(breach), None) = (verdict, &book.breach) {
            book.trace.push(Line {
                at: self.elapsed().as_millis(),
                saga: breach.saga.clone(),
                text: format!("BROKEN {breach}"),
            });
            book.breach = Some(breach);
            self.broken.cancel();
        }
    }

    /// What has been seen, and what was broken.
    pub(super) fn close(&self) -> (Vec<Line>, Option<Breach>, BTreeMap<String, usize>) {
        let mut book = self.book();
        let mut standings = BTreeMap::new();
        for (saga, status) in book.judge.standings() {
            let workflow = saga.split('/').next().unwrap_or_default();
            *standings.entry(format!("{workflow} {status}")).or_default() += 1;
        }
        let trace = std::mem::take(&mut book.trace);
        (trace, book.breach.take(), standings)
    }

    pub(super) fn rates(&self) -> usize {
        self.rates.load(Ordering::Relaxed)
    }

    pub(super) fn set_rates(&self, table: u64) {
        let table = usize::try_from(table).unwrap_or(0);
        self.rates.store(table, Ordering::Relaxed);
    }

    pub(super) fn region_down(&self, region: &str, until: Duration, silent: bool) {
        let mut down = self.down.lock().unwrap_or_else(PoisonError::into_inner);
        down.insert(region.to_owned(), (Instant::now() + until, silent));
    }

    /// Whether a region cannot be reached, and if so whether it is silent.
    pub(super) fn is_down(&self, region: &str) -> Option<bool> {
        let down = self.down.lock().unwrap_or_else(PoisonError::into_inner);
        down.get(region)
            .filter(|(until, _)| *until > Instant::now())
            .map(|(_, silent)| *silent)
    }

    /// Remembers what a wallet was asked for. What is executed, or forbidden by a revert, is settled.
    pub(super) fn executed(&self, region: &str, header: &CommandHeader, command: &WalletCommand) {
        let mut executed = self.executed.lock().unwrap_or_else(PoisonError::into_inner);
        let asked = (region.to_owned(), header.clone(), command.clone());
        executed.commands.push(asked);
    }

    /// Notes that an operation has been executed or can never be.
    pub(super) fn settled(&self, operation: OperationId) {
        let mut executed = self.executed.lock().unwrap_or_else(PoisonError::into_inner);
        executed.settled.insert(operation);
    }

    /// Every command that ever reached a wallet about a settled operation reaches it once more, and its
    /// agent's clock has stood still: nothing may come of it, for ever.
    pub(super) fn say_it_all_again(&self) {
        let (commands, settled) = {
            let executed = self.executed.lock().unwrap_or_else(PoisonError::into_inner);
            (executed.commands.clone(), executed.settled.clone())
        };
        for (region, header, command) in commands {
            if settled.contains(&header.operation_id) {
                let now = header
                    .deadline
                    .checked_sub(SignedDuration::from_millis(1))
                    .unwrap_or(header.deadline);
                self.wallet(&region, header, command, now);
            }
        }
    }
}

fn told(start: Instant, skew: SignedDuration) -> Timestamp {
    let beginning = Timestamp::from_second(BEGINNING).unwrap_or(Timestamp::UNIX_EPOCH);
    let since = SignedDuration::try_from(start.elapsed()).unwrap_or(SignedDuration::ZERO);
    beginning
        .checked_add(since + skew)
        .unwrap_or(Timestamp::MAX)
}

fn summary(revision: u64, text: &str) -> String {
    let record: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
    let word = |name: &str| record[name].as_str().unwrap_or("-").to_owned();
    format!(
        "record {revision}: {} {} epoch {} of {}: {}; wakes {} timer {}",
        word("status"),
        record["direction"]["going"].as_str().unwrap_or("-"),
        record["epoch"],
        word("owner"),
        word("cause"),
        word("wake_at"),
        word("timer_at"),
    )
}
