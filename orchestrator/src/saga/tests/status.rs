//! A participant without tombstones: what became of a step is known before its undo is sent.

use contracts::command::{Movement, WalletRevert, WalletUpdate};
use contracts::id::{Region, SagaId};
use contracts::money::{Currency, CurrencyCode, Money};
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use serde_json::{Value, json};

use crate::saga::action::{Command, Decision};
use crate::saga::flow::{Cx, Flow, Request, Step};
use crate::saga::input::{Answer, Arrival, Input, Reply};
use crate::saga::record::{CaseReason, Participant, SagaRecord, Status};
use crate::saga::rules::{Capabilities, Rules};
use crate::saga::{ArrivalMeaning, Turn, Workflow, decide, start};

#[test]
fn an_unknown_outcome_is_asked_about_before_it_is_undone() {
    let mut saga = Saga::new(false);
    saga.silence();
    assert_eq!(saga.sent(), "pay pay pay status");
    // Not to have seen it proves nothing: the command may still be on its way.
    saga.answer(not_found());
    saga.time();
    assert_eq!(saga.sent(), "pay pay pay status status");
    saga.answer(Answer::Applied(json!({ "state": "applied", "reply": {} })));
    assert_eq!(saga.sent(), "pay pay pay status status undo");
    saga.answer(Answer::Applied(json!("offset")));
    assert_eq!(saga.record.status, Status::Compensated);
}

#[test]
fn what_never_happened_needs_no_undo() {
    for state in ["rejected", "tombstoned"] {
        let mut saga = Saga::new(false);
        saga.silence();
        saga.answer(Answer::Applied(json!({ "state": state })));
        assert_eq!(saga.sent(), "pay pay pay status", "{state}");
        assert_eq!(saga.record.status, Status::Failed, "{state}");
    }
}

#[test]
fn what_was_applied_and_reverted_counts_as_applied() {
    let mut saga = Saga::new(false);
    saga.silence();
    saga.answer(Answer::Applied(json!({ "state": "reverted", "reply": {} })));
    assert_eq!(saga.sent(), "pay pay pay status undo");
}

#[test]
fn a_late_answer_to_the_step_itself_is_as_good() {
    let mut saga = Saga::new(false);
    saga.silence();
    let pay = saga.commands[0].clone();
    saga.take(Input::Reply(reply(&pay, Answer::Applied(json!("late")))));
    assert_eq!(saga.sent(), "pay pay pay status undo");
    // The question is answered too, later, and changes nothing.
    let question = saga.commands[3].clone();
    let state = json!({ "state": "applied", "reply": {} });
    saga.take(Input::Reply(reply(&question, Answer::Applied(state))));
    assert_eq!(saga.sent(), "pay pay pay status undo");
    saga.answer(Answer::Applied(json!("offset")));
    assert_eq!(saga.record.status, Status::Compensated);
}

#[test]
fn a_state_that_stays_unknown_is_told_and_asked_for_without_end() {
    let mut saga = Saga::new(false);
    saga.silence();
    for _ in 0..10 {
        saga.answer(not_found());
        saga.time();
    }
    let reason = saga.record.case.as_ref().map(|case| case.reason);
    assert_eq!(reason, Some(CaseReason::Overdue));
    assert_eq!(saga.record.status, Status::Compensating);
    assert!(saga.record.wake_at.is_some());
    assert!(!saga.sent().contains("undo"));
}

#[test]
fn with_tombstones_the_undo_settles_it_alone() {
    let mut saga = Saga::new(true);
    saga.silence();
    assert_eq!(saga.sent(), "pay pay pay undo");
}

#[test]
fn what_was_forbidden_and_is_reported_as_done_is_for_a_person() {
    let tombstoned = json!({
        "answer": "applied", "operation_id": "revert-one/x", "applied_at": "1970-01-01T00:01:00Z",
        "effect": { "effect": "tombstoned", "target": "one/x" },
    });
    // While another effect is being settled, and after the end.
    for ended in [false, true] {
        let mut saga = Saga::new(true);
        saga.silence();
        let pay = saga.commands[0].clone();
        let late = Input::Reply(reply(&pay, Answer::Applied(json!("late"))));
        if ended {
            saga.answer(Answer::Applied(tombstoned.clone()));
            assert_eq!(saga.record.status, Status::Compensated);
            saga.take(late);
        } else {
            saga.take(late);
            saga.answer(Answer::Applied(tombstoned.clone()));
        }
        assert_eq!(saga.record.status, Status::NeedsReview, "{ended}");
        let reason = saga.record.case.as_ref().map(|case| case.reason);
        assert_eq!(reason, Some(CaseReason::Contradiction), "{ended}");
    }
}

