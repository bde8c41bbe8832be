//! What is counted about commands.

use contracts::command::WalletVerb;
use prometheus::{
    HistogramOpts, HistogramTimer, HistogramVec, IntCounterVec, IntGauge, Opts, Registry,
};

/// Counters of one agent. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Metrics {
    answers: IntCounterVec,
    seconds: HistogramVec,
    in_flight: IntGauge,
}

impl Metrics {
    /// Registers the counters.
    ///
    /// # Errors
    /// When the registry holds their names already.
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let metrics = Self {
            answers: IntCounterVec::new(
                Opts::new(
                    "wallet_answers_total",
                    "Answers given, by verb and kind of answer",
                ),
                &["verb", "answer"],
            )?,
            seconds: HistogramVec::new(
                HistogramOpts::new(
                    "wallet_command_seconds",
                    "From arrival of a command to its answer, refused-as-busy ones left out",
                ),
                &["verb"],
            )?,
            in_flight: IntGauge::new("wallet_commands_in_flight", "Commands being executed")?,
        };
        registry.register(Box::new(metrics.answers.clone()))?;
        registry.register(Box::new(metrics.seconds.clone()))?;
        registry.register(Box::new(metrics.in_flight.clone()))?;
        Ok(metrics)
    }

    pub(super) fn start(&self, verb: WalletVerb) -> HistogramTimer {
        self.in_flight.inc();
        self.seconds
            .with_label_values(&[verb.as_str()])
            .start_timer()
    }

    pub(super) fn finish(&self, timer: HistogramTimer, verb: WalletVerb, answer: &'static str) {
        timer.observe_duration();
        self.in_flight.dec();
        self.count(verb, answer);
    }

    pub(super) fn count(&self, verb: WalletVerb, answer: &'static str) {
        self.answers
            .with_label_values(&[verb.as_str(), answer])
            .inc();
    }
}
