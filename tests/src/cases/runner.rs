//! Plays the steps of one case.

use super::body::{expand, filled, signal_body};
use super::case::{Case, Expect, Step, WorldKind, provider_of};
use super::found::Found;
use super::judge;
use super::world::{Sent, World};
use anyhow::{Context as _, bail, ensure};
use bytes::Bytes;
use contracts::command::{CommandHeader, Movement, WalletCommand, WalletUpdate};
use contracts::id::{ExternalId, Provider, SagaId};
use contracts::intake::{OperatorRequest, OperatorVerb, Signal, StartRequest};
use contracts::money::{Currency, Money};
use contracts::subject;
use orchestrator::callback::PaymentIdentity;
use orchestrator::clock::wall_clock;
use orchestrator::payments::ExpectedPayment;
use orchestrator::saga::record::Status;
use orchestrator::site::Server;
use orchestrator::workflows::deposit;
use region_agent::wallet::default_deadline;
use serde_json::{Map, Value, json};
use std::time::Duration;
use tokio::time::Instant;

/// A gap shorter than this is no chance to come to rest.
const GAP: Duration = Duration::from_millis(300);

/// Longest wait for everything of a case to come to rest.
const REST: Duration = Duration::from_secs(75);

/// Longest wait for a deposit that has nothing to do with any case.
const CANARY: Duration = Duration::from_secs(20);

/// A case being played.
pub struct Run<'w> {
    pub(super) world: &'w World,
    pub(super) case: &'w Case,
    /// Beginnings of the ids of the case's sagas.
    pub(super) sagas: Vec<String>,
    pub(super) sent: Vec<Sent>,
    number: usize,
}

impl std::fmt::Debug for Run<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Run")
            .field("case", &self.case.id)
            .finish_non_exhaustive()
    }
}

impl<'w> Run<'w> {
    /// A case that has not begun.
    #[must_use]
    pub fn new(world: &'w World, case: &'w Case) -> Self {
        let providers = case.providers();
        Self {
            world,
            case,
            sagas: providers
                .iter()
                .map(|provider| format!("{}/{provider}/", deposit::DEPOSIT.name))
                .collect(),
            sent: Vec::new(),
            number: 0,
        }
    }

    /// Plays everything, waits until it has come to rest, and sees that others go on.
    ///
    /// # Errors
    /// A step that cannot be played, or a check on the way that does not hold.
    pub async fn play(&mut self) -> anyhow::Result<()> {
        self.prepare().await.context("preparing")?;
        let start = Instant::now();
        let mut at = Duration::ZERO;
        for (index, timed) in self.case.steps.iter().enumerate() {
            let next = Duration::from_millis(timed.at_ms);
            let gap = next.saturating_sub(at).min(REST);
            if gap >= GAP {
                // Not to have come to rest within the gap is what some cases are about.
                self.rest(gap).await.ok();
            } else {
                tokio::time::sleep_until(start + next.min(start.elapsed() + gap)).await;
            }
            at = next;
            self.step(&timed.step)
                .await
                .with_context(|| format!("step {index}"))?;
        }
        self.rest(REST).await?;
        self.canary().await
    }

