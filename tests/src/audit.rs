//! An independent idea of where the money must be: what stands in the records, in the log of events, in
//! the payments and in the ledgers is read and compared.

use crate::observe::decode;
use crate::system::{REGIONS, System};
use anyhow::{Context as _, ensure};
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, PullConsumer, pull};
use contracts::event::{
    DEPOSIT_COMPLETED, DEPOSIT_TURNED_BACK, DepositCompleted, DepositTurnedBack,
};
use contracts::id::SagaId;
use futures::StreamExt as _;
use orchestrator::doctor;
use orchestrator::partition::Partition;
use orchestrator::payments::PaymentStatus;
use orchestrator::saga::CASE_WORKFLOW;
use orchestrator::saga::record::{SagaRecord, Status};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Name of the workflow whose ends are told.
const DEPOSIT: &str = "deposit";

/// What was found to agree.
#[derive(Debug, Clone, Default)]
pub struct Audit {
    /// Deposits by status, cases aside.
    pub by_status: BTreeMap<Status, usize>,
    /// Records that are nothing but a case.
    pub cases: usize,
    /// What all completed deposits credited, in minor units.
    pub credited_minor: i128,
    /// Repeats of known facts that were absorbed.
    pub duplicates: u64,
    /// The highest epoch of any saga.
    pub highest_epoch: u64,
    /// Operations that reverts forbade or offset.
    pub reverted: u64,
    /// Tombstones in the ledgers.
    pub tombstones: u64,
}

impl fmt::Display for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (status, count) in &self.by_status {
            write!(f, "{count} {status}, ")?;
        }
        write!(
            f,
            "{} cases, {} credited, {} repeats absorbed, {} reverted, {} tombstones, epochs up to {}",
            self.cases,
            self.credited_minor,
            self.duplicates,
            self.reverted,
            self.tombstones,
            self.highest_epoch
        )
    }
}

impl System {
    /// Waits until every message of the intake is acknowledged and no saga is open but those that wait
    /// for a person, then compares everything.
    ///
    /// # Errors
    /// When it does not come to rest within `bound`, or anything does not agree.
    pub async fn audit(&mut self, bound: Duration) -> anyhow::Result<Audit> {
        self.until_at_rest(bound).await?;
        self.audit_now().await
    }

