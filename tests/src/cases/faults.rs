//! Makes things behave badly, as a case says.

use super::case::{Fault, Step};
use super::instance::Asleep;
use super::runner::Run;
use super::wallet;
use anyhow::{Context as _, bail};
use std::time::Duration;

/// Longest wait for a message that nobody has acknowledged to come again.
const REDELIVERY: Duration = Duration::from_secs(10);

impl Run<'_> {
    pub(super) async fn fault(&self, fault: &Fault) -> anyhow::Result<()> {
        match (fault.place.as_str(), fault.mode.as_str()) {
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
        let verb = fault.place.trim_start_matches("wallet.").to_owned();
        for (region, wallet) in &self.world.regions {
            if fault.region.as_ref().is_some_and(|only| only != region) {
                continue;
            }
            wallet.lock().await.fault(wallet::Fault {
                verb: verb.clone(),
                mode,
                times: fault.times,
                sagas: self.sagas.clone(),
            });
        }
        Ok(())
    }

    pub(super) async fn clear_faults(&self) -> anyhow::Result<()> {
        for wallet in self.world.regions.values() {
            wallet.lock().await.clear(&self.sagas);
        }
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
