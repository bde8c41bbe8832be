//! What a workflow function sees: named facts of the past, and a way to ask for the next thing.
//!
//! A workflow is a plain function that is run again from the top at every decision. It holds no
//! handle, so it cannot fetch a rate, read a clock or draw an id: what is known comes from the record
//! by name, and `?` suspends at the first thing that is not known yet.

mod step;

use std::collections::{BTreeMap, HashMap};

use contracts::id::Region;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::action::Event;
use super::policy::after;
use super::record::{Awaiting, CaseReason, Participant, SagaRecord, StepRecord, TurnReason};

pub use step::StepBuilder;

/// What a workflow function returns while it runs.
pub type Flow<T> = Result<T, Suspend>;

/// Why a workflow does not go on now.
#[derive(Debug, Clone, PartialEq)]
pub enum Suspend {
    /// Something asked for is not known yet.
    Waiting,
    /// Turn back and settle what has been done.
    Stop {
        /// Why.
        reason: TurnReason,
        /// For a person.
        message: String,
    },
    /// A person must look; nothing further is sent.
    Review {
        /// Which kind of case.
        reason: CaseReason,
        /// What happened and what can be done.
        message: String,
    },
}

/// A request to a participant; the type is the step's kind, its fields are the parameters.
pub trait Request: Serialize {
    /// What the participant is asked for, such as `wallet.update`.
    const KIND: &'static str;
    /// Repeating it is harmless, and so is having asked for it on facts that are forgotten when another
    /// replica was first. Then no commit is needed before it leaves, and its operation id names its
    /// parameters too, as other facts ask for something else. Never true for a wallet movement, nor for
    /// what closes something.
    const REPEATABLE: bool = false;
    /// Who performs it.
    fn participant(&self) -> Participant;
}

/// A request that is a step of a workflow.
pub trait Step: Request {
    /// The step's name: `a-z0-9-`.
    const NAME: &'static str;
    /// What the participant answers.
    type Reply: DeserializeOwned;
}

/// A workflow's view of its saga.
#[derive(Debug)]
pub struct Cx<'a> {
    record: &'a SagaRecord,
    now: Timestamp,
    names: HashMap<&'static str, u32>,
    pub(super) wanted: Vec<StepRecord>,
    pub(super) awaiting: Vec<Awaiting>,
    pub(super) facts: BTreeMap<String, Value>,
    pub(super) events: Vec<Event>,
    pub(super) attributes: BTreeMap<String, String>,
    pub(super) phase: Option<String>,
}

/// A participant's definite refusal of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Which step.
    pub step: String,
    /// Short code.
    pub code: String,
    /// For a person.
    pub message: String,
}

/// Which of several things came first.
#[derive(Debug, Clone, PartialEq)]
pub enum Selected<T> {
    /// A signal of this name.
    Signal {
        /// Which of the names waited for.
        name: String,
        /// What it says.
        body: T,
    },
    /// None in time.
    Deadline,
}

impl<'a> Cx<'a> {
    pub(super) fn new(record: &'a SagaRecord, now: Timestamp) -> Self {
        Self {
            record,
            now,
            names: HashMap::new(),
            wanted: Vec::new(),
            awaiting: Vec::new(),
            facts: BTreeMap::new(),
            events: Vec::new(),
            attributes: BTreeMap::new(),
            phase: None,
        }
    }

