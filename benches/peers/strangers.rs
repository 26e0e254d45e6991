//! What strangers and a hostile guest cost a keeper and its guests.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bakery_lock::testing::flood;
use bakery_lock::{LockClient, Uuid};
use support::scene::Scene;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::sleep;

use crate::guests::{Guest, build, line};
use crate::peer;
use crate::process::{Process, Task};

/// Each block is measured this often, with and without, in turn.
const ROUNDS: usize = 3;

/// A guest that is not connected by then is refused.
const CONNECTED_MAX: Duration = Duration::from_secs(30);

/// A stranger whose connection was closed comes again after this time.
const COME_AGAIN: Duration = Duration::from_secs(5);

/// What they cost.
pub(crate) struct Strangers {
    guests: usize,
    strangers: usize,
    /// Until all guests, which came at once, were connected.
    connected: Duration,
    handoffs: Rates,
    /// Of the keeper's own callers, without and with a guest that floods the keeper.
    own_grants: Rates,
    /// How many messages that guest sent, a second.
    flood: f64,
}

/// Rates of blocks, a second: without and with what is measured.
#[derive(Default)]
struct Rates {
    without: Vec<f64>,
    with: Vec<f64>,
}

impl Rates {
    fn medians(&self) -> [f64; 2] {
        [&self.without, &self.with].map(|rates| {
            let mut rates = rates.clone();
            rates.sort_by(f64::total_cmp);
            rates[rates.len() / 2]
        })
    }
}

/// Lets guests come at once and be served, without and with strangers; then lets a guest flood a
/// keeper whose own callers lock.
pub(crate) async fn measure(
    scene: &Scene,
    guests: usize,
    strangers: usize,
    length: Duration,
) -> Result<Strangers> {
    let (connected, handoffs) = beside_strangers(scene, guests, strangers, length).await?;
    let (own_grants, flood) = beside_a_flood(scene, length).await?;
    Ok(Strangers { guests, strangers, connected, handoffs, own_grants, flood })
}

async fn beside_strangers(
    scene: &Scene,
    guests: usize,
    strangers: usize,
    length: Duration,
) -> Result<(Duration, Rates)> {
    let name = support::unique("strangers");
    let mut keeper = Process::start(scene, Task::Keep, &name, guests).await?;
    let (_, address) = keeper_of(scene).await?;
    let clients = build(scene, guests).await?;
    let connected = connect(&clients, &name).await?;
    let line = line(&clients, &name).await?;
    // Without a caller of its own the keeper would have no place once the line is empty.
    keeper.join().await?;
    keeper.release().await?;
    let handoffs = Arc::<AtomicU64>::default();
    let mut serving = JoinSet::new();
    for guest in line {
        serving.spawn(serve(guest, name.clone(), Arc::clone(&handoffs)));
    }
    let mut rates = Rates::default();
    for _ in 0..ROUNDS {
        let count = async || Ok(handoffs.load(Ordering::Relaxed));
        rates.without.push(rate(count, length).await?);
        let crowd = Crowd::new(address, strangers);
        // Until all of them have come.
        sleep(Duration::from_secs(1)).await;
        rates.with.push(rate(count, length).await?);
        drop(crowd);
        sleep(Duration::from_secs(3)).await;
    }
    serving.shutdown().await;
    for client in clients {
        client.shutdown().await?;
    }
    keeper.end().await?;
    Ok((connected, rates))
}

/// Lets all guests ask the keeper at once who is in its line, and so connect to it. Returns until
/// when all have an answer.
async fn connect(clients: &[LockClient], name: &str) -> Result<Duration> {
    let began = Instant::now();
    let mut asking = JoinSet::new();
    for client in clients {
        let (client, name) = (client.clone(), name.to_owned());
        asking.spawn(async move {
            let mut failure = None;
            while began.elapsed() < CONNECTED_MAX {
                match client.queue(&name).await {
                    Ok(_) => return Ok(()),
                    Err(error) => failure = Some(error),
                }
                sleep(Duration::from_millis(100)).await;
            }
            Err(failure.context("it had no time")?.into())
        });
    }
    asking.join_all().await.into_iter().collect::<Result<Vec<()>>>()?;
    Ok(began.elapsed())
}

