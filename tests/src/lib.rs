//! Harness: real servers, real databases, real processes.

pub mod cluster;
pub mod nats_cli;
pub mod postgres;
