//! What worlds have in common: records, commands and answers by number, and decisions remembered.
//!
//! A world holds numbers instead of values, so that it is small, quickly copied and quickly compared. The
//! real cores are asked once for each distinct question; they are pure, so the answer stands.
//!
//! Time does not run in these worlds: it is always the same instant, and when time passes, everything that lies
//! ahead comes nearer. So two worlds that differ only in when they are what they are, are one. What no
//! decision depends on (causes, texts for a person, when something was learnt) is blanked.

use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use contracts::id::SagaId;
use jiff::SignedDuration;
use orchestrator::participants::{Asked, answer, asked, header};
use orchestrator::saga::action::{Command, Decision, Event, Ignored, Note, Persist};
use orchestrator::saga::input::{Answer, Input, Reply};
use orchestrator::saga::record::SagaRecord;
use orchestrator::saga::{self, Turn, Workflow};
use serde_json::Value;

use super::facts::Facts;
use super::laws;
use super::time::{NOW, SKEW_MS, at, moved, ms, settle};
use super::worlds::{Said, Scenario};

/// A record by number.
pub(super) type Rec = u32;
/// A command by number.
pub(super) type Cmd = u32;
/// An answer to an attempt, by number.
pub(super) type Ans = u32;
/// A decision by number.
pub(super) type Dec = u32;

/// Values by number: equal text, equal number.
#[derive(Debug)]
pub(super) struct Table<T> {
    numbers: HashMap<String, u32>,
    values: Vec<T>,
}

impl<T> Table<T> {
    pub(super) fn new() -> Self {
        Self {
            numbers: HashMap::new(),
            values: Vec::new(),
        }
    }

    pub(super) fn number(&mut self, text: String, value: T) -> u32 {
        let next = u32::try_from(self.values.len()).expect("fewer values than that");
        *self.numbers.entry(text).or_insert_with(|| {
            self.values.push(value);
            next
        })
    }

    pub(super) fn get(&self, number: u32) -> &T {
        &self.values[usize::try_from(number).expect("an index")]
    }

    pub(super) fn len(&self) -> usize {
        self.values.len()
    }
}

/// A record, and what a judge reads in it.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) record: SagaRecord,
    pub(super) facts: Facts,
}

/// What a decision came to.
#[derive(Debug, Clone)]
pub(super) enum Decided {
    /// Nothing changes.
    Ignore(Rec, Ignored),
    /// A new record, and what follows.
    Commit {
        record: Rec,
        commands: Vec<Cmd>,
        events: Vec<u32>,
        with_next: bool,
        notes: Vec<Noted>,
    },
}

/// What becomes of a message that a saga does not take in.
#[derive(Debug, Clone)]
pub(super) enum Noted {
    /// A person looks at it.
    Case(String),
    /// The next generation starts with it.
    Next(SagaId, String, Value),
}

/// What is decided upon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum In {
    /// An intake message, by the number of what it says.
    Said(u32),
    /// An answer.
    Reply(Ans),
    /// Something may be due.
    Timer,
    /// Another replica continues.
    Resume,
}

/// The wallet afterwards and the answer, or the law that was broken.
type Executed = Result<(u32, Ans), String>;

/// Saga, record, input, replica and its run.
type Question = (u32, Option<Rec>, In, u8, u8);

