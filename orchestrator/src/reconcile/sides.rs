//! What each side says of one saga, cut down to what is compared.

use contracts::command::{Movement, WalletUpdate};
use contracts::event::{
    DEPOSIT_COMPLETED, DEPOSIT_TURNED_BACK, DepositCompleted, DepositTurnedBack,
};
use contracts::id::{CustomerId, OperationId, Region, SagaId};
use contracts::money::Money;
use contracts::reply::{Effect, OperationState, OperationView, WalletReply};
use contracts::subject;
use jiff::Timestamp;
use serde::Deserialize as _;

use super::lot::corrected;
use crate::callback::PaymentIdentity;
use crate::payments::{Payment, PaymentStatus};
use crate::saga::Turn;
use crate::saga::operator::{Verb, next_verbs};
use crate::saga::record::{Operation, Outcome, Participant, SagaRecord, Status};
use crate::saga::rules::Rules;
use crate::workflows::deposit::DEPOSIT;

/// Everything known of one saga.
#[derive(Debug, Clone, Default)]
pub(super) struct Sides {
    /// Its key in the bucket, by which the sides find each other.
    pub(super) key: String,
    pub(super) record: Option<Box<RecordSide>>,
    pub(super) payment: Option<PaymentSide>,
    pub(super) operations: Vec<OperationSide>,
    pub(super) events: Vec<EventSide>,
}

/// A record.
#[derive(Debug, Clone)]
pub(super) struct RecordSide {
    pub(super) saga_id: SagaId,
    pub(super) revision: u64,
    pub(super) written_at: Timestamp,
    pub(super) status: Status,
    pub(super) started_at: Timestamp,
    pub(super) ended_at: Option<Timestamp>,
    pub(super) last_progress_at: Timestamp,
    /// Until when it sleeps or waits for a signal.
    pub(super) waits_until: Option<Timestamp>,
    /// A person has stopped its clocks.
    pub(super) held: bool,
    pub(super) payment_id: Option<String>,
    pub(super) region: Option<Region>,
    pub(super) moves: Vec<Move>,
    /// Operations whose outcome is unknown and which nothing has settled, with since when.
    pub(super) unknown: Vec<(OperationId, Timestamp)>,
    pub(super) events: Vec<String>,
    pub(super) is_deposit: bool,
    /// What a person may do about it now.
    pub(super) verbs: Vec<Verb>,
}

/// A movement of money as a record has it.
#[derive(Debug, Clone)]
pub(super) struct Move {
    pub(super) operation_id: OperationId,
    pub(super) undo_id: Option<OperationId>,
    pub(super) region: Region,
    pub(super) update: WalletUpdate,
    pub(super) forward: Said,
    /// [`Said::Nothing`] also where there is no undo.
    pub(super) undo: Said,
}

/// What a record says of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Said {
    /// Not sent.
    Nothing,
    /// Sent, and not known how it ended.
    Open,
    Applied,
    NotApplied,
}

/// An operation of a wallet.
#[derive(Debug, Clone)]
pub(super) struct OperationSide {
    pub(super) region: Region,
    pub(super) view: OperationView,
}

/// A payment.
#[derive(Debug, Clone)]
pub(super) struct PaymentSide {
    pub(super) payment_id: String,
    pub(super) saga_id: Option<SagaId>,
    pub(super) status: PaymentStatus,
    pub(super) customer: Option<CustomerId>,
    pub(super) region: Option<Region>,
    pub(super) credited: Option<Money>,
    pub(super) created_at: Timestamp,
    pub(super) updated_at: Timestamp,
}

/// An event.
#[derive(Debug, Clone)]
pub(super) struct EventSide {
    pub(super) subject: String,
    pub(super) name: String,
    pub(super) region: String,
    pub(super) at: Timestamp,
    /// What it says, or why nobody can tell.
    pub(super) body: Result<EventBody, String>,
}

/// What is compared of an event.
#[derive(Debug, Clone)]
pub(super) struct EventBody {
    pub(super) saga_id: SagaId,
    pub(super) customer: Option<CustomerId>,
    /// Absent where the event is about no region, or no credit.
    pub(super) region: Option<Region>,
    pub(super) credited: Option<Money>,
    /// How it says that the saga ended, where it says so.
    pub(super) status: Option<String>,
}

