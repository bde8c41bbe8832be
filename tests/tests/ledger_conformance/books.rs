//! The books: what `verify` finds, what `stats` counts, what `get` shows.

use crate::stage::{Database, Stage, credit, debit, id, revert};
use contracts::command::{CommandHeader, Movement, WalletCommand, WalletGet, WalletUpdate};
use contracts::id::CustomerId;
use contracts::reply::{OperationState, WalletView};
use jiff::SignedDuration;

/// A few movements of every kind, with right books.
async fn booked(database: &Database<'_>) -> Stage {
    let stage = database.stage().await;
    stage.apply("c", &credit("a", 1_000)).await;
    stage.apply("d", &debit("a", 300)).await;
    stage.apply("e", &credit("b", 50)).await;
    stage.apply("r-e", &revert("e")).await;
    stage.apply("r-e-2", &revert("e")).await;
    stage.apply("r-x", &revert("x")).await;
    stage.run("refused", &debit("a", 9_999)).await;
    stage.assert_right().await;
    stage
}

pub(crate) async fn planted_errors_are_found(database: &Database<'_>) {
    for (plant, expected) in [
        (
            "UPDATE accounts SET balance_minor = balance_minor + 1 WHERE owner_key = 'a'",
            vec!["customer a: balance 701 EUR, entries sum to 700"],
        ),
        (
            "UPDATE entries SET amount_minor = amount_minor + 1 \
             WHERE operation_key = 'd' AND amount_minor > 0",
            vec!["operation d: entries in EUR sum to 1, not 0"],
        ),
        (
            "DELETE FROM entries WHERE operation_key = 'd'",
            vec![
                "customer a: balance 700 EUR, entries sum to 1000",
                "operation d (update, applied): 0 entries, not 2",
            ],
        ),
        (
            "UPDATE operations SET state = 'applied', reverted_by = NULL WHERE operation_key = 'e'",
            vec![
                "operation r-e (revert, applied): 2 entries, not 0",
                "operation e: offset by an operation that did not revert it",
            ],
        ),
        (
            "UPDATE entries SET reverses_key = NULL WHERE operation_key = 'r-e'",
            vec!["operation e: reverted, but not offset entry by entry"],
        ),
        (
            "UPDATE operations SET state = 'claimed', reply = NULL WHERE operation_key = 'refused'",
            vec!["operation refused: left claimed"],
        ),
        (
            "UPDATE entries SET account_id = 4711 WHERE operation_key = 'e' AND amount_minor < 0",
            vec![
                "operation e: entries in EUR sum to 50, not 0",
                "operation e: reverted, but not offset entry by entry",
                "of operation e: on no account",
            ],
        ),
    ] {
        let stage = booked(database).await;
        stage.plant(plant).await;
        let found = stage.ledger().verify().await.expect("verify");
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), expected.len(), "{plant}: {found:#?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.contains(expected), "{plant}: {found}");
        }
    }
}

pub(crate) async fn stats_count_what_stands(database: &Database<'_>) {
    let stage = booked(database).await;
    let stats = stage.ledger().stats().await.expect("stats");
    assert_eq!(stats.standing_credits, 1);
    assert_eq!(stats.standing_debits, 1);
    assert_eq!(stats.reverted, 1);
    assert_eq!(stats.rejected, 1);
    assert_eq!(stats.tombstones, 1);
    let balances: Vec<String> = stats
        .balances
        .iter()
        .map(|of| format!("{} {}", of.customer, of.balance))
        .collect();
    assert_eq!(balances, ["a 7.00 EUR", "b 0.00 EUR"]);
}

pub(crate) async fn views_show_operations_and_wallets(database: &Database<'_>) {
    let stage = database.stage().await;
    let header = CommandHeader {
        attempt: 3,
        ..stage.fenced("op", "deposit/p/1", 7)
    };
    let WalletCommand::Update(update) = credit("a", 1_000) else {
        panic!("an update")
    };
    let command = WalletCommand::Update(WalletUpdate {
        memo: Some("from \0 me".to_owned()),
        ..update
    });
    let reply = stage.wallet.execute(&header, &command).await;
    let created_at = stage.now();
    stage.clock.advance(SignedDuration::from_secs(1));
    stage.apply("revert-op", &revert("op")).await;
    let get = |operation: &str| WalletGet {
        operation_id: Some(id(operation)),
        ..WalletGet::default()
    };
    match stage.wallet.get(&get("op")).await {
        WalletView::Operation(view) => {
            assert_eq!(view.operation_id, id("op"));
            assert_eq!(view.saga_id, header.saga_id);
            assert_eq!(view.kind, "update");
            assert_eq!(view.state, OperationState::Reverted);
            assert_eq!(view.fence, 7);
            assert_eq!(view.created_at, created_at);
            assert_eq!(view.reply, reply);
        }
        view => panic!("{view:?}"),
    }
    let unknown = stage.wallet.get(&get("nothing")).await;
    assert!(matches!(unknown, WalletView::UnknownOperation { .. }));
    let customer = Some(CustomerId::new("a").expect("customer"));
    for bad in [
        WalletGet::default(),
        WalletGet {
            customer: customer.clone(),
            ..get("op")
        },
    ] {
        let view = stage.wallet.get(&bad).await;
        assert!(matches!(view, WalletView::Invalid { .. }), "{view:?}");
    }
    for number in 0..120 {
        stage.apply(&format!("c-{number}"), &credit("a", 1)).await;
    }
    let get = WalletGet {
        customer,
        ..WalletGet::default()
    };
    match stage.wallet.get(&get).await {
        WalletView::Wallet {
            balances, entries, ..
        } => {
            assert_eq!(balances.len(), 1);
            assert_eq!(balances[0].amount_minor(), 120);
            assert_eq!(entries.len(), 100);
            assert_eq!(entries[0].operation_id, id("c-119"));
            assert_eq!(entries[0].movement, Movement::Credit);
        }
        view => panic!("{view:?}"),
    }
}
