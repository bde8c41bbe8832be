//! `orchestrator callback send`.

use std::path::PathBuf;

use async_nats::HeaderMap;
use clap::Subcommand;
use contracts::id::Provider;
use contracts::{header, subject};
use serde::Serialize;

use super::output::{self, Format, OutputFlag};
use super::store::{Stored, store};
use super::{CliError, Exit, argument, connect};
use crate::config::Config;

pub(super) const SEND_HELP: &str = "\
Examples:
  orchestrator callback send acme --file paid.json --event-id evt_1
  echo '{\"external_id\":\"p1\",\"status\":\"paid\",\"amount\":\"10.00\",\"currency\":\"USD\",\"customer\":\"cust-a\"}' |
    orchestrator callback send acme --file -
  orchestrator callback send stripe --file event.json --header Stripe-Signature=t=1,v1=abc

The body is stored as it is, as the callback gateway stores it; the same event with the same body is stored once.
Exit codes: 0 stored, now or before; 1 refused; 3 no acknowledgement, send it again; 64 usage.";

/// Verbs of `callback`.
#[derive(Debug, Subcommand)]
pub(super) enum Callback {
    /// Store a provider's callback as the gateway does
    #[command(after_help = SEND_HELP)]
    Send(Send),
}

/// Flags of `callback send`.
#[derive(Debug, clap::Args)]
pub(super) struct Send {
    /// The provider, such as stripe
    provider: Provider,
    /// File with the body as the provider sent it, or - for standard input
    #[arg(long, value_name = "FILE")]
    file: PathBuf,
    /// The provider's id of the event [default: a digest of the body]
    #[arg(long, value_name = "ID")]
    event_id: Option<String>,
    /// HTTP header that the callback came with; may be given more than once
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = http_header)]
    headers: Vec<(String, String)>,
    /// Path and query that the callback was posted to
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    #[command(flatten)]
    output: OutputFlag,
}

#[derive(Serialize)]
struct Sent<'a> {
    subject: &'a str,
    /// Absent for a repeat: the gateway may not read.
    #[serde(skip_serializing_if = "Option::is_none")]
    sequence: Option<u64>,
    repeat: bool,
}

fn http_header(text: &str) -> Result<(String, String), String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    match text.split_once('=') {
        Some((name, value))
            if !name.is_empty() && name.bytes().all(plain) && !value.contains(['\r', '\n']) =>
        {
            Ok((name.to_owned(), value.to_owned()))
        }
        Some(_) | None => Err("write NAME=VALUE, such as Stripe-Signature=t=1,v1=abc".to_owned()),
    }
}

impl Callback {
    pub(super) async fn run(self, config: &Config) -> Result<Exit, CliError> {
        let Self::Send(command) = self;
        let body = argument::bytes("--file", &command.file)?;
        let digest = subject::short_digest(&body);
        let event_id = command.event_id.as_deref().unwrap_or(&digest);
        let subject = subject::callback(&command.provider, event_id, &body);
        let client = connect(config, "orchestrator callback").await?;
        let js = crate::serve::context(&client);
        let stored = store(
            &js,
            &subject,
            headers(&command),
            body.into(),
            "with the same --event-id",
        )
        .await?;
        let sent = match stored {
            Stored::Now(sequence) => Sent {
                subject: &subject,
                sequence: Some(sequence),
                repeat: false,
            },
            Stored::Before => Sent {
                subject: &subject,
                sequence: None,
                repeat: true,
            },
        };
        match (command.output.output, sent.sequence) {
            (Format::Json, _) => output::write_json(&sent)?,
            (Format::Table, Some(sequence)) => output::write(&format!(
                "stored as message {sequence} of {} on {subject}\n",
                config.partition.intake_stream()
            ))?,
            (Format::Table, None) => output::write(&format!(
                "already there on {subject}; nothing new was stored\n"
            ))?,
        }
        Ok(Exit::Done)
    }
}

fn headers(command: &Send) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in &command.headers {
        if name.eq_ignore_ascii_case(header::CONTENT_TYPE) {
            headers.insert(header::CONTENT_TYPE, value.as_str());
        } else {
            headers.insert(
                format!("{}{name}", header::HTTP_PREFIX).as_str(),
                value.as_str(),
            );
        }
    }
    if let Some(url) = &command.url {
        headers.insert(header::HTTP_URL, url.as_str());
    }
    headers
}
