//! Several orchestrators at once: a storm of repeats, one that sleeps through its messages' time and
//! wakes, one that dies for good.

use anyhow::{Context as _, Result, ensure};
use async_nats::jetstream;
use async_nats::jetstream::AckKind;
use async_nats::jetstream::consumer::PullConsumer;
use contracts::intake::{OperatorRequest, OperatorVerb};
use futures::{StreamExt as _, TryStreamExt as _};
use orchestrator::partition::Partition;
use orchestrator::saga::record::{Outcome, Status};
use orchestrator::site::User;
use saga_tests::deposit::Deposit;
use saga_tests::http;
use saga_tests::postgres::Postgres;
use saga_tests::system::{Databases, REGIONS, System};
use std::time::Duration;
use tokio::time::Instant;

const BOUND: Duration = Duration::from_secs(90);
const REPLICAS: [&str; 3] = ["replica-1", "replica-2", "replica-3"];

/// Deposits that meet a sleeping or dying replica.
const WAVE: usize = 12;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_share_the_work_and_none_can_harm_it() -> Result<()> {
    let postgres = Postgres::start_or_say_so("replicas_share_the_work_and_none_can_harm_it");
    let databases = match &postgres {
        Some(server) => Some(Databases::postgres(server).await?),
        // Not as many would share one file in production, but the laws are the same.
        None => None,
    };
    let mut system = System::start_on(databases).await?;
    for name in REPLICAS {
        system.spawn_orchestrator(name, &[("CONNECTIONS", "8")])?;
    }
    system.spawn_agents()?;
    for name in REPLICAS.iter().chain(&["agent-eu", "agent-asia"]) {
        system.ready(name).await?;
    }
    storm(&mut system).await?;
    one_sleeps_through_it(&mut system).await?;
    one_dies_for_good(&mut system).await?;
    let audit = system.audit(BOUND).await?;
    eprintln!("replicas: {audit}");
    ensure!(
        audit.by_status.keys().eq([Status::Completed].iter()),
        "{audit}"
    );
    Ok(())
}

/// The message that drives a saga is at two replicas: at a frozen one, and at the one that took over. The
/// first one wakes and sees that it has lost; acknowledging the message then would take the other's driver.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_wakes_up_does_not_take_the_drivers_of_others_away() -> Result<()> {
    let mut system = System::start().await?;
    for name in &REPLICAS[..2] {
        // Held for longer than this test needs, so that only the message drives the saga.
        system.spawn_orchestrator(name, &[("HOLD", "60s")])?;
    }
    system.spawn_agents()?;
    for name in REPLICAS[..2].iter().chain(&["agent-eu", "agent-asia"]) {
        system.ready(name).await?;
    }
    let (wave, sleeper) = wave_with_an_owner(&mut system, "wakes").await?;
    let other = REPLICAS[..2]
        .iter()
        .find(|name| **name != sleeper)
        .context("the other one")?;
    let watched = wave.last().context("a wave")?.saga_id();
    let before = counter(&system, sleeper, "orchestrator_conflicts_total").await?;
    system.site.freeze(sleeper)?;
    let taken = system
        .until_record(&watched, BOUND, |record| {
            record.owner.starts_with(&format!("{other}-"))
        })
        .await?;
    ensure!(taken.epoch > 1 && taken.timer_at.is_none(), "{taken:#?}");
    system.site.thaw(sleeper)?;
    system
        .until_counter(sleeper, "orchestrator_conflicts_total", BOUND, |count| {
            count > before
        })
        .await?;
    system.site.kill(other)?;
    system.site.thaw("agent-eu")?;
    // Turned back where the agent was away for too long; never left standing.
    for deposit in &wave {
        system.until_ended(&deposit.saga_id(), BOUND).await?;
    }
    let audit = system.audit(BOUND).await?;
    eprintln!("one wakes, the other dies: {audit}");
    Ok(())
}

/// The first replica to have the request died with it: for the second one it is a redelivery, and still the first
/// that is said to the saga.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_said_before_the_start_is_kept_when_it_comes_again() -> Result<()> {
    let mut system = System::start().await?;
    let deposit = Deposit::new("early", "default");
    let request = OperatorRequest {
        saga_id: deposit.saga_id(),
        id: "cancel-early".to_owned(),
        verb: OperatorVerb::Cancel,
        reason: "the customer asked".to_owned(),
        by: "ana".to_owned(),
    };
    let body = serde_json::to_vec(&request)?;
    let subject = contracts::subject::operator(&request.saga_id, &request.id, &body);
    let operator = jetstream::new(system.site.connect(User::Operator).await?);
    operator.publish(subject, body.into()).await?.await?;
    let partition = Partition::only(1);
    let consumer: PullConsumer = system
        .js
        .get_consumer_from_stream(partition.intake_consumer(), partition.intake_stream())
        .await?;
    let mut delivered = consumer.fetch().max_messages(1).messages().await?;
    let message = delivered.next().await.context("the request")?;
    let message = message.map_err(|error| anyhow::anyhow!("{error}"))?;
    message
        .ack_with(AckKind::Nak(None))
        .await
        .map_err(|error| anyhow::anyhow!("{error}"))?;

    system.spawn_orchestrator(REPLICAS[0], &[])?;
    system.ready(REPLICAS[0]).await?;
    system
        .until_record(&request.saga_id, BOUND, |record| {
            record.status == Status::Waiting
        })
        .await?;
    system.deposit(&deposit).await?;
    let record = system.until_ended(&request.saga_id, BOUND).await?;
    ensure!(record.status == Status::Compensated, "{record:#?}");
    let audit = system.audit(BOUND).await?;
    ensure!(audit.cases == 0, "{audit}");
    Ok(())
}

