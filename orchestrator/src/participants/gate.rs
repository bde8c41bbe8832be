//! The way to one region: how many commands may be out, and whether any is sent at all.
//!
//! A region that is slow or silent must not take from the others what they share: the messages a consumer
//! has at work, and memory. What finds no room is refused at once, provably not sent, and its saga parks.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::breaker::Breaker;
use super::wallet_answer::held_back;
use crate::saga::input::Answer;

/// How long a command waits for room: a moment, as a message is held meanwhile.
const ROOM_WITHIN: Duration = Duration::from_millis(250);

/// When a command that found no room is tried again: later than a message is held, so that its saga parks.
const ROOM_LATER: SignedDuration = SignedDuration::from_secs(3);

/// The way to one region. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Gate {
    room: Arc<Semaphore>,
    breaker: Arc<Mutex<Breaker>>,
}

impl Gate {
    /// A gate that lets so many commands be out at a time.
    pub(super) fn new(slots: usize) -> Self {
        Self {
            room: Arc::new(Semaphore::new(slots)),
            breaker: Arc::new(Mutex::new(Breaker::CLOSED)),
        }
    }

    /// Room for one command, held until it is dropped.
    ///
    /// # Errors
    /// The answer instead: nothing is sent.
    pub(super) async fn enter(&self, now: Timestamp) -> Result<OwnedSemaphorePermit, Answer> {
        let room = Arc::clone(&self.room).acquire_owned();
        // Room first: the one command that tries a silent region must not be lost for want of it. It is never
        // closed; what else could be said of it is that there is none.
        let Ok(Ok(permit)) = tokio::time::timeout(ROOM_WITHIN, room).await else {
            return Err(held_back("region_full", ROOM_LATER));
        };
        self.breaker()
            .admit(now)
            .map_err(|wait| held_back("region_silent", wait))?;
        Ok(permit)
    }

    /// The region has answered.
    pub(super) fn heard(&self) {
        self.breaker().heard();
    }

    /// A command's time is up. Whether that is what closed the way.
    pub(super) fn silent(&self, now: Timestamp) -> bool {
        let mut breaker = self.breaker();
        let was_open = breaker.is_open();
        breaker.silent(now);
        breaker.is_open() && !was_open
    }

    /// Whether nothing is sent.
    pub(super) fn is_closed(&self) -> bool {
        self.breaker().is_open()
    }

    fn breaker(&self) -> MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_finds_no_room_is_provably_not_sent() {
        let gate = Gate::new(1);
        let now = Timestamp::UNIX_EPOCH;
        let permit = gate.enter(now).await.expect("room");
        let refused = gate.enter(now).await.expect_err("no room");
        assert!(matches!(refused, Answer::HeldBack { code, .. } if code == "region_full"));
        drop(permit);
        assert!(gate.enter(now).await.is_ok(), "room again");
    }

    #[tokio::test]
    async fn a_silent_region_is_closed_and_opened_by_any_answer() {
        let gate = Gate::new(8);
        let now = Timestamp::UNIX_EPOCH;
        let closings = (0..10).filter(|_| gate.silent(now)).count();
        assert_eq!(closings, 1);
        let refused = gate.enter(now).await.expect_err("closed");
        assert!(matches!(refused, Answer::HeldBack { code, .. } if code == "region_silent"));
        gate.heard();
        assert!(gate.enter(now).await.is_ok(), "open");
    }
}
