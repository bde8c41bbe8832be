use serde_json::{Value, json};

use super::{EntryRow, Invariant, Judge, Observation, OperationRow};

const SAGA: &str = "deposit/p/1";

fn record(revision: u64, changes: Value) -> Observation {
    let mut body = json!({
        "saga_id": SAGA, "workflow": "deposit", "status": "running", "epoch": 1, "cause": "",
        "direction": { "going": "forward" }, "facts": {}, "seen": ["intake:1@d"], "events": [],
        "attributes": { "customer": "c" },
        "steps": [{
            "name": "credit-wallet", "pivot": true,
            "forward": {
                "operation_id": SAGA, "participant": { "region": "eu" }, "kind": "wallet.update",
                "request": { "n": 1 }, "outcome": "in_flight",
            },
            "undo": {
                "operation_id": format!("revert-{SAGA}"), "participant": { "region": "eu" },
                "kind": "wallet.revert", "request": { "target": SAGA }, "outcome": "planned",
            },
        }],
    });
    for (pointer, value) in changes.as_object().expect("changes") {
        match body.pointer_mut(pointer) {
            Some(place) => *place = value.clone(),
            None => body[pointer.trim_start_matches('/')] = value.clone(),
        }
    }
    Observation::RecordWritten {
        saga: SAGA.to_owned(),
        revision,
        text: body.to_string(),
    }
}

fn message(id: &str) -> Observation {
    Observation::MessageStored {
        message: id.to_owned(),
        about: SAGA.to_owned(),
    }
}

fn acked(id: &str) -> Observation {
    Observation::MessageAcked {
        message: id.to_owned(),
    }
}

fn left(request: Value) -> Observation {
    Observation::CommandLeft {
        saga: SAGA.to_owned(),
        operation: SAGA.to_owned(),
        participant: "eu".to_owned(),
        kind: "wallet.update".to_owned(),
        request,
        fence: 1,
    }
}

fn arrived(fence: u64, deadline_passed: bool) -> Observation {
    Observation::CommandArrived {
        wallet: "eu".to_owned(),
        saga: SAGA.to_owned(),
        operation: SAGA.to_owned(),
        fence,
        deadline_passed,
    }
}

fn operation(state: &str) -> Observation {
    Observation::OperationSeen(OperationRow {
        wallet: "eu".to_owned(),
        operation: SAGA.to_owned(),
        saga: SAGA.to_owned(),
        kind: "update".to_owned(),
        state: state.to_owned(),
    })
}

fn entries(amount_minor: i64) -> [Observation; 2] {
    let entry = |owner_kind: &str, owner: &str, amount_minor| {
        Observation::EntrySeen(EntryRow {
            wallet: "eu".to_owned(),
            operation: SAGA.to_owned(),
            owner_kind: owner_kind.to_owned(),
            owner: owner.to_owned(),
            currency: "EUR".to_owned(),
            amount_minor,
            reverses: String::new(),
        })
    };
    [
        entry("customer", "c", amount_minor),
        entry("system", "clearing", -amount_minor),
    ]
}

/// The start of every story, then `rest`.
fn judge(rest: impl IntoIterator<Item = Observation>) -> Result<(), Invariant> {
    let mut judge = Judge::new();
    for observation in [message("intake:1@d"), record(1, json!({}))]
        .into_iter()
        .chain(rest)
    {
        judge.observe(observation);
    }
    judge.check_after_move().map_err(|breach| breach.invariant)
}

#[test]
fn a_sound_deposit_is_not_complained_about() {
    let done = json!({
        "/status": "completed", "/events": ["deposit_completed"],
        "/steps/0/forward/outcome": "applied",
        "/result": { "credited": { "amount_minor": 5, "currency": "EUR" } },
    });
    let event = Observation::EventLogged {
        saga: SAGA.to_owned(),
        name: "deposit_completed".to_owned(),
        body: json!({
            "credited": { "amount_minor": 5, "currency": "EUR" },
            "quote": { "target": { "amount_minor": 5, "currency": "EUR" } },
        }),
    };
    let [a, b] = entries(5);
    let story = [
        left(json!({ "n": 1 })),
        arrived(1, false),
        operation("applied"),
        a,
        b,
        record(2, done),
        event,
        acked("intake:1@d"),
    ];
    assert_eq!(judge(story), Ok(()));
}

