//! The small worlds: who says what, what may go wrong in them and how often.

use contracts::command::{Movement, WalletRevert, WalletUpdate};
use contracts::id::{CustomerId, OperationId, Region, SagaId};
use contracts::money::{Currency, CurrencyCode, Money};
use jiff::SignedDuration;
use orchestrator::saga::flow::{Cx, Flow, Request, Step};
use orchestrator::saga::input::{Arrival, Cancel, Signal};
use orchestrator::saga::record::{CaseReason, Participant};
use orchestrator::saga::rules::Rules;
use orchestrator::saga::{ArrivalMeaning, Workflow};
use orchestrator::workflows::deposit::{DEPOSIT, PSP_CALLBACK};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Value, json};

use super::moves::KINDS;

/// A world, and the bounds within which all of it is looked at.
#[derive(Debug, Clone)]
pub(super) struct Scenario {
    pub(super) name: &'static str,
    /// Sent at the start.
    pub(super) first: Vec<Sent>,
    /// Sent at any time, or never.
    pub(super) messages: Vec<Sent>,
    /// What the customer has at the start, in minor units.
    pub(super) holds: Option<i64>,
    /// What the customer may spend at any time.
    pub(super) spends: Option<(CustomerId, i64)>,
    /// Cases that may be opened.
    pub(super) allowed_cases: &'static [&'static str],
    /// How a saga may end when nothing goes wrong.
    pub(super) expected: &'static [&'static str],
    /// What the installation lays down.
    pub(super) rules: Rules,
    /// Sagas there may ever be.
    pub(super) max_sagas: usize,
    /// Whether the link to the wallet may be cut.
    pub(super) uses_wallet: bool,
    pub(super) bounds: Bounds,
}

/// How much may go wrong on one path.
#[derive(Debug, Clone)]
pub(super) struct Bounds {
    /// Faults of all kinds.
    pub(super) total: u8,
    /// Faults of each kind.
    pub(super) each: [u8; KINDS],
}

/// A message from outside and the saga it is for.
#[derive(Debug, Clone)]
pub(super) struct Sent {
    saga_id: SagaId,
    workflow: &'static Workflow,
    said: Said,
}

/// What a message from outside says.
#[derive(Debug, Clone)]
pub(super) enum Said {
    Start(Arrival),
    Signal(Signal),
    Cancel(Cancel),
}

impl Sent {
    pub(super) fn parts(self) -> (SagaId, &'static Workflow, Said) {
        (self.saga_id, self.workflow, self.said)
    }
}

impl Said {
    pub(super) fn start(message_id: &str, input: Value) -> Self {
        Self::Start(Arrival {
            message_id: message_id.to_owned(),
            input,
        })
    }

    pub(super) fn message_id(&self) -> &str {
        match self {
            Self::Start(arrival) => &arrival.message_id,
            Self::Signal(signal) => &signal.message_id,
            Self::Cancel(cancel) => &cancel.message_id,
        }
    }
}

/// A path has at most so many faults, and of each kind as many as said.
fn bounds(usual: u8, large: u8) -> Bounds {
    let asked = std::env::var("EXPLORE").unwrap_or_default();
    let total = match asked.as_str() {
        "" => usual,
        "large" => large,
        number => number
            .parse()
            .expect("EXPLORE is `large` or a number of faults"),
    };
    let mut each = [2; KINDS];
    // A clock that is behind, a sleep, a write without an answer, a cut link: each goes on for as long as
    // the search likes.
    for kind in [5, 7, 8, 10, 11, 12] {
        each[kind] = 1;
    }
    Bounds { total, each }
}

pub(super) fn customer() -> CustomerId {
    CustomerId::new("c-1").expect("an id")
}

pub(super) fn usd(minor: i64) -> Money {
    let code = CurrencyCode::new("USD").expect("a code");
    Money::new(minor, Currency::new(code, 2).expect("a currency"))
}

fn fact(meaning: &str, event: &str) -> Value {
    json!({
        "payment": { "provider": "psp", "external_id": "pay-1" },
        "meaning": meaning,
        "amount": { "amount_minor": 100, "currency": "EUR", "exponent": 2 },
        "customer": "c-1",
        "event_type": event,
    })
}

/// A callback, on its way to the saga that the workflow says it is about.
fn callback(workflow: &'static Workflow, meaning: &str, event: &str) -> Sent {
    let input = fact(meaning, event);
    let saga_id = (workflow.identify)("", &input).expect("a fact about a payment");
    let message_id = format!("intake:{event}");
    Sent {
        said: Said::start(&message_id, input),
        saga_id,
        workflow,
    }
}

