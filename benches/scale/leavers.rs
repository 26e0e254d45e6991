//! A name that very many clients have used: those that left, and those that died while they waited.
//! What is left of them are dead rows, which reads of all rows of the name meet until they are
//! swept or purged. Nodes walk over swept ones until they flush their tables.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use common::cluster::{TestCluster, connect};
use common::record::Record;
use futures_util::{StreamExt, TryStreamExt, stream};
use serde::{Deserialize, Serialize};
use support::worker::{Worker, next_order, say};
use tokio::task::JoinSet;

use crate::arguments::Sizes;
use crate::ground::{Ground, OLD, Side, YOUNG, bar, builder, builder_on, lock_and_unlock};

pub(crate) const LEFT: &str = "clients left";
pub(crate) const LEFT_FLUSHED: &str = "clients left, nodes flushed";
pub(crate) const DIED: &str = "clients died";
pub(crate) const DIED_FLUSHED: &str = "clients died, nodes flushed";
pub(crate) const CLIENTS: &str = "clients";

/// This many clients come at a time.
const AT_ONCE: usize = 16;

/// Rows of dead clients live no longer. With shorter ones renewals alone keep the nodes busy.
const TTL: Duration = Duration::from_secs(30);

/// They are in the way until their leases have run out, and the nodes are busy before.
const DEAD_WITHIN: Duration = Duration::from_secs(90);

/// Lets clients come, lock a name once, and leave.
pub(crate) async fn left(ground: &Ground<'_>, sizes: &Sizes) -> Result<Vec<Record>> {
    let name = ground.new_name("left");
    let mut records = compare(ground, &name, LEFT, 0, sizes).await?;
    let progress = bar(u64::from(sizes.left.last().copied().unwrap_or(0)), "clients come and go");
    let mut so_far = 0;
    for &number in sizes.left {
        let come = (so_far..number).map(|_| come_and_go(ground.cluster, &name));
        let mut come = stream::iter(come).buffer_unordered(AT_ONCE);
        while come.try_next().await?.is_some() {
            progress.inc(1);
        }
        drop(come);
        so_far = number;
        records.extend(compare(ground, &name, LEFT, number, sizes).await?);
    }
    if ground.cluster.is_own() {
        ground.flush().await?;
        records.extend(compare(ground, &name, LEFT_FLUSHED, so_far, sizes).await?);
    }
    progress.finish_and_clear();
    Ok(records)
}

async fn come_and_go(cluster: &TestCluster, name: &str) -> Result<()> {
    let client = builder(cluster).build().await?;
    lock_and_unlock(&client, name).await?;
    Ok(client.shutdown().await?)
}

/// Lets clients in another process wait for a name, and kills them.
pub(crate) async fn died(ground: &Ground<'_>, sizes: &Sizes) -> Result<Vec<Record>> {
    let mut records = Vec::new();
    let progress = bar(sizes.died.len() as u64, "numbers of clients that die");
    for &clients in sizes.died {
        let name = ground.new_name("died");
        records.extend(compare(ground, &name, DIED, 0, sizes).await?);
        let doomed = Doomed { nodes: ground.cluster.nodes().to_vec(), name: name.clone(), clients };
        let doomed = serde_json::to_string(&doomed)?;
        let mut worker = Worker::start(&["--doomed", &doomed], [])?;
        worker.answer().await.context("the clients that are to die")?;
        // Dropping it kills its process.
        drop(worker);
        let killed = Instant::now();
        ground.client.lock(&name).await?.unlock().await?;
        let mut record = Record::new(clients, OLD, DIED, Some((CLIENTS, u64::from(clients))));
        record.number("next_grant_s", killed.elapsed().as_secs_f64());
        ensure!(killed.elapsed() < DEAD_WITHIN, "the dead were in the way for too long");
        // All of their leases are over then.
        tokio::time::sleep(TTL).await;
        records.push(record);
        records.extend(compare(ground, &name, DIED, clients, sizes).await?);
        if ground.cluster.is_own() {
            ground.flush().await?;
            records.extend(compare(ground, &name, DIED_FLUSHED, clients, sizes).await?);
        }
        progress.inc(1);
    }
    progress.finish_and_clear();
    Ok(records)
}

/// What the process does that is to die.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Doomed {
    nodes: Vec<String>,
    name: String,
    clients: u32,
}

/// Lets clients wait for a name, says so, and continues until it is killed.
pub(crate) async fn wait_for_death(doomed: Doomed) -> Result<()> {
    let session = Arc::new(connect(&doomed.nodes).await?);
    let build = || builder_on(&session).ttl(TTL).local_handoff(false).build();
    let holder = build().await?;
    let _guard = holder.lock(&doomed.name).await?;
    let (mut waiting, mut clients) = (JoinSet::new(), Vec::new());
    for _ in 1..doomed.clients {
        let client = build().await?;
        clients.push(client.clone());
        let name = doomed.name.clone();
        waiting.spawn(async move { client.lock(&name).await.map(drop) });
    }
    // All have their places: contenders are read at QUORUM.
    let all = usize::try_from(doomed.clients)?;
    while holder.contenders(&doomed.name).await?.len() < all {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    say("waiting")?;
    next_order().await?;
    Ok(())
}

/// Times a lock of the name, and locks of young names for comparison.
pub(crate) async fn compare(
    ground: &Ground<'_>,
    name: &str,
    measure: &str,
    clients: u32,
    sizes: &Sizes,
) -> Result<Vec<Record>> {
    let young = ground.new_name("young");
    let sides = [Side::Name(OLD, name.to_owned()), Side::Names(YOUNG, young)];
    let records = ground.compare(&sides, sizes).await?.into_iter();
    let complete = |record| Record {
        half: clients,
        measure: measure.to_owned(),
        parameters: [(CLIENTS.to_owned(), u64::from(clients))].into(),
        ..record
    };
    Ok(records.map(complete).collect())
}
