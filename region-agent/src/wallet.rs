//! The shell: one command, one transaction, one answer.
//!
//! Claim, load under lock, decide, write, commit, answer, in that order. A crash between any two
//! leaves either nothing or everything; the sender asks again under the same id and is told which.

use crate::clock::Clock;
use crate::ledger::{Claim, Ledger, LedgerError, SeenFence, Transaction};
use crate::participant::{self, Decision, Known, Parameters, WalletState};
use contracts::command::{CommandHeader, Movement, WalletCommand, WalletGet, WalletUpdate};
use contracts::id::{OperationId, SagaId};
use contracts::reply::{OperationState, WalletReply, WalletView};
use jiff::Timestamp;
use std::time::Duration;

/// Longest wait for the database before the outcome is called unknown.
const PATIENCE: Duration = Duration::from_secs(20);

/// Tries at most when transactions take each other's locks; each try has lost without a trace.
const MAX_TRIES: u32 = 4;

/// What a sender is asked to wait when the database has no room.
pub const RETRY_AFTER_MS: u64 = 200;

/// A region's wallet: its ledger and its clock. Cheap to clone. The region agent serves one over
/// NATS; the orchestrator calls one in process for its own region.
#[derive(Debug, Clone)]
pub struct Wallet {
    ledger: Ledger,
    clock: Clock,
}

impl Wallet {
    /// A wallet on an open ledger.
    #[must_use]
    pub fn new(ledger: Ledger, clock: Clock) -> Self {
        Self { ledger, clock }
    }

    /// The ledger behind it.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Its clock.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Executes a command at most once for ever and answers it; see [`participant`] for the table.
    ///
    /// An answer other than `Unavailable` is on disk before it is given. Dropping the future is
    /// safe: the command has then been executed wholly or not at all, and asking again tells which.
    pub async fn execute(&self, header: &CommandHeader, command: &WalletCommand) -> WalletReply {
        if let Some(invalid) = participant::invalid(header, command) {
            return invalid;
        }
        let mut tries = 1;
        loop {
            let error = match tokio::time::timeout(PATIENCE, self.try_once(header, command)).await {
                Ok(Ok(reply)) => return reply,
                Ok(Err(error)) => error,
                Err(_elapsed) => LedgerError::TimedOut(PATIENCE),
            };
            if matches!(error, LedgerError::Contended(_)) && tries < MAX_TRIES {
                tries += 1;
                continue;
            }
            tracing::warn!(operation_id = %header.operation_id, error = error.chain(), "ledger");
            return answer_error(&error);
        }
    }

    /// Answers a question; nothing changes.
    pub async fn get(&self, get: &WalletGet) -> WalletView {
        let view = match (&get.operation_id, &get.customer, &get.operations) {
            (Some(operation_id), None, None) => self.ledger.view_operation(operation_id).await,
            (None, Some(customer), None) => self.ledger.view_wallet(customer).await,
            (None, None, Some(range)) => self.ledger.view_operations(range).await,
            _ => Ok(WalletView::Invalid {
                field: "operation_id".to_owned(),
                message: "give exactly one of `operation_id`, `customer` and `operations`, \
                          such as {\"customer\":\"c-1\"}"
                    .to_owned(),
            }),
        };
        view.unwrap_or_else(|error| {
            tracing::warn!(error = error.chain(), "ledger");
            WalletView::Unavailable {
                message: error.chain(),
            }
        })
    }

    async fn try_once(
        &self,
        header: &CommandHeader,
        command: &WalletCommand,
    ) -> Result<WalletReply, LedgerError> {
        let mut transaction = self.ledger.begin().await?;
        let fence = match &header.saga_id {
            Some(saga) => transaction.raise_fence(saga, header.fence).await?,
            None => SeenFence::default(),
        };
        let mut known = Known {
            seen_fence: fence.highest,
            ..Known::default()
        };
        let parameters = participant::parameters(command);
        let claim = transaction
            .claim(
                &header.operation_id,
                &parameters,
                header,
                participant::memo(command),
                self.clock.now(),
            )
            .await?;
        match claim {
            Claim::Stored(stored) => known.operation = Some(*stored),
            Claim::Ours => {
                self.load(&mut transaction, &mut known, header, command)
                    .await?;
            }
        }
        // Read here, after every wait for a connection and a lock: a command that has waited past
        // its deadline is not started.
        let now = self.clock.now();
        match participant::decide(&known, header, command, now) {
            Decision::Record(recorded) => {
                transaction
                    .write(&header.operation_id, target(command), &recorded, now)
                    .await?;
                transaction.commit().await?;
                Ok(recorded.reply)
            }
            // A repeat writes nothing but the fence it came with.
            Decision::Repeat(reply) if fence.raised => {
                transaction.commit().await?;
                Ok(reply)
            }
            Decision::Repeat(reply) => {
                transaction.rollback().await?;
                Ok(reply)
            }
            Decision::Refuse(reply) => {
                transaction.rollback().await?;
                if let (true, Some(saga)) = (fence.raised, &header.saga_id) {
                    self.keep_fence(saga, header.fence).await?;
                }
                Ok(reply)
            }
        }
    }

