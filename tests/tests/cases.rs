//! Every case against the real thing: what it expects, and what holds for all.
//!
//! The table at the end has a line for each. A case may be known to fail, with a reason; when it passes
//! all the same, that is an error too, so that the list stays true.

use anyhow::ensure;
use saga_tests::cases::case::{self, Case, WorldKind};
use saga_tests::cases::judge;
use saga_tests::cases::runner::Run;
use saga_tests::cases::world::World;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;
use tokio::time::Instant;

/// Kinds of faults whose cases are here, and how many there are. Those of `own` are ours: what the others
/// led to.
const CLASSES: &[(&str, usize)] = &[
    ("amount-guard", 6),
    ("cancel-race", 2),
    ("compensation", 5),
    ("crash-recovery", 2),
    ("currency-exponent", 5),
    ("dedupe-key", 10),
    ("duplicate-effect", 4),
    ("environment-tenancy", 1),
    ("funds-concurrency", 4),
    ("fx-pin", 4),
    ("id-safety", 6),
    ("jetstream-consumer", 5),
    ("kv-cas", 3),
    ("money-parse", 4),
    ("ordering", 5),
    ("own", 5),
    ("p2p-dispute", 2),
    ("payload-safety", 4),
    ("reversal-after-success", 2),
    ("signals-approval", 3),
    ("signature", 1),
    ("status-vocabulary", 3),
    ("timers-clock", 2),
    ("unknown-outcome", 4),
    ("versioning", 2),
];

/// Cases that fail, and why.
const KNOWN_FAILING: &[(&str, &str)] = &[];

/// Only these cases, separated by commas; for work on one of them.
const ONLY: &str = "CASES";

/// Longest wait until the intake has nothing left.
const DRAIN: Duration = Duration::from_secs(30);

/// Worlds of cases that go one after another.
const RESTART_WORLDS: usize = 4;

/// How it begins what is wrong with a case that had nowhere to run: no reason to fail is known for that.
const NO_WORLD: &str = "no world";

/// Sentences in the table about one case, at most.
const SHOWN: usize = 4;

/// What became of a case: what is wrong with it.
type Results = BTreeMap<String, Vec<String>>;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cases_hold() {
    if let Ok(filter) = std::env::var("CASES_LOG") {
        let format = orchestrator::telemetry::LogFormat::Text;
        let telemetry = orchestrator::telemetry::start("cases", format, &filter);
        // Lives as long as the process.
        std::mem::forget(telemetry.expect("log"));
    }
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases");
    let mut cases = case::load(&dir).expect("cases");
    assert_eq!(
        classes(&cases),
        CLASSES.iter().copied().collect(),
        "a case is missing"
    );
    if let Ok(only) = std::env::var(ONLY) {
        let only: BTreeSet<&str> = only.split(',').collect();
        cases.retain(|case| only.contains(case.id.as_str()));
    }
    let start = Instant::now();
    let mut worlds: BTreeMap<WorldKind, Vec<Case>> = BTreeMap::new();
    for case in &cases {
        worlds.entry(case.world).or_default().push(case.clone());
    }
    let played = worlds
        .into_iter()
        .flat_map(|(kind, cases)| shared_out(kind, cases))
        .map(|(kind, cases)| async move { Box::pin(play(kind, &cases)).await });
    let mut results = Results::new();
    for played in futures::future::join_all(played).await {
        results.extend(played);
    }
    let (table, failed) = table(&cases, &results);
    // Past the test's captured output: a table of what passed is worth seeing too.
    let mut out = std::io::stderr().lock();
    writeln!(out, "{table}{} cases in {:?}", cases.len(), start.elapsed()).expect("stderr");
    assert!(failed.is_empty(), "{failed:?}");
}

/// Cases that go one after another are shared out over several worlds of their kind.
fn shared_out(kind: WorldKind, cases: Vec<Case>) -> Vec<(WorldKind, Vec<Case>)> {
    let worlds = match kind {
        WorldKind::Restarts => RESTART_WORLDS.min(cases.len()),
        WorldKind::Shared | WorldKind::FewPending | WorldKind::ThreeNodes => 1,
    };
    let mut shares = vec![Vec::new(); worlds];
    for (index, case) in cases.into_iter().enumerate() {
        shares[index % worlds].push(case);
    }
    shares.into_iter().map(|share| (kind, share)).collect()
}

