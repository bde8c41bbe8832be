//! What the map promises, checked by reading the sources.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Longest file. Beyond it, ask which two things it is.
const MAX_LINES: usize = 500;

/// A source file, by its path from the root of the workspace.
struct Source {
    path: String,
    text: String,
}

impl Source {
    /// Lines of code that ship: without comments, and without what follows `#[cfg(test)]`.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text
            .lines()
            .enumerate()
            .take_while(|(_, line)| !line.trim_start().starts_with("#[cfg(test)]"))
            .map(|(index, line)| (index + 1, line))
            .filter(|(_, line)| !line.trim_start().starts_with("//"))
    }

    fn is_test(&self) -> bool {
        self.path.starts_with("tests/")
            || self.path.contains("/tests/")
            || self.path.ends_with("/tests.rs")
    }

    fn is_in(&self, places: &[&str]) -> bool {
        places.iter().any(|place| self.path.starts_with(place))
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace")
        .to_owned()
}

fn sources() -> Vec<Source> {
    let mut sources = Vec::new();
    for member in ["contracts", "orchestrator", "region-agent", "tests"] {
        files(&root().join(member), &mut |path| {
            if path.extension().is_some_and(|extension| extension == "rs") {
                sources.push(Source {
                    path: relative(path),
                    text: std::fs::read_to_string(path).expect("a source file"),
                });
            }
        });
    }
    assert!(sources.len() > 100, "only {} files found", sources.len());
    sources
}

fn files(directory: &Path, visit: &mut impl FnMut(&Path)) {
    for entry in std::fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files(&path, visit);
        } else {
            visit(&path);
        }
    }
}

fn relative(path: &Path) -> String {
    let path = path.strip_prefix(root()).expect("in the workspace");
    path.to_string_lossy().replace('\\', "/")
}

/// Fails with every line found.
fn none(law: &str, found: &[String]) {
    let mut text = String::new();
    for line in found {
        writeln!(text, "  {line}").expect("a string");
    }
    assert!(found.is_empty(), "{law}:\n{text}");
}

fn find<'a>(sources: impl IntoIterator<Item = &'a Source>, unwanted: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for source in sources {
        for (number, line) in source.code() {
            if let Some(word) = unwanted.iter().find(|word| line.contains(**word)) {
                found.push(format!(
                    "{}:{number} has {word}: {}",
                    source.path,
                    line.trim()
                ));
            }
        }
    }
    found
}

#[test]
fn the_cores_decide_without_io_clock_or_randomness() {
    let sources = sources();
    let cores = sources.iter().filter(|source| {
        source.is_in(&["orchestrator/src/saga/", "region-agent/src/participant/"])
            && !source.is_test()
    });
    let unwanted = [
        "tokio",
        "async_nats",
        "sqlx",
        "rmp_serde",
        "tracing",
        "clap",
        "SystemTime",
        "Instant::",
        "time::Instant",
        "rand::",
        "nuid",
        "std::fs",
        "std::net",
        "std::env",
        "std::thread",
        "Timestamp::now",
        ".await;",
        ".await?",
        "async fn",
    ];
    none("a core is pure", &find(cores, &unwanted));
}

#[test]
fn only_clocks_read_time_and_draw() {
    let sources = sources();
    let others = sources
        .iter()
        .filter(|source| !source.is_test() && !source.path.ends_with("/clock.rs"));
    let unwanted = [
        "Timestamp::now",
        "Zoned::now",
        "SystemTime::now",
        "std::time::Instant",
        "nuid::next",
        "rand::",
        "getrandom",
        "Uuid::new",
    ];
    none(
        "time and randomness come from clock.rs",
        &find(others, &unwanted),
    );
}

#[test]
fn only_the_codec_speaks_message_pack() {
    let sources = sources();
    let others = sources
        .iter()
        .filter(|source| !source.is_test() && source.path != "contracts/src/codec.rs");
    none(
        "bodies go through codec.rs",
        &find(others, &["rmp_serde", "rmp::"]),
    );
}