    /// Waits until every message of the intake is acknowledged and no saga is open but those that wait for a
    /// person.
    ///
    /// # Errors
    /// When it does not come to rest within `bound`, or an open saga has no driver at any moment.
    pub async fn until_at_rest(&mut self, bound: Duration) -> anyhow::Result<()> {
        let mut last = String::from("not looked at");
        let looking = async {
            loop {
                let intake = self.intake().await;
                let findings = doctor::sagas(&self.js, &Partition::only(1)).await;
                if let (Ok(intake), Ok(findings)) = (intake, findings) {
                    // Whatever happens, no open saga may be without a driver at any moment.
                    ensure!(findings.undriven_count == 0, "{:?}", findings.check());
                    if intake.num_pending == 0 && intake.num_ack_pending == 0 && findings.open == 0
                    {
                        return Ok(());
                    }
                    last = format!(
                        "{} pending, {} unacknowledged; {}",
                        intake.num_pending,
                        intake.num_ack_pending,
                        findings.check().found
                    );
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        match tokio::time::timeout(bound, looking).await {
            Ok(at_rest) => at_rest,
            Err(_elapsed) => {
                let open: Vec<String> = self
                    .records()
                    .await?
                    .into_iter()
                    .filter(|record| !record.status.is_terminal())
                    .take(3)
                    .map(|record| serde_json::to_string_pretty(&record).unwrap_or_default())
                    .collect();
                anyhow::bail!("not at rest within {bound:?}: {last}\n{}", open.join("\n"))
            }
        }
    }

    /// Every record.
    ///
    /// # Errors
    /// When they cannot be read.
    pub async fn records(&self) -> anyhow::Result<Vec<SagaRecord>> {
        let partition = Partition::only(1);
        let messages = self
            .read(
                partition.state_stream(),
                &partition.record_subject(">"),
                DeliverPolicy::LastPerSubject,
            )
            .await?;
        messages.iter().map(|(_, body)| decode(body)).collect()
    }

    /// Every deposit's completion in a stream, with its subject.
    ///
    /// # Errors
    /// When they cannot be read.
    pub async fn events(&self, stream: &str) -> anyhow::Result<Vec<(String, DepositCompleted)>> {
        self.events_named(stream, DEPOSIT_COMPLETED).await
    }

    async fn events_named<T: DeserializeOwned>(
        &self,
        stream: &str,
        name: &str,
    ) -> anyhow::Result<Vec<(String, T)>> {
        let messages = self
            .read(stream, contracts::subject::EVENTS, DeliverPolicy::All)
            .await?;
        messages
            .into_iter()
            .filter(|(subject, _)| subject.ends_with(name))
            .map(|(subject, body)| Ok((subject, serde_json::from_slice(&body)?)))
            .collect()
    }

    async fn read(
        &self,
        stream: &str,
        filter: &str,
        deliver_policy: DeliverPolicy,
    ) -> anyhow::Result<Vec<(String, Vec<u8>)>> {
        let consumer: PullConsumer = self
            .js
            .get_stream(stream)
            .await?
            .create_consumer(pull::Config {
                deliver_policy,
                ack_policy: AckPolicy::None,
                filter_subject: filter.to_owned(),
                inactive_threshold: Duration::from_secs(30),
                memory_storage: true,
                num_replicas: 1,
                ..pull::Config::default()
            })
            .await?;
        let mut left = consumer.cached_info().num_pending;
        let mut messages = consumer.messages().await?;
        let mut all = Vec::new();
        while left > 0 {
            let message = tokio::time::timeout(Duration::from_secs(10), messages.next())
                .await?
                .context("the messages end")??;
            left = message
                .info()
                .map_err(|error| anyhow::anyhow!("{error}"))?
                .pending;
            all.push((message.subject.to_string(), message.payload.to_vec()));
        }
        Ok(all)
    }

    /// Compares everything as it is now.
    ///
    /// # Errors
    /// When anything does not agree.
    pub async fn audit_now(&self) -> anyhow::Result<Audit> {
        let mut audit = Audit::default();
        let mut completed: BTreeMap<SagaId, SagaRecord> = BTreeMap::new();
        let mut turned_back: Vec<(SagaId, String)> = Vec::new();
        for record in self.records().await? {
            if record.workflow == CASE_WORKFLOW {
                audit.cases += 1;
                continue;
            }
            *audit.by_status.entry(record.status).or_default() += 1;
            audit.duplicates += record.duplicates;
            audit.highest_epoch = audit.highest_epoch.max(record.epoch);
            if record.status == Status::Completed {
                completed.insert(record.saga_id.clone(), record);
            } else if record.workflow == DEPOSIT && record.ended_at.is_some() {
                turned_back.push((record.saga_id, record.status.to_string()));
            }
        }

        // Events: one for each completed saga and none else, and the copy for other teams is the same.
        let partition = Partition::only(1);
        let events = self.events(partition.state_stream()).await?;
        let mut credited: BTreeMap<&str, i128> = BTreeMap::new();
        for (subject, event) in &events {
            ensure!(
                completed.contains_key(&event.saga_id),
                "{subject} is an event of a saga that is not completed"
            );
            *credited.entry(event.region.as_str()).or_default() +=
                i128::from(event.credited.amount_minor());
        }
        let mut sagas: Vec<&SagaId> = events.iter().map(|(_, event)| &event.saga_id).collect();
        sagas.sort();
        sagas.dedup();
        ensure!(
            sagas.len() == events.len() && events.len() == completed.len(),
            "{} events of {} sagas; {} sagas are completed",
            events.len(),
            sagas.len(),
            completed.len()
        );
        let mut told: Vec<(SagaId, String)> = self
            .events_named(partition.state_stream(), DEPOSIT_TURNED_BACK)
            .await?
            .into_iter()
            .map(|(_, event): (_, DepositTurnedBack)| (event.saga_id, event.status))
            .collect();
        told.sort();
        turned_back.sort();
        ensure!(
            told == turned_back,
            "deposits turned back: {turned_back:?}; told of: {told:?}"
        );
        let mut copies = self.events(partition.events_stream()).await?;
        for _ in 0..100 {
            if copies.len() >= events.len() {
                break;
            }
            // Copied by the server in its own time.
            tokio::time::sleep(Duration::from_millis(100)).await;
            copies = self.events(partition.events_stream()).await?;
        }
        ensure!(
            copies == events,
            "{} events, {} copies for other teams",
            events.len(),
            copies.len()
        );

        // Payments: the successful ones are the completed sagas' ones.
        let totals = self.payments().await?.totals().await?;
        let successful = totals
            .count_by_status
            .get(&PaymentStatus::Successful)
            .copied()
            .unwrap_or(0);
        ensure!(
            u64::try_from(completed.len())? == successful,
            "{} completed sagas, payments {:?}",
            completed.len(),
            totals.count_by_status
        );
        let of_payments: i128 = totals
            .credited
            .iter()
            .map(|total| total.credited_minor)
            .sum();
        audit.credited_minor = credited.values().sum();
        ensure!(
            of_payments == audit.credited_minor,
            "payments say {of_payments}, events say {}",
            audit.credited_minor
        );

        // Ledgers: right in themselves, and no cent more or less than the events of their region say.
        for region in REGIONS {
            let ledger = self.ledger(region).await?;
            let wrong = ledger.verify().await?;
            ensure!(wrong.is_empty(), "ledger of {region}: {wrong:?}");
            let stats = ledger.stats().await?;
            let balances: i128 = stats
                .balances
                .iter()
                .map(|balance| i128::from(balance.balance.amount_minor()))
                .sum();
            let expected = credited.get(region).copied().unwrap_or(0);
            ensure!(
                balances == expected,
                "balances in {region} sum to {balances}, its events to {expected}"
            );
            let count = events
                .iter()
                .filter(|(_, event)| event.region.as_str() == region)
                .count();
            ensure!(
                stats.standing_credits == u64::try_from(count)?,
                "{} credits stand in {region}, of {count} events",
                stats.standing_credits
            );
            audit.reverted += stats.reverted;
            audit.tombstones += stats.tombstones;
            ledger.close().await;
        }
        Ok(audit)
    }
}
