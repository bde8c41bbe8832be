//! What operators see from outside: traces through both programs, metrics, liveness and readiness.

use anyhow::{Result, ensure};
use async_nats::HeaderMap;
use orchestrator::saga::record::Status;
use orchestrator::site::{Leaf, Server};
use saga_tests::deposit::Deposit;
use saga_tests::http;
use saga_tests::otlp::Receiver;
use saga_tests::system::{DEFAULT_REGION, System};
use std::time::Duration;

const BOUND: Duration = Duration::from_secs(30);

/// Whoever called the gateway has begun this trace.
const TRACE_ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_trace_goes_from_the_callback_to_the_wallet() -> Result<()> {
    let receiver = Receiver::start().await?;
    let mut system = System::start().await?;
    let environment = receiver.environment();
    system.spawn_agent("agent-eu", Leaf::Eu, &environment)?;
    system.spawn_orchestrator("orchestrator", &environment)?;
    for name in ["agent-eu", "orchestrator"] {
        system.ready(name).await?;
    }

    let far = Deposit::new("traced", "eu");
    let mut headers = HeaderMap::new();
    headers.insert(
        contracts::header::TRACEPARENT,
        format!("00-{TRACE_ID}-00f067aa0ba902b7-01").as_str(),
    );
    system.sender().send_with(&far, "e1", headers).await?;
    let record = system.until_ended(&far.saga_id(), BOUND).await?;
    ensure!(record.status == Status::Completed, "{record:#?}");
    let saga_id = far.saga_id();
    let credit = far.credit();

    let in_trace = |span: &saga_tests::otlp::Span| span.trace_id == TRACE_ID;
    receiver
        .until("the intake", |span| span.name == "intake" && in_trace(span))
        .await?;
    let saga = receiver
        .until("the saga", |span| span.name == "saga" && in_trace(span))
        .await?;
    ensure!(saga.attribute("saga.id") == saga_id.as_str(), "{saga:?}");
    let step = receiver
        .until("the step", |span| {
            in_trace(span) && span.attribute("saga.step") == "credit-wallet"
        })
        .await?;
    ensure!(
        step.service == "orchestrator" && step.parent_id == saga.span_id,
        "{step:?}"
    );
    let command = receiver
        .until("the agent's command", |span| {
            in_trace(span) && span.service == "region-agent"
        })
        .await?;
    ensure!(
        command.parent_id == step.span_id,
        "{command:?} under {step:?}"
    );
    for span in [&step, &command] {
        for (name, value) in [
            ("saga.id", saga_id.as_str()),
            ("saga.operation_id", credit.as_str()),
            ("saga.region", "eu"),
        ] {
            ensure!(span.attribute(name) == value, "{name} of {span:?}");
        }
    }

    // The wallet in process is in its saga's trace too; a callback without a trace begins one.
    let near = Deposit::new("traced-here", DEFAULT_REGION);
    system.deposit(&near).await?;
    system.until_ended(&near.saga_id(), BOUND).await?;
    let saga_id = near.saga_id();
    let command = receiver
        .until("the wallet in process", |span| {
            span.name == "wallet command" && span.attribute("saga.id") == saga_id.as_str()
        })
        .await?;
    ensure!(
        command.service == "orchestrator" && command.trace_id != TRACE_ID,
        "{command:?}"
    );
    receiver
        .until("its saga", |span| {
            span.name == "saga" && span.trace_id == command.trace_id
        })
        .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn health_pages_tell_the_truth_while_servers_come_and_go() -> Result<()> {
    let mut system = System::start_whole().await?;
    let deposit = Deposit::new("counted", "eu");
    system.deposit(&deposit).await?;
    system.until_ended(&deposit.saga_id(), BOUND).await?;

    for (name, metrics) in [
        (
            "orchestrator",
            [
                "orchestrator_commits_total ",
                "orchestrator_sagas_ended_total{status=\"completed\"} 1",
            ],
        ),
        ("agent-eu", ["# TYPE ", "verb=\"update\""]),
    ] {
        let address = system.health_of(name).to_owned();
        let page = http::get(&address, "/metrics").await?;
        ensure!(page.status == 200, "{page:?}");
        for metric in metrics {
            ensure!(
                page.body.contains(metric),
                "{name} has no {metric}:\n{}",
                page.body
            );
        }
        let page = http::get(&address, "/healthz").await?;
        ensure!(page.status == 200, "{page:?}");
        let page = http::get(&address, "/readyz").await?;
        ensure!(
            page.status == 200 && page.body.contains("nats: ok"),
            "{page:?}"
        );
    }

    for (process, server) in [
        ("orchestrator", Server::Core(1)),
        ("agent-eu", Server::Leaf(Leaf::Eu)),
    ] {
        let name = system.site.server_name(server);
        system.site.kill(&name)?;
        until_status(&mut system, process, 503).await?;
        let page = http::get(system.health_of(process), "/healthz").await?;
        ensure!(page.status == 200, "alive, though not ready: {page:?}");
        system.site.restart_server(server).await?;
        until_status(&mut system, process, 200).await?;
    }
    Ok(())
}

async fn until_status(system: &mut System, process: &str, status: u16) -> Result<()> {
    let address = system.health_of(process).to_owned();
    let what = format!("/readyz of {process} answers {status}");
    system
        .site
        .until(&what, BOUND, async |_| {
            let page = http::get(&address, "/readyz").await;
            Ok(page.is_ok_and(|page| page.status == status).then_some(()))
        })
        .await?;
    Ok(())
}
