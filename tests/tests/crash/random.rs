//! Random kills under load.

use anyhow::{Result, ensure};
use orchestrator::saga::record::Status;
use saga_tests::load::{Load, Random};
use saga_tests::system::System;
use std::time::Duration;
use tokio::time::Instant;

const DEPOSITS: usize = 1_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_doubled_while_processes_are_killed_at_random() -> Result<()> {
    let began = Instant::now();
    let mut random = Random::from_environment("random kills");
    let mut system = System::start_whole().await?;
    system.close_wallets().await?;
    let load = Load::mixed(DEPOSITS, "random", &mut random);
    let sender = system.sender();
    let sending = {
        let load = load.clone();
        tokio::spawn(async move { load.send(&sender).await })
    };

    let mut kills = Vec::new();
    let mut sent = None;
    // At least so many, and the last ones when everything has been sent.
    while kills.len() < 12 || sent.is_none_or(|at: usize| kills.len() < at + 3) {
        tokio::time::sleep(Duration::from_millis(300 + random.below(1_200))).await;
        let name = *random.pick(&["orchestrator", "orchestrator", "agent-eu", "agent-asia"]);
        system.site.kill(name)?;
        system.restart(name)?;
        system.ready(name).await?;
        kills.push(name);
        if sent.is_none() && sending.is_finished() {
            sent = Some(kills.len());
        }
    }
    sending.await??;
    let killing = began.elapsed();

    let audit = system.audit(Duration::from_secs(120)).await?;
    let orchestrators = kills.iter().filter(|name| **name == "orchestrator").count();
    eprintln!(
        "random kills: {} deposits in {} callbacks, {} kills ({orchestrators} of the orchestrator) \
         in {killing:.1?}, at rest after {:.1?}: {audit}",
        load.deposits.len(),
        load.callbacks.len(),
        kills.len(),
        began.elapsed()
    );
    let of = |status| audit.by_status.get(&status).copied().unwrap_or(0);
    ensure!(
        of(Status::Completed) + of(Status::Compensated) == load.deposits.len(),
        "{audit}"
    );
    // What was refused is turned back; an agent that is away for seconds may add to that.
    ensure!(of(Status::Compensated) >= load.refused, "{audit}");
    ensure!(audit.cases == 0, "{audit}");
    Ok(())
}
