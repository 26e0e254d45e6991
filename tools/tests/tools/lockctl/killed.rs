//! `show` of holders that are killed, and of living ones under load.

use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime};

use bakery_lock::{LockClient, LockError};
use chrono::{DateTime, Utc};
use rand::Rng;
use serde_json::Value;
use support::environment::{chance, number};
use support::pace;
use tokio::process::Child;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::{client, json, s};
use crate::command::{Tool, paced};

/// The TTL of the holders, in seconds. By default renewals are due after 10 s, on a slow machine
/// later.
const TTL: &str = "BAKERY_LOCK_KILLED_TTL";
const TTL_DEFAULT: u64 = 30;

/// By how much a renewal may be late before it is told: how far clocks may differ, and a second.
const DOUBT: Duration = s(2);

/// By how much the rest of a TTL is rounded down, at most. A renewal is due after a third of the
/// TTL, so it seems to be late by up to a third of this.
const ROUNDING: Duration = s(1);

const KILLED: usize = 4;
const LIVING: usize = 4;

/// How often living holders are looked at, at least; a thousand times takes some minutes.
const LOOKS: &str = "BAKERY_LOCK_LOOKS";
const LOOKS_DEFAULT: usize = 20;

// Goal: `show` tells that a killed holder has stopped renewing, within a third of its TTL and two
// seconds of the kill; it never says so of one that renews in time, while others keep the cluster
// busy.
// Method: `lockctl run` as holders, some of them killed at random moments; clients that lock as
// fast as they can; look at all of them in turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes long; scripts/nightly runs it"]
async fn killed_holder_is_told_and_a_living_one_never() {
    let mut chance = chance();
    let looks = number(LOOKS).unwrap_or(LOOKS_DEFAULT);
    let tool = Tool::initialized("killed").await;
    tool.done(&["add", "web1"]).await;
    let load = load(&tool).await;
    let killed: Vec<_> = (0..KILLED).map(|number| hold(&tool, format!("killed{number}"))).collect();
    let living: Vec<_> = (0..LIVING).map(|number| hold(&tool, format!("living{number}"))).collect();
    for holder in killed.iter().chain(&living) {
        pace::until("a lock is held", async || {
            show(&tool, &holder.name).await["state"] == "holding"
        })
        .await;
    }
    let killing = killed.into_iter().map(|holder| {
        let after = chance.random_range(Duration::ZERO..ttl());
        let tool = tool.clone();
        async move { kill(&tool, holder, after).await }
    });
    let mut killing: JoinSet<_> = killing.collect();
    let (mut looks_left, began, mut late) = (looks, Instant::now(), 0);
    while looks_left > 0 || !killing.is_empty() {
        for holder in &living {
            let seen = show(&tool, &holder.name).await;
            assert_eq!(seen["state"], "holding", "{seen}");
            if !seen["overdue_seconds"].is_null() {
                assert!(age(&seen) + ROUNDING / 3 > due(), "it has renewed in time: {seen}");
                late += 1;
            }
            looks_left = looks_left.saturating_sub(1);
            if looks_left.is_multiple_of(100) {
                println!("{} of {looks} looks after {:.0?}", looks - looks_left, began.elapsed());
            }
        }
        if looks_left == 0 {
            while let Some(told) = killing.join_next().await {
                told.expect("no killed holder is missed");
            }
        }
    }
    println!(
        "{looks} looks at living holders, {late} of them late; {} grants meanwhile",
        grants(&load)
    );
    for mut holder in living {
        holder.process.kill().await.expect("it runs");
    }
}

fn ttl() -> Duration {
    number(TTL).map_or_else(|| paced(TTL_DEFAULT), s)
}

/// How old rows may be that were renewed in time.
fn due() -> Duration {
    ttl() / 3 + DOUBT
}

/// How old the rows of a holder are after a look at it.
fn age(seen: &Value) -> Duration {
    let renewed = seen["renewed_at"].as_str().map(DateTime::parse_from_rfc3339);
    let renewed = renewed.expect("it is a time").expect("it is a time");
    let age = DateTime::<Utc>::from(SystemTime::now()) - renewed.to_utc();
    age.to_std().expect("it lies in the past")
}

/// `lockctl run` with a lock.
struct Holder {
    name: String,
    process: Child,
}

fn hold(tool: &Tool, name: String) -> Holder {
    let ttl = format!("{}s", ttl().as_secs());
    let arguments = ["run", "--host", "web1", "--ttl", &ttl, &name, "--", "sleep", "3600"];
    let mut command = tool.lockctl_command(&arguments);
    let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    Holder { name, process: process.expect("the tool starts") }
}

/// Kills a holder, and waits until `show` tells.
async fn kill(tool: &Tool, mut holder: Holder, after: Duration) {
    sleep(after).await;
    holder.process.start_kill().expect("it runs");
    let killed = Instant::now();
    holder.process.wait().await.expect("it was started here");
    let (told, seen) = loop {
        let asked = Instant::now();
        let seen = show(tool, &holder.name).await;
        if !seen["overdue_seconds"].is_null() {
            break (asked - killed, seen);
        }
        assert!(!seen.is_null(), "its rows expired before it was told");
        // Looks that begin later can't show less.
        assert!(asked - killed <= due() + s(1), "not told: {seen}");
        sleep(Duration::from_millis(200)).await;
    };
    println!("ttl {:?}: told {told:.1?} after the kill: {seen}", ttl());
}

/// The holder of a lock as `show --json` has it; null if there is none.
async fn show(tool: &Tool, name: &str) -> Value {
    json(&tool.lockctl(&["show", name, "--json"]).await)["contenders"][0].clone()
}

/// Clients that lock names as fast as they can.
async fn load(tool: &Tool) -> Vec<LockClient> {
    let mut clients = Vec::new();
    for number in 0..4 {
        let client = client(tool, &format!("load{number}")).await;
        clients.push(client.clone());
        tokio::spawn(async move {
            loop {
                match client.lock(&format!("busy{}", number % 2)).await {
                    Ok(guard) => drop(guard.unlock().await),
                    // At the end of the test it would be answered at once, for ever.
                    Err(LockError::Closed) => break,
                    // Under load some may time out.
                    Err(_) => {}
                }
            }
        });
    }
    clients
}

fn grants(clients: &[LockClient]) -> u64 {
    clients.iter().map(|client| client.statistics().grants).sum()
}
