//! One nats-server of a test's own.

use async_nats::Client;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Killed when dropped.
pub(crate) struct NatsServer {
    process: Child,
    url: String,
}

impl NatsServer {
    /// Starts a server on a port of its own choice and waits until it listens.
    pub(crate) fn start() -> Self {
        let mut process = Command::new(binary())
            .args(["-a", "127.0.0.1", "-p", "-1"])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("nats-server");
        let mut log = BufReader::new(process.stderr.take().expect("log")).lines();
        let marker = "Listening for client connections on ";
        let address = log
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| {
                line.split_once(marker)
                    .map(|(_, address)| address.to_owned())
            })
            .expect("nats-server listens");
        // Reads on, so that the server never waits for a full pipe.
        std::thread::spawn(move || log.map_while(Result::ok).for_each(drop));
        Self {
            process,
            url: format!("nats://{address}"),
        }
    }

    pub(crate) async fn connect(&self) -> Client {
        async_nats::connect(&self.url).await.expect("connection")
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        self.process.kill().expect("nats-server ends");
        self.process.wait().expect("nats-server ends");
    }
}

fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os("NATS_SERVER") {
        return PathBuf::from(path);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/tools");
    std::env::split_paths(&path)
        .chain([tools])
        .map(|directory| directory.join("nats-server"))
        .find(|path| path.exists())
        .expect("nats-server: set NATS_SERVER, or put it in PATH or target/tools")
}

/// Waits for a condition that nothing signals, for at most ten seconds.
pub(crate) async fn until(what: &str, condition: impl Fn() -> bool) {
    let met = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), met)
        .await
        .unwrap_or_else(|_| panic!("{what}: not within ten seconds"));
}
