//! The checks that the demonstration's verdict is made of: what must be against what is. Pure.

mod books;
mod sagas;
#[cfg(test)]
mod tests;

use super::expected::Expected;
use super::found::Found;
use crate::doctor::Level;
use serde::Serialize;

/// One check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Check {
    /// What must hold.
    pub(super) name: &'static str,
    /// Whether it does.
    pub(super) ok: bool,
    /// What was found; where it does not hold, what differs.
    pub(super) found: String,
}

/// A check: its name, and what it finds (`Err` when that is wrong).
type Rule = (
    &'static str,
    fn(&Expected, &Found) -> Result<String, String>,
);

const RULES: [Rule; 18] = [
    ("every callback is accounted for", sagas::callbacks),
    ("every saga ended as it must", sagas::ends),
    ("nothing is open but the expected cases", sagas::open),
    (
        "completed deposits = credits = events",
        sagas::equal_numbers,
    ),
    ("repeats of known facts were absorbed", sagas::repeats),
    ("balances are what was paid", books::balances),
    ("agents show the same balances", books::agents),
    ("each credit belongs to one saga", books::credits),
    ("a payment told twice was credited once", books::told_twice),
    (
        "a refused deposit left nothing in the wallet",
        books::refused,
    ),
    ("ledgers balance by double entry", books::double_entry),
    ("events say what was credited", books::events),
    ("the payments table agrees", books::payments),
    (
        "what cannot be read is a case with its body",
        sagas::unreadable,
    ),
    (
        "the directory decided where nobody claimed a region",
        books::directory,
    ),
    ("the intake is fully acknowledged", sagas::intake),
    ("reconcile finds no difference", reconciled),
    ("the doctor finds nothing unsafe", doctor),
];

/// Makes every check.
pub(super) fn all(expected: &Expected, found: &Found) -> Vec<Check> {
    RULES
        .iter()
        .map(|(name, rule)| {
            let (ok, found) = match rule(expected, found) {
                Ok(found) => (true, found),
                Err(found) => (false, found),
            };
            Check { name, ok, found }
        })
        .collect()
}

fn reconciled(_expected: &Expected, found: &Found) -> Result<String, String> {
    let reconciled = &found.reconciled;
    none(
        &reconciled.differences,
        format!("{} sagas", reconciled.sagas),
    )
}

fn doctor(_expected: &Expected, found: &Found) -> Result<String, String> {
    let refusals: Vec<String> = found
        .doctor
        .refusals()
        .map(|check| format!("{}: {}", check.name, check.found))
        .collect();
    let warnings: Vec<&str> = found
        .doctor
        .checks
        .iter()
        .filter(|check| check.level == Level::Warn)
        .map(|check| check.name.as_str())
        .collect();
    let mut right = format!("{} findings", found.doctor.checks.len());
    if !warnings.is_empty() {
        right.push_str(&format!("; to look at: {}", warnings.join(", ")));
    }
    none(&refusals, right)
}

/// Right when nothing is wrong.
fn none(wrong: &[String], right: String) -> Result<String, String> {
    if wrong.is_empty() {
        Ok(right)
    } else {
        Err(wrong.join("; "))
    }
}
