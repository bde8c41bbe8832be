//! Many at once: the unique key and the locks decide, at READ COMMITTED too.

use crate::stage::{Database, Stage, bytes, credit, currency, debit, kind, revert, update};
use contracts::command::{CommandHeader, Movement, WalletCommand};
use contracts::id::CustomerId;
use contracts::money::Money;
use contracts::reply::{OperationState, WalletReply};
use futures::future::join_all;
use region_agent::ledger::Ledger;
use region_agent::wallet::Wallet;
use saga_tests::postgres::Postgres;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::{Barrier, Notify};

/// Starts all commands at one instant, each in a task of its own, and gives the replies in order.
async fn at_once(
    wallet: &Wallet,
    commands: Vec<(CommandHeader, WalletCommand)>,
) -> Vec<WalletReply> {
    let start = Arc::new(Barrier::new(commands.len()));
    let tasks = commands.into_iter().map(|(header, command)| {
        let (wallet, start) = (wallet.clone(), start.clone());
        tokio::spawn(async move {
            start.wait().await;
            loop {
                let reply = wallet.execute(&header, &command).await;
                // Not executed, and safe to repeat: what any sender does.
                if !matches!(reply, WalletReply::Busy { .. }) {
                    return reply;
                }
            }
        })
    });
    join_all(tasks)
        .await
        .into_iter()
        .map(|task| task.expect("no panic"))
        .collect()
}

fn count(replies: &[WalletReply]) -> HashMap<String, usize> {
    let mut counts = HashMap::new();
    for reply in replies {
        *counts.entry(kind(reply)).or_default() += 1;
    }
    counts
}

fn counts<const N: usize>(expected: [(&str, usize); N]) -> HashMap<String, usize> {
    expected
        .into_iter()
        .map(|(kind, count)| (kind.to_owned(), count))
        .collect()
}

fn same(
    stage: &Stage,
    times: usize,
    operation: impl Fn(usize) -> String,
    command: impl Fn(usize) -> WalletCommand,
) -> Vec<(CommandHeader, WalletCommand)> {
    (0..times)
        .map(|number| (stage.header(&operation(number)), command(number)))
        .collect()
}

pub(crate) async fn identical_updates_have_one_effect(database: &Database<'_>) {
    let stage = database.stage().await;
    for round in 0..5 {
        let commands = same(&stage, 16, |_| format!("op-{round}"), |_| credit("a", 100));
        let replies = at_once(&stage.wallet, commands).await;
        for reply in &replies {
            assert_eq!(kind(reply), "applied", "{reply:?}");
            assert_eq!(bytes(reply), bytes(&replies[0]));
        }
    }
    assert_eq!(stage.balance("a").await, 500);
    stage.assert_right().await;
}

/// Two agents of one region, each with connections of its own.
pub(crate) async fn agents_share_a_ledger(database: &Database<'_>) {
    let stage = database.stage().await;
    let second = Ledger::open(&stage.url).await.expect("ledger");
    let second = Wallet::new(second, stage.clock.clone());
    for round in 0..5 {
        let commands = || same(&stage, 8, |n| format!("op-{round}-{n}"), |_| credit("a", 1));
        let (mine, other) = tokio::join!(
            at_once(&stage.wallet, commands()),
            at_once(&second, commands())
        );
        for (mine, other) in mine.iter().zip(&other) {
            assert_eq!(kind(mine), "applied", "{mine:?}");
            assert_eq!(bytes(mine), bytes(other));
        }
    }
    assert_eq!(stage.balance("a").await, 40);
    stage.assert_right().await;
    second.ledger().close().await;
}

