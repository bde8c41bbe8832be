//! Real servers for tests: the orchestrator's own [`Site`], and what a test asks of a client.

use anyhow::Context as _;
use async_nats::client::RequestErrorKind;
use async_nats::{Client, Event};
use futures::StreamExt as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub use orchestrator::site::{Core, Leaf, Login, Options, Place, Server, Site, SiteError, User};

/// A request that nothing blocks is answered far sooner.
const ANSWER: Duration = Duration::from_secs(3);

/// One core server and both leaf nodes, in a temporary directory.
///
/// # Errors
/// As [`Site::start`].
pub async fn one_node() -> anyhow::Result<Site> {
    Site::start(Options::default()).await.context("one node")
}

/// Three core servers and both leaf nodes, in a temporary directory.
///
/// # Errors
/// As [`Site::start`].
pub async fn three_nodes() -> anyhow::Result<Site> {
    let options = Options {
        core: Core::ThreeNodes,
        ..Options::default()
    };
    Site::start(options).await.context("three nodes")
}

/// What became of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// A reply.
    Reply(String),
    /// The server knows nobody who listens.
    NoResponders,
    /// Nothing within three seconds: swallowed, refused or unanswered.
    Silence,
}

/// Sends a request and tells what came back.
pub async fn ask(client: &Client, subject: &str, body: &str) -> Answer {
    let request = client.request(subject.to_owned(), body.to_owned().into());
    match tokio::time::timeout(ANSWER, request).await {
        Err(_elapsed) => Answer::Silence,
        Ok(Ok(reply)) => Answer::Reply(String::from_utf8_lossy(&reply.payload).into_owned()),
        Ok(Err(error)) if error.kind() == RequestErrorKind::NoResponders => Answer::NoResponders,
        Ok(Err(_)) => Answer::Silence,
    }
}

/// Answers wallet subjects of its region with its region's name.
///
/// # Errors
/// When it cannot connect or subscribe.
#[expect(clippy::disallowed_methods, reason = "a reply is never acknowledged")]
pub async fn agent(site: &Site, leaf: Leaf) -> anyhow::Result<Watched> {
    let agent = Watched::connect(&site.login(User::Agent(leaf))).await?;
    let mut requests = agent
        .client
        .queue_subscribe(format!("billing.{leaf}.>"), "wallet".to_owned())
        .await?;
    let client = agent.client.clone();
    tokio::spawn(async move {
        while let Some(request) = requests.next().await {
            if let Some(reply) = request.reply {
                client.publish(reply, leaf.region().into()).await.ok();
            }
        }
    });
    Ok(agent)
}

/// Asks until somebody answers: interest crosses the leaf link a moment after the subscription.
///
/// # Errors
/// When nobody does within ten seconds.
pub async fn reached(client: &Client, subject: &str) -> anyhow::Result<String> {
    let asking = async {
        loop {
            if let Answer::Reply(body) = ask(client, subject, "{}").await {
                return body;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), asking)
        .await
        .with_context(|| format!("nobody answers {subject}"))
}

/// Tells whether anything arrives within half a second.
pub async fn hears(subscriber: &mut async_nats::Subscriber) -> Option<String> {
    tokio::time::timeout(Duration::from_millis(500), subscriber.next())
        .await
        .ok()
        .flatten()
        .map(|message| message.subject.to_string())
}

/// A client that remembers what the server refused it.
#[derive(Debug, Clone)]
pub struct Watched {
    /// The client.
    pub client: Client,
    refusals: Arc<Mutex<Vec<String>>>,
}

impl Watched {
    /// Connects.
    ///
    /// # Errors
    /// When the server cannot be reached or refuses the user.
    pub async fn connect(login: &Login) -> anyhow::Result<Self> {
        let refusals: Arc<Mutex<Vec<String>>> = Arc::default();
        let remember = Arc::clone(&refusals);
        let client = login
            .options()
            .event_callback(move |event| {
                let remember = Arc::clone(&remember);
                async move {
                    if let Event::ServerError(error) = event {
                        remember
                            .lock()
                            .unwrap_or_else(PoisonError::into_inner)
                            .push(error.to_string());
                    }
                }
            })
            .connect(login.servers())
            .await
            .with_context(|| format!("{} at {}", login.user, login.url))?;
        Ok(Self { client, refusals })
    }

    /// Publishes, and waits until the server has refused just that.
    ///
    /// # Errors
    /// When it is let through, or no refusal comes within five seconds.
    #[expect(
        clippy::disallowed_methods,
        reason = "the refusal is awaited, and there is no acknowledgement to await"
    )]
    pub async fn may_not_publish(&self, subject: &str) -> anyhow::Result<()> {
        self.client.publish(subject.to_owned(), "{}".into()).await?;
        self.client.flush().await?;
        self.refused(&format!("Publish to \"{subject}\"")).await
    }

    /// Waits until the server has refused something that mentions `subject`.
    ///
    /// # Errors
    /// When it has not within five seconds.
    pub async fn refused(&self, subject: &str) -> anyhow::Result<()> {
        let looking = async {
            // Servers differ in the case they write refusals in.
            while !self
                .refusals()
                .iter()
                .any(|refusal| refusal.to_lowercase().contains(&subject.to_lowercase()))
            {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(5), looking)
            .await
            .with_context(|| {
                format!(
                    "no refusal of {subject}; refused were {:?}",
                    self.refusals()
                )
            })
    }

    /// Everything the server has refused so far.
    #[must_use]
    pub fn refusals(&self) -> Vec<String> {
        self.refusals
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}
