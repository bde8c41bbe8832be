//! Every message in both encodings: comes back as it was, and no bytes break a reader.

use std::fmt::Debug;

use contracts::codec::Encoding;
use contracts::command::{Movement, WalletGet, WalletRevert, WalletUpdate};
use contracts::event::{DepositCompleted, DepositTurnedBack};
use contracts::intake::{Finding, OperatorRequest, OperatorVerb, Signal, StartRequest};
use contracts::quote::{Quote, RateReply, RateRequest, Rounding};
use contracts::reply::{
    Effect, EntryView, OperationState, OperationView, RejectCode, WalletReply, WalletView,
};
use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::shapes::{
    code, customer, external, instant, json, money, name, operation, region, saga, step, text,
};

const ENCODINGS: [Encoding; 2] = [Encoding::Json, Encoding::MessagePack];

/// Comes back as it was, and once more: what is stored is what was meant.
fn comes_back<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: &T) {
    for encoding in ENCODINGS {
        let bytes = encoding.encode(value).expect("encodes");
        let back: T = encoding
            .decode(&bytes)
            .unwrap_or_else(|error| panic!("{error}: {value:?}"));
        assert_eq!(&back, value, "{encoding:?}");
        assert_eq!(
            encoding.encode(&back).expect("encodes"),
            bytes,
            "{encoding:?}"
        );
    }
}

/// Bytes that decode are a message like any other; all others are refused with a reason.
fn breaks_nothing<T: Serialize + DeserializeOwned + PartialEq + Debug>(bytes: &[u8]) {
    for encoding in ENCODINGS {
        if let Ok(value) = encoding.decode::<T>(bytes)
            // A newer peer's answer is read as unknown and never sent on.
            && let Ok(again) = encoding.encode(&value)
        {
            let back = encoding.decode::<T>(&again).expect("what we wrote");
            assert_eq!(back, value, "{encoding:?}");
        }
    }
}

fn every_reader(bytes: &[u8]) {
    breaks_nothing::<WalletUpdate>(bytes);
    breaks_nothing::<WalletRevert>(bytes);
    breaks_nothing::<WalletGet>(bytes);
    breaks_nothing::<WalletReply>(bytes);
    breaks_nothing::<WalletView>(bytes);
    breaks_nothing::<RateRequest>(bytes);
    breaks_nothing::<RateReply>(bytes);
    breaks_nothing::<DepositCompleted>(bytes);
    breaks_nothing::<DepositTurnedBack>(bytes);
    breaks_nothing::<StartRequest>(bytes);
    breaks_nothing::<Signal>(bytes);
    breaks_nothing::<OperatorRequest>(bytes);
}

fn movement() -> impl Strategy<Value = Movement> {
    prop::sample::select(vec![Movement::Credit, Movement::Debit])
}

fn update() -> impl Strategy<Value = WalletUpdate> {
    (customer(), movement(), money(), prop::option::of(text(20))).prop_map(
        |(customer, movement, money, memo)| WalletUpdate {
            customer,
            movement,
            money,
            memo,
        },
    )
}

fn effect() -> impl Strategy<Value = Effect> {
    prop_oneof![
        (customer(), movement(), money(), money()).prop_map(
            |(customer, movement, money, balance)| {
                Effect::Moved {
                    customer,
                    movement,
                    money,
                    balance,
                }
            }
        ),
        (operation(), customer(), movement(), money(), money()).prop_map(
            |(target, customer, movement, money, balance)| {
                Effect::Offset {
                    target,
                    customer,
                    movement,
                    money,
                    balance,
                }
            }
        ),
        operation().prop_map(|target| Effect::Tombstoned { target }),
    ]
}

