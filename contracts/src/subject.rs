//! Every subject, built and parsed in one place. Ids become tokens through [`crate::key`].

use crate::command::WalletVerb;
use crate::id::{Provider, Region, SagaId};
use crate::key;

/// Rates between currencies.
pub const FX_QUOTE: &str = "billing.core.fx.quote";
/// All of the intake.
pub const INTAKE: [&str; 4] = [
    "billing.callback.>",
    "billing.start.>",
    "billing.signal.>",
    "billing.operator.>",
];
/// All events.
pub const EVENTS: &str = "billing.event.>";
/// What became of operators' requests.
pub const AUDIT: &str = "billing.audit.>";
/// All armed timers.
pub const TIMERS: &str = "billing.timer.>";
/// All fired timers.
pub const DUE: &str = "billing.due.>";

/// `billing.<region>.wallet.<verb>`
#[must_use]
pub fn wallet(region: &Region, verb: WalletVerb) -> String {
    format!("billing.{region}.wallet.{}", verb.as_str())
}

/// The common part of a region's wallet subjects, `billing.<region>.wallet`.
#[must_use]
pub fn wallet_group(region: &Region) -> String {
    format!("billing.{region}.wallet")
}

/// `billing.callback.<provider>.<event id>.<digest of the body>`: stored once per body, so that a
/// changed body under the same event id is not taken for a repeat.
#[must_use]
pub fn callback(provider: &Provider, event_id: &str, body: &[u8]) -> String {
    format!(
        "billing.callback.{provider}.{}.{}",
        key::encode(event_id),
        short_digest(body)
    )
}

/// `billing.start.<workflow>.<id>`
#[must_use]
pub fn start(workflow: &str, id: &str) -> String {
    format!(
        "billing.start.{}.{}",
        key::encode(workflow),
        key::encode(id)
    )
}

/// `billing.signal.<saga key>.<signal id>.<digest of the body>`
#[must_use]
pub fn signal(saga: &SagaId, signal_id: &str, body: &[u8]) -> String {
    format!(
        "billing.signal.{}.{}.{}",
        saga.key(),
        key::encode(signal_id),
        short_digest(body)
    )
}

/// `billing.operator.<saga key>.<request id>.<digest of the body>`
#[must_use]
pub fn operator(saga: &SagaId, request_id: &str, body: &[u8]) -> String {
    format!(
        "billing.operator.{}.{}.{}",
        saga.key(),
        key::encode(request_id),
        short_digest(body)
    )
}

/// `billing.event.<region>.<saga key>.<event>`: one per saga and event.
#[must_use]
pub fn event(region: &Region, saga: &SagaId, event: &str) -> String {
    format!("billing.event.{region}.{}.{event}", saga.key())
}

/// `billing.audit.<saga key>.<request id>.<digest of the request>`: one per request, for good.
#[must_use]
pub fn audit(saga: &SagaId, request_id: &str, digest: &str) -> String {
    format!(
        "billing.audit.{}.{}.{digest}",
        saga.key(),
        key::encode(request_id)
    )
}

/// Every event of one saga, whatever its region and name.
#[must_use]
pub fn events_of(saga_key: &str) -> String {
    format!("billing.event.*.{saga_key}.>")
}

/// The parts of an event's subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventSubject<'a> {
    /// The region token.
    pub region: &'a str,
    /// The key of the saga.
    pub saga_key: &'a str,
    /// The event's name.
    pub event: &'a str,
}

/// Takes the subject of an event apart; `None` for one that [`event`] does not make.
#[must_use]
pub fn parse_event(subject: &str) -> Option<EventSubject<'_>> {
    let rest = subject.strip_prefix("billing.event.")?;
    let (region, rest) = rest.split_once('.')?;
    let (saga_key, event) = rest.split_once('.')?;
    (!event.contains('.')).then_some(EventSubject {
        region,
        saga_key,
        event,
    })
}

/// `billing.timer.<saga key>`: at most one armed timer a saga.
#[must_use]
pub fn timer(saga_key: &str) -> String {
    format!("billing.timer.{saga_key}")
}

/// `billing.due.<saga key>`: where the timer fires.
#[must_use]
pub fn due(saga_key: &str) -> String {
    format!("billing.due.{saga_key}")
}

/// What a message on the intake is, by its subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Intake<'a> {
    /// A provider's callback; the provider token as published.
    Callback {
        /// The provider token.
        provider: &'a str,
    },
    /// A request to start a saga.
    Start,
    /// A signal.
    Signal,
    /// An operator's request.
    Operator,
    /// None of ours.
    Other,
}

/// Tells what an intake message is.
#[must_use]
pub fn parse_intake(subject: &str) -> Intake<'_> {
    let mut tokens = subject.split('.');
    if tokens.next() != Some("billing") {
        return Intake::Other;
    }
    match (tokens.next(), tokens.next()) {
        (Some("callback"), Some(provider)) => Intake::Callback { provider },
        (Some("start"), Some(_)) => Intake::Start,
        (Some("signal"), Some(_)) => Intake::Signal,
        (Some("operator"), Some(_)) => Intake::Operator,
        _ => Intake::Other,
    }
}

/// First 128 bits of the SHA-256 of a body, as hex: enough to tell bodies apart in a subject.
#[must_use]
pub fn short_digest(body: &[u8]) -> String {
    use sha2::{Digest, Sha256};
    hex::encode(&Sha256::digest(body)[..16])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_never_add_tokens_or_wildcards() {
        let saga = SagaId::from_parts("deposit", &["p", ">", "a..b"]);
        let provider = Provider::new("p").expect("provider");
        for subject in [
            signal(&saga, "*", b"{}"),
            callback(&provider, "a.b >", b"{}"),
            start("deposit", ".."),
            audit(&saga, "a b.>", "ab12"),
            event(
                &Region::new("eu").expect("region"),
                &saga,
                "deposit_completed",
            ),
        ] {
            assert!(
                subject.split('.').all(|token| !token.is_empty()),
                "{subject}"
            );
            assert!(!subject.contains(['*', '>', ' ']), "{subject}");
            assert_eq!(
                subject.split('.').count(),
                if subject.contains(".start.") { 4 } else { 5 },
                "{subject}"
            );
        }
    }

    #[test]
    fn the_subject_of_an_event_comes_apart_as_it_was_made() {
        let saga = SagaId::from_parts("deposit", &["p", "a.b"]);
        let region = Region::new("eu").expect("region");
        let subject = event(&region, &saga, "deposit_completed");
        let parts = parse_event(&subject).expect("an event");
        assert_eq!(
            (parts.region, parts.saga_key, parts.event),
            ("eu", saga.key().as_str(), "deposit_completed")
        );
        for other in [
            "billing.event.eu",
            "billing.event.eu.x",
            "billing.due.a.b.c",
        ] {
            assert_eq!(parse_event(other), None, "{other}");
        }
    }

    #[test]
    fn intake_is_told_by_subject() {
        assert_eq!(
            parse_intake("billing.callback.stripe.evt_1.ab"),
            Intake::Callback { provider: "stripe" }
        );
        assert_eq!(parse_intake("billing.signal.x.y"), Intake::Signal);
        assert_eq!(parse_intake("billing.eu.wallet.update"), Intake::Other);
    }
}