/// The tables of one search.
#[derive(Debug)]
pub(super) struct Ground {
    pub(super) scenario: Scenario,
    pub(super) sagas: Table<(SagaId, &'static Workflow)>,
    pub(super) said: Table<Said>,
    records: Table<Known>,
    commands: Table<(u32, Command)>,
    answers: Table<Reply>,
    pub(super) events: Table<(String, Value)>,
    decisions: Table<Decided>,
    decided: HashMap<Question, Result<Option<Dec>, String>>,
    later: HashMap<(Rec, i64), Rec>,
    later_commands: HashMap<(Cmd, i64), Cmd>,
    timers: HashMap<(Rec, Option<i64>), Rec>,
    executed: HashMap<(u32, Cmd, bool), Executed>,
    performed: HashMap<(u32, Cmd, bool), (u32, Ans)>,
    without: HashMap<(Cmd, bool), Ans>,
    /// Wallets whose books have been judged.
    pub(super) judged: HashSet<u32>,
    pub(super) ledgers: super::ledger::Ledgers,
    pub(super) core: super::core_side::CoreSides,
}

impl Ground {
    pub(super) fn new(scenario: Scenario) -> Self {
        Self {
            scenario,
            sagas: Table::new(),
            said: Table::new(),
            records: Table::new(),
            commands: Table::new(),
            answers: Table::new(),
            events: Table::new(),
            decisions: Table::new(),
            decided: HashMap::new(),
            later: HashMap::new(),
            later_commands: HashMap::new(),
            timers: HashMap::new(),
            executed: HashMap::new(),
            performed: HashMap::new(),
            without: HashMap::new(),
            judged: HashSet::new(),
            ledgers: super::ledger::Ledgers::new(),
            core: super::core_side::CoreSides::new(),
        }
    }

    pub(super) fn record(&self, rec: Rec) -> &SagaRecord {
        &self.records.get(rec).record
    }

    pub(super) fn facts(&self, rec: Rec) -> &Facts {
        &self.records.get(rec).facts
    }

    pub(super) fn command(&self, cmd: Cmd) -> &Command {
        &self.commands.get(cmd).1
    }

    pub(super) fn answer(&self, ans: Ans) -> &Reply {
        self.answers.get(ans)
    }

    pub(super) fn decision(&self, dec: Dec) -> &Decided {
        self.decisions.get(dec)
    }

    /// Milliseconds from now to the command's deadline.
    pub(super) fn deadline_ms(&self, cmd: Cmd) -> i64 {
        ms(self.command(cmd).deadline)
    }

    /// How many distinct questions the cores were asked.
    pub(super) fn questions(&self) -> usize {
        self.decided.len() + self.executed.len()
    }

    /// How many distinct records there are.
    pub(super) fn distinct_records(&self) -> usize {
        self.records.len()
    }

    pub(super) fn saga(&mut self, saga_id: &SagaId, workflow: &'static Workflow) -> u32 {
        self.sagas
            .number(saga_id.to_string(), (saga_id.clone(), workflow))
    }

    pub(super) fn say(&mut self, said: Said) -> u32 {
        self.said.number(format!("{said:?}"), said)
    }

    fn keep(&mut self, mut record: SagaRecord) -> Rec {
        let told = record.case.as_ref().map(|case| case.message.clone());
        settle(&mut record, 0);
        let json = serde_json::to_value(&record).expect("a record is JSON");
        let text = json.to_string();
        let facts = Facts::read(&json, told);
        self.records.number(text, Known { record, facts })
    }

    fn keep_answer(&mut self, reply: Reply) -> Ans {
        self.answers.number(format!("{reply:?}"), reply)
    }

    /// The answer to an attempt.
    fn answer_to(&mut self, cmd: Cmd, answer: Answer) -> Ans {
        let command = self.command(cmd);
        let reply = Reply {
            operation_id: command.operation_id.clone(),
            attempt: command.attempt,
            answer,
        };
        self.keep_answer(reply)
    }

    fn keep_command(&mut self, saga: u32, command: Command) -> Cmd {
        self.commands
            .number(format!("{saga} {command:?}"), (saga, command))
    }

    /// Asks the core, or remembers what it said; `None` when that needs a saga that exists. `Err` when it
    /// panicked.
    pub(super) fn decide(
        &mut self,
        saga: u32,
        rec: Option<Rec>,
        input: In,
        replica: (u8, u8),
    ) -> Result<Option<Dec>, String> {
        let key = (saga, rec, input, replica.0, replica.1);
        if let Some(known) = self.decided.get(&key) {
            return known.clone();
        }
        let decided = self.ask(saga, rec, input, replica);
        self.decided.insert(key, decided.clone());
        decided
    }

