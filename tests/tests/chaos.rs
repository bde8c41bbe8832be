//! Chaos with real processes. Short and of one seed here; `make chaos MINUTES=m SEED=n` for longer.

use anyhow::Result;
use saga_tests::chaos::{self, Settings};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_doubled_whatever_happens_to_the_processes_and_the_lines_between_them()
-> Result<()> {
    chaos::run(Settings::from_environment()?).await?;
    Ok(())
}
