//! Small worlds with one participant that keeps its rules and people whose word is true: whatever they do and in
//! whatever order, a saga that has ended has all of its effects or none, and it stays so.

use std::collections::BTreeMap;

use contracts::intake::{Finding, OperatorVerb};
use serde_json::{Value, json};

use super::super::script::Move::*;
use super::super::script::Saga;
use super::walks::Choice;
use super::{hand, resolve};
use crate::saga::action::Command;
use crate::saga::input::{Answer, Input, Reply};
use crate::saga::operator::open_operations;
use crate::saga::record::Status;

const SEEDS: u64 = 400;
const MOVES: u32 = 80;

/// What the participant has stored of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stored {
    Applied,
    Refused,
    Tombstoned,
    Reverted,
}

#[derive(Default)]
struct Participant(BTreeMap<String, Stored>);

impl Participant {
    /// Executes a command, or repeats what it answered before.
    fn execute(&mut self, command: &Command, choice: &mut Choice) -> Answer {
        let refused = || Answer::Refused {
            code: "no".to_owned(),
            message: "refused".to_owned(),
        };
        let id = command.operation_id.as_str();
        if let Some(target) = id.strip_prefix("revert-") {
            let stored = self.0.get(target).copied();
            return match stored {
                // For want of funds, say: not stored, so that it may be asked for again.
                Some(Stored::Applied) if choice.below(4) == 0 => refused(),
                Some(Stored::Applied) => {
                    self.0.insert(target.to_owned(), Stored::Reverted);
                    Answer::Applied(Value::Null)
                }
                None => {
                    self.0.insert(target.to_owned(), Stored::Tombstoned);
                    Answer::Applied(Value::Null)
                }
                Some(Stored::Refused | Stored::Tombstoned | Stored::Reverted) => {
                    Answer::Applied(Value::Null)
                }
            };
        }
        let first = if choice.below(6) == 0 {
            Stored::Refused
        } else {
            Stored::Applied
        };
        match self.0.entry(id.to_owned()).or_insert(first) {
            Stored::Applied | Stored::Reverted => Answer::Applied(Value::Null),
            Stored::Refused | Stored::Tombstoned => refused(),
        }
    }

    /// What is to be seen of an operation. What the participant has not seen may still be on its way.
    fn truth(&self, id: &str) -> Finding {
        if let Some(target) = id.strip_prefix("revert-") {
            return match self.0.get(target) {
                Some(Stored::Reverted | Stored::Tombstoned | Stored::Refused) => Finding::Applied,
                Some(Stored::Applied) | None => Finding::NotApplied,
            };
        }
        match self.0.get(id) {
            Some(Stored::Applied | Stored::Reverted) => Finding::Applied,
            Some(Stored::Refused | Stored::Tombstoned) | None => Finding::NotApplied,
        }
    }
}

struct World {
    saga: Saga,
    participant: Participant,
    answers: Vec<Reply>,
    /// How often somebody said "not applied" of what the participant had not seen.
    unseen: u32,
}

impl World {
    /// One of the commands ever sent arrives: late, twice, or after others.
    fn deliver(&mut self, choice: &mut Choice) {
        let command = choice.of(&self.saga.sent);
        let answer = self.participant.execute(&command, choice);
        self.answers.push(Reply {
            operation_id: command.operation_id,
            attempt: command.attempt,
            answer,
        });
    }

    fn step(&mut self, choice: &mut Choice) {
        match choice.below(12) {
            0..=3 => self.deliver(choice),
            4..=6 if !self.answers.is_empty() => {
                let index = choice.below(self.answers.len());
                // Some answers come twice.
                let reply = match choice.below(5) {
                    0 => self.answers[index].clone(),
                    _ => self.answers.swap_remove(index),
                };
                self.saga.take(Input::Reply(reply), "an answer");
            }
            7 if self.saga.record.next_due().is_some() => self.saga.play(&[Silence]),
            8 => {
                let replica = choice.of(&["a", "b", "c"]);
                self.saga.play(&[Takeover(replica)]);
            }
            9..=11 => self.by_hand(choice),
            _ => self.saga.play(&[Seconds(1)]),
        }
    }

    fn by_hand(&mut self, choice: &mut Choice) {
        let verb = match choice.below(9) {
            0 => OperatorVerb::Cancel,
            1 => OperatorVerb::Compensate,
            2 | 3 => OperatorVerb::Recheck,
            4 => OperatorVerb::RetryNow,
            5 => OperatorVerb::Hold,
            6 => OperatorVerb::Release,
            _ => {
                let open = open_operations(&self.saga.record, self.saga.now);
                if open.is_empty() {
                    return;
                }
                let id = choice.of(&open).operation_id;
                let finding = self.participant.truth(id.as_str());
                if finding == Finding::NotApplied && !self.participant.0.contains_key(id.as_str()) {
                    self.unseen += 1;
                }
                resolve(Some(id.as_str()), finding)
            }
        };
        self.saga.play(&[hand(verb)]);
    }

    /// What has ended has all of its effects or none.
    fn check(&self, seed: u64) {
        let record = &self.saga.record;
        if !record.status.is_terminal() {
            return;
        }
        for step in record.steps.iter().filter(|step| step.undo.is_some()) {
            let stored = self.participant.0.get(step.forward.operation_id.as_str());
            let stands = stored == Some(&Stored::Applied);
            assert_eq!(
                stands,
                record.status == Status::Completed,
                "seed {seed}: {} is {stored:?} in a saga that is {}: {record:#?}",
                step.name,
                record.status
            );
        }
    }
}

#[test]
fn what_people_finish_has_all_of_its_effects_or_none() {
    let mut ends: BTreeMap<Status, u32> = BTreeMap::new();
    let mut unseen = 0;
    for seed in 0..SEEDS {
        let mut choice = Choice(seed.wrapping_mul(0x1000_0001));
        let mut world = World {
            saga: Saga::start(json!({})),
            participant: Participant::default(),
            answers: Vec::new(),
            unseen: 0,
        };
        for _ in 0..MOVES {
            world.step(&mut choice);
            world.check(seed);
            if world.saga.record.status.is_terminal() {
                break;
            }
        }
        // Whatever is still under way arrives now, and changes nothing of it.
        let ended = world.saga.record.status;
        unseen += world.unseen;
        *ends.entry(ended).or_default() += 1;
        if ended.is_terminal() {
            for _ in 0..20 {
                world.deliver(&mut choice);
                world.check(seed);
            }
            for reply in std::mem::take(&mut world.answers) {
                world.saga.take(Input::Reply(reply), "a late answer");
                world.check(seed);
            }
            assert_eq!(
                world.saga.record.status, ended,
                "seed {seed}: {:#?}",
                world.saga.record
            );
        }
    }
    assert!(ends.contains_key(&Status::Completed), "{ends:?}");
    assert!(ends.contains_key(&Status::Compensated), "{ends:?}");
    assert!(unseen > 50, "{unseen}");
}
