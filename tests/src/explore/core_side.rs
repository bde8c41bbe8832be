//! A model of the core's own side: payments, rates and payouts, each operation once.

use std::collections::BTreeMap;

use contracts::id::SagaId;
use orchestrator::saga::action::Command;
use orchestrator::saga::input::Answer;
use serde_json::{Value, json};

use super::ground::Table;

/// The payments database, the rate source and the bank.
#[derive(Debug, Clone, Default)]
pub(super) struct CoreSide {
    /// Payments by the provider's id.
    pub(super) payments: BTreeMap<String, Payment>,
    /// What each operation was answered, for good.
    answers: BTreeMap<String, Answer>,
    /// Which rate the next question gets: no two in a row are the same.
    rate: u8,
    /// Money that has left by the bank, by saga.
    pub(super) paid_out: Vec<String>,
}

/// A payment as stored.
#[derive(Debug, Clone)]
pub(super) struct Payment {
    pub(super) status: &'static str,
    pub(super) owner: String,
    paid: bool,
    /// The sum with which it was made successful.
    pub(super) credited: Option<i64>,
}

/// Core sides by number.
#[derive(Debug)]
pub(super) struct CoreSides {
    table: Table<CoreSide>,
}

impl CoreSides {
    pub(super) fn new() -> Self {
        Self {
            table: Table::new(),
        }
    }

    pub(super) fn empty(&mut self) -> u32 {
        self.keep(CoreSide::default())
    }

    pub(super) fn get(&self, number: u32) -> &CoreSide {
        self.table.get(number)
    }

    fn keep(&mut self, side: CoreSide) -> u32 {
        self.table.number(format!("{side:?}"), side)
    }

    /// Carries out a command. `refuse` is what the bank says to a payout.
    pub(super) fn execute(
        &mut self,
        side: u32,
        saga_id: &SagaId,
        command: &Command,
        refuse: bool,
    ) -> (u32, Answer) {
        let mut after = self.table.get(side).clone();
        let answer = after.execute(saga_id, command, refuse);
        (self.keep(after), answer)
    }
}

impl CoreSide {
    fn execute(&mut self, saga_id: &SagaId, command: &Command, refuse: bool) -> Answer {
        let id = command.operation_id.to_string();
        if let Some(known) = self.answers.get(&id) {
            return known.clone();
        }
        let saga = saga_id.to_string();
        let request = &command.request;
        let answer = match command.kind.as_str() {
            // A rate is asked for, not stored.
            "fx.quote" => return self.quote(request),
            "payments.find_or_create" => self.find_or_create(&saga, &request["fact"]),
            "payments.mark_successful" => self.succeed(&saga, request),
            "payments.mark_cancelled" => self.close(&saga, request, "cancelled"),
            "payments.mark_failed" => self.close(&saga, request, "failed"),
            "payout.send" if refuse => refused("account_closed"),
            "payout.send" => {
                self.paid_out.push(saga);
                Answer::Applied(json!({ "sent": true }))
            }
            other => Answer::Unacceptable {
                code: "invalid".to_owned(),
                message: format!("{other} is no step of the core"),
            },
        };
        self.answers.insert(id, answer.clone());
        answer
    }

    fn quote(&mut self, request: &Value) -> Answer {
        self.rate = (self.rate + 1) % 2;
        let source = request["paid"].clone();
        let minor = source["amount_minor"].as_i64().unwrap_or_default();
        let target = json!({
            "amount_minor": minor * 2 + i64::from(self.rate),
            "currency": request["to"]["code"],
            "exponent": request["to"]["exponent"],
        });
        Answer::Applied(json!({
            "source": source,
            "target": target,
            "rate": format!("2.{}", self.rate),
            "rate_source": "model",
            "quoted_at": "2030-01-01T00:00:00Z",
            "rounding": "half_even",
        }))
    }

    fn find_or_create(&mut self, saga: &str, fact: &Value) -> Answer {
        let paid = fact["meaning"] == "paid";
        let key = external_id(&fact["payment"]);
        let created = !self.payments.contains_key(&key);
        let row = self.payments.entry(key).or_insert_with(|| Payment {
            status: "pending",
            owner: saga.to_owned(),
            paid: false,
            credited: None,
        });
        let own = row.owner == saga;
        match (row.status, own) {
            ("pending", false) if row.paid || !paid => return refused("owned_by_other"),
            ("successful", false) => return refused("owned_by_other"),
            ("failed" | "cancelled", true) => return refused("closed"),
            _ => {}
        }
        if row.status != "successful" {
            (row.status, row.owner) = ("pending", saga.to_owned());
            row.paid |= paid;
        }
        let mut answer = json!({
            "payment_id": "pay_1",
            "customer": fact["customer"],
            "region": "eu",
            "created": created,
            "may_credit": paid,
        });
        if paid {
            answer["paid"] = fact["amount"].clone();
            answer["wallet_currency"] = json!({ "currency": "USD", "exponent": 2 });
        }
        Answer::Applied(answer)
    }

    fn succeed(&mut self, saga: &str, request: &Value) -> Answer {
        let sum = request["quote"]["target"]["amount_minor"].as_i64();
        let Some(row) = self.payments.get_mut(&external_id(&request["payment"])) else {
            return refused("illegal_move");
        };
        match row.status {
            "pending" if row.owner == saga => {
                (row.status, row.credited) = ("successful", sum);
                done("successful")
            }
            "successful" if row.owner == saga && row.credited == sum => done("successful"),
            _ => refused("illegal_move"),
        }
    }

    fn close(&mut self, saga: &str, request: &Value, status: &'static str) -> Answer {
        let row = self
            .payments
            .entry(external_id(&request["payment"]))
            .or_insert_with(|| Payment {
                status: "pending",
                owner: saga.to_owned(),
                paid: false,
                credited: None,
            });
        if row.owner != saga && !matches!(row.status, "failed" | "cancelled") {
            // For an undo this means that there is nothing of this saga to undo.
            return Answer::Applied(json!({ "answer": "refused", "message": "not its own" }));
        }
        if !matches!(row.status, "failed" | "cancelled") {
            (row.status, row.owner, row.credited) = (status, saga.to_owned(), None);
        }
        done(row.status)
    }
}

fn done(status: &str) -> Answer {
    Answer::Applied(json!({ "answer": "done", "payment_id": "pay_1", "status": status }))
}

fn refused(code: &str) -> Answer {
    Answer::Refused {
        code: code.to_owned(),
        message: "the model refuses".to_owned(),
    }
}

fn external_id(payment: &Value) -> String {
    payment["external_id"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}
