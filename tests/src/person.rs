//! A person on call at work with the `orchestrator` program.

use crate::system::System;
use anyhow::{Context as _, ensure};
use orchestrator::site::User;
use serde_json::Value;
use std::process::Stdio;
use std::time::Duration;

const BOUND: Duration = Duration::from_secs(60);

/// How a run of the program ended.
#[derive(Debug)]
pub struct Said {
    /// What was typed.
    pub line: String,
    /// The exit code.
    pub code: Option<i32>,
    /// Both outputs.
    pub text: String,
    json: Option<Value>,
}

impl System {
    /// Runs the program as an operator: a line as it is typed, split at blanks, and `-o json` with it.
    ///
    /// # Errors
    /// When it cannot be run, or does not end in time.
    pub async fn types(&self, line: &str) -> anyhow::Result<Said> {
        let mut command = tokio::process::Command::from(self.program(User::Operator));
        command
            .args(line.split(' '))
            .args(["-o", "json"])
            .env("USER", "ann")
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let output = tokio::time::timeout(BOUND, command.output())
            .await
            .with_context(|| format!("{line}: no end within {BOUND:?}"))??;
        let out = String::from_utf8(output.stdout)?;
        Ok(Said {
            line: line.to_owned(),
            code: output.status.code(),
            json: serde_json::from_str(&out).ok(),
            text: format!("{out}{}", String::from_utf8_lossy(&output.stderr)),
        })
    }
}

impl Said {
    /// Fails unless it ended with this exit code.
    ///
    /// # Errors
    /// With all that was said.
    pub fn exits(self, code: i32) -> anyhow::Result<Self> {
        ensure!(
            self.code == Some(code),
            "wanted exit code {code}: {self:#?}"
        );
        Ok(self)
    }

    /// Fails unless it has this text.
    ///
    /// # Errors
    /// With all that was said.
    pub fn says(self, text: &str) -> anyhow::Result<Self> {
        ensure!(self.text.contains(text), "wanted {text:?}: {self:#?}");
        Ok(self)
    }

    /// What it printed for a program.
    ///
    /// # Errors
    /// When that is no JSON.
    pub fn json(&self) -> anyhow::Result<&Value> {
        self.json.as_ref().with_context(|| format!("{self:#?}"))
    }
}
