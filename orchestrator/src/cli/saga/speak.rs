//! `orchestrator saga start`, `signal` and `cancel`: each stores one message and tells what became of it.

mod follow;

use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::stream::LastRawMessageErrorKind;
use contracts::codec::Encoding;
use contracts::id::{SagaId, StepName};
use contracts::intake::{self, OperatorRequest, OperatorVerb, StartRequest};
use contracts::{header, subject};
use serde_json::Value;

use crate::cli::case::{Asked, print_dry_run};
use crate::cli::output::OutputFlag;
use crate::cli::records::{ReadError, Records, Revision, SagaKey};
use crate::cli::store::{StoreError, Stored, store};
use crate::cli::{CliError, Exit, argument};
use crate::clock::Clock;
use crate::saga::CASE_WORKFLOW;
use crate::saga::rules::Rules;
use crate::workflows::Workflows;
use follow::Message;

pub(super) const START_HELP: &str = "\
Examples:
  orchestrator saga start deposit --id order-7 --input @fact.json
  orchestrator saga start deposit --id order-7 --input - --no-wait < fact.json

The same workflow, id and input again changes nothing.
Exit codes: 0 stored (and what became of it is printed); 1 refused, or the id has another input; 3 no
acknowledgement, say it again; 64 usage.";

pub(super) const SIGNAL_HELP: &str = "\
Examples:
  orchestrator saga signal deposit/acme/p1 psp-callback --data '{\"meaning\":\"paid\"}'
  orchestrator saga signal deposit/acme/p1 psp-callback --signal-id evt_1 --data @paid.json

The same signal id with the same data is the same signal.
Exit codes: 0 stored (and what became of it is printed); 1 refused or kept as a case; 2 there is no such
saga; 3 no acknowledgement, say it again; 64 usage.";

pub(super) const CANCEL_HELP: &str = "\
Examples:
  orchestrator saga cancel deposit/acme/p1 --reason 'paid twice, provider agrees'

What the saga has done is offset before it ends. After its pivot it only goes forward, and a cancel is refused:
`orchestrator case compensate` is for that.
Exit codes: 0 it turns back; 1 refused; 2 there is no such saga; 3 no acknowledgement, say it again; 64 usage.";

/// Flags of `saga start`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Start {
    /// The workflow, such as deposit
    workflow: String,
    /// Your own id of the request
    #[arg(long, value_name = "ID")]
    id: String,
    /// What the workflow reads: JSON, @FILE, or - for standard input
    #[arg(long, value_name = "JSON")]
    input: String,
    #[command(flatten)]
    wait: Wait,
}

/// Flags of `saga signal`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Signal {
    /// The saga's id, or its key in the bucket
    #[arg(value_name = "ID")]
    saga: SagaKey,
    /// The signal, such as psp-callback
    name: StepName,
    /// Your own id of the signal [default: a new one]
    #[arg(long, value_name = "ID")]
    signal_id: Option<String>,
    /// What is said: JSON, @FILE, or - for standard input [default: null]
    #[arg(long, value_name = "JSON")]
    data: Option<String>,
    #[command(flatten)]
    wait: Wait,
}

/// Whether to wait for what becomes of it.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(in crate::cli) struct Wait {
    /// Do not wait until the saga has taken it up
    #[arg(long)]
    no_wait: bool,
    /// Wait at most so long until the saga has taken it up and rests
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = humantime::parse_duration)]
    wait: Duration,
    #[command(flatten)]
    output: OutputFlag,
}

/// Why something could not be said.
#[derive(Debug, thiserror::Error)]
pub enum SpeakError {
    /// Not known to be stored.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// It cannot be written as JSON.
    #[error("the message")]
    Encode(#[source] contracts::codec::CodecError),
    /// The id was used for something else.
    #[error(
        "{workflow} {id} was asked for with another input; nothing was stored. Take another --id"
    )]
    OtherInput {
        /// The workflow.
        workflow: String,
        /// The caller's id.
        id: String,
    },
    /// The saga does not take it.
    #[error("refused: {saga_id} {reason}")]
    Refused {
        /// Which saga.
        saga_id: SagaId,
        /// Why not.
        reason: String,
    },
    /// The message that was there before cannot be read.
    #[error("the message that is already there cannot be read")]
    Earlier(#[source] async_nats::jetstream::stream::LastRawMessageError),
}

impl SpeakError {
    /// The exit code that says so.
    pub(in crate::cli) fn exit(&self) -> Exit {
        match self {
            Self::Store(error) => error.exit(),
            Self::Earlier(_) => Exit::Unreachable,
            Self::Encode(_) | Self::OtherInput { .. } | Self::Refused { .. } => Exit::Failed,
        }
    }
}

/// Something to say, checked as far as that goes without asking.
pub(in crate::cli) struct Speech {
    what: What,
    wait: Wait,
}

enum What {
    Start {
        request: StartRequest,
        saga_id: SagaId,
    },
    Signal {
        saga: SagaKey,
        name: StepName,
        id: String,
        body: Value,
    },
    Operator {
        saga: SagaKey,
        id: String,
        verb: OperatorVerb,
        reason: String,
        by: String,
        dry_run: bool,
    },
}

impl Speech {
    pub(super) fn start(command: Start) -> Result<Self, CliError> {
        let workflows = Workflows::default();
        let Some(workflow) = workflows.latest(&command.workflow) else {
            let known = workflows.names().collect::<Vec<_>>().join(", ");
            return Err(CliError::Argument(format!(
                "workflow: {:?} is none of {known}",
                command.workflow
            )));
        };
        let input = argument::json("--input", &command.input)?;
        let saga_id = (workflow.identify)(&command.id, &input)
            .map_err(|reason| CliError::Argument(format!("--input: {reason}")))?;
        let request = StartRequest {
            workflow: command.workflow,
            id: external("--id", command.id)?,
            input,
        };
        let what = What::Start { request, saga_id };
        Ok(Self {
            what,
            wait: command.wait,
        })
    }

