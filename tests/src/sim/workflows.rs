//! Workflows of other shapes than the deposit: two wallets, loops over signals, parallel steps, sleeps.

use contracts::command::{Movement, WalletRevert, WalletUpdate};
use contracts::id::{CustomerId, OperationId, Region, SagaId};
use contracts::money::{Currency, CurrencyCode, Money};
use jiff::SignedDuration;
use orchestrator::saga::flow::{Cx, Flow, Request, Selected, Step, join};
use orchestrator::saga::record::{CaseReason, Participant, SagaRecord};
use orchestrator::saga::{ArrivalMeaning, Workflow};
use orchestrator::workflows::{Workflows, deposit};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// All workflows of a simulated world.
#[must_use]
pub(super) fn all() -> Workflows {
    Workflows::new(vec![
        &deposit::DEPOSIT,
        &TRANSFER,
        &WITHDRAWAL,
        &INSTALMENTS,
    ])
}

/// A debit here, a credit there.
static TRANSFER: Workflow = Workflow {
    name: "transfer",
    version: 1,
    deadline: SignedDuration::from_mins(10),
    identify: identify_transfer,
    check_signal,
    run: transfer,
    arrival,
    turned_back: |_| None,
};

/// A debit that people have to approve; it waits, then is paid out.
static WITHDRAWAL: Workflow = Workflow {
    name: "withdrawal",
    version: 1,
    deadline: SignedDuration::from_mins(30),
    identify: identify_withdrawal,
    check_signal,
    run: withdrawal,
    arrival,
    turned_back: |_| None,
};

/// Two credits side by side, then some more, and perhaps all is refused.
static INSTALMENTS: Workflow = Workflow {
    name: "instalments",
    version: 1,
    deadline: SignedDuration::from_mins(10),
    identify: identify_instalments,
    check_signal,
    run: instalments,
    arrival,
    turned_back: |_| None,
};

#[derive(Debug, Clone, Deserialize)]
struct Party {
    region: Region,
    customer: CustomerId,
}

#[derive(Debug, Deserialize)]
struct Transfer {
    from: Party,
    to: Party,
    amount_minor: i64,
}

#[derive(Debug, Deserialize)]
struct Withdrawal {
    from: Party,
    amount_minor: i64,
    approvals: u64,
    cool_down_seconds: i64,
}

#[derive(Debug, Deserialize)]
struct Instalments {
    left: Party,
    right: Party,
    amount_minor: i64,
    count: u64,
    refuse: bool,
}

/// One movement. The step's name is part of its type.
macro_rules! movement {
    ($type:ident, $name:literal) => {
        #[derive(Debug)]
        struct $type(Region, WalletUpdate);
        impl Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                self.1.serialize(serializer)
            }
        }
        impl Request for $type {
            const KIND: &'static str = "wallet.update";
            fn participant(&self) -> Participant {
                Participant::Region(self.0.clone())
            }
        }
        impl Step for $type {
            const NAME: &'static str = $name;
            type Reply = Value;
        }
    };
}

movement!(Take, "take");
movement!(Give, "give");
movement!(GiveLeft, "give-left");
movement!(GiveRight, "give-right");
movement!(Instalment, "instalment");

#[derive(Debug)]
struct Revert(Region, OperationId);

impl Serialize for Revert {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let target = self.1.clone();
        WalletRevert { target, memo: None }.serialize(serializer)
    }
}

impl Request for Revert {
    const KIND: &'static str = "wallet.revert";
    fn participant(&self) -> Participant {
        Participant::Region(self.0.clone())
    }
}

/// A rate that is asked for after something has moved.
#[derive(Debug, Serialize)]
struct Quote {
    paid: Money,
    to: Value,
}

impl Request for Quote {
    const KIND: &'static str = "fx.quote";
    const REPEATABLE: bool = true;
    fn participant(&self) -> Participant {
        Participant::Core
    }
}

impl Step for Quote {
    const NAME: &'static str = "quote";
    type Reply = Value;
}

fn euros(amount_minor: i64) -> Money {
    let code = CurrencyCode::new("EUR").unwrap_or_else(|_| unreachable!());
    let currency = Currency::iso(code).unwrap_or_else(|_| unreachable!());
    Money::new(amount_minor, currency)
}

fn update(party: &Party, movement: Movement, amount_minor: i64) -> WalletUpdate {
    WalletUpdate {
        customer: party.customer.clone(),
        movement,
        money: euros(amount_minor),
        memo: None,
    }
}

fn effect(party: &Party, movement: Movement, amount_minor: i64) -> Value {
    json!({ "customer": party.customer, "movement": movement, "money": euros(amount_minor) })
}

fn read<T: serde::de::DeserializeOwned>(cx: &Cx<'_>, input: &Value) -> Flow<T> {
    match T::deserialize(input) {
        Ok(input) => Ok(input),
        Err(error) => cx.review(CaseReason::Unreadable, error.to_string()),
    }
}

