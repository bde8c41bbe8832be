//! Drives sagas that move money across regions, on NATS JetStream.

pub mod clock;
pub mod doctor;
mod jsapi;
pub mod monitor;
pub mod partition;
pub mod saga;
pub mod setup;
pub mod site;
pub mod store;
