//! Whether a participant is asked at all: one that has stopped answering is asked now and then, not each time.
//!
//! | state | a command | an answer | silence |
//! |---|---|---|---|
//! | closed | goes | closed | open, after [`SILENCES`] in a row |
//! | open | is refused until the pause is over, then one goes: trying | closed | open, as it is |
//! | trying | is refused, until the one that went must have been answered | closed | open, the pause twice as long |
//!
//! A refusal here is proof that the command was not sent. Pure: the time comes in.

use jiff::{SignedDuration, Timestamp};

use crate::saga::policy::{ATTEMPT_TIMEOUT, after};

/// Commands in a row that nobody answered before no more are sent.
const SILENCES: u32 = 5;

/// Pause before one is tried again; doubles while it is in vain.
const FIRST_PAUSE: SignedDuration = SignedDuration::from_secs(5);

/// Longest pause: a region that has come back waits no longer for its commands.
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_secs(20);

/// A refused command is not tried again before this: longer than a message is held, so that its saga is
/// parked at once.
const LEAST_WAIT: SignedDuration = SignedDuration::from_secs(3);

/// The breaker of one participant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Breaker {
    /// Everything goes.
    Closed {
        /// Commands in a row without an answer.
        silences: u32,
    },
    /// Nothing goes.
    Open {
        /// Until then.
        until: Timestamp,
        /// How long it was opened for.
        pause: SignedDuration,
    },
    /// One command has gone; the rest waits for what becomes of it.
    Trying {
        /// By when it must have been answered.
        until: Timestamp,
        /// How long it was open before.
        pause: SignedDuration,
    },
}

impl Breaker {
    pub(super) const CLOSED: Self = Self::Closed { silences: 0 };

    /// Whether a command may go now; if not, how long it should wait.
    pub(super) fn admit(&mut self, now: Timestamp) -> Result<(), SignedDuration> {
        let (until, pause) = match *self {
            Self::Closed { .. } => return Ok(()),
            Self::Open { until, pause } | Self::Trying { until, pause } => (until, pause),
        };
        if until <= now {
            let until = after(now, ATTEMPT_TIMEOUT);
            *self = Self::Trying { until, pause };
            return Ok(());
        }
        Err(until.duration_since(now).max(LEAST_WAIT))
    }

    /// The participant has answered, whatever it said.
    pub(super) fn heard(&mut self) {
        *self = Self::CLOSED;
    }

    /// A command's time is up without an answer.
    pub(super) fn silent(&mut self, now: Timestamp) {
        *self = match *self {
            Self::Closed { silences } if silences + 1 < SILENCES => Self::Closed {
                silences: silences + 1,
            },
            Self::Closed { .. } => Self::Open {
                until: after(now, FIRST_PAUSE),
                pause: FIRST_PAUSE,
            },
            // Left before it opened.
            open @ Self::Open { .. } => open,
            Self::Trying { pause, .. } => {
                let pause = (pause * 2).min(LONGEST_PAUSE);
                Self::Open {
                    until: after(now, pause),
                    pause,
                }
            }
        };
    }

    /// Whether commands are refused.
    pub(super) fn is_open(&self) -> bool {
        match self {
            Self::Closed { .. } => false,
            Self::Open { .. } | Self::Trying { .. } => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        after(Timestamp::UNIX_EPOCH, SignedDuration::from_secs(second))
    }

    fn opened() -> Breaker {
        let mut breaker = Breaker::CLOSED;
        for _ in 0..SILENCES {
            assert_eq!(breaker.admit(at(0)), Ok(()));
            breaker.silent(at(10));
        }
        breaker
    }

    #[test]
    fn only_silence_in_a_row_opens_it() {
        let mut breaker = Breaker::CLOSED;
        for _ in 0..3 * SILENCES {
            breaker.silent(at(1));
            breaker.heard();
        }
        assert_eq!(breaker, Breaker::CLOSED);
        assert!(opened().is_open());
    }

    #[test]
    fn one_command_tries_and_the_rest_waits_for_it() {
        let mut breaker = opened();
        assert_eq!(breaker.admit(at(11)), Err(SignedDuration::from_secs(4)));
        assert_eq!(breaker.admit(at(14)), Err(LEAST_WAIT));
        assert_eq!(breaker.admit(at(15)), Ok(()));
        assert!(breaker.admit(at(15)).is_err());
        breaker.heard();
        assert_eq!(breaker.admit(at(16)), Ok(()));
    }

    #[test]
    fn the_pause_grows_while_trying_is_in_vain_up_to_its_longest() {
        let mut breaker = opened();
        let mut now = 15;
        for pause in [10, 20, 20] {
            assert_eq!(breaker.admit(at(now)), Ok(()));
            now += 10;
            breaker.silent(at(now));
            // Those that left before it opened change nothing.
            breaker.silent(at(now));
            assert!(breaker.admit(at(now + pause - 1)).is_err());
            now += pause;
        }
    }

    #[test]
    fn the_one_that_tries_may_get_lost_without_locking_it() {
        let mut breaker = opened();
        assert_eq!(breaker.admit(at(15)), Ok(()));
        assert!(breaker.admit(at(24)).is_err());
        assert_eq!(breaker.admit(at(25)), Ok(()));
    }
}
