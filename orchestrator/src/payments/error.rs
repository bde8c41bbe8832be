//! Why a call of [`super::Payments`] has no answer.

use crate::regions::CacheError;
use contracts::id::{OperationId, Region};

/// Why a call has no answer. Unless it [is definite](Self::is_definite), ask again with the same
/// operation id: whether the change happened is not known.
#[derive(Debug, thiserror::Error)]
pub enum PaymentsError {
    /// The database did not answer, or not as expected.
    #[error("payments database, {doing}")]
    Database {
        /// What was tried.
        doing: &'static str,
        /// Why.
        #[source]
        source: sqlx::Error,
    },
    /// The schema could not be brought up to date.
    #[error("payments database, applying migrations")]
    Migrate(#[source] sqlx::migrate::MigrateError),
    /// The address is of no database we know.
    #[error("database address {0:?}: use sqlite://<path> or postgres://…")]
    Address(String),
    /// The operation id is known with other parameters; nothing changed.
    #[error("operation {operation_id} was carried out with other parameters")]
    Conflict {
        /// Which.
        operation_id: OperationId,
    },
    /// A stored value is not what this program writes.
    #[error("payments database holds {what}: {message}")]
    Corrupt {
        /// Where.
        what: &'static str,
        /// What is wrong.
        message: String,
    },
    /// Others kept changing the same payment; ask again.
    #[error("the payment kept changing under this operation")]
    Contended,
}

/// Why a customer's region was not assigned everywhere.
#[derive(Debug, thiserror::Error)]
pub enum AssignError {
    /// Not configured.
    #[error("region {0} is not configured")]
    UnknownRegion(Region),
    /// The directory did not take it; the cache is unchanged.
    #[error("the directory did not take the region")]
    Directory(#[source] PaymentsError),
    /// The directory has it, the cache perhaps the former one.
    #[error("the directory has the region, the cache has not")]
    Cache(#[source] Box<CacheError>),
}

impl PaymentsError {
    /// Whether asking again cannot help.
    #[must_use]
    pub fn is_definite(&self) -> bool {
        match self {
            Self::Conflict { .. } | Self::Address(_) | Self::Corrupt { .. } => true,
            Self::Database { .. } | Self::Migrate(_) | Self::Contended => false,
        }
    }
}

/// The error of a statement, with what it was for.
pub(super) fn failed(doing: &'static str) -> impl FnOnce(sqlx::Error) -> PaymentsError {
    move |source| PaymentsError::Database { doing, source }
}
