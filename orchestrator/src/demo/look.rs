//! Asks the system what came of the story, each number where it lies.

use super::DemoError;
use super::expected::Expected;
use super::found::{Found, IntakeFound, LedgerFound, Reconciled, Told, WalletFound};
use super::story;
use super::system::{self, System};
use super::tell::Records;
use crate::clock::wall_clock;
use crate::doctor;
use crate::jsapi;
use crate::partition::Partition;
use crate::payments::{Payment, PaymentFilter, Payments};
use crate::reconcile;
use crate::regions::RegionCache;
use crate::serve;
use crate::site::User;
use async_nats::Client;
use contracts::event::{DEPOSIT_COMPLETED, DepositCompleted};
use contracts::id::CustomerId;
use contracts::reply::WalletView;
use contracts::subject;
use jiff::SignedDuration;
use region_agent::ledger::Ledger;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

/// Longest wait for what follows a saga's end: acknowledgements, and copies of events.
const FOLLOWS: Duration = Duration::from_secs(20);
/// The range that is reconciled.
const DAY: SignedDuration = SignedDuration::from_hours(24);
/// How long an open saga may be without progress.
const STUCK: SignedDuration = SignedDuration::from_mins(15);
/// How often a condition that nobody announces is looked at.
const POLL: Duration = Duration::from_millis(50);

/// Asks for everything.
///
/// # Errors
/// [`DemoError`] when something does not answer; numbers that are wrong are for the checks.
pub(super) async fn look(
    system: &System,
    expected: &Expected,
    told: Told,
    records: Records,
) -> Result<Found, DemoError> {
    let operator = &system.operator;
    let dir = system.site.dir();
    let mut ledgers = BTreeMap::new();
    for region in [story::DEFAULT, story::EU, story::ASIA] {
        ledgers.insert(
            region.to_owned(),
            ledger(operator, dir, region, expected).await?,
        );
    }
    let orchestrator = system.site.connect(User::Orchestrator).await?;
    let partition = Partition::default();
    let doctor = doctor::examine(&orchestrator, &serve::doctor_options(&partition)).await;
    Ok(Found {
        intake: intake(operator, &partition).await?,
        events: events(operator, &partition, expected.credits()).await?,
        payments: payments(dir).await?,
        cached_regions: cached_regions(operator, &partition).await?,
        reconciled: reconciled(operator, dir, &partition).await?,
        records: records.known,
        ledgers,
        told,
        doctor,
    })
}

/// The intake's consumer, when it has nothing more to do or after a bound.
async fn intake(operator: &Client, partition: &Partition) -> Result<IntakeFound, DemoError> {
    let (stream, consumer) = (partition.intake_stream(), partition.intake_consumer());
    settled(async || {
        let info = ask(operator, &format!("STREAM.INFO.{stream}"), Value::Null).await?;
        let consumer = ask(
            operator,
            &format!("CONSUMER.INFO.{stream}.{consumer}"),
            Value::Null,
        )
        .await?;
        let number = |value: &Value| value.as_u64().unwrap_or(u64::MAX);
        let found = IntakeFound {
            messages: number(&info["state"]["messages"]),
            undelivered: number(&consumer["num_pending"]),
            unacknowledged: number(&consumer["num_ack_pending"]),
        };
        let at_rest = found.undelivered == 0 && found.unacknowledged == 0;
        Ok((found, at_rest))
    })
    .await
}

/// The deposit events that other teams can read, when there are so many or after a bound.
async fn events(
    operator: &Client,
    partition: &Partition,
    expected: usize,
) -> Result<Vec<DepositCompleted>, DemoError> {
    let stream = partition.events_stream();
    let subjects = settled(async || {
        let filter = json!({ "subjects_filter": subject::EVENTS });
        let info = ask(operator, &format!("STREAM.INFO.{stream}"), filter).await?;
        let subjects: Vec<(String, u64)> = info["state"]["subjects"]
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(subject, _)| subject.ends_with(&format!(".{DEPOSIT_COMPLETED}")))
            .map(|(subject, count)| (subject.clone(), count.as_u64().unwrap_or(0)))
            .collect();
        let enough = subjects.len() >= expected;
        Ok((subjects, enough))
    })
    .await?;
    let stream = serve::context(operator)
        .get_stream(stream)
        .await
        .map_err(|error| DemoError::Look(error.to_string()))?;
    let mut events = Vec::new();
    for (subject, count) in subjects {
        let message = stream
            .direct_get_last_for_subject(&subject)
            .await
            .map_err(|error| DemoError::Look(format!("{subject}: {error}")))?;
        let event: DepositCompleted = serde_json::from_slice(&message.payload)
            .map_err(|error| DemoError::Look(format!("{subject}: {error}")))?;
        // An event that is in the log twice counts twice.
        for _ in 0..count {
            events.push(event.clone());
        }
    }
    Ok(events)
}

