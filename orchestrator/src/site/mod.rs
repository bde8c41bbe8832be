//! A whole local system as child processes: core servers, leaf nodes and any program beside them.
//!
//! The demo, `make up` and the tests run on this, so that they all run on the configurations of `nats/`
//! with their accounts, permissions and TLS links, never on a lone open server. Every process can be
//! killed, frozen and started again on the same ports and stores. Nothing outlives the [`Site`]: dropping
//! it kills everything, and when this process itself is killed a guard does.

mod error;
mod files;
mod guard;
mod locate;
mod login;
mod ports;
mod process;

pub use error::SiteError;
pub use locate::find_nats_server;
pub use login::{Leaf, Login, User};

use crate::{jsapi, monitor};
use async_nats::Client;
use files::Addresses;
use guard::Guard;
use process::Process;
use serde_json::Value;
use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

/// How often a condition that nobody announces is looked at.
const POLL: Duration = Duration::from_millis(20);
/// Longest wait for a server to be ready; generous, because test machines are busy.
const READY: Duration = Duration::from_secs(30);
/// Longest wait for a leaf link: includes noticing a dead one.
const LINKS: Duration = Duration::from_secs(60);
/// New ports are tried so often when somebody else takes one between choosing and listening.
const START_ATTEMPTS: u32 = 5;

/// How many core servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Core {
    /// `core.conf`: one server, streams with one copy.
    OneNode,
    /// `profiles/three-nodes-*.conf`: a cluster, streams with three copies.
    ThreeNodes,
}

impl Core {
    fn nodes(self) -> std::ops::RangeInclusive<u8> {
        match self {
            Self::OneNode => 1..=1,
            Self::ThreeNodes => 1..=3,
        }
    }

    /// The copies its streams should have.
    #[must_use]
    pub fn replicas(self) -> u8 {
        *self.nodes().end()
    }
}

/// Where stores, logs and certificates lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A new directory, removed at the end (kept after a panic, for its logs), and free ports.
    Temporary,
    /// This directory, kept, and the ports of `nats/dev.env`.
    Kept(PathBuf),
}

/// One of the servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Server {
    /// A core server by number; 1 where there is one.
    Core(u8),
    /// A region's leaf node.
    Leaf(Leaf),
}

/// What to start.
#[derive(Debug, Clone)]
pub struct Options {
    /// One core server or three.
    pub core: Core,
    /// Where.
    pub place: Place,
    /// The program; found by [`find_nats_server`] when absent.
    pub nats_server: Option<PathBuf>,
    /// `sync_interval`; `None` as shipped (always). Tests of the doctor weaken it.
    pub sync_interval: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            core: Core::OneNode,
            place: Place::Temporary,
            nats_server: None,
            sync_interval: None,
        }
    }
}

/// A running system. See the module.
#[derive(Debug)]
pub struct Site {
    core: Core,
    environment: BTreeMap<String, String>,
    addresses: Addresses,
    processes: BTreeMap<String, Process>,
    guard: Guard,
    // Last, so that everything has ended before its files go.
    dir: files::Directory,
}

impl Site {
    /// Starts the core servers and both leaf nodes, and waits until each has answered and both links stand.
    ///
    /// # Errors
    /// [`SiteError`], with the end of the log of the server that failed.
    pub async fn start(options: Options) -> Result<Self, SiteError> {
        let program = match &options.nats_server {
            Some(program) => program.clone(),
            None => find_nats_server()?,
        };
        let mut attempt = 1;
        loop {
            match Self::start_once(&program, &options).await {
                Err(SiteError::Ended { log, .. })
                    if options.place == Place::Temporary
                        && attempt < START_ATTEMPTS
                        && log.contains("address already in use") =>
                {
                    attempt += 1;
                }
                result => return result,
            }
        }
    }

    async fn start_once(program: &Path, options: &Options) -> Result<Self, SiteError> {
        let dir = files::Directory::make(&options.place)?;
        files::write(dir.path(), options.sync_interval.as_deref())?;
        let addresses = match options.place {
            Place::Temporary => Addresses::free()?,
            Place::Kept(_) => Addresses::declared(),
        };
        let mut site = Self {
            core: options.core,
            environment: files::environment(&addresses),
            addresses,
            processes: BTreeMap::new(),
            guard: Guard::start(dir.path(), options.place == Place::Temporary)?,
            dir,
        };
        let cores: Vec<Server> = options.core.nodes().map(Server::Core).collect();
        for &server in &cores {
            site.spawn_server(program, server)?;
        }
        for &server in &cores {
            site.server_ready(server).await?;
        }
        for leaf in Leaf::ALL {
            site.spawn_server(program, Server::Leaf(leaf))?;
        }
        site.links_ready().await?;
        Ok(site)
    }

    fn spawn_server(&mut self, program: &Path, server: Server) -> Result<(), SiteError> {
        let config = match (self.core, server) {
            (Core::OneNode, Server::Core(_)) => "core.conf".to_owned(),
            (Core::ThreeNodes, Server::Core(node)) => format!("profiles/three-nodes-{node}.conf"),
            (_, Server::Leaf(leaf)) => format!("leaf-{leaf}.conf"),
        };
        let mut command = Command::new(program);
        command
            .arg("-c")
            .arg(self.dir.path().join("nats").join(config))
            .current_dir(self.dir.path())
            .envs(&self.environment);
        self.spawn(&self.server_name(server), command)
    }