impl RecordSide {
    pub(super) fn of(
        record: &SagaRecord,
        revision: u64,
        written_at: Timestamp,
        now: Timestamp,
    ) -> Self {
        let moves: Vec<Move> = record
            .steps
            .iter()
            .filter_map(|step| {
                let Participant::Region(region) = &step.forward.participant else {
                    return None;
                };
                if step.forward.kind != "wallet.update" {
                    return None;
                }
                Some(Move {
                    operation_id: step.forward.operation_id.clone(),
                    undo_id: step.undo.as_ref().map(|undo| undo.operation_id.clone()),
                    region: region.clone(),
                    update: WalletUpdate::deserialize(&step.forward.request).ok()?,
                    forward: said(&step.forward),
                    undo: step.undo.as_ref().map_or(Said::Nothing, said),
                })
            })
            .collect();
        let unknown = record.steps.iter().flat_map(|step| {
            let undone = step
                .undo
                .as_ref()
                .is_some_and(|undo| said(undo) == Said::Applied);
            let forward = (!undone).then_some(&step.forward);
            forward.into_iter().chain(step.undo.as_ref())
        });
        let identity = record
            .input
            .get("payment")
            .and_then(|payment| PaymentIdentity::deserialize(payment).ok());
        let payment_id = record.attributes.get("payment_id").cloned();
        let region = record.attributes.get("region").map(String::as_str);
        let region = region.and_then(|region| Region::new(region).ok());
        Self {
            saga_id: record.saga_id.clone(),
            revision,
            written_at,
            status: record.status,
            started_at: record.started_at,
            ended_at: record.ended_at,
            last_progress_at: record.last_progress_at,
            waits_until: record
                .awaiting
                .iter()
                .map(|awaiting| awaiting.until)
                .max()
                .or(record.deadline_at),
            held: record.is_held(),
            payment_id: payment_id.or_else(|| identity.as_ref().map(Payment::id_of)),
            region: region
                .or_else(|| moves.first().map(|movement| movement.region.clone()))
                .or_else(|| region_found(record)),
            unknown: unknown
                .filter_map(|operation| match &operation.outcome {
                    Outcome::Unknown { since, .. } => {
                        Some((operation.operation_id.clone(), *since))
                    }
                    Outcome::Planned
                    | Outcome::InFlight { .. }
                    | Outcome::BackingOff { .. }
                    | Outcome::Applied { .. }
                    | Outcome::NotApplied { .. } => None,
                })
                .collect(),
            events: record.events.clone(),
            is_deposit: record.workflow == DEPOSIT.name,
            verbs: verbs(record, now),
            moves,
        }
    }

    /// The movement that a payment and an event are about: the one that stands, or was last asked for.
    pub(super) fn main_move(&self) -> Option<&Move> {
        let standing = self.moves.iter().rev().find(|movement| movement.stands());
        standing.or_else(|| self.moves.last())
    }

    pub(super) fn is_open(&self) -> bool {
        !self.status.is_terminal()
    }

    /// The regions its money is in.
    pub(super) fn regions(&self) -> impl Iterator<Item = &Region> {
        self.region
            .iter()
            .chain(self.moves.iter().map(|movement| &movement.region))
    }
}

impl Move {
    /// Whether the record claims that the wallet holds it.
    pub(super) fn stands(&self) -> bool {
        self.forward == Said::Applied && self.undo != Said::Applied
    }

    /// Whether the record knows for certain that the wallet does not hold it.
    pub(super) fn is_gone(&self, open: bool) -> bool {
        match (self.forward, self.undo) {
            (_, Said::Applied) | (Said::NotApplied, _) => true,
            // Never sent; an open saga may send it before it is asked again.
            (Said::Nothing, _) => !open,
            (Said::Open | Said::Applied, _) => false,
        }
    }
}

fn verbs(record: &SagaRecord, now: Timestamp) -> Vec<Verb> {
    if record.status.is_terminal() {
        return Vec::new();
    }
    let turn = Turn {
        now,
        replica: "",
        rules: &Rules::default(),
    };
    next_verbs(record, turn)
}

/// Where the money is going to be, before it is asked for: as the payment was found, else as claimed.
fn region_found(record: &SagaRecord) -> Option<Region> {
    let replies = record
        .steps
        .iter()
        .filter_map(|step| match &step.forward.outcome {
            Outcome::Applied { reply, .. } => Some(reply),
            Outcome::Planned
            | Outcome::InFlight { .. }
            | Outcome::BackingOff { .. }
            | Outcome::NotApplied { .. }
            | Outcome::Unknown { .. } => None,
        });
    replies
        .chain(std::iter::once(&record.input))
        .find_map(|value| Region::new(value.get("region")?.as_str()?).ok())
}

fn said(operation: &Operation) -> Said {
    match &operation.outcome {
        Outcome::Planned => Said::Nothing,
        Outcome::InFlight { .. } | Outcome::BackingOff { .. } | Outcome::Unknown { .. } => {
            Said::Open
        }
        Outcome::Applied { .. } => Said::Applied,
        Outcome::NotApplied { .. } => Said::NotApplied,
    }
}

impl OperationSide {
    /// The key of the saga it belongs to. One that names no saga is taken by its id: a saga's own movement
    /// has the saga's id, its revert the same behind a prefix, and what corrects it the same before a
    /// suffix.
    pub(super) fn saga_key(&self) -> String {
        match &self.view.saga_id {
            Some(saga_id) => saga_id.key(),
            None => contracts::key::encode(self.own_id()),
        }
    }

