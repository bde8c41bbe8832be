//! Chosen moments. Each deposit of this file ends completed: one credit, one event, payment successful.

use anyhow::{Context as _, Result, ensure};
use contracts::reply::WalletView;
use orchestrator::monitor;
use orchestrator::payments::PaymentStatus;
use orchestrator::saga::record::{Outcome, SagaRecord, Status};
use orchestrator::site::{Leaf, Server};
use saga_tests::deposit::Deposit;
use saga_tests::payments_lock::PaymentsLock;
use saga_tests::system::{DEFAULT_REGION, System};
use std::time::Duration;
use tokio::time::Instant;

const BOUND: Duration = Duration::from_secs(60);

/// A payment that is about to be made is made within this.
const MADE_WITHIN: Duration = Duration::from_secs(5);

/// The system, and every deposit whose end is still to be checked.
struct Points {
    system: System,
    deposits: Vec<Deposit>,
    kills: usize,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_at_any_point_of_a_deposit_costs_time_and_nothing_else() -> Result<()> {
    let began = Instant::now();
    let mut points = Points {
        system: System::start_whole().await?,
        deposits: Vec::new(),
        kills: 0,
    };
    points.stored_while_nobody_runs().await?;
    points.begun_and_nothing_stored().await?;
    points.payment_made_and_no_record().await?;
    for region in ["eu", DEFAULT_REGION] {
        points.at_each_revision(region).await?;
    }
    points.command_delivered_and_not_executed().await?;
    points.executed_and_the_answer_lost_with_its_asker().await?;
    points.agent_dies_with_the_command().await?;
    points.executed_and_the_answer_lost_on_the_way().await?;
    points.credited_and_not_marked().await?;
    points.marked_and_not_completed().await?;

    let killed = began.elapsed();
    for deposit in std::mem::take(&mut points.deposits) {
        points.check(&deposit).await?;
    }
    let audit = points.system.audit(BOUND).await?;
    eprintln!(
        "crash points: {} kills in {killed:.1?}, at rest after {:.1?}: {audit}",
        points.kills,
        began.elapsed()
    );
    ensure!(
        audit.by_status.keys().eq([Status::Completed].iter()) && audit.reverted == 0,
        "{audit}"
    );
    ensure!(
        audit.highest_epoch > 1,
        "nobody took anything over: {audit}"
    );
    Ok(())
}

impl Points {
    fn next(&mut self, what: &str, region: &'static str) -> Deposit {
        let deposit = Deposit::new(format!("{}-{what}", self.deposits.len()), region);
        self.deposits.push(deposit.clone());
        deposit
    }

    async fn kill_and_restart(&mut self, name: &str) -> Result<()> {
        self.kills += 1;
        self.system.site.kill(name)?;
        self.start_again(name).await
    }

    async fn start_again(&mut self, name: &str) -> Result<()> {
        self.system.restart(name)?;
        self.system.ready(name).await
    }

