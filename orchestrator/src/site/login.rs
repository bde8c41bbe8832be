//! The users of `nats/core-accounts.conf` and `nats/leaf-*.conf`.

use super::SiteError;
use async_nats::{Client, ConnectOptions};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// A region with a leaf node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Leaf {
    /// `eu`
    Eu,
    /// `asia`
    Asia,
}

impl Leaf {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Eu, Self::Asia];

    /// The region's name, as in subjects.
    #[must_use]
    pub fn region(self) -> &'static str {
        match self {
            Self::Eu => "eu",
            Self::Asia => "asia",
        }
    }
}

impl fmt::Display for Leaf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.region())
    }
}

/// Who connects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum User {
    /// The orchestrator (account CORE).
    Orchestrator,
    /// Serves exchange rates (account CORE).
    Rates,
    /// Stores providers' callbacks (account EDGE).
    Gateway,
    /// Another team's consumer of events (account TEAMS).
    Events,
    /// A person with the NATS CLI (account OPS).
    Operator,
    /// The system account.
    System,
    /// A region's agent, at its leaf.
    Agent(Leaf),
    /// A person in a region's account.
    RegionOperator(Leaf),
}

impl User {
    /// The user name.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Orchestrator => "orchestrator".to_owned(),
            Self::Rates => "rates".to_owned(),
            Self::Gateway => "gateway".to_owned(),
            Self::Events => "events".to_owned(),
            Self::Operator => "operator".to_owned(),
            Self::System => "system".to_owned(),
            Self::Agent(leaf) => format!("agent-{leaf}"),
            Self::RegionOperator(leaf) => format!("operator-{leaf}"),
        }
    }

    /// The only prefix its reply subjects may have.
    #[must_use]
    pub fn inbox_prefix(self) -> &'static str {
        match self {
            Self::Orchestrator => "_INBOX_core",
            Self::Rates => "_INBOX_rates",
            Self::Gateway => "_INBOX_gateway",
            Self::Events => "_INBOX_events",
            Self::Operator | Self::RegionOperator(_) => "_INBOX_ops",
            Self::System => "_INBOX",
            Self::Agent(_) => "_INBOX_agent",
        }
    }

    fn password_variable(self) -> String {
        format!("{}_PASSWORD", self.name().replace('-', "_").to_uppercase())
    }
}

/// Everything a client needs to connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Login {
    /// One address or several, comma-separated, without credentials.
    pub url: String,
    /// User name.
    pub user: String,
    /// Password.
    pub password: String,
    /// See [`User::inbox_prefix`].
    pub inbox_prefix: String,
}

impl Login {
    pub(super) fn new(user: User, url: String, environment: &BTreeMap<String, String>) -> Self {
        Self {
            url,
            user: user.name(),
            password: environment
                .get(&user.password_variable())
                .cloned()
                .unwrap_or_default(),
            inbox_prefix: user.inbox_prefix().to_owned(),
        }
    }

    /// Connects, with a bound; reconnects by itself later.
    ///
    /// # Errors
    /// [`SiteError::Connect`].
    pub async fn connect(&self) -> Result<Client, SiteError> {
        let failed = |reason: String| SiteError::Connect {
            user: self.user.clone(),
            url: self.url.clone(),
            reason,
        };
        let bound = Duration::from_secs(10);
        let connecting = self.options().connect(self.servers());
        match tokio::time::timeout(bound, connecting).await {
            Ok(Ok(client)) => Ok(client),
            Ok(Err(error)) => Err(failed(error.to_string())),
            Err(_elapsed) => Err(failed(format!("no connection within {bound:?}"))),
        }
    }

    /// The addresses one by one, as the client wants them.
    #[must_use]
    pub fn servers(&self) -> Vec<String> {
        self.url.split(',').map(str::to_owned).collect()
    }

    /// Client options with these credentials, to be refined by the caller.
    #[must_use]
    pub fn options(&self) -> ConnectOptions {
        ConnectOptions::with_user_and_password(self.user.clone(), self.password.clone())
            .custom_inbox_prefix(self.inbox_prefix.clone())
            .name(self.user.clone())
            .reconnect_delay_callback(|attempt| {
                Duration::from_millis(50 * u64::try_from(attempt.min(20)).unwrap_or(20))
            })
    }

    /// Environment for one of our programs, whose variables begin with `prefix`: `REGION_AGENT_NATS_URL`…
    #[must_use]
    pub fn environment(&self, prefix: &str) -> Vec<(String, String)> {
        [
            ("NATS_URL", &self.url),
            ("NATS_USER", &self.user),
            ("NATS_PASSWORD", &self.password),
            ("NATS_INBOX_PREFIX", &self.inbox_prefix),
        ]
        .map(|(name, value)| (format!("{prefix}{name}"), value.clone()))
        .into()
    }

    /// Arguments for the NATS CLI: `nats <these> kv get saga <key>`.
    #[must_use]
    pub fn cli_arguments(&self) -> Vec<String> {
        [
            "--no-context",
            "--server",
            &self.url,
            "--user",
            &self.user,
            "--password",
            &self.password,
            "--inbox-prefix",
            &self.inbox_prefix,
        ]
        .map(str::to_owned)
        .into()
    }
}
