//! A deposit: a provider's callback becomes money in a customer's wallet, once.
//!
//! 1 find or create the payment · 2 what the callback means · (wait for `psp-callback` while the
//! provider says pending) · 3 convert the currency, the quote pinned · 4 credit the wallet in the
//! customer's region (the pivot) · 5 mark the payment successful · 6 the deposit event, in the write
//! that completes the saga. A deposit that ends without a credit says so in an event too.
//!
//! A saga is about one payment (or one capture of it), whatever the provider calls its events. Facts
//! about a payment that has a saga are said to that saga; money that comes after a saga ended without
//! it starts the next generation.

mod steps;
#[cfg(test)]
mod tests;
mod turned_back;

use contracts::command::{Movement, WalletUpdate};
use contracts::event::{DEPOSIT_COMPLETED, DepositCompleted};
use contracts::id::{Region, SagaId};
use contracts::money::Money;
use jiff::SignedDuration;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::callback::{CallbackFact, Meaning, PaymentIdentity, same_fact_differs};
use crate::payments::FoundPayment;
use crate::saga::flow::{Cx, Flow, Refusal};
use crate::saga::record::{CaseReason, Direction, SagaRecord, Status};
use crate::saga::{ArrivalMeaning, Workflow};

pub(crate) use steps::{
    ConvertCurrency, FindOrCreatePayment, MarkCancelled, MarkFailed, MarkSuccessful,
};
use steps::{CreditWallet, RecordRefusal, RevertWallet, ToCurrency};

/// The signal by which later facts about the payment reach its saga.
pub const PSP_CALLBACK: &str = "psp-callback";

/// The workflow.
pub static DEPOSIT: Workflow = Workflow {
    name: "deposit",
    version: 1,
    deadline: CONFIRM_WITHIN,
    identify,
    check_signal,
    run,
    arrival,
    turned_back: turned_back::event,
};

/// How long a pending payment is waited for, and a deposit's execution deadline.
const CONFIRM_WITHIN: SignedDuration = SignedDuration::from_hours(1);

/// What a completed deposit returns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// Our id of the payment.
    pub payment_id: String,
    /// Where it was credited.
    pub region: Region,
    /// What was credited.
    pub credited: Money,
}

/// The saga of a payment, or of one capture of it. The provider's id always comes second and the
/// other parts are tagged, so no two payments share a saga.
#[must_use]
pub fn saga_id(payment: &PaymentIdentity) -> SagaId {
    let account = format!("account:{}", payment.account);
    let capture = payment
        .capture_id
        .as_ref()
        .map(|capture| format!("capture:{capture}"));
    let mut parts = vec![payment.provider.as_str(), payment.external_id.as_str()];
    if !payment.account.is_empty() {
        parts.push(&account);
    }
    parts.extend(capture.as_deref());
    SagaId::from_parts(DEPOSIT.name, &parts)
}

fn identify(_id: &str, input: &Value) -> Result<SagaId, String> {
    let fact = CallbackFact::deserialize(input).map_err(|error| format!("input: {error}"))?;
    Ok(saga_id(&fact.payment))
}

fn check_signal(name: &str, body: &Value) -> Result<(), String> {
    if name != PSP_CALLBACK {
        return Err(format!(
            "a deposit waits for {PSP_CALLBACK}, not for {name}"
        ));
    }
    Confirmation::deserialize(body)
        .map(drop)
        .map_err(|error| format!("body: {error}"))
}

/// What a `psp-callback` says: a whole fact, or only what is new.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Confirmation {
    Fact(Box<CallbackFact>),
    News {
        meaning: Meaning,
        #[serde(default)]
        amount: Option<Money>,
    },
}

impl Confirmation {
    fn onto(self, known: &CallbackFact) -> CallbackFact {
        match self {
            Self::Fact(fact) => *fact,
            Self::News { meaning, amount } => CallbackFact {
                meaning,
                amount: amount.or(known.amount),
                ..known.clone()
            },
        }
    }
}

fn run(cx: &mut Cx<'_>, input: &Value) -> Flow<Value> {
    let fact: CallbackFact = match serde_json::from_value(input.clone()) {
        Ok(fact) => fact,
        Err(error) => {
            return cx.review(CaseReason::Poison, format!("the input is no fact: {error}"));
        }
    };
    let receipt = deposit(cx, fact)?;
    serde_json::to_value(receipt).or_else(|error| cx.review(CaseReason::Poison, error.to_string()))
}

