//! The program as a person runs it: what it prints, and with which code it ends.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn program(directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_region-agent"));
    command
        .current_dir(directory)
        .env_clear()
        .env("REGION_AGENT_LEDGER", "sqlite://wallet.db")
        .stdin(Stdio::null());
    command
}

fn run(directory: &Path, arguments: &str) -> Output {
    program(directory)
        .args(arguments.split_whitespace())
        .output()
        .expect("the program runs")
}

fn check(directory: &Path, arguments: &str, code: i32, said: &str) {
    let output = run(directory, arguments);
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(output.status.code(), Some(code), "{arguments}: {text}");
    assert!(text.contains(said), "{arguments}: {text}");
}

#[test]
fn wrong_usage_is_64_and_names_what_is_wrong() {
    let directory = tempfile::tempdir().expect("directory");
    let directory = directory.path();
    for (arguments, said) in [
        ("", "Usage"),
        ("serv", "serv"),
        ("serve", "region: is not set"),
        ("serve --region EU", "region: \"EU\""),
        ("serve --region eu --max-in-flight 0", "max_in_flight"),
        ("serve --region eu --listen nowhere", "listen"),
        ("serve --region eu --context nosuch", "nats.context"),
        ("serve --region eu --config nosuch.toml", "nosuch.toml"),
        ("serve --region eu --log [", "log"),
    ] {
        check(directory, arguments, 64, said);
    }
    let output = run(directory, "serve");
    let lines = String::from_utf8_lossy(&output.stderr).lines().count();
    assert_eq!(lines, 1, "one line");
    check(directory, "--help", 0, "Exit codes");
    check(directory, "--version", 0, env!("CARGO_PKG_VERSION"));
    check(
        directory,
        "ledger verify --ledger mysql://u:p@h/d",
        1,
        "mysql://",
    );
}

#[test]
fn a_wallet_is_opened_closed_and_shown() {
    let directory = tempfile::tempdir().expect("directory");
    let directory = directory.path();
    // Nothing is looked at or booked in a ledger that is not there.
    check(directory, "wallet show c-1", 1, "does not exist");
    check(directory, "ledger verify", 1, "does not exist");
    check(directory, "wallet open c-1 --only EUR", 0, "EUR only");
    check(directory, "wallet show c-2", 1, "no wallet");
    check(directory, "wallet close c-2", 1, "no wallet");
    check(directory, "wallet show c-1", 0, "open");
    check(directory, "wallet close c-1", 0, "closed");
    check(directory, "wallet open c-1 --only euro!", 64, "euro!");
    check(directory, "ledger verify", 0, "the books are right");
}

#[test]
fn a_service_starts_without_nats_and_ends_when_told() {
    let directory = tempfile::tempdir().expect("directory");
    let mut agent = program(directory.path())
        .args(["serve", "--region", "eu", "--listen", "127.0.0.1:0"])
        .args(["--nats-url", "nats://127.0.0.1:1"])
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs");
    let log = BufReader::new(agent.stderr.take().expect("log"));
    let mut lines = log.lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("serving")));
    let reader = std::thread::spawn(move || lines.for_each(drop));
    let pid = Pid::from_raw(i32::try_from(agent.id()).expect("pid"));
    kill(pid, Signal::SIGTERM).expect("signal");
    assert_eq!(agent.wait().expect("end").code(), Some(0));
    reader.join().expect("log");
}

#[test]
fn a_movement_by_hand_happens_once_and_can_be_offset() {
    let directory = tempfile::tempdir().expect("directory");
    let directory = directory.path();
    check(directory, "wallet open cust-a", 0, "open");
    let book = "wallet book deposit/acme/p1 cust-a credit 12.50 EUR --reason lost";
    check(directory, book, 0, "\"amount_minor\": 1250");
    check(directory, book, 0, "\"answer\": \"applied\"");
    check(directory, "wallet show cust-a", 0, "balance   12.50 EUR");
    let other = "wallet book deposit/acme/p1 cust-a credit 13 EUR --reason other";
    check(directory, other, 1, "money.amount_minor");
    let revert = "wallet revert deposit/acme/p1 --reason twice";
    check(directory, revert, 0, "\"effect\": \"offset\"");
    check(directory, revert, 0, "revert-deposit/acme/p1");
    check(directory, "wallet show cust-a", 0, "balance   0.00 EUR");
    check(directory, "ledger verify", 0, "the books are right");
    for wrong in [
        "wallet book x cust-a sideways 1 EUR --reason r",
        "wallet book x cust-a credit 1 EUR",
        "wallet revert x",
    ] {
        check(directory, wrong, 64, "--help");
    }
    check(
        directory,
        "wallet book x cust-a credit 0.001 EUR --reason r",
        1,
        "decimals",
    );
}
