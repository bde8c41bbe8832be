//! Accounts, permissions and leaf links, on real servers with the shipped configurations.

use anyhow::{Context as _, Result};
use async_nats::Client;
use async_nats::jetstream;
use futures::StreamExt as _;
use orchestrator::partition::Partition;
use orchestrator::setup;
use saga_tests::cluster::{Answer, Leaf, Server, User, Watched};
use saga_tests::cluster::{agent, ask, hears, one_node, reached};
use std::time::Duration;

const MOVES: [&str; 2] = ["update", "revert"];

#[tokio::test]
async fn regions_answer_behind_their_leaves_and_only_for_themselves() -> Result<()> {
    let mut site = one_node().await?;
    let core = site.connect(User::Orchestrator).await?;
    let operator = Watched::connect(&site.login(User::Operator)).await?;

    for leaf in Leaf::ALL {
        let subject = format!("billing.{leaf}.wallet.update");
        assert_eq!(ask(&core, &subject, "{}").await, Answer::NoResponders);
    }

    let eu = agent(&site, Leaf::Eu).await?;
    assert_eq!(reached(&core, "billing.eu.wallet.update").await?, "eu");
    assert_eq!(
        ask(&core, "billing.asia.wallet.update", "{}").await,
        Answer::NoResponders,
        "the eu agent must not stand in for asia"
    );

    // Listening in: the other region, everything, and the own region outside the queue group.
    for subject in ["billing.asia.>", "billing.>", "billing.eu.>", ">"] {
        let mut ears = eu.client.subscribe(subject).await?;
        eu.refused(&format!("Subscription to \"{subject}\""))
            .await?;
        ask(&core, "billing.asia.wallet.get", "{}").await;
        assert_eq!(hears(&mut ears).await, None, "{subject}");
    }
    // A user without any limit in the region's account sees no more: the account is the wall.
    let _asia = agent(&site, Leaf::Asia).await?;
    assert_eq!(reached(&core, "billing.asia.wallet.get").await?, "asia");

    // An agent cannot ask for anything itself.
    for subject in [
        "billing.asia.wallet.update",
        "billing.eu.wallet.update",
        "$JS.API.INFO",
    ] {
        eu.may_not_publish(subject).await?;
    }

    // People may ask, and not move.
    assert_eq!(
        reached(&operator.client, "billing.eu.wallet.get").await?,
        "eu"
    );
    for verb in MOVES {
        let subject = format!("billing.eu.wallet.{verb}");
        operator.may_not_publish(&subject).await?;
    }
    let eu_operator = Watched::connect(&site.login(User::RegionOperator(Leaf::Eu))).await?;
    assert_eq!(
        reached(&eu_operator.client, "billing.eu.wallet.get").await?,
        "eu"
    );

    // A dead leaf: no responders, at once; back after a restart.
    site.kill("leaf-eu")?;
    assert_eq!(
        ask(&core, "billing.eu.wallet.update", "{}").await,
        Answer::NoResponders
    );
    site.restart_server(Server::Leaf(Leaf::Eu)).await?;
    assert_eq!(reached(&core, "billing.eu.wallet.update").await?, "eu");

    // A frozen core comes back with its links.
    site.freeze("core")?;
    assert_eq!(
        ask(&core, "billing.eu.wallet.update", "{}").await,
        Answer::Silence
    );
    site.thaw("core")?;
    assert_eq!(reached(&core, "billing.eu.wallet.update").await?, "eu");
    Ok(())
}

