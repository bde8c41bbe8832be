//! The saga core: decides, without I/O, clock or randomness.
//!
//! `decide(workflow, record, input, turn)` applies what happened to the record, runs the workflow
//! again over what is known now, and says what to store and what to send afterwards.
//!
//! | direction | what advances it | where |
//! |---|---|---|
//! | forward | the workflow function, up to the first thing not known | `forward` |
//! | cancelling | the newest effect not settled yet | `compensation` |
//! | ended | nothing; a late answer is compared with what was settled | `review` |
//! | not started | the start; what was said before is kept until then | `early` |
//!
//! | operation, then | applied | refused | not executed | silence past its deadline |
//! |---|---|---|---|---|
//! | in flight, budget left | applied | not applied | back off | back off, doubtful |
//! | in flight, budget spent | applied | not applied | not applied if never doubtful, else unknown | unknown |
//! | backing off | applied | not applied | as it is | sent again |
//! | unknown | applied | not applied | as it is | as it is |
//! | applied | same | case | as it is | as it is |
//! | not applied | case | same | as it is | as it is |
//!
//! A direction that has turned never turns again. Each effect that may exist is settled before the
//! saga ends: we never report a saga as cancelled, failed or completed while a command we issued
//! could still move money.

pub mod action;
pub mod by_hand;
mod compensation;
mod early;
mod ending;
pub mod flow;
mod forward;
pub mod input;
mod operation;
pub mod operator;
pub mod policy;
pub mod record;
mod review;
pub mod rules;
mod signal;
#[cfg(test)]
mod tests;

use contracts::id::SagaId;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use std::collections::BTreeMap;

use action::{Commit, Decision, Event, Ignored, Note, Persist};
use by_hand::ByHand;
use flow::{Cx, Flow};
use input::{Arrival, Input};

pub use early::expect;
pub use ending::{earlier_generations, next_generation};
use policy::after;
use record::{CaseReason, Direction, SCHEMA, SagaRecord, Status};
use rules::Rules;

pub use operator::{Preview, amount_at_risk, next_verbs, preview};
pub use review::{CASE_OPENED, CASE_WORKFLOW, case_record};

/// A kind of saga: a pure function over named facts, and what else the core must know of it.
#[derive(Clone, Copy)]
pub struct Workflow {
    /// Its name, the first part of its sagas' ids.
    pub name: &'static str,
    /// Its version; a saga keeps the version it was started with.
    pub version: u32,
    /// How long a saga may take before its direction changes.
    pub deadline: SignedDuration,
    /// Which saga an input is about; `id` is the caller's own. An input that is none is refused.
    pub identify: fn(id: &str, input: &Value) -> Result<SagaId, String>,
    /// Whether the workflow can read a signal; what it cannot is kept beside the saga.
    pub check_signal: fn(name: &str, body: &Value) -> Result<(), String>,
    /// The function itself.
    pub run: fn(&mut Cx<'_>, &Value) -> Flow<Value>,
    /// What a message means that would have started a saga which exists.
    pub arrival: fn(&SagaRecord, &Value) -> ArrivalMeaning,
    /// What others are told when a saga has ended turned back; belongs to the write that ends it.
    pub turned_back: fn(&SagaRecord) -> Option<Event>,
}

impl std::fmt::Debug for Workflow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} v{}", self.name, self.version)
    }
}

/// What a message means to a saga that exists already.
#[derive(Debug, Clone, PartialEq)]
pub enum ArrivalMeaning {
    /// The same fact again.
    Duplicate,
    /// Not for this saga, and a person has to look: the same fact with other numbers, money going back.
    Review {
        /// Which kind of case.
        reason: CaseReason,
        /// What is the matter.
        message: String,
    },
    /// Something new, said to this saga under this signal name.
    Signal {
        /// The signal's name.
        name: &'static str,
        /// The sender's id of it, by which a repeat is told.
        id: String,
    },
    /// Something new that came too late to matter; kept with the saga.
    Late,
    /// The saga has ended without this; the next generation takes it up.
    StartNext,
}

/// Who decides, and when.
#[derive(Debug, Clone, Copy)]
pub struct Turn<'a> {
    /// The time of the decision.
    pub now: Timestamp,
    /// The replica that decides; a new one for each run of the process.
    pub replica: &'a str,
    /// What this installation lays down; the same at each replica.
    pub rules: &'a Rules,
}

