//! What a person sees while the demonstration runs: on standard error, and nothing when a program
//! reads the result.

use crate::saga::record::{SagaRecord, Status};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressFinish, ProgressStyle};
use std::collections::BTreeMap;
use std::time::Duration;

/// Who looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Audience {
    /// A person: at a terminal a moving bar, else a line for each step.
    Person,
    /// A program that reads the result.
    Program,
}

/// The display.
#[derive(Debug)]
pub(super) struct Progress {
    bar: ProgressBar,
    audience: Audience,
}

const REDRAW: Duration = Duration::from_millis(100);

impl Progress {
    /// A display for this audience.
    pub(super) fn new(audience: Audience) -> Self {
        let target = match audience {
            Audience::Person => ProgressDrawTarget::stderr(),
            Audience::Program => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(None, target).with_finish(ProgressFinish::AndClear);
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
            bar.set_style(style);
        }
        if !bar.is_hidden() {
            bar.enable_steady_tick(REDRAW);
        }
        Self { bar, audience }
    }

    /// The next thing that is done.
    pub(super) fn step(&self, what: &str) {
        if !self.bar.is_hidden() {
            self.bar.println(format!("  {what}"));
        } else if self.audience == Audience::Person {
            eprintln!("  {what}");
        }
    }

    /// Shows a bar of so many sagas.
    pub(super) fn track(&self, sagas: usize) {
        self.bar
            .set_length(u64::try_from(sagas).unwrap_or(u64::MAX));
        if let Ok(style) = ProgressStyle::with_template("{spinner} [{bar:32}] {pos}/{len} {msg}") {
            self.bar.set_style(style.progress_chars("=> "));
        }
    }

    /// How the sagas stand now.
    pub(super) fn sagas(&self, records: &BTreeMap<String, SagaRecord>) {
        let at_rest = records
            .values()
            .filter(|record| record.status.is_terminal() || record.status == Status::NeedsReview)
            .count();
        self.bar
            .set_position(u64::try_from(at_rest).unwrap_or(u64::MAX));
        let counts: Vec<String> = Status::ALL
            .into_iter()
            .filter_map(|status| {
                let count = records
                    .values()
                    .filter(|record| record.status == status)
                    .count();
                (count > 0).then(|| format!("{count} {status}"))
            })
            .collect();
        self.bar.set_message(counts.join(", "));
    }

    /// Takes the bar away.
    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