    fn ask(
        &mut self,
        saga: u32,
        rec: Option<Rec>,
        input: In,
        replica: (u8, u8),
    ) -> Result<Option<Dec>, String> {
        let name = replica_name(replica);
        let rules = self.scenario.rules.clone();
        let turn = Turn {
            now: NOW,
            replica: &name,
            rules: &rules,
        };
        let (saga_id, workflow) = self.sagas.get(saga).clone();
        let decision = match rec {
            None => {
                let In::Said(said) = input else {
                    return Ok(None);
                };
                let first = match self.said.get(said).clone() {
                    Said::Start(arrival) => {
                        return self
                            .keep_decision(
                                saga,
                                guard(|| saga::start(workflow, saga_id, arrival, turn))?,
                            )
                            .map(Some);
                    }
                    Said::Signal(signal) => Input::Signal(signal),
                    Said::Cancel(cancel) => Input::Cancel(cancel),
                };
                match guard(|| saga::expect(workflow, saga_id, first, turn))? {
                    Some(decision) => decision,
                    None => return Ok(None),
                }
            }
            Some(rec) => {
                let input = match input {
                    In::Said(said) => match self.said.get(said).clone() {
                        Said::Start(arrival) => Input::Arrival(arrival),
                        Said::Signal(signal) => Input::Signal(signal),
                        Said::Cancel(cancel) => Input::Cancel(cancel),
                    },
                    In::Reply(ans) => Input::Reply(self.answer(ans).clone()),
                    In::Timer => Input::Timer,
                    In::Resume => Input::Resume,
                };
                let record = self.record(rec).clone();
                guard(|| saga::decide(workflow, record, input, turn))?
            }
        };
        self.keep_decision(saga, decision).map(Some)
    }

    fn keep_decision(&mut self, saga: u32, decision: Decision) -> Result<Dec, String> {
        let decided = match decision {
            Decision::Ignore(record, reason) => Decided::Ignore(self.keep(*record), reason),
            Decision::Commit(commit) => {
                let commands = commit.commands.into_iter();
                let commands = commands.map(|command| self.keep_command(saga, command));
                Decided::Commit {
                    commands: commands.collect(),
                    events: self.keep_events(saga, commit.events),
                    with_next: commit.persist == Persist::WithNext,
                    notes: self.keep_notes(saga, commit.notes),
                    record: self.keep(commit.record),
                }
            }
        };
        Ok(self.decisions.number(format!("{decided:?}"), decided))
    }

    fn keep_events(&mut self, saga: u32, events: Vec<Event>) -> Vec<u32> {
        let number = |ground: &mut Self, event: Event| {
            let sum = event.body.get("credited").cloned().unwrap_or_default();
            let text = format!("{saga} {} {sum}", event.name);
            ground.events.number(text, (event.name.to_owned(), sum))
        };
        events
            .into_iter()
            .map(|event| number(self, event))
            .collect()
    }

    fn keep_notes(&self, saga: u32, notes: Vec<Note>) -> Vec<Noted> {
        let (saga_id, _) = self.sagas.get(saga);
        let noted = notes.into_iter().map(|note| match note {
            Note::OpenCase { reason, input, .. } => {
                let digest = contracts::subject::short_digest(input.to_string().as_bytes());
                Noted::Case(format!("{reason:?} {digest}"))
            }
            Note::StartNext { message_id, input } => {
                Noted::Next(saga::next_generation(saga_id), message_id, input)
            }
        });
        noted.collect()
    }

    /// A wallet executes a command, by a clock that may be behind ours.
    pub(super) fn execute(&mut self, ledger: u32, cmd: Cmd, behind: bool) -> Executed {
        let key = (ledger, cmd, behind);
        if let Some(known) = self.executed.get(&key) {
            return known.clone();
        }
        let executed = self.execute_anew(ledger, cmd, behind);
        self.executed.insert(key, executed.clone());
        executed
    }

