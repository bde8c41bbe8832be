//! One stored byte file a message, in both encodings: a change of shape is noticed here, before a peer of
//! an older build does. A new field is optional and gets a new file; an old file is never edited.
//!
//! `GOLDEN_WRITE=1 cargo test -p contracts --test golden` writes files that do not exist yet.

use std::fmt::Debug;
use std::path::PathBuf;

use contracts::audit::{AuditEntry, OperatorAnswer};
use contracts::codec::Encoding;
use contracts::command::{Movement, OperationRange, WalletGet, WalletRevert, WalletUpdate};
use contracts::event::{DepositCompleted, DepositTurnedBack};
use contracts::id::{CustomerId, OperationId, Region, SagaId, StepName};
use contracts::intake::{Finding, OperatorRequest, OperatorVerb, Signal, StartRequest};
use contracts::money::{Currency, CurrencyCode, Money};
use contracts::quote::{Quote, RateReply, RateRequest, Rounding};
use contracts::reply::{
    Effect, EntryView, OperationState, OperationView, RejectCode, WalletReply, WalletView,
};
use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

fn money(minor: i64, code: &str) -> Money {
    let code = CurrencyCode::new(code).expect("code");
    Money::new(minor, Currency::iso(code).expect("ISO"))
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_893_456_000 + second).expect("instant")
}

fn saga() -> SagaId {
    SagaId::from_parts("deposit", &["prov-x", "a/b"])
}

fn customer() -> CustomerId {
    CustomerId::new("cust ä").expect("id")
}

fn operation() -> OperationId {
    saga().own_operation()
}

fn check<T: Serialize + DeserializeOwned + PartialEq + Debug>(name: &str, value: &T) {
    for (encoding, ending) in [(Encoding::Json, "json"), (Encoding::MessagePack, "msgpack")] {
        let bytes = encoding.encode(value).expect("encodes");
        let path =
            PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{name}.{ending}"));
        if !path.exists() && std::env::var_os("GOLDEN_WRITE").is_some() {
            std::fs::write(&path, &bytes).expect("writes");
        }
        let stored =
            std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_eq!(
            &encoding.decode::<T>(&stored).expect("decodes"),
            value,
            "{name}: what peers sent is read otherwise"
        );
        assert_eq!(
            stored, bytes,
            "{name}.{ending}: what peers expect is no longer sent"
        );
    }
}

#[test]
fn commands() {
    let memo = Some("deposit a/b".to_owned());
    let update = WalletUpdate {
        customer: customer(),
        movement: Movement::Credit,
        money: money(1999, "USD"),
        memo,
    };
    check("wallet_update", &update);
    check(
        "wallet_revert",
        &WalletRevert {
            target: operation(),
            memo: None,
        },
    );
    check(
        "wallet_get",
        &WalletGet {
            customer: Some(customer()),
            ..WalletGet::default()
        },
    );
    check(
        "wallet_get_operations",
        &WalletGet {
            operations: Some(OperationRange {
                since: at(0),
                until: at(60),
                after: Some("2030-01-01T00:00:01.000000Z/deposit=2Fprov-x=2Fa".to_owned()),
                limit: Some(100),
            }),
            ..WalletGet::default()
        },
    );
}

#[test]
fn replies() {
    let moved = Effect::Moved {
        customer: customer(),
        movement: Movement::Credit,
        money: money(1999, "USD"),
        balance: money(5000, "USD"),
    };
    let applied = |effect| WalletReply::Applied {
        operation_id: operation(),
        effect,
        applied_at: at(0),
    };
    check("reply_moved", &applied(moved.clone()));
    check(
        "reply_tombstoned",
        &applied(Effect::Tombstoned {
            target: operation(),
        }),
    );
    let offset = Effect::Offset {
        target: operation(),
        customer: customer(),
        movement: Movement::Debit,
        money: money(1999, "USD"),
        balance: money(0, "USD"),
    };
    check("reply_offset", &applied(offset));
    let message = "only 1.00 USD".to_owned();
    let code = RejectCode::InsufficientFunds;
    check(
        "reply_rejected",
        &WalletReply::Rejected {
            operation_id: operation(),
            code,
            message,
        },
    );
    check(
        "reply_cancelled",
        &WalletReply::Cancelled {
            operation_id: operation(),
        },
    );
    let fields = vec!["money".to_owned()];
    check(
        "reply_conflict",
        &WalletReply::Conflict {
            operation_id: operation(),
            fields,
        },
    );
    check("reply_stale", &WalletReply::Stale { seen_fence: 7 });
    check(
        "reply_expired",
        &WalletReply::Expired {
            deadline: at(0),
            now: at(1),
        },
    );
    check("reply_busy", &WalletReply::Busy { retry_after_ms: 50 });
    let (field, message) = ("customer".to_owned(), "must not be empty".to_owned());
    check("reply_invalid", &WalletReply::Invalid { field, message });
    check(
        "reply_unavailable",
        &WalletReply::Unavailable {
            message: "no database".to_owned(),
        },
    );
    let view = OperationView {
        operation_id: operation(),
        saga_id: Some(saga()),
        kind: "update".to_owned(),
        state: OperationState::Applied,
        fence: 1,
        created_at: at(0),
        reply: applied(moved),
    };
    check("view_operation", &WalletView::Operation(view.clone()));
    check(
        "view_operations",
        &WalletView::Operations {
            operations: vec![view],
            next: Some("2030-01-01T00:00:00.000000Z/deposit=2Fprov-x=2Fa=2Fb".to_owned()),
        },
    );
    let entry = EntryView {
        operation_id: operation(),
        movement: Movement::Credit,
        money: money(1999, "USD"),
        booked_at: at(0),
    };
    let wallet = WalletView::Wallet {
        customer: customer(),
        balances: vec![money(5000, "USD"), money(80, "JPY")],
        entries: vec![entry],
    };
    check("view_wallet", &wallet);
}

