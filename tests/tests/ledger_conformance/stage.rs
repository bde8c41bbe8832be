//! A fresh ledger per case, and short words for commands.

use contracts::codec::Encoding;
use contracts::command::{
    CommandHeader, Movement, WalletCommand, WalletGet, WalletRevert, WalletUpdate,
};
use contracts::id::{CustomerId, OperationId, SagaId};
use contracts::money::{Currency, CurrencyCode, Money};
use contracts::reply::{OperationState, WalletReply, WalletView};
use jiff::{SignedDuration, Timestamp};
use region_agent::clock::Clock;
use region_agent::ledger::Ledger;
use region_agent::wallet::Wallet;
use saga_tests::postgres::Postgres;
use std::sync::atomic::{AtomicU32, Ordering};
use tempfile::TempDir;

/// Where ledgers are made.
pub(crate) enum Database<'a> {
    Sqlite(TempDir),
    Postgres(&'a Postgres),
}

/// One case's ledger.
pub(crate) struct Stage {
    pub(crate) url: String,
    pub(crate) clock: Clock,
    pub(crate) wallet: Wallet,
}

static NAMES: AtomicU32 = AtomicU32::new(0);

impl Database<'_> {
    pub(crate) async fn stage(&self) -> Stage {
        let name = format!("ledger_{}", NAMES.fetch_add(1, Ordering::Relaxed));
        let url = match self {
            Self::Sqlite(directory) => {
                format!("sqlite://{}/{name}.db", directory.path().display())
            }
            Self::Postgres(postgres) => postgres.create_database(&name).await.expect("database"),
        };
        let clock = Clock::manual("2026-01-01T00:00:00Z".parse().expect("time"));
        let ledger = Ledger::open(&url).await.expect("ledger");
        let wallet = Wallet::new(ledger, clock.clone());
        Stage { url, clock, wallet }
    }
}

impl Stage {
    pub(crate) fn ledger(&self) -> &Ledger {
        self.wallet.ledger()
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// A header that passes every check.
    pub(crate) fn header(&self, operation: &str) -> CommandHeader {
        CommandHeader {
            saga_id: None,
            operation_id: id(operation),
            attempt: 1,
            fence: 0,
            deadline: self.now() + SignedDuration::from_secs(10),
        }
    }

    /// A header of a saga with a fence.
    pub(crate) fn fenced(&self, operation: &str, saga: &str, fence: u64) -> CommandHeader {
        CommandHeader {
            saga_id: Some(SagaId::new(saga).expect("saga id")),
            fence,
            ..self.header(operation)
        }
    }

    pub(crate) async fn run(&self, operation: &str, command: &WalletCommand) -> WalletReply {
        self.wallet.execute(&self.header(operation), command).await
    }

    /// Runs a command that must be applied.
    pub(crate) async fn apply(&self, operation: &str, command: &WalletCommand) -> WalletReply {
        let reply = self.run(operation, command).await;
        assert!(
            kind(&reply).starts_with("applied"),
            "{operation}: {reply:?}"
        );
        reply
    }

    /// A customer's balance in euro cents; 0 when he has none.
    pub(crate) async fn balance(&self, customer: &str) -> i64 {
        let (balances, _) = self.wallet_view(customer).await;
        balances
            .iter()
            .find(|balance| balance.currency() == euro())
            .map_or(0, |balance| balance.amount_minor())
    }

    /// Balances and number of entries.
    pub(crate) async fn wallet_view(&self, customer: &str) -> (Vec<Money>, usize) {
        let get = WalletGet {
            customer: Some(CustomerId::new(customer).expect("customer")),
            ..WalletGet::default()
        };
        match self.wallet.get(&get).await {
            WalletView::Wallet {
                balances, entries, ..
            } => (balances, entries.len()),
            view => panic!("{view:?}"),
        }
    }

    pub(crate) async fn state(&self, operation: &str) -> Option<OperationState> {
        let get = WalletGet {
            operation_id: Some(id(operation)),
            ..WalletGet::default()
        };
        match self.wallet.get(&get).await {
            WalletView::Operation(view) => Some(view.state),
            WalletView::UnknownOperation { .. } => None,
            view => panic!("{view:?}"),
        }
    }

    /// The books are right.
    pub(crate) async fn assert_right(&self) {
        assert_eq!(self.ledger().verify().await.expect("verify"), []);
    }

    /// Changes the database behind the ledger's back.
    pub(crate) async fn plant(&self, statement: &str) {
        sqlx::any::install_default_drivers();
        let pool = sqlx::AnyPool::connect(&self.url).await.expect("database");
        sqlx::query(sqlx::AssertSqlSafe(statement.to_owned()))
            .execute(&pool)
            .await
            .expect(statement);
        pool.close().await;
    }
}

pub(crate) fn id(text: &str) -> OperationId {
    OperationId::new(text).expect("operation id")
}

pub(crate) fn euro() -> Currency {
    currency("EUR", 2)
}

pub(crate) fn currency(code: &str, exponent: u8) -> Currency {
    Currency::new(CurrencyCode::new(code).expect("code"), exponent).expect("exponent")
}

pub(crate) fn update(customer: &str, movement: Movement, money: Money) -> WalletCommand {
    WalletCommand::Update(WalletUpdate {
        customer: CustomerId::new(customer).expect("customer"),
        movement,
        money,
        memo: None,
    })
}

pub(crate) fn credit(customer: &str, minor: i64) -> WalletCommand {
    update(customer, Movement::Credit, Money::new(minor, euro()))
}

pub(crate) fn debit(customer: &str, minor: i64) -> WalletCommand {
    update(customer, Movement::Debit, Money::new(minor, euro()))
}

pub(crate) fn revert(target: &str) -> WalletCommand {
    WalletCommand::Revert(WalletRevert {
        target: id(target),
        memo: None,
    })
}

/// A reply's kind, and for refusals their code.
pub(crate) fn kind(reply: &WalletReply) -> String {
    let json: serde_json::Value = serde_json::from_slice(&bytes(reply)).expect("a reply is JSON");
    match (&json["answer"], &json["code"], &json["effect"]["effect"]) {
        (answer, serde_json::Value::Null, serde_json::Value::String(effect))
            if effect != "moved" =>
        {
            format!("{}/{effect}", answer.as_str().unwrap_or_default())
        }
        (answer, serde_json::Value::Null, _) => answer.as_str().unwrap_or_default().to_owned(),
        (answer, code, _) => format!(
            "{}/{}",
            answer.as_str().unwrap_or_default(),
            code.as_str().unwrap_or_default()
        ),
    }
}

pub(crate) fn bytes(reply: &WalletReply) -> Vec<u8> {
    Encoding::Json.encode(reply).expect("reply")
}
