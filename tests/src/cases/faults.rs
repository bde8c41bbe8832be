//! Makes things behave badly, as a case says.

use super::always::movements;
use super::case::{Fault, Step};
use super::found::{Found, pairs};
use super::instance::Asleep;
use super::runner::Run;
use super::wallet;
use anyhow::{Context as _, bail};
use contracts::reply::{OperationState, WalletView};
use std::time::Duration;

/// Longest wait for a message that nobody has acknowledged to come again, or for a revert; on a busy machine
/// everything takes long.
const REDELIVERY: Duration = Duration::from_secs(60);

impl Run<'_> {
    pub(super) async fn fault(&mut self, fault: &Fault) -> anyhow::Result<()> {
        match (fault.place.as_str(), fault.mode.as_str()) {
            ("wallet.update", "no_responders") => {
                let region = fault.region.as_deref().unwrap_or("eu");
                let wallet = self.world.regions.get(region).context("no such region")?;
                wallet.lock().await.leave();
                Ok(())
            }
            ("orchestrator", "crash_after_revert_applied") => self.crash_after_revert().await,
            ("orchestrator", "gets_it_again") => {
                self.delivered(|info| info.num_redelivered > 0).await
            }
            ("events.consumer", "nak_without_delay") => self.consume_events().await,
            ("wallet.update" | "wallet.revert", mode) => self.wallet_fault(fault, mode).await,
            ("orchestrator", "fail_intake") => {
                let external_id = fault.external_id.as_deref().context("of which payment")?;
                let key = self.saga_of(external_id)?.key();
                let subject = self.world.partition.record_subject(&key);
                let publish = self.world.core.publish(subject, "no record".into()).await?;
                publish.await?;
                Ok(())
            }
            ("instance-1", "pause_after_receive") => {
                let asleep = self.put_to_sleep(0).await?;
                let until = Duration::from_millis(fault.ms);
                tokio::spawn(async move {
                    tokio::time::sleep(until).await;
                    drop(asleep);
                });
                Ok(())
            }
            ("instance-2", "crash_before_state") => self.crash_asleep().await,
            ("kv.cas", "reply_error") => self.world.race_until(fault.code).await,
            (place, mode) => bail!("nothing makes {place} behave as {mode}"),
        }
    }

    async fn wallet_fault(&self, fault: &Fault, mode: &str) -> anyhow::Result<()> {
        let length = Duration::from_millis(fault.ms);
        let mode = match mode {
            "timeout_effect_applied" => wallet::Mode::TimeoutEffectApplied,
            "timeout_no_effect" => wallet::Mode::TimeoutNoEffect,
            "definite_reject" => wallet::Mode::DefiniteReject,
            "reply_delay" => wallet::Mode::ReplyDelay(length),
            "delay_in_network" => wallet::Mode::DelayInNetwork(length),
            "hang" => wallet::Mode::Hang,
            other => bail!("no wallet behaves as {other}"),
        };
        let sagas = match &fault.external_id {
            Some(name) => vec![self.saga_of(name)?.to_string()],
            None => self.sagas.clone(),
        };
        let verb = fault.place.trim_start_matches("wallet.").to_owned();
        for (region, wallet) in &self.world.regions {
            if fault.region.as_ref().is_some_and(|only| only != region) {
                continue;
            }
            wallet.lock().await.fault(wallet::Fault {
                verb: verb.clone(),
                mode,
                times: fault.times,
                sagas: sagas.clone(),
                operation: fault.operation.clone(),
            });
        }
        Ok(())
    }

    pub(super) async fn clear_faults(&self) -> anyhow::Result<()> {
        for wallet in self.world.regions.values() {
            wallet.lock().await.clear(&self.sagas);
        }
        self.world.serve_regions().await?;
        for timed in &self.case.steps {
            let Step::Fault(Fault {
                external_id: Some(external_id),
                mode,
                ..
            }) = &timed.step
            else {
                continue;
            };
            if mode == "fail_intake" {
                let key = self.saga_of(external_id)?.key();
                let stream = self.world.partition.state_stream();
                let stream = self.world.core.get_stream_no_info(stream).await?;
                let place = self.world.partition.record_subject(&key);
                stream.purge().filter(place).await?;
            }
        }
        Ok(())
    }

    /// The first revert of the case is applied, and every orchestrator dies before it hears of that.
    async fn crash_after_revert(&self) -> anyhow::Result<()> {
        let ledgers = self.world.ledgers().await;
        let reverted = async || {
            for stored in Found::records_of(self) {
                for (operation, ledger) in pairs(&movements(&stored.record), &ledgers) {
                    let known = ledger.view_operation(operation).await.ok()?;
                    if matches!(known, WalletView::Operation(view) if view.state == OperationState::Reverted)
                    {
                        return Some(());
                    }
                }
            }
            None
        };
        let seen = self.world.view.until(REDELIVERY, reverted).await;
        seen.context("nothing is reverted")?;
        self.world.kill_all().await
    }

    async fn put_to_sleep(&self, index: usize) -> anyhow::Result<Asleep> {
        let instances = self.world.instances.lock().await;
        instances
            .get(index)
            .context("no such instance")?
            .sleep()
            .await
    }

    /// A second instance gets the message that the first one sleeps on, and dies before it has looked at it.
    async fn crash_asleep(&self) -> anyhow::Result<()> {
        let last = self.sent.last().context("nothing was sent")?.sequence;
        self.delivered(|info| info.delivered.stream_sequence >= last)
            .await?;
        self.world.staff(2).await?;
        let asleep = self.put_to_sleep(1).await?;
        self.delivered(|info| {
            info.num_ack_pending > 0
                && info.delivered.consumer_sequence > info.delivered.stream_sequence
        })
        .await?;
        let second = self.world.instances.lock().await.remove(1);
        // Killed first, so that it finds that out before anything else when it wakes.
        let killed = second.kill();
        drop(asleep);
        killed.await
    }

    async fn delivered(
        &self,
        is_so: impl Fn(&async_nats::jetstream::consumer::Info) -> bool,
    ) -> anyhow::Result<()> {
        let stream = self.world.partition.intake_stream();
        let stream = self.world.core.get_stream_no_info(stream).await?;
        let looking = async {
            loop {
                let name = self.world.partition.intake_consumer();
                let info = stream.consumer_info(name).await?;
                if is_so(&info) {
                    return anyhow::Ok(());
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(REDELIVERY, looking)
            .await
            .context("the message does not come")?
    }
}
