//! Ports for servers that are started again and again on the same one.

use super::SiteError;
use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};

// Below the range from which the system takes the local ports of outgoing connections: otherwise, while a
// server is down, a client that dials its port can be given that very port and end up talking to itself.
const FIRST: u32 = 10_000;
const COUNT: u32 = 20_000;
/// Ports from which one process takes before it meets those of the next process id.
const BLOCK: u32 = 32;

static TAKEN: AtomicU32 = AtomicU32::new(0);

/// A port nobody listens on now, and that no earlier call in this process gave.
pub(super) fn free() -> Result<u16, SiteError> {
    for _ in 0..COUNT {
        let taken = TAKEN.fetch_add(1, Ordering::Relaxed);
        let offset = std::process::id().wrapping_mul(BLOCK).wrapping_add(taken) % COUNT;
        let Ok(port) = u16::try_from(FIRST + offset) else {
            continue;
        };
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    Err(SiteError::Io {
        what: format!("a free port from {FIRST} on"),
        source: std::io::ErrorKind::AddrInUse.into(),
    })
}
