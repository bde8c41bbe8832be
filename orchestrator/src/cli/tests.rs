//! What a person reads of hand-made records.

use super::case::case_page;
use super::records::Revision;
use super::saga::page;
use super::waiting::{pasteable, sentence};
use crate::saga::record::SagaRecord;
use jiff::Timestamp;
use serde_json::{Value, json};

const NOW: &str = "2026-03-01T12:00:00Z";

fn now() -> Timestamp {
    NOW.parse().expect("instant")
}

/// A deposit on its way, with these fields instead of its own.
fn record(fields: Value) -> SagaRecord {
    let mut record = json!({
        "schema": 1,
        "saga_id": "deposit/acme/p1",
        "workflow": "deposit",
        "version": 1,
        "status": "running",
        "phase": "credit",
        "direction": { "going": "forward" },
        "epoch": 2,
        "owner": "core-1",
        "cause": "started",
        "started_at": "2026-03-01T11:59:00Z",
        "last_progress_at": "2026-03-01T11:59:30Z",
        "deadline_at": "2026-03-01T12:59:00Z",
        "input": {},
    });
    let fields = fields.as_object().expect("object").clone();
    record.as_object_mut().expect("object").extend(fields);
    serde_json::from_value(record).expect("record")
}

fn operation(id: &str, participant: Value, kind: &str, outcome: Value) -> Value {
    let mut operation = json!({
        "operation_id": id, "participant": participant, "kind": kind, "request": {}, "digest": "d",
        "attempts": 2,
    });
    let outcome = outcome.as_object().expect("object").clone();
    operation.as_object_mut().expect("object").extend(outcome);
    operation
}

/// The step that credits the wallet, with its undo.
fn credit(forward: Value, undo: Value) -> Value {
    let eu = json!({ "region": "eu" });
    json!({
        "name": "credit-wallet", "policy": "forward", "pivot": true,
        "forward": operation("deposit/acme/p1", eu.clone(), "wallet.update", forward),
        "undo": operation("revert-deposit/acme/p1", eu, "wallet.revert", undo),
    })
}

fn planned() -> Value {
    json!({ "outcome": "planned" })
}

fn in_flight() -> Value {
    json!({ "outcome": "in_flight", "issued_at": NOW, "deadline": "2026-03-01T12:00:10Z",
        "tries": 2, "doubtful": true })
}

fn backing_off() -> Value {
    json!({ "outcome": "backing_off", "issued_at": NOW, "retry_at": "2026-03-01T12:01:05Z",
        "tries": 2, "doubtful": false, "last": "nobody there" })
}

fn applied() -> Value {
    json!({ "outcome": "applied", "reply": {}, "at": "2026-03-01T11:59:40Z" })
}

fn turned_back() -> Value {
    json!({ "going": "cancelling", "reason": "cancel_requested", "message": "paid twice (by ann)",
        "since": "2026-03-01T11:59:50Z" })
}

fn case(reason: &str) -> Value {
    json!({ "reason": reason, "message": "sums differ", "since": "2026-03-01T11:59:55Z" })
}

