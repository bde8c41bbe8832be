//! Wallets, payments and records that differ.

use crate::{BOUND, Named, PATIENT, compare, completed};
use anyhow::{Context as _, Result, ensure};
use contracts::command::{CommandHeader, Movement, WalletCommand, WalletUpdate};
use contracts::id::{CustomerId, OperationId};
use contracts::money::{Currency, Money};
use contracts::reply::WalletReply;
use jiff::SignedDuration;
use orchestrator::clock::wall_clock;
use orchestrator::partition::Partition;
use orchestrator::reconcile::{Difference, Kind};
use orchestrator::saga::record::Status;
use orchestrator::site::User;
use region_agent::clock::Clock;
use region_agent::wallet::Wallet;
use saga_tests::deposit::Deposit;
use saga_tests::load::CLOSED_CUSTOMER;
use saga_tests::system::{DEFAULT_REGION, System};
use std::collections::BTreeSet;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wallets_that_differ_are_named() -> Result<()> {
    let mut system = System::start_whole().await?;
    system.close_wallets().await?;
    let names = ["whole", "lost", "other-sum", "other-customer", "twice"];
    let deposits = completed(&mut system, &names, "eu").await?;
    let mut refused = Deposit::new("refused", "eu");
    CLOSED_CUSTOMER.clone_into(&mut refused.customer);
    system.deposit(&refused).await?;
    system.until_ended(&refused.saga_id(), BOUND).await?;
    let (report, found) = system.reconcile(PATIENT).await?;
    ensure!(found.is_empty(), "{report:#?} {found:#?}");

    let id = |name: &str| {
        let deposit = deposits.iter().find(|deposit| deposit.external_id == name);
        deposit
            .map(|deposit| deposit.saga_id().to_string())
            .context("a deposit")
    };
    let ledger = system.databases.ledgers["eu"].clone();
    let of = |name: &str| Ok::<_, anyhow::Error>(format!("WHERE operation_id = '{}'", id(name)?));

    // Booked by hand, for nobody's payment.
    let book = [
        "wallet",
        "book",
        "by-hand-1",
        "cust",
        "credit",
        "7.00",
        "EUR",
        "--reason",
        "test",
    ];
    let ran = system.run_agent(DEFAULT_REGION, &book).await?;
    ensure!(ran.code == Some(0), "{ran:#?}");
    // A second movement in the name of a saga.
    second_movement(&system, &deposits[4], "again").await?;
    // Lost by the ledger.
    let lost = OperationId::new(id("lost")?)?.key();
    for table in ["entries", "operations"] {
        let statement = format!("DELETE FROM {table} WHERE operation_key = '{lost}'");
        system.plant(&ledger, &statement).await?;
    }
    // Changed in the ledger.
    let sum = format!(
        "UPDATE operations SET reply = replace(reply, '1250', '1350') {}",
        of("other-sum")?
    );
    system.plant(&ledger, &sum).await?;
    let customer = format!(
        "UPDATE operations SET reply = replace(reply, 'customer-of-other-customer', 'somebody') {}",
        of("other-customer")?
    );
    system.plant(&ledger, &customer).await?;
    // Applied after all, though the wallet had refused it for good.
    let applied = format!(
        "UPDATE operations SET state = 'applied', reply = (SELECT reply FROM operations {}) \
         WHERE operation_id = '{}'",
        of("whole")?,
        refused.saga_id()
    );
    system.plant(&ledger, &applied).await?;

    let (report, found) = system.reconcile(PATIENT).await?;
    let expected = [
        Named::new(
            Kind::WalletWithoutSaga,
            "by-hand-1",
            700,
            "region-agent wallet revert by-hand-1 ",
        ),
        Named::new(
            Kind::ExtraMovement,
            id("twice")?,
            1_250,
            &format!("region-agent wallet revert {}/again", id("twice")?),
        ),
        Named::new(
            Kind::WalletMissing,
            id("lost")?,
            1_250,
            &format!(
                "region-agent wallet book {} customer-of-lost credit 12.50 EUR",
                id("lost")?
            ),
        ),
        Named::new(
            Kind::WalletDiffers,
            id("other-sum")?,
            1_250,
            "region-agent wallet revert",
        ),
        Named::new(
            Kind::WalletDiffers,
            id("other-customer")?,
            1_250,
            "region-agent wallet revert",
        ),
        Named::new(
            Kind::WalletUnexpected,
            refused.saga_id(),
            1_250,
            "region-agent wallet revert",
        ),
    ];
    compare(&found, &expected)?;
    ensure!(report.count() == 6, "{report:#?}");
    let payments = ["--payments", &system.databases.payments, "-o", "json"];
    let ran = system.run_reconcile(User::Operator, &payments).await?;
    ensure!(ran.code == Some(1) && ran.json()?.len() == 7, "{ran:#?}");
    // A region that is not asked for is not looked at.
    let one = [&payments[..], &["--region", DEFAULT_REGION]].concat();
    let ran = system.run_reconcile(User::Operator, &one).await?;
    ensure!(ran.code == Some(1) && ran.json()?.len() == 2, "{ran:#?}");

    // What is named for a movement too many makes it right; so does what is named for a lost one.
    for difference in &found {
        let command: Vec<&str> = difference.fix.command.split(' ').skip(1).collect();
        let region = difference.region.clone().context("a region")?;
        match difference.kind {
            Kind::WalletWithoutSaga | Kind::ExtraMovement | Kind::WalletMissing => {
                let ran = system.run_agent(region.as_str(), &command).await?;
                ensure!(ran.code == Some(0), "{command:?}: {ran:#?}");
            }
            _ => {}
        }
    }
    let (_, found) = system.reconcile(PATIENT).await?;
    compare(&found, &expected[3..])
}

