//! The state before a case.

use super::case::Amounts;
use contracts::money::CurrencyCode;
use orchestrator::callback::ProviderProfile;
use serde::Deserialize;
use std::collections::BTreeMap;

/// The state before a case.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Given {
    /// Balances by customer.
    pub wallets: BTreeMap<String, Amounts>,
    /// Regions by customer, for the directory; a name that ends in `*` stands for the generated ones.
    pub regions: BTreeMap<String, String>,
    /// Payments announced before any callback, by external id.
    pub payments: BTreeMap<String, Announced>,
    /// Providers that are read in a way of their own.
    pub providers: BTreeMap<String, ProviderProfile>,
    /// Currencies beyond ISO 4217, with their decimals.
    pub currencies: BTreeMap<CurrencyCode, u8>,
    /// What the rate service answers, one after another (`error` for none); the last one stays.
    pub fx: BTreeMap<String, Vec<String>>,
    /// Orchestrators; one when absent.
    pub instances: Option<usize>,
    /// Wallet instances of region eu.
    pub wallet_responders: Option<usize>,
    /// Whether they share a queue group, as they do unless it says no.
    pub queue_group: Option<bool>,
    /// Seconds that the clocks of instances are ahead, by name; below zero when behind.
    pub clocks: BTreeMap<String, i64>,
    /// What the orchestrators are built with, see [`super::flows::build`]; version 1 when absent.
    pub build: Option<String>,
    /// The world's limit, repeated so that the case says it all.
    pub max_ack_pending: Option<u64>,
    /// The world's time until a redelivery, likewise.
    pub ack_wait_ms: Option<u64>,
    /// The world's copies, likewise.
    pub replicas: Option<u8>,
}

/// A payment announced by the platform.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Announced {
    /// Decimal text.
    pub amount: String,
    /// Its currency.
    pub currency: String,
    /// Who will pay.
    pub customer: String,
}
