//! Streams, commits, the doctor, a lost node and the NATS CLI, on real servers with the shipped
//! configurations.
#![expect(
    clippy::disallowed_methods,
    reason = "these tests speak to the servers as any client would, with the system's clock"
)]

use anyhow::{Context as _, Result, bail, ensure};
use async_nats::jetstream::{self, kv, stream};
use async_nats::service::ServiceExt as _;
use async_nats::{Client, HeaderMap};
use futures::{StreamExt as _, TryStreamExt as _};
use orchestrator::doctor::{self, Level};
use orchestrator::partition::Partition;
use orchestrator::setup::{self, AssetState};
use saga_tests::cluster::{Core, Leaf, Options, Server, Site, User, Watched};
use saga_tests::cluster::{agent, ask, one_node, reached, three_nodes};
use saga_tests::nats_cli::NatsCli;
use serde_json::{Value, json};
use std::time::Duration;

async fn examine(site: &Site, replicas: u8) -> Result<doctor::Report> {
    let client = site.connect(User::Orchestrator).await?;
    let options = doctor::Options {
        partition: Partition::only(replicas),
        system: None,
        monitors: Vec::new(),
        now: jiff::Timestamp::now,
    };
    Ok(doctor::examine(&client, &options).await)
}

#[tokio::test]
async fn setup_creates_once_reports_differences_and_alters_nothing() -> Result<()> {
    let site = one_node().await?;
    let core = site.connect(User::Orchestrator).await?;
    let partition = Partition::only(1);

    // A stream somebody made with other settings, before us.
    let js = jetstream::new(core.clone());
    js.create_stream(stream::Config {
        name: "BILLING_INTAKE".to_owned(),
        subjects: vec!["billing.callback.>".to_owned()],
        max_age: Duration::from_secs(3600),
        ..Default::default()
    })
    .await?;

    let missing = setup::inspect(&core, &partition).await?;
    assert_eq!(missing.assets[0].state, AssetState::Missing);

    let first = setup::apply(&core, &partition).await?;
    let states: Vec<&AssetState> = first.assets.iter().map(|asset| &asset.state).collect();
    for index in [0, 1, 2, 4, 5, 6] {
        assert_eq!(*states[index], AssetState::Created, "{}", first.render());
    }
    let AssetState::Differs { differences } = states[3] else {
        bail!("{}", first.render());
    };
    let fields: Vec<&str> = differences.iter().map(|d| d.field.as_str()).collect();
    for field in [
        "subjects",
        "max_age",
        "discard",
        "discard_new_per_subject",
        "max_msgs_per_subject",
    ] {
        assert!(fields.contains(&field), "{field} in {fields:?}");
    }

    let second = setup::apply(&core, &partition).await?;
    for index in [0, 1, 2, 4, 5, 6] {
        assert_eq!(second.assets[index].state, AssetState::AsDeclared);
    }
    assert_eq!(second.assets[3].state, first.assets[3].state, "left alone");
    assert!(!second.is_as_declared());

    let report = examine(&site, 1).await?;
    assert_eq!(report.level(), Level::Unsafe);
    let refused: Vec<&str> = report.refusals().map(|check| check.name.as_str()).collect();
    assert_eq!(refused, ["stream BILLING_INTAKE"], "{}", report.render());
    Ok(())
}

