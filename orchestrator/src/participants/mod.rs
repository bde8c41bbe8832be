//! Those who carry out steps, behind one function: a command in, an answer or silence out.
//!
//! The core's own side (payments, rates) and the wallet of the default region are called in process;
//! other regions over NATS.

mod breaker;
mod core_side;
mod gate;
mod regions;
mod wallet_answer;

use contracts::id::{Region, SagaId};
use futures::future::BoxFuture;
use region_agent::wallet::Wallet;

pub use core_side::CoreSide;
pub use regions::{LateReply, RegionBus};
pub use wallet_answer::{Asked, answer, asked, header, status};

use crate::saga::action::Command;
use crate::saga::input::Answer;
use crate::saga::record::Participant;

/// Carries out steps. The driver relies on no more than this: an answer is true of the command it is given
/// to, and silence says nothing.
pub trait Perform: Send + Sync {
    /// Carries out a command. `None` when nothing was heard by its deadline: the outcome is unknown.
    fn perform<'a>(
        &'a self,
        saga_id: &'a SagaId,
        command: &'a Command,
    ) -> BoxFuture<'a, Option<Answer>>;
}

/// Everybody who can carry out a step.
#[derive(Debug, Clone)]
pub struct Participants {
    core: CoreSide,
    local: Option<(Region, Wallet)>,
    regions: RegionBus,
}

impl Participants {
    /// `local` is the region whose wallet is called in process.
    #[must_use]
    pub fn new(core: CoreSide, local: Option<(Region, Wallet)>, regions: RegionBus) -> Self {
        Self {
            core,
            local,
            regions,
        }
    }

    async fn carry_out(&self, saga_id: &SagaId, command: &Command) -> Option<Answer> {
        match &command.participant {
            Participant::Core => Some(self.core.perform(saga_id, command).await),
            Participant::Region(region) => match &self.local {
                Some((local, wallet)) if local == region => {
                    Some(wallet_answer::perform_locally(wallet, region, saga_id, command).await)
                }
                Some(_) | None => self.regions.perform(region, saga_id, command).await,
            },
        }
    }
}

impl Perform for Participants {
    fn perform<'a>(
        &'a self,
        saga_id: &'a SagaId,
        command: &'a Command,
    ) -> BoxFuture<'a, Option<Answer>> {
        Box::pin(self.carry_out(saga_id, command))
    }
}
