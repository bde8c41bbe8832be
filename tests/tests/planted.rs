//! Every planted fault is noticed; see [`saga_tests::planted`]. Builds a copy of the workspace, so it runs
//! only when asked: `make planted`. `FAULT=<text>` runs those whose names hold the text.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use saga_tests::planted::{Copy, LIMIT, faults};

fn root() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().expect("the workspace").to_owned()
}

/// Where this very program was built: `<target>/debug/deps/<program>`.
fn target() -> PathBuf {
    let program = std::env::current_exe().expect("a program");
    program
        .ancestors()
        .nth(3)
        .expect("a target directory")
        .to_owned()
}

#[test]
fn every_fault_is_where_it_can_be_planted() {
    let faults = faults(&root()).expect("a list");
    assert!(faults.len() >= 18, "only {} faults", faults.len());
    for fault in faults {
        let text = std::fs::read_to_string(root().join(&fault.file)).expect("a file");
        let found = text.matches(&fault.old).count();
        assert_eq!(found, 1, "{}: its old text in {}", fault.name, fault.file);
        assert!(fault.new.contains("PLANTED"), "{} is always on", fault.name);
    }
}

#[test]
#[ignore = "builds a copy of the workspace and runs every harness once for each fault: make planted"]
#[expect(clippy::print_stdout, reason = "the table is what it is run for")]
fn every_planted_fault_is_noticed() {
    let all = faults(&root()).expect("a list");
    let copy = Copy::plant(&root(), &target(), &all).expect("a copy with the faults");
    let asked = std::env::var("FAULT").unwrap_or_default();
    let faults: Vec<_> = all
        .iter()
        .filter(|fault| fault.name.contains(&asked))
        .collect();
    assert!(!faults.is_empty(), "no fault is called {asked}");
    let mut programs = BTreeMap::new();
    let mut failures = Vec::new();
    for fault in &faults {
        if programs.contains_key(&fault.by) {
            continue;
        }
        let program = copy.build(fault.by).expect("a harness");
        let sound = copy.run(fault.by, &program, None).expect("a run");
        println!(
            "{:?} without a fault: passed {:?} in {:.1?}",
            fault.by, sound.passed, sound.took
        );
        if sound.passed != Some(true) {
            failures.push(format!(
                "{:?} fails without a fault: {}",
                fault.by, sound.says
            ));
        }
        programs.insert(fault.by, program);
    }
    println!(
        "{:28} {:12} {:>8}  what it says",
        "fault", "noticed by", "after"
    );
    for fault in faults {
        let ran = copy
            .run(fault.by, &programs[&fault.by], Some(&fault.name))
            .expect("a run");
        let noticed = ran.passed == Some(false);
        let by = if noticed {
            format!("{:?}", fault.by)
        } else {
            "NOBODY".to_owned()
        };
        let says: String = ran.says.chars().take(120).collect();
        println!("{:28} {by:12} {:>7.1?}  {says}", fault.name, ran.took);
        if !noticed {
            failures.push(format!(
                "{} ({}) goes unnoticed within {LIMIT:?}",
                fault.name, fault.what
            ));
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}
