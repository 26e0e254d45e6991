//! What locks are used for: the code of `docs/recipes.md`, run on stores in memory.
//!
//!     cargo run --example recipes

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Debug;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bakery_lock::{FencingToken, LockClient, MemoryStore};
use tokio::task::JoinSet;
use tokio::time::sleep;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Creates a user, unless there is one of that name. Returns whether it did.
async fn create_user(client: &LockClient, users: &Table, name: &str) -> Result<bool> {
    let lock = format!("users::{name}");
    let created = client.with_lock(lock, async |_| {
        let is_free = users.read(name).await.is_none();
        if is_free {
            users.write(name, 1).await;
        }
        is_free
    });
    Ok(created.await?)
}

/// Runs a job, unless another machine has run it within the last minute.
async fn run_hourly_job(client: &LockClient, reports: &Table) -> Result<bool> {
    let request = client.request("reports::hourly").min_hold(Duration::from_secs(60));
    let ran = request.try_with_lock(async |_| reports.add("reports", 1).await).await?;
    Ok(ran.is_some())
}

/// Reads what a cache has, and fills it if it has nothing: once, however many ask.
async fn read_through(client: &LockClient, cache: &Table, key: &str) -> Result<i64> {
    if let Some(value) = cache.read(key).await {
        return Ok(value);
    }
    let lock = format!("cache::{key}");
    let value = client.with_lock(lock, async |_| {
        // Another one may have filled it while this one waited.
        if let Some(value) = cache.read(key).await {
            return value;
        }
        let value = compute(cache).await;
        cache.write(key, value).await;
        value
    });
    Ok(value.await?)
}

/// Reads two values that belong together.
async fn read_settings(client: &LockClient, settings: &Table) -> Result<(i64, i64)> {
    let guard = client.request("settings").shared().acquire().await?;
    let low = settings.read("low").await.unwrap_or(0);
    let high = settings.read("high").await.unwrap_or(0);
    guard.unlock().await?;
    Ok((low, high))
}

/// Writes both. Readers go first, for a second at most.
async fn write_settings(client: &LockClient, settings: &Table, by: i64) -> Result<()> {
    let request = client.request("settings").yield_to_shared(Duration::from_secs(1));
    let guard = request.acquire().await?;
    settings.add("low", by).await;
    settings.add("high", by).await;
    guard.unlock().await?;
    Ok(())
}

/// Prints on one of three printers.
async fn print(client: &LockClient, in_use: &AtomicI64) -> Result<i64> {
    let printer = client.request("printers").max_holders(3).acquire().await?;
    let printing = in_use.fetch_add(1, Ordering::Relaxed) + 1;
    sleep(Duration::from_millis(20)).await;
    in_use.fetch_sub(1, Ordering::Relaxed);
    printer.unlock().await?;
    Ok(printing)
}

/// Leads whenever it is elected, until the work is done.
async fn lead(client: &LockClient, priority: u8, work: &Table) -> Result<()> {
    let election = client.election("scheduler").priority(priority);
    Ok(election.lead(async |_| schedule(work).await).await?)
}

/// Moves money. What a stopped process writes after its locks are lost loses against later writes.
async fn transfer(
    client: &LockClient,
    accounts: &Table,
    (from, to): (&str, &str),
    amount: i64,
) -> Result<()> {
    let locks = client.lock_all([from, to]).await?;
    // In the order of the names of the locks.
    for account in locks.guards() {
        let balance = accounts.read(account.name()).await.unwrap_or(0);
        let change = if account.name() == from { -amount } else { amount };
        let token = account.fencing_token().await?;
        accounts.write_with(token, account.name(), balance + change).await;
    }
    locks.unlock().await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    let client = LockClient::builder_in_memory(&MemoryStore::new()).build().await?;
    let table: &'static Table = Box::leak(Box::default());

    let created =
        many(&client, move |client| async move { create_user(&client, table, "snap").await });
    let created = created.await?.into_iter().filter(|created| *created).count();
    expect("users created", &created, &1)?;

    let ran = many(&client, move |client| async move { run_hourly_job(&client, table).await });
    let ran = ran.await?.into_iter().filter(|ran| *ran).count();
    expect("runs of the hourly job", &ran, &1)?;

    let values =
        many(&client, move |client| async move { read_through(&client, table, "answer").await });
    expect("answers from the cache", &values.await?, &vec![42; CALLERS])?;
    expect("computed", &table.read("computed").await, &Some(1))?;

    let seen = many(&client, move |client| async move {
        write_settings(&client, table, 7).await?;
        read_settings(&client, table).await
    });
    let torn = seen.await?.into_iter().filter(|(low, high)| low != high).count();
    expect("settings that did not belong together", &torn, &0)?;

    let in_use: &'static AtomicI64 = Box::leak(Box::default());
    let printing = many(&client, move |client| async move { print(&client, in_use).await });
    expect("printers in use at most", &printing.await?.into_iter().max(), &Some(3))?;

    many(&client, move |client| async move { lead(&client, 1, table).await }).await?;
    expect("times that work was scheduled", &table.read("scheduled").await, &Some(8))?;

    for account in ["accounts::1", "accounts::2"] {
        table.write(account, 100).await;
    }
    many(&client, move |client| async move {
        transfer(&client, table, ("accounts::1", "accounts::2"), 10).await?;
        transfer(&client, table, ("accounts::2", "accounts::1"), 5).await
    })
    .await?;
    let balances = (table.read("accounts::1").await, table.read("accounts::2").await);
    expect("balances", &balances, &(Some(60), Some(140)))?;

    Ok(client.shutdown().await?)
}

const CALLERS: usize = 8;

/// Does something with several callers at once.
async fn many<T: Send + 'static, F: Future<Output = Result<T>> + Send + 'static>(
    client: &LockClient,
    work: impl Fn(LockClient) -> F,
) -> Result<Vec<T>> {
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        callers.spawn(work(client.clone()));
    }
    callers.join_all().await.into_iter().collect()
}

fn expect<T: PartialEq + Debug>(what: &str, value: &T, expected: &T) -> Result<()> {
    println!("{what}: {value:?}");
    if value == expected { Ok(()) } else { Err(format!("it should be {expected:?}").into()) }
}

async fn compute(cache: &Table) -> i64 {
    cache.add("computed", 1).await;
    42
}

async fn schedule(work: &Table) {
    work.add("scheduled", 1).await;
}

/// Rows as of a database: each read and each write takes a while, and others come in between.
#[derive(Default)]
struct Table {
    /// The value of each row, and the token that it was written with.
    rows: Mutex<BTreeMap<String, (i64, i64)>>,
}

impl Table {
    async fn read(&self, name: &str) -> Option<i64> {
        sleep(Duration::from_millis(1)).await;
        self.rows.lock().unwrap_or_else(PoisonError::into_inner).get(name).map(|row| row.0)
    }

    async fn write(&self, name: &str, value: i64) {
        self.write_row(name, value, 0).await;
    }

    /// As `UPDATE .. USING TIMESTAMP` does with the token: the larger one wins.
    async fn write_with(&self, token: FencingToken, name: &str, value: i64) {
        self.write_row(name, value, token.value()).await;
    }

    async fn write_row(&self, name: &str, value: i64, token: i64) {
        sleep(Duration::from_millis(1)).await;
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        let row = rows.entry(name.to_owned()).or_default();
        if token >= row.1 {
            *row = (value, token);
        }
    }

    async fn add(&self, name: &str, amount: i64) -> i64 {
        let value = self.read(name).await.unwrap_or(0) + amount;
        self.write(name, value).await;
        value
    }
}