async fn ledger(
    operator: &Client,
    dir: &Path,
    region: &str,
    expected: &Expected,
) -> Result<LedgerFound, DemoError> {
    let books = Ledger::open(&system::ledger_url(dir, region)).await?;
    let discrepancies = books.verify().await?;
    let stats = books.stats().await?;
    let mut customers: BTreeSet<String> = expected
        .deposits
        .iter()
        .filter(|deposit| deposit.wallet.region == region)
        .map(|deposit| deposit.wallet.customer.clone())
        .collect();
    customers.extend(
        stats
            .balances
            .iter()
            .map(|found| found.customer.to_string()),
    );
    let mut wallets = BTreeMap::new();
    for customer in customers {
        let id = CustomerId::new(customer.as_str())
            .map_err(|error| DemoError::Look(format!("{customer}: {error}")))?;
        let view = system::wallet_of(operator, region, &id)
            .await
            .map_err(|error| DemoError::Look(format!("wallet of {customer}: {error}")))?;
        let WalletView::Wallet {
            balances, entries, ..
        } = view
        else {
            return Err(DemoError::Look(format!("wallet of {customer}: {view:?}")));
        };
        wallets.insert(customer, WalletFound { balances, entries });
    }
    books.close().await;
    Ok(LedgerFound {
        stats,
        discrepancies: discrepancies
            .iter()
            .map(|discrepancy| discrepancy.to_string())
            .collect(),
        wallets,
    })
}

async fn payments(dir: &Path) -> Result<Vec<Payment>, DemoError> {
    let payments = Payments::open(
        &system::payments_url(dir),
        1,
        system::regions()?,
        RegionCache::Off,
    )
    .await?;
    let mut all: Vec<Payment> = Vec::new();
    loop {
        let filter = PaymentFilter {
            after: all.last().map(|payment| payment.payment_id.clone()),
            ..PaymentFilter::default()
        };
        let page = payments.list(&filter).await?;
        if page.is_empty() {
            break;
        }
        all.extend(page);
    }
    payments.close().await;
    Ok(all)
}

/// What a person would be told every evening.
async fn reconciled(
    operator: &Client,
    dir: &Path,
    partition: &Partition,
) -> Result<Reconciled, DemoError> {
    let regions = system::regions()?;
    let now = wall_clock();
    let options = reconcile::Options {
        since: now.checked_sub(DAY).unwrap_or(now),
        until: now,
        regions: regions.iter().cloned().collect(),
        only: None,
        stuck: STUCK,
        partition: partition.clone(),
        now,
    };
    let payments = Payments::open_to_read(&system::payments_url(dir), regions).await?;
    let compared = reconcile::differences(operator, Some(&payments), &options).await;
    payments.close().await;
    let (report, differences) =
        compared.map_err(|error| DemoError::Look(crate::telemetry::chain(&error)))?;
    let named = |difference: &reconcile::Difference| {
        format!("{} of {}", difference.kind, difference.saga_id)
    };
    Ok(Reconciled {
        sagas: report.compared.sagas,
        differences: differences.iter().map(named).collect(),
    })
}

async fn cached_regions(
    operator: &Client,
    partition: &Partition,
) -> Result<BTreeMap<String, String>, DemoError> {
    let look = |error: &dyn std::fmt::Display| DemoError::Look(error.to_string());
    let bucket = serve::context(operator)
        .get_key_value(partition.regions_bucket())
        .await
        .map_err(|error| look(&error))?;
    let mut cached = BTreeMap::new();
    for (customer, _) in story::DIRECTORY {
        let id = CustomerId::new(customer).map_err(|error| look(&error))?;
        let value = bucket.get(id.key()).await.map_err(|error| look(&error))?;
        if let Some(region) = value.and_then(|bytes| String::from_utf8(bytes.to_vec()).ok()) {
            cached.insert(customer.to_owned(), region);
        }
    }
    Ok(cached)
}

async fn ask(client: &Client, what: &str, body: Value) -> Result<Value, DemoError> {
    jsapi::ask(client, what, &body)
        .await
        .map_err(|error| DemoError::Look(error.to_string()))
}

/// Looks again and again until a look says that it is enough; after a bound takes what it saw last.
async fn settled<T>(
    mut look: impl AsyncFnMut() -> Result<(T, bool), DemoError>,
) -> Result<T, DemoError> {
    let mut last = None;
    let looking = async {
        loop {
            let (found, enough) = look().await?;
            last = Some(found);
            if enough {
                return Ok::<(), DemoError>(());
            }
            tokio::time::sleep(POLL).await;
        }
    };
    // After the bound, what was seen last is what the checks judge.
    if let Ok(looked) = tokio::time::timeout(FOLLOWS, looking).await {
        looked?;
    }
    last.ok_or_else(|| DemoError::Look(format!("no answer within {FOLLOWS:?}")))
}
