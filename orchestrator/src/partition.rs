//! Names of what is stored: every stream, bucket and consumer name comes from a [`Partition`].

/// One partition of the state store: one stream with its bucket, events, timers and consumers, beside
/// the intake and the copies for other teams. There is one today; later ones are chosen by a stable
/// hash of the saga key, so no caller assumes one stream, one writer, or an order between two sagas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    replicas: u8,
}

impl Partition {
    /// The only partition there is, with that many copies of everything (1 or 3).
    #[must_use]
    pub fn only(replicas: u8) -> Self {
        Self { replicas }
    }

    /// How many servers hold a copy.
    #[must_use]
    pub fn replicas(&self) -> u8 {
        self.replicas
    }

    /// The key-value bucket of the saga records.
    #[must_use]
    pub fn bucket(&self) -> &str {
        "saga"
    }

    /// The stream under that bucket, which holds events and timers as well.
    #[must_use]
    pub fn state_stream(&self) -> &str {
        "KV_saga"
    }

    /// The subject of a saga's record.
    #[must_use]
    pub fn record_subject(&self, saga_key: &str) -> String {
        format!("$KV.saga.{saga_key}")
    }

    /// The consumer of fired timers, on [`Self::state_stream`].
    #[must_use]
    pub fn timers_consumer(&self) -> &str {
        "timers"
    }

    /// The stream other teams consume events from.
    #[must_use]
    pub fn events_stream(&self) -> &str {
        "BILLING_EVENTS"
    }

    /// The stream that keeps what became of operators' requests.
    #[must_use]
    pub fn audit_stream(&self) -> &str {
        "BILLING_AUDIT"
    }

    /// The stream callbacks, starts, signals and operators' requests are stored in.
    #[must_use]
    pub fn intake_stream(&self) -> &str {
        "BILLING_INTAKE"
    }

    /// The consumer shared by all orchestrators, on [`Self::intake_stream`].
    #[must_use]
    pub fn intake_consumer(&self) -> &str {
        "orchestrator"
    }

    /// The bucket that caches which region a customer belongs to.
    #[must_use]
    pub fn regions_bucket(&self) -> &str {
        "regions"
    }

    /// The stream under [`Self::regions_bucket`].
    #[must_use]
    pub fn regions_stream(&self) -> &str {
        "KV_regions"
    }
}

impl Default for Partition {
    fn default() -> Self {
        Self::only(1)
    }
}
