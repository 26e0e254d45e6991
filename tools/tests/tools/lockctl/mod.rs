//! `lockctl`.

mod bench;
mod elect;
mod killed;
mod list;
mod revoke;
mod run;
mod show;
mod status;
mod usage;
mod verify;
mod watch;

use std::time::Duration;

use bakery_lock::{LockClient, LockClientBuilder};
use serde_json::Value;

use crate::command::{Answer, Tool};

/// A builder of clients on a host of this name.
async fn builder(tool: &Tool, host: &str) -> LockClientBuilder {
    let builder = LockClient::builder(support::session().await, tool.keyspace.clone());
    builder.host(host).register_host(true)
}

pub(crate) async fn client(tool: &Tool, host: &str) -> LockClient {
    builder(tool, host).await.build().await.expect("the cluster is ready")
}

fn json(answer: &Answer) -> Value {
    assert_eq!((answer.code, answer.stderr.as_str()), (Some(0), ""), "{answer:?}");
    serde_json::from_str(&answer.stdout).expect("the tool prints JSON")
}

/// The pid of this process, which all owners here have.
fn pid() -> u32 {
    std::process::id()
}

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

pub(crate) const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
