//! Reading by time, without the right to write.

use crate::ask::*;
use jiff::{SignedDuration, Timestamp};
use orchestrator::payments::{PAGE, Payments};
use orchestrator::regions::Regions;
use std::collections::BTreeSet;

async fn reader(url: &str) -> Payments {
    let regions = Regions::new([], "default".parse().expect("region"));
    Payments::open_to_read(url, regions)
        .await
        .expect("payments")
}

pub(crate) async fn a_reader_sees_each_payment_of_a_range_once(payments: &Payments, url: &str) {
    let since: Timestamp = "2026-12-01T00:00:00Z".parse().expect("time");
    let until = since + SignedDuration::from_secs(10);
    // More than a page, many at one instant, and times with no, few and many decimals.
    let steps = [0, 1, 500_000_000, 500_000_001, 999_999_999];
    let mut expected = BTreeSet::new();
    for number in 0..PAGE + 55 {
        let nanoseconds = steps[usize::try_from(number).expect("small") % steps.len()];
        let at = since + SignedDuration::new(i64::from(number % 9), nanoseconds);
        let fact = paid(&fresh("read"));
        let answer = payments
            .find_or_create(&operation(), &saga(&fresh("s")), &fact, at)
            .await;
        answer.expect("answer");
        let payment = payments
            .get(&fact.payment)
            .await
            .expect("answer")
            .expect("payment");
        assert_eq!(payment.created_at, at);
        expected.insert(payment.payment_id);
    }
    for outside in [
        since - SignedDuration::from_secs(1),
        until + SignedDuration::from_secs(1),
    ] {
        let fact = paid(&fresh("outside"));
        let answer = payments
            .find_or_create(&operation(), &saga(&fresh("s")), &fact, outside)
            .await;
        answer.expect("answer");
    }
    let reader = reader(url).await;
    let (mut seen, mut after, mut pages) = (Vec::new(), None, 0);
    loop {
        let page = reader
            .page_of_time(since, until, after.as_ref())
            .await
            .expect("page");
        pages += 1;
        for payment in page.payments {
            let again = reader.by_id(&payment.payment_id).await.expect("answer");
            assert_eq!(again.as_ref(), Some(&payment));
            seen.push(payment.payment_id);
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(pages, 2);
    assert_eq!(seen.len(), expected.len());
    assert_eq!(BTreeSet::from_iter(seen), expected);
    assert_eq!(reader.by_id("pay_none").await.expect("answer"), None);
    reader.close().await;
}

pub(crate) async fn a_reader_changes_nothing(url: &str) {
    let reader = reader(url).await;
    let fact = paid(&fresh("never"));
    let answer = reader
        .find_or_create(&operation(), &saga(&fresh("s")), &fact, NOW)
        .await;
    assert!(answer.is_err(), "{answer:?}");
    assert_eq!(reader.get(&fact.payment).await.expect("answer"), None);
    reader.close().await;
}
