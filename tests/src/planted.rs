//! Planted faults: small edits of the product's source, each of which the harness has to notice.
//!
//! The faults are data, `tests/planted/faults.toml`. They are made all at once in a copy of the workspace
//! below `target/planted`, each guarded so that it is on only where `PLANTED` names it; the copy is built
//! once. Then each harness runs once without a fault, which must pass, and once for each fault, which must
//! fail. The product's own source holds none of this.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use serde::Deserialize;

/// A harness has this long to notice a fault.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Longest run of a harness in which there is no fault.
const SOUND_LIMIT: Duration = Duration::from_secs(900);

/// One fault.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// What `PLANTED` is set to.
    pub name: String,
    /// What is wrong with the product then.
    pub what: String,
    /// The file it is in.
    pub file: String,
    /// Text that stands in the file once.
    pub old: String,
    /// What stands there instead; the word `PLANTED` is true when the fault is on.
    pub new: String,
    /// Who has to notice.
    pub by: Harness,
}

/// What is run to notice a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Harness {
    /// The exhaustive small worlds.
    Explore,
    /// The seeded random worlds, with the real driver.
    Simulation,
    /// The unit tests of the orchestrator's core.
    Core,
    /// The unit tests of the participant's core.
    Participant,
}

#[derive(Debug, Deserialize)]
struct Faults {
    fault: Vec<Fault>,
}

/// How a run of a harness ended.
#[derive(Debug)]
pub struct Ran {
    /// Whether it passed; `None` when its time was up.
    pub passed: Option<bool>,
    /// What it took.
    pub took: Duration,
    /// What it says first of what is wrong.
    pub says: String,
}

impl Harness {
    /// Its package, and what of it is built.
    fn target(self) -> [&'static str; 2] {
        match self {
            Self::Explore => ["saga-tests", "--test=explore"],
            Self::Simulation => ["saga-tests", "--test=simulation"],
            Self::Core => ["orchestrator", "--lib"],
            Self::Participant => ["region-agent", "--lib"],
        }
    }

    /// What it is told: which of its tests are run, and how.
    fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Explore => &["--nocapture"],
            Self::Simulation => &["--no-shrink"],
            Self::Core => &["--nocapture", "saga::", "workflows::"],
            Self::Participant => &["--nocapture", "participant::"],
        }
    }
}

/// The faults, as they are listed.
///
/// # Errors
/// When the list cannot be read, or names a fault twice.
pub fn faults(root: &Path) -> anyhow::Result<Vec<Fault>> {
    let text = std::fs::read_to_string(root.join("tests/planted/faults.toml"))?;
    let faults: Faults = toml::from_str(&text)?;
    let mut seen = BTreeMap::new();
    for fault in &faults.fault {
        let before = seen.insert(&fault.name, &fault.file);
        ensure!(before.is_none(), "fault {} is listed twice", fault.name);
    }
    Ok(faults.fault)
}

/// A copy of the workspace with all faults in it.
#[derive(Debug)]
pub struct Copy {
    source: PathBuf,
    target: PathBuf,
}

impl Copy {
    /// Copies the workspace and plants the faults. What has not changed since the last time is left as it
    /// is, so that only what has is built again.
    ///
    /// # Errors
    /// When a fault's old text is not in its file exactly once, and when a file cannot be read or written.
    pub fn plant(root: &Path, target: &Path, faults: &[Fault]) -> anyhow::Result<Self> {
        let source = target.join("planted").join("src");
        let mut files = BTreeMap::new();
        read(root, Path::new(""), &mut files)?;
        for fault in faults {
            let file = PathBuf::from(&fault.file);
            let bytes = files
                .get_mut(&file)
                .with_context(|| format!("{}: no file {}", fault.name, fault.file))?;
            let text = std::str::from_utf8(bytes)?;
            let found = text.matches(&fault.old).count();
            ensure!(
                found == 1,
                "fault {}: its old text stands in {} {found} times: write it anew",
                fault.name,
                fault.file
            );
            ensure!(
                fault.new.contains("PLANTED"),
                "fault {} is always on",
                fault.name
            );
            let on = format!("crate::planted::is({:?})", fault.name);
            *bytes = text
                .replacen(&fault.old, &fault.new.replace("PLANTED", &on), 1)
                .into_bytes();
        }
        rename(&mut files)?;
        for member in ["orchestrator", "region-agent"] {
            let library = files
                .get_mut(&Path::new(member).join("src/lib.rs"))
                .context("a library")?;
            library.extend_from_slice(b"\nmod planted;\n");
            files.insert(
                Path::new(member).join("src/planted.rs"),
                SWITCH.as_bytes().to_vec(),
            );
        }
        for (file, bytes) in files {
            let path = source.join(file);
            if std::fs::read(&path).is_ok_and(|old| old == bytes) {
                continue;
            }
            if let Some(directory) = path.parent() {
                std::fs::create_dir_all(directory)?;
            }
            std::fs::write(&path, bytes)?;
        }
        Ok(Self {
            source,
            target: target.to_owned(),
        })
    }