#[test]
fn subjects_are_built_in_one_place() {
    // Texts for people that name a subject, so that they can type it.
    const SHOWN: [(&str, &str); 1] = [(
        "orchestrator/src/doctor/sagas.rs",
        "tells a person which subject wakes a saga",
    )];
    let sources = sources();
    let others = sources.iter().filter(|source| {
        !source.is_test()
            && source.path != "contracts/src/subject.rs"
            && !SHOWN.iter().any(|(path, _)| *path == source.path)
    });
    none(
        "subjects come from subject.rs",
        &find(others, &["\"billing.", " billing.<", "billing.{"]),
    );
}

#[test]
fn sql_stays_with_the_databases() {
    let sources = sources();
    let others = sources.iter().filter(|source| {
        !source.is_test()
            && !source.is_in(&["orchestrator/src/payments/", "region-agent/src/ledger/"])
    });
    let unwanted = [
        "SELECT ",
        "INSERT INTO",
        "DELETE FROM",
        "CREATE TABLE",
        "PRAGMA ",
        "sqlx::query",
    ];
    none(
        "SQL is in payments/, ledger/ and migrations/",
        &find(others, &unwanted),
    );
}

#[test]
fn the_contracts_know_neither_binary() {
    let manifest = std::fs::read_to_string(root().join("contracts/Cargo.toml")).expect("manifest");
    for unwanted in [
        "orchestrator.",
        "region-agent.",
        "async-nats",
        "sqlx",
        "tokio",
    ] {
        assert!(
            !manifest.contains(unwanted),
            "contracts depends on {unwanted}"
        );
    }
    let agent = std::fs::read_to_string(root().join("region-agent/Cargo.toml")).expect("manifest");
    assert!(
        !agent.contains("orchestrator"),
        "the agent depends on the orchestrator"
    );
}

#[test]
fn files_are_of_readable_length() {
    let mut found = Vec::new();
    for source in sources() {
        let lines = source.text.lines().count();
        if lines > MAX_LINES {
            found.push(format!("{}: {lines} lines", source.path));
        }
    }
    none("files have at most 500 lines", &found);
}

#[test]
fn every_migration_is_applied_and_both_dialects_have_the_same() {
    let text: String = sources().into_iter().map(|source| source.text).collect();
    let mut by_owner: BTreeMap<String, Vec<(String, Vec<String>)>> = BTreeMap::new();
    for owner in ["core", "wallet"] {
        for dialect in ["sqlite", "postgres"] {
            let directory = format!("migrations/{owner}/{dialect}");
            assert!(
                text.contains(&format!("migrate!(\"../{directory}\")")),
                "{directory} is applied by nobody"
            );
            let mut names = Vec::new();
            files(&root().join(&directory), &mut |path| {
                let name = path.file_name().expect("a name").to_string_lossy();
                names.push(name.into_owned());
            });
            names.sort();
            for (index, name) in names.iter().enumerate() {
                assert!(
                    name.starts_with(&format!("{:04}_", index + 1)) && name.ends_with(".sql"),
                    "{directory}/{name} is not the next number"
                );
            }
            by_owner
                .entry(owner.to_owned())
                .or_default()
                .push((directory, names));
        }
    }
    for dialects in by_owner.values() {
        assert_eq!(
            dialects[0].1, dialects[1].1,
            "{} and {}",
            dialects[0].0, dialects[1].0
        );
    }
}

#[test]
fn nothing_is_left_unfinished() {
    let sources = sources();
    // This file names them.
    let others = sources
        .iter()
        .filter(|source| source.path != "tests/tests/tidy.rs");
    let unwanted = ["todo!", "unimplemented!", "dbg!(", "FIXME", "XXX"];
    none("nothing is left for later", &find(others, &unwanted));
}
