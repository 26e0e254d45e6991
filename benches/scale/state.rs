//! What the nodes say of the lock table.

use anyhow::{Context, Result};
use common::cluster::{KEYSPACE, TestCluster};

/// The first node's lock table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct State {
    /// Files of rows on disk,
    pub(crate) files: u64,
    /// and the bytes in them.
    pub(crate) bytes: u64,
    pub(crate) flushes: u64,
    /// Those that are done, of all tables.
    pub(crate) compactions: u64,
    /// The mean of the last minutes.
    pub(crate) tombstones_per_read: f64,
}

pub(crate) async fn state(cluster: &TestCluster) -> Result<State> {
    let table = format!("{KEYSPACE}.lock_table");
    let said = cluster.nodetool(&["tablestats", &table]).await?;
    let said = said.first().context("there is a node")?;
    let compactions = cluster.nodetool(&["compactionstats"]).await?;
    let compactions = compactions.first().context("there is a node")?;
    Ok(State {
        files: value(said, "SSTable count")?,
        bytes: value(said, "Space used (live)")?,
        flushes: value(said, "Memtable switch count")?,
        compactions: value(compactions, "compactions completed")?,
        tombstones_per_read: value(said, "Average tombstones per slice (last five minutes)")?,
    })
}

fn value<T: std::str::FromStr>(said: &str, key: &str) -> Result<T> {
    let line = said.lines().find_map(|line| line.trim().strip_prefix(key));
    let value = line.and_then(|line| line.trim_start_matches([':', ' ']).trim().parse().ok());
    value.with_context(|| format!("nodetool says no {key}: {said}"))
}
