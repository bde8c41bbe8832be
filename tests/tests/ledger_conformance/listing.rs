//! The operations of a range of time, a page at a time.

use crate::stage::{Database, Stage, credit, debit, id, revert};
use contracts::codec::Encoding;
use contracts::command::{OperationRange, WalletGet};
use contracts::id::OperationId;
use contracts::reply::{OperationState, OperationView, WalletReply, WalletView};
use jiff::{SignedDuration, Timestamp};

fn range(since: Timestamp, until: Timestamp) -> OperationRange {
    OperationRange {
        since,
        until,
        after: None,
        limit: None,
    }
}

async fn view(stage: &Stage, range: &OperationRange) -> WalletView {
    let get = WalletGet {
        operations: Some(range.clone()),
        ..WalletGet::default()
    };
    stage.wallet.get(&get).await
}

/// All pages, and how many there were.
async fn pages(stage: &Stage, mut range: OperationRange) -> (Vec<OperationView>, usize) {
    let (mut all, mut count) = (Vec::new(), 0);
    loop {
        let WalletView::Operations { operations, next } = view(stage, &range).await else {
            panic!("{range:?} has no page");
        };
        count += 1;
        all.extend(operations);
        if next.is_none() {
            return (all, count);
        }
        range.after = next;
    }
}

fn ids(operations: &[OperationView]) -> Vec<&str> {
    let ids = operations.iter().map(|view| view.operation_id.as_str());
    ids.collect()
}

pub(crate) async fn pages_show_each_operation_of_a_range_once(database: &Database<'_>) {
    let stage = database.stage().await;
    let (since, second) = (stage.now(), SignedDuration::from_secs(1));
    // Five at one instant: their keys decide, and no page border loses or repeats one.
    for operation in ["e", "a.b", "c", "A", "d"] {
        stage.apply(operation, &credit("a", 100)).await;
    }
    stage.clock.advance(second);
    let later = stage.now();
    let header = stage.fenced("f", "deposit/p/1", 3);
    stage.wallet.execute(&header, &credit("b", 50)).await;
    stage.apply("revert-e", &revert("e")).await;
    stage.apply("revert-unseen", &revert("unseen")).await;
    stage.run("refused", &debit("a", 9_999)).await;
    stage.clock.advance(second);
    let end = stage.now();
    stage.apply("outside", &credit("a", 1)).await;

    let (whole, count) = pages(&stage, range(since, end)).await;
    assert_eq!(count, 1);
    let first = ["A", "a.b", "c", "d", "e"];
    let then = ["f", "refused", "revert-e", "revert-unseen", "unseen"];
    assert_eq!(ids(&whole), [&first[..], &then[..]].concat());
    for limit in 1..=4 {
        let limited = OperationRange {
            limit: Some(limit),
            ..range(since, end)
        };
        let (paged, count) = pages(&stage, limited).await;
        assert_eq!(paged, whole, "pages of {limit}");
        assert_eq!(
            count,
            10_usize.div_ceil(usize::try_from(limit).expect("small"))
        );
    }
    // From the first instant on, and before the last one.
    let (early, _) = pages(&stage, range(since, later)).await;
    assert_eq!(ids(&early), first);
    let (late, _) = pages(&stage, range(later, end + second)).await;
    assert_eq!(ids(&late), [&then[..], &["outside"]].concat());

    let found = |name: &str| whole.iter().find(|view| view.operation_id == id(name));
    let f = found("f").expect("listed");
    assert_eq!(f.saga_id, header.saga_id);
    assert_eq!((f.fence, f.created_at), (3, later));
    let state = |name: &str| found(name).map(|view| view.state);
    assert_eq!(state("e"), Some(OperationState::Reverted));
    assert_eq!(state("unseen"), Some(OperationState::Tombstoned));
    assert_eq!(state("refused"), Some(OperationState::Rejected));
    assert!(
        matches!(
            found("revert-e").map(|view| &view.reply),
            Some(WalletReply::Applied { .. })
        ),
        "{whole:?}"
    );
}

pub(crate) async fn a_page_fits_one_message(database: &Database<'_>) {
    let stage = database.stage().await;
    let (since, count) = (stage.now(), 120);
    for number in 0..count {
        let operation = format!("{number}-{}", "x".repeat(8_000));
        stage.apply(&operation, &credit("a", 1)).await;
    }
    stage.clock.advance(SignedDuration::from_secs(1));
    let mut range = range(since, stage.now());
    let mut seen: Vec<OperationId> = Vec::new();
    loop {
        let page = view(&stage, &range).await;
        for encoding in [Encoding::Json, Encoding::MessagePack] {
            let len = encoding.encode(&page).expect("encodes").len();
            assert!(len < 1024 * 1024, "{len} bytes");
        }
        let WalletView::Operations { operations, next } = page else {
            panic!("{page:?}");
        };
        assert!(!operations.is_empty());
        seen.extend(operations.into_iter().map(|view| view.operation_id));
        range.after = next;
        if range.after.is_none() {
            break;
        }
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), count);
}

pub(crate) async fn a_wrong_range_is_named(database: &Database<'_>) {
    let stage = database.stage().await;
    let now = stage.now();
    for (after, limit, field) in [
        (None, Some(0), "operations.limit"),
        (
            None,
            Some(OperationRange::MAX_LIMIT + 1),
            "operations.limit",
        ),
        (Some("somewhere"), None, "operations.after"),
        (Some("2026-01-01T00:00:00Z/a\0b"), None, "operations.after"),
    ] {
        let wrong = OperationRange {
            after: after.map(str::to_owned),
            limit,
            ..range(now, now)
        };
        match view(&stage, &wrong).await {
            WalletView::Invalid { field: named, .. } => assert_eq!(named, field),
            view => panic!("{wrong:?}: {view:?}"),
        }
    }
}