    /// Starts any program under a name; its output goes to `<dir>/logs/<name>.log`. It is killed with the rest.
    ///
    /// # Errors
    /// [`SiteError::Io`] when it cannot be started.
    pub fn spawn(&mut self, name: &str, command: Command) -> Result<(), SiteError> {
        let log = self.dir.path().join("logs").join(format!("{name}.log"));
        let process = Process::spawn(name, command, log, self.guard.pids())?;
        self.processes.insert(name.to_owned(), process);
        Ok(())
    }

    /// The directory of configurations, certificates, stores and logs.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// How many core servers there are.
    #[must_use]
    pub fn core(&self) -> Core {
        self.core
    }

    /// The name a server goes by here and in its own reports: `core`, `core-2`, `leaf-eu`.
    #[must_use]
    pub fn server_name(&self, server: Server) -> String {
        match (self.core, server) {
            (Core::OneNode, Server::Core(_)) => "core".to_owned(),
            (Core::ThreeNodes, Server::Core(node)) => format!("core-{node}"),
            (_, Server::Leaf(leaf)) => format!("leaf-{leaf}"),
        }
    }

    /// `host:port` of a server's monitoring endpoint.
    #[must_use]
    pub fn monitor(&self, server: Server) -> String {
        self.addresses.http(self.core, server)
    }

