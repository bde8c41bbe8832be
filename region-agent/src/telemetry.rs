//! Logs, traces, and the trace context that travels in NATS headers. Shared by both binaries.
//!
//! Logs go to stderr, as text or JSON. Spans go to the OTLP endpoint named by
//! `OTEL_EXPORTER_OTLP_ENDPOINT` (http/protobuf), when it is set; else nothing is exported and no
//! trace context is made up, but one that arrives is handed back in the reply.

use async_nats::HeaderMap;
use contracts::command::CommandHeader;
use contracts::header::{TRACEPARENT, TRACESTATE};
use contracts::id::Region;
use opentelemetry::propagation::{Extractor, Injector, TextMapPropagator as _};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use std::io::IsTerminal as _;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _};

/// How log lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

impl std::str::FromStr for LogFormat {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            other => Err(format!("{other:?} is neither text nor json")),
        }
    }
}

/// Why telemetry could not be started.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The filter is not one.
    #[error("log filter {filter:?}")]
    Filter {
        /// The text given.
        filter: String,
        /// What is wrong with it.
        #[source]
        source: tracing_subscriber::filter::ParseError,
    },
    /// The OTLP exporter cannot be built.
    #[error("the OTLP exporter cannot be built: check OTEL_EXPORTER_OTLP_ENDPOINT")]
    Exporter(#[source] opentelemetry_otlp::ExporterBuildError),
    /// Somebody else has installed a subscriber.
    #[error("telemetry has been started already")]
    Started(#[source] tracing_subscriber::util::TryInitError),
}

/// Running telemetry. [`Telemetry::finish`] sends what is still held back.
#[derive(Debug)]
pub struct Telemetry {
    provider: Option<SdkTracerProvider>,
}

/// Starts logs and, when an endpoint is configured, traces. `filter` is in the form of `RUST_LOG`,
/// such as `info,region_agent=debug`.
///
/// # Errors
/// [`TelemetryError`].
pub fn start(
    service: &'static str,
    format: LogFormat,
    filter: &str,
) -> Result<Telemetry, TelemetryError> {
    let filter = EnvFilter::try_new(filter).map_err(|source| TelemetryError::Filter {
        filter: filter.to_owned(),
        source,
    })?;
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    let lines = match format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    let provider = provider(service)?;
    let spans = provider
        .as_ref()
        .map(|provider| tracing_opentelemetry::layer().with_tracer(provider.tracer(service)));
    tracing_subscriber::registry()
        .with(filter)
        .with(lines)
        .with(spans)
        .try_init()
        .map_err(TelemetryError::Started)?;
    Ok(Telemetry { provider })
}

fn provider(service: &'static str) -> Result<Option<SdkTracerProvider>, TelemetryError> {
    let endpoint = std::env::var("OTEL_EXPORTER_OTLP_ENDPOINT")
        .or_else(|_| std::env::var("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"));
    if endpoint.is_ok_and(|endpoint| !endpoint.is_empty()) {
        let exporter = opentelemetry_otlp::SpanExporter::builder()
            .with_http()
            .build()
            .map_err(TelemetryError::Exporter)?;
        let resource = opentelemetry_sdk::Resource::builder()
            .with_service_name(service)
            .build();
        return Ok(Some(
            SdkTracerProvider::builder()
                .with_batch_exporter(exporter)
                .with_resource(resource)
                .build(),
        ));
    }
    Ok(None)
}

impl Telemetry {
    /// Sends the spans still held back. Blocks for at most some seconds.
    pub fn finish(self) {
        if let Some(provider) = self.provider
            && let Err(error) = provider.shutdown()
        {
            tracing::warn!(%error, "spans may have been lost");
        }
    }
}

/// The span of one command at a participant. Level info, fields of one namespace.
#[must_use]
pub fn command_span(verb: &'static str, region: &Region, command: &CommandHeader) -> Span {
    let span = tracing::info_span!(
        "wallet command",
        otel.kind = "server",
        verb,
        saga.id = tracing::field::Empty,
        saga.operation_id = %command.operation_id,
        saga.region = %region,
        attempt = command.attempt,
        fence = command.fence,
        answer = tracing::field::Empty,
    );
    if let Some(saga) = &command.saga_id {
        span.record("saga.id", tracing::field::display(saga));
    }
    span
}

/// Puts the current span's trace context into the headers of a message about to be sent.
pub fn inject(headers: &mut HeaderMap) {
    inject_span(&Span::current(), headers);
}

/// Puts a span's trace context into headers. Without an exporter there is none, and nothing happens.
pub fn inject_span(span: &Span, headers: &mut HeaderMap) {
    TraceContextPropagator::new().inject_context(&span.context(), &mut Outgoing(headers));
}

/// The trace context a message came with.
#[must_use]
pub fn extract(headers: Option<&HeaderMap>) -> opentelemetry::Context {
    match headers {
        Some(headers) => TraceContextPropagator::new().extract(&Incoming(headers)),
        None => opentelemetry::Context::new(),
    }
}

/// Makes `span` a child of the trace a message came with. Without an exporter nothing happens.
pub fn continue_trace(span: &Span, headers: Option<&HeaderMap>) {
    if let Err(error) = span.set_parent(extract(headers)) {
        tracing::trace!(%error, "no trace to continue");
    }
}

struct Outgoing<'a>(&'a mut HeaderMap);

impl Injector for Outgoing<'_> {
    fn set(&mut self, key: &str, value: String) {
        // The propagator also sets an empty tracestate, which says nothing.
        if value.is_empty() {
            return;
        }
        if let Ok(value) = value.parse::<async_nats::HeaderValue>() {
            self.0.insert(key, value);
        }
    }
}

struct Incoming<'a>(&'a HeaderMap);

impl Extractor for Incoming<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(async_nats::HeaderValue::as_str)
    }

    fn keys(&self) -> Vec<&str> {
        vec![TRACEPARENT, TRACESTATE]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use opentelemetry::trace::TraceContextExt as _;

    #[test]
    fn a_trace_context_is_read_from_headers() {
        let mut headers = HeaderMap::new();
        headers.insert(
            TRACEPARENT,
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        );
        let context = extract(Some(&headers));
        assert_eq!(
            context.span().span_context().trace_id().to_string(),
            "4bf92f3577b34da6a3ce929d0e0e4736"
        );
        assert!(!extract(None).span().span_context().is_valid());
    }
}
