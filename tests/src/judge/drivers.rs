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

    /// The saga, and the generations that it may be the driver of.
    fn touch_with_later(&mut self, saga: &str) {
        let first = saga.split("/again:").next().unwrap_or(saga).to_owned();
        for generation in 2..6 {
            self.touched.insert(format!("{first}/again:{generation}"));
        }
        self.touch(saga);
    }

    pub(super) fn armed(&mut self, saga: &str) {
        self.timers.insert(saga.to_owned());
    }

    pub(super) fn disarmed(&mut self, saga: &str) {
        self.timers.remove(saga);
        self.touch_with_later(saga);
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
        self.touch_with_later(&about);
        !self.fired.contains(message)
    }

    /// Whether anything will wake the saga. A later generation of a payment's saga is started by the one
    /// before it, and until it has a driver of its own, that one's is its driver.
    pub(super) fn is_driven(&self, saga: &str) -> bool {
        let first = saga.split("/again:").next().unwrap_or(saga);
        let number = saga
            .strip_prefix(first)
            .and_then(|rest| rest.strip_prefix("/again:"))
            .and_then(|number| number.parse::<u32>().ok())
            .unwrap_or(1);
        let earlier = (2..=number).map(|number| format!("{first}/again:{number}"));
        std::iter::once(first.to_owned())
            .chain(earlier)
            .any(|saga| {
                let messages = self.by_saga.get(&saga);
                self.timers.contains(&saga) || messages.is_some_and(|open| !open.is_empty())
            })
    }

    pub(super) fn touched(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.touched)
    }

    /// Messages that are not acknowledged, and whom they wake.
    pub(super) fn left_over(&self) -> impl Iterator<Item = (&str, &str)> {
        let open = self.open.iter();
        open.map(|(message, saga)| (message.as_str(), saga.as_str()))
    }
}
