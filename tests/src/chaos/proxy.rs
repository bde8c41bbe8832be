//! A line between two processes that can be cut, slowed and swallowed.

use anyhow::{Context as _, Result};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

/// Bytes passed on at once; a slow line waits before each.
const CHUNK: usize = 16 * 1024;

/// How a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Line {
    /// Everything passes.
    Whole,
    /// Connections are closed, new ones are closed at once. What was under way is lost.
    Cut,
    /// Connections stay open and are accepted; nothing passes. What was under way arrives when the line is whole
    /// again, as after lost packets.
    Swallowing,
    /// Only what the dialling side sends passes.
    OnlyUp,
    /// Only what the dialled side sends passes.
    OnlyDown,
    /// Everything passes, so much later.
    Slow(Duration),
}

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Up,
    Down,
}

/// A line; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Proxy {
    /// Where to dial.
    pub(super) address: SocketAddr,
    line: watch::Sender<Line>,
    open: Arc<AtomicU64>,
    _accepting: AbortOnDropHandle<()>,
}

impl Proxy {
    /// Listens on a free port and passes connections on to `target`.
    pub(super) async fn start(target: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0))
            .await
            .context("a proxy")?;
        let address = listener.local_addr()?;
        let (line, seen) = watch::channel(Line::Whole);
        let open = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&open);
        let accepting = tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let (seen, counter) = (seen.clone(), Arc::clone(&counter));
                tokio::spawn(async move {
                    counter.fetch_add(1, Ordering::Relaxed);
                    connection(near, target, seen).await;
                    counter.fetch_sub(1, Ordering::Relaxed);
                });
            }
        });
        Ok(Self {
            address,
            line,
            open,
            _accepting: AbortOnDropHandle::new(accepting),
        })
    }

    /// Makes the line so, and gives how many connections that meets.
    pub(super) fn set(&self, line: Line) -> u64 {
        let met = self.open.load(Ordering::Relaxed);
        self.line.send_replace(line);
        met
    }
}

async fn connection(near: TcpStream, target: SocketAddr, line: watch::Receiver<Line>) {
    if *line.borrow() == Line::Cut {
        return;
    }
    let Ok(far) = TcpStream::connect(target).await else {
        return;
    };
    // Small messages must not wait for each other longer than they would without a proxy.
    if near
        .set_nodelay(true)
        .and_then(|()| far.set_nodelay(true))
        .is_err()
    {
        return;
    }
    let (near_read, near_write) = near.into_split();
    let (far_read, far_write) = far.into_split();
    tokio::select! {
        () = pass(near_read, far_write, Way::Up, line.clone()) => {}
        () = pass(far_read, near_write, Way::Down, line.clone()) => {}
        () = cut(line) => {}
    }
}

/// Passes bytes on until one side ends.
async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    way: Way,
    mut line: watch::Receiver<Line>,
) {
    let mut buffer = vec![0; CHUNK];
    loop {
        // Nothing is read while nothing passes, so that a sender notices no more than on a real line.
        until_passable(&mut line, way).await;
        let Ok(length @ 1..) = from.read(&mut buffer).await else {
            return;
        };
        until_passable(&mut line, way).await;
        let now = *line.borrow();
        if let Line::Slow(delay) = now {
            tokio::time::sleep(delay).await;
        }
        if to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}

async fn until_passable(line: &mut watch::Receiver<Line>, way: Way) {
    let passes = |line: &Line| match line {
        Line::Whole | Line::Slow(_) => true,
        Line::Cut | Line::Swallowing => false,
        Line::OnlyUp => way == Way::Up,
        Line::OnlyDown => way == Way::Down,
    };
    let gone = line.wait_for(passes).await.is_err();
    if gone {
        // The proxy is gone, and this connection with it in a moment.
        std::future::pending::<()>().await;
    }
}

/// Ends when the line is cut, or the proxy is gone.
async fn cut(mut line: watch::Receiver<Line>) {
    drop(line.wait_for(|line| *line == Line::Cut).await);
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_millis(200);
    const BOUND: Duration = Duration::from_secs(10);

    /// Sends one byte each way and tells which arrived.
    async fn crosses(near: &mut TcpStream, far: &mut TcpStream) -> (bool, bool) {
        near.write_all(b"u").await.expect("up");
        far.write_all(b"d").await.expect("down");
        let mut byte = [0];
        let up = tokio::time::timeout(SOON, far.read_exact(&mut byte))
            .await
            .is_ok();
        let down = tokio::time::timeout(SOON, near.read_exact(&mut byte))
            .await
            .is_ok();
        (up, down)
    }

    async fn ended(stream: &mut TcpStream) -> bool {
        let mut rest = Vec::new();
        tokio::time::timeout(BOUND, stream.read_to_end(&mut rest))
            .await
            .is_ok()
    }

    #[tokio::test]
    async fn a_line_passes_swallows_and_is_cut_as_told() {
        let server = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let proxy = Proxy::start(server.local_addr().expect("an address"))
            .await
            .expect("a proxy");
        let mut near = TcpStream::connect(proxy.address).await.expect("a line");
        let (mut far, _) = server.accept().await.expect("a connection");
        assert_eq!(crosses(&mut near, &mut far).await, (true, true));

        assert_eq!(proxy.set(Line::OnlyUp), 1);
        assert_eq!(crosses(&mut near, &mut far).await, (true, false));
        proxy.set(Line::Whole);
        let mut byte = [0];
        near.read_exact(&mut byte)
            .await
            .expect("what was held arrives");

        proxy.set(Line::Swallowing);
        assert_eq!(crosses(&mut near, &mut far).await, (false, false));
        proxy.set(Line::Whole);
        near.read_exact(&mut byte)
            .await
            .expect("what was held arrives");
        far.read_exact(&mut byte)
            .await
            .expect("what was held arrives");
        proxy.set(Line::Slow(Duration::from_millis(1)));
        assert_eq!(crosses(&mut near, &mut far).await, (true, true));

        proxy.set(Line::Cut);
        assert!(ended(&mut near).await && ended(&mut far).await);
        let mut refused = TcpStream::connect(proxy.address).await.expect("accepted");
        assert!(ended(&mut refused).await);
        proxy.set(Line::Whole);
        let mut near = TcpStream::connect(proxy.address).await.expect("a line");
        let (mut far, _) = server.accept().await.expect("a connection");
        assert_eq!(crosses(&mut near, &mut far).await, (true, true));
    }
}
