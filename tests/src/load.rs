//! Many deposits at once, chosen by a seed so that a run can be had again.

use crate::deposit::Deposit;
use crate::sender::Sender;
use crate::system::{REGIONS, System};
use futures::{StreamExt as _, TryStreamExt as _};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};

/// Whose wallets are closed, one in each region: what is paid to him is refused there.
pub const CLOSED_CUSTOMER: &str = "left-us";

/// Callbacks on their way to the intake at once.
const SENDERS: usize = 16;

/// A small generator (SplitMix64): the same seed gives the same run.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// From `SAGA_SEED`, or a new seed; says which on stderr.
    #[must_use]
    pub fn from_environment(test: &str) -> Self {
        let given = std::env::var("SAGA_SEED").ok();
        let seed = given
            .and_then(|seed| seed.parse().ok())
            .unwrap_or_else(Self::new_seed);
        eprintln!("{test}: SAGA_SEED={seed}");
        Self(seed)
    }

    /// From this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A seed nobody has chosen.
    #[must_use]
    pub fn new_seed() -> u64 {
        RandomState::new().build_hasher().finish()
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 up to, but not including, `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.draw() % bound.max(1)
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of these.
    ///
    /// # Panics
    /// When there are none.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        let index = self.below(u64::try_from(of.len()).unwrap_or(u64::MAX));
        &of[usize::try_from(index).unwrap_or(0)]
    }
}

/// One callback to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Callback {
    /// Of which deposit.
    pub deposit: Deposit,
    /// Under which event id.
    pub event_id: String,
}

/// Callbacks of many deposits, in the order in which they are sent.
#[derive(Debug, Clone, Default)]
pub struct Load {
    /// Different deposits.
    pub deposits: Vec<Deposit>,
    /// Their callbacks; more than deposits, since providers repeat themselves.
    pub callbacks: Vec<Callback>,
    /// Deposits to a closed wallet.
    pub refused: usize,
}

impl Load {
    /// `count` deposits over all regions: some are reported twice, some go to a closed wallet, sums
    /// differ, and some customers are paid more than once.
    #[must_use]
    pub fn mixed(count: usize, prefix: &str, random: &mut Random) -> Self {
        let mut load = Self::default();
        for number in 0..count {
            let region = REGIONS[number % REGIONS.len()];
            let mut deposit = Deposit::new(format!("{prefix}-{number}"), region);
            deposit.amount_minor = i64::try_from(random.below(100_000)).unwrap_or(0) + 1;
            if random.one_in(40) {
                CLOSED_CUSTOMER.clone_into(&mut deposit.customer);
                load.refused += 1;
            } else if random.one_in(4) {
                deposit.customer = format!("regular-{}", random.below(20));
            }
            let repeats = if random.one_in(12) {
                1 + random.below(3)
            } else {
                0
            };
            for repeat in 0..=repeats {
                load.callbacks.push(Callback {
                    event_id: format!("{}-event-{repeat}", deposit.external_id),
                    deposit: deposit.clone(),
                });
            }
            load.deposits.push(deposit);
        }
        load
    }

    /// Sends all callbacks and waits until each is stored.
    ///
    /// # Errors
    /// When one is not.
    pub async fn send(&self, sender: &Sender) -> anyhow::Result<()> {
        futures::stream::iter(self.callbacks.clone())
            .map(|callback| {
                let sender = sender.clone();
                async move { sender.send(&callback.deposit, &callback.event_id).await }
            })
            .buffer_unordered(SENDERS)
            .try_collect::<Vec<_>>()
            .await
            .map(drop)
    }
}

impl System {
    /// Closes the wallets of [`CLOSED_CUSTOMER`].
    ///
    /// # Errors
    /// When a ledger refuses.
    pub async fn close_wallets(&self) -> anyhow::Result<()> {
        let customer = CLOSED_CUSTOMER.parse()?;
        let now = orchestrator::clock::wall_clock();
        for region in REGIONS {
            let ledger = self.ledger(region).await?;
            ledger.open_wallet(&customer, None, now).await?;
            ledger.close_wallet(&customer, now).await?;
            ledger.close().await;
        }
        Ok(())
    }
}
