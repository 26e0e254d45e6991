//! Three Redis servers that know nothing of each other, as Redlock wants them.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result};
use redis::Client;

use crate::arguments::Durability;
use crate::servers::process::{ServerProcess, address, empty_directory, until, version};

pub(crate) const PROGRAM: &str = "/usr/bin/redis-server";

const PORT: u16 = 6379;

/// Starts them, and waits until they answer.
pub(crate) async fn start(
    root: &Path,
    servers: usize,
    durability: Durability,
) -> Result<Vec<ServerProcess>> {
    let root = empty_directory(root, "redis")?;
    let mut started = Vec::new();
    for number in 0..servers {
        let directory = root.join(number.to_string());
        let host = address(number).to_string();
        let port = PORT.to_string();
        let mut command = vec![PROGRAM, "--bind", &host, "--port", &port, "--save", ""];
        command.extend_from_slice(match durability {
            Durability::Usual => &["--appendonly", "no"],
            Durability::Synced => &["--appendonly", "yes", "--appendfsync", "always"],
        });
        let command = command.into_iter().map(str::to_owned).collect();
        let listens = vec![SocketAddr::from((address(number), PORT))];
        started.push(ServerProcess::start(&directory, command, listens)?);
    }
    until("Redis answers", async || {
        for server in &mut started {
            server.check()?;
            requests(server).await?;
        }
        Ok(true)
    })
    .await?;
    Ok(started)
}

/// How many requests of locks a server has had: those that set, and scripts that delete.
pub(crate) async fn requests(server: &ServerProcess) -> Result<u64> {
    let client = Client::open(format!("redis://{}/", server.listens()))?;
    let mut connection = client.get_multiplexed_async_connection().await?;
    let statistics: String =
        redis::cmd("INFO").arg("commandstats").query_async(&mut connection).await?;
    let of_locks = ["cmdstat_set:", "cmdstat_eval:", "cmdstat_evalsha:"];
    let mut requests = 0;
    for line in statistics.lines() {
        if of_locks.iter().any(|command| line.starts_with(command)) {
            let calls = line.split_once("calls=").and_then(|(_, rest)| rest.split(',').next());
            requests += calls.context("a command has a number of calls")?.parse::<u64>()?;
        }
    }
    Ok(requests)
}

pub(crate) fn installed_version() -> Result<String> {
    let said = version(PROGRAM, &["--version"], "v=")?;
    let version = said.split_whitespace().find_map(|word| word.strip_prefix("v="));
    Ok(version.context("it says its version")?.to_owned())
}
