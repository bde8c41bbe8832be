//! How a step is retried. No clock and no randomness: `now` comes in, jitter comes from the id.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

/// Retry policy of a step, chosen by what giving up would mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// Before the pivot: 3 attempts, waits of 1 s and 5 s, 30 s in all; then the saga turns back.
    Forward,
    /// Before the pivot, but somebody has already paid: without limit up to the saga's deadline, and
    /// then a person is asked instead of turning back.
    Patient,
    /// After the pivot, and every compensation: without limit, 1 s doubling up to 60 s with jitter.
    UntilDone,
}

/// How long one attempt is waited for, start to close.
pub const ATTEMPT_TIMEOUT: SignedDuration = SignedDuration::from_secs(10);

/// All attempts together under [`Policy::Forward`], schedule to close.
const FORWARD_BUDGET: SignedDuration = SignedDuration::from_secs(30);

/// Waits between attempts under [`Policy::Forward`]; one more attempt than waits.
const FORWARD_WAITS: [SignedDuration; 2] =
    [SignedDuration::from_secs(1), SignedDuration::from_secs(5)];

/// Longest wait without limit.
const LONGEST_WAIT: SignedDuration = SignedDuration::from_secs(60);

/// Attempts of a compensation or of a step after the pivot before a person is told; it goes on.
pub const ALERT_AFTER_ATTEMPTS: u32 = 10;

/// What to do after an attempt came to nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Send again at this instant.
    RetryAt(Timestamp),
    /// The budget is spent.
    GiveUp,
}

impl Policy {
    /// When the attempt that leaves now stops being waited for.
    #[must_use]
    pub fn attempt_deadline(self, issued_at: Timestamp, now: Timestamp) -> Timestamp {
        let close = after(now, ATTEMPT_TIMEOUT);
        match self {
            Self::Forward => close.min(after(issued_at, FORWARD_BUDGET)),
            Self::Patient | Self::UntilDone => close,
        }
    }

    /// What follows attempt number `attempts`. `at_least` is a wait asked for by the participant;
    /// `seed` spreads waits of different operations without drawing randomness.
    #[must_use]
    pub fn after_failure(
        self,
        issued_at: Timestamp,
        now: Timestamp,
        attempts: u32,
        at_least: SignedDuration,
        seed: &str,
    ) -> Next {
        match self {
            Self::Forward => {
                let index = usize::try_from(attempts.saturating_sub(1)).unwrap_or(usize::MAX);
                let Some(wait) = FORWARD_WAITS.get(index) else {
                    return Next::GiveUp;
                };
                let retry_at = after(now, (*wait).max(at_least));
                if retry_at < after(issued_at, FORWARD_BUDGET) {
                    Next::RetryAt(retry_at)
                } else {
                    Next::GiveUp
                }
            }
            Self::Patient | Self::UntilDone => {
                Next::RetryAt(after(now, doubled(attempts, seed).max(at_least)))
            }
        }
    }

    /// What follows a command that was not sent. `begun` is when the first attempt of the budget left, when
    /// one has; `attempts` counts those that were not sent too.
    #[must_use]
    pub fn after_holding_back(
        self,
        begun: Option<Timestamp>,
        now: Timestamp,
        attempts: u32,
        at_least: SignedDuration,
        seed: &str,
    ) -> Next {
        let retry_at = after(now, doubled(attempts, seed).max(at_least));
        match (self, begun) {
            (Self::Forward, Some(begun)) if retry_at >= after(begun, FORWARD_BUDGET) => {
                Next::GiveUp
            }
            (Self::Forward | Self::Patient | Self::UntilDone, _) => Next::RetryAt(retry_at),
        }
    }
}

/// 1 s, doubling up to [`LONGEST_WAIT`], with jitter.
fn doubled(attempts: u32, seed: &str) -> SignedDuration {
    let seconds = 1_i64
        .checked_shl(attempts.saturating_sub(1).min(6))
        .unwrap_or(64);
    let jitter = SignedDuration::from_millis(i64::from(spread(seed, attempts) % 250));
    SignedDuration::from_secs(seconds).min(LONGEST_WAIT) + jitter
}

/// `instant + duration`, stopping at the end of time.
#[must_use]
pub fn after(instant: Timestamp, duration: SignedDuration) -> Timestamp {
    instant.checked_add(duration).unwrap_or(Timestamp::MAX)
}

/// FNV-1a over the id and the attempt: enough to keep many waits from ending at one instant.
fn spread(seed: &str, attempt: u32) -> u32 {
    seed.bytes()
        .chain(attempt.to_le_bytes())
        .fold(0x811c_9dc5, |hash, byte| {
            (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
        })
}
