//! Why a site could not be started or driven.

use std::time::Duration;

/// Why the system could not be started or driven.
#[derive(Debug, thiserror::Error)]
pub enum SiteError {
    /// No usable nats-server.
    #[error(
        "no nats-server 2.15 or newer found; run `make tools`, or set NATS_SERVER to one. Looked at:\n{looked_at}"
    )]
    NoServer {
        /// Each candidate and what is wrong with it.
        looked_at: String,
    },
    /// A file or a process could not be made.
    #[error("{what}")]
    Io {
        /// What was attempted.
        what: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// Certificates could not be made.
    #[error("certificates for the leaf links: {0}")]
    Certificates(String),
    /// A process ended although it was needed.
    #[error("{name} ended ({status}). End of its log:\n{log}")]
    Ended {
        /// Which.
        name: String,
        /// How.
        status: String,
        /// The last lines it wrote.
        log: String,
    },
    /// Something did not happen in time.
    #[error("{what} did not happen within {bound:?}. {detail}")]
    TimedOut {
        /// What was awaited.
        what: String,
        /// How long.
        bound: Duration,
        /// What was seen instead, with the end of a log where there is one.
        detail: String,
    },
    /// No process of that name.
    #[error("no process called {0}")]
    Unknown(String),
    /// A client could not connect.
    #[error("{user} cannot connect to {url}: {reason}")]
    Connect {
        /// Which user.
        user: String,
        /// Where.
        url: String,
        /// The client's words.
        reason: String,
    },
}