    /// The case's id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.case.id
    }

    /// What the case expects in the end.
    #[must_use]
    pub fn expect(&self) -> &Expect {
        &self.case.expect
    }

    /// Takes back what the case has changed for others.
    ///
    /// # Errors
    /// When the servers do not come back.
    pub async fn clean_up(&self) -> anyhow::Result<()> {
        for wallet in self.world.regions.values() {
            wallet.lock().await.clear(&self.sagas);
        }
        if self.case.given.queue_group == Some(false) {
            self.world.tighten_queue_group().await?;
        }
        Ok(())
    }

    async fn prepare(&self) -> anyhow::Result<()> {
        let given = &self.case.given;
        let now = wall_clock();
        for (name, region) in &given.regions {
            for customer in self.case.customers(name) {
                let (customer, region) = (customer.parse()?, region.parse()?);
                self.world
                    .payments
                    .assign_region(&customer, &region, now)
                    .await?;
            }
        }
        for (external_id, announced) in &given.payments {
            let currency = Currency::iso(announced.currency.parse()?)?;
            let expected = ExpectedPayment {
                external_id: Some(external_id.parse()?),
                amount: Some(Money::parse(&announced.amount, currency)?),
                customer: Some(announced.customer.parse()?),
                ..ExpectedPayment::of(self.case.provider.parse()?)
            };
            self.world.payments.create_expected(&expected, now).await?;
        }
        for (customer, amounts) in &given.wallets {
            for (code, amount) in amounts {
                let money = Money::parse(amount, Currency::iso(code.parse()?)?)?;
                let header = CommandHeader {
                    saga_id: None,
                    operation_id: format!("{}{customer}/{code}", judge::OPENING).parse()?,
                    attempt: 1,
                    fence: 0,
                    deadline: default_deadline(now),
                };
                let update = WalletCommand::Update(WalletUpdate {
                    customer: customer.parse()?,
                    movement: Movement::Credit,
                    money,
                    memo: None,
                });
                self.world.local.execute(&header, &update).await;
            }
        }
        self.world.rates.script(&given.fx);
        if given.queue_group == Some(false) {
            self.world
                .loosen_queue_group(given.wallet_responders.unwrap_or(1))
                .await?;
        }
        if self.world.kind != WorldKind::Shared {
            // One that is to crash before it has written anything joins when its step comes.
            let later = self.case.steps.iter().filter(|timed| {
                matches!(&timed.step, Step::Fault(fault) if fault.mode == "crash_before_state")
            });
            let count = given.instances.unwrap_or(1) - later.count();
            self.world.staff(count).await?;
        }
        Ok(())
    }

    async fn step(&mut self, step: &Step) -> anyhow::Result<()> {
        match step {
            Step::Callback { body, msg_id } => {
                let event_id = msg_id.clone().unwrap_or_else(|| self.event_id());
                self.callback(expand(body, 1), &event_id).await
            }
            Step::CallbackRaw { text, provider } => {
                let provider = provider.as_ref().unwrap_or(&self.case.provider).clone();
                let event_id = self.event_id();
                self.raw(&provider, &event_id, text.clone().into()).await
            }
            Step::CallbackHex { hex } => {
                let body = hex::decode(hex)?;
                let event_id = self.event_id();
                let provider = self.case.provider.clone();
                self.raw(&provider, &event_id, body.into()).await
            }
            Step::CallbackGenerated { body, fill } => {
                let event_id = self.event_id();
                self.callback(filled(body, fill), &event_id).await
            }
            Step::Burst { count, body } => {
                let bodies = (1..=*count).map(|number| expand(body, number)).collect();
                self.all_at_once(bodies).await
            }
            Step::StoreCopies { copies, body } => {
                self.all_at_once(vec![expand(body, 1); *copies]).await
            }
            Step::Concurrently { what, times } => {
                for number in 1..=*times {
                    let bodies = what.iter().map(|body| expand(body, number)).collect();
                    self.all_at_once(bodies).await?;
                }
                Ok(())
            }
            Step::Start {
                saga,
                operation_id,
                body,
            } => self.start(saga, operation_id, body).await,
            Step::Signal {
                saga_of,
                name,
                body,
            } => self.signals(saga_of, name, body, 1).await,
            Step::SignalBurst {
                saga_of,
                name,
                body,
                count,
            } => self.signals(saga_of, name, body, *count).await,
            Step::SignalGenerated { saga_of, bytes } => self.too_large(saga_of, *bytes).await,
            Step::Fault(fault) => self.fault(fault).await,
            Step::ClearFaults => self.clear_faults().await,
            Step::Restart { what } => self.restart(what).await,
            Step::AdvanceTo => Ok(()),
            Step::Check { expect, within_ms } => {
                let bound = Duration::from_millis(*within_ms);
                judge::within(self, expect, bound).await
            }
            Step::CompensateRequest {
                external_id,
                reason,
            } => self.compensate(external_id, reason).await,
            Step::AdminReplay { external_id } => self.replay(external_id).await,
            Step::Query { external_id } => {
                self.rest(REST).await?;
                self.query(external_id).await
            }
            Step::PurgeStream => {
                let stream = self.world.partition.intake_stream();
                let stream = self.world.core.get_stream_no_info(stream).await?;
                stream.purge().await?;
                Ok(())
            }
        }
    }

    fn event_id(&mut self) -> String {
        self.number += 1;
        format!("{}-{}", self.case.id, self.number)
    }

    async fn callback(&mut self, body: Map<String, Value>, event_id: &str) -> anyhow::Result<()> {
        let provider = provider_of(&body).unwrap_or_else(|| self.case.provider.clone());
        let body = serde_json::to_vec(&body)?;
        self.raw(&provider, event_id, body.into()).await
    }

    async fn raw(&mut self, provider: &str, event_id: &str, body: Bytes) -> anyhow::Result<()> {
        let sent = self.world.callback(provider, event_id, body).await?;
        self.sent.push(sent);
        Ok(())
    }

    async fn all_at_once(&mut self, bodies: Vec<Map<String, Value>>) -> anyhow::Result<()> {
        let mut publishing = Vec::new();
        for body in bodies {
            let provider = provider_of(&body).unwrap_or_else(|| self.case.provider.clone());
            let (event_id, body) = (self.event_id(), Bytes::from(serde_json::to_vec(&body)?));
            let world = self.world;
            publishing.push(async move { world.callback(&provider, &event_id, body).await });
        }
        self.sent
            .extend(futures::future::try_join_all(publishing).await?);
        Ok(())
    }

    async fn start(&mut self, workflow: &str, id: &str, body: &Value) -> anyhow::Result<()> {
        let request = StartRequest {
            workflow: workflow.to_owned(),
            id: id.to_owned(),
            input: body.clone(),
        };
        self.sagas
            .push(SagaId::from_parts(workflow, &[id]).to_string());
        let body = serde_json::to_vec(&request)?;
        self.say(subject::start(workflow, id), body.into()).await
    }

    async fn signals(
        &mut self,
        saga_of: &str,
        name: &str,
        body: &Value,
        count: usize,
    ) -> anyhow::Result<()> {
        let saga = self.saga_of(saga_of)?;
        let operator = &self.world.operator;
        let mut publishing = Vec::new();
        for _ in 0..count {
            let signal = Signal {
                saga_id: saga.clone(),
                name: name.parse()?,
                id: self.event_id(),
                body: signal_body(body),
            };
            let body = Bytes::from(serde_json::to_vec(&signal)?);
            let subject = subject::signal(&saga, &signal.id, &body);
            publishing.push(async move {
                let ack = operator.publish(subject, body.clone()).await?.await?;
                anyhow::Ok(Sent {
                    sequence: ack.sequence,
                    body,
                })
            });
        }
        let sent = futures::future::try_join_all(publishing).await?;
        self.sent.extend(sent);
        Ok(())
    }

    async fn too_large(&mut self, saga_of: &str, bytes: usize) -> anyhow::Result<()> {
        let saga = self.saga_of(saga_of)?;
        let signal = Signal {
            saga_id: saga.clone(),
            name: deposit::PSP_CALLBACK.parse()?,
            id: self.event_id(),
            body: json!({ "meaning": "paid", "padding": "x".repeat(bytes) }),
        };
        let body = Bytes::from(serde_json::to_vec(&signal)?);
        let subject = subject::signal(&saga, &signal.id, &body);
        match self.world.operator.publish(subject, body).await {
            Err(error) => {
                ensure!(
                    error.kind()
                        == async_nats::jetstream::context::PublishErrorKind::MaxPayloadExceeded,
                    "refused for another reason: {error}"
                );
                Ok(())
            }
            Ok(_) => bail!("a signal of {bytes} bytes was let through"),
        }
    }

    async fn compensate(&mut self, external_id: &str, reason: &str) -> anyhow::Result<()> {
        let saga = self.saga_of(external_id)?;
        let request = OperatorRequest {
            saga_id: saga.clone(),
            id: self.event_id(),
            verb: OperatorVerb::Cancel,
            reason: reason.to_owned(),
            by: "case".to_owned(),
        };
        let body = Bytes::from(serde_json::to_vec(&request)?);
        self.say(subject::operator(&saga, &request.id, &body), body)
            .await
    }

    /// Does what a person does who finds a message in a case: reads it where it is stored, and sends it again.
    async fn replay(&mut self, external_id: &str) -> anyhow::Result<()> {
        let saga = self.saga_of(external_id)?;
        let records = Found::records_of(self);
        let message_id = records
            .iter()
            .filter_map(|stored| stored.record.case.as_ref())
            .filter(|case| case.evidence["saga_id"] == saga.as_str())
            .find_map(|case| case.evidence["message_id"].as_str());
        let sequence = message_id.and_then(|id| id.split([':', '@']).nth(1)?.parse().ok());
        let sequence = sequence.context("no case names a message")?;
        let stream = self.world.partition.intake_stream();
        let stream = self.world.core.get_stream_no_info(stream).await?;
        let stored = stream.get_raw_message(sequence).await?;
        let (event_id, provider) = (self.event_id(), self.case.provider.clone());
        self.raw(&provider, &event_id, stored.payload).await
    }

    async fn say(&mut self, subject: String, body: Bytes) -> anyhow::Result<()> {
        let ack = self
            .world
            .operator
            .publish(subject, body.clone())
            .await?
            .await?;
        self.sent.push(Sent {
            sequence: ack.sequence,
            body,
        });
        Ok(())
    }

    async fn query(&self, external_id: &str) -> anyhow::Result<()> {
        let saga = self.saga_of(external_id)?;
        let bucket = self
            .world
            .core
            .get_key_value(self.world.partition.bucket())
            .await?;
        let value = bucket.get(saga.key()).await?.context("no record")?;
        let record = orchestrator::store::decode(&value).map_err(anyhow::Error::msg)?;
        let found = record.attributes.get("external_id").map(String::as_str);
        ensure!(
            record.saga_id == saga && found == Some(external_id),
            "asked for {external_id:?}, got {} about {found:?}",
            record.saga_id
        );
        Ok(())
    }

    async fn restart(&self, what: &str) -> anyhow::Result<()> {
        match what {
            "orchestrator" => {
                let count = self.world.instances.lock().await.len();
                self.world.kill_all().await?;
                self.world.staff(count).await
            }
            "nats" => {
                let mut site = self.world.site.lock().await;
                site.restart_server(Server::Core(1)).await?;
                Ok(())
            }
            other => bail!("{other} cannot be restarted"),
        }
    }

    /// The saga of a payment of the case's own provider.
    pub(super) fn saga_of(&self, external_id: &str) -> anyhow::Result<SagaId> {
        Ok(deposit::saga_id(&PaymentIdentity {
            provider: Provider::new(self.case.provider.as_str())?,
            account: String::new(),
            external_id: ExternalId::new(external_id)?,
            capture_id: None,
        }))
    }

    /// Waits until every message is accounted for and no saga of the case is at work.
    async fn rest(&self, bound: Duration) -> anyhow::Result<()> {
        let rested = self
            .world
            .view
            .until(bound, async || {
                judge::restless(&Found::records_of(self), &self.sent)
                    .is_none()
                    .then_some(())
            })
            .await;
        match rested {
            Some(()) => Ok(()),
            None => {
                let why = judge::restless(&Found::records_of(self), &self.sent);
                bail!("not at rest within {bound:?}: {}", why.unwrap_or_default())
            }
        }
    }

    /// A deposit of somebody else goes through.
    async fn canary(&self) -> anyhow::Result<()> {
        let body = json!({
            "external_id": self.case.id, "status": "paid", "amount": "1.00", "currency": "EUR",
            "customer": "canary",
        });
        let body = serde_json::to_vec(&body)?;
        self.world
            .callback(judge::CANARY, &self.case.id, body.into())
            .await?;
        let saga = SagaId::from_parts(deposit::DEPOSIT.name, &[judge::CANARY, &self.case.id]);
        let done = self.world.view.until(CANARY, async || {
            let records = self.world.view.records(&[saga.to_string()], &[]);
            records
                .iter()
                .any(|stored| stored.record.status == Status::Completed)
                .then_some(())
        });
        done.await
            .context("a deposit of somebody else does not go through")
    }
}