fn reply() -> impl Strategy<Value = WalletReply> {
    let codes = vec![
        RejectCode::InsufficientFunds,
        RejectCode::WalletClosed,
        RejectCode::WrongCurrency,
        RejectCode::BalanceOverflow,
        RejectCode::Other,
    ];
    prop_oneof![
        (operation(), effect(), instant()).prop_map(|(operation_id, effect, applied_at)| {
            WalletReply::Applied {
                operation_id,
                effect,
                applied_at,
            }
        }),
        (operation(), prop::sample::select(codes), text(20)).prop_map(
            |(operation_id, code, message)| {
                WalletReply::Rejected {
                    operation_id,
                    code,
                    message,
                }
            }
        ),
        operation().prop_map(|operation_id| WalletReply::Cancelled { operation_id }),
        (operation(), prop::collection::vec(text(8), 0..4)).prop_map(|(operation_id, fields)| {
            WalletReply::Conflict {
                operation_id,
                fields,
            }
        }),
        any::<u64>().prop_map(|seen_fence| WalletReply::Stale { seen_fence }),
        (instant(), instant()).prop_map(|(deadline, now)| WalletReply::Expired { deadline, now }),
        any::<u64>().prop_map(|retry_after_ms| WalletReply::Busy { retry_after_ms }),
        (text(10), text(20)).prop_map(|(field, message)| WalletReply::Invalid { field, message }),
        text(20).prop_map(|message| WalletReply::Unavailable { message }),
    ]
}

fn view() -> impl Strategy<Value = WalletView> {
    let states = vec![
        OperationState::Applied,
        OperationState::Rejected,
        OperationState::Tombstoned,
        OperationState::Reverted,
    ];
    let stored = (
        operation(),
        prop::option::of(saga()),
        name(8),
        prop::sample::select(states),
        any::<u64>(),
        instant(),
        reply(),
    )
        .prop_map(
            |(operation_id, saga_id, kind, state, fence, created_at, reply)| {
                WalletView::Operation(OperationView {
                    operation_id,
                    saga_id,
                    kind,
                    state,
                    fence,
                    created_at,
                    reply,
                })
            },
        );
    let entry = (operation(), movement(), money(), instant()).prop_map(
        |(operation_id, movement, money, booked_at)| EntryView {
            operation_id,
            movement,
            money,
            booked_at,
        },
    );
    prop_oneof![
        stored,
        operation().prop_map(|operation_id| WalletView::UnknownOperation { operation_id }),
        (
            customer(),
            prop::collection::vec(money(), 0..3),
            prop::collection::vec(entry, 0..3)
        )
            .prop_map(|(customer, balances, entries)| WalletView::Wallet {
                customer,
                balances,
                entries
            }),
        (text(10), text(20)).prop_map(|(field, message)| WalletView::Invalid { field, message }),
        text(20).prop_map(|message| WalletView::Unavailable { message }),
    ]
}

fn completed() -> impl Strategy<Value = DepositCompleted> {
    let quote = (
        money(),
        money(),
        "[0-9]{1,9}\\.[0-9]{1,9}",
        text(8),
        instant(),
    )
        .prop_map(|(source, target, rate, rate_source, quoted_at)| Quote {
            source,
            target,
            rate,
            rate_source,
            quoted_at,
            rounding: Rounding::HalfEven,
        });
    (
        saga(),
        text(10),
        name(10),
        external(),
        customer(),
        region(),
        quote,
        instant(),
    )
        .prop_map(
            |(
                saga_id,
                payment_id,
                provider,
                external_id,
                customer,
                region,
                quote,
                completed_at,
            )| {
                let (paid, credited) = (quote.source, quote.target);
                DepositCompleted {
                    saga_id,
                    payment_id,
                    provider,
                    external_id,
                    customer,
                    region,
                    paid,
                    credited,
                    quote,
                    completed_at,
                }
            },
        )
}

