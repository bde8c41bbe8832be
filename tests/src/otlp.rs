//! A receiver of traces over OTLP/HTTP that keeps what it gets.

use anyhow::Context as _;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::routing::post;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use prost::Message as _;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener;

/// A span as received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// `service.name` of whoever sent it.
    pub service: String,
    /// Its name.
    pub name: String,
    /// Its trace, in hex.
    pub trace_id: String,
    /// Its own id, in hex.
    pub span_id: String,
    /// Its parent's id, in hex; empty for the root.
    pub parent_id: String,
    /// Its attributes that are text or numbers.
    pub attributes: BTreeMap<String, String>,
}

impl Span {
    /// An attribute; empty when it is not there.
    #[must_use]
    pub fn attribute(&self, name: &str) -> &str {
        self.attributes.get(name).map_or("", String::as_str)
    }
}

type Spans = Arc<Mutex<Vec<Span>>>;

/// The receiver; it ends with the test's runtime.
#[derive(Debug)]
pub struct Receiver {
    address: String,
    spans: Spans,
}

impl Receiver {
    /// Listens on a free port.
    ///
    /// # Errors
    /// When there is none.
    pub async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = format!("http://{}", listener.local_addr()?);
        let spans = Spans::default();
        let router = Router::new()
            .route("/v1/traces", post(take))
            .with_state(Arc::clone(&spans));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Self { address, spans })
    }

    /// Variables that make a process send its spans here, soon.
    #[must_use]
    pub fn environment(&self) -> [(&str, &str); 2] {
        [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &self.address),
            ("OTEL_BSP_SCHEDULE_DELAY", "100"),
        ]
    }

    /// All spans so far.
    #[must_use]
    pub fn spans(&self) -> Vec<Span> {
        self.spans
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Waits for a span.
    ///
    /// # Errors
    /// When none such has come within ten seconds, with all that have.
    pub async fn until(&self, what: &str, wanted: impl Fn(&Span) -> bool) -> anyhow::Result<Span> {
        let looking = async {
            loop {
                if let Some(span) = self.spans().into_iter().find(|span| wanted(span)) {
                    return span;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), looking)
            .await
            .with_context(|| format!("no span of {what} among {:#?}", self.spans()))
    }
}

async fn take(State(spans): State<Spans>, body: Bytes) -> Bytes {
    let Ok(request) = ExportTraceServiceRequest::decode(body) else {
        return Bytes::new();
    };
    let mut spans = spans.lock().unwrap_or_else(PoisonError::into_inner);
    for resource in request.resource_spans {
        let resource_attributes = resource
            .resource
            .map(|resource| texts(resource.attributes))
            .unwrap_or_default();
        for span in resource
            .scope_spans
            .into_iter()
            .flat_map(|scope| scope.spans)
        {
            spans.push(Span {
                service: resource_attributes
                    .get("service.name")
                    .cloned()
                    .unwrap_or_default(),
                name: span.name,
                trace_id: hex::encode(span.trace_id),
                span_id: hex::encode(span.span_id),
                parent_id: hex::encode(span.parent_span_id),
                attributes: texts(span.attributes),
            });
        }
    }
    // An empty answer is an empty ExportTraceServiceResponse: everything was taken.
    Bytes::new()
}

fn texts(attributes: Vec<KeyValue>) -> BTreeMap<String, String> {
    attributes
        .into_iter()
        .filter_map(|attribute| {
            let text = match attribute.value?.value? {
                Value::StringValue(text) => text,
                Value::IntValue(number) => number.to_string(),
                _ => return None,
            };
            Some((attribute.key, text))
        })
        .collect()
}
