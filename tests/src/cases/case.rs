//! One case as data: `tests/cases/ps-001.json`.

use anyhow::{Context as _, ensure};
use contracts::id::SagaId;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

pub use super::expect::{Bound, Expect, ExpectedRow};
pub use super::given::{Announced, Given};

/// Amounts as decimal text, by currency.
pub type Amounts = BTreeMap<String, String>;

/// A case.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// `PS-001`.
    pub id: String,
    /// The kind of fault.
    pub class: String,
    /// What happens, in a line.
    pub title: String,
    /// The provider of callbacks that name none; no other case uses it.
    pub provider: String,
    /// Where it runs.
    #[serde(default)]
    pub world: WorldKind,
    /// What is replayed in another way than it happened, and why.
    #[serde(default)]
    pub adapted: Option<String>,
    /// The state before.
    #[serde(default)]
    pub given: Given,
    /// What happens, in order.
    pub steps: Vec<TimedStep>,
    /// What must be so in the end.
    pub expect: Expect,
}

/// Which cases share a system.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorldKind {
    /// One server, one orchestrator; all cases side by side.
    #[default]
    Shared,
    /// One server; one case after another, each with orchestrators of its own. A message that is not
    /// acknowledged comes again after two seconds.
    Restarts,
    /// As `Restarts`, with at most eight messages out at a time.
    FewPending,
    /// Three servers, three copies of everything, two orchestrators.
    ThreeNodes,
}

/// A step and when it happens.
#[derive(Debug, Clone, Deserialize)]
pub struct TimedStep {
    /// Since the start. A gap is a chance for what came before to come to rest; it ends early when
    /// everything has.
    pub at_ms: u64,
    /// What happens.
    #[serde(flatten)]
    pub step: Step,
}

/// Something that happens.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Step {
    /// A callback with this body; `{A*700}` in a text stands for seven hundred As.
    Callback {
        /// The body.
        body: Map<String, Value>,
        /// The sender's id of the message; each step has one of its own when absent.
        #[serde(default)]
        msg_id: Option<String>,
    },
    /// A callback with exactly this text.
    CallbackRaw {
        /// The body.
        text: String,
        /// Whose, when it is not the case's.
        #[serde(default)]
        provider: Option<String>,
    },
    /// A callback with exactly these bytes.
    CallbackHex {
        /// The body.
        hex: String,
    },
    /// A callback with one long field.
    CallbackGenerated {
        /// The body.
        body: Map<String, Value>,
        /// The long field.
        fill: Fill,
    },
    /// A signal too large to be taken; it must be refused to its sender.
    SignalGenerated {
        /// The payment of its saga.
        saga_of: String,
        /// How large.
        bytes: usize,
    },
    /// Many callbacks at once; `{i}` in a text is the number of each.
    Burst {
        /// How many.
        count: usize,
        /// The body.
        body: Map<String, Value>,
    },
    /// The same callback, stored several times.
    StoreCopies {
        /// How often.
        copies: usize,
        /// The body.
        body: Map<String, Value>,
    },
    /// Sends all of these at the same instant, so many times; `{i}` is the number of the time.
    Concurrently {
        /// The bodies.
        what: Vec<Map<String, Value>>,
        /// How many times.
        times: usize,
    },
    /// All orders of these callbacks, each order with a payment of its own; `{i}` is the number of the order.
    EveryOrder {
        /// The bodies.
        what: Vec<Map<String, Value>>,
    },
    /// Requests to start sagas, all at one instant; `{i}` in a text is the number of each.
    StartConcurrently {
        /// The workflow.
        saga: String,
        /// The caller's ids.
        operation_id: String,
        /// How many.
        count: usize,
        /// The input.
        body: Map<String, Value>,
    },
    /// A request to start a saga.
    Start {
        /// The workflow.
        saga: String,
        /// The caller's id.
        operation_id: String,
        /// The input.
        body: Value,
    },
    /// A signal.
    Signal {
        /// The payment of its saga.
        saga_of: String,
        /// Its name.
        name: String,
        /// What it says.
        #[serde(default)]
        body: Value,
    },
    /// The same signal under many ids at once.
    SignalBurst {
        /// The payment of its saga.
        saga_of: String,
        /// Its name.
        name: String,
        /// What it says.
        body: Value,
        /// How many.
        count: usize,
    },
    /// From now on something behaves badly.
    Fault(Fault),
    /// Everything behaves again.
    ClearFaults,
    /// Ends something at once and starts it again.
    Restart {
        /// `orchestrator` or `nats`.
        what: String,
    },
    /// The clock goes on to so many milliseconds after the start: every orchestrator is started again with
    /// a clock so far ahead, and timers that are due by it fire. In a shared world, where nothing of the
    /// case is armed, the time is skipped.
    AdvanceTo {
        /// Since the start of the case.
        ms: u64,
    },
    /// An operator asks to cancel a saga.
    AdminCancel {
        /// The payment of its saga, or what it was started as.
        saga_of: String,
    },
    /// The last callback, stored so many times more.
    Redeliver {
        /// How many times.
        n: usize,
    },
    /// The platform announces a payment.
    ExternalCreatePayment {
        /// Its id.
        external_id: String,
        /// What it is.
        #[serde(flatten)]
        payment: Announced,
    },
    /// The moment at which a command of the saga reaches the wallet of a region. By then the command and
    /// what undoes it must be on record.
    UntilAsked {
        /// The payment of its saga, or what it was started as.
        saga_of: String,
    },
    /// A customer spends what he has.
    WalletSpend {
        /// Who.
        customer: String,
        /// How much.
        amount: String,
        /// Of what.
        currency: String,
    },
    /// A step's own command once more, or a revert of it by hand, straight to its wallet.
    Direct {
        /// The operation of the step.
        operation: String,
        /// `update` or `revert`.
        verb: String,
        /// What the wallet must answer.
        answer: String,
    },
    /// All orchestrators are replaced by others of this build.
    Deploy {
        /// See [`super::flows::build`].
        build: String,
    },
    /// Notes the revisions of the case's records; see [`Expect::unchanged`].
    Remember,
    /// Something must be so by now.
    Check {
        /// What.
        expect: Box<Expect>,
        /// How long it may take.
        within_ms: u64,
    },
    /// An operator asks to take a payment back.
    CompensateRequest {
        /// The payment.
        external_id: String,
        /// Why.
        reason: String,
    },
    /// An operator sends a message again that a case holds.
    AdminReplay {
        /// The payment it is about.
        external_id: String,
    },
    /// Somebody looks a payment's saga up; it must be that one and no other.
    Query {
        /// The payment.
        external_id: String,
    },
    /// Everything taken in so far is deleted from the intake stream.
    PurgeStream,
}

