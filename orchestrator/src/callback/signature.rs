//! HMAC-SHA256 over what was received, compared in constant time.

use super::unreadable::{Problem, UnreadableCode};
use hmac::{Hmac, KeyInit as _, Mac as _};
use jiff::Timestamp;
use serde::Deserialize;
use sha2::Sha256;

/// A shared secret of a provider; several of them let one be replaced while both are in use.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Takes the secret's text as the provider shows it.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The key when the text itself is the key.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// The key when the text is hexadecimal.
    #[must_use]
    pub fn hex_bytes(&self) -> Option<Vec<u8>> {
        hex::decode(self.0.trim()).ok()
    }
}

/// Never the secret.
impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Whether `tag` is the HMAC-SHA256 of the parts, joined as they are. Takes the same time wherever
/// the first differing byte is.
#[must_use]
pub(super) fn hmac_sha256_fits(key: &[u8], parts: &[&[u8]], tag: &[u8]) -> bool {
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else {
        return false;
    };
    for part in parts {
        mac.update(part);
    }
    mac.verify_slice(tag).is_ok()
}

/// Checks a header `t=<unix seconds>,v1=<hex>[,v1=<hex>…]` over `<t>.<raw body>`.
///
/// Any `v1` may fit any secret, as both are in use while a secret is replaced. The time is the
/// sender's own and must lie within `tolerance_s` of the reception.
///
/// # Errors
/// [`UnreadableCode::SignatureMissing`], [`UnreadableCode::SignatureInvalid`] or
/// [`UnreadableCode::SignatureTooOld`].
pub(super) fn check_timed_header(
    header: Option<&str>,
    body: &[u8],
    secrets: &[Secret],
    received_at: Timestamp,
    tolerance_s: u32,
) -> Result<(), Problem> {
    const FIELD: &str = "header stripe-signature";
    let problem = |code, message: &str| Err(Problem::field(code, FIELD, message));
    let Some(header) = header else {
        return problem(
            UnreadableCode::SignatureMissing,
            "is missing: the gateway must pass the provider's signature header along",
        );
    };
    let mut time = None;
    let mut tags = Vec::new();
    for part in header.split(',') {
        match part.trim().split_once('=') {
            Some(("t", value)) => time = Some(value),
            Some(("v1", value)) => tags.extend(hex::decode(value).ok()),
            Some(_) | None => {}
        }
    }
    let Some((time, seconds)) = time.and_then(|t| Some((t, t.parse::<i64>().ok()?))) else {
        return problem(
            UnreadableCode::SignatureInvalid,
            "has no t=<unix seconds>: it is not the provider's signature",
        );
    };
    let fits = secrets.iter().any(|secret| {
        tags.iter()
            .any(|tag| hmac_sha256_fits(secret.bytes(), &[time.as_bytes(), b".", body], tag))
    });
    if !fits {
        return problem(
            UnreadableCode::SignatureInvalid,
            "fits none of the configured secrets: check that the endpoint's secret is among them",
        );
    }
    let age = received_at.as_second().abs_diff(seconds);
    if age > u64::from(tolerance_s) {
        return Err(Problem::field(
            UnreadableCode::SignatureTooOld,
            FIELD,
            format!(
                "was signed {age} s away from its reception, more than the {tolerance_s} s accepted: perhaps a replay"
            ),
        ));
    }
    Ok(())
}
