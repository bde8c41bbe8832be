//! The answer table of a participant, end to end through SQL.

use crate::stage::{Database, Stage, bytes, credit, currency, debit, id, kind, revert, update};
use contracts::command::{CommandHeader, Movement};
use contracts::id::{CustomerId, MAX_EXTERNAL_ID_LEN};
use contracts::money::{CurrencyCode, Money};
use contracts::reply::{OperationState, WalletReply};
use jiff::SignedDuration;
use region_agent::ledger::{Ledger, LedgerError};
use region_agent::wallet::Wallet;

async fn check(
    stage: &Stage,
    operation: &str,
    command: contracts::command::WalletCommand,
    expected: &str,
) {
    let reply = stage.run(operation, &command).await;
    assert_eq!(
        kind(&reply),
        expected,
        "{operation}: {command:?}: {reply:?}"
    );
}

pub(crate) async fn a_repeat_gets_the_same_bytes(database: &Database<'_>) {
    let stage = database.stage().await;
    let commands = [
        ("c", credit("a", 1_000)),
        ("d", debit("a", 300)),
        ("refused", debit("a", 5_000)),
        ("r", revert("d")),
        ("tomb", revert("never")),
    ];
    let mut first = Vec::new();
    for (operation, command) in &commands {
        first.push(bytes(&stage.run(operation, command).await));
    }
    stage.apply("later", &credit("a", 77)).await;
    stage.clock.advance(SignedDuration::from_hours(24));
    for ((operation, command), first) in commands.iter().zip(&first) {
        // Late and from an old owner: what is stored is repeated all the same.
        let late = CommandHeader {
            attempt: 9,
            deadline: stage.now() - SignedDuration::from_secs(1),
            ..stage.header(operation)
        };
        let again = stage.wallet.execute(&late, command).await;
        assert_eq!(&bytes(&again), first, "{operation}");
    }
    assert_eq!(stage.balance("a").await, 1_077);
    stage.assert_right().await;
}

pub(crate) async fn other_parameters_are_named(database: &Database<'_>) {
    let stage = database.stage().await;
    stage.apply("op", &credit("a", 100)).await;
    stage.apply("r", &revert("x")).await;
    let other_decimals = update("a", Movement::Credit, Money::new(100, currency("EUR", 3)));
    for (operation, command, expected) in [
        ("op", credit("A", 100), vec!["customer"]),
        ("op", credit("a", 101), vec!["money.amount_minor"]),
        ("op", debit("a", 100), vec!["movement"]),
        ("op", other_decimals, vec!["money.exponent"]),
        ("op", revert("z"), vec!["kind"]),
        ("r", revert("X"), vec!["target"]),
        ("r", credit("a", 1), vec!["kind"]),
    ] {
        match stage.run(operation, &command).await {
            WalletReply::Conflict { fields, .. } => assert_eq!(fields, expected, "{command:?}"),
            reply => panic!("{command:?}: {reply:?}"),
        }
    }
    assert_eq!(stage.balance("a").await, 100);
    stage.assert_right().await;
}

pub(crate) async fn a_revert_offsets_once_whatever_its_id(database: &Database<'_>) {
    let stage = database.stage().await;
    stage.apply("op", &credit("a", 100)).await;
    stage.apply("more", &credit("a", 500)).await;
    check(&stage, "r-1", revert("op"), "applied/offset").await;
    check(&stage, "r-2", revert("op"), "applied/offset").await;
    check(&stage, "r-1", revert("op"), "applied/offset").await;
    assert_eq!(stage.balance("a").await, 500);
    assert_eq!(stage.wallet_view("a").await.1, 3, "both entries stay");
    assert_eq!(stage.state("op").await, Some(OperationState::Reverted));
    // The late duplicate of an update that was reverted since moves nothing again.
    check(&stage, "op", credit("a", 100), "applied").await;
    assert_eq!(stage.balance("a").await, 500);
    check(&stage, "rr", revert("r-1"), "invalid").await;
    check(&stage, "self", revert("self"), "invalid").await;
    assert_eq!(stage.state("rr").await, None);
    stage.apply("d", &debit("a", 200)).await;
    check(&stage, "r-d", revert("d"), "applied/offset").await;
    assert_eq!(stage.balance("a").await, 500);
    stage.assert_right().await;
}

pub(crate) async fn a_revert_of_the_unseen_forbids_it(database: &Database<'_>) {
    let stage = database.stage().await;
    check(&stage, "r", revert("op"), "applied/tombstoned").await;
    check(&stage, "op", credit("a", 100), "cancelled").await;
    check(&stage, "op", debit("b", 7), "cancelled").await;
    check(&stage, "r-2", revert("op"), "applied/tombstoned").await;
    assert_eq!(stage.state("op").await, Some(OperationState::Tombstoned));
    assert_eq!(stage.balance("a").await, 0);
    // A revert that is too late or refused leaves no tombstone.
    let late = CommandHeader {
        deadline: stage.now(),
        ..stage.header("r-late")
    };
    let reply = stage.wallet.execute(&late, &revert("fresh")).await;
    assert_eq!(kind(&reply), "expired");
    check(&stage, "fresh", credit("a", 5), "applied").await;
    stage.assert_right().await;
}