/// A long field.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fill {
    /// Its name.
    pub field: String,
    /// Its length.
    pub bytes: usize,
    /// What it repeats.
    pub with: String,
}

/// Bad behaviour of something.
#[derive(Debug, Clone, Deserialize)]
pub struct Fault {
    /// `wallet.update`, `instance-1`, `orchestrator`, `kv.cas` and the like.
    #[serde(rename = "where")]
    pub place: String,
    /// How it behaves.
    pub mode: String,
    /// For how long, where the mode has a length.
    #[serde(default)]
    pub ms: u64,
    /// For how many calls.
    #[serde(default = "once")]
    pub times: u64,
    /// Only in this region.
    #[serde(default)]
    pub region: Option<String>,
    /// Only for this payment, or for what was started as this.
    #[serde(default)]
    pub external_id: Option<String>,
    /// Only for operations that end so.
    #[serde(default)]
    pub operation: Option<String>,
    /// The error to answer with.
    #[serde(default)]
    pub code: u64,
}

fn once() -> u64 {
    1
}

impl Case {
    /// All providers the case sends callbacks of.
    #[must_use]
    pub fn providers(&self) -> BTreeSet<String> {
        let named = self.steps.iter().flat_map(|timed| match &timed.step {
            Step::Callback { body, .. }
            | Step::CallbackGenerated { body, .. }
            | Step::Burst { body, .. }
            | Step::StoreCopies { body, .. } => provider_of(body).into_iter().collect(),
            Step::CallbackRaw { provider, .. } => provider.iter().cloned().collect::<Vec<_>>(),
            Step::Concurrently { what, .. } | Step::EveryOrder { what } => {
                what.iter().filter_map(provider_of).collect()
            }
            Step::CallbackHex { .. }
            | Step::SignalGenerated { .. }
            | Step::Start { .. }
            | Step::Signal { .. }
            | Step::SignalBurst { .. }
            | Step::Fault(_)
            | Step::ClearFaults
            | Step::Restart { .. }
            | Step::AdvanceTo { .. }
            | Step::StartConcurrently { .. }
            | Step::AdminCancel { .. }
            | Step::Redeliver { .. }
            | Step::ExternalCreatePayment { .. }
            | Step::UntilAsked { .. }
            | Step::WalletSpend { .. }
            | Step::Direct { .. }
            | Step::Deploy { .. }
            | Step::Remember
            | Step::Check { .. }
            | Step::CompensateRequest { .. }
            | Step::AdminReplay { .. }
            | Step::Query { .. }
            | Step::PurgeStream => Vec::new(),
        });
        named
            .chain(self.given.providers.keys().cloned())
            .chain([self.provider.clone()])
            .collect()
    }
}

