//! The real NATS CLI as a test's user, where it is installed.

use anyhow::{Context as _, bail};
use orchestrator::site::Login;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

const BOUND: Duration = Duration::from_secs(30);

/// The `nats` program, as one user.
#[derive(Debug, Clone)]
pub struct NatsCli {
    program: PathBuf,
    login: Login,
}

impl NatsCli {
    /// Finds `nats` (`NATS_CLI`, the search path, `~/go/bin`, `target/tools`). Where there is none it says
    /// so on stderr, for the test to return: `let Some(nats) = NatsCli::find(login) else { return };`
    #[must_use]
    pub fn find(login: Login) -> Option<Self> {
        let program = candidates().into_iter().find(|path| path.is_file());
        if program.is_none() {
            eprintln!(
                "SKIPPED: no `nats` CLI found; run scripts/fetch-nats-cli.sh or set NATS_CLI"
            );
        }
        program.map(|program| Self { program, login })
    }

    /// As [`NatsCli::run`], in a terminal made by `script`: some commands refuse to work without one.
    /// `None`, said loudly, where there is no `script`.
    ///
    /// # Errors
    /// As [`NatsCli::run`].
    pub async fn run_in_terminal(&self, arguments: &[&str]) -> anyhow::Result<Option<String>> {
        let line = format!("nats {}", arguments.join(" "));
        let quoted: Vec<String> = std::iter::once(self.program.display().to_string())
            .chain(self.login.cli_arguments())
            .chain(arguments.iter().map(|argument| (*argument).to_owned()))
            .map(|word| format!("'{}'", word.replace('\'', "'\\''")))
            .collect();
        let mut command = Command::new("script");
        command
            .args([
                "--quiet",
                "--return",
                "--command",
                &quoted.join(" "),
                "/dev/null",
            ])
            .env("TERM", "dumb")
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let output = match tokio::time::timeout(BOUND, command.output()).await {
            Err(_elapsed) => bail!("{line}: no end within {BOUND:?}"),
            Ok(Err(error)) if error.kind() == std::io::ErrorKind::NotFound => {
                eprintln!("SKIPPED: {line}: there is no `script` to make a terminal");
                return Ok(None);
            }
            Ok(output) => output.with_context(|| line.clone())?,
        };
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            bail!("{line}: {}\n{stdout}", output.status);
        }
        Ok(Some(stdout))
    }

    /// Runs `nats <arguments>` and gives what it wrote to stdout.
    ///
    /// # Errors
    /// When it fails or takes longer than 30 s, with both outputs.
    pub async fn run(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let mut command = Command::new(&self.program);
        command
            .args(self.login.cli_arguments())
            .args(["--timeout", "5s"])
            .args(arguments)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let line = format!("nats {}", arguments.join(" "));
        let output = tokio::time::timeout(BOUND, command.output())
            .await
            .with_context(|| format!("{line}: no end within {BOUND:?}"))?
            .with_context(|| line.clone())?;
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr);
            bail!("{line}: {}\n{stdout}{stderr}", output.status);
        }
        Ok(stdout)
    }
}

fn candidates() -> Vec<PathBuf> {
    let mut candidates = Vec::new();
    candidates.extend(std::env::var_os("NATS_CLI").map(PathBuf::from));
    if let Some(path) = std::env::var_os("PATH") {
        candidates.extend(std::env::split_paths(&path).map(|dir| dir.join("nats")));
    }
    if let Some(home) = std::env::var_os("HOME") {
        candidates.push(PathBuf::from(home).join("go/bin/nats"));
    }
    if let Ok(here) = std::env::current_dir() {
        candidates.extend(here.ancestors().map(|dir| dir.join("target/tools/nats")));
    }
    candidates
}
