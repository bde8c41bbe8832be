//! A PostgreSQL of a test's own, from the binaries installed on this machine.

use anyhow::{Context as _, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;
use tempfile::TempDir;

/// Longest wait for the server to say that it is ready; recovery after a crash included.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Ports tried, as another process may take a free one before the server binds it.
const PORTS_TRIED: usize = 5;

/// A server with durable settings (`fsync` on), on a random port of 127.0.0.1. Stopped and deleted
/// when dropped.
#[derive(Debug)]
pub struct Postgres {
    binaries: PathBuf,
    owner: Option<Owner>,
    directory: TempDir,
    server: Option<Child>,
    port: u16,
}

/// Whom the server runs as: it refuses to run as root.
#[derive(Debug, Clone, Copy)]
struct Owner {
    uid: u32,
    gid: u32,
}

impl Postgres {
    /// Makes a cluster and starts it.
    ///
    /// # Errors
    /// When the binaries are missing or do not run here.
    pub fn start() -> anyhow::Result<Self> {
        let binaries = binaries()?;
        let directory = tempfile::Builder::new().prefix("postgres-").tempdir()?;
        let owner = owner(directory.path())?;
        if let Some(owner) = owner {
            chown(directory.path(), Some(owner.uid), Some(owner.gid))?;
        }
        let mut postgres = Self {
            binaries,
            owner,
            directory,
            server: None,
            port: 0,
        };
        postgres.init()?;
        postgres.start_server()?;
        Ok(postgres)
    }

    /// Like [`Postgres::start`]; when that fails, says so past the test harness's capture and gives
    /// `None`. With `REQUIRE_POSTGRES` set it panics instead, so that a CI cannot skip unnoticed.
    #[must_use]
    pub fn start_or_say_so(test: &str) -> Option<Self> {
        match Self::start() {
            Ok(postgres) => Some(postgres),
            Err(error) => {
                assert!(
                    std::env::var_os("REQUIRE_POSTGRES").is_none(),
                    "{test} needs PostgreSQL: {error:#}"
                );
                let shout =
                    format!("\n*** NOT TESTED ON POSTGRESQL: {test} ***\n*** {error:#} ***\n\n");
                // Not eprintln!, which a passing test never shows.
                drop(std::io::stderr().write_all(shout.as_bytes()));
                None
            }
        }
    }

    /// Url of a database; `postgres` is always there.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        format!("postgres://saga@127.0.0.1:{}/{database}", self.port)
    }

    /// Makes an empty database and gives its url.
    ///
    /// # Errors
    /// When the server refuses.
    pub async fn create_database(&self, name: &str) -> anyhow::Result<String> {
        use sqlx::{Connection as _, Executor as _};
        let mut connection = sqlx::PgConnection::connect(&self.url("postgres")).await?;
        let statement = format!("CREATE DATABASE \"{name}\"");
        connection
            .execute(sqlx::AssertSqlSafe(statement))
            .await
            .context("CREATE DATABASE")?;
        connection.close().await?;
        Ok(self.url(name))
    }

    /// Stops the server at once, without a checkpoint: what a crash leaves behind.
    ///
    /// # Errors
    /// When it does not end.
    pub fn crash(&mut self) -> anyhow::Result<()> {
        self.stop(Signal::SIGQUIT)
    }

    /// Starts the server again, on the same port and data.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn restart(&mut self) -> anyhow::Result<()> {
        self.try_start(self.port)
    }

    fn init(&self) -> anyhow::Result<()> {
        let output = self
            .command("initdb")
            .args(["-U", "saga", "-A", "trust", "-E", "UTF8", "--locale=C"])
            .args(["--no-sync", "-D"])
            .arg(self.data())
            .output()
            .context("initdb")?;
        if !output.status.success() {
            bail!("initdb: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(())
    }

    fn start_server(&mut self) -> anyhow::Result<()> {
        let mut last = None;
        for _ in 0..PORTS_TRIED {
            // The listener is closed again before the server binds the port.
            let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
            match self.try_start(port) {
                Ok(()) => return Ok(()),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| anyhow::anyhow!("not tried")))
    }

    fn try_start(&mut self, port: u16) -> anyhow::Result<()> {
        self.port = port;
        let mut server = self
            .command("postgres")
            .arg("-D")
            .arg(self.data())
            .args(["-h", "127.0.0.1", "-p", &port.to_string(), "-k"])
            .arg(self.directory.path())
            .args(["-c", "max_connections=200", "-c", "log_min_messages=log"])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("postgres")?;
        let log = server.stderr.take().context("no log")?;
        self.server = Some(server);
        let (ready, said) = mpsc::channel();
        // Reads on after the server is ready, so that it never waits for a full pipe.
        std::thread::spawn(move || {
            let mut seen = String::new();
            for line in BufReader::new(log).lines().map_while(Result::ok) {
                if line.contains("ready to accept connections") && ready.send(None).is_err() {
                    return;
                }
                if seen.len() < 4096 {
                    seen.push_str(&line);
                    seen.push('\n');
                }
            }
            drop(ready.send(Some(seen)));
        });
        match said.recv_timeout(START_TIMEOUT) {
            Ok(None) => Ok(()),
            Ok(Some(log)) => {
                self.stop(Signal::SIGQUIT)?;
                bail!("postgres ended: {log}")
            }
            Err(_silent) => {
                self.stop(Signal::SIGQUIT)?;
                bail!("postgres was not ready within {START_TIMEOUT:?}")
            }
        }
    }

    fn stop(&mut self, signal: Signal) -> anyhow::Result<()> {
        let Some(mut server) = self.server.take() else {
            return Ok(());
        };
        if server.try_wait()?.is_none() {
            kill(Pid::from_raw(i32::try_from(server.id())?), signal)?;
        }
        server.wait()?;
        Ok(())
    }

    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(self.binaries.join(name));
        command
            .current_dir(self.directory.path())
            .env("LC_ALL", "C")
            .stdin(Stdio::null());
        if let Some(owner) = self.owner {
            command.uid(owner.uid).gid(owner.gid);
        }
        command
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // SIGINT: a fast, orderly shutdown. The directory goes with its handle.
        if let Err(error) = self.stop(Signal::SIGINT) {
            drop(std::io::stderr().write_all(format!("postgres: {error:#}\n").as_bytes()));
        }
    }
}