    /// The saga's id, for events and references.
    #[must_use]
    pub fn saga_id(&self) -> &'a contracts::id::SagaId {
        &self.record.saga_id
    }

    /// Labels where the saga stands, for searching.
    pub fn phase(&mut self, label: &str) {
        self.phase = Some(label.to_owned());
    }

    /// Sets a search attribute.
    pub fn attribute(&mut self, name: &str, value: impl Into<String>) {
        self.attributes.insert(name.to_owned(), value.into());
    }

    /// Describes a step. The same name again is its next repetition (`name#2`).
    pub fn step<S: Step>(&mut self, step: S) -> StepBuilder<'_, 'a, S> {
        StepBuilder::new(self, step)
    }

    /// Waits for a signal of this name, at most so long after first asking. `None` when it does not
    /// come in time; which it was is a fact and does not change afterwards.
    ///
    /// # Errors
    /// Suspends until one of the two is known.
    pub fn signal<T: DeserializeOwned>(
        &mut self,
        name: &'static str,
        within: SignedDuration,
    ) -> Flow<Option<T>> {
        match self.select(&[name], within)? {
            Selected::Signal { body, .. } => Ok(Some(body)),
            Selected::Deadline => Ok(None),
        }
    }

    /// Waits for the first of several signals or the deadline.
    ///
    /// # Errors
    /// Suspends until one of them is known.
    pub fn select<T: DeserializeOwned>(
        &mut self,
        names: &[&'static str],
        within: SignedDuration,
    ) -> Flow<Selected<T>> {
        let fact = self.numbered("select");
        if let Some(chosen) = self.known(&format!("{fact}/chosen")).cloned() {
            return self.chosen(&chosen);
        }
        let until = self.deadline_fact(&fact, within)?;
        // A signal that is here wins over a deadline that has passed but was not acted upon.
        let arrived = self.record.signals.iter().find(|signal| {
            names.contains(&signal.name.as_str())
                && !self.record.is_consumed(&signal.id)
                && !self
                    .facts
                    .values()
                    .any(|fact| SagaRecord::consumes(fact, &signal.id))
        });
        let chosen = match arrived {
            Some(signal) => json!({ "signal": signal.id, "name": signal.name }),
            None if self.now >= until => json!({ "deadline": until }),
            None => {
                let signals = names.iter().map(|&name| name.to_owned()).collect();
                self.awaiting.push(Awaiting { signals, until });
                return Err(Suspend::Waiting);
            }
        };
        self.facts.insert(format!("{fact}/chosen"), chosen.clone());
        self.chosen(&chosen)
    }

    /// Sleeps durably.
    ///
    /// # Errors
    /// Suspends until the time has come.
    pub fn sleep(&mut self, duration: SignedDuration) -> Flow<()> {
        let fact = self.numbered("sleep");
        let until = self.deadline_fact(&fact, duration)?;
        if self.now >= until {
            return Ok(());
        }
        self.awaiting.push(Awaiting {
            signals: Vec::new(),
            until,
        });
        Err(Suspend::Waiting)
    }

    /// The time at which the workflow first came here; the same ever after.
    ///
    /// # Errors
    /// A stored fact that is no time is a case.
    pub fn now(&mut self) -> Flow<Timestamp> {
        let fact = self.numbered("now");
        self.pinned(fact, |now| now)
    }

    /// Puts an event in the log, in the same write that stores this decision. Emitted once.
    pub fn emit<T: Serialize>(
        &mut self,
        name: &'static str,
        region: &Region,
        body: &T,
    ) -> Flow<()> {
        if self.record.events.iter().any(|emitted| emitted == name) {
            return Ok(());
        }
        let body = serde_json::to_value(body).map_err(|error| broken(name, &error))?;
        self.events.push(Event {
            name,
            region: region.clone(),
            body,
        });
        Ok(())
    }

    /// Turns the saga back because the workflow decides so.
    ///
    /// # Errors
    /// Always: it is what a workflow returns.
    pub fn refuse<T>(&self, message: impl Into<String>) -> Flow<T> {
        Err(Suspend::Stop {
            reason: TurnReason::Refused,
            message: message.into(),
        })
    }

    /// Turns the saga back because something did not come in time.
    ///
    /// # Errors
    /// Always.
    pub fn time_out<T>(&self, message: impl Into<String>) -> Flow<T> {
        Err(Suspend::Stop {
            reason: TurnReason::TimedOut,
            message: message.into(),
        })
    }

    /// Asks a person; nothing further is sent until then.
    ///
    /// # Errors
    /// Always.
    pub fn review<T>(&self, reason: CaseReason, message: impl Into<String>) -> Flow<T> {
        Err(Suspend::Review {
            reason,
            message: message.into(),
        })
    }

    fn chosen<T: DeserializeOwned>(&self, chosen: &Value) -> Flow<Selected<T>> {
        let Some(id) = chosen.get("signal").and_then(Value::as_str) else {
            return Ok(Selected::Deadline);
        };
        let Some(signal) = self.record.signals.iter().find(|signal| signal.id == id) else {
            return Err(Suspend::Review {
                reason: CaseReason::Poison,
                message: format!("the record chose signal {id:?} but does not hold it"),
            });
        };
        let body = T::deserialize(&signal.body).map_err(|error| Suspend::Review {
            reason: CaseReason::Poison,
            message: format!("signal {:?} ({id}): {error}", signal.name),
        })?;
        Ok(Selected::Signal {
            name: signal.name.clone(),
            body,
        })
    }

    fn deadline_fact(&mut self, fact: &str, within: SignedDuration) -> Flow<Timestamp> {
        self.pinned(format!("{fact}{UNTIL}"), |now| after(now, within))
    }

    fn pinned(
        &mut self,
        fact: String,
        make: impl FnOnce(Timestamp) -> Timestamp,
    ) -> Flow<Timestamp> {
        if let Some(known) = self.known(&fact) {
            return serde_json::from_value(known.clone()).map_err(|error| broken(&fact, &error));
        }
        let instant = make(self.now);
        self.facts.insert(fact, json!(instant));
        Ok(instant)
    }

    fn known(&self, fact: &str) -> Option<&Value> {
        self.facts.get(fact).or_else(|| self.record.facts.get(fact))
    }

    /// A step that was issued once and that this run did not come by. What is known only grows, so a
    /// workflow that has not changed comes by all of them before it asks for anything new or ends.
    pub(super) fn passed_over(&self) -> Option<&'a StepRecord> {
        self.record.steps.iter().find(|step| {
            let (name, number) = match step.name.as_str().split_once('#') {
                Some((name, number)) => (name, number.parse().unwrap_or(u32::MAX)),
                None => (step.name.as_str(), 1),
            };
            self.names.get(name).is_none_or(|&count| count < number)
        })
    }

    /// `name`, then `name#2`, `name#3` as the workflow comes by again.
    fn numbered(&mut self, name: &'static str) -> String {
        let count = self.names.entry(name).or_insert(0);
        *count += 1;
        if *count == 1 {
            name.to_owned()
        } else {
            format!("{name}#{count}")
        }
    }
}

/// Both of two steps that run side by side. Ask for both first, then join what came back.
///
/// # Errors
/// A decision to stop or to ask a person goes before waiting.
pub fn join<A, B>(a: Flow<A>, b: Flow<B>) -> Flow<(A, B)> {
    match (a, b) {
        (Ok(a), Ok(b)) => Ok((a, b)),
        (Err(Suspend::Waiting), Err(other)) => Err(other),
        (Err(first), _) => Err(first),
        (Ok(_), Err(second)) => Err(second),
    }
}

/// Code of an operation that provably never reached its participant.
pub(super) const UNREACHABLE: &str = "unreachable";

/// How the name of a fact ends that says until when something is waited for.
const UNTIL: &str = "/until";

/// Whether a fact says until when something is waited for.
pub(super) fn is_until(fact: &str) -> bool {
    fact.ends_with(UNTIL)
}

fn broken(what: &str, error: &dyn std::fmt::Display) -> Suspend {
    Suspend::Review {
        reason: CaseReason::Poison,
        message: format!("{what}: {error}"),
    }
}