#[test]
fn an_answer_of_a_newer_peer_is_read_as_unknown() {
    let reply: WalletReply = Encoding::Json
        .decode(br#"{"answer":"escheated"}"#)
        .expect("decodes");
    assert_eq!(reply, WalletReply::Unknown);
    let code: RejectCode = Encoding::Json
        .decode(br#""frozen_by_court""#)
        .expect("decodes");
    assert_eq!(code, RejectCode::Other);
}

#[test]
fn rates_events_and_intake() {
    let (from, to) = (
        money(0, "EUR").currency().code(),
        money(0, "USD").currency().code(),
    );
    check("rate_request", &RateRequest { from, to });
    let (rate, source) = ("1.1000".to_owned(), "reference".to_owned());
    check(
        "rate_reply",
        &RateReply::Rate {
            rate: rate.clone(),
            source: source.clone(),
            quoted_at: at(0),
        },
    );
    let quote = Quote {
        source: money(10_000, "EUR"),
        target: money(11_000, "USD"),
        rate,
        rate_source: source,
        quoted_at: at(0),
        rounding: Rounding::HalfEven,
    };
    let event = DepositCompleted {
        saga_id: saga(),
        payment_id: "pay_1".to_owned(),
        provider: "prov-x".to_owned(),
        external_id: "a/b".to_owned(),
        customer: customer(),
        region: Region::new("eu").expect("region"),
        paid: quote.source,
        credited: quote.target,
        quote,
        completed_at: at(2),
    };
    check("deposit_completed", &event);
    let event = DepositTurnedBack {
        saga_id: saga(),
        provider: "prov-x".to_owned(),
        external_id: "a/b".to_owned(),
        customer: Some(customer()),
        paid: Some(money(10_000, "EUR")),
        status: "compensated".to_owned(),
        reason: "step credit-wallet: wallet_closed: the wallet is closed".to_owned(),
        ended_at: at(2),
    };
    check("deposit_turned_back", &event);
    let start = StartRequest {
        workflow: "deposit".to_owned(),
        id: "1".to_owned(),
        input: json!({ "a": [1, "b"] }),
    };
    check("start_request", &start);
    let name = StepName::new("psp-callback").expect("name");
    check(
        "signal",
        &Signal {
            saga_id: saga(),
            name,
            id: "s1".to_owned(),
            body: json!({ "meaning": "paid" }),
        },
    );
    let request = OperatorRequest {
        saga_id: saga(),
        id: "r1".to_owned(),
        verb: OperatorVerb::Cancel,
        reason: "customer asked".to_owned(),
        by: "ana".to_owned(),
    };
    check("operator_request", &request);
}

#[test]
fn verbs_of_operators_and_what_became_of_them() {
    let request = |verb: OperatorVerb| OperatorRequest {
        saga_id: saga(),
        id: "r2".to_owned(),
        verb,
        reason: "customer asked".to_owned(),
        by: "ana".to_owned(),
    };
    let resolve = OperatorVerb::Resolve {
        operation_id: Some(operation()),
        finding: Some(Finding::NotApplied),
        evidence: "statement of 3 May, page 2".to_owned(),
        reply: None,
    };
    for verb in [
        OperatorVerb::Assign {
            owner: "bob".to_owned(),
        },
        OperatorVerb::Recheck,
        resolve.clone(),
        OperatorVerb::Compensate,
        OperatorVerb::RetryNow,
        OperatorVerb::Hold,
        OperatorVerb::Release,
        OperatorVerb::Approve {
            request: "r1".to_owned(),
        },
    ] {
        let name = format!("operator_{}", verb.name().replace('-', "_"));
        check(&name, &request(verb));
    }
    let why = "the pivot has been applied".to_owned();
    let entry = AuditEntry {
        request: request(resolve),
        answer: OperatorAnswer::Refused { why },
        at: at(3),
        replica: "core-1".to_owned(),
        status_before: "needs_review".to_owned(),
        status_after: "needs_review".to_owned(),
        cause: "resolve by ana refused".to_owned(),
    };
    check("audit_entry", &entry);
    // The least a person types: what is left out has its default, whatever else stands there is ignored.
    let typed: OperatorRequest = Encoding::Json
        .decode(br#"{"saga_id":"case/x","id":"1","verb":"resolve","reason":"r","by":"b","note":1}"#)
        .expect("decodes");
    assert_eq!(typed.check(), Ok(()));
    let unknown = br#"{"saga_id":"case/x","id":"1","verb":"explode","reason":"r","by":"b"}"#;
    assert!(Encoding::Json.decode::<OperatorRequest>(unknown).is_err());
}
