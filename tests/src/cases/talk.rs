//! What is said to sagas: starts, signals, operators' requests, questions.

use super::body::{expand_text, signal_body};
use super::found::Found;
use super::runner::Run;
use super::world::Sent;
use anyhow::{Context as _, bail, ensure};
use bytes::Bytes;
use contracts::intake::{OperatorRequest, OperatorVerb, Signal, StartRequest};
use contracts::subject;
use orchestrator::workflows::deposit;
use serde_json::{Map, Value, json};

impl Run<'_> {
    pub(super) async fn start(
        &mut self,
        workflow: &str,
        id: &str,
        body: &Value,
    ) -> anyhow::Result<()> {
        let request = StartRequest {
            workflow: workflow.to_owned(),
            id: id.to_owned(),
            input: body.clone(),
        };
        let body = serde_json::to_vec(&request)?;
        self.say(subject::start(workflow, id), body.into()).await
    }

    pub(super) async fn signals(
        &mut self,
        saga_of: &str,
        name: &str,
        body: &Value,
        count: usize,
    ) -> anyhow::Result<()> {
        let saga = self.saga_of(saga_of)?;
        let operator = &self.world.operator;
        let mut publishing = Vec::new();
        for _ in 0..count {
            let signal = Signal {
                saga_id: saga.clone(),
                name: name.parse()?,
                id: self.event_id(),
                body: signal_body(body),
            };
            let body = Bytes::from(serde_json::to_vec(&signal)?);
            let subject = subject::signal(&saga, &signal.id, &body);
            publishing.push(async move {
                let ack = operator.publish(subject, body.clone()).await?.await?;
                anyhow::Ok(Sent {
                    sequence: ack.sequence,
                    body,
                })
            });
        }
        let sent = futures::future::try_join_all(publishing).await?;
        self.sent.extend(sent);
        Ok(())
    }

    pub(super) async fn too_large(&mut self, saga_of: &str, bytes: usize) -> anyhow::Result<()> {
        let saga = self.saga_of(saga_of)?;
        let signal = Signal {
            saga_id: saga.clone(),
            name: deposit::PSP_CALLBACK.parse()?,
            id: self.event_id(),
            body: json!({ "meaning": "paid", "padding": "x".repeat(bytes) }),
        };
        let body = Bytes::from(serde_json::to_vec(&signal)?);
        let subject = subject::signal(&saga, &signal.id, &body);
        match self.world.operator.publish(subject, body).await {
            Err(error) => {
                ensure!(
                    error.kind()
                        == async_nats::jetstream::context::PublishErrorKind::MaxPayloadExceeded,
                    "refused for another reason: {error}"
                );
                Ok(())
            }
            Ok(_) => bail!("a signal of {bytes} bytes was let through"),
        }
    }

    pub(super) async fn compensate(
        &mut self,
        external_id: &str,
        reason: &str,
    ) -> anyhow::Result<()> {
        let saga = self.saga_of(external_id)?;
        let request = OperatorRequest {
            saga_id: saga.clone(),
            id: self.event_id(),
            verb: OperatorVerb::Cancel,
            reason: reason.to_owned(),
            by: "case".to_owned(),
        };
        let body = Bytes::from(serde_json::to_vec(&request)?);
        self.say(subject::operator(&saga, &request.id, &body), body)
            .await
    }

    /// Does what a person does who finds a message in a case: reads it where it is stored, and sends it again.
    pub(super) async fn replay(&mut self, external_id: &str) -> anyhow::Result<()> {
        let saga = self.saga_of(external_id)?;
        let records = Found::records_of(self);
        let message_id = records
            .iter()
            .filter_map(|stored| stored.record.case.as_ref())
            .filter(|case| case.evidence["saga_id"] == saga.as_str())
            .find_map(|case| case.evidence["message_id"].as_str());
        let sequence = message_id.and_then(|id| id.split([':', '@']).nth(1)?.parse().ok());
        let sequence = sequence.context("no case names a message")?;
        let stream = self.world.partition.intake_stream();
        let stream = self.world.core.get_stream_no_info(stream).await?;
        let stored = stream.get_raw_message(sequence).await?;
        let (event_id, provider) = (self.event_id(), self.case.provider.clone());
        self.raw(&provider, &event_id, stored.payload).await
    }

    async fn say(&mut self, subject: String, body: Bytes) -> anyhow::Result<()> {
        let ack = self
            .world
            .operator
            .publish(subject, body.clone())
            .await?
            .await?;
        self.sent.push(Sent {
            sequence: ack.sequence,
            body,
        });
        Ok(())
    }

    pub(super) async fn query(&self, external_id: &str) -> anyhow::Result<()> {
        let saga = self.saga_of(external_id)?;
        let bucket = self
            .world
            .core
            .get_key_value(self.world.partition.bucket())
            .await?;
        let value = bucket.get(saga.key()).await?.context("no record")?;
        let record = orchestrator::store::decode(&value).map_err(anyhow::Error::msg)?;
        let found = record.attributes.get("external_id").map(String::as_str);
        ensure!(
            record.saga_id == saga && found == Some(external_id),
            "asked for {external_id:?}, got {} about {found:?}",
            record.saga_id
        );
        Ok(())
    }

    /// Requests to start sagas, published together.
    pub(super) async fn start_all(
        &mut self,
        workflow: &str,
        id: &str,
        count: usize,
        body: &Map<String, Value>,
    ) -> anyhow::Result<()> {
        let operator = &self.world.operator;
        let publishing = (1..=count).map(|number| {
            let request = StartRequest {
                workflow: workflow.to_owned(),
                id: expand_text(id, number),
                input: super::body::expand(body, number).into(),
            };
            async move {
                let body = Bytes::from(serde_json::to_vec(&request)?);
                let subject = subject::start(&request.workflow, &request.id);
                let ack = operator.publish(subject, body.clone()).await?.await?;
                anyhow::Ok(Sent {
                    sequence: ack.sequence,
                    body,
                })
            }
        });
        let sent = futures::future::try_join_all(publishing).await?;
        self.sent.extend(sent);
        Ok(())
    }
}
