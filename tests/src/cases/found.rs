//! Everything that has to do with one case, wherever it is stored.

use super::always::movements;
use super::runner::Run;
use super::view::Stored;
use super::world::World;
use contracts::event::DepositCompleted;
use contracts::id::{CustomerId, SagaId};
use contracts::money::Money;
use contracts::reply::{Effect, EntryView, OperationState, WalletReply, WalletView};
use orchestrator::payments::{Payment, PaymentFilter};
use orchestrator::saga::CASE_WORKFLOW;
use orchestrator::saga::record::SagaRecord;
use std::collections::{BTreeMap, BTreeSet};

/// Everything that has to do with one case.
#[derive(Debug)]
pub struct Found {
    pub(super) records: Vec<Stored>,
    pub(super) deposits: Vec<DepositCompleted>,
    pub(super) payments: Vec<Payment>,
    pub(super) wallets: BTreeMap<String, Vec<Money>>,
    pub(super) entries: Vec<EntryView>,
    /// Sagas of the cases' own workflows, once for each event of theirs.
    pub(super) finished: Vec<SagaId>,
    /// The movements of all sagas.
    pub(super) issued: BTreeSet<String>,
    /// State and effect of each movement of the sagas, in whichever region it is known.
    pub(super) operations: BTreeMap<String, Vec<(OperationState, Option<Money>)>>,
    /// How often each command reached a region's wallet.
    pub(super) commands: BTreeMap<String, usize>,
    /// Answers of the regions' wallets, by verb and word.
    pub(super) answers: BTreeMap<String, usize>,
    /// Answers that came after their command had been given up, in this world.
    pub(super) late_replies: u64,
}

impl Found {
    /// The records of a case.
    #[must_use]
    pub fn records_of(run: &Run<'_>) -> Vec<Stored> {
        let sequences: Vec<u64> = run.sent.iter().map(|sent| sent.sequence).collect();
        run.world.view.records(&run.sagas, &sequences)
    }

    /// Looks everything up.
    ///
    /// # Errors
    /// When a database does not answer.
    pub async fn look(run: &Run<'_>, customers: &BTreeSet<String>) -> anyhow::Result<Self> {
        let records = Self::records_of(run);
        let ledgers = run.world.ledgers().await;
        let mut wallets: BTreeMap<String, Vec<Money>> = BTreeMap::new();
        let mut entries = Vec::new();
        for customer in customers {
            let id: CustomerId = customer.parse()?;
            for ledger in &ledgers {
                if let WalletView::Wallet {
                    balances,
                    entries: booked,
                    ..
                } = ledger.view_wallet(&id).await?
                {
                    wallets
                        .entry(customer.clone())
                        .or_default()
                        .extend(balances);
                    entries.extend(booked);
                }
            }
        }
        let mut operations: BTreeMap<String, Vec<_>> = BTreeMap::new();
        for stored in records.iter().filter(|stored| is_saga(&stored.record)) {
            for (operation, ledger) in pairs(&movements(&stored.record), &ledgers) {
                if let WalletView::Operation(view) = ledger.view_operation(operation).await? {
                    let booked = match view.reply {
                        WalletReply::Applied {
                            effect: Effect::Moved { money, .. },
                            ..
                        } => Some(money),
                        _ => None,
                    };
                    let known = operations.entry(operation.to_string()).or_default();
                    known.push((view.state, booked));
                }
            }
        }
        let of_sagas = records.iter().filter(|stored| is_saga(&stored.record));
        let issued = of_sagas.flat_map(|stored| movements(&stored.record));
        let issued = issued.map(|operation| operation.to_string()).collect();
        let (mut commands, mut answers) = (BTreeMap::new(), BTreeMap::new());
        for wallet in run.world.regions.values() {
            for seen in wallet.lock().await.seen(&run.sagas) {
                *commands.entry(seen.operation_id.to_string()).or_insert(0) += 1;
                if let Some(answer) = seen.answer {
                    let answer = format!("{} {answer}", seen.verb);
                    *answers.entry(answer).or_insert(0) += 1;
                }
            }
        }
        let mut late_replies = 0;
        for instance in run.world.instances.lock().await.iter() {
            late_replies += instance.counter("late_replies_total").await?;
        }
        Ok(Self {
            late_replies,
            answers,
            issued,
            finished: run.world.view.finished(&run.sagas),
            deposits: run.world.view.deposits(&run.sagas),
            payments: payments(run.world, &run.case.providers()).await?,
            records,
            wallets,
            entries,
            operations,
            commands,
        })
    }

    pub(super) fn sagas(&self) -> impl Iterator<Item = &SagaRecord> {
        let records = self.records.iter().map(|stored| &stored.record);
        records.filter(|record| is_saga(record))
    }
}

async fn payments(world: &World, providers: &BTreeSet<String>) -> anyhow::Result<Vec<Payment>> {
    let mut found = Vec::new();
    let mut filter = PaymentFilter::default();
    loop {
        let page = world.payments.list(&filter).await?;
        let Some(last) = page.last() else {
            return Ok(found);
        };
        filter.after = Some(last.payment_id.clone());
        found.extend(
            page.into_iter()
                .filter(|payment| providers.contains(payment.identity.provider.as_str())),
        );
    }
}

/// Each with each.
pub(super) fn pairs<'a, A, B>(
    left: &'a BTreeSet<A>,
    right: &'a [B],
) -> impl Iterator<Item = (&'a A, &'a B)> {
    left.iter()
        .flat_map(move |one| right.iter().map(move |other| (one, other)))
}

pub(super) fn is_saga(record: &SagaRecord) -> bool {
    record.workflow != CASE_WORKFLOW
}
