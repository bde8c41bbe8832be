//! Drives sagas that move money across regions, on NATS JetStream.

#[cfg(test)]
mod arbitrary;
pub mod callback;
pub mod cli;
pub mod clock;
pub mod config;
pub mod consume;
pub mod demo;
pub mod doctor;
pub mod driver;
pub mod fx;
pub mod intake;
mod jsapi;
pub mod metrics;
pub mod monitor;
pub mod participants;
pub mod partition;
pub mod payments;
pub mod reconcile;
pub mod regions;
pub mod saga;
pub mod serve;
pub mod setup;
pub mod site;
pub mod store;
pub mod telemetry;
pub mod timers;
pub mod workflows;
