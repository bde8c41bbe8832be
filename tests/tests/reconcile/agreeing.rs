//! Where everything agrees, or is on its way there.

use crate::{BOUND, PATIENT, completed};
use anyhow::{Context as _, Result, ensure};
use jiff::SignedDuration;
use orchestrator::saga::record::Status;
use orchestrator::site::User;
use saga_tests::deposit::Deposit;
use saga_tests::load::{CLOSED_CUSTOMER, Load, Random};
use saga_tests::system::{REGIONS, System};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clean_system_agrees_whatever_became_of_its_sagas() -> Result<()> {
    let mut system = System::start_whole().await?;
    system.close_wallets().await?;
    for region in REGIONS {
        completed(
            &mut system,
            &[&format!("a-{region}"), &format!("b-{region}")],
            region,
        )
        .await?;
    }
    let mut refused = Deposit::new("refused", "eu");
    CLOSED_CUSTOMER.clone_into(&mut refused.customer);
    let mut pending = Deposit::new("pending", "asia");
    pending.status = "pending";
    let mut failed = Deposit::new("failed", "eu");
    failed.status = "failed";
    for deposit in [&refused, &pending, &failed] {
        system.deposit(deposit).await?;
    }
    let record = system.until_ended(&refused.saga_id(), BOUND).await?;
    ensure!(record.status == Status::Compensated, "{record:#?}");
    system.until_ended(&failed.saga_id(), BOUND).await?;
    system
        .until_record(&pending.saga_id(), BOUND, |record| {
            record.status == Status::Waiting
        })
        .await?;

    for user in [User::Operator, User::Orchestrator] {
        let payments = ["--payments", &system.databases.payments];
        let ran = system.run_reconcile(user, &payments).await?;
        ensure!(ran.code == Some(0), "{ran:#?}");
        for said in [
            "9 sagas",
            "everything agrees",
            "75.00",
            "1 sagas are under way",
        ] {
            ensure!(ran.out.contains(said), "{said}: {ran:#?}");
        }
        let json = system
            .run_reconcile(user, &[&payments[..], &["-o", "json"]].concat())
            .await?;
        ensure!(json.code == Some(0), "{json:#?}");
        let lines = json.json()?;
        let summary = &lines[0]["summary"];
        ensure!(
            lines.len() == 1 && summary["compared"]["events"] == 8,
            "{json:#?}"
        );
        for side in ["credits", "payments", "events"] {
            ensure!(summary["sums"]["EUR.2"][side] == 7_500, "{side}: {summary}");
        }
    }
    let one = [
        "--payments",
        &system.databases.payments,
        "--region",
        "asia",
        "-o",
        "json",
    ];
    let one = system.run_reconcile(User::Operator, &one).await?;
    let summary = one.json()?.pop().context("a summary")?;
    ensure!(one.code == Some(0), "{one:#?}");
    ensure!(summary["summary"]["compared"]["sagas"] == 3, "{summary}");
    ensure!(
        summary["summary"]["sums"]["EUR.2"]["credits"] == 2_500,
        "{summary}"
    );

    // A range that lies before everything, and one whose end cuts sagas off, agree as well.
    let mut options = system.reconcile_options(PATIENT)?;
    let operator = system.site.connect(User::Operator).await?;
    let until = options.until;
    options.until = until - SignedDuration::from_hours(3);
    let (report, found) = system.reconcile_as(&operator, &options).await?;
    ensure!(
        found.is_empty() && report.compared.sagas == 0,
        "{report:#?} {found:#?}"
    );
    let middle = system.history(&refused.saga_id()).await?;
    options.until = middle.last().context("a record")?.started_at;
    let (report, found) = system.reconcile_as(&operator, &options).await?;
    ensure!(
        found.is_empty() && report.compared.sagas >= 6,
        "{report:#?} {found:#?}"
    );
    (options.since, options.until) = (options.until, until);
    let (report, found) = system.reconcile_as(&operator, &options).await?;
    ensure!(
        found.is_empty() && report.compared.sagas >= 3,
        "{report:#?} {found:#?}"
    );

    // What is not compared is said.
    let ran = system.run_reconcile(User::Operator, &[]).await?;
    ensure!(
        ran.code == Some(64) && ran.err.contains("--without-payments"),
        "{ran:#?}"
    );
    let ran = system
        .run_reconcile(User::Operator, &["--without-payments"])
        .await?;
    ensure!(
        ran.code == Some(0) && ran.out.contains("payments NOT compared"),
        "{ran:#?}"
    );
    let elsewhere = ["--payments", "sqlite://nowhere.db"];
    let ran = system.run_reconcile(User::Operator, &elsewhere).await?;
    ensure!(ran.code == Some(3), "{ran:#?}");
    ensure!(
        !system.site.dir().join("nowhere.db").exists(),
        "a reader made a database"
    );
    let backwards = ["--without-payments", "--since", "1h", "--until", "2h"];
    let ran = system.run_reconcile(User::Operator, &backwards).await?;
    ensure!(ran.code == Some(64), "{ran:#?}");
    // The gateway may read nothing.
    let ran = system
        .run_reconcile(User::Gateway, &["--without-payments"])
        .await?;
    ensure!(ran.code == Some(3), "{ran:#?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_system_raises_no_false_alarm() -> Result<()> {
    let count = match std::env::var("SAGA_RECONCILE_SAGAS") {
        Ok(count) => count.parse()?,
        Err(_) => 150,
    };
    let mut system = System::start_whole().await?;
    system.close_wallets().await?;
    let mut random = Random::from_environment("a_running_system_raises_no_false_alarm");
    let load = Load::mixed(count, "load", &mut random);
    let sending = {
        let (load, sender) = (load.clone(), system.sender());
        tokio::spawn(async move { load.send(&sender).await })
    };
    let operator = system.site.connect(User::Operator).await?;
    let (mut runs, mut in_the_middle) = (0, 0);
    loop {
        let options = system.reconcile_options(PATIENT)?;
        let began = tokio::time::Instant::now();
        let (report, found) = system.reconcile_as(&operator, &options).await?;
        eprintln!(
            "{:?}, {} under way, in {:.1?}",
            report.compared,
            report.under_way,
            began.elapsed()
        );
        ensure!(found.is_empty(), "{report:#?} {found:#?}");
        runs += 1;
        let compared = report.compared.sagas - report.under_way;
        let all = compared == u64::try_from(load.deposits.len())?;
        in_the_middle += u32::from(compared > 0 && !all);
        if all {
            let sums = report.sums.get("EUR.2").context("euros")?;
            ensure!(sums.credits - sums.reverts == sums.payments, "{sums:?}");
            ensure!(sums.events == sums.payments, "{sums:?}");
            break;
        }
    }
    ensure!(
        runs > 1 && in_the_middle > 0,
        "{runs} runs, {in_the_middle} in the middle"
    );
    sending.await??;
    let audit = system.audit(BOUND).await?;
    eprintln!("{runs} runs, {in_the_middle} in the middle: {audit}");
    Ok(())
}
