//! What crosses a process boundary, and nothing else.
//!
//! | who | says | to whom | where |
//! |---|---|---|---|
//! | callback gateway | a provider's raw callback | orchestrator | `billing.callback.<provider>.<event id>[.<digest>]` |
//! | anyone allowed | start, signal, operator request | orchestrator | `billing.start.…`, `billing.signal.…`, `billing.operator.…` |
//! | orchestrator | [`command`] | region agent | `billing.<region>.wallet.<update\|revert\|get>` |
//! | region agent | [`reply`] | orchestrator | the orchestrator's own reply subject |
//! | orchestrator | [`quote::RateRequest`] | rate source | `billing.core.fx.quote` |
//! | orchestrator | [`event`] | everybody else | `billing.event.<region>.<saga key>.<event>` |
//! | orchestrator | [`audit`] of operators' requests | people, auditors | `billing.audit.<saga key>.<request id>.<digest>` |
//!
//! Serialisable means promised: a type here keeps its shape, new fields are optional, and
//! `tests/golden/` holds one stored byte file per message so that a slip is noticed.
//! Reading order: [`id`], [`key`], [`money`], [`command`], [`reply`], [`subject`], [`header`], [`codec`].

pub mod audit;
pub mod codec;
pub mod command;
pub mod event;
pub mod header;
pub mod id;
pub mod intake;
pub mod key;
pub mod money;
pub mod quote;
pub mod reply;
pub mod subject;
