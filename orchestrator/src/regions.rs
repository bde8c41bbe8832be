//! Which regions there are, and the cache in front of the directory of customers.
//!
//! The directory itself is in SQL ([`crate::payments::Payments::region_of`]). The KV bucket
//! `regions` (customer's key → region's name) spares a query; a failing or empty bucket costs that
//! query and nothing else.

use async_nats::jetstream::kv;
use contracts::id::{CustomerId, Region};
use std::collections::BTreeSet;

/// Name of the bucket.
pub const REGIONS_BUCKET: &str = "regions";

/// The configured regions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Regions {
    known: BTreeSet<Region>,
    default: Region,
}

/// A cache of the directory.
#[derive(Debug, Clone, Default)]
pub enum RegionCache {
    /// Ask the directory each time.
    #[default]
    Off,
    /// The KV bucket `regions`.
    Bucket(Box<kv::Store>),
}

/// The cache could not be written; the directory has been, so repeat the assignment.
#[derive(Debug, thiserror::Error)]
#[error("the bucket {REGIONS_BUCKET} did not take the region of {customer}")]
pub struct CacheError {
    /// Whose region.
    pub customer: CustomerId,
    /// Why.
    #[source]
    pub source: kv::PutError,
}

impl Regions {
    /// These regions; the default one (`default` unless configured otherwise) is always among them.
    pub fn new(known: impl IntoIterator<Item = Region>, default: Region) -> Self {
        let mut known: BTreeSet<Region> = known.into_iter().collect();
        known.insert(default.clone());
        Self { known, default }
    }

    /// Whether money can be sent there.
    #[must_use]
    pub fn is_known(&self, region: &Region) -> bool {
        self.known.contains(region)
    }

    /// The region of a customer whom nobody knows better; its wallet is in process.
    #[must_use]
    pub fn default_region(&self) -> &Region {
        &self.default
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Region> {
        self.known.iter()
    }
}

impl RegionCache {
    /// What the cache knows. A failure is a miss: the directory is asked instead.
    pub async fn get(&self, customer: &CustomerId) -> Option<Region> {
        let Self::Bucket(store) = self else {
            return None;
        };
        match store.get(customer.key()).await {
            Ok(value) => value
                .and_then(|bytes| String::from_utf8(bytes.to_vec()).ok())
                .and_then(|name| Region::new(name).ok()),
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "region cache cannot be read; asking the directory"
                );
                None
            }
        }
    }

    /// Puts what the directory says.
    ///
    /// # Errors
    /// [`CacheError`]; after an assignment, repeat it, as the cache may hold the former region.
    pub async fn put(&self, customer: &CustomerId, region: &Region) -> Result<(), CacheError> {
        let Self::Bucket(store) = self else {
            return Ok(());
        };
        store
            .put(customer.key(), region.as_str().to_owned().into())
            .await
            .map(|_revision| ())
            .map_err(|source| CacheError {
                customer: customer.clone(),
                source,
            })
    }
}