pub(crate) async fn update_and_revert_race_to_zero(database: &Database<'_>) {
    let stage = database.stage().await;
    let (mut offset, mut tombstoned) = (0, 0);
    for round in 0..120 {
        let (operation, undo) = (format!("op-{round}"), format!("revert-op-{round}"));
        // A late duplicate of each joins the race.
        let commands = vec![
            (stage.header(&operation), credit("a", 100)),
            (stage.header(&undo), revert(&operation)),
            (stage.header(&operation), credit("a", 100)),
            (stage.header(&undo), revert(&operation)),
        ];
        let replies = at_once(&stage.wallet, commands).await;
        match (stage.state(&operation).await, kind(&replies[1]).as_str()) {
            (Some(OperationState::Reverted), "applied/offset") => {
                offset += 1;
                assert_eq!(kind(&replies[0]), "applied");
            }
            (Some(OperationState::Tombstoned), "applied/tombstoned") => {
                tombstoned += 1;
                assert_eq!(kind(&replies[0]), "cancelled");
            }
            other => panic!("{round}: {other:?}: {replies:?}"),
        }
        assert_eq!(bytes(&replies[0]), bytes(&replies[2]));
        assert_eq!(bytes(&replies[1]), bytes(&replies[3]));
        assert_eq!(stage.balance("a").await, 0, "round {round}");
    }
    eprintln!("{offset} applied then offset, {tombstoned} tombstoned");
    stage.assert_right().await;
}

pub(crate) async fn debits_never_overdraw_together(database: &Database<'_>) {
    let stage = database.stage().await;
    stage.apply("c", &credit("a", 1_000)).await;
    let debits = same(&stage, 50, |n| format!("d-{n}"), |_| debit("a", 30));
    let replies = at_once(&stage.wallet, debits).await;
    assert_eq!(
        count(&replies),
        counts([("applied", 33), ("rejected/insufficient_funds", 17)])
    );
    assert_eq!(stage.balance("a").await, 10);
    stage.assert_right().await;
}

pub(crate) async fn reverts_under_many_ids_offset_once(database: &Database<'_>) {
    let stage = database.stage().await;
    stage.apply("other", &credit("a", 10_000)).await;
    for round in 0..10 {
        let operation = format!("op-{round}");
        stage.apply(&operation, &credit("a", 100)).await;
        let reverts = same(
            &stage,
            8,
            |n| format!("r-{round}-{n}"),
            |_| revert(&operation),
        );
        let replies = at_once(&stage.wallet, reverts).await;
        assert_eq!(count(&replies), counts([("applied/offset", 8)]));
        assert_eq!(stage.balance("a").await, 10_000);
    }
    stage.assert_right().await;
}

/// Two reverts that name each other take their locks in opposite order. Nobody sends them, but
/// they must end, and move nothing.
pub(crate) async fn reverts_of_each_other_end(database: &Database<'_>) {
    let stage = database.stage().await;
    for round in 0..4 {
        let (one, two) = (format!("x-{round}"), format!("y-{round}"));
        let commands = vec![
            (stage.header(&one), revert(&two)),
            (stage.header(&two), revert(&one)),
        ];
        for reply in at_once(&stage.wallet, commands).await {
            let kind = kind(&reply);
            assert!(
                ["applied/tombstoned", "cancelled", "invalid"].contains(&kind.as_str()),
                "{reply:?}"
            );
        }
    }
    stage.assert_right().await;
}

pub(crate) async fn a_closing_wallet_lets_all_or_nothing_through(database: &Database<'_>) {
    let stage = database.stage().await;
    let customer = CustomerId::new("a").expect("customer");
    stage.apply("first", &credit("a", 1)).await;
    let credits = same(&stage, 20, |n| format!("c-{n}"), |_| credit("a", 1));
    let (replies, closed) = tokio::join!(
        at_once(&stage.wallet, credits),
        stage.ledger().close_wallet(&customer, stage.now())
    );
    closed.expect("closed");
    let applied = count(&replies).get("applied").copied().unwrap_or_default();
    let refused = count(&replies)
        .get("rejected/wallet_closed")
        .copied()
        .unwrap_or_default();
    assert_eq!(applied + refused, 20);
    let balance = stage.balance("a").await;
    assert_eq!(balance, 1 + i64::try_from(applied).expect("count"));
    stage.assert_right().await;
}

