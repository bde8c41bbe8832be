//! `orchestrator serve`.

use super::{CliError, Exit};
use crate::config::Config;
use crate::serve;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

pub(super) const HELP: &str = "\
Examples:
  orchestrator serve --context core --payments postgres://orchestrator@db/payments
  orchestrator serve --config orchestrator.toml --regions eu,asia

The first SIGTERM or SIGINT drains: no new messages are taken, sagas at work end or are given back
(--grace). A second one ends the process at once; nothing is lost, another replica continues.
Exit codes: 0 drained; 1 cannot serve, or found unsafe; 3 NATS cannot be reached; 64 wrong settings.";

pub(super) async fn run(config: &Config) -> Result<Exit, CliError> {
    let serving = config.serve().map_err(CliError::Config)?;
    let stop = CancellationToken::new();
    // Taken before anything else, so that a signal is never met by the default action half-way.
    let terminate = signal(SignalKind::terminate())?;
    let interrupt = signal(SignalKind::interrupt())?;
    tokio::spawn(watch_signals(terminate, interrupt, stop.clone()));
    serve::serve(serving, stop).await?;
    Ok(Exit::Done)
}

async fn watch_signals(mut terminate: Signal, mut interrupt: Signal, stop: CancellationToken) {
    let mut asked = 0_u32;
    loop {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        asked += 1;
        if asked == 1 {
            stop.cancel();
        } else {
            tracing::warn!("told twice to stop: ending at once");
            std::process::exit(1);
        }
    }
}
