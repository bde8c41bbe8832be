//! An agent that lies. It has the rights of region eu and gets eu's commands; whatever it answers, and
//! however late, changes nothing of another region's sagas, completes nothing, and makes no record large.

use anyhow::{Context as _, Result, ensure};
use async_nats::{Client, HeaderMap, Message};
use contracts::codec::Encoding;
use contracts::command::{Movement, WalletVerb};
use contracts::header;
use contracts::id::OperationId;
use contracts::intake::{Finding, OperatorRequest, OperatorVerb};
use contracts::money::{Currency, Money};
use contracts::reply::{Effect, RejectCode, WalletReply};
use contracts::subject;
use futures::StreamExt as _;
use jiff::Timestamp;
use orchestrator::saga::record::Status;
use orchestrator::site::{Leaf, User};
use saga_tests::cluster::{Watched, reached};
use saga_tests::deposit::Deposit;
use saga_tests::system::System;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const BOUND: Duration = Duration::from_secs(120);

/// Longer than an attempt is waited for.
const TOO_LATE: Duration = Duration::from_millis(10_500);

/// No record may come near the size of a message.
const LARGEST_RECORD: usize = 64 * 1024;

/// What is forged, each for a deposit of its own: an answer to its credit, or to the revert of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Forgery {
    /// Success, of the other region's deposit, under its headers.
    SuccessOfAnother,
    /// Refusal, of the other region's deposit, under its headers.
    RefusalOfAnother,
    /// The own operation refused, with a text nearly as large as a message.
    HugeRefusal,
    /// The same with a text that is read.
    LongRefusal,
    /// The own operation known with other parameters, in fields that nearly fill a message.
    HugeConflict,
    /// The same in fields that are read.
    LongConflict,
    /// A fence that leaves no higher one.
    HighestFence,
    /// A fence that leaves none that a wallet can keep.
    HighestSignedFence,
    /// More money than was asked for.
    MoreMoney,
    /// Another customer.
    AnotherCustomer,
    /// Success of the very operation, of another kind.
    AnotherEffect,
    /// No answer at all, nearly as large as a message.
    Garbage,
}

const FORGERIES: [Forgery; 12] = [
    Forgery::SuccessOfAnother,
    Forgery::RefusalOfAnother,
    Forgery::HugeRefusal,
    Forgery::LongRefusal,
    Forgery::HugeConflict,
    Forgery::LongConflict,
    Forgery::HighestFence,
    Forgery::HighestSignedFence,
    Forgery::MoreMoney,
    Forgery::AnotherCustomer,
    Forgery::AnotherEffect,
    Forgery::Garbage,
];

impl Forgery {
    fn deposit(self) -> Deposit {
        Deposit::new(format!("{self:?}"), "eu")
    }

    /// Whose operation it pretends to have carried out.
    fn of(operation: &OperationId) -> Option<Self> {
        FORGERIES
            .into_iter()
            .find(|forgery| operation.as_str().ends_with(&format!("/{forgery:?}")))
    }

    /// The operation named in the answer's headers, and its body.
    fn answer(self, operation: &OperationId, victim: &Deposit) -> Result<(OperationId, Vec<u8>)> {
        const NEARLY_A_MESSAGE: usize = 1_000_000;
        let own = self.deposit();
        let refused = |length| WalletReply::Rejected {
            operation_id: operation.clone(),
            code: RejectCode::WalletClosed,
            message: "x".repeat(length),
        };
        let conflict = |fields| WalletReply::Conflict {
            operation_id: operation.clone(),
            fields: vec!["y".repeat(1_000); fields],
        };
        let applied = |operation_id: OperationId, effect| WalletReply::Applied {
            operation_id,
            effect,
            applied_at: Timestamp::UNIX_EPOCH,
        };
        let reply = match self {
            Self::SuccessOfAnother => applied(victim.credit(), credit(victim, 1)?),
            Self::RefusalOfAnother => WalletReply::Rejected {
                operation_id: victim.credit(),
                code: RejectCode::WalletClosed,
                message: "closed".to_owned(),
            },
            Self::HugeRefusal => refused(NEARLY_A_MESSAGE),
            Self::LongRefusal => refused(30_000),
            Self::HugeConflict => conflict(900),
            Self::LongConflict => conflict(30),
            Self::HighestFence => WalletReply::Stale {
                seen_fence: u64::MAX,
            },
            Self::HighestSignedFence => WalletReply::Stale {
                seen_fence: u64::MAX >> 1,
            },
            Self::MoreMoney => applied(operation.clone(), credit(&own, 100)?),
            Self::AnotherCustomer => applied(operation.clone(), credit(victim, 1)?),
            Self::AnotherEffect => applied(
                operation.clone(),
                Effect::Tombstoned {
                    target: victim.credit(),
                },
            ),
            Self::Garbage => return Ok((victim.credit(), vec![0xdb; NEARLY_A_MESSAGE])),
        };
        let named = match self {
            Self::SuccessOfAnother | Self::RefusalOfAnother => victim.credit(),
            Self::HugeRefusal
            | Self::LongRefusal
            | Self::HugeConflict
            | Self::LongConflict
            | Self::HighestFence
            | Self::HighestSignedFence
            | Self::MoreMoney
            | Self::AnotherCustomer
            | Self::AnotherEffect
            | Self::Garbage => operation.clone(),
        };
        Ok((named, Encoding::MessagePack.encode(&reply)?))
    }
}

