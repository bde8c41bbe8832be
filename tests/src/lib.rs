//! Harness: real servers, real databases, real processes.

pub mod audit;
pub mod cases;
pub mod chaos;
pub mod cluster;
pub mod deposit;
pub mod explore;
pub mod http;
pub mod judge;
pub mod load;
pub mod nats_cli;
pub mod observe;
pub mod otlp;
pub mod payments_lock;
pub mod person;
pub mod planted;
pub mod postgres;
pub mod reconcile;
pub mod sender;
pub mod sim;
pub mod system;
