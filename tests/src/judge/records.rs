//! The judge's reading of the stored records.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::Value;

use super::breach::{Breach, Invariant};

/// Commands that need not be stored before they leave: they move nothing, and are questions or found again
/// by a natural key. Nothing that moves money is among them.
const REPEATABLE: [&str; 4] = [
    "wallet.get",
    "payments.find_or_create",
    "payments.mark_successful",
    "fx.quote",
];

/// A command as it left.
pub(super) struct Sent {
    pub(super) operation: String,
    pub(super) participant: String,
    pub(super) kind: String,
    pub(super) request: Value,
    pub(super) fence: u64,
}

/// One stored record.
#[derive(Debug, Clone)]
pub(super) struct Record {
    revision: u64,
    body: Value,
}

/// What has been stored of an operation and must not change.
#[derive(Debug, Clone, PartialEq)]
struct Plan {
    participant: String,
    kind: String,
    request: Value,
    undo: Option<(String, Value)>,
}

#[derive(Debug, Default)]
pub(super) struct Records {
    latest: BTreeMap<String, Record>,
    plans: HashMap<(String, String), Plan>,
    events: HashMap<String, Vec<(String, Value)>>,
    accounted: HashSet<String>,
    no_events: Vec<(String, Value)>,
}

impl Records {
    pub(super) fn written(
        &mut self,
        saga: &str,
        revision: u64,
        text: &str,
        noted: &mut Vec<Breach>,
    ) {
        let Ok(body) = serde_json::from_str::<Value>(text) else {
            noted.push(Breach::new(
                Invariant::RecordsGoForward,
                saga,
                "its record is not JSON",
            ));
            return;
        };
        let record = Record { revision, body };
        if let Some(before) = self.latest.get(saga) {
            compare(saga, before, &record, noted);
        }
        for (operation, plan) in record.plans() {
            let key = (saga.to_owned(), operation);
            if let Some(known) = self.plans.get(&key)
                && *known != plan
            {
                noted.push(Breach::new(
                    Invariant::FactsStay,
                    saga,
                    format!(
                        "operation {} was stored as {known:?} and is {plan:?}",
                        key.1
                    ),
                ));
            }
            self.plans.insert(key, plan);
        }
        self.account(&record);
        self.latest.insert(saga.to_owned(), record);
    }

    fn account(&mut self, record: &Record) {
        let seen = record.body["seen"].as_array().into_iter().flatten();
        self.accounted
            .extend(seen.filter_map(|id| id.as_str().map(str::to_owned)));
        let evidence = &record.body["case"]["evidence"];
        if let Some(id) = evidence["message_id"].as_str() {
            self.accounted.insert(id.to_owned());
        }
        if let Some(sequence) = evidence["sequence"].as_u64() {
            self.accounted.insert(format!("intake:{sequence}"));
        }
    }

    pub(super) fn is_accounted_for(&self, message: &str) -> bool {
        let sequence = message.split('@').next().unwrap_or(message);
        self.accounted.contains(message) || self.accounted.contains(sequence)
    }

    pub(super) fn event(&mut self, saga: &str, name: &str, body: Value, noted: &mut Vec<Breach>) {
        let events = self.events.entry(saga.to_owned()).or_default();
        if events.iter().any(|(known, _)| known == name) {
            noted.push(Breach::new(
                Invariant::EventExactlyOnce,
                saga,
                format!("{name} is in the log twice"),
            ));
        }
        events.push((name.to_owned(), body));
    }

    pub(super) fn command_left(&self, saga: &str, sent: &Sent, noted: &mut Vec<Breach>) {
        if REPEATABLE.contains(&sent.kind.as_str()) {
            return;
        }
        let mut breach = |message: String| {
            noted.push(Breach::new(
                Invariant::PlanIsStoredBeforeCommand,
                saga,
                message,
            ));
        };
        let operation = &sent.operation;
        let plan = self.plans.get(&(saga.to_owned(), operation.clone()));
        let Some(plan) = plan else {
            return breach(format!("operation {operation} left and no record has it"));
        };
        if (&plan.participant, &plan.kind, &plan.request)
            != (&sent.participant, &sent.kind, &sent.request)
        {
            breach(format!(
                "operation {operation} left as {} {} to {}, stored is {plan:?}",
                sent.kind, sent.request, sent.participant
            ));
        }
        if sent.kind == "wallet.update" {
            let target = plan.undo.as_ref().map(|(_, undo)| &undo["target"]);
            if target.and_then(Value::as_str) != Some(operation) {
                breach(format!(
                    "operation {operation} left without an undo of it: {:?}",
                    plan.undo
                ));
            }
        }
        let epoch = self.latest.get(saga).map_or(0, |record| record.epoch());
        if sent.fence > epoch || sent.fence == 0 {
            breach(format!(
                "operation {operation} left with fence {}, stored is epoch {epoch}",
                sent.fence
            ));
        }
    }

