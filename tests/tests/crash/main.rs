//! `kill -9` of orchestrator, agent and server at chosen moments and at random ones: each deposit ends
//! with one credit, one event and a successful payment, or with none of the three.

mod points;
mod random;
mod stops;
