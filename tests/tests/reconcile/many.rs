//! An evening of many sagas: one real deposit, multiplied on all sides at once. How many is settled by
//! `SAGA_RECONCILE_MANY`; what is measured is said on stderr.

use crate::{BOUND, Named, PATIENT, compare, completed};
use anyhow::{Context as _, Result, ensure};
use contracts::event::DEPOSIT_COMPLETED;
use contracts::id::{ExternalId, Region};
use contracts::subject;
use orchestrator::callback::PaymentIdentity;
use orchestrator::partition::Partition;
use orchestrator::payments::{Payment, Payments};
use orchestrator::reconcile::{self, Kind, Progress};
use orchestrator::regions::Regions;
use orchestrator::site::User;
use saga_tests::deposit::Deposit;
use saga_tests::system::{DEFAULT_REGION, System};
use std::time::Duration;

/// The deposit that is multiplied; its name stands in every id that has to differ.
const SEED: &str = "seed";

fn name(number: usize) -> String {
    format!("{SEED}-{number}")
}

fn identity(deposit: &Deposit, number: usize) -> Result<PaymentIdentity> {
    Ok(PaymentIdentity {
        external_id: ExternalId::new(name(number))?,
        ..deposit.identity()
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_sagas_are_compared_in_pages() -> Result<()> {
    let many: usize = match std::env::var("SAGA_RECONCILE_MANY") {
        Ok(many) => many.parse()?,
        Err(_) => 1_000,
    };
    let mut system = System::start_whole().await?;
    let deposit = completed(&mut system, &[SEED], "eu").await?.remove(0);
    multiply(&system, &deposit, many).await?;

    // The server copies events in its own time; one that is not copied yet is waited for, alone.
    let copied = async {
        let stream = system
            .js
            .get_stream(Partition::only(1).events_stream())
            .await?;
        while stream.get_info().await?.state.messages <= u64::try_from(many)? {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(BOUND, copied)
        .await
        .context("copies")??;
    let operator = system.site.connect(User::Operator).await?;
    let options = system.reconcile_options(PATIENT)?;
    let regions = Regions::new(options.regions.clone(), Region::new(DEFAULT_REGION)?);
    let payments = Payments::open_to_read(&system.databases.payments, regions).await?;
    let (mut found, mut again, mut read) = (Vec::new(), 0, Duration::ZERO);
    let began = tokio::time::Instant::now();
    let mut watch = |progress| match progress {
        Progress::Found(difference) => found.push(difference),
        Progress::Settling { .. } => again += 1,
        Progress::Read { .. } => read = began.elapsed(),
    };
    let report = reconcile::reconcile(&operator, Some(&payments), &options, &mut watch).await?;
    payments.close().await;
    eprintln!(
        "{many} sagas compared in {:.1?}: read in {read:.1?}, {again} read again",
        began.elapsed()
    );
    ensure!(
        found.is_empty(),
        "{report:#?} {:#?}",
        &found[..found.len().min(3)]
    );
    ensure!(
        again < many / 10,
        "pages do not spare questions: {again} sagas were read again"
    );
    let all = u64::try_from(many)? + 1;
    let counts = report.compared;
    let each = [
        counts.sagas,
        counts.payments,
        counts.operations,
        counts.events,
    ];
    ensure!(each == [all; 4], "{counts:?}, not {all} of each");
    let sums = report.sums.get("EUR.2").context("euros")?;
    let sum = i128::from(all) * i128::from(deposit.amount_minor);
    ensure!(
        [sums.credits, sums.payments, sums.events] == [sum; 3],
        "{sums:?}, not {sum}"
    );

    // One in a page of many is found.
    let lost = format!(
        "UPDATE payments SET credited_minor = 1 WHERE external_id = '{}'",
        name(many / 2)
    );
    system.plant(&system.databases.payments, &lost).await?;
    let (_, found) = system.reconcile(PATIENT).await?;
    let saga = deposit.saga_id().as_str().replace(SEED, &name(many / 2));
    compare(
        &found,
        &[Named::new(
            Kind::PaymentDiffers,
            saga,
            1,
            "orchestrator saga show",
        )],
    )
}

/// Copies what each side has of a deposit, under other names.
async fn multiply(system: &System, deposit: &Deposit, many: usize) -> Result<()> {
    let (record, _) = system
        .record(&deposit.saga_id())
        .await?
        .context("a record")?;
    let record = serde_json::to_string(&record)?;
    let own_id = Payment::id_of(&deposit.identity());
    let events = system.events(Partition::only(1).state_stream()).await?;
    let event = serde_json::to_string(&events.first().context("an event")?.1)?;
    let eu = Region::new("eu")?;
    let mut payments = Vec::new();
    let mut stored = Vec::new();
    for number in 1..=many {
        let payment_id = Payment::id_of(&identity(deposit, number)?);
        let copy = |text: &str| {
            text.replace(&own_id, &payment_id)
                .replace(SEED, &name(number))
                .into_bytes()
        };
        let mut of_copy = deposit.clone();
        of_copy.external_id = name(number);
        let saga = of_copy.saga_id();
        let record_subject = Partition::only(1).record_subject(&saga.key());
        let event_subject = subject::event(&eu, &saga, DEPOSIT_COMPLETED);
        for (subject, body) in [
            (record_subject, copy(&record)),
            (event_subject, copy(&event)),
        ] {
            stored.push(system.js.publish(subject, body.into()).await?);
        }
        if stored.len() >= 1_000 {
            for acknowledgement in stored.drain(..) {
                acknowledgement.await?;
            }
        }
        payments.push(format!("('{payment_id}', '{}')", name(number)));
    }
    for acknowledgement in stored {
        acknowledgement.await?;
    }
    let columns = "operation_key, operation_id, saga_id, kind, state, movement, params_digest, params, memo, \
        fence, attempt, reply, reverted_by, created_at, updated_at";
    let copied = columns
        .replace(
            "operation_key",
            "replace(operation_key, 'seed', 'seed-' || i)",
        )
        .replace(
            "operation_id",
            "replace(operation_id, 'seed', 'seed-' || i)",
        )
        .replace("saga_id", "replace(saga_id, 'seed', 'seed-' || i)")
        .replace(" reply", " replace(reply, 'seed', 'seed-' || i)");
    let wallet = format!(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {many}) \
         INSERT INTO operations ({columns}) SELECT {copied} FROM operations, n WHERE operation_id = '{}'",
        deposit.credit()
    );
    system
        .plant(&system.databases.ledgers["eu"], &wallet)
        .await?;
    for page in payments.chunks(500) {
        let rest = "provider, account, capture_id, merchant_reference, status, region, paid_minor, \
            paid_currency, paid_exponent, wallet_currency, wallet_exponent, quote, credited_minor, \
            credited_currency, credited_exponent, created_at, updated_at";
        let statement = format!(
            "WITH n(id, name) AS (VALUES {}) INSERT INTO payments (payment_id, external_id, saga_id, customer, {rest}) \
             SELECT n.id, n.name, replace(saga_id, 'seed', n.name), replace(customer, 'seed', n.name), {rest} \
             FROM payments, n WHERE external_id = '{SEED}'",
            page.join(", ")
        );
        system.plant(&system.databases.payments, &statement).await?;
    }
    Ok(())
}
