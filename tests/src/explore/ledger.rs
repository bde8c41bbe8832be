//! A model of a region's wallet: the real participant core over rows in memory.
//!
//! It loads and writes as the agent's shell does, in one step: the database's transaction is not what is
//! explored here (that is the conformance suite's part).

use std::collections::{BTreeMap, BTreeSet};

use contracts::command::{CommandHeader, Movement, WalletCommand};
use contracts::id::{CustomerId, OperationId, SagaId};
use contracts::money::Money;
use contracts::reply::{OperationState, WalletReply};
use jiff::Timestamp;
use region_agent::participant::{
    self, AccountState, Booking, Decision, Known, Parameters, Recorded, StoredOperation,
    TargetChange, WalletState,
};

use super::ground::Table;

/// One wallet database.
#[derive(Debug, Clone, Default)]
pub(super) struct Ledger {
    operations: BTreeMap<OperationId, Row>,
    fences: BTreeMap<SagaId, u64>,
    balances: BTreeMap<CustomerId, Money>,
    /// What the judge reads.
    pub(super) books: Books,
}

/// Plain facts: every movement in its order, and what must never move.
#[derive(Debug, Clone, Default)]
pub(super) struct Books {
    /// Operation, customer, signed amount.
    pub(super) entries: Vec<(String, String, i64)>,
    /// Operations whose undo was answered as done while they had no entry, and the number of entries then.
    pub(super) forbidden: BTreeMap<String, usize>,
    /// What the accounts say.
    pub(super) balances: BTreeMap<String, i64>,
}

#[derive(Debug, Clone)]
struct Row {
    stored: StoredOperation,
    reverted_by: Option<OperationId>,
}

/// Wallets by number.
#[derive(Debug)]
pub(super) struct Ledgers {
    table: Table<Ledger>,
}

impl Ledgers {
    pub(super) fn new() -> Self {
        Self {
            table: Table::new(),
        }
    }

    pub(super) fn keep(&mut self, ledger: Ledger) -> u32 {
        self.table.number(format!("{ledger:?}"), ledger)
    }

    pub(super) fn get(&self, number: u32) -> &Ledger {
        self.table.get(number)
    }

    /// Executes a command: the wallet afterwards, and the answer.
    pub(super) fn execute(
        &mut self,
        ledger: u32,
        header: &CommandHeader,
        command: &WalletCommand,
        now: Timestamp,
    ) -> (u32, WalletReply) {
        let mut after = self.table.get(ledger).clone();
        let reply = after.execute(header, command, now);
        (self.keep(after), reply)
    }
}

impl Ledger {
    /// A wallet in which this customer has this much.
    pub(super) fn holding(customer: &CustomerId, money: Money) -> Self {
        let mut ledger = Self::default();
        ledger.book("opening", customer, money, money.amount_minor());
        ledger
    }

    /// The customer himself spends, if he has so much.
    pub(super) fn spend(&self, customer: &CustomerId, amount_minor: i64) -> Option<Self> {
        let money = *self.balances.get(customer)?;
        let left = money.amount_minor().checked_sub(amount_minor)?;
        let mut spent = self.clone();
        spent.book(
            "spent",
            customer,
            Money::new(left, money.currency()),
            -amount_minor,
        );
        (left >= 0).then_some(spent)
    }

    /// The highest fence that has come for a saga.
    pub(super) fn highest_fence(&self, saga: &SagaId) -> u64 {
        self.fences.get(saga).copied().unwrap_or_default()
    }

    fn book(&mut self, operation: &str, customer: &CustomerId, balance: Money, amount: i64) {
        self.balances.insert(customer.clone(), balance);
        self.books
            .balances
            .insert(customer.to_string(), balance.amount_minor());
        self.books
            .entries
            .push((operation.to_owned(), customer.to_string(), amount));
    }

