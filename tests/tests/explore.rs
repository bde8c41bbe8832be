//! Every order of what may happen in a few small worlds; see [`saga_tests::explore`].
//!
//! `EXPLORE=large` allows more faults on a path, `EXPLORE=<n>` so many. `EXPLORE_REPLAY=<file>` goes the path
//! of a failure again.

use saga_tests::explore;

/// Looks at all of one world and tells what was seen.
#[expect(
    clippy::print_stdout,
    reason = "the numbers are the proof that all was seen"
)]
fn check(name: &str) {
    match explore::explore(name) {
        Ok(report) => println!("{report}"),
        // A planted fault is found once.
        Err(told) if std::env::var_os("PLANTED").is_some() => {
            println!("in world {name}:\n{told}");
            std::process::exit(1);
        }
        Err(told) => panic!("in world {name}:\n{told}"),
    }
}

macro_rules! worlds {
    ($($test:ident: $name:literal,)*) => {
        $(#[test] fn $test() { check($name) })*

        #[test]
        fn every_world_is_explored() {
            let mut tested = vec![$($name),*];
            let mut all = explore::names();
            tested.sort_unstable();
            all.sort_unstable();
            assert_eq!(tested, all);
        }
    };
}

worlds! {
    a_deposit_credits_once: "quiet-deposit",
    a_deposit_may_be_cancelled: "cancelled-deposit",
    a_deposit_may_be_cancelled_before_it_begins: "early-cancel",
    a_deposit_may_be_reported_twice: "repeated-deposit",
    a_deposit_may_run_out_of_time: "hurried-deposit",
    a_deposit_may_run_out_of_time_within_an_attempt: "pressed-deposit",
    a_deposit_may_be_confirmed_refused_or_forgotten: "pending-deposit",
    a_deposit_may_be_spent_before_it_is_taken_back: "spent-deposit",
    a_withdrawal_pays_out_once: "one-withdrawal",
    two_sagas_share_a_wallet: "deposit-and-withdrawal",
}

#[test]
#[expect(clippy::print_stdout, reason = "the path is what was asked for")]
fn a_kept_path_is_gone_again() {
    let Some(file) = std::env::var_os("EXPLORE_REPLAY") else {
        return;
    };
    match explore::replay(file.as_ref()) {
        Ok(told) => println!("{told}nothing is broken any more"),
        Err(told) => panic!("\n{told}"),
    }
}
