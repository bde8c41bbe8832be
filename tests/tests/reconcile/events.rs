//! Events that differ.

use crate::{BOUND, Named, PATIENT, compare, completed};
use anyhow::{Context as _, Result, ensure};
use contracts::event::{DEPOSIT_COMPLETED, DepositCompleted};
use contracts::id::Region;
use contracts::money::Money;
use contracts::subject;
use orchestrator::partition::Partition;
use orchestrator::reconcile::Kind;
use saga_tests::deposit::Deposit;
use saga_tests::system::System;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_that_differ_are_named() -> Result<()> {
    let mut system = System::start_whole().await?;
    let names = ["whole", "gone", "not-copied", "twice", "other-sum"];
    let deposits = completed(&mut system, &names, "eu").await?;
    let (_, found) = system.reconcile(PATIENT).await?;
    ensure!(found.is_empty(), "{found:#?}");

    let partition = Partition::only(1);
    let eu = Region::new("eu")?;
    let event = |deposit: &Deposit| subject::event(&eu, &deposit.saga_id(), DEPOSIT_COMPLETED);
    for (index, streams) in [
        (1, vec![partition.state_stream(), partition.events_stream()]),
        (2, vec![partition.events_stream()]),
    ] {
        for stream in streams {
            let stream = system.js.get_stream(stream).await?;
            let purged = stream.purge().filter(event(&deposits[index])).await?;
            ensure!(purged.purged == 1, "{purged:?}");
        }
    }
    let written = system.events(partition.state_stream()).await?;
    let body = |deposit: &Deposit| {
        let found = written
            .iter()
            .find(|(_, event)| event.saga_id == deposit.saga_id());
        found.map(|(_, event)| event.clone()).context("an event")
    };
    let publish = async |subject: String, event: &DepositCompleted| {
        let body = serde_json::to_vec(event)?;
        system.js.publish(subject, body.into()).await?.await?;
        anyhow::Ok(())
    };
    publish(event(&deposits[3]), &body(&deposits[3])?).await?;
    let mut other = body(&deposits[4])?;
    other.credited = Money::new(99, other.credited.currency());
    publish(event(&deposits[4]), &other).await?;
    let nobody = Deposit::new("nobody", "eu");
    let mut made_up = body(&deposits[0])?;
    made_up.saga_id = nobody.saga_id();
    publish(event(&nobody), &made_up).await?;
    let torn = Deposit::new("torn", "eu");
    system.js.publish(event(&torn), "{".into()).await?.await?;
    // Copied by the server in its own time.
    let copied = async {
        let stream = system.js.get_stream(partition.events_stream()).await?;
        while stream.get_info().await?.state.messages < 7 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(BOUND, copied)
        .await
        .context("copies")??;

    let (_, found) = system.reconcile(PATIENT).await?;
    let saga = |deposit: &Deposit| deposit.saga_id().to_string();
    let show = |deposit: &Deposit| format!("orchestrator saga show {} --history", saga(deposit));
    let named =
        |kind, deposit: &Deposit, minor| Named::new(kind, saga(deposit), minor, &show(deposit));
    compare(
        &found,
        &[
            named(Kind::EventMissing, &deposits[1], 1_250),
            Named::new(
                Kind::EventNotCopied,
                saga(&deposits[2]),
                1_250,
                "orchestrator setup",
            ),
            named(Kind::EventRepeated, &deposits[3], 1_250),
            named(Kind::EventRepeated, &deposits[4], 99),
            named(Kind::EventDiffers, &deposits[4], 99),
            named(Kind::EventWithoutCompletion, &nobody, 1_250),
            Named(Kind::EventUnreadable, saga(&torn), None, show(&torn)),
        ],
    )
}
