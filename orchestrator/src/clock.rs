//! The only place that reads time and draws ids.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::{SignedDuration, Timestamp};

/// Reads time and draws ids for one run of a process.
#[derive(Debug, Clone)]
pub struct Clock {
    time: Time,
    replica: Arc<str>,
    run: Arc<str>,
    counter: Arc<AtomicU64>,
}

/// Where the time comes from.
#[derive(Clone)]
enum Time {
    System,
    Told(Arc<dyn Fn() -> Timestamp + Send + Sync>),
}

impl Clock {
    /// A clock whose ids begin with `name` and are unique to this run of the process.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let run = nuid::next();
        Self {
            time: Time::System,
            replica: format!("{name}-{run}").into(),
            run: run.as_str().into(),
            counter: Arc::new(AtomicU64::new(0)),
        }
    }

    /// A clock that shows what it is told, for worlds whose time is not ours. `run` takes the place of the
    /// drawn id, so no two runs in one world may share it.
    #[must_use]
    pub fn told(name: &str, run: &str, now: Arc<dyn Fn() -> Timestamp + Send + Sync>) -> Self {
        Self {
            time: Time::Told(now),
            replica: format!("{name}-{run}").into(),
            run: run.into(),
            counter: Arc::new(AtomicU64::new(0)),
        }
    }

    /// The wall clock, so far ahead; below zero when it is behind. For tests of clocks that are wrong.
    #[must_use]
    pub fn ahead(name: &str, by: SignedDuration) -> Self {
        let now = move || {
            let now = wall_clock();
            now.checked_add(by).unwrap_or(now)
        };
        Self::told(name, &draw_id(), Arc::new(now))
    }

    /// The current time: the wall clock's, unless it is told.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        match &self.time {
            Time::System => wall_clock(),
            Time::Told(now) => now(),
        }
    }

    /// Name of this run: no two runs share it.
    #[must_use]
    pub fn replica(&self) -> &str {
        &self.replica
    }

    /// An id nobody else draws: at most 64 bytes, `A-Za-z0-9_-`.
    #[must_use]
    pub fn nonce(&self) -> String {
        let number = self.counter.fetch_add(1, Ordering::Relaxed);
        format!("{}-{number}", self.run)
    }
}

impl std::fmt::Debug for Time {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::System => "System",
            Self::Told(_) => "Told",
        })
    }
}

/// The wall clock, for what has no [`Clock`] at hand.
#[must_use]
#[allow(
    clippy::disallowed_methods,
    reason = "this is the one place that reads the clock"
)]
pub fn wall_clock() -> Timestamp {
    Timestamp::now()
}

/// An id nobody else draws, for what has no [`Clock`] at hand.
#[must_use]
pub fn draw_id() -> String {
    nuid::next().to_string()
}