#[test]
fn every_status_says_what_it_waits_for() {
    let check = |fields: Value, expected: &str| {
        let record = record(fields.clone());
        assert_eq!(sentence(&record, now()), expected, "{fields}");
    };
    let back = "turns back unless done by 2026-03-01T12:59:00Z (in 59m 0s)";
    let since = "turned back at 2026-03-01T11:59:50Z: paid twice (by ann)";
    check(
        json!({}),
        &format!("is about to take its next step; {back}"),
    );
    check(
        json!({ "steps": [credit(in_flight(), planned())] }),
        &format!(
            "waits for region eu to answer credit-wallet, attempt 2, until 2026-03-01T12:00:10Z (in 10s); {back}"
        ),
    );
    check(
        json!({ "steps": [credit(backing_off(), planned())] }),
        &format!(
            "tries credit-wallet at region eu again at 2026-03-01T12:01:05Z (in 1m 5s), after 2 attempts (nobody there); {back}"
        ),
    );
    check(
        json!({ "steps": [credit(applied(), planned())] }),
        "is about to take its next step",
    );
    let awaiting = |until: &str| json!({ "status": "waiting", "awaiting": [{ "signals": ["psp-callback"], "until": until }] });
    check(
        awaiting("2026-03-01T12:59:00.5Z"),
        "waits for signal psp-callback until 2026-03-01T12:59:00Z (in 59m 0s)",
    );
    check(
        awaiting("2026-03-01T13:30:00Z"),
        &format!("waits for signal psp-callback until 2026-03-01T13:30:00Z (in 1h 30m); {back}"),
    );
    check(
        json!({ "status": "waiting", "awaiting": [{ "until": "2026-03-01T12:00:30Z" }] }),
        "sleeps until 2026-03-01T12:00:30Z (in 30s)",
    );
    check(
        json!({ "status": "compensating", "direction": turned_back(),
            "steps": [credit(applied(), in_flight())] }),
        &format!(
            "waits for region eu to answer compensation of credit-wallet, attempt 2, until 2026-03-01T12:00:10Z (in 10s); {since}"
        ),
    );
    check(
        json!({ "status": "compensating", "direction": turned_back(),
            "steps": [credit(in_flight(), planned())] }),
        &format!(
            "waits for region eu to answer credit-wallet, attempt 2, until 2026-03-01T12:00:10Z (in 10s); {since}"
        ),
    );
    check(
        json!({ "status": "completed", "ended_at": "2026-03-01T11:59:59Z" }),
        "ended at 2026-03-01T11:59:59Z: everything was done and its event is in the log",
    );
    check(
        json!({ "status": "compensated", "direction": turned_back(), "ended_at": "2026-03-01T11:59:59Z" }),
        "ended at 2026-03-01T11:59:59Z: each of its effects was offset; paid twice (by ann)",
    );
    check(
        json!({ "status": "cancelled", "direction": turned_back(), "ended_at": "2026-03-01T11:59:59Z" }),
        "ended at 2026-03-01T11:59:59Z: it was turned back before it had any effect; paid twice (by ann)",
    );
    check(
        json!({ "status": "failed", "direction": turned_back(), "ended_at": "2026-03-01T11:59:59Z" }),
        "ended at 2026-03-01T11:59:59Z: it was refused before it had any effect; paid twice (by ann)",
    );
}

#[test]
fn a_case_says_what_a_person_can_do() {
    let check = |fields: Value, parts: &[&str], absent: &str| {
        let text = sentence(&record(fields.clone()), now());
        for part in parts {
            assert!(text.contains(part), "{fields}: {text}");
        }
        assert!(
            absent.is_empty() || !text.contains(absent),
            "{fields}: {text}"
        );
    };
    check(
        json!({ "status": "needs_review", "case": case("amount_guard") }),
        &[
            "waits for a person since 2026-03-01T11:59:55Z: amount_guard: sums differ; ",
            "compare the sums",
            "orchestrator saga cancel deposit/acme/p1 --reason TEXT",
        ],
        "",
    );
    check(
        json!({ "status": "needs_review", "case": case("refused_after_pivot"),
            "steps": [credit(applied(), planned())] }),
        &["the money has moved"],
        "saga cancel",
    );
    check(
        json!({ "status": "needs_review", "workflow": "case", "case": case("unreadable") }),
        &["have it sent again"],
        "saga cancel",
    );
    for reason in [
        "unreadable",
        "conflicting_fact",
        "amount_guard",
        "nondeterministic",
        "poison",
        "unreadable_reply",
        "refused_after_pivot",
        "compensation_refused",
        "overdue",
        "contradiction",
        "operation_conflict",
        "deadline_passed",
        "orphan_signal",
        "reversal",
    ] {
        let fields = json!({ "status": "needs_review", "case": case(reason) });
        check(fields, &[&format!(": {reason}: sums differ; ")], "");
    }
}

