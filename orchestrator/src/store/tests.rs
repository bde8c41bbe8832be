//! Records as stored: what was written is read back exactly, and whatever stands in the bucket, reading it and
//! deciding on it breaks nothing.
//!
//! The records are those of deposits that were led through answers, silence, signals, takeovers and requests to
//! cancel in any order. `PROPTEST_CASES=100000 cargo test -p orchestrator store` looks longer.

use std::sync::LazyLock;

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};

use contracts::intake::{Finding, OperatorRequest, OperatorVerb};

use super::{decode, encode};
use crate::arbitrary::{json as any_json, pick, replace, scalar};
use crate::saga::action::{Command, Decision};
use crate::saga::input::{Answer, Arrival, Cancel, Input, Operator, Reply, Signal};
use crate::saga::record::{Direction, SagaRecord};
use crate::saga::rules::{self, Capabilities, Rules};
use crate::saga::{Turn, decide, start};
use crate::workflows::deposit::{DEPOSIT, PSP_CALLBACK};

/// A wallet whose word has to be asked for before anything of unknown outcome is undone.
static NO_TOMBSTONES: LazyLock<Rules> = LazyLock::new(|| Rules {
    capabilities: [(
        "eu".parse().expect("region"),
        Capabilities { tombstone: false },
    )]
    .into(),
    ..Rules::default()
});

const MEANINGS: [&str; 6] = [
    "paid",
    "pending",
    "authorised",
    "failed",
    "expired",
    "reversal",
];

fn fact(meaning: &str, minor: i64) -> Value {
    json!({
        "payment": { "provider": "prov-x", "account": "a", "external_id": "p/é" },
        "meaning": meaning,
        "amount": { "amount_minor": minor, "currency": "EUR", "exponent": 2 },
        "customer": "ana",
        "wallet_currency": { "currency": "USD", "exponent": 2 },
        "event_id": "evt-1",
        "occurred_at": "2030-01-01T00:00:00Z",
    })
}

/// One thing that happens to a saga; numbers choose among what there is.
#[derive(Debug, Clone)]
enum Move {
    /// A command that was sent (an older one too) is answered.
    Answer(Index, AnswerKind),
    /// An answer to an operation that may not be this saga's.
    Stray(Value, AnswerKind),
    /// Time goes to what is due next and so many seconds on, and a timer fires.
    Time(i64),
    /// Another replica, or the same one, continues.
    Resume(u8),
    Cancel,
    /// An operator asks for this.
    Operate(OperatorVerb),
    /// The provider says this, as a start.
    Arrive(usize, i64),
    /// A signal with this id and body.
    Signal(u8, Value),
}

#[derive(Debug, Clone)]
enum AnswerKind {
    Proper,
    Odd(Value),
    Refused,
    NotExecuted(i64),
    Unacceptable,
    Unknown,
    Conflict,
    Stale(u64),
}

fn answer_kind() -> impl Strategy<Value = AnswerKind> {
    prop_oneof![
        8 => Just(AnswerKind::Proper),
        1 => any_json().prop_map(AnswerKind::Odd),
        1 => Just(AnswerKind::Refused),
        2 => prop_oneof![Just(0), Just(i64::MAX), 0..100_i64].prop_map(AnswerKind::NotExecuted),
        1 => Just(AnswerKind::Unacceptable),
        2 => Just(AnswerKind::Unknown),
        1 => Just(AnswerKind::Conflict),
        1 => prop_oneof![Just(u64::MAX), any::<u64>(), 0..9_u64].prop_map(AnswerKind::Stale),
    ]
}

