//! `lockctl`.

mod bench;
mod cases;
mod elect;
mod killed;
mod list;
mod overlaps;
mod processes;
mod revoke;
pub(crate) mod run;
mod selftest;
mod show;
mod start;
mod status;
mod terminal;
mod usage;
mod watch;

use std::collections::BTreeSet;
use std::time::Duration;

use bakery_lock::{ContenderState, LockClient, LockClientBuilder};
use serde_json::Value;
use support::pace;
use support::scene::built;
use tokio::process::Child;

use crate::command::{Answer, Tool};

/// A builder of clients on a host of this name, whose callers wait as long as tests do.
async fn builder(tool: &Tool, host: &str) -> LockClientBuilder {
    let builder = LockClient::builder(support::session().await, tool.keyspace.clone());
    builder.host(host).register_host(true).acquire_timeout(pace::limit())
}

pub(crate) async fn client(tool: &Tool, host: &str) -> LockClient {
    built(builder(tool, host).await).await
}

fn json(answer: &Answer) -> Value {
    assert_eq!((answer.code, answer.stderr.as_str()), (Some(0), ""), "{answer:?}");
    serde_json::from_str(&answer.stdout).expect("the tool prints JSON")
}

/// The names of all locks that have rows, of holders or waiters.
async fn in_use(tool: &Tool) -> BTreeSet<String> {
    let select = format!("SELECT object_name, row_name FROM \"{}\".lock_table", tool.keyspace);
    let session = support::session().await;
    let found = loop {
        // A whole table is read slowly while other tests keep the cluster busy.
        match session.query_unpaged(select.as_str(), ()).await {
            Ok(found) => break found.into_rows_result().expect("there are rows"),
            Err(error) => println!("read again: {error}"),
        }
    };
    let rows = found.rows::<(String, Option<String>)>().expect("they are text");
    // What has only a fencing token has no row.
    let rows = rows.map(|row| row.expect("it can be read"));
    rows.filter_map(|(name, row)| row.map(|_| name)).collect()
}

/// Waits until a lock is in use whose name begins with this, which a tool takes.
async fn until_in_use(tool: &Tool, prefix: &str, taker: &mut Child) {
    pace::until("a tool takes a lock", async || {
        let ended = taker.try_wait().expect("it was started here");
        assert_eq!(ended, None, "it ended before it took a lock");
        in_use(tool).await.iter().any(|name| name.starts_with(prefix))
    })
    .await;
}

/// Waits until a client waits for a lock, with a ticket.
pub(crate) async fn until_waits(observer: &LockClient, name: &str) {
    pace::until("a client waits with a ticket", async || {
        let all = observer.contenders(name).await.expect("the cluster answers");
        let mut waiting = all.iter().filter(|one| one.state == Some(ContenderState::Waiting));
        waiting.any(|one| one.ticket.is_some())
    })
    .await;
}

/// Waits until the rows of a leader say so, which observers look for.
pub(crate) async fn until_observed(observer: &LockClient, name: &str) {
    pace::until("the rows of a leader say so", async || {
        let all = observer.contenders(name).await.expect("the cluster answers");
        all.iter().any(|one| one.held_since.is_some())
    })
    .await;
}

/// The pid of this process, which all owners here have.
fn pid() -> u32 {
    std::process::id()
}

pub(crate) const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

pub(crate) const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
