//! A region agent on a real NATS server: what arrives on the wire, and what a person sees.

mod server;
mod stage;

use async_nats::service::{Info, Stats, endpoint};
use async_nats::{HeaderMap, RequestErrorKind};
use contracts::codec::Encoding;
use contracts::command::{Movement, WalletUpdate};
use contracts::id::CustomerId;
use contracts::money::{Currency, CurrencyCode, Money};
use contracts::reply::WalletReply;
use futures::StreamExt as _;
use prometheus::Registry;
use region_agent::health::{self, Health};
use sqlx::Connection as _;
use stage::{GET, REVERT, Stage, UPDATE, answers, credit, header, http_get, json, metric, serve};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

#[tokio::test]
async fn json_is_answered_for_people() {
    let stage = Stage::new(8).await;
    let headers = [
        ("Operation-Id", "op-1"),
        ("Saga-Id", "deposit/p/1"),
        ("Attempt", "2"),
        (
            "traceparent",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ),
    ];
    let applied = stage.ask(UPDATE, &headers, &credit("c-1", 1999)).await;
    let body = json(&applied);
    assert_eq!(body["answer"], "applied");
    assert_eq!(body["effect"]["balance"]["amount_minor"], 1999);
    assert!(applied.payload.contains(&b'\n'), "indented for a person");
    assert_eq!(header(&applied, "Content-Type"), Some("application/json"));
    for (name, value) in headers {
        assert_eq!(header(&applied, name), Some(value), "{name}");
    }
    assert_eq!(header(&applied, "Nats-Service-Error"), None);

    let shown = stage.ask(GET, &[], r#"{"customer":"c-1"}"#).await;
    let body = json(&shown);
    assert_eq!(body["balances"][0]["amount_minor"], 1999);
    assert_eq!(body["entries"][0]["operation_id"], "op-1");

    let shown = stage.ask(GET, &[], r#"{"operation_id":"op-1"}"#).await;
    assert_eq!(json(&shown)["state"], "applied");
    assert_eq!(json(&shown)["saga_id"], "deposit/p/1");

    let undo = stage
        .ask(REVERT, &[("operation-id", "u")], r#"{"target":"op-1"}"#)
        .await;
    assert_eq!(json(&undo)["effect"]["effect"], "offset");
}

#[tokio::test]
async fn message_pack_is_answered_in_kind() {
    let stage = Stage::new(8).await;
    let currency = Currency::new(CurrencyCode::new("EUR").expect("code"), 2).expect("currency");
    let update = WalletUpdate {
        customer: CustomerId::new("\u{e9} *\0").expect("customer"),
        movement: Movement::Credit,
        money: Money::new(5, currency),
        memo: None,
    };
    let body = Encoding::MessagePack.encode(&update).expect("body");
    let headers = [
        ("Operation-Id", "op"),
        ("Content-Type", "application/msgpack"),
    ];
    let answer = stage.ask_bytes(UPDATE, &headers, body.clone()).await;
    assert_eq!(header(&answer, "Content-Type"), Some("application/msgpack"));
    let reply: WalletReply = Encoding::MessagePack
        .decode(&answer.payload)
        .expect("a reply");
    assert!(matches!(reply, WalletReply::Applied { .. }), "{reply:?}");
    let again = stage.ask_bytes(UPDATE, &headers, body).await;
    assert_eq!(again.payload, answer.payload);
}

#[tokio::test]
async fn refusals_carry_body_and_error_headers() {
    let stage = Stage::new(8).await;
    let op = ("Operation-Id", "op");
    let good = credit("c", 1);
    let debit = good.replace("credit", "debit");
    for (subject, headers, body, answer, field, code) in [
        (
            UPDATE,
            vec![],
            good.as_str(),
            "invalid",
            "Operation-Id",
            "400",
        ),
        (
            UPDATE,
            vec![("Operation-Id", "a b")],
            &good,
            "invalid",
            "Operation-Id",
            "400",
        ),
        (
            UPDATE,
            vec![op, ("Fence", "-1")],
            &good,
            "invalid",
            "Fence",
            "400",
        ),
        (
            UPDATE,
            vec![op, ("Attempt", "x")],
            &good,
            "invalid",
            "Attempt",
            "400",
        ),
        (
            UPDATE,
            vec![op, ("Deadline", "soon")],
            &good,
            "invalid",
            "Deadline",
            "400",
        ),
        (
            UPDATE,
            vec![op, ("Content-Type", "text/xml")],
            &good,
            "invalid",
            "Content-Type",
            "400",
        ),
        (UPDATE, vec![op], "{", "invalid", "body", "400"),
        (UPDATE, vec![op], "", "invalid", "body", "400"),
        (
            REVERT,
            vec![],
            r#"{"target":"x"}"#,
            "invalid",
            "Operation-Id",
            "400",
        ),
        (
            REVERT,
            vec![op],
            r#"{"target":"op"}"#,
            "invalid",
            "target",
            "400",
        ),
        (GET, vec![], "{}", "invalid", "operation_id", "400"),
        (
            GET,
            vec![],
            r#"{"operation_id":"no"}"#,
            "unknown_operation",
            "",
            "404",
        ),
        (
            UPDATE,
            vec![op, ("Deadline", "2020-01-01T00:00:00Z")],
            &good,
            "expired",
            "",
            "408",
        ),
        (
            UPDATE,
            vec![("Operation-Id", "d")],
            &debit,
            "rejected",
            "",
            "422",
        ),
    ] {
        let refused = stage.ask(subject, &headers, body).await;
        let found = json(&refused);
        let context = format!("{subject} {headers:?} {body}: {found}");
        assert_eq!(found["answer"], answer, "{context}");
        if !field.is_empty() {
            assert_eq!(found["field"], field, "{context}");
        }
        assert_eq!(
            header(&refused, "Nats-Service-Error-Code"),
            Some(code),
            "{context}"
        );
        let text = header(&refused, "Nats-Service-Error").expect("error text");
        assert!(!text.is_empty() && text.contains(field), "{text}");
    }
}

#[tokio::test]
async fn a_full_agent_answers_busy_at_once() {
    let stage = Stage::new(1).await;
    let lock = stage.lock_ledger().await;
    let mut answers = stage.client.subscribe("answers").await.expect("inbox");
    for operation in ["first", "second"] {
        let mut headers = HeaderMap::new();
        headers.insert("Operation-Id", operation);
        stage
            .client
            .publish_with_reply_and_headers(
                UPDATE,
                "answers",
                headers,
                credit("c", 7).into_bytes().into(),
            )
            .await
            .expect("sent");
    }
    // The first holds the only slot and waits for the ledger; the second is answered before it.
    let busy = answers.next().await.expect("an answer");
    assert_eq!(header(&busy, "Operation-Id"), Some("second"));
    assert_eq!(json(&busy)["answer"], "busy");
    assert_eq!(header(&busy, "Nats-Service-Error-Code"), Some("429"));
    lock.close().await.expect("unlock");
    let applied = answers.next().await.expect("an answer");
    assert_eq!(header(&applied, "Operation-Id"), Some("first"));
    assert_eq!(json(&applied)["answer"], "applied");
    let again = stage
        .ask(UPDATE, &[("Operation-Id", "second")], &credit("c", 7))
        .await;
    assert_eq!(json(&again)["answer"], "applied", "busy left the id free");
}

#[tokio::test]
async fn nats_micro_shows_a_person_what_serves() {
    let stage = Stage::new(8).await;
    let op = [("Operation-Id", "op")];
    stage.ask(UPDATE, &op, &credit("c", 1)).await;
    stage.ask(UPDATE, &op, &credit("c", 2)).await;
    stage.ask(UPDATE, &[], "{}").await;
    let info = stage.ask("$SRV.INFO.wallet-agent", &[], "").await;
    let info: Info = serde_json::from_slice(&info.payload).expect("info");
    assert_eq!(info.version, env!("CARGO_PKG_VERSION"));
    assert_eq!(info.metadata["region"], "eu");
    assert_eq!(info.metadata["capabilities"], "tombstone,fence,status");
    assert!(info.metadata.contains_key("build"));
    assert!(!info.description.is_empty());
    let mut endpoints: Vec<(String, String, String)> = info
        .endpoints
        .into_iter()
        .map(|endpoint| (endpoint.name, endpoint.subject, endpoint.queue_group))
        .collect();
    endpoints.sort();
    let expected = [("get", GET), ("revert", REVERT), ("update", UPDATE)]
        .map(|(name, subject)| (name.to_owned(), subject.to_owned(), "wallet".to_owned()));
    assert_eq!(endpoints, expected);
    let stats = stage.ask("$SRV.STATS.wallet-agent", &[], "").await;
    let stats: Stats = serde_json::from_slice(&stats.payload).expect("stats");
    let update: &endpoint::Stats = stats
        .endpoints
        .iter()
        .find(|endpoint| endpoint.name == "update")
        .expect("update");
    assert_eq!((update.requests, update.errors), (3, 2));
    assert!(update.last_error.is_some());
}

#[tokio::test]
async fn two_agents_of_a_region_share_the_work() {
    let stage = Stage::new(8).await;
    let second = Registry::new();
    let other = serve(&stage.server, &stage.wallet, &second, 8).await;
    for number in 0..40 {
        let operation = format!("op-{number}");
        let headers = [("Operation-Id", operation.as_str())];
        stage.ask(UPDATE, &headers, &credit("c", 1)).await;
    }
    let stats = stage.wallet.ledger().stats().await.expect("stats");
    assert_eq!(stats.standing_credits, 40);
    assert_eq!(answers(&stage.registry) + answers(&second), 40);
    other.stop(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn stopping_finishes_what_runs() {
    let stage = Stage::new(8).await;
    let lock = stage.lock_ledger().await;
    let mut answers = stage.client.subscribe("answers").await.expect("inbox");
    let mut headers = HeaderMap::new();
    headers.insert("Operation-Id", "op");
    stage
        .client
        .publish_with_reply_and_headers(
            UPDATE,
            "answers",
            headers,
            credit("c", 7).into_bytes().into(),
        )
        .await
        .expect("sent");
    server::until("a command runs", || {
        metric(&stage.registry, "wallet_commands_in_flight ") == 1
    })
    .await;
    let client = stage.client.clone();
    let stopping = tokio::spawn(stage.service.stop(Duration::from_secs(20)));
    // Until the server has heard of it, a request may be taken or, within one round trip of the
    // unsubscription, lost by the client library; then nobody is there.
    tokio::time::timeout(Duration::from_secs(10), async {
        loop {
            let question = async_nats::Request::new()
                .payload(r#"{"customer":"c"}"#.into())
                .timeout(Some(Duration::from_millis(100)));
            let asked = client.send_request(GET, question).await;
            if asked.is_err_and(|error| error.kind() == RequestErrorKind::NoResponders) {
                return;
            }
        }
    })
    .await
    .expect("the agent takes no more");
    lock.close().await.expect("unlock");
    let answer = answers.next().await.expect("an answer");
    assert_eq!(json(&answer)["answer"], "applied");
    stopping.await.expect("stopped");
}

#[tokio::test]
async fn readiness_follows_the_connection() {
    let Stage {
        server,
        wallet,
        registry,
        service,
        directory: _directory,
        ..
    } = Stage::new(8).await;
    let client = server.connect().await;
    let subject = service.ping_subject();
    let health = Health::new(registry)
        .with_check("nats", move || {
            let (client, subject) = (client.clone(), subject.clone());
            async move { health::nats_round_trip(&client, subject).await }
        })
        .with_check("ledger", move || {
            let ledger = wallet.ledger().clone();
            async move { ledger.ping().await.map_err(|error| error.chain()) }
        });
    let listener = health::bind(([127, 0, 0, 1], 0).into())
        .await
        .expect("listener");
    let address = listener.local_addr().expect("address");
    let stop = CancellationToken::new();
    let served = tokio::spawn(health.serve(listener, stop.clone()));
    let ready = http_get(address, "/readyz").await;
    assert!(ready.starts_with("HTTP/1.1 200"), "{ready}");
    assert!(ready.contains("nats: ok\nledger: ok\n"), "{ready}");
    let metrics = http_get(address, "/metrics").await;
    assert!(metrics.contains("wallet_commands_in_flight 0"), "{metrics}");
    drop(server);
    let ready = http_get(address, "/readyz").await;
    assert!(ready.starts_with("HTTP/1.1 503"), "{ready}");
    let alive = http_get(address, "/healthz").await;
    assert!(alive.starts_with("HTTP/1.1 200"), "{alive}");
    stop.cancel();
    served.await.expect("no panic").expect("served");
}