    /// Sends a deposit to eu whose agent is frozen, and waits until its credit is on its way.
    async fn deposit_at_a_frozen_agent(&mut self, what: &str) -> Result<Deposit> {
        let deposit = self.next(what, "eu");
        let delivered = self.delivered_to_the_agent().await?;
        self.system.site.freeze("agent-eu")?;
        self.system.deposit(&deposit).await?;
        self.system
            .until_record(&deposit.saga_id(), BOUND, is_credit_in_flight)
            .await?;
        // In the agent's socket, where it stays until the agent runs again or dies.
        for _ in 0..500 {
            if self.delivered_to_the_agent().await? > delivered {
                return Ok(deposit);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        anyhow::bail!("the command of {what} did not reach the agent")
    }

    /// Messages that the leaf has sent to the agent.
    async fn delivered_to_the_agent(&self) -> Result<u64> {
        let address = self.system.site.monitor(Server::Leaf(Leaf::Eu));
        let page = monitor::get(&address, "/connz").await?;
        let connections = page["connections"].as_array().context("connections")?;
        Ok(connections
            .iter()
            .filter_map(|connection| connection["out_msgs"].as_u64())
            .sum())
    }

    async fn until_executed(&self, deposit: &Deposit) -> Result<()> {
        let ledger = self.system.ledger(deposit.region).await?;
        for _ in 0..3_000 {
            if let WalletView::Operation(_) = ledger.view_operation(&deposit.credit()).await? {
                ledger.close().await;
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        anyhow::bail!("{} was not executed", deposit.credit())
    }

    async fn until_payment(&self, deposit: &Deposit, status: PaymentStatus) -> Result<()> {
        ensure!(
            self.has_payment(deposit, status, BOUND).await?,
            "the payment of {} is not {status}",
            deposit.external_id
        );
        Ok(())
    }

    /// Whether the payment comes to this within so long.
    async fn has_payment(
        &self,
        deposit: &Deposit,
        status: PaymentStatus,
        within: Duration,
    ) -> Result<bool> {
        let payments = self.system.payments().await?;
        let until = Instant::now() + within;
        let mut has = false;
        while !has && Instant::now() < until {
            let payment = payments.get(&deposit.identity()).await?;
            has = payment.is_some_and(|payment| payment.status == status);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        payments.close().await;
        Ok(has)
    }

    /// Waits until no message is with anybody, so that the next one taken is the next one sent.
    async fn until_nothing_is_out(&self) -> Result<()> {
        for _ in 0..3_000 {
            let intake = self.system.intake().await?;
            if intake.num_ack_pending == 0 && intake.num_pending == 0 {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        anyhow::bail!("messages stay unacknowledged")
    }

    /// Whether all that the core server has for its clients has left it.
    async fn nothing_waits_in_the_server(&self) -> Result<bool> {
        let address = self.system.site.monitor(Server::Core(1));
        let page = monitor::get(&address, "/connz").await?;
        let connections = page["connections"].as_array().context("connections")?;
        Ok(connections
            .iter()
            .all(|connection| connection["pending_bytes"].as_u64() == Some(0)))
    }

    async fn until_taken(&self) -> Result<()> {
        for _ in 0..3_000 {
            let taken = self.system.intake().await?.num_ack_pending > 0;
            if taken && self.nothing_waits_in_the_server().await? {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        anyhow::bail!("nobody took the callback")
    }

    async fn stored_while_nobody_runs(&mut self) -> Result<()> {
        self.system.site.kill("orchestrator")?;
        self.kills += 1;
        let deposit = self.next("nobody-runs", "asia");
        self.system.deposit(&deposit).await?;
        self.start_again("orchestrator").await
    }

    async fn begun_and_nothing_stored(&mut self) -> Result<()> {
        let first = self.deposits[0].clone();
        self.check(&first).await?;
        self.until_nothing_is_out().await?;
        let lock = PaymentsLock::take(&self.system).await?;
        let deposit = self.next("nothing-stored", "eu");
        self.system.deposit(&deposit).await?;
        self.until_taken().await?;
        self.system.site.kill("orchestrator")?;
        lock.release().await?;
        self.kills += 1;
        ensure!(self.system.record(&deposit.saga_id()).await?.is_none());
        self.start_again("orchestrator").await?;
        self.check(&deposit).await
    }

    async fn payment_made_and_no_record(&mut self) -> Result<()> {
        // A server that stands still before the orchestrator has heard that there is no record keeps it from
        // making the payment: the point is missed then, and tried again with the next deposit.
        for _ in 0..10 {
            self.until_nothing_is_out().await?;
            let lock = PaymentsLock::take(&self.system).await?;
            let deposit = self.next("no-record", DEFAULT_REGION);
            self.system.deposit(&deposit).await?;
            self.until_taken().await?;
            self.system.site.freeze("core")?;
            lock.release().await?;
            let made = self
                .has_payment(&deposit, PaymentStatus::Pending, MADE_WITHIN)
                .await?;
            if made {
                self.system.site.kill("orchestrator")?;
                self.system.site.thaw("core")?;
                self.kills += 1;
                return self.start_again("orchestrator").await;
            }
            self.system.site.thaw("core")?;
        }
        anyhow::bail!("the server always stood still too early")
    }

    async fn at_each_revision(&mut self, region: &'static str) -> Result<()> {
        let whole = self.next("whole", region);
        self.system.deposit(&whole).await?;
        self.check(&whole).await?;
        let revisions = self.system.history(&whole.saga_id()).await?.len();
        ensure!(revisions > 1, "{revisions} revisions tell no story");
        for revision in 1..=revisions {
            let deposit = self.next(&format!("revision-{revision}-of-{revisions}"), region);
            self.system.deposit(&deposit).await?;
            let mut seen = 0;
            self.system
                .until_record(&deposit.saga_id(), BOUND, |record| {
                    seen += 1;
                    seen >= revision || record.status.is_terminal()
                })
                .await?;
            self.kill_and_restart("orchestrator").await?;
        }
        Ok(())
    }

    async fn command_delivered_and_not_executed(&mut self) -> Result<()> {
        self.deposit_at_a_frozen_agent("not-executed").await?;
        self.system.site.kill("orchestrator")?;
        self.kills += 1;
        self.system.site.thaw("agent-eu")?;
        self.start_again("orchestrator").await
    }

    async fn executed_and_the_answer_lost_with_its_asker(&mut self) -> Result<()> {
        let deposit = self.deposit_at_a_frozen_agent("answer-lost").await?;
        self.system.site.freeze("orchestrator")?;
        self.system.site.thaw("agent-eu")?;
        self.until_executed(&deposit).await?;
        self.kill_and_restart("orchestrator").await
    }

    async fn agent_dies_with_the_command(&mut self) -> Result<()> {
        self.deposit_at_a_frozen_agent("agent-dies").await?;
        self.kill_and_restart("agent-eu").await
    }

    async fn executed_and_the_answer_lost_on_the_way(&mut self) -> Result<()> {
        let deposit = self.deposit_at_a_frozen_agent("lost-on-the-way").await?;
        self.system.site.freeze("leaf-eu")?;
        self.system.site.thaw("agent-eu")?;
        self.until_executed(&deposit).await?;
        self.system.site.kill("leaf-eu")?;
        self.kills += 1;
        self.system
            .site
            .restart_server(Server::Leaf(Leaf::Eu))
            .await?;
        self.system.ready("agent-eu").await
    }

    async fn credited_and_not_marked(&mut self) -> Result<()> {
        let deposit = self.deposit_at_a_frozen_agent("not-marked").await?;
        let lock = PaymentsLock::take(&self.system).await?;
        self.system.site.thaw("agent-eu")?;
        self.system
            .until_record(&deposit.saga_id(), BOUND, SagaRecord::is_past_pivot)
            .await?;
        self.system.site.kill("orchestrator")?;
        lock.release().await?;
        self.kills += 1;
        self.start_again("orchestrator").await
    }

    async fn marked_and_not_completed(&mut self) -> Result<()> {
        let deposit = self.deposit_at_a_frozen_agent("not-completed").await?;
        let lock = PaymentsLock::take(&self.system).await?;
        self.system.site.thaw("agent-eu")?;
        self.system
            .until_record(&deposit.saga_id(), BOUND, SagaRecord::is_past_pivot)
            .await?;
        self.system.site.freeze("core")?;
        lock.release().await?;
        self.until_payment(&deposit, PaymentStatus::Successful)
            .await?;
        self.system.site.kill("orchestrator")?;
        self.system.site.thaw("core")?;
        self.kills += 1;
        self.start_again("orchestrator").await
    }

    /// One credit, one event and a successful payment.
    async fn check(&mut self, deposit: &Deposit) -> Result<()> {
        let record = self.system.until_ended(&deposit.saga_id(), BOUND).await?;
        ensure!(record.status == Status::Completed, "{record:#?}");
        ensure!(record.events == ["deposit_completed"], "{record:#?}");
        self.until_payment(deposit, PaymentStatus::Successful)
            .await?;
        let ledger = self.system.ledger(deposit.region).await?;
        let view = ledger.view_wallet(&deposit.customer_id()).await?;
        ledger.close().await;
        let WalletView::Wallet {
            balances, entries, ..
        } = view
        else {
            anyhow::bail!("{view:?}")
        };
        ensure!(entries.len() == 1, "{entries:?}");
        ensure!(
            balances
                .iter()
                .map(|balance| balance.amount_minor())
                .eq([deposit.amount_minor]),
            "{balances:?}"
        );
        Ok(())
    }
}

fn is_credit_in_flight(record: &SagaRecord) -> bool {
    record
        .steps
        .iter()
        .any(|step| step.pivot && matches!(step.forward.outcome, Outcome::InFlight { .. }))
}