#[tokio::test]
async fn one_commit_is_one_batch_and_the_bucket_shows_it() -> Result<()> {
    let site = one_node().await?;
    let watched = Watched::connect(&site.login(User::Orchestrator)).await?;
    let core = watched.client.clone();
    setup::apply(&core, &Partition::only(1)).await?;
    let js = jetstream::new(core.clone());
    let bucket: kv::Store = js.get_key_value("saga").await?;

    let due = jiff::Timestamp::now() + jiff::SignedDuration::from_millis(500);
    let at = format!("@at {due}");
    let record = vec![
        (
            "$KV.saga.k1",
            vec![("Nats-Expected-Last-Subject-Sequence", "0")],
        ),
        (
            "billing.event.eu.k1.done",
            vec![("Nats-Expected-Last-Subject-Sequence", "0")],
        ),
        (
            "billing.timer.k1",
            vec![
                ("Nats-Schedule", at.as_str()),
                ("Nats-Schedule-Target", "billing.due.k1"),
            ],
        ),
    ];
    let written = batch(&core, "b1", &record).await?;
    assert_eq!(written["count"], 3, "{written}");
    // The same again: the whole batch is refused, the timer is not armed a second time.
    let conflict = batch(&core, "b2", &record).await?;
    assert!(
        [10071, 10164].contains(&conflict["error"]["err_code"].as_u64().unwrap_or(0)),
        "{conflict}"
    );
    let entry = bucket.entry("k1").await?.context("record")?;
    assert_eq!(entry.revision, 1);

    let keys: Vec<String> = bucket.keys().await?.try_collect().await?;
    assert_eq!(keys, ["k1"]);
    let history: Vec<kv::Entry> = bucket.history("k1").await?.try_collect().await?;
    assert_eq!(history.len(), 1);
    let mut watch = bucket.watch_with_history("k1").await?;
    assert_eq!(watch.next().await.context("watch")??.key, "k1");
    drop(watch);

    // The timer fires into billing.due, and the shared consumer gets it.
    let timers: jetstream::consumer::PullConsumer =
        js.get_consumer_from_stream("timers", "KV_saga").await?;
    let mut fired = timers
        .fetch()
        .max_messages(1)
        .expires(Duration::from_secs(10))
        .messages()
        .await?;
    let fired = fired
        .next()
        .await
        .context("no timer")?
        .map_err(|error| anyhow::anyhow!("{error}"))?;
    assert_eq!(fired.subject.as_str(), "billing.due.k1");

    // A commit that cancels the timer it had armed.
    let far = "@at 2099-01-01T00:00:00Z";
    let armed = batch(
        &core,
        "b3",
        &[
            (
                "$KV.saga.k2",
                vec![("Nats-Expected-Last-Subject-Sequence", "0")],
            ),
            (
                "billing.timer.k2",
                vec![
                    ("Nats-Schedule", far),
                    ("Nats-Schedule-Target", "billing.due.k2"),
                ],
            ),
        ],
    )
    .await?;
    let revision = armed["seq"].as_u64().context("sequence")? - 1;
    let mut headers = HeaderMap::new();
    headers.insert("Nats-Expected-Last-Subject-Sequence", revision.to_string());
    headers.insert("Nats-Scheduler", "billing.timer.k2");
    headers.insert("Nats-Schedule-Next", "purge");
    js.publish_with_headers("$KV.saga.k2", headers, "{}".into())
        .await?
        .await?;
    let mut subjects = js
        .get_stream("KV_saga")
        .await?
        .info_with_subjects("billing.timer.>")
        .await?;
    ensure!(subjects.next().await.is_none(), "no timer is left");

    js.get_stream("KV_saga")
        .await?
        .purge()
        .filter("billing.due.k1")
        .await?;
    assert_eq!(watched.refusals(), Vec::<String>::new());

    let copied = js.get_stream("BILLING_EVENTS").await?;
    for _ in 0..500 {
        if copied.get_info().await?.state.messages == 1 {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    bail!("the event was not copied to BILLING_EVENTS exactly once")
}

async fn batch(client: &Client, id: &str, messages: &[(&str, Vec<(&str, &str)>)]) -> Result<Value> {
    let mut answer = Value::Null;
    for (index, (subject, extra)) in messages.iter().enumerate() {
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Batch-Id", id);
        headers.insert("Nats-Batch-Sequence", (index + 1).to_string());
        for (name, value) in extra {
            headers.insert(*name, *value);
        }
        if index + 1 == messages.len() {
            headers.insert("Nats-Batch-Commit", "1");
        }
        let reply = client
            .request_with_headers((*subject).to_owned(), headers, "{}".into())
            .await?;
        if !reply.payload.is_empty() {
            answer = serde_json::from_slice(&reply.payload)?;
        }
    }
    Ok(answer)
}

#[tokio::test]
async fn doctor_accepts_the_shipped_node_and_refuses_one_that_syncs_late() -> Result<()> {
    let site = one_node().await?;
    let core = site.connect(User::Orchestrator).await?;
    setup::apply(&core, &Partition::only(1)).await?;
    let report = examine(&site, 1).await?;
    assert_eq!(report.refusals().count(), 0, "{}", report.render());
    drop(site);

    let site = Site::start(Options {
        sync_interval: Some("\"2m\"".to_owned()),
        ..Options::default()
    })
    .await?;
    let core = site.connect(User::Orchestrator).await?;
    setup::apply(&core, &Partition::only(1)).await?;
    let report = examine(&site, 1).await?;
    let refused: Vec<&str> = report.refusals().map(|check| check.name.as_str()).collect();
    assert_eq!(refused, ["sync core"], "{}", report.render());
    assert!(report.render().contains("sync_interval: always"));

    // The same truth for a user whose account imports nothing: over the monitoring port or the system
    // account; without either it is unknown, and unknown is unsafe.
    let gateway = site.connect(User::Gateway).await?;
    let system = site.connect(User::System).await?;
    let unknown = doctor::Options {
        partition: Partition::only(1),
        system: None,
        monitors: Vec::new(),
        now: jiff::Timestamp::now,
    };
    let monitored = doctor::Options {
        monitors: vec![site.monitor(Server::Core(1))],
        ..unknown.clone()
    };
    let with_system = doctor::Options {
        system: Some(system),
        ..unknown.clone()
    };
    let reports = futures::join!(
        doctor::examine(&gateway, &unknown),
        doctor::examine(&gateway, &monitored),
        doctor::examine(&gateway, &with_system),
    );
    for (report, name) in [
        (reports.0, "sync"),
        (reports.1, "sync core"),
        (reports.2, "sync core"),
    ] {
        let refused = report.refusals().any(|check| check.name == name);
        assert!(refused, "{name}: {}", report.render());
    }
    Ok(())
}

#[tokio::test]
async fn three_nodes_lose_one_and_go_on() -> Result<()> {
    let mut site = three_nodes().await?;
    let core = site.connect(User::Orchestrator).await?;
    let partition = Partition::only(Core::ThreeNodes.replicas());
    let report = setup::apply(&core, &partition).await?;
    assert!(report.is_as_declared(), "{}", report.render());

    let report = examine(&site, 3).await?;
    assert_eq!(report.refusals().count(), 0, "{}", report.render());
    assert!(
        report
            .checks
            .iter()
            .any(|check| check.name == "sync core-3")
    );

    let _eu = agent(&site, Leaf::Eu).await?;
    reached(&core, "billing.eu.wallet.update").await?;
    site.kill("core-1")?;
    let js = jetstream::new(core.clone());
    let writing = async {
        loop {
            if let Ok(acknowledged) = js.publish("$KV.saga.k", "{}".into()).await
                && acknowledged.await.is_ok()
            {
                break;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), writing)
        .await
        .context("no write after losing a node")?;
    assert_eq!(reached(&core, "billing.eu.wallet.update").await?, "eu");
    site.restart_server(Server::Core(1)).await?;
    Ok(())
}

#[tokio::test]
async fn the_nats_cli_takes_the_declarations_and_shows_what_is_stored() -> Result<()> {
    let site = one_node().await?;
    let Some(owner) = NatsCli::find(site.login(User::Orchestrator)) else {
        return Ok(());
    };
    let nats = site.dir().join("declared");
    std::fs::create_dir_all(&nats)?;
    for (name, text) in [
        ("KV_saga", include_str!("../../nats/streams/KV_saga.json")),
        (
            "BILLING_EVENTS",
            include_str!("../../nats/streams/BILLING_EVENTS.json"),
        ),
        (
            "BILLING_AUDIT",
            include_str!("../../nats/streams/BILLING_AUDIT.json"),
        ),
        (
            "BILLING_INTAKE",
            include_str!("../../nats/streams/BILLING_INTAKE.json"),
        ),
        (
            "KV_regions",
            include_str!("../../nats/streams/KV_regions.json"),
        ),
    ] {
        let file = nats.join(name);
        std::fs::write(&file, text)?;
        owner
            .run(&["stream", "add", "--config", &file.display().to_string()])
            .await?;
    }
    for (stream, name, text) in [
        (
            "BILLING_INTAKE",
            "orchestrator",
            include_str!("../../nats/consumers/orchestrator.json"),
        ),
        (
            "KV_saga",
            "timers",
            include_str!("../../nats/consumers/timers.json"),
        ),
    ] {
        let file = nats.join(name);
        std::fs::write(&file, text)?;
        owner
            .run(&[
                "consumer",
                "add",
                stream,
                "--config",
                &file.display().to_string(),
            ])
            .await?;
    }
    let core = site.connect(User::Orchestrator).await?;
    let report = setup::apply(&core, &Partition::only(1)).await?;
    assert!(
        report
            .assets
            .iter()
            .all(|asset| asset.state == AssetState::AsDeclared),
        "what the CLI made is what we make: {}",
        report.render()
    );

    for body in [
        json!({ "status": "running" }),
        json!({ "status": "completed" }),
    ] {
        ask(&core, "$KV.saga.k1", &body.to_string()).await;
    }
    ask(&core, "billing.event.eu.k1.done", "{\"event\":1}").await;
    let eu = site.connect(User::Agent(Leaf::Eu)).await?;
    let _service = eu
        .service_builder()
        .queue_group("wallet")
        .start("wallet-agent", "0.1.0")
        .await
        .map_err(|error| anyhow::anyhow!("service: {error}"))?;

    let operator = NatsCli::find(site.login(User::Operator)).context("found before")?;
    for (arguments, shown) in [
        (vec!["kv", "get", "saga", "k1", "--raw"], "completed"),
        (vec!["kv", "history", "saga", "k1"], "running"),
        (vec!["kv", "ls", "saga"], "k1"),
        (vec!["kv", "status", "saga"], "KV_saga"),
        (
            vec![
                "stream",
                "get",
                "BILLING_EVENTS",
                "-S",
                "billing.event.eu.k1.done",
            ],
            "\"event\":1",
        ),
        (
            vec!["stream", "subjects", "KV_saga"],
            "billing.event.eu.k1.done",
        ),
        (
            vec!["consumer", "info", "BILLING_INTAKE", "orchestrator"],
            "4,096",
        ),
        (vec!["consumer", "report", "KV_saga"], "timers"),
        (vec!["micro", "ls"], "wallet-agent"),
        (vec!["pub", "-J", "billing.start.deposit.a", "{}"], ""),
    ] {
        let text = operator.run(&arguments).await?;
        assert!(text.contains(shown), "{arguments:?} shows\n{text}");
    }
    for arguments in [
        vec!["stream", "rm", "-f", "KV_saga"],
        vec!["stream", "purge", "-f", "KV_saga"],
        vec!["kv", "put", "saga", "k1", "forged"],
        vec!["consumer", "rm", "-f", "BILLING_INTAKE", "orchestrator"],
        vec!["pub", "billing.eu.wallet.update", "{}"],
    ] {
        assert!(operator.run(&arguments).await.is_err(), "{arguments:?}");
    }
    assert_eq!(
        operator
            .run(&["kv", "get", "saga", "k1", "--raw"])
            .await?
            .trim(),
        "{\"status\":\"completed\"}"
    );
    Ok(())
}