pub(crate) async fn first_movements_share_new_accounts(database: &Database<'_>) {
    let stage = database.stage().await;
    let commands = same(
        &stage,
        40,
        |n| format!("c-{n}"),
        |n| {
            let code = ["EUR", "USD", "JPY", "GBP"][n % 4];
            let customer = format!("c-{}", n / 8);
            update(
                &customer,
                Movement::Credit,
                Money::new(1, currency(code, 2)),
            )
        },
    );
    let replies = at_once(&stage.wallet, commands).await;
    assert_eq!(count(&replies), counts([("applied", 40)]));
    let stats = stage.ledger().stats().await.expect("stats");
    assert_eq!(stats.balances.len(), 20);
    assert!(stats.balances.iter().all(|b| b.balance.amount_minor() == 2));
    stage.assert_right().await;
}

pub(crate) async fn fences_hold_while_owners_change(database: &Database<'_>) {
    let stage = database.stage().await;
    let commands = (1..=30_u64)
        .map(|fence| {
            let header = stage.fenced(&format!("op-{fence}"), "s", fence);
            (header, credit("a", 1))
        })
        .collect();
    let replies = at_once(&stage.wallet, commands).await;
    assert_eq!(
        kind(&replies[29]),
        "applied",
        "the newest owner always wins"
    );
    let applied = count(&replies)["applied"];
    let stale = count(&replies).get("stale").copied().unwrap_or_default();
    assert_eq!(applied + stale, 30);
    let balance = stage.balance("a").await;
    assert_eq!(balance, i64::try_from(applied).expect("count"));
    stage.assert_right().await;
}

/// The server dies with commands in flight. No answer may claim to know what it cannot, and asking
/// again settles each operation exactly once.
pub(crate) async fn a_crash_loses_and_invents_nothing(mut postgres: Postgres) {
    let url = postgres.create_database("crash").await.expect("database");
    let clock = region_agent::clock::Clock::system();
    let ledger = Ledger::open(&url).await.expect("ledger");
    let wallet = Wallet::new(ledger, clock.clone());
    let header = |number: usize| CommandHeader {
        saga_id: None,
        operation_id: crate::stage::id(&format!("op-{number}")),
        attempt: 1,
        fence: 0,
        deadline: clock.now() + jiff::SignedDuration::from_mins(10),
    };
    let progress = Arc::new(Notify::new());
    let tasks: Vec<_> = (0..8)
        .map(|worker| {
            let (wallet, progress) = (wallet.clone(), progress.clone());
            let headers: Vec<_> = (0..200).map(|n| header(worker * 200 + n)).collect();
            tokio::spawn(async move {
                let mut replies = Vec::new();
                for (done, header) in headers.iter().enumerate() {
                    replies.push(wallet.execute(header, &credit("a", 1)).await);
                    if done == 20 {
                        progress.notify_one();
                    }
                    if kind(replies.last().expect("a reply")) != "applied" {
                        break;
                    }
                }
                replies
            })
        })
        .collect();
    progress.notified().await;
    let postgres = tokio::task::spawn_blocking(move || {
        postgres.crash().expect("crash");
        postgres
    })
    .await
    .expect("crash");
    let before: Vec<Vec<WalletReply>> = join_all(tasks)
        .await
        .into_iter()
        .map(|task| task.expect("no panic"))
        .collect();
    let mut postgres = postgres;
    let postgres = tokio::task::spawn_blocking(move || {
        postgres.restart().expect("restart");
        postgres
    })
    .await
    .expect("restart");
    let mut settled = 0;
    for (worker, replies) in before.iter().enumerate() {
        for (number, first) in replies.iter().enumerate() {
            let again = wallet
                .execute(&header(worker * 200 + number), &credit("a", 1))
                .await;
            match kind(first).as_str() {
                "applied" => assert_eq!(bytes(&again), bytes(first), "what was told stands"),
                "unavailable" | "busy" => assert_eq!(kind(&again), "applied", "{again:?}"),
                other => panic!("{other} during a crash"),
            }
            settled += 1;
        }
    }
    let stats = wallet.ledger().stats().await.expect("stats");
    assert_eq!(
        stats.standing_credits,
        u64::try_from(settled).expect("count")
    );
    assert_eq!(wallet.ledger().verify().await.expect("verify"), []);
    drop(postgres);
}
