//! The databases of a world, on a thread of their own.
//!
//! The simulated thread waits for each piece of work synchronously, so virtual time never runs ahead of a
//! database and the order of everything is the same in each run. Waits of the databases' own are in the time
//! of that thread, which is real.

use std::collections::BTreeMap;
use std::sync::{Arc, mpsc};

use contracts::command::{CommandHeader, WalletCommand, WalletGet};
use contracts::id::{CustomerId, Region, SagaId};
use contracts::reply::{WalletReply, WalletView};
use futures::future::BoxFuture;
use jiff::Timestamp;
use orchestrator::clock::Clock;
use orchestrator::fx::{RateSource, RateTable};
use orchestrator::participants::CoreSide;
use orchestrator::payments::Payments;
use orchestrator::regions::{RegionCache, Regions};
use orchestrator::saga::action::Command;
use orchestrator::saga::input::Answer;
use region_agent::ledger::Ledger;
use region_agent::wallet::Wallet;
use sqlx::sqlite::SqliteConnection;
use sqlx::{Connection as _, Row as _};

use super::script::REGIONS;
use crate::judge::{EntryRow, Observation, OperationRow, PaymentRow};

type Work = Box<dyn for<'a> FnOnce(&'a mut Rooms) -> BoxFuture<'a, ()> + Send>;

/// The thread with the databases; it ends with this.
#[derive(Debug)]
pub(super) struct Databases {
    work: mpsc::Sender<Work>,
}

/// All databases of a world.
struct Rooms {
    payments: Payments,
    payment_reader: SqliteConnection,
    wallets: BTreeMap<String, Room>,
}

/// One region's wallet, and the judge's own way to read it.
struct Room {
    ledger: Ledger,
    reader: SqliteConnection,
    last_entry: i64,
}

/// Rates by table; the pairs are always the same.
const RATES: [&str; 3] = ["1.1000", "1.2345", "0.9070"];

impl Databases {
    /// Opens new, empty databases. `name` is used by no other world of this process at the same time.
    ///
    /// # Errors
    /// When they cannot be opened.
    pub(super) fn open(name: &str) -> anyhow::Result<Self> {
        let (work, jobs) = mpsc::channel::<Work>();
        let (opened, is_open) = mpsc::channel();
        let name = name.to_owned();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            let rooms = runtime
                .map_err(anyhow::Error::from)
                .and_then(|runtime| Ok((runtime.block_on(Rooms::open(&name))?, runtime)));
            match rooms {
                Err(error) => drop(opened.send(Err(error))),
                Ok((mut rooms, runtime)) => {
                    drop(opened.send(Ok(())));
                    for job in jobs {
                        runtime.block_on(job(&mut rooms));
                    }
                }
            }
        });
        is_open.recv()??;
        Ok(Self { work })
    }

    fn run<T: Send + 'static>(
        &self,
        job: impl for<'a> FnOnce(&'a mut Rooms) -> BoxFuture<'a, anyhow::Result<T>> + Send + 'static,
    ) -> T {
        let (done, result) = mpsc::channel();
        let work: Work = Box::new(move |rooms| {
            Box::pin(async move {
                drop(done.send(job(rooms).await));
            })
        });
        let outcome = self
            .work
            .send(work)
            .map_err(|error| anyhow::anyhow!("{error}"))
            .and_then(|()| result.recv().map_err(anyhow::Error::from))
            .and_then(|result| result);
        outcome.unwrap_or_else(|error| panic!("a database of the world: {error:#}"))
    }

    /// One command at a region's wallet whose agent's clock shows `now`, and what the rows say after it.
    pub(super) fn wallet(
        &self,
        region: &str,
        header: CommandHeader,
        command: WalletCommand,
        now: Timestamp,
    ) -> (WalletReply, Vec<Observation>) {
        let region = region.to_owned();
        self.run(move |rooms| {
            Box::pin(async move {
                let room = rooms.room(&region)?;
                let clock = region_agent::clock::Clock::told(Arc::new(move || now));
                let wallet = Wallet::new(room.ledger.clone(), clock);
                let reply = wallet.execute(&header, &command).await;
                let mut ids = vec![header.operation_id.to_string()];
                if let WalletCommand::Revert(revert) = &command {
                    ids.push(revert.target.to_string());
                }
                let seen = room.look(&region, &ids).await?;
                Ok((reply, seen))
            })
        })
    }

    /// One question to a region's wallet.
    pub(super) fn look(&self, region: &str, get: WalletGet, now: Timestamp) -> WalletView {
        let region = region.to_owned();
        self.run(move |rooms| {
            Box::pin(async move {
                let room = rooms.room(&region)?;
                let clock = region_agent::clock::Clock::told(Arc::new(move || now));
                Ok(Wallet::new(room.ledger.clone(), clock).get(&get).await)
            })
        })
    }

    /// One step of the core's own side at a replica whose clock shows `now`.
    pub(super) fn core(
        &self,
        saga: SagaId,
        command: Command,
        now: Timestamp,
        table: usize,
    ) -> Answer {
        self.run(move |rooms| {
            Box::pin(async move {
                let rate = RATES[table % RATES.len()].to_owned();
                let rates = RateTable::new(&BTreeMap::from([("EUR/USD".to_owned(), rate)]))?;
                let clock = Clock::told("core", "0", Arc::new(move || now));
                let source = RateSource::Table(Arc::new(rates));
                let core = CoreSide::new(rooms.payments.clone(), source, clock);
                Ok(core.perform(&saga, &command).await)
            })
        })
    }

    /// Closes a customer's wallet, or opens it again.
    pub(super) fn door(&self, region: &str, customer: &str, open: bool, now: Timestamp) {
        let (region, customer) = (region.to_owned(), customer.to_owned());
        self.run(move |rooms| {
            Box::pin(async move {
                let ledger = &rooms.room(&region)?.ledger;
                let customer = CustomerId::new(customer)?;
                if open {
                    ledger.open_wallet(&customer, None, now).await?;
                } else {
                    // He may have none yet.
                    drop(ledger.close_wallet(&customer, now).await);
                }
                Ok(())
            })
        });
    }

    /// Balances and payments as they stand.
    #[must_use]
    pub(super) fn at_rest(&self) -> Vec<Observation> {
        self.run(|rooms| {
            Box::pin(async move {
                let mut seen = Vec::new();
                for (region, room) in &mut rooms.wallets {
                    room.balances(region, &mut seen).await?;
                }
                let rows = sqlx::query("SELECT saga_id, status, credited_minor FROM payments")
                    .fetch_all(&mut rooms.payment_reader)
                    .await?;
                for row in rows {
                    seen.push(Observation::PaymentSeen(PaymentRow {
                        saga: row.get::<Option<String>, _>(0).unwrap_or_default(),
                        status: row.get(1),
                        credited_minor: row.get(2),
                    }));
                }
                Ok(seen)
            })
        })
    }
}

