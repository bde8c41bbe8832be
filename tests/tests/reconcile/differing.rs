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
    let names = [
        "whole",
        "lost",
        "other-sum",
        "other-customer",
        "twice",
        "elsewhere",
        "offset",
    ];
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
    book(&system, DEFAULT_REGION, "by-hand-1", "cust", "7.00").await?;
    // A second movement in the name of a saga, and the same one in a second region.
    second_movement(&system, &deposits[4], "again").await?;
    let customer = "customer-of-elsewhere";
    book(&system, "asia", &id("elsewhere")?, customer, "12.50").await?;
    // Offset by hand, though it stands in the record.
    let id_of_offset = id("offset")?;
    let revert = ["wallet", "revert", &id_of_offset, "--reason", "test"];
    let ran = system.run_agent("eu", &revert).await?;
    ensure!(ran.code == Some(0), "{ran:#?}");
    // Lost by the ledger; two of them were booked anew, not as they were.
    for name in ["lost", "other-sum", "other-customer"] {
        let lost = OperationId::new(id(name)?)?.key();
        for table in ["entries", "operations"] {
            let statement = format!("DELETE FROM {table} WHERE operation_key = '{lost}'");
            system.plant(&ledger, &statement).await?;
        }
    }
    let customer = "customer-of-other-sum";
    book(&system, "eu", &id("other-sum")?, customer, "13.50").await?;
    book(&system, "eu", &id("other-customer")?, "somebody", "12.50").await?;
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
            Kind::WalletMissing,
            id("offset")?,
            1_250,
            &format!(
                "region-agent wallet book {}/correction:1 customer-of-offset credit 12.50 EUR",
                id("offset")?
            ),
        ),
        Named::new(
            Kind::ExtraMovement,
            id("elsewhere")?,
            1_250,
            &format!("region-agent wallet revert {} ", id("elsewhere")?),
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
    ensure!(report.count() == 8, "{report:#?}");
    let payments = ["--payments", &system.databases.payments, "-o", "json"];
    let ran = system.run_reconcile(User::Operator, &payments).await?;
    ensure!(ran.code == Some(1) && ran.json()?.len() == 9, "{ran:#?}");
    // A region that is not asked for is not looked at.
    let one = [&payments[..], &["--region", DEFAULT_REGION]].concat();
    let ran = system.run_reconcile(User::Operator, &one).await?;
    ensure!(ran.code == Some(1) && ran.json()?.len() == 2, "{ran:#?}");

    // What is printed makes it right: in one run, or in as many as are announced. All but the last: its wallet
    // is closed.
    let refused = expected.last().context("the refused one")?;
    run_all(&system, &found, refused).await?;
    let (_, found) = system.reconcile(PATIENT).await?;
    let again = |name: &str| {
        let corrects = format!(
            "region-agent wallet book {}/correction:1 customer-of-{name} ",
            id(name)?
        );
        Ok::<_, anyhow::Error>(Named::new(Kind::WalletMissing, id(name)?, 1_250, &corrects))
    };
    let left = [
        again("other-sum")?,
        again("other-customer")?,
        refused.clone(),
    ];
    compare(&found, &left)?;
    run_all(&system, &found, refused).await?;
    let (_, found) = system.reconcile(PATIENT).await?;
    compare(&found, std::slice::from_ref(refused))?;
    Ok(())
}

/// Runs each way out beside the ledger that it names; `refused` is refused.
async fn run_all(system: &System, found: &[Difference], refused: &Named) -> Result<()> {
    for difference in found {
        let region = difference.region.clone().context("a region")?;
        let command = &difference.fix.command;
        let arguments = command
            .strip_prefix("region-agent ")
            .context("an agent's")?;
        let arguments: Vec<&str> = arguments.split(' ').collect();
        let ran = system.run_agent(region.as_str(), &arguments).await?;
        let is_refused = difference.saga_id == refused.1;
        ensure!((ran.code == Some(0)) != is_refused, "{command}: {ran:#?}");
    }
    Ok(())
}

/// Credits by hand.
async fn book(system: &System, region: &str, id: &str, customer: &str, sum: &str) -> Result<()> {
    let arguments = [
        "wallet", "book", id, customer, "credit", sum, "EUR", "--reason", "test",
    ];
    let ran = system.run_agent(region, &arguments).await?;
    ensure!(ran.code == Some(0), "{ran:#?}");
    Ok(())
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
    let mut unowned = Deposit::new("unowned", "asia");
    CLOSED_CUSTOMER.clone_into(&mut unowned.customer);
    system.deposit(&unowned).await?;
    system.until_ended(&unowned.saga_id(), BOUND).await?;
    let (_, found) = system.reconcile(PATIENT).await?;
    ensure!(found.is_empty(), "{found:#?}");

    let payments = system.databases.payments.clone();
    for statement in [
        "UPDATE payments SET status = 'pending', credited_minor = NULL WHERE external_id = 'unmarked'",
        "UPDATE payments SET credited_minor = 99 WHERE external_id = 'other-sum'",
        "DELETE FROM payments WHERE external_id = 'no-row'",
        "UPDATE payments SET status = 'pending' WHERE external_id = 'refused'",
        "UPDATE payments SET status = 'successful', saga_id = NULL, credited_minor = 1250, \
         credited_currency = 'EUR', credited_exponent = 2 WHERE external_id = 'unowned'",
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
            Kind::PaymentWithoutCompletion,
            unowned.saga_id().to_string(),
            Some(1_250),
            format!("orchestrator saga show {} --history", unowned.saga_id()),
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
    // What is printed can be run, but where there is no record to show; the revert makes it right.
    for difference in others.iter().filter(|other| other.saga_id != saga(4)) {
        let command = &difference.fix.command;
        let mut arguments: Vec<&str> = command.split(' ').collect();
        let ran = match arguments.remove(0) {
            "orchestrator" => system.run_orchestrator(User::Operator, &arguments).await?,
            _ => system.run_agent("asia", &arguments).await?,
        };
        ensure!(ran.code == Some(0), "{command}: {ran:#?}");
    }
    let (_, found) = system.reconcile(PATIENT).await?;
    ensure!(
        !found.iter().any(|found| found.kind == Kind::RevertMissing),
        "{found:#?}"
    );

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