/// A person, or another system, says under the saga's own signal that the payment has failed.
fn confirmation() -> Sent {
    Sent {
        said: Said::Signal(Signal {
            message_id: "signal:1".to_owned(),
            name: PSP_CALLBACK.to_owned(),
            id: "said-1".to_owned(),
            body: json!({ "meaning": "failed" }),
        }),
        ..callback(&DEPOSIT, "pending", "opened")
    }
}

fn cancel(of: &Sent, id: &str) -> Sent {
    Sent {
        said: Said::Cancel(Cancel {
            message_id: format!("cancel:{id}"),
            reason: "asked".to_owned(),
            by: "op".to_owned(),
        }),
        ..of.clone()
    }
}

/// A deposit that has to be done within a few seconds.
static HURRIED: Workflow = Workflow {
    deadline: SignedDuration::from_secs(15),
    ..DEPOSIT
};

/// A deposit that has less time than one attempt may take.
static PRESSED: Workflow = Workflow {
    deadline: SignedDuration::from_secs(8),
    ..DEPOSIT
};

fn deposit(name: &'static str) -> Scenario {
    Scenario {
        name,
        first: vec![callback(&DEPOSIT, "paid", "captured")],
        messages: Vec::new(),
        holds: None,
        spends: None,
        allowed_cases: &[],
        expected: &["completed"],
        rules: Rules::default(),
        max_sagas: 1,
        uses_wallet: true,
        bounds: bounds(2, 3),
    }
}

/// Every world there is.
pub(super) fn all() -> Vec<Scenario> {
    vec![
        quiet_deposit(),
        cancelled_deposit(),
        early_cancel(),
        repeated_deposit(),
        hurried_deposit(),
        pressed_deposit(),
        pending_deposit(),
        spent_deposit(),
        one_withdrawal(),
        deposit_and_withdrawal(),
    ]
}

/// One deposit, and somebody who may want it cancelled.
fn cancelled_deposit() -> Scenario {
    let scenario = deposit("cancelled-deposit");
    Scenario {
        messages: vec![cancel(&scenario.first[0], "1")],
        expected: &["completed", "compensated", "cancelled"],
        bounds: bounds(1, 2),
        ..scenario
    }
}

/// Somebody wants a deposit cancelled that has not begun, and may never begin.
fn early_cancel() -> Scenario {
    let scenario = cancelled_deposit();
    Scenario {
        first: scenario.messages,
        messages: scenario.first,
        // Money that comes long after is taken up all the same, by the next generation.
        expected: &["cancelled", "compensated", "completed"],
        bounds: bounds(1, 2),
        ..deposit("early-cancel")
    }
}

/// One deposit whose success is reported under two names; and somebody may want it cancelled.
fn repeated_deposit() -> Scenario {
    let scenario = deposit("repeated-deposit");
    Scenario {
        messages: vec![
            cancel(&scenario.first[0], "1"),
            callback(&DEPOSIT, "paid", "settled"),
        ],
        expected: &["completed", "compensated", "cancelled"],
        bounds: bounds(0, 1),
        ..scenario
    }
}

/// One deposit and nobody who interferes: more may go wrong.
fn quiet_deposit() -> Scenario {
    Scenario {
        bounds: bounds(1, 2),
        ..deposit("quiet-deposit")
    }
}

/// A deposit whose time runs out in the midst of its attempts.
fn hurried_deposit() -> Scenario {
    Scenario {
        first: vec![callback(&HURRIED, "paid", "captured")],
        allowed_cases: &["deadline_passed"],
        bounds: bounds(1, 2),
        ..deposit("hurried-deposit")
    }
}

/// A deposit whose time runs out while its first attempt is out.
fn pressed_deposit() -> Scenario {
    Scenario {
        name: "pressed-deposit",
        first: vec![callback(&PRESSED, "paid", "captured")],
        ..hurried_deposit()
    }
}

/// A deposit that is pending first; then money comes, or a refusal, or nothing.
fn pending_deposit() -> Scenario {
    Scenario {
        first: vec![callback(&DEPOSIT, "pending", "opened")],
        messages: vec![callback(&DEPOSIT, "paid", "captured"), confirmation()],
        expected: &["completed", "failed", "cancelled", "compensated"],
        // It may have come at the very last moment.
        allowed_cases: &["deadline_passed"],
        // Money that comes after the end is taken up by the next generation.
        max_sagas: 2,
        bounds: bounds(0, 1),
        ..deposit("pending-deposit")
    }
}