fn credit(deposit: &Deposit, times: i64) -> Result<Effect> {
    let money = Money::new(deposit.amount_minor * times, Currency::iso("EUR".parse()?)?);
    Ok(Effect::Moved {
        customer: deposit.customer_id(),
        movement: Movement::Credit,
        money,
        balance: money,
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forged_answer_changes_nothing_of_another_region_and_completes_nothing() -> Result<()> {
    let mut system = System::start().await?;
    system.spawn_agent("agent-asia", Leaf::Asia, &[])?;
    system.spawn_orchestrator("orchestrator", &[])?;
    system.ready("agent-asia").await?;
    system.ready("orchestrator").await?;

    // Of region asia: one that has ended, one that waits and has asked its wallet for nothing, and one
    // whose command is out.
    let ended = Deposit::new("ended", "asia");
    system.deposit(&ended).await?;
    system.until_ended(&ended.saga_id(), BOUND).await?;
    let waiting = Deposit {
        status: "pending",
        ..Deposit::new("waiting", "asia")
    };
    system.deposit(&waiting).await?;
    let is_waiting = |record: &orchestrator::saga::record::SagaRecord| {
        record.status == Status::Waiting && record.timer_at.is_some()
    };
    system
        .until_record(&waiting.saga_id(), BOUND, is_waiting)
        .await?;
    system.site.freeze("agent-asia")?;
    let open = Deposit::new("open", "asia");
    system.deposit(&open).await?;
    let untouched = [
        revision(&system, &ended).await?,
        revision(&system, &waiting).await?,
    ];

    let victims = [&ended, &waiting, &open].map(Clone::clone);
    let liar = Liar::start(&system, victims).await?;
    for forgery in FORGERIES {
        system.deposit(&forgery.deposit()).await?;
    }
    // Each first answer comes when nobody waits for it any more, each further one at once.
    let late = u64::try_from(FORGERIES.len())?;
    system
        .until_counter(
            "orchestrator",
            "orchestrator_late_replies_total",
            BOUND,
            |count| count >= late,
        )
        .await?;
    cancel(&system, &Forgery::MoreMoney.deposit()).await?;
    liar.until_all_have_lied_again(&system).await?;
    for forgery in FORGERIES {
        let (record, _) = system
            .record(&forgery.deposit().saga_id())
            .await?
            .context("no record")?;
        ensure!(record.status != Status::Completed, "{record:#?}");
    }
    let now = [
        revision(&system, &ended).await?,
        revision(&system, &waiting).await?,
    ];
    ensure!(now == untouched, "{untouched:?} became {now:?}");
    let (record, _) = system.record(&open.saga_id()).await?.context("no record")?;
    ensure!(
        matches!(record.status, Status::Running | Status::Compensating) && record.case.is_none(),
        "{record:#?}"
    );
    records_are_small(&system).await?;

    // The truth again: everything comes to an end that agrees with the wallets.
    drop(liar);
    system.spawn_agent("agent-eu", Leaf::Eu, &[])?;
    system.ready("agent-eu").await?;
    system.site.thaw("agent-asia")?;
    cancel(&system, &waiting).await?;
    // Its id stood for something else, it said: a person has looked, and the credit is not there.
    let conflict = Forgery::LongConflict.deposit();
    let not_applied = OperatorVerb::Resolve {
        operation_id: Some(conflict.credit()),
        finding: Some(Finding::NotApplied),
        evidence: "the wallet has no such operation".to_owned(),
        reply: None,
    };
    ask(&system, &conflict, not_applied).await?;
    for forgery in FORGERIES {
        let record = system
            .until_ended(&forgery.deposit().saga_id(), BOUND)
            .await?;
        eprintln!("{forgery:?}: {}", record.status);
    }
    records_are_small(&system).await?;
    let audit = system.audit(BOUND).await?;
    eprintln!("forged: {audit}");
    ensure!(audit.cases == 0, "{audit}");
    Ok(())
}

async fn revision(system: &System, deposit: &Deposit) -> Result<u64> {
    let record = system.record(&deposit.saga_id()).await?;
    Ok(record.context("no record")?.1)
}

async fn records_are_small(system: &System) -> Result<()> {
    for record in system.records().await? {
        let bytes = serde_json::to_vec(&record)?.len();
        ensure!(
            bytes < LARGEST_RECORD,
            "the record of {} has {bytes} bytes",
            record.saga_id
        );
    }
    Ok(())
}

async fn cancel(system: &System, deposit: &Deposit) -> Result<()> {
    ask(system, deposit, OperatorVerb::Cancel).await
}

async fn ask(system: &System, deposit: &Deposit, verb: OperatorVerb) -> Result<()> {
    let request = OperatorRequest {
        saga_id: deposit.saga_id(),
        id: format!("by-hand-{}", deposit.external_id),
        verb,
        reason: "forged".to_owned(),
        by: "test".to_owned(),
    };
    let body = serde_json::to_vec(&request)?;
    let to = subject::operator(&request.saga_id, &request.id, &body);
    system.js.publish(to, body.into()).await?.await?;
    Ok(())
}

/// The agent that lies; it is gone when this is dropped.
struct Liar {
    lies: Arc<Mutex<BTreeMap<Forgery, usize>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Liar {
    async fn start(system: &System, victims: [Deposit; 3]) -> Result<Self> {
        let agent = Watched::connect(&system.site.login(User::Agent(Leaf::Eu))).await?;
        let mut commands = agent
            .client
            .queue_subscribe("billing.eu.>", "wallet".to_owned())
            .await?;
        agent.client.flush().await?;
        let lies: Arc<Mutex<BTreeMap<Forgery, usize>>> = Arc::default();
        let told = Arc::clone(&lies);
        let task = tokio::spawn(async move {
            let mut holding = tokio::task::JoinSet::new();
            while let Some(command) = commands.next().await {
                let (client, told, victims) =
                    (agent.client.clone(), Arc::clone(&told), victims.clone());
                holding.spawn(async move { lie(&client, &command, &told, &victims).await });
            }
        });
        // The interest crosses the leaf link a moment later.
        reached(system.core(), "billing.eu.wallet.get").await?;
        Ok(Self { lies, task })
    }

    fn told(&self) -> BTreeMap<Forgery, usize> {
        let lies = self.lies.lock();
        lies.unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn until_all_have_lied_again(&self, system: &System) -> Result<()> {
        // A refusal and a conflict are the region's own word, and final.
        let wanted = |forgery: Forgery| match forgery {
            Forgery::LongRefusal | Forgery::LongConflict => 1,
            _ => 2,
        };
        let lying = async {
            loop {
                let told = self.told();
                if FORGERIES
                    .iter()
                    .all(|forgery| told.get(forgery).copied().unwrap_or(0) >= wanted(*forgery))
                {
                    return Ok(());
                }
                for forgery in FORGERIES {
                    let record = system.record(&forgery.deposit().saga_id()).await?;
                    let status = record.map(|(record, _)| record.status);
                    ensure!(
                        status != Some(Status::Completed),
                        "{forgery:?} was believed"
                    );
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::time::timeout(BOUND, lying)
            .await
            .with_context(|| format!("lies: {:?}", self.told()))??;
        Ok(())
    }
}

impl Drop for Liar {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Holds the first command of each deposit for too long, and answers all with a forgery.
#[expect(clippy::disallowed_methods, reason = "a reply is never acknowledged")]
async fn lie(
    client: &Client,
    command: &Message,
    told: &Mutex<BTreeMap<Forgery, usize>>,
    victims: &[Deposit; 3],
) -> Option<()> {
    if command.subject.ends_with(WalletVerb::Get.as_str()) {
        client
            .publish(command.reply.clone()?, "eu".into())
            .await
            .ok()?;
        return Some(());
    }
    let headers = command.headers.as_ref()?;
    let operation: OperationId = headers.get(header::OPERATION_ID)?.as_str().parse().ok()?;
    let forgery = Forgery::of(&operation)?;
    let first = headers.get(header::ATTEMPT)?.as_str() == "1"
        && command.subject.ends_with(WalletVerb::Update.as_str());
    if first {
        tokio::time::sleep(TOO_LATE).await;
    }
    // Answers about others name each of the three: the late one the saga whose command is out.
    let count = told
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .get(&forgery)
        .copied()
        .unwrap_or(0);
    let victim = &victims[(count + 2) % victims.len()];
    let (named, body) = forgery.answer(&operation, victim).ok()?;
    let mut forged = HeaderMap::new();
    forged.insert(header::SAGA_ID, victim.saga_id().as_str());
    forged.insert(header::OPERATION_ID, named.as_str());
    forged.insert(header::ATTEMPT, "1");
    forged.insert(header::FENCE, u64::MAX.to_string().as_str());
    forged.insert(header::CONTENT_TYPE, Encoding::MessagePack.content_type());
    let to = command.reply.clone()?;
    client
        .publish_with_headers(to, forged, body.into())
        .await
        .ok()?;
    client.flush().await.ok()?;
    *told
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .entry(forgery)
        .or_insert(0) += 1;
    Some(())
}
