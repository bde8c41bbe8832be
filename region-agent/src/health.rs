//! `/metrics`, `/healthz` and `/readyz` over HTTP. Shared by both binaries.
//!
//! `/healthz` says that the process runs. `/readyz` runs every check anew: a readiness answered from
//! memory would stay green while the link is dead.

use async_nats::Client;
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures::future::{BoxFuture, join_all};
use prometheus::{Encoder as _, Registry, TextEncoder};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Longest a check may take before it counts as failed.
const CHECK_TIMEOUT: Duration = Duration::from_secs(3);

/// One thing that must work for this process to be of use.
type Check = Box<dyn Fn() -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

/// Checks and metrics of this process.
#[derive(Default)]
pub struct Health {
    registry: Registry,
    checks: Vec<(&'static str, Check)>,
}

impl Health {
    /// Without checks; always ready.
    #[must_use]
    pub fn new(registry: Registry) -> Self {
        Self {
            registry,
            checks: Vec::new(),
        }
    }

    /// Adds a check that must succeed for `/readyz` to answer 200.
    #[must_use]
    pub fn with_check<F>(
        mut self,
        name: &'static str,
        check: impl Fn() -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<(), String>> + Send + 'static,
    {
        self.checks
            .push((name, Box::new(move || Box::pin(check()))));
        self
    }

    /// Runs every check now, side by side.
    pub async fn check(&self) -> Vec<(&'static str, Result<(), String>)> {
        join_all(self.checks.iter().map(|(name, check)| async move {
            let outcome = match tokio::time::timeout(CHECK_TIMEOUT, check()).await {
                Ok(outcome) => outcome,
                Err(_elapsed) => Err(format!("no answer within {CHECK_TIMEOUT:?}")),
            };
            (*name, outcome)
        }))
        .await
    }

    /// Serves until `stop` is cancelled. The listener is bound by the caller, who so knows the
    /// address and fails at start when it is taken.
    ///
    /// # Errors
    /// When the listener breaks.
    pub async fn serve(
        self,
        listener: TcpListener,
        stop: CancellationToken,
    ) -> std::io::Result<()> {
        let router = Router::new()
            .route("/metrics", get(metrics))
            .route("/healthz", get(healthz))
            .route("/readyz", get(readyz))
            .with_state(Arc::new(self));
        axum::serve(listener, router)
            .with_graceful_shutdown(stop.cancelled_owned())
            .await
    }
}

/// Binds the address to serve health on.
///
/// # Errors
/// When the address is taken or not ours.
pub async fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    TcpListener::bind(address).await
}

/// A round trip to a service of our own through the server: a flush alone proves only that bytes
/// reached the socket.
///
/// # Errors
/// What went wrong, for a person.
pub async fn nats_round_trip(client: &Client, subject: String) -> Result<(), String> {
    if client.connection_state() != async_nats::connection::State::Connected {
        return Err("not connected".to_owned());
    }
    client.flush().await.map_err(|error| error.to_string())?;
    client
        .request(subject.clone(), bytes::Bytes::new())
        .await
        .map(drop)
        .map_err(|error| format!("{subject}: {error}"))
}

async fn healthz() -> &'static str {
    "ok\n"
}

async fn readyz(State(health): State<Arc<Health>>) -> Response {
    let outcomes = health.check().await;
    let ready = outcomes.iter().all(|(_, outcome)| outcome.is_ok());
    let lines: String = outcomes
        .iter()
        .map(|(name, outcome)| match outcome {
            Ok(()) => format!("{name}: ok\n"),
            Err(problem) => format!("{name}: {problem}\n"),
        })
        .collect();
    let status = if ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (status, lines).into_response()
}

async fn metrics(State(health): State<Arc<Health>>) -> Response {
    let mut text = Vec::new();
    let encoder = TextEncoder::new();
    match encoder.encode(&health.registry.gather(), &mut text) {
        Ok(()) => (
            [(header::CONTENT_TYPE, encoder.format_type().to_owned())],
            text,
        )
            .into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