    /// Builds a harness and returns its program. Only test programs are built, so nothing of the workspace's
    /// own is overwritten; libraries of others are shared with it.
    ///
    /// # Errors
    /// When it does not build: a fault's new text may be wrong.
    pub fn build(&self, harness: Harness) -> anyhow::Result<PathBuf> {
        let [package, target] = harness.target();
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output = Command::new(cargo)
            .current_dir(&self.source)
            .env("CARGO_TARGET_DIR", &self.target)
            // Cargo's own variables name the real workspace; warnings about edits are of no interest.
            .env_remove("CARGO_MANIFEST_DIR")
            .env_remove("RUSTFLAGS")
            .args([
                "test",
                "--no-run",
                "--locked",
                "--message-format=json",
                "--package",
                package,
                target,
            ])
            .stderr(Stdio::inherit())
            .output()?;
        ensure!(
            output.status.success(),
            "{package} {target} with the faults does not build"
        );
        let lines = String::from_utf8(output.stdout)?;
        let program = lines
            .lines()
            .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
            .filter(|message| message["profile"]["test"] == true)
            .filter_map(|message| message["executable"].as_str().map(PathBuf::from))
            .next_back();
        program.with_context(|| format!("{package} {target}: no program was built"))
    }

    /// Runs a harness with one fault, or none.
    ///
    /// # Errors
    /// When it cannot be run.
    pub fn run(
        &self,
        harness: Harness,
        program: &Path,
        fault: Option<&str>,
    ) -> anyhow::Result<Ran> {
        let directory = self.target.join("planted");
        let log = directory.join("output.txt");
        let output = std::fs::File::create(&log)?;
        let mut command = Command::new(program);
        command
            .current_dir(
                self.source
                    .join(harness.target()[0].replace("saga-tests", "tests")),
            )
            .args(harness.arguments())
            .env("RUST_BACKTRACE", "0")
            .env_remove("PLANTED")
            // As many worlds as there is time for: some faults need a rare one.
            .env("SEEDS", if fault.is_some() { "1000" } else { "100" })
            .stderr(output.try_clone()?)
            .stdout(output);
        command.envs(fault.map(|fault| ("PLANTED", fault)));
        let began = tokio::time::Instant::now();
        let mut running = command.spawn()?;
        let limit = if fault.is_some() { LIMIT } else { SOUND_LIMIT };
        let passed = loop {
            if let Some(status) = running.try_wait()? {
                break Some(status.success());
            }
            if began.elapsed() > limit {
                running.kill()?;
                running.wait()?;
                break None;
            }
            std::thread::sleep(Duration::from_millis(50));
        };
        let said = std::fs::read(&log)?;
        Ok(Ran {
            passed,
            took: began.elapsed(),
            says: first_words(&String::from_utf8_lossy(&said)),
        })
    }
}

/// What a harness says first of what is wrong.
fn first_words(said: &str) -> String {
    let mut lines = said
        .lines()
        .skip_while(|line| !line.contains("broken: ") && !line.contains("panicked at"));
    let first = lines.next().unwrap_or_default();
    match first.split_once("broken: ") {
        Some((_, law)) => law.to_owned(),
        None => {
            let next = lines.next().unwrap_or(first).trim();
            let last = said.lines().rfind(|line| !line.trim().is_empty());
            let words = if next.is_empty() {
                last.unwrap_or_default()
            } else {
                next
            };
            words.trim().to_owned()
        }
    }
}

/// Gives the copy's packages a version of their own. Cargo tells what it has built apart by name, version and
/// place within a workspace: with the same version, the copy's programs would be taken for the workspace's.
fn rename(files: &mut BTreeMap<PathBuf, Vec<u8>>) -> anyhow::Result<()> {
    let mut edit = |file: &str, from: &dyn Fn(&str) -> String, names: &[&str]| {
        let bytes = files.get_mut(Path::new(file)).context("a manifest")?;
        let mut text = String::from_utf8(bytes.clone())?;
        for name in names {
            let old = from(name);
            ensure!(
                text.matches(&old).count() == 1,
                "{file} holds {old:?} not once"
            );
            text = text.replace(&old, &old.replace(VERSION, PLANTED_VERSION));
        }
        *bytes = text.into_bytes();
        anyhow::Ok(())
    };
    edit(
        "Cargo.toml",
        &|name| format!("[{name}]\nversion = \"{VERSION}\""),
        &["workspace.package"],
    )?;
    edit(
        "Cargo.lock",
        &|name| format!("name = \"{name}\"\nversion = \"{VERSION}\""),
        &["contracts", "orchestrator", "region-agent", "saga-tests"],
    )
}

/// The workspace's version, and that of the copy.
const VERSION: &str = env!("CARGO_PKG_VERSION");
const PLANTED_VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "-planted");

/// Reads all files of the workspace that a build needs.
fn read(root: &Path, below: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(root.join(below))? {
        let entry = entry?;
        let name = entry.file_name();
        let path = below.join(&name);
        let top = below.as_os_str().is_empty();
        if top && (name == "target" || name == ".git") {
            continue;
        }
        let kind = entry.file_type()?;
        if kind.is_dir() {
            read(root, &path, files)?;
        } else if kind.is_file() {
            files.insert(path, std::fs::read(entry.path())?);
        }
    }
    if files.len() > 10_000 {
        bail!("{} holds more than a workspace", root.display());
    }
    Ok(())
}

/// The switch, as it stands in the copies of the crates.
const SWITCH: &str = r#"//! Whether a planted fault is on.

use std::sync::OnceLock;

pub(crate) fn is(name: &str) -> bool {
    static ON: OnceLock<Option<String>> = OnceLock::new();
    ON.get_or_init(|| std::env::var("PLANTED").ok()).as_deref() == Some(name)
}
"#;