fn deposit(cx: &mut Cx<'_>, mut fact: CallbackFact) -> Flow<Receipt> {
    describe(cx, &fact);
    if fact.meaning.is_reversal() {
        return cx.review(
            CaseReason::Reversal,
            "money goes back: decide by hand, no workflow takes it yet",
        );
    }
    if fact.meaning.is_refusal() {
        cx.phase("refused");
        let payment = fact.payment.clone();
        cx.step(RecordRefusal {
            payment,
            reason: fact.meaning.to_string(),
        })
        .run()?;
        return cx.refuse(format!("the provider says {}", fact.meaning));
    }

    cx.phase("payment");
    let mut payment = find_or_create(cx, &fact)?;
    while fact.meaning.is_waiting() {
        cx.phase("wait-confirm");
        let Some(confirmation) = cx.signal::<Confirmation>(PSP_CALLBACK, CONFIRM_WITHIN)? else {
            return cx.time_out("the provider did not confirm the payment in time");
        };
        let later = confirmation.onto(&fact);
        if later.payment != fact.payment {
            let message = format!("a signal about payment {} came to this saga", later.payment);
            return cx.review(CaseReason::AmountGuard, message);
        }
        fact = later;
        if fact.meaning.is_refusal() {
            return cx.refuse(format!("the provider says {}", fact.meaning));
        }
        if fact.meaning.is_paid() {
            describe(cx, &fact);
            payment = find_or_create(cx, &fact)?;
        }
    }
    if !payment.may_credit {
        return cx.review(
            CaseReason::AmountGuard,
            "the payment was not found as one that has been paid",
        );
    }
    let (Some(paid), Some(wallet_currency)) = (payment.paid, payment.wallet_currency) else {
        return cx.review(
            CaseReason::AmountGuard,
            "the provider reports money but no sum",
        );
    };
    cx.attribute("customer", payment.customer.as_str());
    cx.attribute("region", payment.region.as_str());
    cx.attribute("payment_id", &payment.payment_id);

    cx.phase("convert");
    let quote = match cx
        .step(ConvertCurrency {
            paid,
            to: ToCurrency::from(wallet_currency),
        })
        .patient()
        .run_or_refusal()?
    {
        Ok(quote) => quote,
        Err(Refusal { code, message, .. }) => {
            let message = format!("{code}: {message}; the customer has paid, so decide by hand");
            return cx.review(CaseReason::AmountGuard, message);
        }
    };

    cx.phase("credit");
    let credit = CreditWallet {
        region: payment.region.clone(),
        update: WalletUpdate {
            customer: payment.customer.clone(),
            movement: Movement::Credit,
            money: quote.target,
            memo: Some(format!("deposit {}", fact.payment.external_id)),
        },
    };
    let revert = RevertWallet {
        region: payment.region.clone(),
        target: cx.saga_id().own_operation(),
    };
    cx.step(credit)
        .undo(&revert)
        .own_operation()
        .pivot()
        .run()?;

    cx.phase("mark");
    let mark = MarkSuccessful {
        payment: fact.payment.clone(),
        quote: quote.clone(),
    };
    let undo = MarkFailed {
        payment: fact.payment.clone(),
        reason: "the deposit was undone".to_owned(),
    };
    cx.step(mark).undo(&undo).run()?;

    cx.phase("done");
    let completed_at = cx.now()?;
    let credited = quote.target;
    let event = DepositCompleted {
        saga_id: cx.saga_id().clone(),
        payment_id: payment.payment_id.clone(),
        provider: fact.payment.provider.to_string(),
        external_id: fact.payment.external_id.to_string(),
        customer: payment.customer,
        region: payment.region.clone(),
        paid,
        credited,
        quote,
        completed_at,
    };
    cx.emit(DEPOSIT_COMPLETED, &payment.region, &event)?;
    Ok(Receipt {
        payment_id: payment.payment_id,
        region: payment.region,
        credited,
    })
}

