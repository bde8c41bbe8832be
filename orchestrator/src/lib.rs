//! Drives sagas that move money across regions, on NATS JetStream.

pub mod saga;
