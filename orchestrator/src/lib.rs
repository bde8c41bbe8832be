//! Drives sagas that move money across regions, on NATS JetStream.

pub mod clock;
pub mod saga;
pub mod store;
