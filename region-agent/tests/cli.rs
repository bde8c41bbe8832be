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
    check(directory, "wallet show c-1", 1, "no wallet");
    check(directory, "wallet close c-1", 1, "no wallet");
    check(directory, "wallet open c-1 --only EUR", 0, "EUR only");
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
