//! One orchestrator on a thread and runtime of its own: killed, it stops between two instructions; put
//! to sleep, it answers nothing while its sockets stay open.

use anyhow::{Context as _, bail};
use orchestrator::serve::{Build, ServeConfig, serve_build};
use std::net::SocketAddr;
use std::sync::mpsc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// Longest wait for an orchestrator to serve.
const READY: Duration = Duration::from_secs(20);

/// A running orchestrator.
#[derive(Debug)]
pub struct Instance {
    stop: CancellationToken,
    kill: CancellationToken,
    handle: Handle,
    address: SocketAddr,
    ended: oneshot::Receiver<Result<(), String>>,
}

/// An orchestrator that sleeps until this is dropped.
#[derive(Debug)]
pub struct Asleep {
    _wake: mpsc::Sender<()>,
}

impl Instance {
    /// Starts an orchestrator and waits until it serves.
    ///
    /// # Errors
    /// What it ended with instead.
    pub async fn start(mut config: ServeConfig, build: Build) -> anyhow::Result<Self> {
        let address = free_address()?;
        config.listen = Some(address);
        let (stop, kill) = (CancellationToken::new(), CancellationToken::new());
        let (started, handle) = oneshot::channel();
        let (done, ended) = oneshot::channel();
        let (stopped, killed) = (stop.clone(), kill.clone());
        std::thread::Builder::new()
            .name(config.name.clone())
            .spawn(move || run((config, build), stopped, &killed, started, done))
            .context("thread of an orchestrator")?;
        let handle = handle.await.context("runtime of an orchestrator")?;
        let mut instance = Self {
            stop,
            kill,
            handle,
            address,
            ended,
        };
        let serving = async {
            loop {
                if let Ok(result) = instance.ended.try_recv() {
                    bail!("the orchestrator ended: {result:?}");
                }
                if get(instance.address, "/readyz").await.is_ok() {
                    return Ok(());
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(READY, serving)
            .await
            .context("the orchestrator does not serve")??;
        Ok(instance)
    }

    /// Ends it at once: nothing is finished, nothing is given back, its connections break.
    ///
    /// # Errors
    /// When its thread does not end.
    pub async fn kill(self) -> anyhow::Result<()> {
        self.kill.cancel();
        tokio::time::timeout(READY, self.ended)
            .await
            .context("the killed orchestrator goes on")?
            .ok();
        Ok(())
    }

    /// Asks it to end and waits until it has.
    ///
    /// # Errors
    /// What it ended with.
    pub async fn stop(self) -> anyhow::Result<()> {
        self.stop.cancel();
        match tokio::time::timeout(READY, self.ended).await {
            Ok(Ok(Ok(()))) => Ok(()),
            Ok(Ok(Err(error))) => bail!("the orchestrator ended with: {error}"),
            Ok(Err(_)) => bail!("the orchestrator panicked"),
            Err(_elapsed) => bail!("the orchestrator does not stop"),
        }
    }

    /// Puts it to sleep: its one thread stands still until the guard is dropped.
    ///
    /// # Errors
    /// When it has ended.
    pub async fn sleep(&self) -> anyhow::Result<Asleep> {
        let (wake, woken) = mpsc::channel::<()>();
        let (fell, asleep) = oneshot::channel();
        self.handle.spawn(async move {
            if fell.send(()).is_ok() {
                // Ends with the guard, which never sends.
                woken.recv().ok();
            }
        });
        asleep.await.context("the orchestrator has ended")?;
        Ok(Asleep { _wake: wake })
    }

    /// The value of a counter, without its prefix.
    ///
    /// # Errors
    /// When it does not answer or has no such counter.
    pub async fn counter(&self, name: &str) -> anyhow::Result<u64> {
        let page = get(self.address, "/metrics").await?;
        let wanted = format!("orchestrator_{name} ");
        page.lines()
            .find_map(|line| line.strip_prefix(&wanted))
            .and_then(|value| value.trim().parse().ok())
            .with_context(|| format!("no counter {name} in\n{page}"))
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(
            self.ended.try_recv(),
            Err(oneshot::error::TryRecvError::Empty)
        )
    }
}

fn run(
    (config, build): (ServeConfig, Build),
    stop: CancellationToken,
    kill: &CancellationToken,
    started: oneshot::Sender<Handle>,
    done: oneshot::Sender<Result<(), String>>,
) {
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            done.send(Err(error.to_string())).ok();
            return;
        }
    };
    if started.send(runtime.handle().clone()).is_err() {
        return;
    }
    let result = runtime.block_on(async {
        tokio::select! {
            biased;
            () = kill.cancelled() => Ok(()),
            result = serve_build(config, build, stop) => result.map_err(|error| orchestrator::telemetry::chain(&error)),
        }
    });
    // Drops every task where it stands.
    runtime.shutdown_background();
    done.send(result).ok();
}

fn free_address() -> anyhow::Result<SocketAddr> {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).context("a free port")?;
    Ok(listener.local_addr()?)
}

/// The body of a page that answers 200.
async fn get(address: SocketAddr, path: &str) -> anyhow::Result<String> {
    let mut stream = tokio::net::TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    if !answer.starts_with("HTTP/1.1 200") {
        bail!("{path}: {}", answer.lines().next().unwrap_or_default());
    }
    Ok(answer)
}
