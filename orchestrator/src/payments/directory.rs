//! The directory of customers and their regions.

use super::{AssignError, Payments, PaymentsError, rows};
use crate::regions::Regions;
use contracts::id::{CustomerId, Region};
use jiff::Timestamp;

impl Payments {
    /// The region of a customer: the cache, else the directory, else the default.
    ///
    /// # Errors
    /// [`PaymentsError`].
    pub async fn region_of(&self, customer: &CustomerId) -> Result<Region, PaymentsError> {
        if let Some(region) = self.cache.get(customer).await {
            return Ok(region);
        }
        let stored = rows::region(&mut *self.connection().await?, customer).await?;
        let Some(region) = stored else {
            return Ok(self.regions.default_region().clone());
        };
        if let Err(error) = self.cache.put(customer, &region).await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "region cache cannot be written; the directory will be asked again"
            );
        }
        Ok(region)
    }

    /// Says where a customer's wallet is: first in the directory, then in the cache.
    ///
    /// # Errors
    /// [`AssignError`]; repeat until it succeeds, as the cache may still hold the former region.
    pub async fn assign_region(
        &self,
        customer: &CustomerId,
        region: &Region,
        now: Timestamp,
    ) -> Result<(), AssignError> {
        if !self.regions.is_known(region) {
            return Err(AssignError::UnknownRegion(region.clone()));
        }
        let mut connection = self.connection().await.map_err(AssignError::Directory)?;
        rows::assign_region(&mut connection, customer, region, now)
            .await
            .map_err(AssignError::Directory)?;
        drop(connection);
        self.cache
            .put(customer, region)
            .await
            .map_err(|error| AssignError::Cache(Box::new(error)))
    }

    /// The configured regions.
    #[must_use]
    pub fn regions(&self) -> &Regions {
        &self.regions
    }
}