    pub(super) fn signal(command: Signal) -> Result<Self, CliError> {
        let id = match command.signal_id {
            Some(id) => external("--signal-id", id)?,
            None => Clock::new("cli").nonce(),
        };
        let body = match &command.data {
            Some(text) => argument::json("--data", text)?,
            None => Value::Null,
        };
        let what = What::Signal {
            saga: command.saga,
            name: command.name,
            id,
            body,
        };
        Ok(Self {
            what,
            wait: command.wait,
        })
    }

    /// A request by hand.
    pub(in crate::cli) fn operator(asked: Asked, verb: OperatorVerb) -> Result<Self, CliError> {
        let id = match asked.id {
            Some(id) => external("--id", id)?,
            None => Clock::new("cli").nonce(),
        };
        let what = What::Operator {
            saga: asked.saga,
            id,
            verb,
            reason: external("--reason", asked.reason)?,
            by: external("--by", asked.by)?,
            dry_run: asked.dry_run,
        };
        Ok(Self {
            what,
            wait: asked.wait,
        })
    }

    pub(in crate::cli) async fn say(
        self,
        records: &Records,
        rules: &Rules,
    ) -> Result<Exit, CliError> {
        let Self { what, wait } = self;
        let mut asked = None;
        let (saga_id, subject, body, again) = match &what {
            What::Start { request, saga_id } => {
                let body = encode(request)?;
                let subject = subject::start(&request.workflow, &request.id);
                (
                    saga_id.clone(),
                    subject,
                    body,
                    "with the same --id".to_owned(),
                )
            }
            What::Signal {
                saga,
                name,
                id,
                body,
            } => {
                let saga_id = addressee(records.load(saga).await?)?.record.saga_id;
                let signal = intake::Signal {
                    saga_id: saga_id.clone(),
                    name: name.clone(),
                    id: id.clone(),
                    body: body.clone(),
                };
                let body = encode(&signal)?;
                let subject = subject::signal(&saga_id, id, &body);
                (saga_id, subject, body, format!("with --signal-id {id}"))
            }
            What::Operator {
                saga,
                id,
                verb,
                reason,
                by,
                dry_run,
            } => {
                let shown = records.load(saga).await?;
                let saga_id = shown.record.saga_id.clone();
                let request = OperatorRequest {
                    saga_id: saga_id.clone(),
                    id: id.clone(),
                    verb: verb.clone(),
                    reason: reason.clone(),
                    by: by.clone(),
                };
                request.check().map_err(CliError::Argument)?;
                if *dry_run {
                    return print_dry_run(&shown, &request, rules, wait.output.output);
                }
                let body = encode(&request)?;
                let subject = subject::operator(&saga_id, id, &body);
                asked = Some(request);
                (saga_id, subject, body, format!("with --id {id}"))
            }
        };
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, Encoding::Json.content_type());
        let stored = store(records.js(), &subject, headers, body.clone().into(), &again)
            .await
            .map_err(SpeakError::Store)?;
        let sequence = match stored {
            Stored::Now(sequence) => sequence,
            Stored::Before => earlier(records, &subject, &what).await?,
        };
        let message = Message {
            saga_id,
            sequence,
            repeat: stored == Stored::Before,
            asked,
            body,
        };
        let bound = (!wait.no_wait).then_some(wait.wait);
        message.follow(records, bound, wait.output.output).await
    }
}

/// A saga that can be spoken to.
fn addressee(revision: Revision) -> Result<Revision, SpeakError> {
    if revision.record.workflow == CASE_WORKFLOW {
        return Err(SpeakError::Refused {
            saga_id: revision.record.saga_id,
            reason: "is a case and no running saga: nothing listens there".to_owned(),
        });
    }
    Ok(revision)
}

/// The message that has the subject already: it must be the same, as far as the subject does not say so.
async fn earlier(records: &Records, subject: &str, what: &What) -> Result<u64, CliError> {
    let name = records.partition().intake_stream();
    let stream = records.js().get_stream_no_info(name).await;
    let found = match stream {
        Ok(stream) => stream.get_last_raw_message_by_subject(subject).await,
        Err(_) => Err(LastRawMessageErrorKind::Other.into()),
    };
    let message = found.map_err(SpeakError::Earlier)?;
    if let What::Start { request, .. } = what {
        let known: Option<StartRequest> = serde_json::from_slice(&message.payload).ok();
        if known.as_ref() != Some(request) {
            return Err(SpeakError::OtherInput {
                workflow: request.workflow.clone(),
                id: request.id.clone(),
            }
            .into());
        }
    }
    Ok(message.sequence)
}

fn encode<T: serde::Serialize>(value: &T) -> Result<Vec<u8>, SpeakError> {
    Encoding::Json.encode(value).map_err(SpeakError::Encode)
}

fn external(flag: &str, text: String) -> Result<String, CliError> {
    match contracts::id::ExternalId::new(text) {
        Ok(text) => Ok(text.into()),
        Err(error) => Err(CliError::Argument(format!("{flag}: {error}"))),
    }
}

impl From<SpeakError> for CliError {
    fn from(error: SpeakError) -> Self {
        Self::Speak(Box::new(error))
    }
}

impl From<ReadError> for CliError {
    fn from(error: ReadError) -> Self {
        Self::Read(Box::new(error))
    }
}
