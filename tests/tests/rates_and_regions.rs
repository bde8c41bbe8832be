//! Rates over NATS and the cache of regions, with the rights that the shipped accounts give.

use anyhow::{Context as _, Result};
use contracts::id::{CustomerId, Region};
use contracts::money::{Currency, CurrencyCode, Money};
use jiff::Timestamp;
use orchestrator::fx::{NatsRates, QuoteError, RateSource, RateTable, serve_reference};
use orchestrator::partition::Partition;
use orchestrator::payments::Payments;
use orchestrator::regions::{REGIONS_BUCKET, RegionCache, Regions};
use orchestrator::setup;
use saga_tests::cluster::{Answer, User, ask, one_node};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

fn currency(code: &str) -> Result<Currency> {
    Ok(Currency::iso(CurrencyCode::new(code)?)?)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rate_comes_over_nats_or_not_at_all() -> Result<()> {
    let site = one_node().await?;
    let client = site.connect(User::Orchestrator).await?;
    let rates = RateSource::Nats(NatsRates::new(client.clone(), Duration::from_secs(2)));
    let paid = Money::parse("100.00", currency("EUR")?)?;
    let now = Timestamp::UNIX_EPOCH;

    let nobody = rates.quote(paid, currency("USD")?, now).await;
    assert!(
        matches!(&nobody, Err(error @ QuoteError::Unavailable { .. }) if error.is_transient()),
        "{nobody:?}"
    );
    let same = rates.quote(paid, currency("EUR")?, now).await?;
    assert_eq!(same.target, paid, "nobody is asked within one currency");

    let table = BTreeMap::from([("EUR/USD".to_owned(), "1.1000".to_owned())]);
    let service = site.connect(User::Rates).await?;
    let table = Arc::new(RateTable::new(&table)?);
    tokio::spawn(serve_reference(service, table, move || now));
    let asking = async {
        loop {
            if let Ok(quote) = rates.quote(paid, currency("USD")?, now).await {
                return anyhow::Ok(quote);
            }
        }
    };
    let quote = tokio::time::timeout(Duration::from_secs(10), asking).await??;
    assert_eq!(quote.target.decimal_text(), "110.00");
    assert_eq!(
        (quote.rate.as_str(), quote.rate_source.as_str()),
        ("1.1000", "reference")
    );
    let unknown = rates.quote(paid, currency("CHF")?, now).await;
    assert!(
        matches!(unknown, Err(QuoteError::Unavailable { .. })),
        "{unknown:?}"
    );

    // A person asks in JSON and is answered in JSON.
    let answer = ask(
        &client,
        "billing.core.fx.quote",
        r#"{"from":"EUR","to":"USD"}"#,
    )
    .await;
    let Answer::Reply(text) = answer else {
        anyhow::bail!("{answer:?}")
    };
    let answer: serde_json::Value = serde_json::from_str(&text).context(text)?;
    assert_eq!(answer["rate"], "1.1000");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cache_stands_before_the_directory_and_follows_it() -> Result<()> {
    let site = one_node().await?;
    let client = site.connect(User::Orchestrator).await?;
    setup::apply(&client, &Partition::only(1)).await?;
    let store = async_nats::jetstream::new(client)
        .get_key_value(REGIONS_BUCKET)
        .await?;
    let cache = RegionCache::Bucket(Box::new(store.clone()));
    let (eu, asia): (Region, Region) = ("eu".parse()?, "asia".parse()?);
    let regions = Regions::new([eu.clone(), asia.clone()], "default".parse()?);
    let payments = Payments::open("sqlite::memory:", 1, regions, cache).await?;
    let customer: CustomerId = "cust a.*".parse()?;
    let now = Timestamp::UNIX_EPOCH;

    assert_eq!(payments.region_of(&customer).await?.as_str(), "default");
    assert_eq!(
        store.get(customer.key()).await?,
        None,
        "a default is not cached"
    );
    payments.assign_region(&customer, &eu, now).await?;
    assert_eq!(payments.region_of(&customer).await?, eu);
    assert_eq!(
        store.get(customer.key()).await?.as_deref(),
        Some(&b"eu"[..])
    );

    payments.assign_region(&customer, &asia, now).await?;
    assert_eq!(payments.region_of(&customer).await?, asia);
    store.purge(customer.key()).await?;
    assert_eq!(
        payments.region_of(&customer).await?,
        asia,
        "the directory knows"
    );
    assert_eq!(
        store.get(customer.key()).await?.as_deref(),
        Some(&b"asia"[..])
    );
    store.put(customer.key(), "no region".into()).await?;
    assert_eq!(
        payments.region_of(&customer).await?,
        asia,
        "nonsense is a miss"
    );
    Ok(())
}
