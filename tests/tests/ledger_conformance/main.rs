//! One suite for every ledger: whatever the database, the answers and the books are the same.

mod answers;
mod books;
mod listing;
mod races;
mod stage;

use saga_tests::postgres::Postgres;
use stage::Database;

async fn conforms(database: &Database<'_>) {
    answers::a_repeat_gets_the_same_bytes(database).await;
    answers::other_parameters_are_named(database).await;
    answers::a_revert_offsets_once_whatever_its_id(database).await;
    answers::a_revert_of_the_unseen_forbids_it(database).await;
    answers::a_refusal_is_final_for_updates_only(database).await;
    answers::a_lower_fence_is_stale_whatever_raised_it(database).await;
    answers::nothing_starts_after_its_deadline(database).await;
    answers::wallets_close_and_keep_to_their_currency(database).await;
    answers::balances_stay_within_range(database).await;
    answers::odd_ids_are_told_apart(database).await;
    answers::a_ledger_opened_again_remembers(database).await;
    races::identical_updates_have_one_effect(database).await;
    races::agents_share_a_ledger(database).await;
    races::update_and_revert_race_to_zero(database).await;
    races::debits_never_overdraw_together(database).await;
    races::reverts_under_many_ids_offset_once(database).await;
    races::reverts_of_each_other_end(database).await;
    races::a_closing_wallet_lets_all_or_nothing_through(database).await;
    races::first_movements_share_new_accounts(database).await;
    races::fences_hold_while_owners_change(database).await;
    books::planted_errors_are_found(database).await;
    books::stats_count_what_stands(database).await;
    books::views_show_operations_and_wallets(database).await;
    listing::pages_show_each_operation_of_a_range_once(database).await;
    listing::a_page_fits_one_message(database).await;
    listing::a_wrong_range_is_named(database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sqlite_conforms() {
    let directory = tempfile::tempdir().expect("directory");
    conforms(&Database::Sqlite(directory)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn postgres_conforms() {
    if let Some(postgres) = Postgres::start_or_say_so("postgres_conforms") {
        conforms(&Database::Postgres(&postgres)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_crashing_postgres_is_never_a_refusal() {
    if let Some(postgres) = Postgres::start_or_say_so("a_crashing_postgres_is_never_a_refusal") {
        races::a_crash_loses_and_invents_nothing(postgres).await;
    }
}