async fn beside_a_flood(scene: &Scene, length: Duration) -> Result<(Rates, f64)> {
    let name = support::unique("flooded");
    let mut keeper = Process::start(scene, Task::Busy, &name, 1).await?;
    let (client, _) = keeper_of(scene).await?;
    let guest = peer(scene, None).await?;
    let (mut rates, mut sent) = (Rates::default(), 0);
    for _ in 0..ROUNDS {
        // The flood takes a processor of this machine, wherever it goes.
        let spinning = Spinning::start();
        rates.without.push(own_rate(&mut keeper, length).await?);
        drop(spinning);
        let ends = Instant::now() + length + Duration::from_secs(1);
        let (guest, name) = (guest.clone(), name.clone());
        let flooding = tokio::spawn(async move { flood(&guest, client, &name, ends).await });
        sleep(Duration::from_millis(500)).await;
        rates.with.push(own_rate(&mut keeper, length).await?);
        sent += flooding.await?;
    }
    guest.shutdown().await?;
    keeper.end().await?;
    let seconds = (length + Duration::from_secs(1)).as_secs_f64() * ROUNDS as f64;
    Ok((rates, sent as f64 / seconds))
}

/// A thread that keeps a processor busy until it is dropped.
struct Spinning(Arc<AtomicBool>);

impl Spinning {
    fn start() -> Self {
        let is_over = Arc::<AtomicBool>::default();
        let ends = Arc::clone(&is_over);
        std::thread::spawn(move || while !ends.load(Ordering::Relaxed) {});
        Spinning(is_over)
    }
}

impl Drop for Spinning {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The one client that listens, and where.
async fn keeper_of(scene: &Scene) -> Result<(Uuid, SocketAddr)> {
    let table = format!("SELECT client, addresses FROM \"{}\".lock_peers", scene.keyspace);
    let wait = Duration::from_millis(50);
    loop {
        let answer = scene.session.query_unpaged(table.clone(), ()).await?.into_rows_result()?;
        for row in answer.rows::<(Uuid, Option<Vec<String>>)>()? {
            let (client, addresses) = row?;
            if let Some(address) = addresses.unwrap_or_default().first() {
                return Ok((client, address.parse().context("an address of loopback")?));
            }
        }
        sleep(wait).await;
    }
}

/// Locks and unlocks, and counts.
async fn serve(guest: Guest, name: String, handoffs: Arc<AtomicU64>) -> Result<()> {
    let Guest { client, asking } = guest;
    let mut guard = asking.await??;
    loop {
        handoffs.fetch_add(1, Ordering::Relaxed);
        guard.unlock().await?;
        guard = client.lock(&name).await?;
    }
}

/// How much a count grows in a second.
async fn rate(count: impl AsyncFn() -> Result<u64>, length: Duration) -> Result<f64> {
    let (before, began) = (count().await?, Instant::now());
    sleep(length).await;
    Ok((count().await? - before) as f64 / began.elapsed().as_secs_f64())
}

async fn own_rate(keeper: &mut Process, length: Duration) -> Result<f64> {
    let (before, began) = (keeper.grants().await?, Instant::now());
    sleep(length).await;
    Ok((keeper.grants().await? - before) as f64 / began.elapsed().as_secs_f64())
}

/// Strangers that connect: half of them say nothing, the others begin a handshake. Dropped, they
/// leave.
struct Crowd(Vec<JoinHandle<()>>);

impl Crowd {
    fn new(keeper: SocketAddr, of_each_kind: usize) -> Self {
        let kinds = [[127, 0, 0, 2], [127, 0, 0, 3]].map(Ipv4Addr::from);
        let begins: [&[u8]; 2] = [&[], &[0, 96, 1, 2, 3]];
        let each = kinds.into_iter().zip(begins).flat_map(|kind| vec![kind; of_each_kind]);
        let come = |(from, begin)| tokio::spawn(come_again(keeper, from, begin));
        Crowd(each.map(come).collect())
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        for stranger in &self.0 {
            stranger.abort();
        }
    }
}

async fn come_again(keeper: SocketAddr, from: Ipv4Addr, begin: &'static [u8]) {
    loop {
        // A connection that can't be made is tried again as well.
        let _ = stay(keeper, from, begin).await;
        sleep(COME_AGAIN).await;
    }
}

/// Stays until the other side closes the connection.
async fn stay(keeper: SocketAddr, from: Ipv4Addr, begin: &[u8]) -> std::io::Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((from, 0)))?;
    let mut stream = socket.connect(keeper).await?;
    stream.write_all(begin).await?;
    stream.read_to_end(&mut Vec::new()).await?;
    Ok(())
}

impl fmt::Display for Strangers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Strangers { guests, strangers, connected, handoffs, own_grants, flood } = self;
        let [without, with] = handoffs.medians();
        writeln!(f, "{guests} guests that come at once are connected after {connected:.1?}")?;
        writeln!(
            f,
            "  handoffs a second: {without:.0}; beside {strangers} silent connections and as many \
             that begin a handshake: {with:.0}, {:.2} of those",
            with / without
        )?;
        let [without, with] = own_grants.medians();
        write!(
            f,
            "own callers of a keeper, locks a second: {without:.0}; beside a guest that sends \
             {flood:.0} messages a second: {with:.0}, {:.2} of those",
            with / without
        )
    }
}
