//! Finds a nats-server that is new enough.

use super::SiteError;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const MIN: (u32, u32) = (2, 15);

/// Looks at `NATS_SERVER`, the search path, `target/tools` of this and the directories above, and beside
/// this executable (and in `tools` there and above it); takes the first of version 2.15 or newer.
///
/// # Errors
/// [`SiteError::NoServer`], naming each candidate and what is wrong with it.
pub fn find_nats_server() -> Result<PathBuf, SiteError> {
    let mut looked_at = String::new();
    for candidate in candidates() {
        match version(&candidate) {
            Ok(version) if version >= MIN => return Ok(candidate),
            Ok((major, minor)) => looked_at.push_str(&format!(
                "  {}: version {major}.{minor} is too old\n",
                candidate.display()
            )),
            Err(reason) => {
                looked_at.push_str(&format!("  {}: {reason}\n", candidate.display()));
            }
        }
    }
    Err(SiteError::NoServer { looked_at })
}

fn candidates() -> Vec<PathBuf> {
    let mut candidates = Vec::new();
    if let Some(named) = std::env::var_os("NATS_SERVER").filter(|value| !value.is_empty()) {
        candidates.push(PathBuf::from(named));
    }
    let mut present = Vec::new();
    if let Some(path) = std::env::var_os("PATH") {
        present.extend(std::env::split_paths(&path).map(|dir| dir.join("nats-server")));
    }
    if let Ok(here) = std::env::current_dir() {
        present.extend(
            here.ancestors()
                .map(|dir| dir.join("target/tools/nats-server")),
        );
    }
    if let Ok(executable) = std::env::current_exe() {
        for dir in executable.ancestors().skip(1).take(3) {
            present.push(dir.join("nats-server"));
            present.push(dir.join("tools/nats-server"));
        }
    }
    candidates.extend(present.into_iter().filter(|path| path.is_file()));
    candidates
}

fn version(program: &Path) -> Result<(u32, u32), String> {
    let output = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    parse(&text).ok_or_else(|| format!("says {:?} instead of a version", text.trim()))
}

/// Reads `nats-server: v2.15.1`.
fn parse(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.trim().rsplit_once('v')?.1.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        assert_eq!(parse("nats-server: v2.15.1\n"), Some((2, 15)));
        assert_eq!(parse("nats-server: v2.16.0-RC.1"), Some((2, 16)));
        assert_eq!(parse("no such thing"), None);
    }
}