/// Starts a saga that has no record.
#[must_use]
pub fn start(workflow: &Workflow, saga_id: SagaId, arrival: Arrival, turn: Turn<'_>) -> Decision {
    let mut record = new_record(workflow.name, workflow.version, saga_id, turn);
    begin(&mut record, workflow, arrival, turn);
    advance(workflow, record, turn, Vec::new(), Persist::WithNext)
}

/// What the start brings.
fn begin(record: &mut SagaRecord, workflow: &Workflow, arrival: Arrival, turn: Turn<'_>) {
    record.version = workflow.version;
    record.status = Status::Running;
    record.phase = None;
    record.case = None;
    "started".clone_into(&mut record.cause);
    record.started_at = turn.now;
    record.last_progress_at = turn.now;
    record.deadline_at = Some(after(turn.now, workflow.deadline));
    record.input = arrival.input;
    record.note_seen(&arrival.message_id);
}

/// A saga at its start, forward and without steps.
fn new_record(workflow: &str, version: u32, saga_id: SagaId, turn: Turn<'_>) -> SagaRecord {
    SagaRecord {
        schema: SCHEMA,
        saga_id,
        workflow: workflow.to_owned(),
        version,
        status: Status::Running,
        phase: None,
        direction: Direction::Forward,
        epoch: 1,
        owner: turn.replica.to_owned(),
        cause: "started".to_owned(),
        started_at: turn.now,
        last_progress_at: turn.now,
        deadline_at: None,
        wake_at: None,
        timer_at: None,
        ended_at: None,
        attributes: BTreeMap::new(),
        input: Value::Null,
        steps: Vec::new(),
        signals: Vec::new(),
        facts: BTreeMap::new(),
        awaiting: Vec::new(),
        events: Vec::new(),
        seen: Vec::new(),
        duplicates: 0,
        result: None,
        case: None,
        by_hand: ByHand::default(),
    }
}

/// Decides about a record that is nothing but a case: only people can do something about it.
#[must_use]
pub fn decide_case(record: SagaRecord, input: Input, turn: Turn<'_>) -> Decision {
    match input {
        Input::Operator(operator) => operator::on_operator(None, record, operator, turn),
        Input::Cancel(cancel) => {
            let request = signal::as_request(&record, cancel);
            operator::on_operator(None, record, request, turn)
        }
        Input::Arrival(_) | Input::Reply(_) | Input::Signal(_) | Input::Timer | Input::Resume => {
            Decision::Ignore(Box::new(record), Ignored::Ended)
        }
    }
}

/// Decides one transition of a saga.
#[must_use]
pub fn decide(workflow: &Workflow, record: SagaRecord, input: Input, turn: Turn<'_>) -> Decision {
    if !record.is_started() && !record.status.is_terminal() {
        return early::decide(workflow, record, input, turn);
    }
    match input {
        Input::Arrival(arrival) => signal::on_arrival(workflow, record, arrival, turn),
        Input::Signal(signal) => signal::on_signal(workflow, record, signal, turn),
        Input::Cancel(cancel) => signal::on_cancel(workflow, record, cancel, turn),
        Input::Operator(operator) => operator::on_operator(Some(workflow), record, operator, turn),
        Input::Reply(reply) => {
            let mut record = record;
            if record.status.is_terminal() {
                return review::on_late_reply(record, &reply, turn);
            }
            match operation::on_reply(&mut record, &reply, turn) {
                operation::Applied::Changed => {
                    advance(workflow, record, turn, Vec::new(), Persist::WithNext)
                }
                operation::Applied::Nothing(reason) => Decision::Ignore(Box::new(record), reason),
            }
        }
        Input::Timer => on_timer(workflow, record, turn),
        Input::Resume => on_resume(workflow, record, turn),
    }
}

fn on_timer(workflow: &Workflow, mut record: SagaRecord, turn: Turn<'_>) -> Decision {
    if record.status.is_terminal() {
        return Decision::Ignore(Box::new(record), Ignored::Ended);
    }
    if record.is_held() {
        return Decision::Ignore(Box::new(record), Ignored::Held);
    }
    let due = record.next_due().is_some_and(|due| due <= turn.now);
    let resent = operation::on_time(&mut record, turn);
    if !due && resent.is_empty() {
        return Decision::Ignore(Box::new(record), Ignored::NothingDue);
    }
    "timer".clone_into(&mut record.cause);
    advance(workflow, record, turn, resent, Persist::Now)
}

