//! Coalesces concurrent commits: natural batching, without a waiting timer.
//!
//! While one write is on its way, the next one fills. A lone commit of one message goes as a plain
//! publish (one fsync on one node); several go as one atomic batch (about six, whatever its size). When
//! a batch is refused, each of its commits is tried on its own, so that one loser does not fail others.

use std::time::Duration;

use async_nats::jetstream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::batch::{self, Message, Verdict};
use super::{CommitOutcome, SETTLE_LIMIT};

/// Commits waiting for the writer before callers wait themselves.
pub(super) const QUEUE: usize = 4096;

/// Messages in one batch; the server takes 1000.
const MAX_MESSAGES: usize = 500;

/// Bytes in one batch.
const MAX_BYTES: usize = 4 << 20;

/// First and longest pause between tries of a write without a verdict.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// One commit on its way.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) messages: Vec<Message>,
    pub(super) nonce: String,
    pub(super) done: oneshot::Sender<CommitOutcome>,
}

/// Writes until the last [`super::Store`] is gone.
pub(super) async fn run(js: jetstream::Context, mut jobs: mpsc::Receiver<Job>) {
    let mut held: Option<Job> = None;
    loop {
        let first = match held.take() {
            Some(job) => job,
            None => match jobs.recv().await {
                Some(job) => job,
                None => return,
            },
        };
        let mut batch = vec![first];
        let (mut messages, mut bytes) = size(&batch[0]);
        while let Ok(job) = jobs.try_recv() {
            let (more_messages, more_bytes) = size(&job);
            if messages + more_messages > MAX_MESSAGES || bytes + more_bytes > MAX_BYTES {
                held = Some(job);
                break;
            }
            messages += more_messages;
            bytes += more_bytes;
            batch.push(job);
        }
        write(&js, batch).await;
    }
}

fn size(job: &Job) -> (usize, usize) {
    let bytes = job
        .messages
        .iter()
        .map(|message| message.payload.len() + 512)
        .sum();
    (job.messages.len(), bytes)
}

async fn write(js: &jetstream::Context, mut jobs: Vec<Job>) {
    if jobs.len() == 1 {
        if let Some(job) = jobs.pop() {
            write_alone(js, job, Doubt::None).await;
        }
        return;
    }
    let all: Vec<Message> = jobs
        .iter()
        .flat_map(|job| job.messages.iter().cloned())
        .collect();
    let total = all.len();
    let verdict = batch::publish_batch(&js.client(), &jobs[0].nonce, all).await;
    let doubt = match verdict {
        Verdict::Stored(last) => {
            let mut sequence = last + 1 - u64::try_from(total).unwrap_or(last);
            for job in jobs {
                let revision = sequence;
                sequence += u64::try_from(job.messages.len()).unwrap_or(0);
                finish(job, CommitOutcome::Written(revision));
            }
            return;
        }
        Verdict::Conflict => Doubt::None,
        Verdict::Rejected(reason) => {
            tracing::debug!(
                reason,
                "a batch was refused; its commits are tried one by one"
            );
            Doubt::None
        }
        Verdict::Unknown(reason) => {
            tracing::warn!(
                reason,
                "a batch has no verdict; its commits are tried one by one"
            );
            Doubt::MayBeStored
        }
    };
    // One after another: a loser among them must not hold up the others' batch for ever.
    for job in jobs {
        write_alone(js, job, doubt).await;
    }
}

/// Whether an earlier try of the same write may have been stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doubt {
    None,
    MayBeStored,
}

/// Writes one commit and settles what became of it.
async fn write_alone(js: &jetstream::Context, job: Job, mut doubt: Doubt) {
    let limit = Instant::now() + SETTLE_LIMIT;
    let mut pause = FIRST_PAUSE;
    let mut tries: u32 = 0;
    loop {
        tries += 1;
        let count = u64::try_from(job.messages.len()).unwrap_or(1);
        let verdict = if let [message] = job.messages.as_slice() {
            batch::publish(js, message.clone()).await
        } else {
            // A batch id names one try; a new try needs a new one.
            batch::publish_batch(
                &js.client(),
                &format!("{}-{tries}", job.nonce),
                job.messages.clone(),
            )
            .await
        };
        match verdict {
            Verdict::Stored(last) => return finish(job, CommitOutcome::Written(last + 1 - count)),
            Verdict::Rejected(reason) => return finish(job, CommitOutcome::Rejected(reason)),
            Verdict::Conflict if doubt == Doubt::None => {
                return finish(job, CommitOutcome::Conflict);
            }
            Verdict::Conflict => {
                // The same bytes at the same revision were refused: either ours stand, or another's.
                match stored_by(js, &job).await {
                    Some(outcome) => return finish(job, outcome),
                    None => {
                        if Instant::now() >= limit {
                            let reason = "the record could not be read".to_owned();
                            return finish(job, CommitOutcome::Unknown(reason));
                        }
                    }
                }
            }
            Verdict::Unknown(reason) => {
                doubt = Doubt::MayBeStored;
                if Instant::now() >= limit {
                    return finish(job, CommitOutcome::Unknown(reason));
                }
                tracing::warn!(
                    reason,
                    tries,
                    "a commit has no verdict yet; the same bytes are written again"
                );
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Whose bytes stand: ours by the nonce, or another's. `None` when it cannot be read now.
async fn stored_by(js: &jetstream::Context, job: &Job) -> Option<CommitOutcome> {
    let record = job.messages.first()?;
    let stream = js.stream_by_subject(record.subject.as_str()).await.ok()?;
    let stream = js.get_stream_no_info(stream).await.ok()?;
    let stored = stream
        .get_last_raw_message_by_subject(&record.subject)
        .await
        .ok()?;
    let nonce = stored
        .headers
        .get(contracts::header::COMMIT_NONCE)
        .map(async_nats::HeaderValue::as_str);
    Some(if nonce == Some(job.nonce.as_str()) {
        CommitOutcome::Written(stored.sequence)
    } else {
        CommitOutcome::Conflict
    })
}

fn finish(job: Job, outcome: CommitOutcome) {
    // The one who asked may have gone; what is stored is stored.
    if job.done.send(outcome).is_err() {
        tracing::debug!("nobody waits for this commit any more");
    }
}