    /// Reads, under lock, what bears on a command seen for the first time.
    async fn load(
        &self,
        transaction: &mut Transaction,
        known: &mut Known,
        header: &CommandHeader,
        command: &WalletCommand,
    ) -> Result<(), LedgerError> {
        match command {
            WalletCommand::Update(update) => {
                known.account = self.load_account(transaction, update).await?;
            }
            WalletCommand::Revert(revert) => {
                let claim = transaction
                    .claim(
                        &revert.target,
                        &Parameters::NeverSeen,
                        header,
                        None,
                        self.clock.now(),
                    )
                    .await?;
                let Claim::Stored(target) = claim else {
                    return Ok(());
                };
                match (&target.parameters, target.state) {
                    (
                        Parameters::Update {
                            customer, money, ..
                        },
                        OperationState::Applied,
                    ) => {
                        known.account = transaction
                            .lock_account(customer, money.currency().code())
                            .await?;
                    }
                    (Parameters::Update { .. }, OperationState::Reverted) => {
                        known.offset_by = transaction.offset_of(&revert.target).await?;
                    }
                    (
                        Parameters::Update { .. },
                        OperationState::Rejected | OperationState::Tombstoned,
                    )
                    | (Parameters::Revert { .. } | Parameters::NeverSeen, _) => {}
                }
                known.target = Some(*target);
            }
        }
        Ok(())
    }

    /// The account an update moves. A first credit opens the wallet before anything is decided, so
    /// that there is a row to lock.
    async fn load_account(
        &self,
        transaction: &mut Transaction,
        update: &WalletUpdate,
    ) -> Result<participant::AccountState, LedgerError> {
        let code = update.money.currency().code();
        let account = transaction.lock_account(&update.customer, code).await?;
        if account.wallet != WalletState::Absent || update.movement == Movement::Debit {
            return Ok(account);
        }
        transaction
            .open_wallet(&update.customer, self.clock.now())
            .await?;
        transaction.lock_account(&update.customer, code).await
    }

    /// Keeps the fence of a refused command, in a transaction of its own as the command's was taken
    /// back: whoever has heard of a new owner must not serve the old one.
    async fn keep_fence(&self, saga: &SagaId, fence: u64) -> Result<(), LedgerError> {
        let mut transaction = self.ledger.begin().await?;
        transaction.raise_fence(saga, fence).await?;
        transaction.commit().await
    }
}

/// The answer that an error of the ledger allows: `Busy` only where nothing was written for sure.
fn answer_error(error: &LedgerError) -> WalletReply {
    match error {
        LedgerError::Busy(_) | LedgerError::Contended(_) => WalletReply::Busy {
            retry_after_ms: RETRY_AFTER_MS,
        },
        LedgerError::Url(_)
        | LedgerError::Open(_)
        | LedgerError::Migrate(_)
        | LedgerError::Unavailable(_)
        | LedgerError::TimedOut(_)
        | LedgerError::Corrupt(_)
        | LedgerError::NoWallet(_) => WalletReply::Unavailable {
            message: error.chain(),
        },
    }
}

fn target(command: &WalletCommand) -> Option<&OperationId> {
    match command {
        WalletCommand::Update(_) => None,
        WalletCommand::Revert(revert) => Some(&revert.target),
    }
}

/// Default deadline of a command that carries none.
#[must_use]
pub fn default_deadline(now: Timestamp) -> Timestamp {
    now.checked_add(jiff::SignedDuration::from_secs(10))
        .unwrap_or(Timestamp::MAX)
}