/// A contradiction with what is known of the payment goes to a person before any money moves.
fn find_or_create(cx: &mut Cx<'_>, fact: &CallbackFact) -> Flow<FoundPayment> {
    let undo = MarkCancelled {
        payment: fact.payment.clone(),
        reason: "the deposit was turned back".to_owned(),
    };
    let step = FindOrCreatePayment {
        fact: essential(fact),
    };
    // The customer has paid or is about to: a database that is slow or away is no reason to turn back.
    match cx.step(step).undo(&undo).patient().run_or_refusal()? {
        Ok(payment) => Ok(payment),
        Err(Refusal { code, message, .. }) => {
            cx.review(CaseReason::AmountGuard, format!("{code}: {message}"))
        }
    }
}

fn describe(cx: &mut Cx<'_>, fact: &CallbackFact) {
    cx.attribute("provider", fact.payment.provider.as_str());
    cx.attribute("external_id", fact.payment.external_id.as_str());
    if let Some(amount) = fact.amount {
        cx.attribute("amount", amount.to_string());
    }
    if let Some(customer) = &fact.customer {
        cx.attribute("customer", customer.as_str());
    }
}

/// The same fact again is a duplicate, unless it names what was missing when money had come: then it must not
/// be absorbed by a saga that could do nothing without it.
fn repeat(record: &SagaRecord, known: &CallbackFact, fact: &CallbackFact) -> ArrivalMeaning {
    let names_more = known.customer.is_none() && fact.customer.is_some()
        || known.region.is_none() && fact.region.is_some();
    match record.status {
        Status::Compensated | Status::Cancelled | Status::Failed
            if names_more && fact.meaning.is_paid() =>
        {
            ArrivalMeaning::StartNext
        }
        Status::NeedsReview if names_more => ArrivalMeaning::Review {
            reason: CaseReason::ConflictingFact,
            message:
                "the same fact came again and names the customer or the region, which was missing"
                    .to_owned(),
        },
        Status::Running
        | Status::Waiting
        | Status::Compensating
        | Status::NeedsReview
        | Status::Completed
        | Status::Compensated
        | Status::Cancelled
        | Status::Failed => ArrivalMeaning::Duplicate,
    }
}

/// The fact without what only describes the notice: two notices of one fact are one request.
fn essential(fact: &CallbackFact) -> CallbackFact {
    CallbackFact {
        event_id: None,
        event_type: None,
        reason: None,
        occurred_at: None,
        ..fact.clone()
    }
}

/// What a fact means to a payment's saga. Pure: also used when the saga ends, for facts it never took up.
fn arrival(record: &SagaRecord, input: &Value) -> ArrivalMeaning {
    let Ok(fact) = serde_json::from_value::<CallbackFact>(input.clone()) else {
        let message = "the message is no fact about a payment".to_owned();
        return ArrivalMeaning::Review {
            reason: CaseReason::Unreadable,
            message,
        };
    };
    // What the saga started with, took up, or may still take up. A fact that it had heard but can no
    // longer take up does not count as known: it must not end with the saga.
    let turned = record.direction != Direction::Forward || record.status.is_terminal();
    let heard = record
        .signals
        .iter()
        .filter(|signal| !(turned && fact.meaning.is_paid()) || record.is_consumed(&signal.id))
        .map(|signal| &signal.body);
    let known = std::iter::once(&record.input)
        .chain(heard)
        .filter_map(|body| serde_json::from_value::<CallbackFact>(body.clone()).ok())
        .find(|known| known.is_same_fact(&fact));
    if let Some(known) = known {
        let fields = same_fact_differs(&known, &fact);
        if fields.is_empty() {
            return repeat(record, &known, &fact);
        }
        let fields: Vec<String> = fields.iter().map(ToString::to_string).collect();
        let message = format!("the same fact came again with other {}", fields.join(", "));
        return ArrivalMeaning::Review {
            reason: CaseReason::ConflictingFact,
            message,
        };
    }
    if fact.meaning.is_reversal() {
        let message = format!(
            "the provider reports {} of a payment that has a deposit",
            fact.meaning
        );
        return ArrivalMeaning::Review {
            reason: CaseReason::Reversal,
            message,
        };
    }
    match (fact.meaning == Meaning::Paid, turned, record.status) {
        (true, true, status) if status != Status::Completed => ArrivalMeaning::StartNext,
        (_, true, _) => ArrivalMeaning::Late,
        (_, false, _) => ArrivalMeaning::Signal {
            name: PSP_CALLBACK,
            id: fact.identity_parts().join("/"),
        },
    }
}
