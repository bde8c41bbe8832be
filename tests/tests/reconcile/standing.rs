//! Sagas that stand still, and sides that cannot be reached.

use crate::{BOUND, Named, PATIENT, compare};
use anyhow::{Context as _, Result, ensure};
use jiff::SignedDuration;
use orchestrator::clock::wall_clock;
use orchestrator::reconcile::Kind;
use orchestrator::saga::Turn;
use orchestrator::saga::operator::{Verb, next_verbs};
use orchestrator::saga::record::Status;
use orchestrator::saga::rules::Rules;
use orchestrator::site::User;
use saga_tests::deposit::Deposit;
use saga_tests::system::System;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sagas_that_do_not_move_are_named_and_a_silent_side_is_no_agreement() -> Result<()> {
    let mut system = System::start_whole().await?;
    let mut lost = Deposit::new("lost-region", "eu");
    lost.region = "nowhere";
    system.deposit(&lost).await?;
    system
        .until_record(&lost.saga_id(), BOUND, |record| {
            record.status == Status::NeedsReview
        })
        .await?;
    let mut pending = Deposit::new("pending", "asia");
    pending.status = "pending";
    system.deposit(&pending).await?;
    system
        .until_record(&pending.saga_id(), BOUND, |record| {
            record.status == Status::Waiting
        })
        .await?;
    let (report, found) = system.reconcile(PATIENT).await?;
    ensure!(
        found.is_empty() && report.under_way == 2,
        "{report:#?} {found:#?}"
    );
    // It waits for a known instant; the other for somebody.
    let (_, found) = system.reconcile(SignedDuration::ZERO).await?;
    let case = format!("orchestrator case show {}", lost.saga_id());
    compare(
        &found,
        &[Named(
            Kind::WaitsForPerson,
            lost.saga_id().to_string(),
            None,
            case,
        )],
    )?;

    // Its command is out and nobody is there to go on with it.
    system.site.kill("agent-asia")?;
    let stuck = Deposit::new("stuck", "asia");
    system.deposit(&stuck).await?;
    system
        .until_record(&stuck.saga_id(), BOUND, |record| {
            record
                .steps
                .iter()
                .any(|step| step.pivot && step.forward.attempts > 0)
        })
        .await?;
    let ran = system
        .run_reconcile(User::Operator, &["--without-payments"])
        .await?;
    ensure!(
        ran.code == Some(3) && ran.err.contains("wallet of asia"),
        "{ran:#?}"
    );
    system.site.kill("orchestrator")?;
    system.restart("agent-asia")?;
    system.ready("agent-asia").await?;
    let ran = system
        .run_reconcile(User::Operator, &["--without-payments"])
        .await?;
    ensure!(
        ran.code == Some(3) && ran.err.contains("wallet of default"),
        "{ran:#?}"
    );
    let arguments = [
        "--payments",
        &system.databases.payments,
        "--region",
        "asia",
        "-o",
        "json",
    ];
    let ran = system.run_reconcile(User::Operator, &arguments).await?;
    ensure!(
        ran.code == Some(0),
        "not stuck for a quarter of an hour: {ran:#?}"
    );
    let ran = system
        .run_reconcile(
            User::Operator,
            &[&arguments[..], &["--stuck", "0s"]].concat(),
        )
        .await?;
    let lines = ran.json()?;
    ensure!(ran.code == Some(1) && lines.len() == 2, "{ran:#?}");
    let line = &lines[0];
    ensure!(line["kind"] == "stuck", "{line}");
    ensure!(line["saga_id"] == stuck.saga_id().as_str(), "{line}");
    ensure!(
        line["amount"]["amount_minor"] == 1_250 && line["region"] == "asia",
        "{line}"
    );
    // What is printed is what the core allows.
    let (record, _) = system.record(&stuck.saga_id()).await?.context("a record")?;
    let turn = Turn {
        now: wall_clock(),
        replica: "",
        rules: &Rules::default(),
    };
    let verbs = next_verbs(&record, turn);
    let fix = if verbs.contains(&Verb::RetryNow) {
        format!("orchestrator saga retry {} --reason TEXT", stuck.saga_id())
    } else if verbs.contains(&Verb::Recheck) {
        format!(
            "orchestrator case recheck {} --reason TEXT",
            stuck.saga_id()
        )
    } else {
        format!("orchestrator saga show {}", stuck.saga_id())
    };
    let command = line["fix"]["command"].as_str().context("a fix")?;
    ensure!(command == fix, "{fix}: {line}");
    // With somebody to drive it, it is taken.
    system.restart("orchestrator")?;
    system.ready("orchestrator").await?;
    let arguments: Vec<&str> = command.split(' ').skip(1).collect();
    let ran = system.run_orchestrator(User::Operator, &arguments).await?;
    let ended = system.until_ended(&stuck.saga_id(), BOUND).await?;
    ensure!(ended.status == Status::Completed, "{ended:#?}");
    // It may have gone on by itself before the word came.
    ensure!(ran.code == Some(0) || ran.code == Some(1), "{ran:#?}");
    let (_, found) = system.reconcile(PATIENT).await?;
    ensure!(found.is_empty(), "{found:#?}");
    Ok(())
}
