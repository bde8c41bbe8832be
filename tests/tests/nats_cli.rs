//! The NATS CLI shows what happened in words a person can read.

use anyhow::{Context as _, Result, ensure};
use contracts::intake::{OperatorRequest, OperatorVerb};
use orchestrator::saga::record::Status;
use orchestrator::site::User;
use saga_tests::deposit::Deposit;
use saga_tests::nats_cli::NatsCli;
use saga_tests::system::System;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_with_the_nats_cli_sees_what_happened() -> Result<()> {
    let mut system = System::start().await?;
    let Some(nats) = NatsCli::find(system.site.login(User::Operator)) else {
        return Ok(());
    };
    system.spawn_agents()?;
    system.spawn_orchestrator("orchestrator", &[])?;
    for name in ["agent-eu", "agent-asia", "orchestrator"] {
        system.ready(name).await?;
    }
    let deposit = Deposit::new("seen by a person", "eu");
    system.deposit(&deposit).await?;
    let record = system
        .until_ended(&deposit.saga_id(), Duration::from_secs(30))
        .await?;
    ensure!(record.status == Status::Completed, "{record:#?}");
    system.audit(Duration::from_secs(30)).await?;

    // A request as a person types it, without our program.
    let key = deposit.saga_id().key();
    let request = OperatorRequest {
        saga_id: deposit.saga_id(),
        id: "typed".to_owned(),
        verb: OperatorVerb::Hold,
        reason: "too late".to_owned(),
        by: "ann".to_owned(),
    };
    let body = serde_json::to_string_pretty(&request)?;
    let subject = format!("billing.operator.{key}.typed");
    nats.run(&["req", &subject, &body]).await?;
    system
        .until_record(&deposit.saga_id(), Duration::from_secs(30), |record| {
            record.by_hand.action(&request).is_some()
        })
        .await?;
    let answered = contracts::subject::audit(&deposit.saga_id(), "typed", &request.digest());

    let event = contracts::subject::event(
        &"eu".parse()?,
        &deposit.saga_id(),
        contracts::event::DEPOSIT_COMPLETED,
    );
    let question = format!("{{\"customer\":\"{}\"}}", deposit.customer);
    let shown: [(Vec<&str>, Vec<&str>); 11] = [
        (
            vec!["req", "billing.eu.wallet.get", &question],
            vec![
                "\"answer\": \"wallet\"",
                "\"movement\": \"credit\"",
                &deposit.customer,
            ],
        ),
        (
            vec!["kv", "get", "saga", &key, "--raw"],
            vec![
                "\"status\": \"completed\"",
                "\"name\": \"credit-wallet\"",
                "\"outcome\": \"applied\"",
                "\"ended_at\": \"20",
            ],
        ),
        (
            vec!["kv", "history", "saga", &key],
            vec![&key, "PUT", "Revision"],
        ),
        (vec!["kv", "status", "saga"], vec!["saga", "History"]),
        (
            vec!["micro", "ls"],
            vec!["wallet-agent", "region eu", "region asia"],
        ),
        (
            vec!["micro", "info", "wallet-agent"],
            vec![
                ".wallet.update",
                "Queue Group: wallet",
                "capabilities",
                "tombstone",
            ],
        ),
        (
            vec!["micro", "stats", "wallet-agent"],
            vec!["wallet-agent", "update", "revert", "get"],
        ),
        (
            vec!["stream", "view", "BILLING_EVENTS", "5"],
            vec![&event, "\"credited\"", "Saga-Id"],
        ),
        (
            vec!["stream", "get", "BILLING_EVENTS", "-S", &event],
            vec![&event, "\"external_id\":\"seen by a person\""],
        ),
        (
            vec!["stream", "get", "BILLING_AUDIT", "-S", &answered],
            vec![&answered, "\"answer\":\"refused\"", "the saga has ended"],
        ),
        (
            vec!["consumer", "info", "BILLING_INTAKE", "orchestrator"],
            vec![
                "Ack Wait: 10",
                "Outstanding Acks: 0",
                "Unprocessed Messages: 0",
            ],
        ),
    ];
    let mut missing = String::new();
    for (arguments, phrases) in shown {
        let text = if arguments.starts_with(&["stream", "view"]) {
            // Pages, so it wants a terminal.
            match nats.run_in_terminal(&arguments).await? {
                Some(text) => text,
                None => continue,
            }
        } else {
            nats.run(&arguments).await?
        };
        for phrase in phrases {
            if !text.contains(phrase) {
                missing.push_str(&format!("{arguments:?} has no {phrase:?}:\n{text}\n"));
            }
        }
    }
    ensure!(missing.is_empty(), "{missing}");

    // Each revision says in its own words why it was written.
    let history = system.history(&deposit.saga_id()).await?;
    let causes: Vec<&str> = history.iter().map(|record| record.cause.as_str()).collect();
    ensure!(causes.len() > 1, "{causes:?}");
    let last = [
        "completed",
        "hold by ann: too late refused: the saga has ended",
    ];
    ensure!(causes.ends_with(&last), "{causes:?}");

    // Our own doctor, with the operator's rights, sees that nothing is left without a driver.
    let text = system.doctor(User::Operator).await?;
    let sagas = text.lines().find(|line| line.contains("sagas"));
    ensure!(
        sagas.is_some_and(|line| line.starts_with("ok ") && line.contains("0 open of 1 records")),
        "{text}"
    );

    // And a wallet asked for nonsense says what would have been right.
    let text = nats
        .run(&["req", "billing.eu.wallet.get", "{\"who\":1}"])
        .await?;
    ensure!(text.contains("\"answer\": \"invalid\""), "{text}");
    ensure!(text.contains("operation_id"), "{text}");
    nats.run(&["kv", "get", "saga", "no-such-saga"])
        .await
        .err()
        .context("a saga that is not there is shown")?;
    Ok(())
}