    fn execute_anew(&mut self, ledger: u32, cmd: Cmd, behind: bool) -> Executed {
        let (saga, command) = self.commands.get(cmd).clone();
        let request = match asked(&command) {
            Ok(Asked::To(request)) => request,
            Ok(Asked::About(get)) => {
                return Err(format!(
                    "{get:?} is asked of a wallet that keeps tombstones"
                ));
            }
            Err(refusal) => return Ok((ledger, self.answer_to(cmd, refusal))),
        };
        let header = header(&self.sagas.get(saga).0, &command);
        let now = if behind { at(-SKEW_MS) } else { NOW };
        let (after, reply) = self.ledgers.execute(ledger, &header, &request, now);
        laws::on_executed(self, ledger, after, &header, now)?;
        Ok((after, self.answer_to(cmd, answer(reply, &command))))
    }

    /// The core's own side carries out a command; `refuse` is what the bank says to a payout.
    pub(super) fn perform(&mut self, core: u32, cmd: Cmd, refuse: bool) -> (u32, Ans) {
        let key = (core, cmd, refuse);
        if let Some(&known) = self.performed.get(&key) {
            return known;
        }
        let (saga, command) = self.commands.get(cmd).clone();
        let saga_id = self.sagas.get(saga).0.clone();
        let (after, answer) = self.core.execute(core, &saga_id, &command, refuse);
        let performed = (after, self.answer_to(cmd, answer));
        self.performed.insert(key, performed);
        performed
    }

    /// The answer to a command that nobody executed: that nobody was there, or that nobody can tell.
    pub(super) fn no_answer(&mut self, cmd: Cmd, unclear: bool) -> Ans {
        if let Some(&known) = self.without.get(&(cmd, unclear)) {
            return known;
        }
        let answer = if unclear {
            Answer::Unknown {
                message: "the database is away".to_owned(),
            }
        } else {
            Answer::NotExecuted {
                code: "no_responders".to_owned(),
                retry_after: SignedDuration::ZERO,
            }
        };
        let answer = self.answer_to(cmd, answer);
        self.without.insert((cmd, unclear), answer);
        answer
    }

    /// The record when so many milliseconds have passed.
    pub(super) fn record_later(&mut self, rec: Rec, by_ms: i64) -> Rec {
        if let Some(&later) = self.later.get(&(rec, by_ms)) {
            return later;
        }
        let mut record = self.record(rec).clone();
        settle(&mut record, by_ms);
        let later = self.keep(record);
        self.later.insert((rec, by_ms), later);
        later
    }

    /// The command when so many milliseconds have passed.
    pub(super) fn command_later(&mut self, cmd: Cmd, by_ms: i64) -> Cmd {
        if let Some(&later) = self.later_commands.get(&(cmd, by_ms)) {
            return later;
        }
        let (saga, mut command) = self.commands.get(cmd).clone();
        command.deadline = moved(command.deadline, by_ms);
        let later = self.keep_command(saga, command);
        self.later_commands.insert((cmd, by_ms), later);
        later
    }

    /// The record with this instant noted as that of its armed timer.
    pub(super) fn with_timer(&mut self, rec: Rec, timer_ms: Option<i64>) -> Rec {
        if let Some(&known) = self.timers.get(&(rec, timer_ms)) {
            return known;
        }
        let mut record = self.record(rec).clone();
        record.timer_at = timer_ms.map(at);
        let changed = self.keep(record);
        self.timers.insert((rec, timer_ms), changed);
        changed
    }
}

/// A replica's name: a new one for each run of its process.
pub(super) fn replica_name((replica, run): (u8, u8)) -> String {
    format!("{}{run}", if replica == 0 { "a" } else { "b" })
}

/// Whether the record names this replica's run as the saga's owner.
pub(super) fn owns(record: &SagaRecord, (replica, run): (u8, u8)) -> bool {
    let (name, number) = record.owner.split_at(1.min(record.owner.len()));
    let number = number.bytes().try_fold(0_u8, |number, digit| {
        number
            .checked_mul(10)?
            .checked_add(digit.checked_sub(b'0')?)
    });
    name == if replica == 0 { "a" } else { "b" } && number == Some(run)
}

fn guard<T>(decide: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(decide)).map_err(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        format!("the core panicked: {}", text.unwrap_or_default())
    })
}
