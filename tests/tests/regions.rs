//! A region without agents, with a frozen one, behind a cut link: its deposits wait, go on or are turned
//! back with nothing left in the wallet, and the other regions go on meanwhile.

use anyhow::{Result, ensure};
use contracts::reply::{OperationState, WalletView};
use orchestrator::payments::PaymentStatus;
use orchestrator::saga::record::{SagaRecord, Status};
use orchestrator::site::{Leaf, Server};
use saga_tests::deposit::Deposit;
use saga_tests::system::{DEFAULT_REGION, System};
use std::time::Duration;
use tokio::time::Instant;

const BOUND: Duration = Duration::from_secs(90);

/// How soon a deposit of a healthy region must be done while another region is away.
const SECONDS: Duration = Duration::from_secs(5);

/// The same behind a crowd of 300 in the same intake.
const CROWDED: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_region_away_harms_nobody_else_and_is_turned_back_or_resumed() -> Result<()> {
    let mut system = System::start_whole().await?;

    // Nobody serves eu: the server says so at once, and the saga waits.
    system.site.kill("agent-eu")?;
    let began = Instant::now();
    let abandoned = Deposit::new("abandoned", "eu");
    system.deposit(&abandoned).await?;
    others_go_on(&mut system, "no-agent", SECONDS).await?;
    let record = system.until_ended(&abandoned.saga_id(), BOUND).await?;
    eprintln!("no agent: turned back after {:.1?}", began.elapsed());
    ensure!(record.status == Status::Compensated, "{record:#?}");
    let attempts = record
        .steps
        .iter()
        .find(|step| step.pivot)
        .map(|step| step.forward.attempts);
    ensure!(attempts == Some(3), "{record:#?}");
    not_paid(&system, &abandoned).await?;

    // An agent that is back in time finds the saga waiting.
    let resumed = Deposit::new("resumed", "eu");
    system.deposit(&resumed).await?;
    system
        .until_record(&resumed.saga_id(), BOUND, |record| {
            record
                .steps
                .iter()
                .any(|step| step.pivot && step.forward.attempts == 2)
        })
        .await?;
    system.restart("agent-eu")?;
    let record = system.until_ended(&resumed.saga_id(), BOUND).await?;
    ensure!(record.status == Status::Completed, "{record:#?}");

    // A cut link looks the same.
    system.site.kill("leaf-eu")?;
    let cut = Deposit::new("cut", "eu");
    system.deposit(&cut).await?;
    others_go_on(&mut system, "cut-link", SECONDS).await?;
    let record = system
        .until_record(&cut.saga_id(), BOUND, |record| record.timer_at.is_some())
        .await?;
    ensure!(!record.status.is_terminal(), "{record:#?}");
    system.site.restart_server(Server::Leaf(Leaf::Eu)).await?;
    system.ready("agent-eu").await?;
    let record = system.until_ended(&cut.saga_id(), BOUND).await?;
    eprintln!("cut link: {}", record.status);
    ensure!(
        matches!(record.status, Status::Completed | Status::Compensated),
        "{record:#?}"
    );

    let audit = system.audit(BOUND).await?;
    eprintln!("regions away: {audit}");
    ensure!(audit.cases == 0, "{audit}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_that_a_frozen_agent_wakes_up_with_move_nothing_after_the_turn() -> Result<()> {
    let mut system = System::start_whole().await?;
    system.site.freeze("agent-eu")?;
    let began = Instant::now();
    let frozen = Deposit::new("frozen", "eu");
    system.deposit(&frozen).await?;
    others_go_on(&mut system, "frozen", SECONDS).await?;
    let record = system
        .until_record(&frozen.saga_id(), BOUND, |record| {
            record.status == Status::Compensating
        })
        .await?;
    eprintln!("frozen agent: turned back after {:.1?}", began.elapsed());
    // Nothing is known of the credit, so the saga may not end before the revert is answered.
    ensure!(!record.status.is_terminal());
    wait_for_revert(&mut system, &frozen).await?;
    let before = system
        .record(&frozen.saga_id())
        .await?
        .map(|(record, _)| record.status);
    ensure!(before == Some(Status::Compensating), "{before:?}");

    system.site.thaw("agent-eu")?;
    let record = system.until_ended(&frozen.saga_id(), BOUND).await?;
    ensure!(record.status == Status::Compensated, "{record:#?}");
    ensure!(undo_is_applied(&record), "{record:#?}");
    not_paid(&system, &frozen).await?;
    let ledger = system.ledger("eu").await?;
    let credit = ledger.view_operation(&frozen.credit()).await?;
    let WalletView::Operation(credit) = credit else {
        anyhow::bail!("the credit left no trace: {credit:?}")
    };
    // Expired commands were refused; a tombstone or an offset keeps any later one out.
    ensure!(
        matches!(
            credit.state,
            OperationState::Tombstoned | OperationState::Reverted
        ),
        "{credit:?}"
    );
    eprintln!("frozen agent: the credit ended as {:?}", credit.state);

    // The very command, late and with a deadline that still holds, as a queue in between could bring it.
    let answer = late_update(&system, &frozen).await?;
    ensure!(answer["answer"] == "cancelled", "{answer}");

    let audit = system.audit(BOUND).await?;
    eprintln!("frozen agent: {audit}");
    ensure!(audit.reverted + audit.tombstones == 1, "{audit}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_for_a_silent_region_leaves_the_others_their_room() -> Result<()> {
    // More than a consumer has at work, and more than may be out to one region.
    const CROWD: usize = 300;
    let mut system = System::start_whole().await?;
    system.site.freeze("agent-eu")?;
    send(&system, "crowd", CROWD).await?;
    others_go_on(&mut system, "crowd", CROWDED).await?;
    // Silence closes the way: from then on nothing more is sent into it, and nothing is held for it.
    let closed = "orchestrator_region_silent{region=\"eu\"}";
    let is_closed = |count| count == 1;
    system
        .until_counter("orchestrator", closed, BOUND, is_closed)
        .await?;
    send(&system, "late-crowd", CROWD).await?;
    others_go_on(&mut system, "late-crowd", CROWDED).await?;
    // All of the crowd is parked, and holds no message, while the region is still silent.
    let intake = || system.intake();
    let settled = async {
        while intake().await?.num_ack_pending > 0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(BOUND, settled).await??;

    system.site.thaw("agent-eu")?;
    let audit = system.audit(BOUND).await?;
    eprintln!("a crowd for a silent region: {audit}");
    Ok(())
}

async fn send(system: &System, name: &str, count: usize) -> Result<()> {
    let deposits: Vec<_> = (0..count)
        .map(|number| Deposit::new(format!("{name}-{number}"), "eu"))
        .collect();
    let sent = deposits.iter().map(|deposit| system.deposit(deposit));
    futures::future::try_join_all(sent).await?;
    Ok(())
}

/// Deposits of the other two regions are done within seconds.
async fn others_go_on(system: &mut System, name: &str, within: Duration) -> Result<()> {
    for region in ["asia", DEFAULT_REGION] {
        let deposit = Deposit::new(format!("{name}-{region}"), region);
        let began = Instant::now();
        system.deposit(&deposit).await?;
        let record = system.until_ended(&deposit.saga_id(), BOUND).await?;
        ensure!(record.status == Status::Completed, "{record:#?}");
        let took = began.elapsed();
        ensure!(took < within, "{name}: a deposit in {region} took {took:?}");
        eprintln!("{name}: a deposit in {region} took {took:.1?}");
    }
    Ok(())
}

/// The payment is not successful, and the wallet has nothing of it.
async fn not_paid(system: &System, deposit: &Deposit) -> Result<()> {
    let payments = system.payments().await?;
    let payment = payments.get(&deposit.identity()).await?;
    let status = payment.map(|payment| payment.status);
    ensure!(status == Some(PaymentStatus::Cancelled), "{status:?}");
    payments.close().await;
    let ledger = system.ledger(deposit.region).await?;
    let balances = ledger.stats().await?.balances;
    ledger.close().await;
    ensure!(
        balances
            .iter()
            .all(|balance| balance.customer != deposit.customer_id()
                || balance.balance.amount_minor() == 0),
        "{balances:?}"
    );
    Ok(())
}

async fn wait_for_revert(system: &mut System, deposit: &Deposit) -> Result<()> {
    system
        .until_record(&deposit.saga_id(), BOUND, |record| {
            record
                .steps
                .iter()
                .any(|step| step.pivot && step.undo.as_ref().is_some_and(|undo| undo.attempts > 0))
        })
        .await?;
    Ok(())
}

fn undo_is_applied(record: &SagaRecord) -> bool {
    record.steps.iter().any(|step| {
        step.pivot
            && step.undo.as_ref().is_some_and(|undo| {
                matches!(
                    undo.outcome,
                    orchestrator::saga::record::Outcome::Applied { .. }
                )
            })
    })
}

/// Sends the credit of a deposit again with a fresh deadline, and gives the answer.
async fn late_update(system: &System, deposit: &Deposit) -> Result<serde_json::Value> {
    use contracts::header;
    let (record, _) = system
        .record(&deposit.saga_id())
        .await?
        .ok_or_else(|| anyhow::anyhow!("no record"))?;
    let step = record
        .steps
        .iter()
        .find(|step| step.pivot)
        .ok_or_else(|| anyhow::anyhow!("no pivot"))?;
    let mut headers = async_nats::HeaderMap::new();
    headers.insert(header::SAGA_ID, deposit.saga_id().as_str());
    headers.insert(header::OPERATION_ID, deposit.credit().as_str());
    headers.insert(header::FENCE, record.epoch.to_string().as_str());
    let reply = system
        .core()
        .request_with_headers(
            contracts::subject::wallet(
                &deposit.region.parse()?,
                contracts::command::WalletVerb::Update,
            ),
            headers,
            step.forward.request.to_string().into(),
        )
        .await?;
    Ok(serde_json::from_slice(&reply.payload)?)
}