impl Rooms {
    async fn open(name: &str) -> anyhow::Result<Self> {
        let mut wallets = BTreeMap::new();
        for region in REGIONS {
            let url = format!("sqlite:file:{name}-{region}?mode=memory&cache=shared");
            let room = Room {
                ledger: Ledger::open(&url).await?,
                reader: SqliteConnection::connect(&url).await?,
                last_entry: 0,
            };
            wallets.insert(region.to_owned(), room);
        }
        let url = format!("sqlite:file:{name}-payments?mode=memory&cache=shared");
        let regions = REGIONS
            .iter()
            .map(|region| Region::new(*region))
            .collect::<Result<Vec<_>, _>>()?;
        let regions = Regions::new(regions, Region::new(REGIONS[0])?);
        Ok(Self {
            payments: Payments::open(&url, 1, regions, RegionCache::Off).await?,
            payment_reader: SqliteConnection::connect(&url).await?,
            wallets,
        })
    }

    fn room(&mut self, region: &str) -> anyhow::Result<&mut Room> {
        let room = self.wallets.get_mut(region);
        room.ok_or_else(|| anyhow::anyhow!("no region {region}"))
    }
}

impl Room {
    /// Reads these operations, and the entries that have come since the last look.
    async fn look(&mut self, wallet: &str, ids: &[String]) -> anyhow::Result<Vec<Observation>> {
        let mut seen = Vec::new();
        for id in ids {
            let row = sqlx::query(
                "SELECT operation_id, saga_id, kind, state FROM operations WHERE operation_id = $1",
            )
            .bind(id)
            .fetch_optional(&mut self.reader)
            .await?;
            seen.extend(row.map(|row| {
                Observation::OperationSeen(OperationRow {
                    wallet: wallet.to_owned(),
                    operation: row.get(0),
                    saga: row.get::<Option<String>, _>(1).unwrap_or_default(),
                    kind: row.get(2),
                    state: row.get(3),
                })
            }));
        }
        let rows = sqlx::query(
            "SELECT e.entry_id, o.operation_id, a.owner_kind, a.owner_key, a.currency, \
             e.amount_minor, r.operation_id FROM entries e \
             JOIN operations o ON o.operation_key = e.operation_key \
             JOIN accounts a ON a.account_id = e.account_id \
             LEFT JOIN operations r ON r.operation_key = e.reverses_key \
             WHERE e.entry_id > $1 ORDER BY e.entry_id",
        )
        .bind(self.last_entry)
        .fetch_all(&mut self.reader)
        .await?;
        for row in rows {
            self.last_entry = row.get(0);
            seen.push(Observation::EntrySeen(EntryRow {
                wallet: wallet.to_owned(),
                operation: row.get(1),
                owner_kind: row.get(2),
                owner: row.get(3),
                currency: row.get(4),
                amount_minor: row.get(5),
                reverses: row.get::<Option<String>, _>(6).unwrap_or_default(),
            }));
        }
        Ok(seen)
    }

    async fn balances(&mut self, wallet: &str, seen: &mut Vec<Observation>) -> anyhow::Result<()> {
        let rows = sqlx::query(
            "SELECT owner_key, currency, balance_minor FROM accounts WHERE owner_kind = 'customer'",
        )
        .fetch_all(&mut self.reader)
        .await?;
        seen.extend(rows.iter().map(|row| Observation::BalanceSeen {
            wallet: wallet.to_owned(),
            customer: row.get(0),
            currency: row.get(1),
            balance_minor: row.get(2),
        }));
        Ok(())
    }
}
