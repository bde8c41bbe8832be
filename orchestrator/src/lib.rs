//! Drives sagas that move money across regions, on NATS JetStream.

pub mod callback;
pub mod clock;
pub mod doctor;
pub mod fx;
mod jsapi;
pub mod monitor;
pub mod partition;
pub mod payments;
pub mod regions;
pub mod saga;
pub mod setup;
pub mod site;
pub mod store;