/// A deposit, and a customer who spends what it brought before it can be taken back.
fn spent_deposit() -> Scenario {
    let scenario = deposit("spent-deposit");
    Scenario {
        messages: vec![cancel(&scenario.first[0], "1")],
        spends: Some((customer(), 150)),
        expected: &["completed", "compensated", "cancelled"],
        bounds: bounds(0, 1),
        ..scenario
    }
}

/// A withdrawal from what a deposit may have brought: two sagas on one wallet.
fn deposit_and_withdrawal() -> Scenario {
    let withdrawal = Sent {
        saga_id: (WITHDRAWAL.identify)("w-1", &Value::Null).expect("an id"),
        workflow: &WITHDRAWAL,
        said: Said::start("intake:withdrawal", json!({ "minor": 150 })),
    };
    let scenario = deposit("deposit-and-withdrawal");
    Scenario {
        first: vec![scenario.first[0].clone(), withdrawal],
        // Enough for the withdrawal by itself only with the deposit: it may come too early.
        holds: Some(40),
        // What the withdrawal has taken is missing when the deposit has to be taken back.
        allowed_cases: &["compensation_refused"],
        expected: &["completed", "failed", "compensated"],
        max_sagas: 2,
        bounds: bounds(0, 1),
        ..scenario
    }
}

/// A withdrawal alone, which the bank may refuse and somebody may cancel.
fn one_withdrawal() -> Scenario {
    let withdrawal = Sent {
        saga_id: (WITHDRAWAL.identify)("w-1", &Value::Null).expect("an id"),
        workflow: &WITHDRAWAL,
        said: Said::start("intake:withdrawal", json!({ "minor": 150 })),
    };
    Scenario {
        messages: vec![cancel(&withdrawal, "1")],
        first: vec![withdrawal],
        holds: Some(200),
        // A payout has no undo: when nobody knows whether it was made, a person finds out.
        allowed_cases: &["compensation_refused"],
        expected: &[
            "completed",
            "failed",
            "compensated",
            "cancelled",
            "needs_review",
        ],
        bounds: bounds(1, 2),
        ..deposit("one-withdrawal")
    }
}

/// Takes the money from the wallet, pays it out, tells of it.
static WITHDRAWAL: Workflow = Workflow {
    name: "withdrawal",
    version: 1,
    deadline: SignedDuration::from_hours(1),
    identify: |id, _| Ok(SagaId::from_parts("withdrawal", &[id])),
    check_signal: |name, _| Err(format!("a withdrawal waits for no {name}")),
    run: withdraw,
    arrival: |record, input| {
        if record.input == *input {
            ArrivalMeaning::Duplicate
        } else {
            ArrivalMeaning::Review {
                reason: CaseReason::ConflictingFact,
                message: "the same withdrawal came with another sum".to_owned(),
            }
        }
    },
    turned_back: |_| None,
};

fn withdraw(cx: &mut Cx<'_>, input: &Value) -> Flow<Value> {
    let minor = input["minor"].as_i64().unwrap_or_default();
    let undo = Release {
        target: cx.saga_id().own_operation(),
    };
    cx.step(Hold { minor }).undo(&undo).own_operation().run()?;
    cx.step(Payout { minor }).pivot().run()?;
    cx.emit(
        "withdrawn",
        &region(),
        &json!({ "credited": { "amount_minor": -minor } }),
    )?;
    Ok(json!({ "paid": minor }))
}

fn region() -> Region {
    Region::new("eu").expect("a region")
}

#[derive(Debug)]
struct Hold {
    minor: i64,
}

#[derive(Debug)]
struct Release {
    target: OperationId,
}

#[derive(Debug, Serialize, Deserialize)]
struct Payout {
    minor: i64,
}

impl Serialize for Hold {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        WalletUpdate {
            customer: customer(),
            movement: Movement::Debit,
            money: usd(self.minor),
            memo: None,
        }
        .serialize(serializer)
    }
}

impl Request for Hold {
    const KIND: &'static str = "wallet.update";
    fn participant(&self) -> Participant {
        Participant::Region(region())
    }
}

impl Step for Hold {
    const NAME: &'static str = "hold";
    type Reply = Value;
}

impl Serialize for Release {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        WalletRevert {
            target: self.target.clone(),
            memo: None,
        }
        .serialize(serializer)
    }
}

impl Request for Release {
    const KIND: &'static str = "wallet.revert";
    fn participant(&self) -> Participant {
        Participant::Region(region())
    }
}

impl Request for Payout {
    const KIND: &'static str = "payout.send";
    fn participant(&self) -> Participant {
        Participant::Core
    }
}

impl Step for Payout {
    const NAME: &'static str = "payout";
    type Reply = Value;
}