pub(crate) async fn a_refusal_is_final_for_updates_only(database: &Database<'_>) {
    let stage = database.stage().await;
    stage.apply("c", &credit("a", 100)).await;
    check(&stage, "d", debit("a", 101), "rejected/insufficient_funds").await;
    stage.apply("more", &credit("a", 100)).await;
    check(&stage, "d", debit("a", 101), "rejected/insufficient_funds").await;
    check(&stage, "r-d", revert("d"), "applied/tombstoned").await;
    assert_eq!(stage.state("d").await, Some(OperationState::Rejected));
    stage.apply("spent", &debit("a", 150)).await;
    check(&stage, "r-c", revert("c"), "rejected/insufficient_funds").await;
    assert_eq!(stage.state("r-c").await, None);
    assert_eq!(stage.state("c").await, Some(OperationState::Applied));
    stage.apply("back", &credit("a", 50)).await;
    check(&stage, "r-c", revert("c"), "applied/offset").await;
    assert_eq!(stage.balance("a").await, 0);
    check(
        &stage,
        "nobody",
        debit("stranger", 1),
        "rejected/insufficient_funds",
    )
    .await;
    stage.assert_right().await;
}

pub(crate) async fn a_lower_fence_is_stale_whatever_raised_it(database: &Database<'_>) {
    let stage = database.stage().await;
    let run = async |operation: &str, saga: &str, fence, command| {
        let header = stage.fenced(operation, saga, fence);
        kind(&stage.wallet.execute(&header, &command).await)
    };
    assert_eq!(run("a-1", "s", 3, credit("a", 10)).await, "applied");
    assert_eq!(run("a-2", "s", 2, credit("a", 10)).await, "stale");
    assert_eq!(run("a-2", "s", 0, credit("a", 10)).await, "stale");
    assert_eq!(run("r", "s", 2, revert("a-1")).await, "stale");
    assert_eq!(stage.state("a-2").await, None, "stale leaves the id free");
    assert_eq!(
        run("a-1", "s", 1, credit("a", 10)).await,
        "applied",
        "stored"
    );
    assert_eq!(run("a-2", "other", 1, credit("a", 10)).await, "applied");
    // Each of these was not executed, and each has announced a new owner.
    assert_eq!(
        run("a-1", "s", 4, credit("a", 10)).await,
        "applied",
        "stored"
    );
    assert_eq!(run("b-1", "s", 3, credit("a", 10)).await, "stale");
    assert_eq!(run("a-1", "s", 5, credit("a", 11)).await, "conflict");
    assert_eq!(run("b-1", "s", 4, credit("a", 10)).await, "stale");
    stage.apply("spend", &debit("a", 15)).await;
    assert_eq!(
        run("r", "s", 6, revert("a-1")).await,
        "rejected/insufficient_funds"
    );
    assert_eq!(run("b-1", "s", 5, credit("a", 10)).await, "stale");
    let late = CommandHeader {
        deadline: stage.now(),
        ..stage.fenced("late", "s", 7)
    };
    assert_eq!(
        kind(&stage.wallet.execute(&late, &credit("a", 10)).await),
        "expired"
    );
    assert_eq!(run("b-1", "s", 6, credit("a", 10)).await, "stale");
    assert_eq!(run("b-1", "s", 7, credit("a", 10)).await, "applied");
    stage.assert_right().await;
}

pub(crate) async fn nothing_starts_after_its_deadline(database: &Database<'_>) {
    let stage = database.stage().await;
    let header = stage.header("op");
    stage.clock.advance(SignedDuration::from_secs(10));
    let reply = stage.wallet.execute(&header, &credit("a", 10)).await;
    assert_eq!(kind(&reply), "expired", "at the very instant");
    assert_eq!(stage.state("op").await, None);
    check(&stage, "op", credit("a", 10), "applied").await;
    stage.assert_right().await;
}

pub(crate) async fn wallets_close_and_keep_to_their_currency(database: &Database<'_>) {
    let stage = database.stage().await;
    let customer = CustomerId::new("a").expect("customer");
    let missing = stage.ledger().close_wallet(&customer, stage.now()).await;
    assert!(matches!(missing, Err(LedgerError::NoWallet(_))));
    stage.apply("c", &credit("a", 100)).await;
    let ledger = stage.ledger();
    ledger
        .close_wallet(&customer, stage.now())
        .await
        .expect("close");
    check(&stage, "c-2", credit("a", 1), "rejected/wallet_closed").await;
    check(&stage, "r-c", revert("c"), "rejected/wallet_closed").await;
    let euro_only = Some(CurrencyCode::new("EUR").expect("code"));
    ledger
        .open_wallet(&customer, euro_only, stage.now())
        .await
        .expect("open");
    check(&stage, "c-2", credit("a", 1), "rejected/wallet_closed").await;
    let dollars = update("a", Movement::Credit, Money::new(5, currency("USD", 2)));
    check(&stage, "usd", dollars.clone(), "rejected/wrong_currency").await;
    ledger
        .open_wallet(&customer, None, stage.now())
        .await
        .expect("open");
    check(&stage, "usd-2", dollars, "applied").await;
    let other_decimals = update("a", Movement::Credit, Money::new(5, currency("USD", 3)));
    check(&stage, "usd-3", other_decimals, "rejected/wrong_currency").await;
    check(&stage, "r-c", revert("c"), "applied/offset").await;
    stage.assert_right().await;
}

