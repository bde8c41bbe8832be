//! Seeded random worlds: the real engine, core, workflows, wallet and payments, in virtual time, among
//! replicas that die and stand still and a network that loses, delays and repeats.
//!
//! Only the servers are modelled: the state stream (`stream`), the consumers of intake and timers
//! (`consumer`) and the way to the regions (`network`). Everything that happens follows from a
//! [`Script`]: its seed, its inputs, its faults. What must hold is said by [`crate::judge`], which is told
//! of every move.
//!
//! Assumed of the world, and so never broken here: a stream does not forget what it has acknowledged, a
//! load reads what was last written, clocks are at most three seconds off.

pub mod chance;
mod consumer;
mod database;
mod network;
mod replica;
pub mod report;
pub mod script;
pub mod shrink;
mod stream;
mod workflows;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use contracts::command::{CommandHeader, Movement, WalletCommand, WalletUpdate};
use contracts::id::{CustomerId, OperationId, Provider, SagaId};
use contracts::money::{Currency, CurrencyCode, Money};
use jiff::SignedDuration;
use serde_json::json;

pub use script::Script;
use script::What;
pub use world::Line;

use crate::judge::{Breach, Observation};
use consumer::{Consumer, Kind};
use stream::Stream;
use world::World;

/// What came of a world.
#[derive(Debug)]
pub struct Outcome {
    /// What was broken, when something was.
    pub breach: Option<Breach>,
    /// What happened, in order.
    pub trace: Vec<Line>,
    /// Faults that struck.
    pub struck: BTreeSet<String>,
    /// How many sagas stand how, by workflow and status.
    pub standings: BTreeMap<String, usize>,
    /// How much time passed in it.
    pub lasted: Duration,
}

/// Replicas of every world.
const REPLICAS: usize = 2;

/// How long after the last input faults still strike.
const TROUBLED: Duration = Duration::from_secs(120);

/// How long a world may take to come to rest once nothing disturbs it any more.
const PATIENCE: Duration = Duration::from_secs(2 * 3600);

/// Lets a world happen.
///
/// # Errors
/// When it cannot be set up; what is broken in it is no error but the [`Outcome`].
pub fn run(script: &Script) -> anyhow::Result<Outcome> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()?;
    runtime.block_on(async {
        let world = Arc::new(World::new(script)?);
        for index in 0..REPLICAS {
            world.replicas.start(&world, index);
        }
        tokio::spawn(Consumer::run(world.clone(), Kind::Intake));
        tokio::spawn(Consumer::run(world.clone(), Kind::Timers));
        tokio::spawn(Stream::fire(world.clone()));
        tokio::select! {
            biased;
            () = world.broken.cancelled() => {}
            () = happen(&world, script) => {}
        }
        let lasted = world.elapsed();
        let (trace, breach, standings) = world.close();
        world.replicas.clear();
        Ok(Outcome {
            breach,
            trace,
            struck: world.chance.struck(),
            standings,
            lasted,
        })
    })
}

async fn happen(world: &Arc<World>, script: &Script) {
    for input in &script.inputs {
        let at = Duration::from_millis(input.at);
        tokio::time::sleep(at.saturating_sub(world.elapsed())).await;
        take(world, input.number, &input.what);
    }
    tokio::time::sleep(TROUBLED).await;
    world.chance.calm();
    world.tell("", "nothing disturbs any more");
    let until = world.elapsed() + PATIENCE;
    while !world.is_quiet() && world.elapsed() < until {
        tokio::time::sleep(Duration::from_secs(20)).await;
    }
    world.say_it_all_again();
    tokio::time::sleep(Duration::from_secs(60)).await;
    world.judge_at_rest();
}

