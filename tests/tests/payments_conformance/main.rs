//! One suite for the payments of every database: the same statements run on SQLite and PostgreSQL.

mod ask;
mod moving;
mod reading;
mod taking;

use orchestrator::payments::Payments;
use orchestrator::regions::{RegionCache, Regions};
use saga_tests::postgres::Postgres;

#[tokio::test(flavor = "multi_thread")]
async fn sqlite_conforms() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("core.db");
    let url = format!("sqlite://{}?mode=rwc", path.display());
    suite(&url).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_conforms() {
    let Some(postgres) = Postgres::start_or_say_so("payments") else {
        return;
    };
    let url = postgres.create_database("core").await.expect("database");
    suite(&url).await;
}

async fn open(url: &str) -> Payments {
    let regions = ["eu", "asia"].map(|name| name.parse().expect("region"));
    let regions = Regions::new(regions, "default".parse().expect("region"));
    Payments::open(url, 8, regions, RegionCache::Off)
        .await
        .expect("payments")
}

async fn suite(url: &str) {
    let payments = open(url).await;
    taking::an_operation_happens_once(&payments).await;
    taking::one_of_many_at_once_takes_the_payment(&payments).await;
    taking::an_announced_payment_is_compared(&payments).await;
    taking::a_reference_finds_the_customer(&payments).await;
    moving::the_region_is_resolved_and_pinned(&payments).await;
    moving::a_success_after_a_failure_is_not_lost(&payments).await;
    moving::a_late_refusal_changes_nothing(&payments).await;
    moving::an_undo_that_came_first_is_met(&payments).await;
    moving::waiting_then_paid(&payments).await;
    moving::captures_and_the_whole_exclude_each_other(&payments).await;
    moving::ids_are_compared_byte_for_byte(&payments).await;
    moving::pages_have_no_gaps(&payments).await;
    moving::totals_pass_64_bits(&payments).await;
    reading::a_reader_sees_each_payment_of_a_range_once(&payments, url).await;
    reading::a_reader_changes_nothing(url).await;
    let again = open(url).await;
    let before = payments.totals().await.expect("totals");
    assert_eq!(
        again.totals().await.expect("totals"),
        before,
        "reopening keeps all"
    );
}
