//! Three Redis servers that know nothing of each other, as Redlock and our lock on Redis want them.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bakery_lock::Masters;
use bakery_lock::masters::{self, InitOptions};
use common::resp::Connection;
use redis::{AsyncConnectionConfig, Client};

use crate::arguments::Durability;
use crate::servers::process::{START_MAX, ServerProcess, address, empty_directory, until, version};
use crate::servers::relay::Relay;

pub(crate) const PROGRAM: &str = "/usr/bin/redis-server";

const PORT: u16 = 6379;

/// The number of the first address that relays have: 127.0.0.71.
const RELAYS_FROM: usize = 10;

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

/// The addresses as clients take them.
pub(crate) fn urls(addresses: &[String]) -> Vec<String> {
    addresses.iter().map(|address| format!("redis://{address}/")).collect()
}

/// Makes a lock table of our lock, the default one without a name. It is used at once: no lock
/// was held in it before.
pub(crate) async fn make_lock_table(servers: &[ServerProcess], name: Option<&str>) -> Result<()> {
    let addresses: Vec<_> = servers.iter().map(|server| server.listens().to_string()).collect();
    let masters = Masters::connect(urls(&addresses)).await?;
    let options = InitOptions::new().fresh(true);
    let options = match name {
        Some(name) => options.lock_table(name),
        None => options,
    };
    masters::init(&masters, &options).await.context("could not make a lock table on Redis")?;
    masters.close();
    Ok(())
}

/// Puts a relay in front of each server, which makes a round trip this much longer.
pub(crate) fn relays(servers: &[ServerProcess], delay: Duration) -> Result<Vec<Relay>> {
    let mut relays = Vec::new();
    for (number, server) in servers.iter().enumerate() {
        let listens = SocketAddr::from((address(RELAYS_FROM + number), PORT));
        let relay = Relay::start(listens, server.listens())?;
        relay.set_delay(delay / 2);
        // A relay takes time itself, which is not to be added.
        let [direct, relayed] = round_trips(server, &relay)?;
        let excess = relayed.saturating_sub(direct + delay);
        relay.set_delay(delay.saturating_sub(excess) / 2);
        relays.push(relay);
    }
    Ok(relays)
}

/// How long a PING of a server takes, directly and by its relay.
pub(crate) fn round_trips(server: &ServerProcess, relay: &Relay) -> Result<[Duration; 2]> {
    Ok([round_trip(server.listens())?, round_trip(relay.listens())?])
}

/// The median of some.
fn round_trip(address: SocketAddr) -> Result<Duration> {
    const TIMES: usize = 201;
    let mut connection = Connection::tcp(address)?;
    let mut times = Vec::new();
    for _ in 0..TIMES {
        let began = Instant::now();
        connection.call(b"PING\r\n", b"+PONG\r\n")?;
        times.push(began.elapsed());
    }
    times.sort_unstable();
    Ok(times[TIMES / 2])
}

/// How many requests of locks a server has had: `SET`, and scripts.
pub(crate) async fn requests(server: &ServerProcess) -> Result<u64> {
    let client = Client::open(format!("redis://{}/", server.listens()))?;
    // By default an answer may take half a second, which crowds of contenders can keep it from.
    let config = AsyncConnectionConfig::new().set_response_timeout(Some(START_MAX));
    let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
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