fn verb() -> impl Strategy<Value = OperatorVerb> {
    let operations = ["", "revert-", "status-"].map(|prefix| {
        format!("{prefix}deposit/prov-x/p%2F%C3%A9/account:a")
            .parse()
            .expect("an id")
    });
    let resolve = (
        prop::option::of(prop::sample::select(operations.to_vec())),
        prop::option::of(prop::sample::select(vec![
            Finding::Applied,
            Finding::NotApplied,
        ])),
        prop::option::of(scalar()),
    );
    prop_oneof![
        4 => prop::sample::select(vec![
            OperatorVerb::Cancel,
            OperatorVerb::Recheck,
            OperatorVerb::Compensate,
            OperatorVerb::RetryNow,
            OperatorVerb::Hold,
            OperatorVerb::Release,
        ]),
        1 => Just(OperatorVerb::Assign { owner: "ana".to_owned() }),
        1 => (0..9_u8).prop_map(|id| OperatorVerb::Approve { request: format!("o{id}") }),
        3 => resolve.prop_map(|(operation_id, finding, reply)| OperatorVerb::Resolve {
            operation_id,
            finding,
            evidence: "looked".to_owned(),
            reply,
        }),
    ]
}

fn a_move() -> impl Strategy<Value = Move> {
    let said = prop_oneof![
        3 => prop::sample::select(MEANINGS.as_slice()).prop_map(|meaning| fact(meaning, 1000)),
        2 => Just(json!({ "meaning": "paid" })),
        1 => any_json(),
    ];
    prop_oneof![
        8 => (any::<Index>(), answer_kind()).prop_map(|(which, kind)| Move::Answer(which, kind)),
        1 => (scalar(), answer_kind()).prop_map(|(id, kind)| Move::Stray(id, kind)),
        3 => prop_oneof![Just(0), Just(3700), -5..90_i64].prop_map(Move::Time),
        2 => (0..3_u8).prop_map(Move::Resume),
        1 => Just(Move::Cancel),
        3 => verb().prop_map(Move::Operate),
        2 => (0..MEANINGS.len(), prop_oneof![Just(1000), Just(2000)])
            .prop_map(|(meaning, minor)| Move::Arrive(meaning, minor)),
        2 => (0..4_u8, said).prop_map(|(id, body)| Move::Signal(id, body)),
    ]
}

/// A deposit and what it has sent.
#[derive(Debug, Clone)]
struct Saga {
    record: SagaRecord,
    sent: Vec<Command>,
    now: Timestamp,
    rules: &'static Rules,
    replica: String,
    messages: u32,
    /// Every state it was in.
    states: Vec<SagaRecord>,
}

impl Saga {
    fn start(meaning: usize, tombstones: bool) -> Self {
        let rules = if tombstones {
            &rules::DEFAULT
        } else {
            &*NO_TOMBSTONES
        };
        let now: Timestamp = "2030-01-01T00:00:00Z".parse().expect("instant");
        let input = fact(MEANINGS[meaning], 1000);
        let saga_id = (DEPOSIT.identify)("", &input).expect("id");
        let message_id = "m0".to_owned();
        let turn = Turn {
            now,
            replica: "a",
            rules,
        };
        let Decision::Commit(commit) =
            start(&DEPOSIT, saga_id, Arrival { message_id, input }, turn)
        else {
            panic!("a start commits");
        };
        Self {
            states: vec![commit.record.clone()],
            record: commit.record,
            sent: commit.commands,
            now,
            rules,
            replica: "a".to_owned(),
            messages: 0,
        }
    }

    fn play(&mut self, moves: &[Move]) {
        for step in moves {
            let input = self.input(step);
            let turn = Turn {
                now: self.now,
                replica: &self.replica,
                rules: self.rules,
            };
            let was = self.record.clone();
            match decide(&DEPOSIT, was.clone(), input, turn) {
                Decision::Ignore(record, _) => self.record = *record,
                Decision::Commit(commit) => {
                    self.record = commit.record;
                    self.sent.extend(commit.commands);
                }
            }
            assert!(self.record.epoch >= was.epoch, "the epoch fell: {step:?}");
            assert!(
                was.direction == Direction::Forward || self.record.direction != Direction::Forward,
                "turned again: {step:?}"
            );
            self.states.push(self.record.clone());
        }
    }

