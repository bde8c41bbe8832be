//! The core server dies under load; the orchestrator is asked to stop under load.

use anyhow::{Context as _, Result, ensure};
use async_nats::jetstream::AckKind;
use async_nats::jetstream::consumer::PullConsumer;
use futures::StreamExt as _;
use orchestrator::partition::Partition;
use orchestrator::saga::record::Status;
use saga_tests::load::{Load, Random};
use saga_tests::system::System;
use std::time::Duration;
use tokio::time::Instant;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_core_server_acknowledged_survives_its_death() -> Result<()> {
    const DEPOSITS: usize = 300;
    let mut random = Random::from_environment("core crashes");
    let mut system = System::start_whole().await?;
    system.close_wallets().await?;
    let load = Load::mixed(DEPOSITS, "core", &mut random);
    let sender = system.sender();
    let sending = {
        let load = load.clone();
        tokio::spawn(async move { load.send(&sender).await })
    };
    let began = Instant::now();
    for crash in 1..=3 {
        // Each crash finds some sagas ended and some at work.
        system
            .until_stored(DEPOSITS / 6 * crash, Duration::from_secs(60))
            .await?;
        system.crash_core().await?;
    }
    sending.await??;
    let audit = system.audit(Duration::from_secs(120)).await?;
    eprintln!(
        "core crashes: 3, at rest after {:.1?}: {audit}",
        began.elapsed()
    );
    let of = |status| audit.by_status.get(&status).copied().unwrap_or(0);
    ensure!(
        of(Status::Completed) + of(Status::Compensated) == DEPOSITS && audit.cases == 0,
        "{audit}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_orchestrator_gives_everything_back_at_once() -> Result<()> {
    const DEPOSITS: usize = 300;
    let mut random = Random::from_environment("orderly stop");
    let mut system = System::start_whole().await?;
    system.close_wallets().await?;
    let load = Load::mixed(DEPOSITS, "stop", &mut random);
    load.send(&system.sender()).await?;
    let began = Instant::now();
    system
        .site
        .terminate("orchestrator", Duration::from_secs(30))
        .await?;
    let status = system
        .site
        .exit_status("orchestrator")?
        .context("it runs")?;
    ensure!(
        status.success(),
        "{status}\n{}",
        system.site.log_tail("orchestrator")
    );
    let took = began.elapsed();

    // Whatever is not acknowledged can be had now; what the process had kept would come in ten seconds.
    let intake = system.intake().await?;
    let outstanding = usize::try_from(intake.num_pending)? + intake.num_ack_pending;
    let given_back = intake.num_ack_pending;
    ensure!(outstanding > 0, "everything was done before the stop");
    let partition = Partition::only(1);
    let consumer: PullConsumer = system
        .js
        .get_consumer_from_stream(partition.intake_consumer(), partition.intake_stream())
        .await?;
    let mut messages = consumer
        .fetch()
        .max_messages(outstanding + 1)
        .messages()
        .await?;
    let mut had = 0;
    while let Some(message) = messages.next().await {
        let message = message.map_err(|error| anyhow::anyhow!("{error}"))?;
        had += 1;
        message
            .ack_with(AckKind::Nak(None))
            .await
            .map_err(|error| anyhow::anyhow!("{error}"))?;
    }
    ensure!(
        had == outstanding,
        "{had} of {outstanding} messages can be had"
    );

    system.restart("orchestrator")?;
    system.ready("orchestrator").await?;
    let audit = system.audit(Duration::from_secs(120)).await?;
    eprintln!(
        "orderly stop: {took:.1?}, {given_back} messages given back, {outstanding} left to do; \
         at rest after {:.1?}: {audit}",
        began.elapsed()
    );
    let of = |status| audit.by_status.get(&status).copied().unwrap_or(0);
    ensure!(of(Status::Completed) == DEPOSITS - load.refused, "{audit}");
    ensure!(of(Status::Compensated) == load.refused, "{audit}");
    Ok(())
}