    pub(super) fn latest(&self, saga: &str) -> Option<&Record> {
        self.latest.get(saga)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Record> {
        self.latest.values()
    }

    pub(super) fn events_of(&self, saga: &str) -> &[(String, Value)] {
        self.events.get(saga).unwrap_or(&self.no_events)
    }
}

/// What may not have changed from one revision to the next.
fn compare(saga: &str, before: &Record, after: &Record, noted: &mut Vec<Breach>) {
    let mut breach = |invariant, message: String| noted.push(Breach::new(invariant, saga, message));
    let at = after.revision;
    if after.revision <= before.revision {
        let message = format!("revision {at} follows {}", before.revision);
        breach(Invariant::RecordsGoForward, message);
    }
    if after.epoch() < before.epoch() {
        let message = format!("epoch {} follows {}", after.epoch(), before.epoch());
        breach(Invariant::RecordsGoForward, message);
    }
    if after.text("owner") != before.text("owner") && after.epoch() <= before.epoch() {
        let message = format!(
            "{} takes it over from {} at revision {at} and stays at epoch {}",
            after.text("owner"),
            before.text("owner"),
            after.epoch()
        );
        breach(Invariant::RecordsGoForward, message);
    }
    if before.is_terminal() && after.status() != before.status() {
        let message = format!(
            "it had ended {} and is {} at revision {at}: {}",
            before.status(),
            after.status(),
            after.cause()
        );
        breach(Invariant::EndingsStay, message);
    }
    if before.is_turned() && !after.is_turned() {
        let message = format!("it goes forward again at revision {at}");
        breach(Invariant::DirectionTurnsOnce, message);
    }
    let asked = after.body["direction"]["reason"] == "cancel_requested";
    if !before.is_turned() && after.is_turned() && asked && before.is_past_pivot() {
        let message = format!("it turns back at revision {at} although its pivot is applied");
        breach(Invariant::DirectionTurnsOnce, message);
    }
    let signals = after.body["signals"].as_array().into_iter().flatten();
    let ids: Vec<&Value> = signals.map(|signal| &signal["id"]).collect();
    if let Some(id) = ids
        .iter()
        .find(|id| ids.iter().filter(|other| other == id).count() > 1)
    {
        let message = format!("signal {id} is kept twice at revision {at}");
        breach(Invariant::FactsStay, message);
    }
    for (name, value) in before.body["facts"].as_object().into_iter().flatten() {
        if after.body["facts"].get(name) != Some(value) {
            let message = format!(
                "fact {name} was {value} and is {:?} at revision {at}",
                after.body["facts"].get(name)
            );
            breach(Invariant::FactsStay, message);
        }
    }
    let later: BTreeMap<&str, &Value> = after.operations().collect();
    for (id, operation) in before.operations() {
        let is = later.get(id).copied().unwrap_or(&Value::Null);
        let answered = operation["outcome"] == "applied";
        if is.is_null() || (answered && operation["reply"] != is["reply"]) {
            let message = format!("operation {id} was {operation} and is {is} at revision {at}");
            breach(Invariant::FactsStay, message);
        }
    }
}

impl Record {
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    pub(super) fn saga(&self) -> &str {
        self.text("saga_id")
    }

    pub(super) fn workflow(&self) -> &str {
        self.text("workflow")
    }

    pub(super) fn status(&self) -> &str {
        self.text("status")
    }

    pub(super) fn cause(&self) -> &str {
        self.text("cause")
    }

    pub(super) fn body(&self) -> &Value {
        &self.body
    }

    pub(super) fn is_terminal(&self) -> bool {
        ["completed", "compensated", "cancelled", "failed"].contains(&self.status())
    }

    /// Open, and not only a person can help.
    pub(super) fn needs_driver(&self) -> bool {
        let rests = self.status() == "needs_review" && self.body["wake_at"].is_null();
        !self.is_terminal() && !rests && self.body["hold"].is_null()
    }

    /// A participant that keeps no tombstones knows nothing of a step and cannot forbid it: only a person
    /// can say that it will never come. The saga has a case and goes on asking.
    pub(super) fn asks_in_vain(&self) -> bool {
        let asks = self.cause().contains("status of ") && !self.is_terminal();
        asks && self.body["case"]["reason"] == "overdue"
    }

    fn epoch(&self) -> u64 {
        self.body["epoch"].as_u64().unwrap_or(0)
    }

    fn is_turned(&self) -> bool {
        self.body["direction"]["going"] != "forward"
    }

    fn is_past_pivot(&self) -> bool {
        let steps = self.body["steps"].as_array().into_iter().flatten();
        steps
            .filter(|step| step["pivot"] == true)
            .any(|step| step["forward"]["outcome"] == "applied")
    }

    fn text(&self, field: &str) -> &str {
        self.body[field].as_str().unwrap_or_default()
    }

    /// Operations of both sides with their ids.
    pub(super) fn operations(&self) -> impl Iterator<Item = (&str, &Value)> {
        let steps = self.body["steps"].as_array().into_iter().flatten();
        steps
            .flat_map(|step| [&step["forward"], &step["undo"]])
            .filter_map(|operation| Some((operation["operation_id"].as_str()?, operation)))
    }

    fn plans(&self) -> Vec<(String, Plan)> {
        let steps = self.body["steps"].as_array().into_iter().flatten();
        steps
            .flat_map(|step| {
                let undo = plan(&step["undo"], None);
                let known = undo
                    .as_ref()
                    .map(|(id, plan)| (id.clone(), plan.request.clone()));
                [plan(&step["forward"], known), undo]
            })
            .flatten()
            .collect()
    }
}

fn plan(operation: &Value, undo: Option<(String, Value)>) -> Option<(String, Plan)> {
    let id = operation["operation_id"].as_str()?.to_owned();
    let participant = match &operation["participant"] {
        Value::String(name) => name.clone(),
        other => other["region"].as_str().unwrap_or_default().to_owned(),
    };
    let plan = Plan {
        participant,
        kind: operation["kind"].as_str().unwrap_or_default().to_owned(),
        request: operation["request"].clone(),
        undo,
    };
    Some((id, plan))
}
