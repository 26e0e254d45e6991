//! One name that many clients wait for, each with a place of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use bakery_lock::{LockClient, LockError, Statistics};
use common::quantiles::Quantiles;
use common::record::Record;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::arguments::Sizes;
use crate::ground::{Ground, bar, builder};

pub(crate) const MEASURE: &str = "waiters";
pub(crate) const CLIENTS: &str = "clients";

/// So long a client waits.
const PATIENCE: Duration = Duration::from_secs(300);

/// This many clients may come at once. When a thousand do, each reading the rows of all, reads take
/// longer than the time limit of a request, on the two cores for which this is made.
const AT_ONCE: u32 = 512;

/// What passes between the arrivals of more than that: less than between two grants, so that the
/// queue grows.
const APART: Duration = Duration::from_millis(40);

/// How many clients warm what contention needs.
const WARMING: u32 = 32;

pub(crate) async fn measure(ground: &Ground<'_>, sizes: &Sizes) -> Result<Vec<Record>> {
    let began = Instant::now();
    while began.elapsed() < sizes.warm {
        contend(ground, WARMING, sizes).await?;
    }
    let mut records = Vec::new();
    let progress = bar(sizes.waiters.len() as u64, "numbers of waiters");
    for &number in sizes.waiters {
        records.push(contend(ground, number, sizes).await?);
        progress.inc(1);
    }
    progress.finish_and_clear();
    Ok(records)
}

/// Clients whose callers do not take turns: each acquisition goes through the table.
async fn build(ground: &Ground<'_>, number: u32) -> Result<Vec<LockClient>> {
    let mut clients = Vec::new();
    for _ in 0..number {
        let builder = builder(ground.cluster).local_handoff(false).acquire_timeout(PATIENCE);
        clients.push(builder.build().await?);
    }
    Ok(clients)
}

/// Lets all of them lock and unlock one name, until there were enough grants. The last locks of
/// each, when the queue gets shorter, count too, so there are several for each.
async fn contend(ground: &Ground<'_>, number: u32, sizes: &Sizes) -> Result<Record> {
    let clients = build(ground, number).await?;
    let apart = if number > AT_ONCE { APART } else { Duration::ZERO };
    let grants = sizes.grants.max(number * 2);
    let (name, left) = (ground.new_name("waited-for"), Arc::new(AtomicU32::new(grants)));
    let before: Vec<_> = clients.iter().map(LockClient::statistics).collect();
    let (began, mut tasks) = (Instant::now(), JoinSet::new());
    for (client, earlier) in clients.iter().zip(0..) {
        let (client, name, left) = (client.clone(), name.clone(), Arc::clone(&left));
        tasks.spawn(async move {
            sleep(apart * earlier).await;
            let (mut waits, mut gave_up) = (Vec::new(), 0_u32);
            let take = |left: u32| left.checked_sub(1);
            while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok() {
                let asked = Instant::now();
                match client.lock(&name).await {
                    Ok(guard) => {
                        waits.push(u64::try_from(asked.elapsed().as_nanos())?);
                        guard.unlock().await?;
                    }
                    Err(LockError::TimedOut { .. }) => gave_up += 1,
                    Err(error) => return Err(error.into()),
                }
            }
            anyhow::Ok((waits, gave_up))
        });
    }
    let (mut waits, mut gave_up) = (Vec::new(), 0);
    while let Some(done) = tasks.join_next().await {
        let (its_waits, its_gave_up) = done??;
        waits.extend(its_waits);
        gave_up += its_gave_up;
    }
    let time = began.elapsed();
    let sum = |part: fn(&Statistics) -> u64| -> f64 {
        let pairs = clients.iter().zip(&before);
        let parts = pairs.map(|(client, before)| part(&client.statistics()) - part(before));
        parts.sum::<u64>() as f64
    };
    let all = waits.len() as f64;
    let mut record = Record::new(0, "table only", MEASURE, Some((CLIENTS, u64::from(number))));
    record.number("grants_per_second", all / time.as_secs_f64());
    record.number("handoff_ms", time.as_secs_f64() * 1e3 / all);
    record.number("operations_per_grant", sum(Statistics::operations) / all);
    record.number("bound", 7.0 + 2.0 * f64::from(number).log2());
    record.number("whole_reads_per_grant", sum(|all| all.object_reads) / all);
    record.number("contender_reads_per_grant", sum(|all| all.contender_reads) / all);
    record.number("failed", sum(|all| all.unknown_outcomes + all.failures));
    record.number("gave_up", f64::from(gave_up));
    record.quantiles("wait_ms", Quantiles::milliseconds(waits));
    for client in clients {
        client.shutdown().await?;
    }
    Ok(record)
}
