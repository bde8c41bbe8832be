//! Which verb is legal where.
//!
//! | | not started | forward | past the pivot | turned back | review, forward | review, past the pivot | review, turned back | held | a case that is no saga | ended |
//! |---|---|---|---|---|---|---|---|---|---|---|
//! | cancel | yes | yes | no | no | yes | no | refused undo again | no | no | no |
//! | assign | a case | a case | a case | a case | yes | yes | yes | a case | yes | no |
//! | recheck | no | uncertain | uncertain | uncertain | uncertain | uncertain | uncertain | no | no | no |
//! | resolve | no | uncertain | uncertain | uncertain | uncertain | uncertain | uncertain | uncertain | closes it | no |
//! | compensate | no | yes | yes | no | yes | yes | no | no | no | no |
//! | retry-now | no | backs off | backs off | backs off | yes | yes | yes | no | no | no |
//! | hold | no | yes | yes | yes | yes | yes | yes | no | no | no |
//! | release | no | no | no | no | no | no | no | yes | no | no |
//! | approve | proposed | proposed | proposed | proposed | proposed | proposed | proposed | proposed | proposed | no |
//!
//! A word instead of yes is a condition: *uncertain*, some operation has no certain outcome; *backs off*,
//! some operation waits for its next attempt; *a case*, one is open; *proposed*, a request waits for a
//! second person.

use contracts::intake::OperatorVerb;

use super::questions;
use crate::saga::record::{CaseReason, Direction, Outcome, SagaRecord, Status};
use crate::saga::{CASE_WORKFLOW, Turn};

/// A verb without what it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// See [`OperatorVerb::Cancel`].
    Cancel,
    /// See [`OperatorVerb::Assign`].
    Assign,
    /// See [`OperatorVerb::Recheck`].
    Recheck,
    /// See [`OperatorVerb::Resolve`].
    Resolve,
    /// See [`OperatorVerb::Compensate`].
    Compensate,
    /// See [`OperatorVerb::RetryNow`].
    RetryNow,
    /// See [`OperatorVerb::Hold`].
    Hold,
    /// See [`OperatorVerb::Release`].
    Release,
    /// See [`OperatorVerb::Approve`].
    Approve,
}

impl Verb {
    /// Every verb, those that decide nothing about money first.
    pub const ALL: [Self; 9] = [
        Self::Assign,
        Self::Recheck,
        Self::RetryNow,
        Self::Hold,
        Self::Release,
        Self::Approve,
        Self::Resolve,
        Self::Cancel,
        Self::Compensate,
    ];

    /// As people type it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Assign => "assign",
            Self::Recheck => "recheck",
            Self::Resolve => "resolve",
            Self::Compensate => "compensate",
            Self::RetryNow => "retry-now",
            Self::Hold => "hold",
            Self::Release => "release",
            Self::Approve => "approve",
        }
    }
}

impl From<&OperatorVerb> for Verb {
    fn from(verb: &OperatorVerb) -> Self {
        match verb {
            OperatorVerb::Cancel => Self::Cancel,
            OperatorVerb::Assign { .. } => Self::Assign,
            OperatorVerb::Recheck => Self::Recheck,
            OperatorVerb::Resolve { .. } => Self::Resolve,
            OperatorVerb::Compensate => Self::Compensate,
            OperatorVerb::RetryNow => Self::RetryNow,
            OperatorVerb::Hold => Self::Hold,
            OperatorVerb::Release => Self::Release,
            OperatorVerb::Approve { .. } => Self::Approve,
        }
    }
}

/// Where a saga stands, as far as people are concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    NotStarted,
    Forward,
    PastPivot,
    Back,
    ReviewForward,
    ReviewPastPivot,
    ReviewBack,
    Held,
    LoneCase,
    Ended,
}

impl Standing {
    pub(super) fn of(record: &SagaRecord) -> Self {
        let back = record.direction != Direction::Forward;
        let past = record.is_past_pivot();
        if record.status.is_terminal() {
            return Self::Ended;
        }
        if record.workflow == CASE_WORKFLOW {
            return Self::LoneCase;
        }
        if !record.is_started() {
            return Self::NotStarted;
        }
        if record.is_held() {
            return Self::Held;
        }
        match (record.status == Status::NeedsReview, back, past) {
            (false, true, _) => Self::Back,
            (false, false, true) => Self::PastPivot,
            (false, false, false) => Self::Forward,
            (true, true, _) => Self::ReviewBack,
            (true, false, true) => Self::ReviewPastPivot,
            (true, false, false) => Self::ReviewForward,
        }
    }
}