async fn second_movement(system: &System, deposit: &Deposit, name: &str) -> Result<()> {
    let wallet = Wallet::new(system.ledger(deposit.region).await?, Clock::system());
    let header = CommandHeader {
        saga_id: Some(deposit.saga_id()),
        operation_id: deposit.saga_id().operation(name),
        attempt: 1,
        fence: 1_000,
        deadline: wall_clock() + SignedDuration::from_secs(10),
    };
    let update = WalletCommand::Update(WalletUpdate {
        customer: CustomerId::new(deposit.customer.clone())?,
        movement: Movement::Credit,
        money: Money::new(deposit.amount_minor, Currency::iso("EUR".parse()?)?),
        memo: None,
    });
    let reply = wallet.execute(&header, &update).await;
    wallet.ledger().close().await;
    ensure!(matches!(reply, WalletReply::Applied { .. }), "{reply:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn payments_and_records_that_differ_are_named() -> Result<()> {
    let mut system = System::start_whole().await?;
    system.close_wallets().await?;
    let names = [
        "whole",
        "unmarked",
        "other-sum",
        "no-row",
        "no-record",
        "turned-back",
        "torn",
    ];
    let deposits = completed(&mut system, &names, "asia").await?;
    let mut refused = Deposit::new("refused", "asia");
    CLOSED_CUSTOMER.clone_into(&mut refused.customer);
    system.deposit(&refused).await?;
    system.until_ended(&refused.saga_id(), BOUND).await?;
    let (_, found) = system.reconcile(PATIENT).await?;
    ensure!(found.is_empty(), "{found:#?}");

    let payments = system.databases.payments.clone();
    for statement in [
        "UPDATE payments SET status = 'pending', credited_minor = NULL WHERE external_id = 'unmarked'",
        "UPDATE payments SET credited_minor = 99 WHERE external_id = 'other-sum'",
        "DELETE FROM payments WHERE external_id = 'no-row'",
        "UPDATE payments SET status = 'pending' WHERE external_id = 'refused'",
    ] {
        system.plant(&payments, statement).await?;
    }
    let bucket = system.js.get_key_value(Partition::only(1).bucket()).await?;
    bucket.delete(deposits[4].saga_id().key()).await?;
    let (mut record, _) = system
        .record(&deposits[5].saga_id())
        .await?
        .context("a record")?;
    record.status = Status::Compensated;
    bucket
        .put(record.saga_id.key(), serde_json::to_vec(&record)?.into())
        .await?;
    bucket
        .put(deposits[6].saga_id().key(), "{\"torn\":".into())
        .await?;

    let (_, found) = system.reconcile(PATIENT).await?;
    let saga = |index: usize| deposits[index].saga_id().to_string();
    let show = |index: usize| format!("orchestrator saga show {} --history", saga(index));
    let expected = [
        Named::new(Kind::PaymentNotSuccessful, saga(1), 1_250, &show(1)),
        Named::new(Kind::PaymentDiffers, saga(2), 99, &show(2)),
        Named::new(Kind::PaymentMissing, saga(3), 1_250, &show(3)),
        Named::new(
            Kind::WalletWithoutSaga,
            saga(4),
            1_250,
            "region-agent wallet revert",
        ),
        Named::new(Kind::PaymentWithoutSaga, saga(4), 1_250, &show(4)),
        Named::new(Kind::EventWithoutCompletion, saga(4), 1_250, &show(4)),
        Named::new(
            Kind::RevertMissing,
            saga(5),
            1_250,
            &format!("region-agent wallet revert {}", saga(5)),
        ),
        Named::new(Kind::PaymentWithoutCompletion, saga(5), 1_250, &show(5)),
        Named::new(Kind::EventWithoutCompletion, saga(5), 1_250, &show(5)),
        Named(
            Kind::RecordUnreadable,
            saga(6),
            None,
            "nats kv get saga deposit=2F".to_owned(),
        ),
        Named(
            Kind::PaymentLeftOpen,
            refused.saga_id().to_string(),
            None,
            "orchestrator saga show".to_owned(),
        ),
    ];
    // What an unreadable record had to do is seen from the other sides as well.
    let (of_torn, others): (Vec<Difference>, Vec<Difference>) = found
        .into_iter()
        .partition(|difference| difference.kind == Kind::RecordUnreadable);
    ensure!(
        of_torn
            .iter()
            .all(|difference| difference.saga_id == saga(6)),
        "{of_torn:#?}"
    );
    compare(&[&others[..], &of_torn[..1]].concat(), &expected)?;

    // Without payments that side is silent, and the others speak.
    let ran = system
        .run_reconcile(User::Operator, &["--without-payments", "-o", "json"])
        .await?;
    ensure!(ran.code == Some(1), "{ran:#?}");
    let kinds: BTreeSet<String> = ran
        .json()?
        .iter()
        .filter_map(|line| line["kind"].as_str().map(str::to_owned))
        .collect();
    ensure!(
        !kinds.is_empty() && kinds.iter().all(|kind| !kind.starts_with("payment")),
        "{kinds:?}"
    );
    let text = system
        .run_reconcile(User::Operator, &["--payments", &payments])
        .await?;
    for said in [
        format!("payment_missing  {}  12.50 EUR  asia", saga(3)),
        "there is no such payment".to_owned(),
        "there is no record".to_owned(),
        "differences: ".to_owned(),
    ] {
        ensure!(text.out.contains(&said), "{said}: {text:#?}");
    }
    Ok(())
}
