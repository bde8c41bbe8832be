//! Kills what a site started when the process that started it is killed itself.
//!
//! A small shell waits on a pipe whose other end only this process holds. When the pipe closes, for whatever
//! reason, it kills the process groups listed in a file. An orderly end empties the list first.

use super::SiteError;
use super::files::io;
use std::collections::BTreeSet;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

const SCRIPT: &str = r#"
cat >/dev/null
[ -f "$1/pids" ] || exit 0
while read -r pid; do kill -s KILL -- "-$pid" 2>/dev/null; done <"$1/pids"
if [ "$2" = remove ]; then rm -rf -- "$1"; else rm -f -- "$1/pids"; fi
"#;

#[derive(Debug)]
pub(super) struct Guard {
    shell: Child,
    pids: Arc<Pids>,
}

impl Guard {
    pub(super) fn start(dir: &Path, temporary: bool) -> Result<Self, SiteError> {
        let pids = Arc::new(Pids {
            file: dir.join("pids"),
            groups: Mutex::default(),
        });
        let shell = Command::new("sh")
            .args(["-c", SCRIPT, "site-guard"])
            .arg(dir)
            .arg(if temporary { "remove" } else { "keep" })
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Its own group: an interrupt typed at the terminal must not end it before us.
            .process_group(0)
            .spawn()
            .map_err(io("sh"))?;
        Ok(Self { shell, pids })
    }

    pub(super) fn pids(&self) -> Arc<Pids> {
        Arc::clone(&self.pids)
    }

    /// Everything has been killed in order: nothing is left to guard.
    pub(super) fn dismiss(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.pids.file)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(%error, "list of processes");
        }
        drop(self.shell.stdin.take());
        if let Err(error) = self.shell.wait() {
            tracing::warn!(%error, "guard");
        }
    }
}

/// The process groups to kill.
#[derive(Debug)]
pub(super) struct Pids {
    file: PathBuf,
    groups: Mutex<BTreeSet<u32>>,
}

impl Pids {
    pub(super) fn add(&self, group: u32) -> Result<(), SiteError> {
        self.change(|groups| groups.insert(group))
    }

    pub(super) fn remove(&self, group: u32) -> Result<(), SiteError> {
        self.change(|groups| groups.remove(&group))
    }

    fn change(&self, change: impl FnOnce(&mut BTreeSet<u32>) -> bool) -> Result<(), SiteError> {
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        if !change(&mut groups) {
            return Ok(());
        }
        let text: String = groups.iter().map(|group| format!("{group}\n")).collect();
        // Renamed into place: the guard may read at any moment.
        let new = self.file.with_extension("new");
        std::fs::write(&new, text)
            .and_then(|()| std::fs::rename(&new, &self.file))
            .map_err(io(&self.file.display().to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_listed_dies_with_the_pipe() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("site");
        std::fs::create_dir(&path).expect("directory");
        let mut guard = Guard::start(&path, true).expect("guard");
        let mut sleeper = Command::new("sleep")
            .arg("60")
            .process_group(0)
            .spawn()
            .expect("sleep");
        guard.pids().add(sleeper.id()).expect("list");
        // As when this process is killed: the pipe closes, and nothing else happens.
        drop(guard.shell.stdin.take());
        guard.shell.wait().expect("guard ends");
        let status = sleeper.wait().expect("sleep ends");
        assert_eq!(status.code(), None, "killed, not ended: {status}");
        assert!(!path.exists(), "a temporary directory is removed");
    }
}
