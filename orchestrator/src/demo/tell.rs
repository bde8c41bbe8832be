//! Tells the story: posts callbacks as the gateway does, speaks to sagas as an operator does, and
//! follows the records until each act is over.

use super::DemoError;
use super::callbacks::{money, post};
use super::expected::{Expected, saga_id};
use super::found::Told;
use super::progress::Progress;
use super::story::{self, Act, Deposit, Psp, Telling};
use super::system::System;
use crate::clock::wall_clock;
use crate::partition::Partition;
use crate::saga::CASE_WORKFLOW;
use crate::saga::record::{SagaRecord, Status};
use crate::serve;
use crate::workflows::deposit::PSP_CALLBACK;
use async_nats::client::RequestErrorKind;
use async_nats::jetstream::kv;
use async_nats::{Client, HeaderMap};
use contracts::header;
use contracts::id::{Provider, SagaId, StepName};
use contracts::intake::Signal;
use contracts::subject;
use futures::StreamExt as _;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// Longest wait for an act to be over.
const ACT: Duration = Duration::from_secs(60);
/// How often the processes are looked at meanwhile.
const LOOK: Duration = Duration::from_millis(200);
/// Longest wait for the intake to store a message.
const STORED: Duration = Duration::from_secs(20);
/// Pause before a message that reached nobody is sent again.
const AGAIN: Duration = Duration::from_millis(200);
/// How often that is done.
const ATTEMPTS: u32 = 25;
/// The server's word for "this subject has its message": the same callback came before.
const REPEAT: u64 = 10077;

/// The records of the state store as they change.
pub(super) struct Records {
    changes: kv::Watch,
    pub(super) known: BTreeMap<String, SagaRecord>,
}

impl Records {
    /// Follows every record from now on, those there are first.
    ///
    /// # Errors
    /// [`DemoError::Watch`].
    pub(super) async fn follow(operator: &Client) -> Result<Self, DemoError> {
        let watch = |error: &dyn std::fmt::Display| DemoError::Watch(error.to_string());
        let changes = serve::context(operator)
            .get_key_value(Partition::default().bucket())
            .await
            .map_err(|error| watch(&error))?
            .watch_with_history(">")
            .await
            .map_err(|error| watch(&error))?;
        Ok(Self {
            changes,
            known: BTreeMap::new(),
        })
    }

    async fn next(&mut self) -> Result<(), DemoError> {
        let watch = |error: &dyn std::fmt::Display| DemoError::Watch(error.to_string());
        match self.changes.next().await {
            Some(Ok(entry)) => {
                let record = serde_json::from_slice(&entry.value).map_err(|error| watch(&error))?;
                self.known.insert(entry.key, record);
                Ok(())
            }
            Some(Err(error)) => Err(watch(&error)),
            None => Err(DemoError::Watch("the watch has ended".to_owned())),
        }
    }

    /// Follows until `reached` holds; gives up after a bound, and leaves the verdict to the checks.
    /// A process that has ended by itself is told at once.
    async fn until(
        &mut self,
        system: &mut System,
        progress: &Progress,
        reached: impl Fn(&BTreeMap<String, SagaRecord>) -> bool,
    ) -> Result<(), DemoError> {
        let mut look = tokio::time::interval(LOOK);
        let following = async {
            while !reached(&self.known) {
                tokio::select! {
                    next = self.next() => next?,
                    _ = look.tick() => system.must_run()?,
                }
                progress.sagas(&self.known);
            }
            Ok(())
        };
        match tokio::time::timeout(ACT, following).await {
            Ok(followed) => followed,
            Err(_elapsed) => Ok(()),
        }
    }
}

/// Tells all acts, each when the one before is over.
///
/// # Errors
/// [`DemoError`] when something could not be told; what came of it is for the checks.
pub(super) async fn tell(
    system: &mut System,
    expected: &Expected,
    progress: &Progress,
) -> Result<(Told, Records), DemoError> {
    let mut told = Told::default();
    let mut records = Records::follow(&system.operator).await?;
    progress.track(expected.sagas().len() + expected.cases);
    let after = [expected.sagas_after_first_act(), expected.sagas()];
    let known_facts = [0, expected.known_facts];
    for ((act, sagas), known_facts) in story::ACTS.iter().zip(&after).zip(known_facts) {
        progress.step(act.title);
        tell_act(system, act, &mut told).await?;
        records
            .until(system, progress, |known| {
                is_reached(known, sagas, expected.cases, known_facts)
            })
            .await?;
    }
    Ok((told, records))
}

