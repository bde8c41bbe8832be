//! One child process: started, killed, frozen, started again.

use super::SiteError;
use super::files::io;
use super::guard::Pids;
use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::fs::OpenOptions;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;

const TAIL_LINES: usize = 30;

#[derive(Debug)]
pub(super) struct Process {
    name: String,
    command: Command,
    child: Child,
    /// Ended because we said so.
    killed: bool,
    log: PathBuf,
    pids: Arc<Pids>,
}

impl Process {
    pub(super) fn spawn(
        name: &str,
        mut command: Command,
        log: PathBuf,
        pids: Arc<Pids>,
    ) -> Result<Self, SiteError> {
        let append = |path: &Path| OpenOptions::new().create(true).append(true).open(path);
        let output = append(&log).map_err(io(&log.display().to_string()))?;
        let errors = output.try_clone().map_err(io(&log.display().to_string()))?;
        command
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .process_group(0);
        let child = start(name, &mut command, &pids)?;
        Ok(Self {
            name: name.to_owned(),
            command,
            child,
            killed: false,
            log,
            pids,
        })
    }

    pub(super) fn restart(&mut self) -> Result<(), SiteError> {
        self.kill()?;
        self.child = start(&self.name, &mut self.command, &self.pids)?;
        self.killed = false;
        Ok(())
    }

    pub(super) fn kill(&mut self) -> Result<(), SiteError> {
        self.killed = true;
        if self.is_running()? {
            self.signal(Signal::SIGKILL)?;
            self.child.wait().map_err(io(&self.name))?;
        }
        self.pids.remove(self.child.id())
    }

    pub(super) fn terminate(&mut self) -> Result<(), SiteError> {
        self.killed = true;
        if self.is_running()? {
            self.signal(Signal::SIGTERM)?;
        }
        Ok(())
    }

    pub(super) fn freeze(&mut self) -> Result<(), SiteError> {
        self.must_run()?;
        self.signal(Signal::SIGSTOP)?;
        // The signal only asks: until all threads have stopped, requests are still answered.
        match waitpid(self.pid()?, Some(WaitPidFlag::WUNTRACED)) {
            Ok(WaitStatus::Stopped(..)) => Ok(()),
            other => Err(SiteError::Ended {
                name: self.name.clone(),
                status: format!("{other:?} instead of stopping"),
                log: self.log_tail(),
            }),
        }
    }

    pub(super) fn thaw(&mut self) -> Result<(), SiteError> {
        self.must_run()?;
        self.signal(Signal::SIGCONT)
    }

    pub(super) fn is_running(&mut self) -> Result<bool, SiteError> {
        Ok(self.child.try_wait().map_err(io(&self.name))?.is_none())
    }

    /// How it ended; `None` while it runs.
    pub(super) fn exit_status(&mut self) -> Result<Option<ExitStatus>, SiteError> {
        self.child.try_wait().map_err(io(&self.name))
    }

    /// Fails, with the end of the log, when it has ended.
    pub(super) fn must_run(&mut self) -> Result<(), SiteError> {
        match self.child.try_wait().map_err(io(&self.name))? {
            None => Ok(()),
            Some(status) => Err(SiteError::Ended {
                name: self.name.clone(),
                status: status.to_string(),
                log: self.log_tail(),
            }),
        }
    }

    /// As [`Self::must_run`], but `false` for one that was told to end.
    pub(super) fn must_run_unless_killed(&mut self) -> Result<bool, SiteError> {
        if self.killed {
            return Ok(false);
        }
        self.must_run().map(|()| true)
    }

    pub(super) fn log_tail(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
    }

    fn signal(&self, signal: Signal) -> Result<(), SiteError> {
        match killpg(self.pid()?, signal) {
            Ok(()) | Err(Errno::ESRCH) => Ok(()),
            Err(errno) => Err(io(&format!("{signal} to {}", self.name))(errno.into())),
        }
    }

    /// Its process id, which is its group's as well.
    fn pid(&self) -> Result<Pid, SiteError> {
        i32::try_from(self.child.id())
            .map(Pid::from_raw)
            .map_err(|error| io(&self.name)(std::io::Error::other(error)))
    }
}

/// Its own process group, so that its children die with it and a terminal's interrupt reaches us first.
fn start(name: &str, command: &mut Command, pids: &Pids) -> Result<Child, SiteError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let child = command.spawn().map_err(io(&format!("{name}: {program}")))?;
    pids.add(child.id())?;
    Ok(child)
}
