//! What is known in memory alone: kept until it is stored, said again when another replica was first.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::oneshot;

use super::{Actor, Matter, Settled, State};
use crate::saga::input::{Input, Reply};

/// A message that is not acknowledged yet.
pub(super) struct Held {
    pub(super) done: oneshot::Sender<Settled>,
    /// What it said, while that is in memory alone.
    pub(super) unsaved: Option<Matter>,
    _room: Room,
}

impl Held {
    pub(super) fn new(done: oneshot::Sender<Settled>, unsaved: Option<Matter>, room: Room) -> Self {
        Self {
            done,
            unsaved,
            _room: room,
        }
    }
}

/// Counts the messages held in this process.
pub(super) struct Room(Arc<AtomicUsize>);

impl Room {
    pub(super) fn take(held: &Arc<AtomicUsize>) -> Self {
        held.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(held))
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Something that was decided on and has been forgotten.
pub(super) enum Again {
    Message(Matter, oneshot::Sender<Settled>),
    Answer(Reply),
}

impl Actor {
    /// The answer to a command that is stored. It is not given twice, so it is kept until it is stored too.
    pub(super) async fn take_answer(&mut self, reply: Reply) {
        self.go_on(Matter::Input(Input::Reply(reply.clone()))).await;
        if self.is_unsaved() {
            self.unsaved_answers.push(reply);
        }
    }

    /// Drops what is known of the record, with any facts that are not stored.
    pub(super) fn forget(&mut self) {
        self.state = State::Unloaded;
        self.begin_lineage();
    }

    /// Another replica has written since. What was said in memory alone is said again: first what was
    /// answered, as that may be all that messages wait for.
    pub(super) fn overtaken(&mut self, unsaved: bool) {
        self.engine.0.metrics.conflict();
        self.forget();
        if !unsaved {
            return;
        }
        let answers = self.unsaved_answers.drain(..).map(Again::Answer);
        self.again.extend(answers);
        for mut held in std::mem::take(&mut self.held) {
            match held.unsaved.take() {
                Some(matter) => self.again.push_back(Again::Message(matter, held.done)),
                None => self.held.push(held),
            }
        }
    }

    /// Everything known is stored.
    pub(super) fn all_saved(&mut self) {
        self.unsaved_answers.clear();
        for held in &mut self.held {
            held.unsaved = None;
        }
    }

    /// Whether there are facts in memory that are not stored.
    pub(super) fn is_unsaved(&self) -> bool {
        matches!(self.state, State::Present { unsaved: true, .. })
    }

    pub(super) fn begin_lineage(&mut self) {
        self.lineage = self.engine.0.lineages.fetch_add(1, Ordering::Relaxed);
    }
}
