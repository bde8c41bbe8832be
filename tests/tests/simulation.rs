//! Seeded random worlds; see `saga_tests::sim`. Run by `cargo test` with a fixed number of seeds, and by
//! `make sim`:
//!
//! * `SEEDS=n` worlds of the seeds 1 to n (`FIRST=k`: from k on),
//! * `SEED=x` one world, its trace shown when it fails,
//! * `SCRIPT=file` a world as it was written down when it failed.
//!
//! `--no-shrink` leaves a failing world as it is. It ends with 1 at the first failure.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail};
use saga_tests::judge::Breach;
use saga_tests::sim::report::Report;
use saga_tests::sim::shrink::shrink;
use saga_tests::sim::{Outcome, Script, run};

/// Worlds of a run that names no seeds: within a minute on two busy cores.
const USUAL: u64 = 100;

/// With fewer worlds than this some kind of fault may well not occur.
const ENOUGH: u64 = 100;

/// How long a smaller failing world is looked for.
const SHRINKING: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // What asks the test harness for its tests gets none: this is one run.
    if arguments.iter().any(|argument| argument == "--list") {
        return ExitCode::SUCCESS;
    }
    let is_filtered = arguments
        .iter()
        .any(|argument| !argument.starts_with('-') && !"simulation".contains(argument.as_str()));
    if is_filtered {
        return ExitCode::SUCCESS;
    }
    let shrinks = !arguments.iter().any(|argument| argument == "--no-shrink");
    match simulate(shrinks) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::print_stdout, reason = "this is what it is run for")]
fn say(text: &str) {
    println!("{text}");
}

fn number(name: &str) -> anyhow::Result<Option<u64>> {
    match std::env::var(name) {
        Ok(text) if text.is_empty() => Ok(None),
        Ok(text) => {
            Ok(Some(text.parse().with_context(|| {
                format!("{name}={text} is not a whole number")
            })?))
        }
        Err(_) => Ok(None),
    }
}

fn simulate(shrinks: bool) -> anyhow::Result<()> {
    if let Some(file) = std::env::var_os("SCRIPT").filter(|file| !file.is_empty()) {
        let text =
            std::fs::read(&file).with_context(|| format!("{}", Path::new(&file).display()))?;
        return one(&serde_json::from_slice(&text)?, shrinks);
    }
    if let Some(seed) = number("SEED")? {
        return one(&Script::of_seed(seed), shrinks);
    }
    once_broken()?;
    let first = number("FIRST")?.unwrap_or(1);
    let count = number("SEEDS")?.unwrap_or(USUAL);
    if count == 0 {
        bail!("SEEDS=0 shows nothing: give at least 1");
    }
    say(&format!("seeds {first} to {}", first + count - 1));
    the_same_again(first)?;
    many(first, count, shrinks)
}

/// Worlds in which something was broken once, as small as they were found.
fn once_broken() -> anyhow::Result<()> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("worlds");
    let mut files = std::fs::read_dir(&directory)?
        .map(|entry| Ok(entry?.path()))
        .collect::<std::io::Result<Vec<PathBuf>>>()?;
    files.sort();
    for file in &files {
        let script: Script = serde_json::from_slice(&std::fs::read(file)?)?;
        if let Some(breach) = run(&script)?.breach {
            bail!("BROKEN again: {}: {breach}", file.display());
        }
    }
    say(&format!(
        "{} worlds in which something was broken once",
        files.len()
    ));
    Ok(())
}

/// A seed is a world: run twice, it is the same twice, or no schedule could be replayed.
fn the_same_again(seed: u64) -> anyhow::Result<()> {
    let script = Script::of_seed(seed);
    let (first, second) = (run(&script)?, run(&script)?);
    let differs = first
        .trace
        .iter()
        .zip(&second.trace)
        .find(|(first, second)| first != second);
    if let Some((first, second)) = differs {
        bail!("seed {seed} is not the same twice: {first:?}, then {second:?}");
    }
    if first.trace.len() != second.trace.len() {
        bail!("seed {seed} is not as long twice");
    }
    Ok(())
}

fn one(script: &Script, shrinks: bool) -> anyhow::Result<()> {
    say(&format!("seed {}", script.seed));
    let outcome = run(script)?;
    let mut report = Report::default();
    report.add(script, &outcome);
    if let Some(breach) = outcome.breach.clone() {
        return failed(script, outcome, &breach, shrinks);
    }
    if std::env::var_os("TRACE").is_some() {
        say(&told(&outcome));
    }
    say(&report.to_string());
    say("no law was broken");
    Ok(())
}