#[test]
fn each_breach_is_noticed() {
    let [once, clearing] = entries(5);
    let stories: Vec<(Invariant, Vec<Observation>)> = vec![
        (
            Invariant::OneEffectPerOperation,
            vec![
                operation("applied"),
                once.clone(),
                clearing.clone(),
                once.clone(),
            ],
        ),
        (
            Invariant::MoneyIsConserved,
            vec![operation("applied"), once.clone()],
        ),
        (
            Invariant::NothingAfterTombstone,
            vec![operation("tombstoned"), once.clone()],
        ),
        (
            Invariant::NothingAfterDeadline,
            vec![arrived(1, true), operation("applied")],
        ),
        (
            Invariant::NothingFromStaleOwner,
            vec![arrived(2, false), arrived(1, false), operation("applied")],
        ),
        (Invariant::RecordsGoForward, vec![record(1, json!({}))]),
        (
            Invariant::RecordsGoForward,
            vec![record(2, json!({ "/epoch": 0 }))],
        ),
        (
            Invariant::FactsStay,
            vec![record(2, json!({ "/steps/0/forward/request": 2 }))],
        ),
        (
            Invariant::EndingsStay,
            vec![
                record(2, json!({ "/status": "failed" })),
                record(3, json!({ "/status": "needs_review" })),
            ],
        ),
        (
            Invariant::DirectionTurnsOnce,
            vec![
                record(2, json!({ "/direction/going": "cancelling" })),
                record(3, json!({})),
            ],
        ),
        (
            Invariant::PlanIsStoredBeforeCommand,
            vec![left(json!({ "n": 2 }))],
        ),
        (
            Invariant::PlanIsStoredBeforeCommand,
            vec![
                record(2, json!({ "/steps/0/undo": null })),
                left(json!({ "n": 1 })),
            ],
        ),
        (
            Invariant::OutcomesAreTrue,
            vec![record(2, json!({ "/steps/0/forward/outcome": "applied" }))],
        ),
        (
            Invariant::OutcomesAreTrue,
            vec![
                record(2, json!({ "/steps/0/forward/outcome": "not_applied" })),
                operation("applied"),
                once.clone(),
                clearing.clone(),
            ],
        ),
        (Invariant::OpenSagaIsDriven, vec![acked("intake:1@d")]),
        (
            Invariant::AcknowledgedIsAccountedFor,
            vec![message("intake:2@d"), acked("intake:2@d")],
        ),
        (
            Invariant::EventExactlyOnce,
            vec![record(2, json!({ "/status": "completed" }))],
        ),
        (
            Invariant::EndedMovedNothing,
            vec![
                record(2, json!({ "/status": "cancelled" })),
                operation("applied"),
                once,
                clearing,
            ],
        ),
    ];
    for (invariant, story) in stories {
        let text = format!("{story:?}");
        let found = judge(story);
        let expected = match found {
            // The plan that changed is a fact that changed, too.
            Err(Invariant::FactsStay) => {
                [Invariant::FactsStay, Invariant::PlanIsStoredBeforeCommand].contains(&invariant)
            }
            other => other == Err(invariant),
        };
        assert!(expected, "{invariant:?} expected, {found:?} found: {text}");
    }
}

#[test]
fn what_has_not_come_to_its_end_is_noticed_at_rest() {
    let mut judge = Judge::new();
    judge.observe(message("intake:1@d"));
    judge.observe(record(1, json!({})));
    assert_eq!(judge.check_after_move(), Ok(()));
    let breach = judge.check_at_rest().expect_err("it is still running");
    assert_eq!(breach.invariant, Invariant::ComesToAnEnd, "{breach}");
}

#[test]
fn money_that_nothing_tells_of_is_noticed_at_rest() {
    let ended = |extra: Value| {
        let mut changes = json!({ "/status": "cancelled", "/steps": [] });
        for (key, value) in extra.as_object().expect("changes") {
            changes[key] = value.clone();
        }
        record(2, changes)
    };
    let money = || Observation::MoneyReported {
        saga: SAGA.to_owned(),
    };
    let told = |paid: Value| Observation::EventLogged {
        saga: SAGA.to_owned(),
        name: "deposit_turned_back".to_owned(),
        body: json!({ "paid": paid }),
    };
    let event = json!({ "/events": ["deposit_turned_back"] });
    for (story, forgotten) in [
        (vec![ended(json!({})), money()], true),
        (vec![ended(event.clone()), told(Value::Null), money()], true),
        (vec![ended(event), told(json!(5)), money()], false),
    ] {
        let mut judge = Judge::new();
        for observation in story {
            judge.observe(observation);
        }
        let found = judge.check_at_rest().err().map(|breach| breach.invariant);
        let expected = forgotten.then_some(Invariant::MoneyIsNotForgotten);
        assert_eq!(found, expected);
    }
}
