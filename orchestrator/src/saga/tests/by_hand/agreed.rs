//! What a second person agrees to is what the first one asked for.

use std::collections::BTreeMap;

use contracts::intake::{Finding, OperatorVerb};
use contracts::money::CurrencyCode;
use serde_json::json;

use super::super::script::Move::*;
use super::{approve, hand, paying, resolve, started, with};
use crate::saga::record::Outcome;
use crate::saga::rules::Rules;

#[test]
fn an_agreement_settles_no_other_operation_than_the_one_proposed() {
    let eur = CurrencyCode::new("EUR").expect("code");
    let rules = Rules {
        second_person_above: BTreeMap::from([(eur, 100_000)]),
        ..Rules::default()
    };
    let sum = json!({ "amount": { "amount_minor": 100_001, "currency": "EUR", "exponent": 2 } });
    let mut saga = started(sum, &with(paying(), &[Unclear("pay")]));
    saga.rules = Box::leak(Box::new(rules));
    // Only the payment is open, so it need not be named.
    saga.play(&[hand(resolve(None, Finding::Applied))]);
    let proposal = saga.record.by_hand.proposal.clone().expect("proposed");
    let OperatorVerb::Resolve { operation_id, .. } = &proposal.request.verb else {
        panic!("{proposal:?}");
    };
    assert_eq!(*operation_id, Some(saga.sent[2].operation_id.clone()));
    // Time passes, the saga turns back, and its undo becomes what is open.
    for _ in 0..4 {
        saga.play(&[Silence]);
    }
    saga.play(&[Hand("bob", approve(&proposal.request.id))]);
    let undone = saga.record.steps.iter().any(|step| {
        let undo = step.undo.as_ref().map(|undo| &undo.outcome);
        matches!(undo, Some(Outcome::Applied { reply, .. }) if reply["answer"] == "attested")
    });
    assert!(!undone, "{:#?}", saga.record);
}