#[test]
fn an_undo_that_offset_another_movement_is_for_a_person() {
    let offset = |customer: &str, minor: i64| {
        json!({
            "answer": "applied", "operation_id": "revert-one/x", "applied_at": "1970-01-01T00:01:00Z",
            "effect": {
                "effect": "offset", "target": "one/x", "customer": customer, "movement": "debit",
                "money": { "amount_minor": minor, "currency": "EUR", "exponent": 2 },
                "balance": { "amount_minor": 0, "currency": "EUR", "exponent": 2 },
            },
        })
    };
    for (customer, minor, status) in [
        ("c", 1, Status::Compensated),
        ("c", 2, Status::NeedsReview),
        ("other", 1, Status::NeedsReview),
    ] {
        let mut saga = Saga::new(true);
        saga.silence();
        saga.answer(Answer::Applied(offset(customer, minor)));
        assert_eq!(saga.record.status, status, "{customer} {minor}");
    }
}

struct Saga {
    record: SagaRecord,
    commands: Vec<Command>,
    now: Timestamp,
    rules: Rules,
}

impl Saga {
    fn new(tombstone: bool) -> Self {
        let now = Timestamp::UNIX_EPOCH;
        let rules = Rules {
            capabilities: [(region(), Capabilities { tombstone })].into(),
            ..Rules::default()
        };
        let arrival = Arrival {
            message_id: "m".to_owned(),
            input: Value::Null,
        };
        let turn = Turn {
            now,
            replica: "a",
            rules: &rules,
        };
        let id = SagaId::from_parts("one", &["x"]);
        let Decision::Commit(commit) = start(&WORKFLOW, id, arrival, turn) else {
            panic!("a start commits");
        };
        Self {
            record: commit.record,
            commands: commit.commands,
            now,
            rules,
        }
    }

    fn take(&mut self, input: Input) {
        let turn = Turn {
            now: self.now,
            replica: "a",
            rules: &self.rules,
        };
        match decide(&WORKFLOW, self.record.clone(), input, turn) {
            Decision::Ignore(record, _) => self.record = *record,
            Decision::Commit(commit) => {
                self.record = commit.record;
                self.commands.extend(commit.commands);
            }
        }
    }

    /// Time passes to what is due next.
    fn time(&mut self) {
        self.now = self.record.next_due().expect("something is due");
        self.take(Input::Timer);
    }

    /// No attempt of the step is answered.
    fn silence(&mut self) {
        for _ in 0..5 {
            self.time();
        }
    }

    fn answer(&mut self, answer: Answer) {
        let newest = self.commands.last().expect("a command").clone();
        self.take(Input::Reply(reply(&newest, answer)));
    }

    fn sent(&self) -> String {
        let word = |command: &Command| match command.kind.as_str() {
            "wallet.update" => "pay",
            "wallet.revert" => "undo",
            "wallet.get" => "status",
            other => panic!("{other}"),
        };
        self.commands.iter().map(word).collect::<Vec<_>>().join(" ")
    }
}

fn reply(command: &Command, answer: Answer) -> Reply {
    Reply {
        operation_id: command.operation_id.clone(),
        attempt: command.attempt,
        answer,
    }
}

fn not_found() -> Answer {
    Answer::NotExecuted {
        code: "not_found".to_owned(),
        retry_after: SignedDuration::ZERO,
    }
}

fn region() -> Region {
    "eu".parse().expect("region")
}

#[derive(Serialize)]
#[serde(transparent)]
struct Pay(WalletUpdate);

#[derive(Serialize)]
#[serde(transparent)]
struct Undo(WalletRevert);

impl Request for Pay {
    const KIND: &'static str = "wallet.update";
    fn participant(&self) -> Participant {
        Participant::Region(region())
    }
}

impl Step for Pay {
    const NAME: &'static str = "pay";
    type Reply = Value;
}

impl Request for Undo {
    const KIND: &'static str = "wallet.revert";
    fn participant(&self) -> Participant {
        Participant::Region(region())
    }
}

fn pay(cx: &mut Cx<'_>, _input: &Value) -> Flow<Value> {
    let eur: CurrencyCode = "EUR".parse().expect("currency");
    let update = WalletUpdate {
        customer: "c".parse().expect("customer"),
        movement: Movement::Credit,
        money: Money::new(1, Currency::new(eur, 2).expect("currency")),
        memo: None,
    };
    let revert = WalletRevert {
        target: cx.saga_id().own_operation(),
        memo: None,
    };
    cx.step(Pay(update))
        .undo(&Undo(revert))
        .own_operation()
        .pivot()
        .run()
}

static WORKFLOW: Workflow = Workflow {
    name: "one",
    version: 1,
    deadline: SignedDuration::from_hours(1),
    identify: |id, _| Ok(SagaId::from_parts("one", &[id])),
    check_signal: |_, _| Ok(()),
    run: pay,
    arrival: |_, _| ArrivalMeaning::Duplicate,
    turned_back: |_| None,
};
