//! What was broken.

use std::fmt;

/// What must hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Invariant {
    /// An operation has at most one effect, wherever it arrives.
    OneEffectPerOperation,
    /// Entries of an operation sum to zero; balances are the sums of entries and never below zero.
    MoneyIsConserved,
    /// What is tombstoned is never applied.
    NothingAfterTombstone,
    /// What is past its deadline is not begun.
    NothingAfterDeadline,
    /// An owner who has been succeeded begins nothing new.
    NothingFromStaleOwner,
    /// Epochs never fall and revisions rise.
    RecordsGoForward,
    /// What a record has pinned (a request, an answer, a fact, a quote) stays.
    FactsStay,
    /// An ending is never another one later.
    EndingsStay,
    /// A direction that has turned never turns again.
    DirectionTurnsOnce,
    /// What could move money leaves only as a stored record has it, with its undo.
    PlanIsStoredBeforeCommand,
    /// A record says of an operation what its participant says.
    OutcomesAreTrue,
    /// A stored open saga has an unacknowledged message or an armed timer.
    OpenSagaIsDriven,
    /// What was acknowledged is in a record.
    AcknowledgedIsAccountedFor,
    /// Money that has come is credited, owed to its payer by an event, or in front of a person.
    MoneyIsNotForgotten,
    /// A completed saga has moved exactly what it says.
    CompletedMovedOnce,
    /// A completed saga's event is in the log once, and no other saga's.
    EventExactlyOnce,
    /// Any other ended saga has moved nothing, for ever.
    EndedMovedNothing,
    /// When nothing disturbs, everything ends or waits for a person.
    ComesToAnEnd,
    /// Payments say the same as sagas and wallets.
    BooksAgree,
}

/// What was broken, by which saga, and how it shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Breach {
    /// What should have held.
    pub invariant: Invariant,
    /// Which saga, when it is about one.
    pub saga: String,
    /// How it shows.
    pub message: String,
}

impl Breach {
    /// A breach; `saga` is empty when it is about none.
    #[must_use]
    pub fn new(invariant: Invariant, saga: &str, message: impl Into<String>) -> Self {
        Self {
            invariant,
            saga: saga.to_owned(),
            message: message.into(),
        }
    }
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: ", self.invariant)?;
        if !self.saga.is_empty() {
            write!(f, "saga {}: ", self.saga)?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for Breach {}
