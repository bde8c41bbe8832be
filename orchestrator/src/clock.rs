//! The only place that reads time and draws ids.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::Timestamp;

/// Reads time and draws ids for one run of a process.
#[derive(Debug, Clone)]
pub struct Clock {
    replica: Arc<str>,
    run: Arc<str>,
    counter: Arc<AtomicU64>,
}

impl Clock {
    /// A clock whose ids begin with `name` and are unique to this run of the process.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let run = nuid::next();
        Self {
            replica: format!("{name}-{run}").into(),
            run: run.as_str().into(),
            counter: Arc::new(AtomicU64::new(0)),
        }
    }

    /// The wall clock.
    #[must_use]
    #[allow(
        clippy::disallowed_methods,
        reason = "this is the one place that reads the clock"
    )]
    pub fn now(&self) -> Timestamp {
        Timestamp::now()
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
