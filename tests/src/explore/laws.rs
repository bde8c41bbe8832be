//! The judge: what must hold after every move, in every write, for every command, and at rest.
//!
//! It reads plain facts — the JSON of records, entries and balances of the wallet's books, rows of payments,
//! the log — and calls nothing of what it judges: it has its own words for what is final and what is done.

use std::collections::BTreeMap;

use contracts::command::CommandHeader;
use jiff::Timestamp;

use super::facts::Facts;
use super::ground::{Cmd, Ground, Rec};
use super::shell::Broken;
use super::world::{Body, World};

/// What may be asked for on facts that are not stored.
const HARMLESS: [&str; 3] = [
    "payments.find_or_create",
    "fx.quote",
    "payments.mark_successful",
];

fn law(holds: bool, broken: impl FnOnce() -> String) -> Result<(), Broken> {
    if holds { Ok(()) } else { Err(broken()) }
}

/// A write is about to replace `before` by `after`.
pub(super) fn on_commit(
    ground: &Ground,
    world: &World,
    saga: usize,
    before: Option<Rec>,
    after: Rec,
    commands: &[Cmd],
) -> Result<(), Broken> {
    let is = ground.facts(after);
    let id = &is.saga_id;
    if let Some(reason) = &is.case {
        let allowed = ground.scenario.allowed_cases.contains(&reason.as_str())
            || (world.spent && reason == "compensation_refused")
            || (!is.begun && reason == "orphan_signal")
            // The payment may still be with the generation before.
            || (id.contains("/again:") && reason == "amount_guard");
        law(allowed, || {
            let told = is.told.as_deref().unwrap_or_default();
            format!("{id}: a case {reason} where nothing can have gone wrong: {told}")
        })?;
    }
    for (forward, operation) in is.operations.iter().filter(|(_, found)| !found.undo) {
        law(
            operation.kind != "wallet.update" || is.undone_by.contains_key(forward),
            || format!("{id}: {forward} moves money and its undo is not stored with it"),
        )?;
        if let Some(undo) = is.undone_by.get(forward) {
            law(undo != forward, || {
                format!("{id}: {forward} is undone under its own key")
            })?;
        }
    }
    let Some(before) = before else {
        return Ok(());
    };
    let was = ground.facts(before);
    law(is.epoch >= was.epoch, || {
        format!("{id}: the epoch fell from {} to {}", was.epoch, is.epoch)
    })?;
    law(was.owner == is.owner || is.epoch > was.epoch, || {
        format!(
            "{id}: {} took it over from {} and the epoch stays",
            is.owner, was.owner
        )
    })?;
    law(was.forward || !is.forward, || {
        format!("{id}: it had turned back and goes forward again")
    })?;
    let still = was.status == is.status && commands.is_empty();
    law(!was.is_final() || still, || {
        format!(
            "{id}: it had ended {} and is now {}, or sends",
            was.status, is.status
        )
    })?;
    law(!(was.forward && was.past_pivot) || is.forward, || {
        format!("{id}: it turned back after the pivot had been applied")
    })?;
    law(
        was.seen.iter().all(|message| is.seen.contains(message)),
        || format!("{id}: a message it had accounted for is forgotten"),
    )?;
    let asked = |facts: &Facts| {
        facts
            .seen
            .iter()
            .any(|message| message.starts_with("cancel"))
    };
    law(
        !asked(is) || asked(was) || !is.forward || is.past_pivot || is.is_final(),
        || format!("{id}: a cancel request before the pivot was taken in, and it goes on"),
    )?;
    for (operation, then) in &was.operations {
        let Some(now) = is.operations.get(operation) else {
            return Err(format!("{id}: operation {operation} is forgotten"));
        };
        law(
            (&then.kind, &then.request) == (&now.kind, &now.request),
            || format!("{id}: operation {operation} was stored with other parameters"),
        )?;
        law(now.attempts >= then.attempts, || {
            format!("{id}: attempts of {operation} fell")
        })?;
        law(then.outcome != "applied" || then.reply == now.reply, || {
            format!("{id}: {operation} was applied, and what it answered changed")
        })?;
        law(
            then.outcome != "not_applied" || then.undo || now.outcome == "not_applied",
            || {
                format!(
                    "{id}: {operation} counted as not applied and is now {}",
                    now.outcome
                )
            },
        )?;
    }
    law(
        world.sagas[saga].stored.map(|stored| stored.0) == Some(before),
        || format!("{id}: a write replaces what it has not read"),
    )
}

