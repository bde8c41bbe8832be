//! Movements that a person books beside the wallet, by the same rules as an agent: once for each operation
//! id, as balanced entries, with the reason in the memo. For what `orchestrator reconcile` names and no saga
//! can mend.

use contracts::command::{CommandHeader, Movement, WalletCommand, WalletRevert, WalletUpdate};
use contracts::id::{CustomerId, OperationId};
use contracts::money::{Currency, CurrencyCode, Money};
use contracts::reply::WalletReply;
use region_agent::clock::Clock;
use region_agent::ledger::Ledger;
use region_agent::wallet::{self, Wallet};
use std::io::Write as _;
use std::process::ExitCode;

/// Flags of `wallet book`.
#[derive(clap::Args)]
pub(super) struct Book {
    /// The operation's id; the same id again books nothing
    operation: OperationId,
    /// The customer's id
    customer: CustomerId,
    /// credit (into the wallet) or debit (out of it)
    #[arg(value_parser = movement)]
    movement: Movement,
    /// How much, such as 12.50
    amount: String,
    /// The currency's code, such as EUR
    currency: CurrencyCode,
    /// Decimals of the currency, where they are not those of ISO 4217
    #[arg(long, value_name = "N")]
    decimals: Option<u8>,
    /// Why; kept beside the operation
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

/// Flags of `wallet revert`.
#[derive(clap::Args)]
pub(super) struct Revert {
    /// The operation to offset
    operation: OperationId,
    /// Why; kept beside the operation
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

fn movement(text: &str) -> Result<Movement, &'static str> {
    match text {
        "credit" => Ok(Movement::Credit),
        "debit" => Ok(Movement::Debit),
        _ => Err("credit (into the wallet) or debit (out of it)"),
    }
}

pub(super) async fn book(
    ledger: &Ledger,
    clock: &Clock,
    command: Book,
) -> anyhow::Result<ExitCode> {
    let currency = match command.decimals {
        Some(decimals) => Currency::new(command.currency, decimals)?,
        None => Currency::iso(command.currency)?,
    };
    let update = WalletCommand::Update(WalletUpdate {
        customer: command.customer,
        movement: command.movement,
        money: Money::parse(&command.amount, currency)?,
        memo: Some(command.reason),
    });
    execute(ledger, clock, command.operation, &update).await
}

pub(super) async fn revert(
    ledger: &Ledger,
    clock: &Clock,
    command: Revert,
) -> anyhow::Result<ExitCode> {
    let revert = WalletCommand::Revert(WalletRevert {
        target: command.operation.clone(),
        memo: Some(command.reason),
    });
    execute(ledger, clock, command.operation.revert(), &revert).await
}

async fn execute(
    ledger: &Ledger,
    clock: &Clock,
    operation_id: OperationId,
    command: &WalletCommand,
) -> anyhow::Result<ExitCode> {
    let wallet = Wallet::new(ledger.clone(), clock.clone());
    // No saga is named: its fence is for its owners alone to raise.
    let header = CommandHeader {
        saga_id: None,
        operation_id,
        attempt: 1,
        fence: 0,
        deadline: wallet::default_deadline(clock.now()),
    };
    let reply = wallet.execute(&header, command).await;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string_pretty(&reply)?)?;
    Ok(match reply {
        WalletReply::Applied { .. } => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}
