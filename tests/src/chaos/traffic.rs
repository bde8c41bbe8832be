//! Steady load: payments as providers tell of them, some with repeats, changes of mind and requests to cancel.

use crate::deposit::Deposit;
use crate::load::{CLOSED_CUSTOMER, Random};
use crate::sender::Sender;
use crate::system::{REGIONS, System};
use anyhow::{Context as _, Result};
use async_nats::jetstream;
use contracts::intake::{OperatorRequest, OperatorVerb};
use contracts::subject;
use orchestrator::site::User;
use std::fmt;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// Between two new payments.
const PACE: Duration = Duration::from_millis(140);

/// Longest wait until the intake has taken a message: the core server may be away several times in a row.
const STORED_WITHIN: Duration = Duration::from_secs(120);

/// How a provider tells of a payment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Story {
    Paid,
    PaidOverAndOver,
    FailedThenPaid,
    PendingThenPaid,
    PendingThenFailed,
    PendingThenCancelled,
    PaidAndCancelled,
    ClosedWallet,
}

/// A payment as it was told of.
#[derive(Debug, Clone)]
pub(super) struct Told {
    pub(super) deposit: Deposit,
    pub(super) story: Story,
}

/// Load under way.
#[derive(Debug)]
pub(super) struct Traffic {
    stop: watch::Sender<bool>,
    telling: JoinHandle<Result<Vec<Told>>>,
}

/// Who can tell.
#[derive(Debug, Clone)]
struct Voices {
    gateway: Sender,
    operator: jetstream::Context,
}

impl Story {
    const ALL: [Self; 8] = [
        Self::Paid,
        Self::PaidOverAndOver,
        Self::FailedThenPaid,
        Self::PendingThenPaid,
        Self::PendingThenFailed,
        Self::PendingThenCancelled,
        Self::PaidAndCancelled,
        Self::ClosedWallet,
    ];

    /// Whether somebody said that money has come.
    pub(super) fn says_paid(self) -> bool {
        match self {
            Self::Paid
            | Self::PaidOverAndOver
            | Self::FailedThenPaid
            | Self::PendingThenPaid
            | Self::PaidAndCancelled
            | Self::ClosedWallet => true,
            Self::PendingThenFailed | Self::PendingThenCancelled => false,
        }
    }

    /// Whether it may end with money in the wallet.
    pub(super) fn may_complete(self) -> bool {
        self.says_paid() && self != Self::ClosedWallet
    }
}

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Paid => "paid",
            Self::PaidOverAndOver => "paid, over and over",
            Self::FailedThenPaid => "failed, then paid",
            Self::PendingThenPaid => "pending, then paid",
            Self::PendingThenFailed => "pending, then failed",
            Self::PendingThenCancelled => "pending, then cancelled",
            Self::PaidAndCancelled => "paid, and cancelled",
            Self::ClosedWallet => "paid to a closed wallet",
        })
    }
}

impl Traffic {
    /// Begins.
    pub(super) async fn start(system: &System, seed: u64) -> Result<Self> {
        let voices = Voices {
            gateway: system.sender().within(STORED_WITHIN),
            operator: jetstream::new(system.site.connect(User::Operator).await?),
        };
        let (stop, stopped) = watch::channel(false);
        let telling = tokio::spawn(tell_all(
            voices,
            Random::new(seed ^ 0x7472_6166_6669_6321),
            stopped,
        ));
        Ok(Self { stop, telling })
    }

    /// No new payments; what is under way is told to its end. Gives all payments.
    pub(super) async fn stop(self) -> Result<Vec<Told>> {
        self.stop.send_replace(true);
        self.telling.await?
    }
}

async fn tell_all(
    voices: Voices,
    mut random: Random,
    stopped: watch::Receiver<bool>,
) -> Result<Vec<Told>> {
    let mut told = Vec::new();
    let mut telling = JoinSet::new();
    let mut ticks = tokio::time::interval(PACE);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    for number in 0_usize.. {
        ticks.tick().await;
        if *stopped.borrow() {
            break;
        }
        // Half of all payments are plain ones.
        let story = if random.one_in(2) {
            Story::Paid
        } else {
            *random.pick(&Story::ALL)
        };
        let mut deposit = Deposit::new(format!("chaos-{number}"), REGIONS[number % REGIONS.len()]);
        deposit.amount_minor = i64::try_from(random.below(100_000)).unwrap_or(0) + 1;
        if story == Story::ClosedWallet {
            CLOSED_CUSTOMER.clone_into(&mut deposit.customer);
        }
        let this = Told { deposit, story };
        told.push(this.clone());
        let (voices, random) = (voices.clone(), Random::new(random.draw()));
        telling.spawn(async move {
            voices
                .tell(&this, random)
                .await
                .with_context(|| format!("{this:?}"))
        });
    }
    while let Some(result) = telling.join_next().await {
        result??;
    }
    Ok(told)
}

impl Voices {
    async fn tell(&self, told: &Told, mut random: Random) -> Result<()> {
        let mut pause =
            async || tokio::time::sleep(Duration::from_millis(random.below(4_000))).await;
        match told.story {
            Story::Paid | Story::ClosedWallet => self.says(told, "paid", 0).await?,
            Story::PaidOverAndOver => {
                self.says(told, "paid", 0).await?;
                // Under another event id, twice at once, and the very first message again.
                futures::future::try_join(self.says(told, "paid", 1), self.says(told, "paid", 2))
                    .await?;
                pause().await;
                self.says(told, "paid", 0).await?;
            }
            Story::FailedThenPaid => {
                self.says(told, "failed", 0).await?;
                pause().await;
                self.says(told, "paid", 1).await?;
            }
            Story::PendingThenPaid => {
                self.says(told, "pending", 0).await?;
                pause().await;
                self.says(told, "paid", 1).await?;
                self.says(told, "paid", 2).await?;
            }
            Story::PendingThenFailed => {
                self.says(told, "pending", 0).await?;
                pause().await;
                self.says(told, "failed", 1).await?;
            }
            Story::PendingThenCancelled => {
                self.says(told, "pending", 0).await?;
                pause().await;
                self.cancels(told).await?;
            }
            Story::PaidAndCancelled => {
                self.says(told, "paid", 0).await?;
                self.cancels(told).await?;
            }
        }
        Ok(())
    }

    async fn says(&self, told: &Told, status: &'static str, event: u32) -> Result<()> {
        let deposit = Deposit {
            status,
            ..told.deposit.clone()
        };
        let event_id = format!("{}-event-{event}", deposit.external_id);
        self.gateway.send(&deposit, &event_id).await.map(drop)
    }

    async fn cancels(&self, told: &Told) -> Result<()> {
        let saga_id = told.deposit.saga_id();
        let request = OperatorRequest {
            id: format!("cancel-{}", told.deposit.external_id),
            verb: OperatorVerb::Cancel,
            reason: "the customer asked".to_owned(),
            by: "chaos".to_owned(),
            saga_id: saga_id.clone(),
        };
        let body = bytes::Bytes::from(serde_json::to_vec(&request)?);
        let subject = subject::operator(&saga_id, &request.id, &body);
        let storing = async {
            // Stored once whatever the answer was: the subject holds one message.
            while let Err(error) = self.publish(subject.clone(), body.clone()).await {
                if format!("{error:#}").contains("maximum messages per subject") {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        tokio::time::timeout(STORED_WITHIN, storing)
            .await
            .with_context(|| format!("{subject} is not stored"))
    }

    async fn publish(&self, subject: String, body: bytes::Bytes) -> Result<()> {
        self.operator.publish(subject, body).await?.await?;
        Ok(())
    }
}