/// A command is about to leave.
pub(super) fn on_send(
    ground: &Ground,
    world: &World,
    saga: usize,
    cmd: Cmd,
    unsaved: bool,
) -> Result<(), Broken> {
    let command = ground.command(cmd);
    let id = command.operation_id.as_str();
    if HARMLESS.contains(&command.kind.as_str()) {
        return Ok(());
    }
    law(!unsaved, || {
        format!("{id} leaves ({}) before it is stored", command.kind)
    })?;
    let Some((rec, _)) = world.sagas[saga].stored else {
        return Err(format!("{id} leaves and its saga is not stored"));
    };
    let stored = ground.facts(rec);
    let Some(operation) = stored.operations.get(id) else {
        return Err(format!("{id} leaves and is not stored"));
    };
    law(operation.outcome == "in_flight", || {
        format!("{id} leaves and is stored as {}", operation.outcome)
    })?;
    law(operation.attempts == u64::from(command.attempt), || {
        format!("{id} leaves as attempt {}", command.attempt)
    })?;
    law(stored.epoch == command.fence, || {
        format!(
            "{id} leaves with fence {} at epoch {}",
            command.fence, stored.epoch
        )
    })?;
    law(operation.request == command.request, || {
        format!("{id} leaves with other parameters than stored")
    })?;
    if command.kind == "wallet.update" {
        law(stored.forward, || {
            format!("{id} moves money and its saga has turned back")
        })?;
        let undo = stored.undone_by.get(id);
        let undo = undo.and_then(|undo| stored.operations.get(undo));
        law(
            undo.is_some_and(|undo| undo.kind == "wallet.revert"),
            || format!("{id} moves money and its undo is not stored"),
        )?;
    }
    if command.kind == "wallet.revert" {
        let target = command.request["target"].as_str().unwrap_or_default();
        law(
            !stored.forward && stored.undone_by.get(target).is_some_and(|undo| undo == id),
            || format!("{id} reverts {target}, and is not its undo"),
        )?;
    }
    Ok(())
}

/// A wallet has executed a command by its clock.
pub(super) fn on_executed(
    ground: &Ground,
    before: u32,
    after: u32,
    header: &CommandHeader,
    now: Timestamp,
) -> Result<(), Broken> {
    let (was, is) = (ground.ledgers.get(before), ground.ledgers.get(after));
    if was.books.entries.len() == is.books.entries.len()
        && was.books.forbidden.len() == is.books.forbidden.len()
    {
        return Ok(());
    }
    let id = &header.operation_id;
    law(now < header.deadline, || {
        format!("{id} was executed after its deadline")
    })?;
    let seen = header.saga_id.as_ref().map(|saga| was.highest_fence(saga));
    law(seen.is_none_or(|seen| header.fence >= seen), || {
        format!(
            "{id} was executed with fence {}, below one seen",
            header.fence
        )
    })
}

/// What holds in every world.
pub(super) fn on_state(ground: &mut Ground, world: &World) -> Result<(), Broken> {
    if ground.judged.insert(world.ledger) {
        books(ground, world)?;
    }
    let ground = &*ground;
    // What ended before it began has taken up none of the facts.
    let empty = world.sagas.iter().filter_map(|saga| saga.stored);
    let empty = empty.filter(|(rec, _)| !ground.facts(*rec).begun).count();
    law(
        world.sagas.len() <= ground.scenario.max_sagas + empty,
        || {
            let ids: Vec<String> = (world.sagas.iter())
                .map(|saga| ground.sagas.get(saga.number).0.to_string())
                .collect();
            format!("more sagas than the facts call for: {}", ids.join(", "))
        },
    )?;
    for message in &world.messages {
        let Body::Said(said) = message.body else {
            continue;
        };
        if message.gone {
            let id = ground.said.get(said).message_id();
            let stored = world.sagas[usize::from(message.saga)].stored;
            law(
                stored.is_some_and(|(rec, _)| ground.facts(rec).seen.iter().any(|seen| seen == id)),
                || format!("message {id} was acknowledged and nothing of it is stored"),
            )?;
        }
    }
    for (index, saga) in world.sagas.iter().enumerate() {
        let Some((rec, _)) = saga.stored else {
            continue;
        };
        let facts = ground.facts(rec);
        let slot = u8::try_from(index).expect("few sagas");
        let id = &facts.saga_id;
        let driven = saga.timer.is_some()
            || (world.messages.iter()).any(|message| message.saga == slot && !message.gone);
        law(!facts.wakes || driven, || {
            format!("{id} is {} with neither a driver nor a timer", facts.status)
        })?;
        law(
            facts.wakes || facts.is_final() || facts.waits_for_a_person(),
            || format!("{id} is {} and nothing will ever wake it", facts.status),
        )?;
        law(!facts.is_final() || saga.timer.is_none(), || {
            format!("{id} has ended {} and its timer is armed", facts.status)
        })?;
        let events: Vec<u32> = (world.log.iter())
            .filter(|(of, _)| *of == slot)
            .map(|(_, event)| *event)
            .collect();
        ended(ground, world, facts, &events)?;
    }
    Ok(())
}