fn verb() -> impl Strategy<Value = OperatorVerb> {
    let finding = prop::sample::select(vec![Finding::Applied, Finding::NotApplied]);
    // A reply that is null is no reply, so it is read back as none.
    let reply = json().prop_filter("a reply", |reply| !reply.is_null());
    let resolve = (
        prop::option::of(operation()),
        prop::option::of(finding),
        text(12),
        prop::option::of(reply),
    );
    prop_oneof![
        prop::sample::select(vec![
            OperatorVerb::Cancel,
            OperatorVerb::Recheck,
            OperatorVerb::Compensate,
            OperatorVerb::RetryNow,
            OperatorVerb::Hold,
            OperatorVerb::Release,
        ]),
        text(12).prop_map(|owner| OperatorVerb::Assign { owner }),
        text(12).prop_map(|request| OperatorVerb::Approve { request }),
        resolve.prop_map(|(operation_id, finding, evidence, reply)| {
            OperatorVerb::Resolve {
                operation_id,
                finding,
                evidence,
                reply,
            }
        }),
    ]
}

proptest! {
    #[test]
    fn wallet_messages_come_back(
        update in update(), reply in reply(), view in view(), target in operation(),
        customer in prop::option::of(customer()),
    ) {
        comes_back(&update);
        comes_back(&reply);
        comes_back(&view);
        comes_back(&WalletRevert { target: target.clone(), memo: None });
        comes_back(&WalletGet { operation_id: Some(target), customer, operations: None });
    }

    #[test]
    fn rates_and_events_come_back(event in completed(), from in code(), to in code(), message in text(20)) {
        let (rate, source) = (event.quote.rate.clone(), event.quote.rate_source.clone());
        let rate_source = source.clone();
        comes_back(&RateReply::Rate { rate, source, quoted_at: event.completed_at });
        comes_back(&RateReply::Unavailable { message });
        comes_back(&DepositTurnedBack {
            saga_id: event.saga_id.clone(),
            provider: event.provider.clone(),
            external_id: event.external_id.clone(),
            customer: Some(event.customer.clone()),
            paid: Some(event.paid),
            status: "compensated".to_owned(),
            reason: rate_source,
            ended_at: event.completed_at,
        });
        comes_back(&RateRequest { from, to });
        comes_back(&event);
    }

    #[test]
    fn what_comes_in_comes_back(
        saga_id in saga(), workflow in text(10), id in text(20), name in step(), body in json(), reason in text(20), verb in verb(),
    ) {
        let request = OperatorRequest { saga_id: saga_id.clone(), id: id.clone(), verb, reason, by: workflow.clone() };
        // Checked without a panic; what is refused is refused with a reason.
        prop_assert!(request.check().err().is_none_or(|reason| !reason.is_empty()));
        comes_back(&request);
        comes_back(&StartRequest { workflow, id: id.clone(), input: body.clone() });
        comes_back(&Signal { saga_id, name, id, body });
    }

    #[test]
    fn no_bytes_break_a_reader(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        every_reader(&bytes);
    }

    #[test]
    fn no_json_breaks_a_reader(value in json()) {
        for encoding in ENCODINGS {
            every_reader(&encoding.encode(&value).expect("encodes"));
        }
    }

    #[test]
    fn no_damaged_message_breaks_a_reader(
        update in update(), reply in reply(), event in completed(), view in view(),
        at in any::<prop::sample::Index>(), cut in 0..6_usize,
        filling in prop::collection::vec(any::<u8>(), 0..6),
    ) {
        for encoding in ENCODINGS {
            let messages = [
                encoding.encode(&update), encoding.encode(&reply), encoding.encode(&event), encoding.encode(&view),
            ];
            for message in messages {
                let mut bytes = message.expect("encodes");
                let start = at.index(bytes.len());
                let end = (start + cut).min(bytes.len());
                bytes.splice(start..end, filling.iter().copied());
                every_reader(&bytes);
            }
        }
    }
}

#[test]
fn no_depth_breaks_a_reader() {
    for depth in [63, 64, 65, 10_000, 1_000_000] {
        // Arrays of one element in MessagePack, brackets in JSON.
        every_reader(&vec![0x91; depth]);
        every_reader(&vec![b'['; depth]);
        every_reader("{\"input\":".repeat(depth).as_bytes());
    }
}
