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
    let partition = Partition::only(1);
    let consumer: PullConsumer = system
        .js
        .get_consumer_from_stream(partition.intake_consumer(), partition.intake_stream())
        .await?;
    let mut had = Vec::new();
    let mut outstanding = usize::MAX;
    let fetching = async {
        // The server takes in the last acknowledgements in its own time.
        while had.len() < outstanding {
            let mut messages = consumer
                .fetch()
                .max_messages(DEPOSITS * 2)
                .messages()
                .await?;
            while let Some(message) = messages.next().await {
                had.push(message.map_err(|error| anyhow::anyhow!("{error}"))?);
            }
            let intake = system.intake().await?;
            outstanding = usize::try_from(intake.num_pending)? + intake.num_ack_pending;
        }
        anyhow::Ok(())
    };
    match tokio::time::timeout(Duration::from_secs(4), fetching).await {
        Ok(fetched) => fetched?,
        Err(_elapsed) => anyhow::bail!("{} of {outstanding} messages can be had", had.len()),
    }
    ensure!(outstanding > 0, "everything was done before the stop");
    for message in had {
        message
            .ack_with(AckKind::Nak(None))
            .await
            .map_err(|error| anyhow::anyhow!("{error}"))?;
    }

    system.restart("orchestrator")?;
    system.ready("orchestrator").await?;
    let audit = system.audit(Duration::from_secs(120)).await?;
    eprintln!(
        "orderly stop: {took:.1?}, {outstanding} messages left to do, all to be had at once; at rest after {:.1?}: {audit}",
        began.elapsed()
    );
    let of = |status| audit.by_status.get(&status).copied().unwrap_or(0);
    ensure!(of(Status::Completed) == DEPOSITS - load.refused, "{audit}");
    ensure!(of(Status::Compensated) == load.refused, "{audit}");
    Ok(())
}

/// Its writes have no verdict, its acknowledgements cannot be sent, and nobody knows when the server returns.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_orchestrator_without_its_server_ends_when_asked_and_loses_nothing() -> Result<()> {
    const DEPOSITS: usize = 100;
    let mut random = Random::from_environment("stop without a server");
    let mut system = System::start_whole().await?;
    system.close_wallets().await?;
    let load = Load::mixed(DEPOSITS, "alone", &mut random);
    load.send(&system.sender()).await?;
    // In the middle of it, so that writes are under way.
    system
        .until_counter(
            "orchestrator",
            "orchestrator_commits_total",
            Duration::from_secs(60),
            |commits| commits > 5,
        )
        .await?;
    system.site.kill("core")?;
    let began = Instant::now();
    // Its grace of 2 s, 10 s more, and patience with a busy machine.
    system
        .site
        .terminate("orchestrator", Duration::from_secs(25))
        .await?;
    eprintln!("without a server it ended after {:.1?}", began.elapsed());
    system
        .site
        .restart_server(orchestrator::site::Server::Core(1))
        .await?;
    system.restart("orchestrator")?;
    system.ready("orchestrator").await?;
    let audit = system.audit(Duration::from_secs(120)).await?;
    let of = |status| audit.by_status.get(&status).copied().unwrap_or(0);
    ensure!(
        of(Status::Completed) + of(Status::Compensated) == DEPOSITS && audit.cases == 0,
        "{audit}"
    );
    Ok(())
}