fn books(ground: &Ground, world: &World) -> Result<(), Broken> {
    let books = &ground.ledgers.get(world.ledger).books;
    let mut sums: BTreeMap<&str, i64> = BTreeMap::new();
    let mut by_operation: BTreeMap<&str, i64> = BTreeMap::new();
    for (index, (operation, customer, amount)) in books.entries.iter().enumerate() {
        *sums.entry(customer).or_default() += amount;
        law(by_operation.insert(operation, *amount).is_none(), || {
            format!("operation {operation} was applied twice: {books}")
        })?;
        if let Some(&at) = books.forbidden.get(operation) {
            law(index < at, || {
                format!("{operation} was applied after its tombstone: {books}")
            })?;
        }
        if let Some(target) = operation.strip_prefix("revert-") {
            law(by_operation.get(target) == Some(&-amount), || {
                format!("{operation} offsets nothing or something else: {books}")
            })?;
        }
    }
    for (customer, balance) in &books.balances {
        law(
            sums.get(customer.as_str()) == Some(balance) && *balance >= 0,
            || {
                format!(
                    "the balance of {customer} is not the sum of its entries, or below zero: {books}"
                )
            },
        )?;
    }
    Ok(())
}

/// A saga has ended: so have all its effects, and its event is in the log once.
fn ended(ground: &Ground, world: &World, facts: &Facts, events: &[u32]) -> Result<(), Broken> {
    let id = &facts.saga_id;
    let books = &ground.ledgers.get(world.ledger).books;
    let of = |prefix: &str| {
        let mut entries = books.entries.iter();
        let found = entries.find(|entry| entry.0.strip_prefix(prefix) == Some(id));
        found.map(|entry| entry.2)
    };
    let (moved, reverted) = (of(""), of("revert-"));
    let side = ground.core.get(world.core);
    let paid_out = side.paid_out.iter().filter(|saga| *saga == id).count();
    let payment = side.payments.values().find(|row| row.owner == *id);
    let tells_of_money = |event: &u32| !ground.events.get(*event).1.is_null();
    if facts.status != "completed" {
        let told = facts.is_final() && events.len() <= 1 && !events.iter().any(tells_of_money);
        law(events.is_empty() || told, || {
            format!(
                "{id} is {}, and this is in the log: {events:?}",
                facts.status
            )
        })?;
        if !facts.is_final() {
            return Ok(());
        }
        law(
            moved.unwrap_or_default() + reverted.unwrap_or_default() == 0,
            || format!("{id} is {} and money has moved: {books}", facts.status),
        )?;
        law(paid_out == 0, || {
            format!("{id} is {} and the money has been paid out", facts.status)
        })?;
        law(payment.is_none_or(|row| row.status != "successful"), || {
            format!("{id} is {} and its payment is successful", facts.status)
        })?;
        // Whatever may have been done is undone, by its own record too.
        for (forward, undo) in &facts.undone_by {
            let (forward, undo) = (&facts.operations[forward], &facts.operations[undo]);
            let may = !matches!(forward.outcome.as_str(), "planned" | "not_applied");
            law(!may || undo.outcome == "applied", || {
                format!("{id} is {} and an undo is {}", facts.status, undo.outcome)
            })?;
        }
        return Ok(());
    }
    let sums: Vec<Option<i64>> = (events.iter())
        .map(|&event| ground.events.get(event).1["amount_minor"].as_i64())
        .collect();
    law(events.len() == 1, || {
        format!(
            "{id} is completed and {} events are in the log",
            events.len()
        )
    })?;
    law(moved.is_some() && reverted.is_none(), || {
        format!("{id} is completed and its movement does not stand: {books}")
    })?;
    let quoted = facts
        .operations
        .values()
        .find(|operation| operation.kind == "fx.quote" && operation.outcome == "applied")
        .map(|quote| quote.reply["target"]["amount_minor"].as_i64());
    match facts.workflow.as_str() {
        "deposit" => law(
            quoted == Some(moved)
                && sums == [moved]
                && payment.is_some_and(|row| row.status == "successful" && row.credited == moved),
            || {
                format!(
                    "{id} is completed: quoted {quoted:?}, moved {moved:?}, event {sums:?}, payment {payment:?}"
                )
            },
        ),
        _ => law(paid_out == 1, || {
            format!("{id} is completed and was paid out {paid_out} times")
        }),
    }
}

/// Nothing more happens by itself.
pub(super) fn at_rest(ground: &Ground, world: &World) -> Result<(), Broken> {
    for saga in &world.sagas {
        let Some((rec, _)) = saga.stored else {
            continue;
        };
        let facts = ground.facts(rec);
        law(facts.is_final() || facts.waits_for_a_person(), || {
            format!("{} rests as {}", facts.saga_id, facts.status)
        })?;
        let sound = world.used.iter().all(|used| *used == 0) && !world.spent;
        let expected = ground.scenario.expected;
        law(
            !sound || !facts.begun || expected.contains(&facts.status.as_str()),
            || {
                format!(
                    "{} ended {} although nothing went wrong",
                    facts.saga_id, facts.status
                )
            },
        )?;
    }
    let waiting = world.messages.iter().find(|message| !message.gone);
    law(
        waiting.is_none_or(|message| world.sagas[usize::from(message.saga)].stored.is_none()),
        || format!("everything rests and a message is still there: {waiting:?}"),
    )?;
    law(world.net.is_empty(), || {
        "everything rests and packets are under way".to_owned()
    })
}