impl Case {
    /// The sagas it starts by themselves, by what they are started as.
    #[must_use]
    pub fn started(&self) -> BTreeMap<String, SagaId> {
        let started = self.steps.iter().flat_map(|timed| match &timed.step {
            Step::Start {
                saga, operation_id, ..
            } => vec![(operation_id.clone(), saga)],
            Step::StartConcurrently {
                saga,
                operation_id,
                count,
                ..
            } => (1..=*count)
                .map(|number| (super::body::expand_text(operation_id, number), saga))
                .collect(),
            _ => Vec::new(),
        });
        started
            .map(|(id, saga)| {
                let saga = SagaId::from_parts(saga, &[&id]);
                (id, saga)
            })
            .collect()
    }

    /// The customers a name stands for: itself, or all generated ones that begin with what stands before
    /// its `*`.
    #[must_use]
    pub fn customers(&self, name: &str) -> Vec<String> {
        let Some(start) = name.strip_suffix('*') else {
            return vec![name.to_owned()];
        };
        let generated = self.steps.iter().flat_map(|timed| match &timed.step {
            Step::Burst { count, body } => numbered(body, *count),
            Step::Concurrently { what, times } => what
                .first()
                .map_or_else(Vec::new, |body| numbered(body, *times)),
            Step::EveryOrder { what } => what
                .first()
                .map_or_else(Vec::new, |body| numbered(body, (1..=what.len()).product())),
            _ => Vec::new(),
        });
        generated.filter(|name| name.starts_with(start)).collect()
    }
}

fn numbered(body: &Map<String, Value>, count: usize) -> Vec<String> {
    let customer = body
        .get("customer")
        .and_then(Value::as_str)
        .unwrap_or_default();
    (1..=count)
        .map(|number| super::body::expand_text(customer, number))
        .collect()
}

/// The provider a body names.
#[must_use]
pub fn provider_of(body: &Map<String, Value>) -> Option<String> {
    body.get("provider")
        .and_then(Value::as_str)
        .map(str::to_owned)
}

/// Reads every case of a directory and sees to it that no two of them meet.
///
/// # Errors
/// A file that is no case, or two cases with one provider or customer.
pub fn load(dir: &Path) -> anyhow::Result<Vec<Case>> {
    let mut cases: Vec<Case> = Vec::new();
    for entry in std::fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let path = entry?.path();
        let text = std::fs::read(&path)?;
        let case: Case =
            serde_json::from_slice(&text).with_context(|| path.display().to_string())?;
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        ensure!(
            stem == Some(case.id.to_lowercase().as_str()),
            "{} holds case {}",
            path.display(),
            case.id
        );
        cases.push(case);
    }
    cases.sort_by(|a, b| a.id.cmp(&b.id));
    let mut owners: BTreeMap<String, String> = BTreeMap::new();
    for case in &cases {
        let customers = case.expect.customers();
        let customers = customers.iter().map(|name| format!("customer {name}"));
        let providers = case.providers();
        let providers = providers.iter().map(|name| format!("provider {name}"));
        let started = case.started();
        let started = started.values().map(|saga| format!("saga {saga}"));
        for name in customers.chain(providers).chain(started) {
            if let Some(other) = owners.insert(name.clone(), case.id.clone()) {
                anyhow::bail!("{name} belongs to {other} and to {}", case.id);
            }
        }
    }
    Ok(cases)
}