fn take(world: &Arc<World>, number: u64, what: &What) {
    match what {
        What::Callback { external_id, body } => {
            let mut body = body.clone();
            body["external_id"] = json!(external_id);
            let provider = Provider::new("testpay").unwrap_or_else(|_| unreachable!());
            let text = body.to_string();
            let subject = contracts::subject::callback(&provider, external_id, text.as_bytes());
            let about = format!("deposit/testpay/{external_id}");
            store(world, number, subject, text, about);
        }
        What::Start {
            workflow,
            id,
            input,
        } => {
            let text = json!({ "workflow": workflow, "id": id, "input": input }).to_string();
            let subject = contracts::subject::start(workflow, id);
            store(world, number, subject, text, format!("{workflow}/{id}"));
        }
        What::Signal {
            saga,
            name,
            id,
            body,
        } => {
            let text = json!({ "saga_id": saga, "name": name, "id": id, "body": body }).to_string();
            if let Ok(saga_id) = SagaId::new(saga.clone()) {
                let subject = contracts::subject::signal(&saga_id, id, text.as_bytes());
                store(world, number, subject, text, saga.clone());
            }
        }
        What::Cancel { saga, id } => {
            let text = json!({
                "saga_id": saga, "id": id, "verb": "cancel", "reason": "asked to", "by": "sim",
            });
            if let Ok(saga_id) = SagaId::new(saga.clone()) {
                let text = text.to_string();
                let subject = contracts::subject::operator(&saga_id, id, text.as_bytes());
                store(world, number, subject, text, saga.clone());
            }
        }
        What::Customer {
            region,
            customer,
            movement,
            amount_minor,
        } => {
            let command = direct(customer, movement, *amount_minor);
            let now = world.now();
            let deadline = now
                .checked_add(SignedDuration::from_secs(10))
                .unwrap_or(now);
            let operation_id = OperationId::new(format!("customer-{number}"));
            let header = CommandHeader {
                saga_id: None,
                operation_id: operation_id.unwrap_or_else(|_| unreachable!()),
                attempt: 1,
                fence: 0,
                deadline,
            };
            world.wallet(region, header, command, now);
        }
        What::Close { region, customer } => {
            world.tell("", &format!("wallet of {customer} in {region} closes"));
            world.databases.door(region, customer, false, world.now());
        }
        What::Reopen { region, customer } => {
            world.tell("", &format!("wallet of {customer} in {region} opens"));
            world.databases.door(region, customer, true, world.now());
        }
        What::Rates { table } => world.set_rates(*table),
        What::Crash { replica, down } => {
            let down = Duration::from_millis(*down);
            world.replicas.crash_at(world, *replica, down);
        }
        What::Stop { replica, down } => {
            let down = Duration::from_millis(*down);
            world.replicas.stop_at(world, *replica, down);
        }
        What::Freeze { replica, still } => {
            let still = Duration::from_millis(*still);
            world.replicas.freeze_at(world, *replica, still);
        }
        What::RegionDown {
            region,
            down,
            silent,
        } => {
            world.tell("", &format!("{region} cannot be reached for {down} ms"));
            world.region_down(region, Duration::from_millis(*down), *silent);
        }
    }
}

/// Whether a callback says that money has come.
fn says_paid(text: &str) -> bool {
    let body: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
    matches!(body["status"].as_str(), Some("paid" | "succeeded"))
}

/// Stores a message in the intake, as its publishers do. A subject that has a message keeps it: a repeat
/// is stored under one of its own, as two publishers would.
fn store(world: &Arc<World>, sequence: u64, subject: String, text: String, about: String) {
    let digest = contracts::subject::short_digest(text.as_bytes());
    let id = format!("intake:{sequence}@{}", &digest[..12]);
    world.tell(&about, &format!("input is {id}: {text}"));
    let mut seen = vec![Observation::MessageStored {
        message: id.clone(),
        about: about.clone(),
    }];
    if subject.starts_with("billing.callback.") && says_paid(&text) {
        seen.push(Observation::MoneyReported { saga: about });
    }
    world.saw(seen);
    world
        .intake
        .store(world, sequence, id, subject, text.into());
}

fn direct(customer: &str, movement: &str, amount_minor: i64) -> WalletCommand {
    let code = CurrencyCode::new("EUR").unwrap_or_else(|_| unreachable!());
    let currency = Currency::iso(code).unwrap_or_else(|_| unreachable!());
    WalletCommand::Update(WalletUpdate {
        customer: CustomerId::new(customer).unwrap_or_else(|_| unreachable!()),
        movement: if movement == "credit" {
            Movement::Credit
        } else {
            Movement::Debit
        },
        money: Money::new(amount_minor, currency),
        memo: None,
    })
}
