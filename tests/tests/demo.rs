//! `orchestrator demo` as a process: its numbers, its exit code, and that it leaves nothing behind.

use anyhow::{Context as _, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;
use tokio::process::{Child, Command};

/// Far longer than a run takes on a busy machine.
const BOUND: Duration = Duration::from_secs(180);

#[tokio::test]
async fn the_demo_ends_by_itself_and_its_numbers_are_those_of_its_story() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let output = end(start(directory.path(), &["demo", "--json"])?).await?;
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(
        output.status.code() == Some(0),
        "{}: {stderr}",
        output.status
    );
    let report: Value = serde_json::from_slice(&output.stdout).context("one JSON value")?;
    let keys: BTreeSet<&str> = report
        .as_object()
        .context("an object")?
        .keys()
        .map(String::as_str)
        .collect();
    assert_eq!(
        keys,
        BTreeSet::from([
            "sagas",
            "credits",
            "events",
            "duplicates_absorbed",
            "balances",
            "checks",
            "seconds"
        ])
    );
    for (status, count) in [
        ("completed", 25),
        ("compensated", 1),
        ("failed", 3),
        ("needs_review", 2),
        ("running", 0),
        ("waiting", 0),
        ("compensating", 0),
        ("cancelled", 0),
    ] {
        assert_eq!(report["sagas"][status], count, "{status}: {report}");
    }
    for (name, number) in [("credits", 25), ("events", 25), ("duplicates_absorbed", 6)] {
        assert_eq!(report[name], number, "{name}");
    }
    assert_eq!(balances(&report)?, expected_balances());
    let checks = report["checks"].as_array().context("checks")?;
    assert!(checks.len() >= 10, "{checks:?}");
    for check in checks {
        assert_eq!(check["ok"], true, "{check}");
        assert!(check["name"].is_string(), "{check}");
    }
    assert!(report["seconds"].as_f64() > Some(0.0));
    nothing_is_left(directory.path())
}

#[tokio::test]
async fn an_interrupted_demo_leaves_nothing_behind() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let demo = start(directory.path(), &["demo"])?;
    let pid = i32::try_from(demo.id().context("it runs")?)?;
    // In the middle: servers and agents run, and the orchestrator has begun.
    let begun = async {
        let log = Path::new("logs/orchestrator.log");
        while !made(directory.path())?
            .iter()
            .any(|site| site.join(log).exists())
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(BOUND, begun)
        .await
        .context("no orchestrator was started")??;
    kill(Pid::from_raw(pid), Signal::SIGINT)?;
    let output = end(demo).await?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("interrupted"), "{stderr}");
    assert!(output.stdout.is_empty());
    nothing_is_left(directory.path())
}

/// Every wallet, its currency and what the story pays into it, added up by hand.
fn expected_balances() -> BTreeSet<[String; 5]> {
    [
        ("asia", "kenji", "JPY", "27237"),
        ("asia", "mei", "JPY", "8221"),
        ("asia", "noor", "KWD", "21.556"),
        ("asia", "sora", "USD", "45.50"),
        ("default", "lina", "USD", "60.90"),
        ("default", "omar", "USD", "35.00"),
        ("default", "oskar", "USD", "8.25"),
        ("default", "tariq", "BHD", "5.250"),
        ("default", "zoe", "USD", "21.40"),
        ("eu", "Søren & Sønner/7", "EUR", "80.00"),
        ("eu", "ana", "EUR", "269.99"),
        ("eu", "bruno", "EUR", "109.00"),
        ("eu", "greta", "EUR", "60.00"),
        ("eu", "ivan", "GBP", "37.50"),
        ("eu", "ivan", "USD", "1.90"),
        ("eu", "wanda", "EUR", "120.00"),
    ]
    .into_iter()
    .map(|(region, customer, currency, sum)| {
        [region, customer, currency, sum, sum].map(str::to_owned)
    })
    .collect()
}

fn balances(report: &Value) -> anyhow::Result<BTreeSet<[String; 5]>> {
    let text = |line: &Value, field: &str| {
        let text = line[field].as_str().map(str::to_owned);
        text.with_context(|| format!("{field} in {line}"))
    };
    let lines = report["balances"].as_array().context("balances")?;
    lines
        .iter()
        .map(|line| {
            Ok([
                text(line, "region")?,
                text(line, "customer")?,
                text(line, "currency")?,
                text(line, "balance")?,
                text(line, "paid_in")?,
            ])
        })
        .collect()
}

/// The program, with a directory of its own for temporary files, by which its children are told as well.
fn command(directory: &Path, arguments: &[&str]) -> anyhow::Result<Command> {
    let mut command = Command::new(program()?);
    command
        .args(arguments)
        .env("TMPDIR", directory)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    Ok(command)
}

fn start(directory: &Path, arguments: &[&str]) -> anyhow::Result<Child> {
    Ok(command(directory, arguments)?.spawn()?)
}

async fn end(child: Child) -> anyhow::Result<Output> {
    tokio::time::timeout(BOUND, child.wait_with_output())
        .await
        .with_context(|| format!("no end within {BOUND:?}"))?
        .context("orchestrator")
}

fn program() -> anyhow::Result<PathBuf> {
    let test = std::env::current_exe()?;
    let build = test.ancestors().nth(2).context("target/debug/deps/…")?;
    let program = build.join("orchestrator");
    ensure!(
        program.is_file() && build.join("region-agent").is_file(),
        "no programs in {}: cargo build --workspace --bins",
        build.display()
    );
    Ok(program)
}

/// What the run has made, but for the reservations of ports, which runs share.
fn made(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut made = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_name() != "saga-site-ports" {
            made.push(entry.path());
        }
    }
    Ok(made)
}

/// No process that was given this directory runs, and no file is left in it.
fn nothing_is_left(directory: &Path) -> anyhow::Result<()> {
    let files = made(directory)?;
    ensure!(files.is_empty(), "left behind: {files:?}");
    let mark = format!("TMPDIR={}", directory.display());
    for process in std::fs::read_dir("/proc")? {
        let process = process?.path();
        // Processes of others cannot be read, and some end while we look.
        let Ok(environment) = std::fs::read(process.join("environ")) else {
            continue;
        };
        let ours = environment
            .split(|&byte| byte == 0)
            .any(|variable| variable == mark.as_bytes());
        if ours {
            let line = std::fs::read(process.join("cmdline"))?;
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            anyhow::bail!("{} still runs: {line}", process.display());
        }
    }
    Ok(())
}
