//! What the driver asks of the state log, whoever keeps it.

use contracts::id::SagaId;
use futures::future::BoxFuture;

use super::{CommitOutcome, LoadError, Store, Stored, StreamError, Write};

/// The log of the sagas' states. The driver relies on no more than this: a commit is written whole or not
/// at all, a record is replaced only at the revision it is expected to have, and a load sees every commit
/// that was reported written before it began.
pub trait StateLog: Send + Sync {
    /// Reads a record; `None` when the saga has none.
    fn load<'a>(&'a self, saga_id: &'a SagaId) -> BoxFuture<'a, Result<Option<Stored>, LoadError>>;

    /// Writes all of it or none of it.
    fn commit<'a>(&'a self, write: &'a Write<'a>) -> BoxFuture<'a, CommitOutcome>;

    /// Deletes a fired timer that has been acted upon, and older ones of the same saga, but none that
    /// fired since. Nothing depends on it: a timer that stays fires into a saga with nothing due.
    fn forget_due<'a>(
        &'a self,
        due_subject: &'a str,
        sequence: u64,
    ) -> BoxFuture<'a, Result<(), StreamError>>;
}

impl StateLog for Store {
    fn load<'a>(&'a self, saga_id: &'a SagaId) -> BoxFuture<'a, Result<Option<Stored>, LoadError>> {
        Box::pin(self.load(saga_id))
    }

    fn commit<'a>(&'a self, write: &'a Write<'a>) -> BoxFuture<'a, CommitOutcome> {
        Box::pin(self.commit(write))
    }

    fn forget_due<'a>(
        &'a self,
        due_subject: &'a str,
        sequence: u64,
    ) -> BoxFuture<'a, Result<(), StreamError>> {
        Box::pin(self.forget_due(due_subject, sequence))
    }
}
