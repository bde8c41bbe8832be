//! Plays the steps of one case.

use super::body::{expand, filled};
use super::case::{Case, Expect, Step, WorldKind, provider_of};
use super::flows;
use super::found::Found;
use super::judge;
use super::moves::AbortOnDrop;
use super::world::{Crew, Sent, World};
use anyhow::{Context as _, bail};
use bytes::Bytes;
use contracts::command::{CommandHeader, Movement, WalletCommand, WalletUpdate};
use contracts::id::{ExternalId, Provider, SagaId};
use contracts::money::Money;
use jiff::Timestamp;
use orchestrator::callback::PaymentIdentity;
use orchestrator::clock::wall_clock;
use orchestrator::saga::record::Status;
use orchestrator::site::Server;
use orchestrator::workflows::deposit;
use region_agent::wallet::default_deadline;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;

/// A gap shorter than this is no chance to come to rest.
const GAP: Duration = Duration::from_millis(300);

/// Longest wait for everything of a case to come to rest.
const REST: Duration = Duration::from_secs(75);

/// Longest wait for a deposit that has nothing to do with any case.
const CANARY: Duration = Duration::from_secs(60);

/// A case being played.
pub struct Run<'w> {
    pub(super) world: &'w World,
    pub(super) case: &'w Case,
    /// Beginnings of the ids of the case's sagas.
    pub(super) sagas: Vec<String>,
    pub(super) sent: Vec<Sent>,
    /// What the case starts by itself, by what it is started as.
    pub(super) started: BTreeMap<String, SagaId>,
    pub(super) began: Instant,
    /// Revisions of the records when they were remembered.
    pub(super) remembered: BTreeMap<SagaId, u64>,
    /// How often an event of the case was delivered to its consumer, by sequence.
    pub(super) consumed: Arc<Mutex<BTreeMap<u64, usize>>>,
    pub(super) consumer: Option<AbortOnDrop>,
    pub(super) fired: Mutex<BTreeSet<(SagaId, Timestamp)>>,
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
        let started = case.started();
        let deposits = providers
            .iter()
            .map(|provider| format!("{}/{provider}/", deposit::DEPOSIT.name));
        Self {
            world,
            case,
            sagas: deposits
                .chain(started.values().map(ToString::to_string))
                .collect(),
            started,
            began: Instant::now(),
            remembered: BTreeMap::new(),
            consumed: Arc::default(),
            consumer: None,
            fired: Mutex::default(),
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
        self.began = Instant::now();
        let start = self.began;
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
        *self.world.crew() = Crew::usual()?;
        self.world.serve_regions().await?;
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
            self.announce(external_id, announced).await?;
        }
        for (customer, amounts) in &given.wallets {
            for (code, amount) in amounts {
                let currency = flows::currency(code).map_err(anyhow::Error::msg)?;
                let money = Money::parse(amount, currency)?;
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
                let wallet = match given.regions.get(customer) {
                    None => self.world.local.clone(),
                    Some(region) => {
                        let wallet = self.world.regions.get(region);
                        wallet
                            .context("no such region")?
                            .lock()
                            .await
                            .wallet()
                            .clone()
                    }
                };
                wallet.execute(&header, &update).await;
            }
        }
        self.world.rates.script(&given.fx);
        if given.queue_group == Some(false) {
            self.world
                .loosen_queue_group(given.wallet_responders.unwrap_or(1))
                .await?;
        }
        if self.world.kind != WorldKind::Shared {
            if let Some(name) = &given.build {
                self.world.crew().build.workflows =
                    flows::build(name).with_context(|| format!("no build {name}"))?;
            }
            self.world.crew().clocks = given.clocks.clone();
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
            Step::AdvanceTo { ms } if self.world.kind != WorldKind::Shared => {
                self.advance_to(Duration::from_millis(*ms)).await
            }
            Step::AdvanceTo { .. } => Ok(()),
            Step::EveryOrder { what } => self.every_order(what).await,
            Step::StartConcurrently {
                saga,
                operation_id,
                count,
                body,
            } => self.start_all(saga, operation_id, *count, body).await,
            Step::AdminCancel { saga_of } => self.compensate(saga_of, "asked for").await,
            Step::Redeliver { n } => self.redeliver(*n).await,
            Step::ExternalCreatePayment {
                external_id,
                payment,
            } => self.announce(external_id, payment).await,
            Step::UntilAsked { saga_of } => self.until_on_record(saga_of).await,
            Step::WalletSpend {
                customer,
                amount,
                currency,
            } => self.spend(customer, amount, currency).await,
            Step::Direct {
                operation,
                verb,
                answer,
            } => self.direct(operation, verb, answer).await,
            Step::Deploy { build } => self.deploy(build).await,
            Step::Remember => {
                self.rest(REST).await?;
                self.remembered = self.revisions();
                Ok(())
            }
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

    pub(super) fn event_id(&mut self) -> String {
        self.number += 1;
        format!("{}-{}", self.case.id, self.number)
    }

    pub(super) async fn callback(
        &mut self,
        body: Map<String, Value>,
        event_id: &str,
    ) -> anyhow::Result<()> {
        let provider = provider_of(&body).unwrap_or_else(|| self.case.provider.clone());
        let body = serde_json::to_vec(&body)?;
        self.raw(&provider, event_id, body.into()).await
    }

    pub(super) async fn raw(
        &mut self,
        provider: &str,
        event_id: &str,
        body: Bytes,
    ) -> anyhow::Result<()> {
        let sent = self.world.callback(provider, event_id, body).await?;
        self.sent.push(sent);
        Ok(())
    }

    pub(super) async fn all_at_once(
        &mut self,
        bodies: Vec<Map<String, Value>>,
    ) -> anyhow::Result<()> {
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

    async fn restart(&self, what: &str) -> anyhow::Result<()> {
        match what {
            "orchestrator" => {
                // As many as there were; a case may have killed them by another step.
                let count = self.world.instances.lock().await.len();
                let count = count.max(self.case.given.instances.unwrap_or(1));
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

    /// The saga that was started as this, or that of a payment of the case's own provider.
    pub(super) fn saga_of(&self, external_id: &str) -> anyhow::Result<SagaId> {
        if let Some(saga) = self.started.get(external_id) {
            return Ok(saga.clone());
        }
        Ok(deposit::saga_id(&PaymentIdentity {
            provider: Provider::new(self.case.provider.as_str())?,
            account: String::new(),
            external_id: ExternalId::new(external_id)?,
            capture_id: None,
        }))
    }

    /// Waits until every message is accounted for and no saga of the case is at work.
    pub(super) async fn rest(&self, bound: Duration) -> anyhow::Result<()> {
        let rested = self
            .world
            .view
            .until(bound, async || {
                // A timer that cannot be sent now is due the next time, too.
                let due = self.fire_due().await.unwrap_or(true);
                (!due && self.restless().is_none()).then_some(())
            })
            .await;
        match rested {
            Some(()) => Ok(()),
            None => {
                let why = self.restless();
                bail!("not at rest within {bound:?}: {}", why.unwrap_or_default())
            }
        }
    }

    fn restless(&self) -> Option<String> {
        let ignored = self.case.expect.ignored;
        judge::restless(&Found::records_of(self), &self.sent, ignored)
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