    fn execute(
        &mut self,
        header: &CommandHeader,
        command: &WalletCommand,
        now: Timestamp,
    ) -> WalletReply {
        if let Some(invalid) = participant::invalid(header, command) {
            return invalid;
        }
        let mut known = Known::default();
        if let Some(saga) = &header.saga_id {
            let seen = self.fences.entry(saga.clone()).or_default();
            *seen = (*seen).max(header.fence);
            known.seen_fence = *seen;
        }
        match self.operations.get(&header.operation_id) {
            Some(row) => known.operation = Some(row.stored.clone()),
            None => self.load(&mut known, command),
        }
        let reply = match participant::decide(&known, header, command, now) {
            Decision::Repeat(reply) | Decision::Refuse(reply) => reply,
            Decision::Record(recorded) => {
                self.write(&header.operation_id, command, &recorded);
                recorded.reply
            }
        };
        if let (WalletCommand::Revert(revert), WalletReply::Applied { .. }) = (command, &reply) {
            let target = revert.target.to_string();
            let moved = self.books.entries.iter().any(|entry| entry.0 == target);
            if !moved {
                let entries = self.books.entries.len();
                self.books.forbidden.entry(target).or_insert(entries);
            }
        }
        reply
    }

    fn load(&self, known: &mut Known, command: &WalletCommand) {
        match command {
            WalletCommand::Update(update) => {
                let opens = update.movement == Movement::Credit;
                known.account = self.account(&update.customer, opens);
            }
            WalletCommand::Revert(revert) => {
                let Some(row) = self.operations.get(&revert.target) else {
                    return;
                };
                if let Parameters::Update { customer, .. } = &row.stored.parameters {
                    known.account = self.account(customer, false);
                }
                known.offset_by = row
                    .reverted_by
                    .as_ref()
                    .and_then(|by| self.operations.get(by))
                    .map(|row| row.stored.clone());
                known.target = Some(row.stored.clone());
            }
        }
    }

    fn account(&self, customer: &CustomerId, opens: bool) -> AccountState {
        let balance = self.balances.get(customer).copied();
        let wallet = if balance.is_some() || opens {
            WalletState::Open
        } else {
            WalletState::Absent
        };
        AccountState {
            wallet,
            sole_currency: None,
            balance,
        }
    }

    fn write(&mut self, id: &OperationId, command: &WalletCommand, recorded: &Recorded) {
        if let Some(booking) = &recorded.booking {
            let Booking {
                customer,
                movement,
                money,
                balance,
            } = booking;
            let amount = match movement {
                Movement::Credit => money.amount_minor(),
                Movement::Debit => -money.amount_minor(),
            };
            self.book(id.as_str(), customer, *balance, amount);
        }
        if let WalletCommand::Revert(revert) = command {
            let target = revert.target.clone();
            match recorded.target {
                TargetChange::Keep => {}
                TargetChange::Tombstone => {
                    let cancelled = WalletReply::Cancelled {
                        operation_id: target.clone(),
                    };
                    let row = row(
                        Parameters::NeverSeen,
                        OperationState::Tombstoned,
                        &cancelled,
                    );
                    self.operations.entry(target).or_insert(row);
                }
                TargetChange::MarkReverted => {
                    if let Some(row) = self.operations.get_mut(&target) {
                        row.stored.state = OperationState::Reverted;
                        row.reverted_by = Some(id.clone());
                    }
                }
            }
        }
        let row = row(
            participant::parameters(command),
            recorded.state,
            &recorded.reply,
        );
        self.operations.insert(id.clone(), row);
    }
}

fn row(parameters: Parameters, state: OperationState, reply: &WalletReply) -> Row {
    Row {
        stored: StoredOperation {
            parameters,
            state,
            reply: reply.clone(),
        },
        reverted_by: None,
    }
}

/// Operations as a set of texts, for messages.
impl std::fmt::Display for Books {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let forbidden: BTreeSet<&String> = self.forbidden.keys().collect();
        write!(
            f,
            "entries {:?}, never to move {forbidden:?}, balances {:?}",
            self.entries, self.balances
        )
    }
}
