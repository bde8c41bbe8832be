//! Every NATS header name we read or write.

/// The saga a message belongs to.
pub const SAGA_ID: &str = "Saga-Id";
/// The operation a command or reply belongs to.
pub const OPERATION_ID: &str = "Operation-Id";
/// 1 for the first sending of an operation.
pub const ATTEMPT: &str = "Attempt";
/// The saga's epoch; a participant refuses a lower one than seen.
pub const FENCE: &str = "Fence";
/// Absolute RFC 3339 instant after which a command must not be started.
pub const DEADLINE: &str = "Deadline";
/// MIME type of a body; see [`crate::codec`].
pub const CONTENT_TYPE: &str = "Content-Type";
/// W3C trace context.
pub const TRACEPARENT: &str = "traceparent";
/// W3C trace state.
pub const TRACESTATE: &str = "tracestate";
/// Prefix of the HTTP headers a callback came with: `Http-Stripe-Signature`.
pub const HTTP_PREFIX: &str = "Http-";
/// Path and query the callback was posted to, as some providers put the status there.
pub const HTTP_URL: &str = "Callback-Url";
/// RFC 3339 instant at which the gateway took the callback.
pub const RECEIVED_AT: &str = "Received-At";
/// Human-readable reason of a refused request (NATS service convention).
pub const SERVICE_ERROR: &str = "Nats-Service-Error";
/// Numeric code of a refused request (NATS service convention).
pub const SERVICE_ERROR_CODE: &str = "Nats-Service-Error-Code";
/// Which commit wrote a record revision: settles a commit whose acknowledgement was lost.
pub const COMMIT_NONCE: &str = "Commit-Nonce";
