//! The workflow under test, the script of a test, and what is checked after each of its moves.

use contracts::audit::AuditEntry;
use contracts::id::SagaId;
use contracts::intake::{OperatorRequest, OperatorVerb};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::saga::action::{Command, Decision, Note};
use crate::saga::flow::{Cx, Flow, Request, Step};
use crate::saga::input::{Answer, Arrival, Input, Operator, Reply, Signal};
use crate::saga::record::{CaseReason, Participant, SagaRecord, Status};
use crate::saga::rules::Rules;
use crate::saga::{ArrivalMeaning, Turn, Workflow, decide, rules, start};

macro_rules! step {
    ($type:ident, $name:literal, repeatable: $repeatable:literal) => {
        #[derive(Debug, Serialize, Deserialize)]
        pub(super) struct $type {
            pub(super) to: u32,
        }
        impl Request for $type {
            const KIND: &'static str = $name;
            const REPEATABLE: bool = $repeatable;
            fn participant(&self) -> Participant {
                Participant::Core
            }
        }
        impl Step for $type {
            const NAME: &'static str = $name;
            type Reply = Value;
        }
    };
}

step!(Reserve, "reserve", repeatable: true);
step!(Quote, "quote", repeatable: true);
step!(Pay, "pay", repeatable: false);
step!(Tell, "tell", repeatable: true);
step!(Undo, "undo", repeatable: false);

/// reserve (undo), quote (patient), pay (undo, pivot), tell.
fn four_steps(cx: &mut Cx<'_>, input: &Value) -> Flow<Value> {
    cx.step(Reserve { to: 1 }).undo(&Undo { to: 1 }).run()?;
    if input["wait"] == true {
        let Some(word) = cx.signal::<Value>("word", SignedDuration::from_mins(30))? else {
            return cx.time_out("no word came");
        };
        if word == json!("no") {
            return cx.refuse("the word was no");
        }
    }
    if input["panic"] == true {
        panic!("a bug");
    }
    let quote = cx.step(Quote { to: 2 }).patient().run()?;
    if input["renamed"] == true {
        // What was `pay` is called otherwise from now on.
        cx.step(Tell { to: 3 }).run()?;
    }
    let to = if input["drift"] == true && !quote.is_null() {
        4
    } else {
        3
    };
    cx.step(Pay { to })
        .undo(&Undo { to: 3 })
        .own_operation()
        .pivot()
        .run()?;
    cx.step(Tell { to: 4 }).run()?;
    cx.emit("done", &"eu".parse().expect("region"), &quote)?;
    Ok(quote)
}

fn any_arrival(record: &SagaRecord, input: &Value) -> ArrivalMeaning {
    if record.input == *input {
        ArrivalMeaning::Duplicate
    } else {
        let message = "other".to_owned();
        ArrivalMeaning::Review {
            reason: CaseReason::ConflictingFact,
            message,
        }
    }
}

pub(super) static WORKFLOW: Workflow = Workflow {
    name: "four",
    version: 1,
    deadline: SignedDuration::from_hours(1),
    identify: |id, _| Ok(SagaId::from_parts("four", &[id])),
    check_signal: |_, _| Ok(()),
    run: four_steps,
    arrival: any_arrival,
    turned_back: |_| None,
};

