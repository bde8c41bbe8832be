//! Long walks: anything that can happen and any verb, in any order, from a seed; the laws hold after each move.

use std::collections::BTreeMap;

use contracts::audit::OperatorAnswer;
use contracts::intake::{Finding, OperatorVerb};
use serde_json::json;

use super::super::script::Move::*;
use super::super::script::{Move, Saga};
use super::{approve, assign, hand, resolve};
use crate::saga::operator::open_operations;
use crate::saga::record::Status;

const SEEDS: u64 = 500;
const MOVES: u32 = 40;

/// A sequence that is the same for the same seed (splitmix64).
pub(super) struct Choice(pub(super) u64);

impl Choice {
    pub(super) fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % u64::try_from(limit).expect("small"))
            .expect("small")
    }

    pub(super) fn of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())].clone()
    }
}

const STEPS: [&str; 6] = [
    "reserve",
    "quote",
    "pay",
    "tell",
    "undo of reserve",
    "undo of pay",
];

fn next(saga: &Saga, choice: &mut Choice) -> Move {
    if choice.below(3) == 0 {
        return by_hand(saga, choice);
    }
    let sent: Vec<&'static str> = STEPS
        .into_iter()
        .filter(|step| saga.sent.iter().any(|command| command.step == *step))
        .collect();
    let step = if sent.is_empty() {
        ""
    } else {
        choice.of(&sent)
    };
    match choice.below(if sent.is_empty() { 3 } else { 12 }) {
        0 => Seconds(choice.of(&[1, 15, 90, 4000])),
        1 => Takeover(choice.of(&["a", "b", "c"])),
        2 if saga.record.next_due().is_some() => Silence,
        2 | 3 => Word(choice.of(&["s1", "s2"]), choice.of(&["yes", "no"])),
        4 => Refuse(step),
        5 => Nobody(step),
        6 => Unclear(step),
        7 => Conflict(step),
        8 => Alien(step),
        _ => Done(step),
    }
}

fn by_hand(saga: &Saga, choice: &mut Choice) -> Move {
    let open = open_operations(&saga.record, saga.now);
    let finding = choice.of(&[Finding::Applied, Finding::NotApplied]);
    let operation = if open.is_empty() {
        None
    } else {
        Some(choice.of(&open))
    };
    let named = operation.as_ref().map(|open| open.operation_id.as_str());
    hand(match choice.below(10) {
        0 => OperatorVerb::Cancel,
        1 => assign(),
        2 => OperatorVerb::Recheck,
        3 | 4 => resolve(named, finding),
        5 => OperatorVerb::Compensate,
        6 => OperatorVerb::RetryNow,
        7 => OperatorVerb::Hold,
        8 => OperatorVerb::Release,
        _ => approve("r1"),
    })
}

#[test]
fn whatever_people_do_the_laws_hold() {
    let mut ends: BTreeMap<Status, u32> = BTreeMap::new();
    let mut accepted: BTreeMap<&'static str, u32> = BTreeMap::new();
    for seed in 0..SEEDS {
        let mut choice = Choice(seed);
        let mut saga = Saga::start(json!({ "wait": seed % 2 == 0 }));
        let mut walked = Vec::new();
        for _ in 0..MOVES {
            let step = next(&saga, &mut choice);
            walked.push(format!("{step:?}"));
            let mut copy = std::panic::AssertUnwindSafe(&mut saga);
            let played = std::panic::catch_unwind(move || copy.play(&[step]));
            assert!(played.is_ok(), "seed {seed}: {walked:#?}");
        }
        *ends.entry(saga.record.status).or_default() += 1;
        for entry in &saga.audit {
            if entry.answer == OperatorAnswer::Accepted {
                *accepted.entry(entry.request.verb.name()).or_default() += 1;
            }
        }
    }
    // The walks go everywhere: every end, and every verb that needs no second person.
    for status in [
        Status::Completed,
        Status::Compensated,
        Status::Failed,
        Status::NeedsReview,
    ] {
        assert!(ends.contains_key(&status), "{status}: {ends:?}");
    }
    assert_eq!(accepted.len(), 8, "{accepted:?}");
}
