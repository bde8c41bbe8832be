//! Spans of the orchestrator; how they are exported is shared with the region agent.

use async_nats::HeaderMap;
use contracts::id::SagaId;
use tracing::Span;

use crate::saga::action::Command;
use crate::saga::record::Participant;

pub use region_agent::telemetry::{LogFormat, Telemetry, TelemetryError, start};

/// The span of one message of the intake, from its arrival until it is settled. It continues the trace
/// that the message came with, if any.
#[must_use]
pub fn intake_span(message: &crate::consume::Incoming) -> Span {
    let span = tracing::info_span!(
        "intake",
        otel.kind = "consumer",
        messaging.destination.name = message.subject,
    );
    region_agent::telemetry::continue_trace(&span, message.headers.as_ref());
    span
}

/// The span of a saga while this process drives it, within that of the message that woke it.
#[must_use]
pub fn saga_span(saga_id: &SagaId) -> Span {
    tracing::info_span!("saga", saga.id = %saga_id)
}

/// The span of one command on its way to a participant and back.
#[must_use]
pub fn step_span(saga_id: &SagaId, command: &Command) -> Span {
    let region = match &command.participant {
        Participant::Core => "core",
        Participant::Region(region) => region.as_str(),
    };
    tracing::info_span!(
        "step",
        otel.kind = "client",
        saga.id = %saga_id,
        saga.step = command.step,
        saga.operation_id = %command.operation_id,
        saga.region = region,
        attempt = command.attempt,
        fence = command.fence,
    )
}

/// Puts the current trace context in headers, when there is one.
pub fn inject(headers: &mut HeaderMap) {
    region_agent::telemetry::inject(headers);
}

/// An error with all its sources, as one line.
#[must_use]
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}
