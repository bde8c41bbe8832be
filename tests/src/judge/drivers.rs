//! What will wake a saga.

use std::collections::{BTreeMap, BTreeSet};

/// Messages and timers that are still to come.
#[derive(Debug, Default)]
pub(super) struct Drivers {
    /// Unacknowledged messages and whom they wake.
    open: BTreeMap<String, String>,
    by_saga: BTreeMap<String, BTreeSet<String>>,
    timers: BTreeSet<String>,
    touched: BTreeSet<String>,
    fired: BTreeSet<String>,
}

impl Drivers {
    pub(super) fn touch(&mut self, saga: &str) {
        self.touched.insert(saga.to_owned());
    }

    pub(super) fn armed(&mut self, saga: &str) {
        self.timers.insert(saga.to_owned());
    }

    pub(super) fn disarmed(&mut self, saga: &str) {
        self.timers.remove(saga);
        self.touch(saga);
    }

    pub(super) fn fired(&mut self, saga: &str, message: String) {
        self.timers.remove(saga);
        self.fired.insert(message.clone());
        self.stored(message, saga.to_owned());
        self.touch(saga);
    }

    pub(super) fn stored(&mut self, message: String, about: String) {
        let of_saga = self.by_saga.entry(about.clone()).or_default();
        of_saga.insert(message.clone());
        self.open.insert(message, about);
    }

    /// Whether the message says something, so that it has to be accounted for: a timer does not, and
    /// a second acknowledgement is none.
    pub(super) fn acked(&mut self, message: &str) -> bool {
        let Some(about) = self.open.remove(message) else {
            return false;
        };
        if let Some(of_saga) = self.by_saga.get_mut(&about) {
            of_saga.remove(message);
        }
        // Later generations of a payment's saga are driven by what was said about the first.
        let later: Vec<String> = self
            .by_saga
            .range(format!("{about}/")..format!("{about}0"))
            .map(|(saga, _)| saga.clone())
            .collect();
        self.touched.extend(later);
        self.touch(&about);
        for generation in 2..5 {
            self.touch(&format!("{about}/again:{generation}"));
        }
        !self.fired.contains(message)
    }

    pub(super) fn is_driven(&self, saga: &str) -> bool {
        let first = saga.split("/again:").next().unwrap_or(saga);
        let has_message = |saga: &str| {
            self.by_saga
                .get(saga)
                .is_some_and(|messages| !messages.is_empty())
        };
        self.timers.contains(saga) || has_message(saga) || has_message(first)
    }

    pub(super) fn touched(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.touched)
    }

    pub(super) fn left_over(&self) -> Option<&str> {
        self.open.keys().next().map(String::as_str)
    }
}