fn classes(cases: &[Case]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for case in cases {
        *counts.entry(case.class.as_str()).or_insert(0) += 1;
    }
    counts
}

/// Plays all cases of one world; one that cannot be started fails all of them.
async fn play(kind: WorldKind, cases: &[Case]) -> Results {
    let played = match World::start(kind, cases).await {
        Err(error) => Err(error),
        Ok(world) if kind == WorldKind::Shared => side_by_side(&world, cases).await,
        Ok(world) => Ok(one_by_one(&world, cases).await),
    };
    played.unwrap_or_else(|error| {
        let failed = |case: &Case| {
            let wrong = format!("{NO_WORLD} {kind:?}: {error:#}");
            (case.id.clone(), vec![wrong])
        };
        cases.iter().map(failed).collect()
    })
}

async fn side_by_side(world: &World, cases: &[Case]) -> anyhow::Result<Results> {
    world.staff(1).await?;
    let playing = cases.iter().map(|case| async move {
        let mut run = Run::new(world, case);
        let played = run.play().await;
        (run, played)
    });
    let played = futures::future::join_all(playing).await;
    let drained = drained(world).await;
    let mut results = Results::new();
    for (run, played) in played {
        let mut wrong = judged(&run, played).await;
        wrong.extend(drained.as_ref().err().map(|error| format!("{error:#}")));
        results.insert(run.id().to_owned(), wrong);
    }
    ensure!(world.running().await, "an orchestrator has ended");
    world.books_are_right().await?;
    world.stop_all().await?;
    Ok(results)
}

async fn one_by_one(world: &World, cases: &[Case]) -> Results {
    let mut results = Results::new();
    for case in cases {
        let mut run = Run::new(world, case);
        let played = run.play().await;
        let drained = drained(world).await;
        let mut wrong = judged(&run, played).await;
        let ended = async {
            drained?;
            ensure!(world.running().await, "an orchestrator has ended");
            world.books_are_right().await?;
            run.clean_up().await?;
            world.stop_all().await
        };
        wrong.extend(ended.await.err().map(|error| format!("{error:#}")));
        results.insert(case.id.clone(), wrong);
    }
    results
}

async fn judged(run: &Run<'_>, played: anyhow::Result<()>) -> Vec<String> {
    let mut wrong: Vec<String> = played
        .err()
        .map(|error| format!("{error:#}"))
        .into_iter()
        .collect();
    match judge::verdict(run, run.expect()).await {
        Ok(more) => wrong.extend(more),
        Err(error) => wrong.push(format!("{error:#}")),
    }
    wrong
}

/// Every message is acknowledged.
async fn drained(world: &World) -> anyhow::Result<()> {
    let looking = async {
        loop {
            match world.unsettled().await {
                Ok(0) => return,
                Ok(_) | Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    };
    if tokio::time::timeout(DRAIN, looking).await.is_ok() {
        return Ok(());
    }
    anyhow::bail!("{} messages are not acknowledged", world.unsettled().await?)
}

/// A line for each case, and what is not as the list says.
fn table(cases: &[Case], results: &Results) -> (String, Vec<String>) {
    let (mut table, mut failed) = (String::new(), Vec::new());
    for case in cases {
        let known = KNOWN_FAILING.iter().find(|(id, _)| *id == case.id);
        let wrong = results
            .get(&case.id)
            .cloned()
            .unwrap_or_else(|| vec!["not played".to_owned()]);
        let known = known.filter(|_| !wrong.iter().any(|wrong| wrong.starts_with(NO_WORLD)));
        let mut shown = wrong[..wrong.len().min(SHOWN)].join("; ");
        if wrong.len() > SHOWN {
            write!(shown, "; and {} more", wrong.len() - SHOWN).expect("text");
        }
        let state = match (wrong.is_empty(), known) {
            (true, None) => "ok".to_owned(),
            (false, Some((_, reason))) => format!("known failing ({reason})"),
            (true, Some(_)) => {
                failed.push(format!("{} passes: take it off the list", case.id));
                "PASSES, and is on the list".to_owned()
            }
            (false, None) => {
                failed.push(format!("{}: {shown}", case.id));
                format!("FAILED: {shown}")
            }
        };
        let adapted = if case.adapted.is_some() { "*" } else { " " };
        writeln!(
            table,
            "{}{adapted} {:<22} {:<72} {state}",
            case.id, case.class, case.title
        )
        .expect("text");
    }
    (table, failed)
}
