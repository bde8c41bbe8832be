//! What the judge reads in a record: its JSON, in the judge's own words.

use std::collections::BTreeMap;

use serde_json::Value;

/// What a judge reads in a record's JSON.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    pub(super) status: String,
    pub(super) workflow: String,
    pub(super) saga_id: String,
    /// The start has come; before, the record only keeps what was said.
    pub(super) begun: bool,
    pub(super) forward: bool,
    pub(super) epoch: u64,
    pub(super) owner: String,
    pub(super) wakes: bool,
    pub(super) seen: Vec<String>,
    pub(super) case: Option<String>,
    /// What the case says, for a person.
    pub(super) told: Option<String>,
    pub(super) past_pivot: bool,
    pub(super) operations: BTreeMap<String, Operation>,
    /// Undos by the id of what they undo.
    pub(super) undone_by: BTreeMap<String, String>,
}

#[derive(Debug, Clone)]
pub(super) struct Operation {
    pub(super) kind: String,
    pub(super) request: Value,
    pub(super) outcome: String,
    pub(super) attempts: u64,
    pub(super) reply: Value,
    pub(super) undo: bool,
}

/// Words of a record's end.
const FINAL: [&str; 4] = ["completed", "compensated", "cancelled", "failed"];

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

impl Facts {
    pub(super) fn read(record: &Value, told: Option<String>) -> Self {
        let mut operations = BTreeMap::new();
        let mut undone_by = BTreeMap::new();
        let mut past_pivot = false;
        for step in record["steps"].as_array().into_iter().flatten() {
            let forward = Operation::read(&step["forward"], false);
            past_pivot |= step["pivot"] == true && forward.outcome == "applied";
            let id = text(&step["forward"]["operation_id"]);
            if step["undo"].is_object() {
                let undo_id = text(&step["undo"]["operation_id"]);
                operations.insert(undo_id.clone(), Operation::read(&step["undo"], true));
                undone_by.insert(id.clone(), undo_id);
            }
            operations.insert(id, forward);
        }
        let seen = record["seen"].as_array().into_iter().flatten();
        Self {
            status: text(&record["status"]),
            workflow: text(&record["workflow"]),
            saga_id: text(&record["saga_id"]),
            begun: record["version"] != 0,
            forward: record["direction"]["going"] == "forward",
            epoch: record["epoch"].as_u64().unwrap_or_default(),
            owner: text(&record["owner"]),
            wakes: record["wake_at"].is_string(),
            seen: seen.map(text).collect(),
            case: record["case"]["reason"].as_str().map(str::to_owned),
            told,
            past_pivot,
            operations,
            undone_by,
        }
    }

    pub(super) fn is_final(&self) -> bool {
        FINAL.contains(&self.status.as_str())
    }

    pub(super) fn waits_for_a_person(&self) -> bool {
        self.status == "needs_review"
    }
}

impl Operation {
    fn read(operation: &Value, undo: bool) -> Self {
        Self {
            kind: text(&operation["kind"]),
            request: operation["request"].clone(),
            outcome: text(&operation["outcome"]),
            attempts: operation["attempts"].as_u64().unwrap_or_default(),
            reply: operation["reply"].clone(),
            undo,
        }
    }
}
