//! What holds of every id, sum and message, whatever its content.
//!
//! `PROPTEST_CASES=100000 cargo test -p contracts --test properties` looks longer; a case that fails is kept
//! in `proptest-regressions/` and tried first from then on.

mod ids;
mod messages;
mod money;
mod shapes;
