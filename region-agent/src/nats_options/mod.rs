//! How to reach NATS: flags, environment, TOML, or a context of the NATS CLI. Shared by both
//! binaries, so that `--context eu` means the same to them as to `nats --context eu`.

mod context;

#[cfg(test)]
mod tests;

use async_nats::{Client, ConnectOptions, Event};
use context::{ContextFile, expand_home, read_context};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where a server is looked for when nothing says otherwise.
pub const DEFAULT_URL: &str = "nats://127.0.0.1:4222";

/// Environment suffixes and the keys they set, for a figment layer of either binary.
pub const ENVIRONMENT: [(&str, &str); 12] = [
    ("NATS_CONTEXT", "nats.context"),
    ("NATS_URL", "nats.url"),
    ("NATS_CREDS", "nats.creds"),
    ("NATS_USER", "nats.user"),
    ("NATS_PASSWORD", "nats.password"),
    ("NATS_TOKEN", "nats.token"),
    ("NATS_NKEY", "nats.nkey"),
    ("NATS_CA", "nats.ca"),
    ("NATS_CERT", "nats.cert"),
    ("NATS_KEY", "nats.key"),
    ("NATS_TLS_FIRST", "nats.tls_first"),
    ("NATS_INBOX_PREFIX", "nats.inbox_prefix"),
];

/// A text that is never shown in a log.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

impl std::str::FromStr for Secret {
    type Err = std::convert::Infallible;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.to_owned()))
    }
}

/// Everything that may be said about the connection; what is set here overrides the context.
#[derive(Debug, Clone, Default, PartialEq, Eq, clap::Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[command(next_help_heading = "NATS")]
pub struct NatsOptions {
    /// Context of the NATS CLI to take the settings from (a name, or a path ending in .json)
    #[arg(
        id = "nats_context",
        long = "context",
        value_name = "NAME",
        global = true
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// Servers, separated by commas [default: nats://127.0.0.1:4222]
    #[arg(id = "nats_url", long = "nats-url", value_name = "URL", global = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Credentials file with a user's JWT and seed
    #[arg(
        id = "nats_creds",
        long = "nats-creds",
        value_name = "FILE",
        global = true
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creds: Option<PathBuf>,
    /// User name
    #[arg(
        id = "nats_user",
        long = "nats-user",
        value_name = "NAME",
        global = true
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Password; better given in the environment, where other users do not see it
    #[arg(
        id = "nats_password",
        long = "nats-password",
        value_name = "TEXT",
        global = true
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<Secret>,
    /// Token; better given in the environment
    #[arg(
        id = "nats_token",
        long = "nats-token",
        value_name = "TEXT",
        global = true
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<Secret>,
    /// File with an nkey seed
    #[arg(
        id = "nats_nkey",
        long = "nats-nkey",
        value_name = "FILE",
        global = true
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nkey: Option<PathBuf>,
    /// Certificate authority to trust, PEM; asks for TLS
    #[arg(id = "nats_ca", long = "nats-ca", value_name = "FILE", global = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// Client certificate, PEM
    #[arg(
        id = "nats_cert",
        long = "nats-cert",
        value_name = "FILE",
        global = true
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert: Option<PathBuf>,
    /// Key of the client certificate, PEM
    #[arg(id = "nats_key", long = "nats-key", value_name = "FILE", global = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// `true` to speak TLS before the server says a word
    #[arg(
        id = "nats_tls_first",
        long = "nats-tls-first",
        value_name = "BOOL",
        global = true
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_first: Option<String>,
    /// Prefix of reply subjects, where the account's permissions ask for one
    #[arg(
        id = "nats_inbox_prefix",
        long = "nats-inbox-prefix",
        value_name = "SUBJECT",
        global = true
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inbox_prefix: Option<String>,
}