/// The one before us may have sent anything that is in flight and may have died with the answer: each
/// such operation is sent again under the same id with a higher fence.
fn on_resume(workflow: &Workflow, mut record: SagaRecord, turn: Turn<'_>) -> Decision {
    if record.status.is_terminal() {
        return Decision::Ignore(Box::new(record), Ignored::Ended);
    }
    // Nobody has to drive it; whoever lets it go on takes it over then.
    if record.is_held() {
        return Decision::Ignore(Box::new(record), Ignored::Held);
    }
    if record.owner == turn.replica {
        return Decision::Ignore(Box::new(record), Ignored::OwnAlready);
    }
    record.cause = format!("taken over from {}", record.owner);
    take_ownership(&mut record, turn);
    let resent = operation::send_again_all(&mut record, turn);
    advance(workflow, record, turn, resent, Persist::Now)
}

fn take_ownership(record: &mut SagaRecord, turn: Turn<'_>) {
    record.raise_epoch_above(record.epoch);
    turn.replica.clone_into(&mut record.owner);
}

/// Runs the saga on as far as it goes without news from outside.
fn advance(
    workflow: &Workflow,
    mut record: SagaRecord,
    turn: Turn<'_>,
    mut commands: Vec<action::Command>,
    persist: Persist,
) -> Decision {
    if record.is_held() {
        // What was said is kept; what follows from it is decided when a person lets the saga go on.
        return store(record, Vec::new());
    }
    let mut events: Vec<Event> = Vec::new();
    loop {
        let step = match record.direction {
            Direction::Forward => {
                forward::advance(workflow, &mut record, turn, &mut commands, &mut events)
            }
            Direction::Cancelling { .. } => {
                compensation::advance(workflow, &mut record, turn, &mut commands, &mut events)
            }
        };
        match step {
            Advance::Again => {}
            Advance::Rest => break,
        }
    }
    // What was to be sent again is not done any more if the saga has turned back meanwhile.
    if record.direction != Direction::Forward {
        commands.retain(|command| {
            let mut steps = record.steps.iter();
            steps.all(|step| step.forward.operation_id != command.operation_id)
        });
    }
    // Whoever sends is the owner, and a new owner has a higher fence than any before. Where nothing is
    // in flight nobody else has to be waited for, and whoever decides drives the saga from here on.
    if record.owner != turn.replica && (!commands.is_empty() || !record.has_in_flight()) {
        take_ownership(&mut record, turn);
    }
    for command in &mut commands {
        command.fence = record.epoch;
    }
    finish_revision(&mut record);
    let repeatable = record.status == Status::Running
        && record.direction == Direction::Forward
        && !commands.is_empty()
        && events.is_empty()
        && commands.iter().all(|command| {
            command.attempt == 1
                && record.steps.iter().any(|step| {
                    step.forward.operation_id == command.operation_id && step.forward.repeatable
                })
        });
    let persist = if repeatable { persist } else { Persist::Now };
    let notes = if record.status.is_terminal() {
        ending::left_over(workflow, &record)
    } else {
        Vec::new()
    };
    Decision::Commit(Box::new(Commit {
        record,
        commands,
        events,
        persist,
        notes,
        audit: None,
    }))
}

/// Whether an advance goes on at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Advance {
    /// The direction changed: look again.
    Again,
    /// Nothing more without news from outside.
    Rest,
}

/// A change that moves nothing.
fn store(mut record: SagaRecord, notes: Vec<Note>) -> Decision {
    finish_revision(&mut record);
    Decision::Commit(Box::new(Commit {
        record,
        commands: Vec::new(),
        events: Vec::new(),
        persist: Persist::Now,
        notes,
        audit: None,
    }))
}

/// What each revision says of itself: when something is due, and what a case puts at risk.
fn finish_revision(record: &mut SagaRecord) {
    // The deadline has done its work. It must not come back when the pivot is asked about once more.
    if record.is_past_pivot() {
        record.deadline_at = None;
    }
    record.wake_at = record.next_due();
    if record.case.is_some() {
        let at_risk = operator::amount_at_risk(record);
        if let Some(case) = &mut record.case {
            case.amount_at_risk = at_risk;
        }
    }
}
