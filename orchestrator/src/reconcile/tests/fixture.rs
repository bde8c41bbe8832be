//! Sagas on which all sides agree.

use contracts::command::{Movement, WalletUpdate};
use contracts::event::DEPOSIT_COMPLETED;
use contracts::id::{CustomerId, OperationId, Region, SagaId};
use contracts::money::{Currency, Money};
use contracts::reply::{Effect, OperationState, OperationView, RejectCode, WalletReply};
use jiff::{SignedDuration, Timestamp};

use crate::payments::PaymentStatus;
use crate::reconcile::judge::Rules;
use crate::reconcile::sides::{
    EventBody, EventSide, Move, OperationSide, PaymentSide, RecordSide, Said, Sides,
};
use crate::saga::record::Status;

pub(super) fn start() -> Timestamp {
    "2026-12-01T12:00:00Z".parse().expect("time")
}

pub(super) fn rules() -> Rules {
    Rules {
        now: start() + SignedDuration::from_mins(10),
        stuck: SignedDuration::from_mins(15),
        payments: true,
    }
}

pub(super) fn saga() -> SagaId {
    SagaId::from_parts("deposit", &["acme", "p1"])
}

pub(super) fn eu() -> Region {
    Region::new("eu").expect("region")
}

pub(super) fn customer(name: &str) -> CustomerId {
    CustomerId::new(name).expect("customer")
}

pub(super) fn euro(minor: i64) -> Money {
    Money::new(
        minor,
        Currency::iso("EUR".parse().expect("code")).expect("ISO"),
    )
}

pub(super) fn operation(
    id: OperationId,
    state: OperationState,
    effect: Option<Effect>,
) -> OperationSide {
    let kind = if id.as_str().starts_with("revert-") {
        "revert"
    } else {
        "update"
    };
    OperationSide {
        region: eu(),
        view: OperationView {
            saga_id: Some(saga()),
            kind: kind.to_owned(),
            state,
            fence: 1,
            created_at: start(),
            reply: match effect {
                Some(effect) => WalletReply::Applied {
                    operation_id: id.clone(),
                    effect,
                    applied_at: start(),
                },
                None => WalletReply::Rejected {
                    operation_id: id.clone(),
                    code: RejectCode::WalletClosed,
                    message: String::new(),
                },
            },
            operation_id: id,
        },
    }
}

pub(super) fn moved(name: &str, minor: i64) -> Effect {
    Effect::Moved {
        customer: customer(name),
        movement: Movement::Credit,
        money: euro(minor),
        balance: euro(minor),
    }
}

pub(super) fn credit(state: OperationState) -> OperationSide {
    operation(saga().own_operation(), state, Some(moved("cust", 1_250)))
}

pub(super) fn offset() -> OperationSide {
    let effect = Effect::Offset {
        target: saga().own_operation(),
        customer: customer("cust"),
        movement: Movement::Debit,
        money: euro(1_250),
        balance: euro(0),
    };
    operation(
        saga().own_operation().revert(),
        OperationState::Applied,
        Some(effect),
    )
}

pub(super) fn event() -> EventSide {
    EventSide {
        subject: contracts::subject::event(&eu(), &saga(), DEPOSIT_COMPLETED),
        name: DEPOSIT_COMPLETED.to_owned(),
        region: "eu".to_owned(),
        at: start(),
        body: Ok(EventBody {
            saga_id: saga(),
            customer: Some(customer("cust")),
            region: Some(eu()),
            credited: Some(euro(1_250)),
            status: None,
        }),
    }
}

/// A completed deposit on which all sides agree.
pub(super) fn completed() -> Sides {
    Sides {
        key: saga().key(),
        record: Some(Box::new(RecordSide {
            saga_id: saga(),
            revision: 2,
            written_at: start(),
            status: Status::Completed,
            started_at: start(),
            ended_at: Some(start()),
            last_progress_at: start(),
            waits_until: None,
            held: false,
            payment_id: Some("pay_1".to_owned()),
            region: Some(eu()),
            moves: vec![Move {
                operation_id: saga().own_operation(),
                undo_id: Some(saga().own_operation().revert()),
                region: eu(),
                update: WalletUpdate {
                    customer: customer("cust"),
                    movement: Movement::Credit,
                    money: euro(1_250),
                    memo: None,
                },
                forward: Said::Applied,
                undo: Said::Nothing,
            }],
            unknown: Vec::new(),
            events: vec![DEPOSIT_COMPLETED.to_owned()],
            is_deposit: true,
            verbs: Vec::new(),
        })),
        payment: Some(PaymentSide {
            payment_id: "pay_1".to_owned(),
            saga_id: Some(saga()),
            status: PaymentStatus::Successful,
            customer: Some(customer("cust")),
            region: Some(eu()),
            credited: Some(euro(1_250)),
            created_at: start(),
            updated_at: start(),
        }),
        operations: vec![credit(OperationState::Applied)],
        events: vec![event()],
    }
}

/// A compensated one on which all sides agree.
pub(super) fn compensated() -> Sides {
    let mut sides = completed();
    sides.events.clear();
    sides.operations = vec![credit(OperationState::Reverted), offset()];
    let record = sides.record.as_mut().expect("a record");
    record.status = Status::Compensated;
    record.events.clear();
    record.moves[0].undo = Said::Applied;
    let payment = sides.payment.as_mut().expect("a payment");
    payment.status = PaymentStatus::Cancelled;
    payment.credited = None;
    sides
}

/// One whose credit is on its way.
pub(super) fn crediting() -> Sides {
    let mut sides = completed();
    sides.events.clear();
    sides.operations.clear();
    let record = sides.record.as_mut().expect("a record");
    record.status = Status::Running;
    record.ended_at = None;
    record.events.clear();
    record.moves[0].forward = Said::Open;
    let payment = sides.payment.as_mut().expect("a payment");
    payment.status = PaymentStatus::Pending;
    payment.credited = None;
    sides
}
