//! What happens around sagas: time, builds, announcements, money that moves without them.

use super::body::expand;
use super::case::Announced;
use super::flows;
use super::found::Found;
use super::judge;
use super::runner::Run;
use anyhow::{Context as _, ensure};
use async_nats::HeaderMap;
use async_nats::jetstream::{self, AckKind};
use bytes::Bytes;
use contracts::command::{CommandHeader, Movement, WalletCommand, WalletUpdate, WalletVerb};
use contracts::id::SagaId;
use contracts::money::{Currency, Money};
use contracts::reply::WalletReply;
use contracts::{header, subject};
use futures::StreamExt as _;
use jiff::{SignedDuration, Timestamp};
use orchestrator::clock::wall_clock;
use orchestrator::payments::ExpectedPayment;
use orchestrator::saga::policy::after;
use orchestrator::saga::record::Participant;
use orchestrator::site::User;
use region_agent::wallet::default_deadline;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinHandle;

/// Longest wait for a command to reach its wallet; on a busy machine everything takes long.
const REACHED: Duration = Duration::from_secs(60);

/// A task that ends with this.
#[derive(Debug)]
pub(super) struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Run<'_> {
    /// Replaces all orchestrators by others whose clocks are so far on.
    pub(super) async fn advance_to(&self, since_start: Duration) -> anyhow::Result<()> {
        let ahead = since_start.saturating_sub(self.began.elapsed());
        self.world.crew().build.clock_ahead = SignedDuration::try_from(ahead)?;
        let count = self.world.instances.lock().await.len();
        self.world.stop_all().await?;
        self.world.staff(count).await
    }

    /// Kills all orchestrators and starts others of a build.
    pub(super) async fn deploy(&self, name: &str) -> anyhow::Result<()> {
        let workflows = flows::build(name).with_context(|| format!("no build {name}"))?;
        self.world.crew().build.workflows = workflows;
        let count = self.world.instances.lock().await.len();
        self.world.kill_all().await?;
        self.world.staff(count).await
    }

    /// Lets the case's timers fire that are due by the orchestrators' clock and not by the servers'. Whether
    /// there was one that is not acted upon yet.
    pub(super) async fn fire_due(&self) -> anyhow::Result<bool> {
        let ahead = self.world.crew().build.clock_ahead;
        if ahead <= SignedDuration::ZERO {
            return Ok(false);
        }
        let now = after(wall_clock(), ahead);
        let mut due = false;
        for stored in Found::records_of(self) {
            let record = stored.record;
            let Some(at) = record.timer_at.filter(|at| *at <= now) else {
                continue;
            };
            due = true;
            if self.is_new_timer(&record.saga_id, at) {
                let body = serde_json::to_vec(&json!({ "saga_id": record.saga_id }))?;
                let to = subject::due(&record.saga_id.key());
                self.world.core.publish(to, body.into()).await?.await?;
            }
        }
        Ok(due)
    }

    fn is_new_timer(&self, saga: &SagaId, at: Timestamp) -> bool {
        let mut fired = self.fired.lock().unwrap_or_else(PoisonError::into_inner);
        fired.insert((saga.clone(), at))
    }

    /// The revisions of the case's records.
    pub(super) fn revisions(&self) -> BTreeMap<SagaId, u64> {
        let records = Found::records_of(self).into_iter();
        records
            .map(|stored| (stored.record.saga_id, stored.revision))
            .collect()
    }

    pub(super) async fn announce(
        &self,
        external_id: &str,
        announced: &Announced,
    ) -> anyhow::Result<()> {
        let currency = Currency::iso(announced.currency.parse()?)?;
        let expected = ExpectedPayment {
            external_id: Some(external_id.parse()?),
            amount: Some(Money::parse(&announced.amount, currency)?),
            customer: Some(announced.customer.parse()?),
            ..ExpectedPayment::of(self.case.provider.parse()?)
        };
        let payments = &self.world.payments;
        payments.create_expected(&expected, wall_clock()).await?;
        Ok(())
    }

    /// Stores each order of these callbacks one after another.
    pub(super) async fn every_order(&mut self, what: &[Map<String, Value>]) -> anyhow::Result<()> {
        for (number, order) in orders(what.len()).into_iter().enumerate() {
            for index in order {
                let event_id = self.event_id();
                let body = expand(&what[index], number + 1);
                self.callback(body, &event_id).await?;
            }
        }
        Ok(())
    }

    /// Stores the last message once more, so many times.
    pub(super) async fn redeliver(&mut self, times: usize) -> anyhow::Result<()> {
        let body: Bytes = self.sent.last().context("nothing was sent")?.body.clone();
        for _ in 0..times {
            let event_id = self.event_id();
            let provider = self.case.provider.clone();
            self.raw(&provider, &event_id, body.clone()).await?;
        }
        Ok(())
    }

    /// Waits until a command of the saga has reached a region's wallet, and sees that it stands in the
    /// record by then, with what undoes it.
    pub(super) async fn until_on_record(&self, name: &str) -> anyhow::Result<()> {
        let saga = self.saga_of(name)?;
        let reached = async || {
            for wallet in self.world.regions.values() {
                let seen = wallet.lock().await.seen(&[saga.to_string()]);
                if let Some(seen) = seen.into_iter().next() {
                    return Some(seen);
                }
            }
            None
        };
        let seen = self.world.view.until(REACHED, reached).await;
        let seen = seen.context("no command reaches a wallet")?;
        let bucket = self.world.partition.bucket();
        let bucket = self.world.core.get_key_value(bucket).await?;
        let value = bucket.get(saga.key()).await?.context("no record")?;
        let record = orchestrator::store::decode(&value).map_err(anyhow::Error::msg)?;
        let step = record
            .steps
            .iter()
            .find(|step| step.forward.operation_id == seen.operation_id);
        ensure!(
            step.is_some_and(|step| step.forward.attempts > 0 && step.undo.is_some()),
            "{} left before it was on record with what undoes it",
            seen.operation_id
        );
        Ok(())
    }

    pub(super) async fn spend(
        &mut self,
        customer: &str,
        amount: &str,
        code: &str,
    ) -> anyhow::Result<()> {
        self.rest(REACHED).await?;
        let currency = flows::currency(code).map_err(anyhow::Error::msg)?;
        let header = CommandHeader {
            saga_id: None,
            operation_id: format!("{}spent/{}", judge::OPENING, self.event_id()).parse()?,
            attempt: 1,
            fence: 0,
            deadline: default_deadline(wall_clock()),
        };
        let update = WalletCommand::Update(WalletUpdate {
            customer: customer.parse()?,
            movement: Movement::Debit,
            money: Money::parse(amount, currency)?,
            memo: None,
        });
        let reply = self.world.local.execute(&header, &update).await;
        ensure!(
            matches!(reply, WalletReply::Applied { .. }),
            "{customer} cannot spend {amount} {code}: {reply:?}"
        );
        Ok(())
    }

    /// Sends a step's command again with a new deadline, or a revert of it under an id of its own.
    pub(super) async fn direct(
        &mut self,
        operation: &str,
        verb: &str,
        answer: &str,
    ) -> anyhow::Result<()> {
        let records = Found::records_of(self);
        let (record, step) = records
            .iter()
            .flat_map(|stored| {
                let record = &stored.record;
                record.steps.iter().map(move |step| (record, step))
            })
            .find(|(_, step)| step.forward.operation_id.as_str() == operation)
            .with_context(|| format!("no step is operation {operation}"))?;
        let Participant::Region(region) = &step.forward.participant else {
            anyhow::bail!("{operation} is no wallet's");
        };
        let (verb, id, body) = match verb {
            "update" => (
                WalletVerb::Update,
                operation.to_owned(),
                step.forward.request.clone(),
            ),
            "revert" => (
                WalletVerb::Revert,
                format!("{}by-hand/{operation}", judge::OPENING),
                json!({ "target": operation }),
            ),
            other => anyhow::bail!("{other} moves nothing"),
        };
        let mut headers = HeaderMap::new();
        if verb == WalletVerb::Update {
            headers.insert(header::SAGA_ID, record.saga_id.as_str());
            headers.insert(header::FENCE, record.epoch.to_string().as_str());
        }
        headers.insert(header::OPERATION_ID, id.as_str());
        let client = self.world.core.client();
        let to = subject::wallet(region, verb);
        let reply = client
            .request_with_headers(to, headers, body.to_string().into())
            .await?;
        let reply: Value = serde_json::from_slice(&reply.payload)?;
        ensure!(reply["answer"] == answer, "{operation}: {reply}");
        Ok(())
    }

    /// Another team's consumer of the case's events, which refuses the first delivery of each.
    pub(super) async fn consume_events(&mut self) -> anyhow::Result<()> {
        let client = self.world.site.lock().await.connect(User::Events).await?;
        let stream = jetstream::new(client).get_stream(EVENTS_STREAM).await?;
        let consumer = stream
            .create_consumer(jetstream::consumer::pull::Config {
                durable_name: Some(format!("case-{}", self.case.id)),
                ..Default::default()
            })
            .await?;
        let (into, sagas) = (Arc::clone(&self.consumed), self.sagas.clone());
        self.consumer = Some(AbortOnDrop(tokio::spawn(async move {
            // Ends with the case. What goes wrong on the way shows in what was consumed.
            loop {
                if let Ok(mut messages) = consumer.messages().await {
                    while let Some(Ok(message)) = messages.next().await {
                        take(&message, &sagas, &into).await.ok();
                    }
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        })));
        Ok(())
    }

    /// How often each event was delivered.
    pub(super) fn consumed(&self) -> BTreeMap<u64, usize> {
        let consumed = self.consumed.lock();
        consumed.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Where other teams read events.
const EVENTS_STREAM: &str = "BILLING_EVENTS";

async fn take(
    message: &jetstream::Message,
    sagas: &[String],
    into: &Mutex<BTreeMap<u64, usize>>,
) -> anyhow::Result<()> {
    let body: Value = serde_json::from_slice(&message.payload)?;
    let saga = body["saga_id"].as_str().unwrap_or_default();
    if !sagas.iter().any(|start| saga.starts_with(start.as_str())) {
        return message.ack().await.map_err(anyhow::Error::msg);
    }
    let sequence = message.info().map_err(anyhow::Error::msg)?.stream_sequence;
    let first = {
        let mut consumed = into.lock().unwrap_or_else(PoisonError::into_inner);
        let times = consumed.entry(sequence).or_insert(0);
        *times += 1;
        *times == 1
    };
    let kind = if first {
        AckKind::Nak(None)
    } else {
        AckKind::Ack
    };
    message.ack_with(kind).await.map_err(anyhow::Error::msg)
}

/// All orders of so many things.
fn orders(count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let shorter = orders(count - 1);
    shorter
        .iter()
        .flat_map(|order| {
            (0..count).map(move |place| {
                let mut order = order.clone();
                order.insert(place, count - 1);
                order
            })
        })
        .collect()
}
