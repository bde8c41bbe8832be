//! Cases: what went wrong elsewhere, as data, replayed against the real thing.
//!
//! | module | what |
//! |---|---|
//! | [`case`], [`expect`] | one case: what is given, what happens, what must be so in the end |
//! | [`flows`] | workflows that only the cases have |
//! | [`world`] | real servers, real orchestrators, real wallets, shared by many cases |
//! | [`instance`] | one orchestrator that can be killed or put to sleep like a process |
//! | [`wallet`] | a region's real wallet behind faults |
//! | [`rates`] | a rate service that answers from a script |
//! | [`view`] | every record and event, as the stream has them |
//! | [`runner`] | plays the steps |
//! | [`found`] | everything that has to do with one case |
//! | [`judge`] | compares what is found with what is expected, and with what holds for every case |
//!
//! A case has providers and customers of its own, so that many cases run side by side in one world and
//! no id of a case has to be altered.

mod always;
mod body;
pub mod case;
pub mod expect;
mod faults;
pub mod flows;
pub mod found;
pub mod given;
pub mod instance;
pub mod judge;
mod moves;
pub mod rates;
pub mod runner;
mod talk;
pub mod view;
pub mod wallet;
pub mod world;
