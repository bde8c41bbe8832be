//! The only place of this crate that reads time.

use jiff::{SignedDuration, Timestamp};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// Where the current time comes from: the system, or a test that moves it by hand.
///
/// Times are cut to microseconds, so that what is stored reads back as what was answered.
#[derive(Debug, Clone)]
pub struct Clock(Source);

#[derive(Clone)]
enum Source {
    System,
    Manual(Arc<AtomicI64>),
    Told(Arc<dyn Fn() -> Timestamp + Send + Sync>),
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::System => "System",
            Self::Manual(_) => "Manual",
            Self::Told(_) => "Told",
        })
    }
}

impl Clock {
    /// The system's clock.
    #[must_use]
    pub fn system() -> Self {
        Self(Source::System)
    }

    /// A clock that stands at `start` until it is moved; clones share it.
    #[must_use]
    pub fn manual(start: Timestamp) -> Self {
        Self(Source::Manual(Arc::new(AtomicI64::new(
            start.as_microsecond(),
        ))))
    }

    /// A clock that shows what it is told, for worlds whose time is not ours.
    #[must_use]
    pub fn told(now: Arc<dyn Fn() -> Timestamp + Send + Sync>) -> Self {
        Self(Source::Told(now))
    }

    /// The current time.
    #[must_use]
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the one place that reads the clock"
    )]
    pub fn now(&self) -> Timestamp {
        let micros = match &self.0 {
            Source::System => Timestamp::now().as_microsecond(),
            Source::Manual(micros) => micros.load(Ordering::SeqCst),
            Source::Told(now) => now().as_microsecond(),
        };
        Timestamp::from_microsecond(micros).unwrap_or(Timestamp::MAX)
    }

    /// Moves a manual clock; every other is not ours to move and stays.
    pub fn advance(&self, by: SignedDuration) {
        if let Source::Manual(micros) = &self.0 {
            let step = i64::try_from(by.as_micros()).unwrap_or(i64::MAX);
            micros.fetch_add(step, Ordering::SeqCst);
        }
    }
}