/// One thing that happens.
#[derive(Debug, Clone)]
pub(super) enum Move {
    /// The newest command for this step is answered `Applied`.
    Done(&'static str),
    /// … refused for good.
    Refuse(&'static str),
    /// … not executed: nobody there.
    Nobody(&'static str),
    /// … not sent: the way to its participant is closed.
    Closed(&'static str),
    /// … of unknown outcome.
    Unclear(&'static str),
    /// … not executed and never will be, as the participant does not understand it.
    Alien(&'static str),
    /// … known with other parameters.
    Conflict(&'static str),
    /// … refused for a fence this high.
    Stale(&'static str, u64),
    /// Nothing is heard: time passes to what is due next, and the timer fires.
    Silence,
    /// So many seconds pass and a timer fires.
    Seconds(i64),
    /// A signal `word` with this id and body.
    Word(&'static str, &'static str),
    /// Somebody asks to cancel.
    Cancel,
    /// A person does something by hand, in a request of its own.
    Hand(&'static str, OperatorVerb),
    /// Another replica continues.
    Takeover(&'static str),
    /// As `Silence`, and the timer reaches this replica.
    Orphaned(&'static str),
    /// The start comes again, in another message.
    Again,
    /// The start comes again with another input.
    Different,
}

/// A saga and the commands it has sent.
pub(super) struct Saga {
    pub(super) record: SagaRecord,
    pub(super) sent: Vec<Command>,
    pub(super) events: Vec<&'static str>,
    pub(super) notes: Vec<Note>,
    pub(super) now: Timestamp,
    pub(super) replica: &'static str,
    pub(super) messages: u32,
    pub(super) rules: &'static Rules,
    pub(super) audit: Vec<AuditEntry>,
}

impl Saga {
    pub(super) fn start(input: Value) -> Self {
        let now: Timestamp = "2030-01-01T00:00:00Z".parse().expect("instant");
        let arrival = Arrival {
            message_id: "m0".to_owned(),
            input,
        };
        let turn = Turn {
            now,
            replica: "a",
            rules: &rules::DEFAULT,
        };
        let decision = start(&WORKFLOW, SagaId::from_parts("four", &["x"]), arrival, turn);
        let Decision::Commit(commit) = decision else {
            panic!("a start commits")
        };
        Self {
            record: commit.record,
            sent: commit.commands,
            events: Vec::new(),
            notes: Vec::new(),
            now,
            replica: "a",
            messages: 0,
            rules: &rules::DEFAULT,
            audit: Vec::new(),
        }
    }

    pub(super) fn play(&mut self, moves: &[Move]) {
        for step in moves {
            let input = self.input(step);
            self.take(input, &format!("{step:?}"));
        }
    }

    pub(super) fn turn(&self) -> Turn<'static> {
        Turn {
            now: self.now,
            replica: self.replica,
            rules: self.rules,
        }
    }

    pub(super) fn take(&mut self, input: Input, step: &str) {
        let before = self.record.clone();
        let sent = self.sent.len();
        match decide(&WORKFLOW, self.record.clone(), input, self.turn()) {
            Decision::Ignore(record, _) => self.record = *record,
            Decision::Commit(commit) => {
                self.record = commit.record;
                self.sent.extend(commit.commands);
                self.events
                    .extend(commit.events.iter().map(|event| event.name));
                self.notes.extend(commit.notes);
                self.audit.extend(commit.audit.map(|entry| *entry));
            }
        }
        self.check_laws(&before, step);
        let still = before.is_held() && self.record.is_held();
        assert!(!still || self.sent.len() == sent, "{step}: sent while held");
    }

    /// What holds after every move, whatever the script.
    fn check_laws(&self, before: &SagaRecord, step: &str) {
        let (was, is) = (before, &self.record);
        assert!(is.epoch >= was.epoch, "{step}: the epoch fell");
        let turned =
            |record: &SagaRecord| record.direction != crate::saga::record::Direction::Forward;
        assert!(
            !turned(was) || turned(is),
            "{step}: the direction turned again"
        );
        let rests = is.status.is_terminal() || is.status == Status::NeedsReview || is.is_held();
        assert!(
            rests || is.wake_at.is_some(),
            "{step}: nothing drives the saga: {is:#?}"
        );
        assert!(
            !is.is_held() || is.wake_at.is_none(),
            "{step}: a clock runs while held"
        );
        if was.status.is_terminal() && is.status != Status::NeedsReview {
            assert_eq!(was.status, is.status, "{step}: an ended saga moved");
        }
        if is.status.is_terminal() {
            assert!(is.operations().all(|operation| !matches!(
                operation.outcome,
                crate::saga::record::Outcome::BackingOff { .. }
            )));
            let unsettled = is.steps.iter().any(|step| {
                turned(is)
                    && step.forward.outcome.may_have_effect()
                    && step.undo.as_ref().is_some_and(|undo| {
                        !matches!(undo.outcome, crate::saga::record::Outcome::Applied { .. })
                    })
            });
            assert!(!unsettled, "{step}: ended with an effect not settled");
        }
    }

    fn input(&mut self, step: &Move) -> Input {
        self.messages += 1;
        let message_id = format!("m{}", self.messages);
        match step {
            Move::Done(name) => self.reply(name, Answer::Applied(json!("fine"))),
            Move::Refuse(name) => self.reply(
                name,
                Answer::Refused {
                    code: "no".to_owned(),
                    message: "refused".to_owned(),
                },
            ),
            Move::Nobody(name) => self.reply(
                name,
                Answer::NotExecuted {
                    code: "no_responders".to_owned(),
                    retry_after: SignedDuration::ZERO,
                },
            ),
            Move::Closed(name) => self.reply(
                name,
                Answer::HeldBack {
                    code: "region_silent".to_owned(),
                    retry_after: SignedDuration::from_secs(5),
                },
            ),
            Move::Unclear(name) => self.reply(
                name,
                Answer::Unknown {
                    message: "broken pipe".to_owned(),
                },
            ),
            Move::Alien(name) => self.reply(
                name,
                Answer::Unacceptable {
                    code: "invalid".to_owned(),
                    message: "an older build".to_owned(),
                },
            ),
            Move::Conflict(name) => self.reply(
                name,
                Answer::Conflict {
                    fields: vec!["money".to_owned()],
                },
            ),
            Move::Stale(name, seen_fence) => self.reply(
                name,
                Answer::Stale {
                    seen_fence: *seen_fence,
                },
            ),
            Move::Silence => {
                self.now = self.record.next_due().expect("something is due");
                Input::Timer
            }
            Move::Seconds(seconds) => {
                self.now = self
                    .now
                    .checked_add(SignedDuration::from_secs(*seconds))
                    .expect("time");
                Input::Timer
            }
            Move::Word(id, body) => Input::Signal(Signal {
                message_id,
                name: "word".to_owned(),
                id: (*id).to_owned(),
                body: json!(body),
            }),
            Move::Cancel => Input::Cancel(crate::saga::input::Cancel {
                message_id,
                reason: "asked".to_owned(),
                by: "op".to_owned(),
            }),
            Move::Hand(by, verb) => {
                let request = OperatorRequest {
                    saga_id: self.record.saga_id.clone(),
                    id: format!("r{}", self.messages),
                    verb: verb.clone(),
                    reason: "a reason".to_owned(),
                    by: (*by).to_owned(),
                };
                Input::Operator(Operator {
                    message_id,
                    request,
                })
            }
            Move::Takeover(replica) => {
                self.replica = replica;
                Input::Resume
            }
            Move::Orphaned(replica) => {
                self.replica = replica;
                self.now = self.record.next_due().expect("something is due");
                Input::Timer
            }
            Move::Again => Input::Arrival(Arrival {
                message_id,
                input: self.record.input.clone(),
            }),
            Move::Different => Input::Arrival(Arrival {
                message_id,
                input: json!("other"),
            }),
        }
    }

    fn reply(&self, step: &str, answer: Answer) -> Input {
        let command = self.sent.iter().rev().find(|command| command.step == step);
        let command =
            command.unwrap_or_else(|| panic!("{step} was never sent: {:?}", self.steps_sent()));
        Input::Reply(Reply {
            operation_id: command.operation_id.clone(),
            attempt: command.attempt,
            answer,
        })
    }

    pub(super) fn steps_sent(&self) -> String {
        self.sent
            .iter()
            .map(|command| command.step.as_str())
            .collect::<Vec<_>>()
            .join(", ")
    }
}

/// Plays `moves` and compares status and the commands sent, in order.
pub(super) fn check(input: Value, moves: &[Move], status: Status, sent: &str) -> Saga {
    let mut saga = Saga::start(input);
    saga.play(moves);
    assert_eq!(saga.record.status, status, "{moves:?}\n{:#?}", saga.record);
    assert_eq!(saga.steps_sent(), sent, "{moves:?}");
    saga
}

pub(super) fn case(saga: &Saga) -> Option<CaseReason> {
    saga.record.case.as_ref().map(|case| case.reason)
}