/// What to do while no server can be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenUnreachable {
    /// Report it: for a command a person waits for.
    Fail,
    /// Keep trying in the background, from the first connection on: for a service.
    KeepTrying,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum NatsOptionsError {
    /// A setting cannot be used as it is.
    #[error("{field}: {problem}")]
    Setting {
        /// The setting, as named in TOML.
        field: String,
        /// What is wrong and how to mend it.
        problem: String,
    },
    /// A file cannot be read.
    #[error("{field}: {path} cannot be read")]
    File {
        /// The setting that names it.
        field: &'static str,
        /// Where.
        path: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The server cannot be reached or refuses us.
    #[error("no connection to {url}")]
    Connect {
        /// Where, without a password.
        url: String,
        /// Why.
        #[source]
        source: async_nats::ConnectError,
    },
}

impl NatsOptions {
    /// Checks the settings and fills what is not set from the context, without connecting.
    ///
    /// # Errors
    /// [`NatsOptionsError::Setting`] or [`NatsOptionsError::File`].
    pub fn resolve(self) -> Result<Self, NatsOptionsError> {
        let mut options = match &self.context {
            None => self,
            Some(name) => {
                let context = read_context(name)?;
                self.or_context(context)
            }
        };
        let has_identity = options.creds.is_some()
            || options.user.is_some()
            || options.token.is_some()
            || options.nkey.is_some();
        if options.password.is_some() && !has_identity {
            return Err(setting("nats.password", "needs nats.user"));
        }
        if options.cert.is_some() != options.key.is_some() {
            return Err(setting("nats.cert", "nats.cert and nats.key go together"));
        }
        tls_first(options.tls_first.as_deref())?;
        for url in options.urls() {
            url.parse::<async_nats::ServerAddr>()
                .map_err(|error| setting("nats.url", &format!("{url:?}: {error}")))?;
        }
        for (field, path) in [
            ("nats.creds", &mut options.creds),
            ("nats.nkey", &mut options.nkey),
            ("nats.ca", &mut options.ca),
            ("nats.cert", &mut options.cert),
            ("nats.key", &mut options.key),
        ] {
            if let Some(path) = path {
                *path = expand_home(path);
                std::fs::metadata(&*path).map_err(|source| file(field, path, source))?;
            }
        }
        Ok(options)
    }

    /// Connects under `name`, which `nats server report connections` shows. Resolves first.
    ///
    /// # Errors
    /// [`NatsOptionsError`]; with [`WhenUnreachable::KeepTrying`] an unreachable server is none.
    pub async fn connect(
        &self,
        name: &str,
        when_unreachable: WhenUnreachable,
    ) -> Result<Client, NatsOptionsError> {
        let options = self.clone().resolve()?;
        let urls = options.urls();
        let mut connect = options
            .authentication(ConnectOptions::new())
            .await?
            .name(name)
            // Two lost pings end a half-dead link after some 15 s instead of three minutes.
            .ping_interval(Duration::from_secs(5))
            .max_reconnects(None)
            .reconnect_delay_callback(|attempt| {
                let doublings = u32::try_from(attempt.min(6)).unwrap_or(6);
                Duration::from_millis((100 << doublings).min(5_000))
            })
            .event_callback(|event| async move { log_event(&event) });
        if let Some(ca) = &options.ca {
            connect = connect.add_root_certificates(ca.clone()).require_tls(true);
        }
        if let (Some(cert), Some(key)) = (&options.cert, &options.key) {
            connect = connect
                .add_client_certificate(cert.clone(), key.clone())
                .require_tls(true);
        }
        if tls_first(options.tls_first.as_deref())? {
            connect = connect.tls_first();
        }
        if let Some(prefix) = &options.inbox_prefix {
            connect = connect.custom_inbox_prefix(prefix);
        }
        if when_unreachable == WhenUnreachable::KeepTrying {
            connect = connect.retry_on_initial_connect();
        }
        connect
            .connect(urls.as_slice())
            .await
            .map_err(|source| NatsOptionsError::Connect {
                url: urls
                    .iter()
                    .map(|url| without_userinfo(url))
                    .collect::<Vec<_>>()
                    .join(","),
                source,
            })
    }

    async fn authentication(
        &self,
        connect: ConnectOptions,
    ) -> Result<ConnectOptions, NatsOptionsError> {
        if let Some(creds) = &self.creds {
            return connect
                .credentials_file(creds)
                .await
                .map_err(|source| file("nats.creds", creds, source));
        }
        if let Some(nkey) = &self.nkey {
            let seed = tokio::fs::read_to_string(nkey)
                .await
                .map_err(|source| file("nats.nkey", nkey, source))?;
            return Ok(connect.nkey(seed.trim().to_owned()));
        }
        if let Some(token) = &self.token {
            return Ok(connect.token(token.0.clone()));
        }
        if let Some(user) = &self.user {
            let password = self
                .password
                .as_ref()
                .map(|secret| secret.0.clone())
                .unwrap_or_default();
            return Ok(connect.user_and_password(user.clone(), password));
        }
        Ok(connect)
    }

    fn urls(&self) -> Vec<String> {
        self.url
            .as_deref()
            .unwrap_or(DEFAULT_URL)
            .split(',')
            .map(|url| url.trim().to_owned())
            .filter(|url| !url.is_empty())
            .collect()
    }

    /// An identity given here replaces the context's as a whole: a context's credentials beside a
    /// user of ours would leave open which one the server sees.
    fn or_context(self, context: ContextFile) -> Self {
        let own_identity = self.creds.is_some()
            || self.user.is_some()
            || self.token.is_some()
            || self.nkey.is_some();
        let identity = |text: String| if own_identity { None } else { filled(text) };
        Self {
            context: self.context,
            url: self.url.or_else(|| filled(context.url)),
            creds: self
                .creds
                .or_else(|| identity(context.creds).map(PathBuf::from)),
            user: self.user.or_else(|| identity(context.user)),
            password: self
                .password
                .or_else(|| identity(context.password).map(Secret)),
            token: self.token.or_else(|| identity(context.token).map(Secret)),
            nkey: self
                .nkey
                .or_else(|| identity(context.nkey).map(PathBuf::from)),
            ca: self.ca.or_else(|| filled(context.ca).map(PathBuf::from)),
            cert: self
                .cert
                .or_else(|| filled(context.cert).map(PathBuf::from)),
            key: self.key.or_else(|| filled(context.key).map(PathBuf::from)),
            tls_first: self
                .tls_first
                .or_else(|| context.tls_first.then(|| "true".to_owned())),
            inbox_prefix: self.inbox_prefix.or_else(|| filled(context.inbox_prefix)),
        }
    }
}

fn tls_first(text: Option<&str>) -> Result<bool, NatsOptionsError> {
    match text {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(other) => Err(setting(
            "nats.tls_first",
            &format!("{other:?} is neither true nor false"),
        )),
    }
}

fn without_userinfo(url: &str) -> String {
    match (url.find("://"), url.rfind('@')) {
        (Some(scheme), Some(at)) if at > scheme => {
            format!("{}{}", &url[..scheme + 3], &url[at + 1..])
        }
        (_, Some(at)) => url[at + 1..].to_owned(),
        (_, None) => url.to_owned(),
    }
}

fn filled(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

fn setting(field: &str, problem: &str) -> NatsOptionsError {
    NatsOptionsError::Setting {
        field: field.to_owned(),
        problem: problem.to_owned(),
    }
}

fn file(field: &'static str, path: &Path, source: std::io::Error) -> NatsOptionsError {
    NatsOptionsError::File {
        field,
        path: path.display().to_string(),
        source,
    }
}

fn log_event(event: &Event) {
    match event {
        Event::Connected | Event::Draining | Event::Closed => tracing::info!(%event, "NATS"),
        Event::Disconnected
        | Event::LameDuckMode
        | Event::SlowConsumer(_)
        | Event::ServerError(_)
        | Event::ClientError(_) => tracing::warn!(%event, "NATS"),
    }
}
