//! What is counted, for `/metrics`.

use contracts::id::Region;
use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

use crate::saga::CASE_OPENED;
use crate::saga::action::Event;
use crate::saga::record::{CaseReason, SagaRecord};

/// The orchestrator's metrics. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Metrics {
    registry: Registry,
    commits: IntCounter,
    conflicts: IntCounter,
    parked: IntCounter,
    late_replies: IntCounter,
    events: IntCounter,
    at_work: IntGauge,
    ended: IntCounterVec,
    cases: IntCounterVec,
    intake: IntCounterVec,
    held_back: IntCounterVec,
    silent: IntGaugeVec,
}

impl Metrics {
    /// Registers everything in a new registry.
    ///
    /// # Errors
    /// Never in practice: a name used twice.
    pub fn new() -> Result<Self, prometheus::Error> {
        let registry = Registry::new_custom(Some("orchestrator".to_owned()), None)?;
        let counter = |name: &str, help: &str| -> Result<IntCounter, prometheus::Error> {
            let counter = IntCounter::new(name, help)?;
            registry.register(Box::new(counter.clone()))?;
            Ok(counter)
        };
        let labelled =
            |name: &str, help: &str, label: &str| -> Result<IntCounterVec, prometheus::Error> {
                let counter = IntCounterVec::new(Opts::new(name, help), &[label])?;
                registry.register(Box::new(counter.clone()))?;
                Ok(counter)
            };
        let at_work = IntGauge::new("sagas_at_work", "Sagas this process drives now")?;
        registry.register(Box::new(at_work.clone()))?;
        let silent = IntGaugeVec::new(
            Opts::new(
                "region_silent",
                "1 while a region does not answer and its commands are held back",
            ),
            &["region"],
        )?;
        registry.register(Box::new(silent.clone()))?;
        Ok(Self {
            held_back: labelled(
                "commands_held_back_total",
                "Commands not sent because their region was silent or had too many out, by region",
                "region",
            )?,
            silent,
            commits: counter("commits_total", "Records written")?,
            conflicts: counter(
                "conflicts_total",
                "Writes that found a newer record and were decided again",
            )?,
            parked: counter(
                "parked_total",
                "Sagas parked with a timer armed after being held too long",
            )?,
            late_replies: counter(
                "late_replies_total",
                "Answers that came after their command was given up",
            )?,
            events: counter("events_total", "Events put in the log")?,
            at_work,
            ended: labelled("sagas_ended_total", "Sagas ended, by status", "status")?,
            cases: labelled("cases_opened_total", "Cases opened, by reason", "reason")?,
            intake: labelled(
                "intake_total",
                "Intake messages settled, by outcome",
                "outcome",
            )?,
            registry,
        })
    }

    /// The registry to serve.
    #[must_use]
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    pub(crate) fn committed(&self, record: &SagaRecord, events: &[Event]) {
        self.commits.inc();
        self.events.inc_by(u64::try_from(events.len()).unwrap_or(0));
        // Written once at the end; a later duplicate has its own cause.
        if record.status.is_terminal() && record.cause == record.status.as_str() {
            self.ended
                .with_label_values(&[record.status.as_str()])
                .inc();
        }
        if let Some(case) = &record.case
            && record.cause.starts_with(CASE_OPENED)
        {
            self.case_opened(case.reason);
        }
    }

    pub(crate) fn case_opened(&self, reason: CaseReason) {
        self.cases
            .with_label_values(&[&format!("{reason:?}")])
            .inc();
    }

    pub(crate) fn conflict(&self) {
        self.conflicts.inc();
    }

    pub(crate) fn parked(&self) {
        self.parked.inc();
    }

    pub(crate) fn late_reply(&self) {
        self.late_replies.inc();
    }

    pub(crate) fn sagas_at_work(&self, count: usize) {
        self.at_work.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    pub(crate) fn held_from_region(&self, region: &Region) {
        self.held_back.with_label_values(&[region.as_str()]).inc();
    }

    pub(crate) fn region_silent(&self, region: &Region, silent: bool) {
        self.silent
            .with_label_values(&[region.as_str()])
            .set(i64::from(silent));
    }

    pub(crate) fn intake(&self, outcome: &str) {
        self.intake.with_label_values(&[outcome]).inc();
    }
}