#[tokio::test]
async fn gateway_and_other_teams_reach_only_their_own() -> Result<()> {
    let site = one_node().await?;
    let core = site.connect(User::Orchestrator).await?;
    let partition = Partition::only(1);
    setup::apply(&core, &partition).await?;
    let _eu = agent(&site, Leaf::Eu).await?;
    reached(&core, "billing.eu.wallet.get").await?;

    let gateway = Watched::connect(&site.login(User::Gateway)).await?;
    let stored = ask(&gateway.client, "billing.callback.p.1", "{}").await;
    assert!(
        matches!(&stored, Answer::Reply(body) if body.contains("\"seq\":1")),
        "{stored:?}"
    );
    let repeated = ask(&gateway.client, "billing.callback.p.1", "{}").await;
    assert!(
        matches!(&repeated, Answer::Reply(body) if body.contains("10077")),
        "stored once: {repeated:?}"
    );
    for subject in [
        "billing.eu.wallet.update",
        "billing.signal.x.y",
        "$KV.saga.x",
        "billing.due.x",
        "$JS.API.INFO",
    ] {
        gateway.may_not_publish(subject).await?;
    }

    let events = Watched::connect(&site.login(User::Events)).await?;
    for subject in [
        "$JS.API.DIRECT.GET.KV_saga.$KV.saga.x",
        "$JS.API.STREAM.MSG.GET.KV_saga",
        "$JS.API.STREAM.INFO.KV_saga",
        "$JS.API.CONSUMER.MSG.NEXT.BILLING_INTAKE.orchestrator",
        "$KV.saga.x",
        "billing.start.deposit.x",
        "billing.eu.wallet.update",
    ] {
        let answer = ask(&events.client, subject, "{}").await;
        assert_eq!(answer, Answer::NoResponders, "{subject}");
    }
    consumes_an_event(&core, &events.client).await
}

/// An event committed with a record reaches a durable consumer of another account, and its
/// acknowledgement counts.
async fn consumes_an_event(core: &Client, events: &Client) -> Result<()> {
    ask(core, "billing.event.eu.k.done", "{}").await;
    let js = jetstream::new(events.clone());
    let consumer: jetstream::consumer::PullConsumer = js
        .get_stream("BILLING_EVENTS")
        .await?
        .create_consumer(jetstream::consumer::pull::Config {
            durable_name: Some("bonus".to_owned()),
            ..Default::default()
        })
        .await?;
    let mut messages = consumer
        .fetch()
        .max_messages(1)
        .expires(Duration::from_secs(5))
        .messages()
        .await?;
    let message = messages.next().await.context("no event")?;
    let message = message.map_err(|error| anyhow::anyhow!("event: {error}"))?;
    assert_eq!(message.subject.as_str(), "billing.event.eu.k.done");
    message
        .double_ack()
        .await
        .map_err(|error| anyhow::anyhow!("acknowledgement: {error}"))?;
    Ok(())
}

#[tokio::test]
async fn a_chosen_reply_subject_reaches_nothing_in_the_core() -> Result<()> {
    let site = one_node().await?;
    let core = site.connect(User::Orchestrator).await?;
    setup::apply(&core, &Partition::only(1)).await?;
    let eu = Watched::connect(&site.login(User::Agent(Leaf::Eu))).await?;
    let mut commands = eu
        .client
        .queue_subscribe("billing.eu.>", "wallet".to_owned())
        .await?;
    ask(
        &core,
        "billing.start.deposit.bait",
        "{\"movement\":\"credit\"}",
    )
    .await;

    let gateway = site.connect(User::Gateway).await?;
    let operator = site.connect(User::Operator).await?;
    for (client, subject, reply) in [
        (&gateway, "billing.callback.p.1", "$KV.saga.forged"),
        (&operator, "billing.start.deposit.1", "$KV.saga.forged"),
        (
            &operator,
            "$JS.API.STREAM.MSG.GET.BILLING_INTAKE",
            "billing.eu.wallet.update",
        ),
        (
            &operator,
            "$JS.API.DIRECT.GET.BILLING_INTAKE",
            "billing.eu.wallet.update",
        ),
        (
            &operator,
            "$JS.API.DIRECT.GET.BILLING_INTAKE",
            "$KV.saga.forged",
        ),
    ] {
        client
            .publish_with_reply(subject, reply, "{\"seq\":1}".into())
            .await?;
        client.flush().await?;
    }
    assert_eq!(hears(&mut commands).await, None);
    let state = jetstream::new(core).get_stream("KV_saga").await?;
    assert_eq!(state.cached_info().state.messages, 0);
    Ok(())
}