/// What the table says.
enum Rule {
    Yes,
    No(&'static str),
    /// Legal while there is something for it to do.
    If(bool, &'static str),
}

/// Whether a verb is legal now.
///
/// # Errors
/// Why not.
pub(super) fn check(
    record: &SagaRecord,
    verb: &OperatorVerb,
    turn: Turn<'_>,
) -> Result<(), String> {
    match rule(Verb::from(verb), Standing::of(record), record, turn) {
        Rule::Yes | Rule::If(true, _) => Ok(()),
        Rule::No(why) | Rule::If(false, why) => Err(why.to_owned()),
    }
}

/// The verbs that are legal now.
#[must_use]
pub fn next_verbs(record: &SagaRecord, turn: Turn<'_>) -> Vec<Verb> {
    let standing = Standing::of(record);
    Verb::ALL
        .into_iter()
        .filter(|verb| match rule(*verb, standing, record, turn) {
            Rule::Yes => true,
            Rule::If(legal, _) => legal,
            Rule::No(_) => false,
        })
        .collect()
}

/// The same as the end of a refusal.
pub(super) fn allowed(record: &SagaRecord, turn: Turn<'_>) -> String {
    let names: Vec<&str> = next_verbs(record, turn)
        .into_iter()
        .map(Verb::name)
        .collect();
    if names.is_empty() {
        "nothing is left to do".to_owned()
    } else {
        format!("allowed now: {}", names.join(", "))
    }
}

fn rule(verb: Verb, standing: Standing, record: &SagaRecord, turn: Turn<'_>) -> Rule {
    use Rule::{If, No, Yes};
    use Standing::{
        Back, Ended, Forward, Held, LoneCase, NotStarted, PastPivot, ReviewBack, ReviewForward,
        ReviewPastPivot,
    };
    const HELD: &str = "the saga is held; release it first";
    const NO_SAGA: &str = "this case is a message and no saga: nothing runs";
    const TURNED: &str = "the saga has turned back already; its effects are being settled";
    let uncertain = || {
        let open = !questions::open(record, turn.now).is_empty();
        If(
            open,
            "the outcome of every operation is certain, or its answer is still awaited",
        )
    };
    match (verb, standing) {
        (_, Ended) => No("the saga has ended"),
        (Verb::Assign, LoneCase | ReviewForward | ReviewPastPivot | ReviewBack) => Yes,
        (Verb::Assign, NotStarted | Forward | PastPivot | Back | Held) => {
            If(record.case.is_some(), "there is no case to look after")
        }
        (Verb::Approve, _) => {
            let proposed = record.by_hand.proposal.is_some();
            If(proposed, "no request waits for a second person")
        }
        (Verb::Cancel, NotStarted) => Yes,
        (
            Verb::Recheck
            | Verb::Resolve
            | Verb::Compensate
            | Verb::RetryNow
            | Verb::Hold
            | Verb::Release,
            NotStarted,
        ) => No("the saga has not been started: cancel it, or start it"),
        (Verb::Resolve, LoneCase) => Yes,
        (
            Verb::Cancel
            | Verb::Recheck
            | Verb::Compensate
            | Verb::RetryNow
            | Verb::Hold
            | Verb::Release,
            LoneCase,
        ) => No(NO_SAGA),
        (
            Verb::Resolve,
            Forward | PastPivot | Back | ReviewForward | ReviewPastPivot | ReviewBack | Held,
        ) => uncertain(),
        (Verb::Release, Held) => Yes,
        (
            Verb::Release,
            Forward | PastPivot | Back | ReviewForward | ReviewPastPivot | ReviewBack,
        ) => No("the saga is not held"),
        (Verb::Cancel | Verb::Recheck | Verb::Compensate | Verb::RetryNow | Verb::Hold, Held) => {
            No(HELD)
        }
        (
            Verb::Recheck,
            Forward | PastPivot | Back | ReviewForward | ReviewPastPivot | ReviewBack,
        ) => If(
            !questions::askable(record, turn.now).is_empty(),
            "there is no operation that could be asked for again: every outcome is certain, or its answer is \
             still awaited, or the compensation of it settles it",
        ),
        (Verb::Cancel, Forward | ReviewForward | ReviewBack) => Yes,
        (Verb::Cancel, PastPivot | ReviewPastPivot) => {
            No("the pivot has been applied: the saga only goes forward, unless you compensate it")
        }
        (Verb::Cancel | Verb::Compensate, Back) => No(TURNED),
        (Verb::Compensate, Forward | PastPivot | ReviewForward | ReviewPastPivot) => Yes,
        (Verb::Compensate, ReviewBack) => {
            No("the saga has turned back already; retry-now tries again what was refused")
        }
        (Verb::RetryNow, ReviewForward | ReviewPastPivot | ReviewBack) => match &record.case {
            // It reports a step that goes on being tried.
            Some(case) if case.reason == CaseReason::DeadlinePassed => backs_off(record),
            Some(_) | None => Yes,
        },
        (Verb::RetryNow, Forward | PastPivot | Back) => backs_off(record),
        (Verb::Hold, Forward | PastPivot | Back | ReviewForward | ReviewPastPivot | ReviewBack) => {
            Yes
        }
    }
}

fn backs_off(record: &SagaRecord) -> Rule {
    let waits = record
        .operations()
        .any(|operation| matches!(operation.outcome, Outcome::BackingOff { .. }));
    Rule::If(waits, "nothing waits to be sent again")
}