/// Many worlds, on two threads.
fn many(first: u64, count: u64, shrinks: bool) -> anyhow::Result<()> {
    let next = AtomicU64::new(first);
    let stop = AtomicBool::new(false);
    let report = Mutex::new(Report::default());
    let failure: Mutex<Option<(Script, Outcome, Breach)>> = Mutex::new(None);
    std::thread::scope(|scope| -> anyhow::Result<()> {
        let work = || -> anyhow::Result<()> {
            while !stop.load(Ordering::Relaxed) {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= first + count {
                    break;
                }
                let script = Script::of_seed(seed);
                let outcome = run(&script).inspect_err(|_| stop.store(true, Ordering::Relaxed))?;
                let mut report = report.lock().unwrap_or_else(|error| error.into_inner());
                report.add(&script, &outcome);
                drop(report);
                if let Some(breach) = outcome.breach.clone() {
                    stop.store(true, Ordering::Relaxed);
                    let mut failure = failure.lock().unwrap_or_else(|error| error.into_inner());
                    failure.get_or_insert((script, outcome, breach));
                }
            }
            Ok(())
        };
        let other = scope.spawn(work);
        work()?;
        match other.join() {
            Ok(result) => result,
            Err(_) => bail!("a world panicked"),
        }
    })?;
    if let Some((script, outcome, breach)) = failure.into_inner()? {
        return failed(&script, outcome, &breach, shrinks);
    }
    let report = report.into_inner()?;
    say(&report.to_string());
    let never = report.never();
    if count >= ENOUGH && !never.is_empty() {
        bail!("these never occurred, so nothing was shown about them: {never:?}");
    }
    say(&format!("no law was broken in {count} worlds"));
    Ok(())
}

/// Says what was broken, how, and how to see it again.
fn failed(script: &Script, outcome: Outcome, breach: &Breach, shrinks: bool) -> anyhow::Result<()> {
    say(&format!("BROKEN with seed {}: {breach}", script.seed));
    let (smallest, outcome) = if shrinks {
        say("looking for a smaller world that breaks it");
        let (done, time_is_up) = std::sync::mpsc::channel::<()>();
        std::thread::spawn(move || {
            std::thread::sleep(SHRINKING);
            drop(done);
        });
        let go_on = || {
            let none_yet = std::sync::mpsc::TryRecvError::Empty;
            time_is_up.try_recv() == Err(none_yet)
        };
        shrink(script, outcome, breach.invariant, go_on)?
    } else {
        let as_it_was = Script {
            faults: Some(outcome.struck.clone()),
            breach: Some(breach.to_string()),
            ..script.clone()
        };
        (as_it_was, outcome)
    };
    say(&told(&outcome));
    let faults = smallest.faults.iter().flatten();
    let faults: Vec<&str> = faults.map(String::as_str).collect();
    say(&format!(
        "{} inputs and {} faults are left of it:\n  {}",
        smallest.inputs.len(),
        faults.len(),
        faults.join("\n  ")
    ));
    let file = write(&smallest)?;
    bail!(
        "BROKEN: {}\n  the whole world:    make sim SEED={}\n  the smallest found: make sim SCRIPT={}",
        smallest.breach.as_deref().unwrap_or_default(),
        script.seed,
        file.display()
    );
}

fn write(script: &Script) -> anyhow::Result<PathBuf> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let directory = target.parent().unwrap_or(target).join("sim");
    std::fs::create_dir_all(&directory)?;
    let file = directory.join(format!("seed-{}.json", script.seed));
    std::fs::write(&file, serde_json::to_string_pretty(script)?)?;
    Ok(file)
}

/// What happened: first in no saga, then saga by saga.
fn told(outcome: &Outcome) -> String {
    let mut by_saga: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for line in &outcome.trace {
        let seconds = format!("{:>9}.{:03}", line.at / 1_000, line.at % 1_000);
        let lines = by_saga.entry(&line.saga).or_default();
        lines.push(format!("{seconds}  {}", line.text));
    }
    let mut text = String::new();
    for (saga, lines) in by_saga {
        let name = if saga.is_empty() { "the world" } else { saga };
        text.push_str(&format!("\n{name}\n{}\n", lines.join("\n")));
    }
    text
}
