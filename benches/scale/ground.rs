//! What everything is measured on: a cluster, a client, and pairs of operations in turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use bakery_lock::{LockClient, LockClientBuilder};
use common::bare::BareRows;
use common::cluster::{KEYSPACE, TestCluster};
use common::quantiles::Quantiles;
use common::record::Record;
use indicatif::{ProgressBar, ProgressStyle};
use scylla::client::session::Session;

use crate::arguments::Sizes;
use crate::bare::LockRows;

/// A comparison goes round this many names, as services do that lock rows of a table.
const NAMES: u32 = 512;

/// How long bare rows live.
const BARE_TTL: Duration = Duration::from_secs(60);

/// The names of sides.
pub(crate) const BARE: &str = "bare write, read";
pub(crate) const LIKE_LOCK: &str = "bare, with the lock's columns";
pub(crate) const LOCK: &str = "lock";
pub(crate) const YOUNG: &str = "young names";
pub(crate) const OLD: &str = "the name";

/// A cluster, a client with the defaults, and bare operations beside it.
pub(crate) struct Ground<'a> {
    pub(crate) cluster: &'a TestCluster,
    pub(crate) client: LockClient,
    bare: BareRows,
    like_lock: LockRows,
    names: AtomicU32,
}

/// What is timed in turn with others.
#[derive(Clone, Debug)]
pub(crate) enum Side {
    /// A bare QUORUM write and a bare QUORUM read of some rows, over and over.
    Bare(String),
    /// The same of rows with the lock's columns, and a bare QUORUM delete.
    LikeLock(String),
    /// Lock and unlock, of some names, over and over.
    Names(&'static str, String),
    /// Lock and unlock of one name.
    Name(&'static str, String),
}

impl Side {
    fn label(&self) -> &'static str {
        match self {
            Side::Bare(_) => BARE,
            Side::LikeLock(_) => LIKE_LOCK,
            Side::Names(label, _) | Side::Name(label, _) => label,
        }
    }
}

impl<'a> Ground<'a> {
    pub(crate) async fn new(cluster: &'a TestCluster) -> Result<Self> {
        BareRows::create_table(cluster.session()).await?;
        Ok(Ground {
            cluster,
            client: builder(cluster).build().await?,
            bare: BareRows::prepare(cluster.session(), BARE_TTL).await?,
            like_lock: LockRows::prepare(cluster).await?,
            names: AtomicU32::new(0),
        })
    }

    /// A name that was never used.
    pub(crate) fn new_name(&self, tag: &str) -> String {
        format!("{tag}-{}", self.names.fetch_add(1, Ordering::Relaxed))
    }

    /// Works until the nodes have compiled what they need.
    pub(crate) async fn warm(&self, time: Duration) -> Result<()> {
        let (name, began) = (self.new_name("warm"), Instant::now());
        let sides = [Side::Bare(name.clone()), Side::Names(LOCK, name)];
        let progress = bar(time.as_secs(), "warming");
        while began.elapsed() < time {
            self.in_turn(&sides, 1, 50).await?;
            progress.set_position(began.elapsed().as_secs());
        }
        progress.finish_and_clear();
        Ok(())
    }

    /// Lets the nodes flush their tables.
    pub(crate) async fn flush(&self) -> Result<()> {
        self.cluster.nodetool(&["flush", KEYSPACE]).await?;
        // The programs that do so take processor time and caches from the nodes.
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok(())
    }

    /// Times all sides in turn: a record for each.
    pub(crate) async fn compare(&self, sides: &[Side], sizes: &Sizes) -> Result<Vec<Record>> {
        let times = self.in_turn(sides, sizes.blocks, sizes.pairs_per_block).await?;
        let mut records = Vec::new();
        for (side, times) in sides.iter().zip(times) {
            let mut record = Record::new(0, side.label(), "", None);
            let of = |figure: fn(&[u64; 2]) -> u64| {
                Quantiles::milliseconds(times.iter().map(figure).collect())
            };
            record.quantiles("lock_ms", of(|[lock, _]| *lock));
            record.quantiles("both_ms", of(|[lock, unlock]| lock + unlock));
            records.push(record);
        }
        Ok(records)
    }

    async fn in_turn(&self, sides: &[Side], blocks: u32, pairs: u32) -> Result<Vec<Vec<[u64; 2]>>> {
        let mut times = vec![Vec::new(); sides.len()];
        for block in 0..blocks {
            // The side that begins rotates.
            for offset in 0..sides.len() {
                let number = (block as usize + offset) % sides.len();
                for pair in block * pairs..(block + 1) * pairs {
                    times[number].push(self.pair(&sides[number], pair % NAMES).await?);
                }
            }
        }
        Ok(times)
    }

    async fn pair(&self, side: &Side, number: u32) -> Result<[u64; 2]> {
        match side {
            Side::Bare(tag) => self.bare(&format!("{tag}-{number}")).await,
            Side::LikeLock(tag) => self.like_lock.pair(&format!("{tag}-{number}")).await,
            Side::Names(_, tag) => lock_and_unlock(&self.client, &format!("{tag}-{number}")).await,
            Side::Name(_, name) => lock_and_unlock(&self.client, name).await,
        }
    }

    async fn bare(&self, name: &str) -> Result<[u64; 2]> {
        let began = Instant::now();
        self.bare.write(name).await?;
        let written = began.elapsed();
        self.bare.read(name).await?;
        Ok([nanoseconds(written), nanoseconds(began.elapsed() - written)])
    }
}

/// A builder of clients that wait for long.
pub(crate) fn builder(cluster: &TestCluster) -> LockClientBuilder {
    builder_on(cluster.session())
}

pub(crate) fn builder_on(session: &Arc<Session>) -> LockClientBuilder {
    LockClient::builder(Arc::clone(session), KEYSPACE)
        .host("bench")
        .register_host(true)
        .acquire_timeout(Duration::from_secs(600))
}

pub(crate) async fn lock_and_unlock(client: &LockClient, name: &str) -> Result<[u64; 2]> {
    let began = Instant::now();
    let guard = client.lock(name).await?;
    let locked = began.elapsed();
    guard.unlock().await?;
    Ok([nanoseconds(locked), nanoseconds(began.elapsed() - locked)])
}

/// A progress bar for this many steps.
pub(crate) fn bar(steps: u64, what: &str) -> ProgressBar {
    let style =
        ProgressStyle::with_template("{elapsed_precise} {wide_bar} {pos}/{len} {msg}, {eta} left");
    let bar = ProgressBar::new(steps).with_style(style.expect("the template is valid"));
    bar.set_message(what.to_owned());
    // Logs have no bar.
    if bar.is_hidden() {
        eprintln!("{what}: {steps}");
    }
    bar
}

pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