/// Where `initdb` and `postgres` are. Links are followed, as `initdb` looks for its files beside itself.
fn binaries() -> anyhow::Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = std::env::split_paths(&path).collect();
    places.push(PathBuf::from("/usr/local/bin"));
    let mut versions: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok().map(|entry| entry.path().join("bin")))
        .collect();
    versions.sort();
    places.extend(versions.into_iter().rev());
    places
        .iter()
        .filter(|place| place.join("initdb").exists() && place.join("postgres").exists())
        .find_map(|place| {
            let initdb = place.join("initdb").canonicalize().ok()?;
            initdb.parent().map(Path::to_owned)
        })
        .context("initdb and postgres are neither in PATH nor in /usr/lib/postgresql/*/bin")
}

/// Nobody in particular when we are not root; else a user of the system that has no rights.
/// Who we are is told by a directory we made.
fn owner(ours: &Path) -> anyhow::Result<Option<Owner>> {
    if std::fs::metadata(ours)?.uid() != 0 {
        return Ok(None);
    }
    let users = std::fs::read_to_string("/etc/passwd").context("/etc/passwd")?;
    ["postgres", "nobody"]
        .into_iter()
        .find_map(|wanted| {
            users.lines().find_map(|line| {
                let fields: Vec<&str> = line.split(':').collect();
                match fields.as_slice() {
                    [name, _, uid, gid, ..] if *name == wanted => Some(Owner {
                        uid: uid.parse().ok()?,
                        gid: gid.parse().ok()?,
                    }),
                    _ => None,
                }
            })
        })
        .map(Some)
        .context("running as root, and there is neither a user postgres nor nobody to run it as")
}