    fn input(&mut self, step: &Move) -> Input {
        self.messages += 1;
        let message_id = format!("m{}", self.messages);
        match step {
            Move::Answer(which, kind) if !self.sent.is_empty() => {
                let command = which.get(&self.sent).clone();
                Input::Reply(Reply {
                    operation_id: command.operation_id.clone(),
                    attempt: command.attempt,
                    answer: answer(kind, Some(&command)),
                })
            }
            Move::Answer(..) => Input::Timer,
            Move::Stray(id, kind) => Input::Reply(Reply {
                operation_id: id
                    .as_str()
                    .unwrap_or("none")
                    .parse()
                    .unwrap_or_else(|_| self.record.saga_id.own_operation()),
                attempt: 1,
                answer: answer(kind, None),
            }),
            Move::Time(seconds) => {
                let due = self.record.next_due().unwrap_or(self.now).max(self.now);
                self.now = due
                    .checked_add(SignedDuration::from_secs(*seconds))
                    .unwrap_or(due);
                Input::Timer
            }
            Move::Resume(replica) => {
                self.replica = format!("r{replica}");
                Input::Resume
            }
            Move::Cancel => Input::Cancel(Cancel {
                message_id,
                reason: "asked".to_owned(),
                by: "op".to_owned(),
            }),
            Move::Operate(verb) => Input::Operator(Operator {
                request: OperatorRequest {
                    saga_id: self.record.saga_id.clone(),
                    id: format!("o{}", self.messages % 9),
                    verb: verb.clone(),
                    reason: "found so".to_owned(),
                    by: if self.messages.is_multiple_of(2) {
                        "ana"
                    } else {
                        "ben"
                    }
                    .to_owned(),
                },
                message_id,
            }),
            Move::Arrive(meaning, minor) => Input::Arrival(Arrival {
                message_id,
                input: fact(MEANINGS[*meaning], *minor),
            }),
            Move::Signal(id, body) => Input::Signal(Signal {
                message_id,
                name: if *id == 3 {
                    "other".to_owned()
                } else {
                    PSP_CALLBACK.to_owned()
                },
                id: format!("s{id}"),
                body: body.clone(),
            }),
        }
    }
}

fn answer(kind: &AnswerKind, command: Option<&Command>) -> Answer {
    let (code, message) = ("no".to_owned(), "refused".to_owned());
    match kind {
        AnswerKind::Proper => Answer::Applied(command.map_or(Value::Null, proper_reply)),
        AnswerKind::Odd(body) => Answer::Applied(body.clone()),
        AnswerKind::Refused => Answer::Refused { code, message },
        AnswerKind::NotExecuted(seconds) => Answer::NotExecuted {
            code,
            retry_after: SignedDuration::from_secs(*seconds),
        },
        AnswerKind::Unacceptable => Answer::Unacceptable { code, message },
        AnswerKind::Unknown => Answer::Unknown { message },
        AnswerKind::Conflict => Answer::Conflict {
            fields: vec!["money".to_owned()],
        },
        AnswerKind::Stale(seen_fence) => Answer::Stale {
            seen_fence: *seen_fence,
        },
    }
}

/// What the participant answers when all is well.
fn proper_reply(command: &Command) -> Value {
    let money =
        |minor: i64, code: &str| json!({ "amount_minor": minor, "currency": code, "exponent": 2 });
    match command.kind.as_str() {
        "payments.find_or_create" => {
            let paid = command.request["fact"]["meaning"] == "paid";
            let mut reply = json!({
                "payment_id": "pay-1", "customer": "ana", "region": "eu", "created": true, "may_credit": paid,
                "wallet_currency": { "currency": "USD", "exponent": 2 },
            });
            if paid {
                reply["paid"] = money(1000, "EUR");
            }
            reply
        }
        "fx.quote" => json!({
            "source": money(1000, "EUR"), "target": money(1100, "USD"), "rate": "1.1", "rate_source": "t",
            "quoted_at": "2030-01-01T00:00:00Z", "rounding": "half_even",
        }),
        "wallet.update" => json!({
            "answer": "applied", "operation_id": command.operation_id, "applied_at": "2030-01-01T00:00:00Z",
            "effect": { "effect": "moved", "customer": "ana", "movement": "credit",
                        "money": money(1100, "USD"), "balance": money(1100, "USD") },
        }),
        "wallet.revert" => json!({
            "answer": "applied", "operation_id": command.operation_id, "applied_at": "2030-01-01T00:00:00Z",
            "effect": { "effect": "tombstoned", "target": command.request["target"] },
        }),
        "wallet.get" => json!({
            "answer": "operation", "operation_id": command.request["operation_id"], "kind": "update",
            "state": "rejected", "fence": 1, "created_at": "2030-01-01T00:00:00Z",
            "reply": { "answer": "unavailable", "message": "" },
        }),
        _ => json!({ "status": "successful", "changed": true }),
    }
}