fn transfer(cx: &mut Cx<'_>, input: &Value) -> Flow<Value> {
    let Transfer {
        from,
        to,
        amount_minor,
    } = read(cx, input)?;
    cx.phase("take");
    let undo = Revert(from.region.clone(), cx.saga_id().operation("take"));
    let taken = update(&from, Movement::Debit, amount_minor);
    cx.step(Take(from.region.clone(), taken))
        .undo(&undo)
        .run()?;
    cx.phase("give");
    let undo = Revert(to.region.clone(), cx.saga_id().own_operation());
    let given = update(&to, Movement::Credit, amount_minor);
    cx.step(Give(to.region.clone(), given))
        .undo(&undo)
        .own_operation()
        .pivot()
        .run()?;
    cx.emit("transfer_completed", &to.region, &json!({}))?;
    Ok(json!({ "effects": [
        effect(&from, Movement::Debit, amount_minor),
        effect(&to, Movement::Credit, amount_minor),
    ]}))
}

fn withdrawal(cx: &mut Cx<'_>, input: &Value) -> Flow<Value> {
    let Withdrawal {
        from,
        amount_minor,
        approvals,
        cool_down_seconds,
    } = read(cx, input)?;
    cx.phase("reserve");
    let undo = Revert(from.region.clone(), cx.saga_id().operation("take"));
    let taken = update(&from, Movement::Debit, amount_minor);
    cx.step(Take(from.region.clone(), taken))
        .undo(&undo)
        .run()?;
    cx.phase("approve");
    for _ in 0..approvals {
        match cx.select::<Value>(&["approve", "reject"], SignedDuration::from_mins(5))? {
            Selected::Signal { name, .. } if name == "approve" => {}
            Selected::Signal { .. } => return cx.refuse("somebody rejects it"),
            Selected::Deadline => return cx.time_out("nobody approved it in time"),
        }
    }
    cx.phase("cool-down");
    cx.sleep(SignedDuration::from_secs(cool_down_seconds))?;
    let paid = euros(amount_minor);
    let to = json!({ "code": "USD", "exponent": 2 });
    let quote = cx.step(Quote { paid, to }).run()?;
    cx.phase("pay-out");
    let bank = Party {
        region: Region::new("default").unwrap_or_else(|_| unreachable!()),
        customer: CustomerId::new("bank").unwrap_or_else(|_| unreachable!()),
    };
    let undo = Revert(bank.region.clone(), cx.saga_id().own_operation());
    let given = update(&bank, Movement::Credit, amount_minor);
    cx.step(Give(bank.region.clone(), given))
        .undo(&undo)
        .own_operation()
        .pivot()
        .run()?;
    cx.emit("withdrawal_completed", &bank.region, &quote)?;
    Ok(json!({ "effects": [
        effect(&from, Movement::Debit, amount_minor),
        effect(&bank, Movement::Credit, amount_minor),
    ]}))
}

fn instalments(cx: &mut Cx<'_>, input: &Value) -> Flow<Value> {
    let Instalments {
        left,
        right,
        amount_minor,
        count,
        refuse,
    } = read(cx, input)?;
    let credit = |party: &Party| update(party, Movement::Credit, amount_minor);
    cx.phase("both");
    let undo_left = Revert(left.region.clone(), cx.saga_id().operation("give-left"));
    let undo_right = Revert(right.region.clone(), cx.saga_id().operation("give-right"));
    let given_left = cx
        .step(GiveLeft(left.region.clone(), credit(&left)))
        .undo(&undo_left)
        .run();
    let given_right = cx
        .step(GiveRight(right.region.clone(), credit(&right)))
        .undo(&undo_right)
        .run();
    join(given_left, given_right)?;
    let mut effects = vec![
        effect(&left, Movement::Credit, amount_minor),
        effect(&right, Movement::Credit, amount_minor),
    ];
    cx.phase("instalments");
    for number in 1..=count {
        cx.sleep(SignedDuration::from_secs(3))?;
        let name = match number {
            1 => "instalment".to_owned(),
            more => format!("instalment#{more}"),
        };
        let undo = Revert(left.region.clone(), cx.saga_id().operation(&name));
        cx.step(Instalment(left.region.clone(), credit(&left)))
            .undo(&undo)
            .run()?;
        effects.push(effect(&left, Movement::Credit, amount_minor));
    }
    if refuse {
        return cx.refuse("all of it is taken back");
    }
    Ok(json!({ "effects": effects }))
}

fn identify_transfer(id: &str, _: &Value) -> Result<SagaId, String> {
    Ok(SagaId::from_parts("transfer", &[id]))
}

fn identify_withdrawal(id: &str, _: &Value) -> Result<SagaId, String> {
    Ok(SagaId::from_parts("withdrawal", &[id]))
}

fn identify_instalments(id: &str, _: &Value) -> Result<SagaId, String> {
    Ok(SagaId::from_parts("instalments", &[id]))
}

fn check_signal(_: &str, _: &Value) -> Result<(), String> {
    Ok(())
}

fn arrival(record: &SagaRecord, input: &Value) -> ArrivalMeaning {
    if record.input == *input {
        return ArrivalMeaning::Duplicate;
    }
    ArrivalMeaning::Review {
        reason: CaseReason::ConflictingFact,
        message: "the same start with another input".to_owned(),
    }
}