fn is_reached(
    known: &BTreeMap<String, SagaRecord>,
    sagas: &BTreeMap<SagaId, Status>,
    cases: usize,
    known_facts: u64,
) -> bool {
    sagas.iter().all(|(saga_id, status)| {
        known
            .get(&saga_id.key())
            .is_some_and(|record| record.status == *status)
    }) && known
        .values()
        .filter(|record| record.workflow == CASE_WORKFLOW)
        .count()
        >= cases
        && known.values().map(|record| record.duplicates).sum::<u64>() >= known_facts
}

async fn tell_act(system: &System, act: &Act, told: &mut Told) -> Result<(), DemoError> {
    for telling in act.tellings {
        match telling {
            Telling::Callback(event_id, notices) => {
                let post = post(event_id, notices, wall_clock())?;
                let mut headers = HeaderMap::new();
                headers.insert(header::CONTENT_TYPE, "application/json");
                if let Some((name, value)) = post.signature {
                    headers.insert(format!("{}{name}", header::HTTP_PREFIX), value);
                }
                let subject = callback_subject(post.psp, event_id, &post.body)?;
                told.callbacks += 1;
                match publish(&system.gateway, subject, headers, post.body).await? {
                    Stored::At(sequence) => told.stored.push((sequence, post.items)),
                    Stored::Before => told.repeats += 1,
                }
            }
            Telling::Garbage(event_id, text) => {
                let body = text.as_bytes().to_vec();
                let subject = callback_subject(Psp::Paylink, event_id, &body)?;
                told.callbacks += 1;
                match publish(&system.gateway, subject, HeaderMap::new(), body).await? {
                    Stored::At(sequence) => told.stored.push((sequence, 1)),
                    Stored::Before => told.repeats += 1,
                }
            }
            Telling::Confirmation(deposit) => {
                let (subject, body) = confirmation(deposit)?;
                match publish(&system.operator, subject, HeaderMap::new(), body).await? {
                    Stored::At(sequence) => told.signals.push(sequence),
                    Stored::Before => {}
                }
            }
        }
    }
    Ok(())
}

fn callback_subject(psp: Psp, event_id: &str, body: &[u8]) -> Result<String, DemoError> {
    let provider = Provider::new(psp.name())
        .map_err(|error| DemoError::Story(format!("{}: {error}", psp.name())))?;
    Ok(subject::callback(&provider, event_id, body))
}

/// What `orchestrator saga signal` sends.
fn confirmation(deposit: &Deposit) -> Result<(String, Vec<u8>), DemoError> {
    let story = |error: &dyn std::fmt::Display| DemoError::Story(error.to_string());
    let saga_id = saga_id(deposit);
    let signal = Signal {
        saga_id: saga_id.clone(),
        name: StepName::new(PSP_CALLBACK).map_err(|error| story(&error))?,
        id: "demo-confirmation".to_owned(),
        body: json!({ "meaning": "paid", "amount": money(deposit.paid)? }),
    };
    let body = serde_json::to_vec(&signal).map_err(|error| story(&error))?;
    Ok((subject::signal(&saga_id, &signal.id, &body), body))
}

/// What the intake answers.
enum Stored {
    /// At this position.
    At(u64),
    /// The same has been stored before.
    Before,
}

/// Publishes and waits for the stream's acknowledgement.
async fn publish(
    client: &Client,
    subject: String,
    headers: HeaderMap,
    body: Vec<u8>,
) -> Result<Stored, DemoError> {
    let not_stored = |reason: String| DemoError::NotStored {
        subject: subject.clone(),
        reason,
    };
    let mut attempt = 1;
    let answer = loop {
        let request = async_nats::Request::new()
            .headers(headers.clone())
            .payload(body.clone().into())
            .timeout(Some(STORED));
        match client.send_request(subject.clone(), request).await {
            Ok(answer) => break answer,
            // Only this says for certain that it is not stored.
            Err(error) if error.kind() == RequestErrorKind::NoResponders && attempt < ATTEMPTS => {
                attempt += 1;
                tokio::time::sleep(AGAIN).await;
            }
            Err(error) => return Err(not_stored(error.to_string())),
        }
    };
    let answer: Value =
        serde_json::from_slice(&answer.payload).map_err(|error| not_stored(error.to_string()))?;
    match (answer["seq"].as_u64(), answer["error"]["err_code"].as_u64()) {
        (_, Some(REPEAT)) => Ok(Stored::Before),
        (Some(sequence), None) => Ok(Stored::At(sequence)),
        (_, _) => Err(not_stored(answer.to_string())),
    }
}