/// A deposit in a state it was in, while every command it has sent may still be answered.
fn saga() -> impl Strategy<Value = Saga> {
    (
        0..3_usize,
        any::<bool>(),
        prop::collection::vec(a_move(), 0..25),
        any::<Index>(),
    )
        .prop_map(|(meaning, tombstones, moves, which)| {
            let mut saga = Saga::start(meaning, tombstones);
            saga.play(&moves);
            saga.record = which.get(&saga.states).clone();
            saga.states.clear();
            saga
        })
}

fn reads_back(record: &SagaRecord) {
    let stored = encode(record).expect("encodes");
    let back = decode(&stored)
        .unwrap_or_else(|error| panic!("{error}\n{}", String::from_utf8_lossy(&stored)));
    assert_eq!(&back, record);
    assert_eq!(encode(&back).expect("encodes"), stored);
}

/// The core catches a panic of a workflow; here it is a failure like any other.
fn no_workflow_panicked(record: &SagaRecord) {
    let message = record
        .case
        .as_ref()
        .map_or("", |case| case.message.as_str());
    assert!(!message.contains("panicked"), "{message}");
}

proptest! {
    #[test]
    fn a_stored_record_is_read_back_exactly(meaning in 0..MEANINGS.len(), tombstones: bool, moves in prop::collection::vec(a_move(), 0..40)) {
        let mut saga = Saga::start(meaning, tombstones);
        saga.play(&moves);
        for state in &saga.states {
            reads_back(state);
            no_workflow_panicked(state);
        }
    }

    #[test]
    fn no_bytes_break_the_reader(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(decode(&bytes).is_err(), "not a record");
    }

    #[test]
    fn no_json_breaks_the_reader(value in any_json()) {
        prop_assert!(decode(value.to_string().as_bytes()).is_err(), "not a record");
    }

    #[test]
    fn no_change_to_a_record_breaks_a_decision(
        mut saga in saga(),
        changes in prop::collection::vec((prop::collection::vec(any::<Index>(), 1..8), prop::option::of(prop_oneof![3 => scalar(), 1 => any_json()]), prop::collection::vec(any::<Index>(), 1..8)), 1..4),
        moves in prop::collection::vec(a_move(), 1..8),
    ) {
        let mut value: Value = serde_json::from_slice(&encode(&saga.record).expect("encodes")).expect("JSON");
        for (walk, with, from) in changes {
            // Something else, or what stands elsewhere in the same record.
            let with = with.unwrap_or_else(|| pick(&value, &from).clone());
            replace(&mut value, &walk, with);
        }
        if let Ok(record) = decode(&serde_json::to_vec(&value).expect("JSON")) {
            reads_back(&record);
            saga.record = record;
            saga.play(&moves);
            for state in &saga.states {
                no_workflow_panicked(state);
                encode(state).expect("encodes");
            }
        }
    }

    #[test]
    fn no_byte_changed_in_a_record_breaks_the_reader(
        mut saga in saga(),
        at in any::<Index>(),
        cut in 0..4_usize,
        filling in prop::collection::vec(any::<u8>(), 0..4),
    ) {
        let mut bytes = encode(&saga.record).expect("encodes").to_vec();
        let start = at.index(bytes.len());
        let end = (start + cut).min(bytes.len());
        bytes.splice(start..end, filling);
        if let Ok(record) = decode(&bytes) {
            reads_back(&record);
            saga.record = record;
            saga.play(&[Move::Time(0), Move::Resume(1), Move::Cancel]);
        }
    }
}