pub(crate) async fn balances_stay_within_range(database: &Database<'_>) {
    let stage = database.stage().await;
    check(&stage, "max", credit("a", i64::MAX), "applied").await;
    check(&stage, "one", credit("a", 1), "rejected/balance_overflow").await;
    check(
        &stage,
        "all",
        credit("a", i64::MAX),
        "rejected/balance_overflow",
    )
    .await;
    check(&stage, "out", debit("a", i64::MAX), "applied").await;
    check(&stage, "again", credit("a", i64::MAX - 1), "applied").await;
    check(&stage, "r-out", revert("out"), "rejected/balance_overflow").await;
    for (operation, amount) in [("zero", 0), ("minus", -1), ("min", i64::MIN)] {
        check(&stage, operation, credit("a", amount), "invalid").await;
    }
    // Another customer's extremes share the clearing account, whose sum leaves i64.
    check(&stage, "b", credit("b", i64::MAX), "applied").await;
    check(&stage, "c", credit("c", i64::MAX), "applied").await;
    assert_eq!(stage.balance("a").await, i64::MAX - 1);
    assert_eq!(stage.balance("c").await, i64::MAX);
    stage.assert_right().await;
}

pub(crate) async fn odd_ids_are_told_apart(database: &Database<'_>) {
    let stage = database.stage().await;
    let longest = "x".repeat(MAX_EXTERNAL_ID_LEN);
    let almost = format!("{}y", "x".repeat(MAX_EXTERNAL_ID_LEN - 1));
    let unicode = "\u{1f600}".repeat(MAX_EXTERNAL_ID_LEN / 4);
    let customers = [
        "*", ">", ".", "a.b", "a..b", "a b", " a b", "a b ", "A B", "a", "A", "\u{e9}", "e\u{301}",
        "%", "_", "'", "\"", "\\", "\\0", "\0", "a\0b", "a\\0b", "\n", "=2A", "NULL", &longest,
        &almost, &unicode,
    ];
    let operations = [
        "*",
        ">",
        "a/b",
        "A/b",
        "a/B",
        "a.b",
        "deposit/p/%20",
        "deposit/p/%2520",
        "'",
        "\\",
        "\\0",
        "=2A",
        "%",
        "_",
    ];
    for (number, customer) in customers.iter().enumerate() {
        let amount = 1 + i64::try_from(number).expect("number");
        let operation = format!("credit/{number}");
        check(&stage, &operation, credit(customer, amount), "applied").await;
    }
    for (number, customer) in customers.iter().enumerate() {
        let amount = 1 + i64::try_from(number).expect("number");
        assert_eq!(stage.balance(customer).await, amount, "{customer:?}");
    }
    let long_operations = [longest.repeat(12), format!("{}y", &longest.repeat(12)[1..])];
    for operation in operations
        .into_iter()
        .chain(long_operations.iter().map(String::as_str))
    {
        assert_eq!(stage.state(operation).await, None, "{operation}");
        check(&stage, operation, credit("o", 1), "applied").await;
        let tombstone = id(operation).revert();
        if tombstone.as_str().len() < operation.len() + 8 && operation.len() < 1_000 {
            check(
                &stage,
                tombstone.as_str(),
                revert(operation),
                "applied/offset",
            )
            .await;
        }
    }
    let stats = stage.ledger().stats().await.expect("stats");
    for customer in customers {
        let found = stats
            .balances
            .iter()
            .filter(|balance| balance.customer.as_str() == customer)
            .count();
        assert_eq!(found, 1, "{customer:?}");
    }
    stage.assert_right().await;
}

pub(crate) async fn a_ledger_opened_again_remembers(database: &Database<'_>) {
    let stage = database.stage().await;
    let header = stage.fenced("op", "s", 4);
    let first = stage.wallet.execute(&header, &credit("a", 100)).await;
    stage.apply("r", &revert("x")).await;
    stage.ledger().close().await;
    let ledger = Ledger::open(&stage.url).await.expect("ledger");
    let wallet = Wallet::new(ledger, stage.clock.clone());
    let again = wallet.execute(&header, &credit("a", 100)).await;
    assert_eq!(bytes(&again), bytes(&first));
    let old_owner = stage.fenced("op-2", "s", 3);
    let stale = wallet.execute(&old_owner, &credit("a", 100)).await;
    assert_eq!(kind(&stale), "stale");
    let forbidden = wallet.execute(&stage.header("x"), &credit("a", 1)).await;
    assert_eq!(kind(&forbidden), "cancelled");
    assert_eq!(wallet.ledger().verify().await.expect("verify"), []);
}