    /// The saga's id, or what stands for it.
    pub(super) fn saga_text(&self) -> &str {
        self.view
            .saga_id
            .as_ref()
            .map_or_else(|| self.own_id(), SagaId::as_str)
    }

    fn own_id(&self) -> &str {
        let id = self.view.operation_id.as_str();
        let id = id.strip_prefix("revert-").unwrap_or(id);
        corrected(id).unwrap_or(id)
    }

    /// The movement it booked: customer, direction and sum; `None` when it booked none.
    pub(super) fn booked(&self) -> Option<(&CustomerId, Movement, Money)> {
        let WalletReply::Applied { effect, .. } = &self.view.reply else {
            return None;
        };
        match effect {
            Effect::Moved {
                customer,
                movement,
                money,
                ..
            }
            | Effect::Offset {
                customer,
                movement,
                money,
                ..
            } => Some((customer, *movement, *money)),
            Effect::Tombstoned { .. } => None,
        }
    }

    pub(super) fn is_update(&self) -> bool {
        self.view.kind == "update"
    }

    /// Whether it is a movement that nothing has offset.
    pub(super) fn stands(&self) -> bool {
        self.is_update() && self.view.state == OperationState::Applied
    }
}

impl PaymentSide {
    pub(super) fn of(payment: Payment) -> Self {
        Self {
            payment_id: payment.payment_id,
            saga_id: payment.saga_id,
            status: payment.status,
            customer: payment.customer,
            region: payment.region,
            credited: payment.credited,
            created_at: payment.created_at,
            updated_at: payment.updated_at,
        }
    }
}

impl EventSide {
    /// An event as it lies in a stream, with the key of its saga; `None` for a subject that is none of ours.
    pub(super) fn of(text: &str, body: &[u8], at: Timestamp) -> Option<(String, Self)> {
        let parts = subject::parse_event(text)?;
        let body = match parts.event {
            DEPOSIT_COMPLETED => serde_json::from_slice::<DepositCompleted>(body)
                .map(|event| EventBody {
                    saga_id: event.saga_id,
                    customer: Some(event.customer),
                    region: Some(event.region),
                    credited: Some(event.credited),
                    status: None,
                })
                .map_err(|error| error.to_string()),
            DEPOSIT_TURNED_BACK => serde_json::from_slice::<DepositTurnedBack>(body)
                .map(|event| EventBody {
                    saga_id: event.saga_id,
                    customer: event.customer,
                    region: None,
                    credited: None,
                    status: Some(event.status),
                })
                .map_err(|error| error.to_string()),
            other => Err(format!("this version knows no event {other}")),
        };
        let side = Self {
            subject: text.to_owned(),
            name: parts.event.to_owned(),
            region: parts.region.to_owned(),
            at,
            body,
        };
        Some((parts.saga_key.to_owned(), side))
    }
}

impl Sides {
    pub(super) fn new(key: String) -> Self {
        Self {
            key,
            ..Self::default()
        }
    }

    /// The saga's id as far as any side knows it, else its key.
    pub(super) fn saga_text(&self) -> String {
        let of_record = self
            .record
            .as_ref()
            .map(|record| record.saga_id.as_str().to_owned());
        let of_payment = || {
            self.payment
                .as_ref()
                .and_then(|payment| payment.saga_id.as_ref())
                .map(|saga| saga.as_str().to_owned())
        };
        let of_wallet = || {
            self.operations
                .first()
                .map(|operation| operation.saga_text().to_owned())
        };
        of_record
            .or_else(of_payment)
            .or_else(of_wallet)
            .or_else(|| contracts::key::decode(&self.key))
            .unwrap_or_else(|| self.key.clone())
    }

    /// When each of its facts came to be, but for the record.
    pub(super) fn times(&self) -> impl Iterator<Item = Timestamp> {
        let operations = self
            .operations
            .iter()
            .map(|operation| operation.view.created_at);
        let events = self.events.iter().map(|event| event.at);
        let payment = self.payment.iter().map(|payment| payment.created_at);
        operations.chain(events).chain(payment)
    }

    /// The operation of this id in this region. The same id in another region is another operation.
    pub(super) fn operation(&self, region: &Region, id: &OperationId) -> Option<&OperationSide> {
        self.operations
            .iter()
            .find(|operation| operation.region == *region && operation.view.operation_id == *id)
    }

    /// Whether every movement that a record knows of has been seen, offsets as well.
    pub(super) fn has_all_operations(&self) -> bool {
        self.record
            .iter()
            .flat_map(|record| &record.moves)
            .all(|movement| {
                let seen = |id| self.operation(&movement.region, id).is_some();
                let offset_seen = movement
                    .undo_id
                    .as_ref()
                    .is_none_or(|undo| movement.undo != Said::Applied || seen(undo));
                (movement.forward != Said::Applied || seen(&movement.operation_id)) && offset_seen
            })
    }
}