    /// A variable of the configurations as this site has it, such as `LEAF_EU_REMOTE`; see `nats/dev.env`.
    #[must_use]
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.environment.get(name).map(String::as_str)
    }

    /// Keeps the files of a temporary site, for a person to look into.
    pub fn keep_files(&mut self) {
        self.dir.keep();
    }

    /// An address of this machine nobody listens on now, for a program beside the servers.
    ///
    /// # Errors
    /// [`SiteError::Io`] when there is none.
    pub fn free_address() -> Result<SocketAddr, SiteError> {
        ports::free().map(|reserved| SocketAddr::from(([127, 0, 0, 1], reserved.port)))
    }

    /// Where and as whom to connect to one core server at its usual ports, whether it runs or not.
    #[must_use]
    pub fn usual_login(user: User) -> Login {
        let addresses = Addresses::declared();
        let server = match user {
            User::Agent(leaf) => Server::Leaf(leaf),
            _ => Server::Core(1),
        };
        Login::new(
            user,
            addresses.client(Core::OneNode, server),
            &files::environment(&addresses),
        )
    }

    /// Where and as whom to connect: users of the core at all its servers, agents at their leaf.
    #[must_use]
    pub fn login(&self, user: User) -> Login {
        let url = match user {
            User::Agent(leaf) => self.addresses.client(self.core, Server::Leaf(leaf)),
            _ => self
                .core
                .nodes()
                .map(|node| self.addresses.client(self.core, Server::Core(node)))
                .collect::<Vec<_>>()
                .join(","),
        };
        Login::new(user, url, &self.environment)
    }

    /// As [`Self::login`], at one particular server.
    #[must_use]
    pub fn login_at(&self, user: User, server: Server) -> Login {
        Login::new(
            user,
            self.addresses.client(self.core, server),
            &self.environment,
        )
    }

    /// Connects as [`Self::login`] says.
    ///
    /// # Errors
    /// [`SiteError::Connect`].
    pub async fn connect(&self, user: User) -> Result<Client, SiteError> {
        self.login(user).connect().await
    }

    /// Kills a process at once, as `kill -9` does, and waits until it is gone.
    ///
    /// # Errors
    /// [`SiteError::Unknown`] for a name never spawned; [`SiteError::Io`] when it cannot be signalled.
    pub fn kill(&mut self, name: &str) -> Result<(), SiteError> {
        self.process(name)?.kill()
    }

    /// Asks a process to end (`SIGTERM`) and waits until it has.
    ///
    /// # Errors
    /// As [`Self::kill`], and [`SiteError::TimedOut`].
    pub async fn terminate(&mut self, name: &str, bound: Duration) -> Result<(), SiteError> {
        self.process(name)?.terminate()?;
        self.until(&format!("end of {name}"), bound, async |site| {
            Ok((!site.process(name)?.is_running()?).then_some(()))
        })
        .await
    }

    /// Freezes a process (`SIGSTOP`): its connections stay open and nothing is answered.
    ///
    /// # Errors
    /// As [`Self::kill`].
    pub fn freeze(&mut self, name: &str) -> Result<(), SiteError> {
        self.process(name)?.freeze()
    }

    /// Lets a frozen process run again (`SIGCONT`).
    ///
    /// # Errors
    /// As [`Self::kill`].
    pub fn thaw(&mut self, name: &str) -> Result<(), SiteError> {
        self.process(name)?.thaw()
    }

    /// Starts a process again as it was started first, killing it before if it still runs. Does not wait
    /// for it to be ready: see [`Self::restart_server`] and [`Self::until`].
    ///
    /// # Errors
    /// As [`Self::kill`].
    pub fn restart(&mut self, name: &str) -> Result<(), SiteError> {
        self.process(name)?.restart()
    }

    /// Whether a process runs (or is frozen).
    ///
    /// # Errors
    /// As [`Self::kill`].
    pub fn is_running(&mut self, name: &str) -> Result<bool, SiteError> {
        self.process(name)?.is_running()
    }

    /// How a process ended; `None` while it runs.
    ///
    /// # Errors
    /// As [`Self::kill`].
    pub fn exit_status(&mut self, name: &str) -> Result<Option<ExitStatus>, SiteError> {
        self.process(name)?.exit_status()
    }

    /// The end of a process's output.
    #[must_use]
    pub fn log_tail(&self, name: &str) -> String {
        self.processes
            .get(name)
            .map_or_else(String::new, Process::log_tail)
    }

    /// Starts a server again on the same ports and store, and waits until it answers and, for all of them,
    /// until the leaf links stand again.
    ///
    /// # Errors
    /// [`SiteError`].
    pub async fn restart_server(&mut self, server: Server) -> Result<(), SiteError> {
        let name = self.server_name(server);
        self.restart(&name)?;
        self.server_ready(server).await?;
        self.links_ready().await
    }

    /// Waits until a server answers: a core server with JetStream working, a leaf with its monitoring page.
    ///
    /// # Errors
    /// [`SiteError::Ended`] as soon as it has ended, [`SiteError::TimedOut`].
    pub async fn server_ready(&mut self, server: Server) -> Result<(), SiteError> {
        let name = self.server_name(server);
        let address = self.monitor(server);
        let (health, needs_jetstream) = match server {
            Server::Core(_) => ("/healthz", true),
            Server::Leaf(_) => ("/varz", false),
        };
        self.until(&format!("{name} ready"), READY, async |site| {
            site.process(&name)?.must_run()?;
            Ok(monitor::get(&address, health).await.ok())
        })
        .await?;
        if needs_jetstream {
            // Health does not say that a leader of the JetStream API answers, so ask it something.
            let client = self.login_at(User::Orchestrator, server).connect().await?;
            self.until(&format!("JetStream of {name}"), READY, async |site| {
                site.process(&name)?.must_run()?;
                Ok(jsapi::ask(&client, "INFO", &Value::Null).await.ok())
            })
            .await?;
        }
        Ok(())
    }

    /// Waits until every leaf node that runs is linked to a core server, in its region's account.
    ///
    /// # Errors
    /// [`SiteError::Ended`] as soon as a server has ended, [`SiteError::TimedOut`].
    pub async fn links_ready(&mut self) -> Result<(), SiteError> {
        let leaves: Vec<String> = Leaf::ALL
            .map(|leaf| self.server_name(Server::Leaf(leaf)))
            .into();
        self.until("leaf links", LINKS, async |site| {
            let mut linked = Vec::new();
            for node in site.core.nodes() {
                let address = site.monitor(Server::Core(node));
                if let Ok(page) = monitor::get(&address, "/leafz").await {
                    linked.extend(page["leafs"].as_array().cloned().unwrap_or_default());
                }
            }
            for leaf in &leaves {
                if site.processes.contains_key(leaf)
                    && site.process(leaf)?.must_run_unless_killed()?
                    && !linked
                        .iter()
                        .any(|link| link["name"].as_str() == Some(leaf))
                {
                    return Ok(None);
                }
            }
            Ok(Some(()))
        })
        .await
    }

    /// Looks again and again until `probe` gives something. For conditions that nobody announces.
    ///
    /// # Errors
    /// What `probe` fails with, or [`SiteError::TimedOut`] with the end of every log.
    pub async fn until<T, P>(
        &mut self,
        what: &str,
        bound: Duration,
        mut probe: P,
    ) -> Result<T, SiteError>
    where
        P: AsyncFnMut(&mut Self) -> Result<Option<T>, SiteError>,
    {
        let looking = async {
            loop {
                if let Some(found) = probe(self).await? {
                    return Ok(found);
                }
                tokio::time::sleep(POLL).await;
            }
        };
        match bounded(bound, looking).await {
            Some(result) => result,
            None => Err(SiteError::TimedOut {
                what: what.to_owned(),
                bound,
                detail: self.logs(),
            }),
        }
    }

    fn process(&mut self, name: &str) -> Result<&mut Process, SiteError> {
        self.processes
            .get_mut(name)
            .ok_or_else(|| SiteError::Unknown(name.to_owned()))
    }

    fn logs(&self) -> String {
        let mut text = format!("Files are in {}.", self.dir.path().display());
        for (name, process) in &self.processes {
            text.push_str(&format!("\n--- {name}\n{}", process.log_tail()));
        }
        text
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        for process in self.processes.values_mut() {
            if let Err(error) = process.kill() {
                tracing::warn!(%error, "process may still run");
            }
        }
        self.guard.dismiss();
        if std::thread::panicking() {
            self.dir.keep();
        }
    }
}

async fn bounded<T>(bound: Duration, work: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(bound, work).await.ok()
}
