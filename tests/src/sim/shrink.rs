//! From a failing world to the smallest one found that fails alike.

use std::collections::BTreeSet;

use super::{Outcome, Script, run};
use crate::judge::Invariant;

/// One thing that can be left out.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Input(u64),
    Fault(String),
}

/// Leaves out inputs and faults while the same invariant breaks, as long as `go_on` says so. Gives the
/// smallest world found and what came of it.
///
/// # Errors
/// When a world cannot be set up.
pub fn shrink(
    script: &Script,
    failed: Outcome,
    invariant: Invariant,
    mut go_on: impl FnMut() -> bool,
) -> anyhow::Result<(Script, Outcome)> {
    let mut smallest = Script {
        faults: Some(failed.struck.clone()),
        breach: failed.breach.as_ref().map(ToString::to_string),
        ..script.clone()
    };
    let mut outcome = failed;
    let mut parts = parts_of(&smallest);
    let mut size = parts.len().div_ceil(2);
    while size > 0 && go_on() {
        let mut left_something_out = false;
        let mut start = 0;
        while start < parts.len() && go_on() {
            let end = (start + size).min(parts.len());
            let kept: Vec<Part> = [&parts[..start], &parts[end..]].concat();
            let candidate = only(&smallest, &kept);
            let result = run(&candidate)?;
            match &result.breach {
                Some(breach) if breach.invariant == invariant => {
                    smallest = Script {
                        // What no longer strikes is no part of it.
                        faults: Some(result.struck.clone()),
                        breach: Some(breach.to_string()),
                        ..candidate
                    };
                    parts = parts_of(&smallest);
                    outcome = result;
                    left_something_out = true;
                }
                Some(_) | None => start = end,
            }
        }
        if !left_something_out || size > 1 {
            size /= 2;
        }
    }
    Ok((smallest, outcome))
}

/// Faults first: most of them have nothing to do with it.
fn parts_of(script: &Script) -> Vec<Part> {
    let faults = script.faults.iter().flatten().cloned().map(Part::Fault);
    let inputs = script.inputs.iter().map(|input| Part::Input(input.number));
    faults.chain(inputs).collect()
}

fn only(script: &Script, kept: &[Part]) -> Script {
    let kept: BTreeSet<&Part> = kept.iter().collect();
    let mut script = script.clone();
    script
        .inputs
        .retain(|input| kept.contains(&Part::Input(input.number)));
    if let Some(faults) = &mut script.faults {
        faults.retain(|fault| kept.contains(&Part::Fault(fault.clone())));
    }
    script
}
