//! Ports for servers that are started again and again on the same one.

use super::SiteError;
use std::fs::{File, OpenOptions, TryLockError};
use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};

// Below the range from which the system takes the local ports of outgoing connections: otherwise, while a
// server is down, a client that dials its port can be given that very port and end up talking to itself.
const FIRST: u32 = 10_000;
const COUNT: u32 = 20_000;
/// Apart enough that processes started one after the other seldom look at the same ports.
const STRIDE: u32 = 127;

static TAKEN: AtomicU32 = AtomicU32::new(0);

/// A port nobody listens on, kept from other sites as long as this lives: also while its server is down.
#[derive(Debug)]
pub(super) struct Reserved {
    pub(super) port: u16,
    _lock: Option<File>,
}

/// Reserves a free port.
pub(super) fn free() -> Result<Reserved, SiteError> {
    for _ in 0..COUNT {
        let taken = TAKEN.fetch_add(1, Ordering::Relaxed);
        let start = std::process::id().wrapping_mul(STRIDE);
        let Ok(port) = u16::try_from(FIRST + start.wrapping_add(taken) % COUNT) else {
            continue;
        };
        if let Some(reserved) = reserve(port) {
            return Ok(reserved);
        }
    }
    Err(SiteError::Io {
        what: format!("a free port from {FIRST} on"),
        source: std::io::ErrorKind::AddrInUse.into(),
    })
}

/// The lock goes with the process, however it ends. Where lock files cannot be had (somebody else's
/// directory), looking whether somebody listens has to do.
fn reserve(port: u16) -> Option<Reserved> {
    let dir = std::env::temp_dir().join("saga-site-ports");
    let lock = std::fs::create_dir_all(&dir).and_then(|()| {
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(dir.join(port.to_string()))
    });
    let lock = match lock {
        Err(_) => None,
        Ok(file) => match file.try_lock() {
            Ok(()) => Some(file),
            Err(TryLockError::WouldBlock) => return None,
            Err(TryLockError::Error(_)) => None,
        },
    };
    TcpListener::bind(("127.0.0.1", port)).ok()?;
    Some(Reserved { port, _lock: lock })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserved_port_is_not_given_twice_although_nobody_listens() {
        let first = free().expect("port");
        assert!(reserve(first.port).is_none());
        let port = first.port;
        drop(first);
        assert!(reserve(port).is_some());
    }
}
