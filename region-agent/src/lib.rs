//! Serves wallet commands beside the local wallet of one region.
//!
//! | module | kind | what |
//! |---|---|---|
//! | [`participant`] | core | decides every answer; pure |
//! | [`wallet`] | shell | one command, one transaction, one answer |
//! | [`ledger`] | adapter | operations, double entry and fences in SQLite or PostgreSQL |
//! | [`bus`] | adapter | the NATS micro service `wallet-agent` |
//! | [`nats_options`], [`settings`], [`telemetry`], [`health`] | adapter | shared with the orchestrator |
//! | [`config`], [`clock`] | | settings; the only reader of time |
//!
//! The agent is stateless beside its ledger: any number of them may serve one region, as the unique
//! key of an operation decides which of them executes it.
//! Reading order: [`participant`], its `tests.rs`, [`wallet`], [`ledger`], [`bus`].

pub mod bus;
pub mod clock;
pub mod config;
pub mod health;
pub mod ledger;
pub mod nats_options;
pub mod participant;
pub mod settings;
pub mod telemetry;
pub mod wallet;
