//! What a test sees of sagas: their records, read and awaited.

use crate::system::System;
use contracts::id::SagaId;
use futures::StreamExt as _;
use orchestrator::saga::record::SagaRecord;
use orchestrator::store;
use std::time::Duration;

impl System {
    /// A saga's record with its revision.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn record(&self, saga: &SagaId) -> anyhow::Result<Option<(SagaRecord, u64)>> {
        match self.records.entry(saga.key()).await? {
            None => Ok(None),
            Some(entry) => Ok(Some((decode(&entry.value)?, entry.revision))),
        }
    }

    /// All revisions of a record that are kept, oldest first.
    ///
    /// # Errors
    /// When they cannot be read.
    pub async fn history(&self, saga: &SagaId) -> anyhow::Result<Vec<SagaRecord>> {
        let mut entries = self.records.history(saga.key()).await?;
        let mut records = Vec::new();
        while let Some(entry) = entries.next().await {
            records.push(decode(&entry?.value)?);
        }
        Ok(records)
    }

    /// Waits for a revision of a saga's record that `wanted` picks.
    ///
    /// # Errors
    /// When none comes within `bound`, with the last one that came and the ends of all logs.
    pub async fn until_record(
        &mut self,
        saga: &SagaId,
        bound: Duration,
        mut wanted: impl FnMut(&SagaRecord) -> bool,
    ) -> anyhow::Result<SagaRecord> {
        let mut last = None;
        let records = self.records.clone();
        let looking = async {
            loop {
                // A watch does not outlive a restart of the server: begin it anew.
                let Ok(mut watch) = records.watch_with_history(saga.key()).await else {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                };
                while let Ok(Some(entry)) =
                    tokio::time::timeout(Duration::from_secs(2), watch.next()).await
                {
                    let Ok(entry) = entry else { break };
                    let record = decode(&entry.value)?;
                    if wanted(&record) {
                        return Ok(record);
                    }
                    last = Some(record);
                }
            }
        };
        match tokio::time::timeout(bound, looking).await {
            Ok(found) => found,
            Err(_elapsed) => {
                let seen = last.map(|record| serde_json::to_string_pretty(&record));
                let mut text = seen.transpose()?.unwrap_or_else(|| "no record".to_owned());
                for name in self.listen.keys() {
                    text.push_str(&format!("\n--- {name}\n{}", self.site.log_tail(name)));
                }
                anyhow::bail!("saga {saga} is not as awaited within {bound:?}: {text}")
            }
        }
    }

    /// Waits until a saga has ended.
    ///
    /// # Errors
    /// As [`System::until_record`].
    pub async fn until_ended(
        &mut self,
        saga: &SagaId,
        bound: Duration,
    ) -> anyhow::Result<SagaRecord> {
        self.until_record(saga, bound, |record| record.status.is_terminal())
            .await
    }
}

/// Reads a record.
///
/// # Errors
/// When it is none.
pub fn decode(value: &[u8]) -> anyhow::Result<SagaRecord> {
    store::decode(value).map_err(|reason| anyhow::anyhow!("record: {reason}"))
}
