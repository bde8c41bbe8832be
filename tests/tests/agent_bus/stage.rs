//! An agent with its server and ledger, and short ways to ask it.

use crate::server::NatsServer;
use async_nats::{Client, HeaderMap, Message};
use contracts::id::Region;
use prometheus::Registry;
use region_agent::bus::{Metrics, WalletService};
use region_agent::clock::Clock;
use region_agent::health;
use region_agent::ledger::Ledger;
use region_agent::wallet::Wallet;
use sqlx::Connection as _;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

pub(crate) const UPDATE: &str = "billing.eu.wallet.update";
pub(crate) const REVERT: &str = "billing.eu.wallet.revert";
pub(crate) const GET: &str = "billing.eu.wallet.get";

pub(crate) struct Stage {
    pub(crate) server: NatsServer,
    pub(crate) directory: TempDir,
    pub(crate) client: Client,
    pub(crate) wallet: Wallet,
    pub(crate) registry: Registry,
    pub(crate) service: WalletService,
}

impl Stage {
    pub(crate) async fn new(max_in_flight: usize) -> Self {
        let server = NatsServer::start();
        let directory = tempfile::tempdir().expect("directory");
        let url = format!("sqlite://{}/wallet.db", directory.path().display());
        let ledger = Ledger::open(&url).await.expect("ledger");
        let wallet = Wallet::new(ledger, Clock::system());
        let registry = Registry::new();
        let service = serve(&server, &wallet, &registry, max_in_flight).await;
        Self {
            client: server.connect().await,
            server,
            directory,
            wallet,
            registry,
            service,
        }
    }

    pub(crate) async fn ask(
        &self,
        subject: &'static str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Message {
        self.ask_bytes(subject, headers, body.as_bytes().to_vec())
            .await
    }

    pub(crate) async fn ask_bytes(
        &self,
        subject: &'static str,
        headers: &[(&str, &str)],
        body: Vec<u8>,
    ) -> Message {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, *value);
        }
        self.client
            .request_with_headers(subject, map, body.into())
            .await
            .expect("an answer")
    }

    /// Keeps every writer of the ledger waiting until the transaction is given up.
    pub(crate) async fn lock_ledger(&self) -> sqlx::SqliteConnection {
        let path = self.directory.path().join("wallet.db");
        let url = format!("sqlite://{}", path.display());
        let mut connection = sqlx::SqliteConnection::connect(&url)
            .await
            .expect("ledger file");
        sqlx::query("BEGIN IMMEDIATE")
            .execute(&mut connection)
            .await
            .expect("lock");
        connection
    }
}

pub(crate) async fn serve(
    server: &NatsServer,
    wallet: &Wallet,
    registry: &Registry,
    max_in_flight: usize,
) -> WalletService {
    let client = server.connect().await;
    let region = Region::new("eu").expect("region");
    let metrics = Metrics::register(registry).expect("metrics");
    let service = WalletService::start(
        client.clone(),
        wallet.clone(),
        region,
        max_in_flight,
        metrics,
    )
    .await
    .expect("service");
    // A round trip: the subscriptions are with the server now.
    health::nats_round_trip(&client, service.ping_subject())
        .await
        .expect("round trip");
    service
}

pub(crate) fn credit(customer: &str, minor: i64) -> String {
    format!(
        r#"{{"customer":"{customer}","movement":"credit","money":{{"amount_minor":{minor},"currency":"EUR","exponent":2}}}}"#
    )
}

pub(crate) fn header<'a>(message: &'a Message, name: &str) -> Option<&'a str> {
    let headers = message.headers.as_ref()?;
    headers.get(name).map(async_nats::HeaderValue::as_str)
}

pub(crate) fn json(message: &Message) -> serde_json::Value {
    serde_json::from_slice(&message.payload).expect("a JSON body")
}

/// Updates applied by the agent that counts in `registry`.
pub(crate) fn answers(registry: &Registry) -> u64 {
    metric(
        registry,
        r#"wallet_answers_total{answer="applied",verb="update"}"#,
    )
}

/// A metric as `/metrics` shows it; 0 while it is not there.
pub(crate) fn metric(registry: &Registry, name: &str) -> u64 {
    let text = prometheus::TextEncoder::new()
        .encode_to_string(&registry.gather())
        .expect("metrics");
    text.lines()
        .find_map(|line| line.strip_prefix(name))
        .map_or(0, |value| value.trim().parse().expect("a number"))
}

pub(crate) async fn http_get(address: std::net::SocketAddr, path: &str) -> String {
    let mut stream = tokio::net::TcpStream::connect(address)
        .await
        .expect("connection");
    let request = format!("GET {path} HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("answer");
    answer
}