#[test]
fn a_page_has_steps_signals_events_and_no_control_characters() {
    let record = record(json!({
        "status": "waiting",
        "attributes": { "customer": "cust\u{1b}[31m", "amount": "10.00 USD" },
        "steps": [credit(applied(), planned())],
        "signals": [
            { "name": "psp-callback", "id": "s1", "digest": "d", "body": { "meaning": "paid" }, "at": NOW },
            { "name": "late-fact", "id": "s2", "digest": "d", "body": null, "at": NOW },
        ],
        "facts": { "psp-callback": { "signal": "s1" } },
        "events": ["deposit_completed"],
        "duplicates": 3,
    }));
    let shown = Revision {
        key: record.saga_id.key(),
        revision: 17,
        written_at: now(),
        record,
    };
    let text = page(&shown, now());
    for part in [
        "saga        deposit/acme/p1\n",
        "key         deposit=2Facme=2Fp1\n",
        "status      waiting (phase credit)\n",
        "revision    17 written 2026-03-01T12:00:00Z: started\n",
        "attribute   amount=10.00 USD\n",
        "repeats     3 absorbed\n",
        "Events: deposit_completed\n",
    ] {
        assert!(text.contains(part), "{part:?} in\n{text}");
    }
    let row = |start: &str| {
        let line = text
            .lines()
            .find(|line| line.trim_start().starts_with(start));
        line.expect(start)
            .split("  ")
            .map(str::trim)
            .filter(|cell| !cell.is_empty())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        row("credit-wallet"),
        [
            "credit-wallet (pivot)",
            "deposit/acme/p1",
            "region eu",
            "2",
            "applied",
            "2026-03-01T11:59:40Z"
        ]
    );
    assert_eq!(
        row("undo:"),
        [
            "undo: wallet.revert",
            "revert-deposit/acme/p1",
            "region eu",
            "2",
            "ready, if turned back"
        ]
    );
    assert_eq!(
        row("psp-callback"),
        [
            "psp-callback",
            "s1",
            "2026-03-01T12:00:00Z",
            "taken up",
            "{\"meaning\":\"paid\"}"
        ]
    );
    assert!(row("late-fact").contains(&"kept"));
    let control = |c: char| c.is_control() && c != '\n';
    assert!(!text.contains(control), "{text:?}");
}

#[test]
fn a_case_shows_each_legal_verb_as_a_command_to_be_typed() {
    let record = record(json!({
        "status": "needs_review", "direction": turned_back(), "attributes": {},
        "case": { "reason": "compensation_refused", "message": "no \u{1b}funds", "owner": "bob",
            "since": "2026-03-01T11:59:55Z", "operation_id": "revert-deposit/acme/p1",
            "evidence": { "said": "\u{1b}[31m" } },
        "steps": [credit(applied(), json!({ "outcome": "not_applied", "code": "no", "message": "no", "at": NOW }))],
        "by_hand": {
            "proposal": { "at": NOW, "request": { "saga_id": "deposit/acme/p1", "id": "r 1", "verb": "compensate",
                "reason": "mistake", "by": "ann" } },
            "actions": [{ "id": "r1", "digest": "d", "verb": "resolve", "finding": "applied", "evidence": "page 2",
                "by": "ann", "reason": "seen", "at": NOW, "answer": "proposed", "why": "much" }],
        },
    }));
    let shown = Revision {
        key: record.saga_id.key(),
        revision: 17,
        written_at: now(),
        record,
    };
    let text = case_page(&shown, now());
    for part in [
        "reason      compensation_refused\n",
        "owner       bob\n",
        "operation   revert-deposit/acme/p1\n",
        "proposed    compensate by ann: mistake; somebody else agrees with request r 1\n",
        "proposed: much",
        "  orchestrator case assign deposit/acme/p1 --owner NAME --reason TEXT\n",
        "  orchestrator case approve deposit/acme/p1 --request 'r 1' --reason TEXT\n",
        "  orchestrator case resolve deposit/acme/p1 --applied --operation revert-deposit/acme/p1 --evidence TEXT \
         --reason TEXT\n",
        "  orchestrator saga cancel deposit/acme/p1 --reason TEXT\n",
    ] {
        assert!(text.contains(part), "{part:?} in\n{text}");
    }
    assert!(!text.contains("case compensate"), "{text}");
    let control = |c: char| c.is_control() && c != '\n';
    assert!(!text.contains(control), "{text:?}");
}

#[test]
fn ids_can_be_pasted_into_a_shell() {
    assert_eq!(
        pasteable("deposit/a%20b/p~1:x@y+z"),
        "deposit/a%20b/p~1:x@y+z"
    );
    assert_eq!(pasteable("deposit/a$b'c"), "'deposit/a$b'\\''c'");
}

#[test]
fn the_commands_are_sound_and_each_has_examples_and_exit_codes() {
    fn check(command: &clap::Command, path: &str) {
        if command.has_subcommands() {
            for sub in command.get_subcommands() {
                check(sub, &format!("{path} {}", sub.get_name()));
            }
        } else {
            let help = command
                .get_after_help()
                .map(ToString::to_string)
                .unwrap_or_default();
            for part in ["Examples:\n", &format!("  {path}"), "Exit codes: 0 "] {
                assert!(help.contains(part), "{path} --help: {part:?}");
            }
        }
    }
    let command = <super::Cli as clap::CommandFactory>::command();
    command.clone().debug_assert();
    check(&command, "orchestrator");
}