/// 300 callbacks of 60 deposits at once: each fact five times, each time under another event id.
async fn storm(system: &mut System) -> Result<()> {
    const DEPOSITS: usize = 60;
    const REPEATS: usize = 5;
    let began = Instant::now();
    let sender = system.sender();
    let callbacks = (0..DEPOSITS * REPEATS).map(|number| {
        let deposit = Deposit::new(
            format!("storm-{}", number % DEPOSITS),
            REGIONS[number % REGIONS.len()],
        );
        let event = format!("{}-{}", deposit.external_id, number / DEPOSITS);
        let sender = sender.clone();
        async move { sender.send(&deposit, &event).await }
    });
    futures::stream::iter(callbacks.collect::<Vec<_>>())
        .buffer_unordered(64)
        .try_collect::<Vec<_>>()
        .await?;
    let audit = system.audit(BOUND).await?;
    eprintln!(
        "storm: {} callbacks, at rest after {:.1?}: {audit}",
        DEPOSITS * REPEATS,
        began.elapsed()
    );
    ensure!(
        audit.by_status.get(&Status::Completed) == Some(&DEPOSITS),
        "{audit}"
    );
    ensure!(
        audit.duplicates == u64::try_from(DEPOSITS * (REPEATS - 1))?,
        "{audit}"
    );
    let mut busy = 0;
    for name in REPLICAS {
        busy += usize::from(counter(system, name, "orchestrator_commits_total").await? > 0);
    }
    ensure!(busy == REPLICAS.len(), "only {busy} replicas did anything");
    Ok(())
}

/// A replica is frozen while it holds messages, for longer than the server waits for them.
async fn one_sleeps_through_it(system: &mut System) -> Result<()> {
    let (wave, sleeper) = wave_with_an_owner(system, "sleep").await?;
    let before = counter(system, sleeper, "orchestrator_conflicts_total").await?;
    system.site.freeze(sleeper)?;
    system.site.thaw("agent-eu")?;
    let began = Instant::now();
    let mut taken_over = 0;
    for deposit in &wave {
        let record = system.until_ended(&deposit.saga_id(), BOUND).await?;
        ensure!(record.status == Status::Completed, "{record:#?}");
        taken_over += usize::from(record.epoch > 1);
    }
    let took = began.elapsed();
    ensure!(taken_over > 0, "nothing was taken over from {sleeper}");
    system.site.thaw(sleeper)?;
    // The answers have been waiting in its socket: it decides on them, and its writes lose.
    let lost = system
        .until_counter(sleeper, "orchestrator_conflicts_total", BOUND, |count| {
            count > before
        })
        .await?;
    eprintln!(
        "sleep: {taken_over} sagas of {sleeper} taken over, all ended after {took:.1?}; \
         it then lost {lost} writes"
    );
    let audit = system.audit(BOUND).await?;
    ensure!(
        audit.by_status.keys().eq([Status::Completed].iter()),
        "{audit}"
    );
    Ok(())
}

async fn one_dies_for_good(system: &mut System) -> Result<()> {
    let (wave, dying) = wave_with_an_owner(system, "death").await?;
    system.site.kill(dying)?;
    system.site.thaw("agent-eu")?;
    let began = Instant::now();
    let mut taken_over = 0;
    for deposit in &wave {
        let record = system.until_ended(&deposit.saga_id(), BOUND).await?;
        ensure!(record.status == Status::Completed, "{record:#?}");
        ensure!(
            !record.owner.starts_with(&format!("{dying}-")),
            "{record:#?}"
        );
        taken_over += usize::from(record.epoch > 1);
    }
    ensure!(taken_over > 0, "nothing was taken over from {dying}");
    eprintln!(
        "death: {taken_over} sagas of {dying} taken over, all ended after {:.1?}",
        began.elapsed()
    );
    Ok(())
}

/// Deposits whose credits wait at a frozen agent, and a replica that drives at least one of them.
async fn wave_with_an_owner(
    system: &mut System,
    name: &str,
) -> Result<(Vec<Deposit>, &'static str)> {
    system.site.freeze("agent-eu")?;
    let wave: Vec<Deposit> = (0..WAVE)
        .map(|number| Deposit::new(format!("{name}-{number}"), "eu"))
        .collect();
    for deposit in &wave {
        system.deposit(deposit).await?;
    }
    let last = wave.last().context("a wave")?;
    let record = system
        .until_record(&last.saga_id(), BOUND, |record| {
            record
                .steps
                .iter()
                .any(|step| step.pivot && matches!(step.forward.outcome, Outcome::InFlight { .. }))
        })
        .await?;
    let owner = REPLICAS
        .into_iter()
        .find(|replica| record.owner.starts_with(&format!("{replica}-")))
        .context("an owner")?;
    Ok((wave, owner))
}

async fn counter(system: &System, process: &str, name: &str) -> Result<u64> {
    let page = http::get(system.health_of(process), "/metrics").await?;
    Ok(http::counter(&page.body, name))
}
