//! Clients that take turns of each other over TCP, on the memory store.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bakery_lock::testing::FaultyStore;
use bakery_lock::{BuildError, LineError, LockClient, LockError, LockGuard, PeerOptions};
use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};

const OBJECT: &str = "users::snap";

const ANY_PORT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

async fn client(store: &FaultyStore, options: PeerOptions) -> LockClient {
    let builder = store.client_builder().host("host").register_host(true).peers(options);
    builder.build().await.expect("a client in memory is built")
}

#[derive(Debug, Default)]
struct Stage {
    inside: AtomicI64,
    grants: AtomicU64,
    last_token: AtomicI64,
}

impl Stage {
    async fn work(self: Arc<Self>, client: LockClient, times: u64) {
        for time in 0..times {
            let guard = client.lock(OBJECT).await.expect("each caller is served");
            assert_eq!(self.inside.fetch_add(1, Ordering::SeqCst), 0, "two are inside");
            self.grants.fetch_add(1, Ordering::SeqCst);
            if time % 100 == 0 {
                let token = guard.fencing_token().await.expect("the lock is held").value();
                let before = self.last_token.swap(token, Ordering::SeqCst);
                assert!(token > before, "{token} after {before}");
            }
            self.inside.fetch_sub(1, Ordering::SeqCst);
            guard.unlock().await.expect("the lock was held");
        }
    }
}

// Goal: clients pass a lock on over TCP: all are served, no two at once, tokens grow, and few of
// the grants cost an operation.
// Method: eight clients take the lock 500 times each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_pass_a_lock_on_over_tcp() {
    let store = FaultyStore::new();
    store.delay_calls(ms(2));
    let stage = Arc::<Stage>::default();
    let mut clients = Vec::new();
    for _ in 0..8 {
        clients.push(client(&store, PeerOptions::new(ANY_PORT)).await);
    }
    sleep(ms(200)).await;
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    for client in &clients {
        tasks.spawn(Arc::clone(&stage).work(client.clone(), 500));
    }
    tasks.join_all().await;
    let grants = stage.grants.load(Ordering::SeqCst);
    assert_eq!(grants, 8 * 500);
    let operations: u64 = clients.iter().map(|client| client.statistics().operations()).sum();
    println!("{grants} grants in {:?}, {operations} operations", began.elapsed());
    // Through the table each of them costs ten and more.
    assert!(operations < grants * 2, "{operations} operations for {grants} grants");
    for client in &clients {
        client.shutdown().await.expect("nothing is left");
    }
    assert_eq!(store.live_rows(OBJECT), 0);
}

/// Waits in the line of another client. One that is too busy to answer within 20 ms is left for the
/// table; then it is asked again.
async fn in_line(client: &LockClient) -> JoinHandle<Result<LockGuard, LockError>> {
    for _ in 0..20 {
        let before = client.statistics().deletes;
        let asking = tokio::spawn(client.request(OBJECT).acquire());
        let leaves_the_table = async {
            while client.statistics().deletes == before {
                sleep(ms(5)).await;
            }
        };
        if timeout(Duration::from_secs(1), leaves_the_table).await.is_ok() {
            return asking;
        }
        asking.abort();
        sleep(ms(200)).await;
    }
    panic!("no client let it into its line");
}

/// An address of this machine that is free now.
fn free_address() -> SocketAddr {
    let socket = TcpListener::bind(ANY_PORT).expect("there are free ports");
    socket.local_addr().expect("it is bound")
}

/// How a connection that is none of a client begins.
#[derive(Clone, Copy, Debug)]
enum Stranger {
    Silent,
    Random,
    /// A frame of the largest length that can be said.
    Long,
}

impl Stranger {
    /// Connects, and returns once it is refused.
    async fn call(self, address: SocketAddr, seed: u64) {
        let Ok(mut stream) = TcpStream::connect(address).await else {
            return;
        };
        let mut bytes = [0; 2_000];
        let sent = match self {
            Stranger::Silent => 0,
            Stranger::Random => {
                StdRng::seed_from_u64(seed).fill_bytes(&mut bytes);
                bytes.len()
            }
            Stranger::Long => {
                bytes[..2].fill(0xff);
                bytes.len()
            }
        };
        // The other side may have closed the connection by then.
        let _ = stream.write_all(&bytes[..sent]).await;
        let mut answer = Vec::new();
        let closed = timeout(Duration::from_secs(10), stream.read_to_end(&mut answer)).await;
        assert!(closed.is_ok(), "{self:?}: the connection stays open");
    }
}

// Goal: connections of strangers are refused, and disturb nothing: neither clients that pass a lock
// on, nor one that connects later.
// Method: 10,000 connections, 300 at a time, that say nothing, random bytes or the length of a huge
// frame, and more until two clients have passed a lock on 100 times beside them; then a third one
// joins.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_disturb_nothing() {
    const CONNECTIONS: u64 = 10_000;
    const AT_ONCE: usize = 300;
    const GRANTS: u64 = 100;
    let store = FaultyStore::new();
    store.delay_calls(ms(2));
    let address = free_address();
    let keeper = client(&store, PeerOptions::new(address)).await;
    let guest = client(&store, PeerOptions::new(ANY_PORT)).await;
    sleep(ms(200)).await;
    let stage = Arc::<Stage>::default();
    let is_over = Arc::new(AtomicU64::new(0));
    let mut workers = JoinSet::new();
    for client in [keeper.clone(), guest.clone()] {
        let (stage, is_over) = (Arc::clone(&stage), Arc::clone(&is_over));
        workers.spawn(async move {
            while is_over.load(Ordering::SeqCst) == 0 {
                Arc::clone(&stage).work(client.clone(), 10).await;
            }
        });
    }
    let began = Instant::now();
    let mut strangers = JoinSet::new();
    let mut number = 0;
    while number < CONNECTIONS || stage.grants.load(Ordering::SeqCst) < GRANTS {
        assert!(began.elapsed() < Duration::from_secs(300), "{stage:?} beside {number} strangers");
        let stranger = match number % 50 {
            // Each waits for two seconds.
            0 => Stranger::Silent,
            1..=24 => Stranger::Random,
            _ => Stranger::Long,
        };
        strangers.spawn(stranger.call(address, number));
        number += 1;
        if strangers.len() >= AT_ONCE {
            strangers.join_next().await.expect("there are some").expect("it is refused");
        }
    }
    while let Some(refused) = strangers.join_next().await {
        refused.expect("it is refused");
    }
    is_over.store(1, Ordering::SeqCst);
    workers.join_all().await;
    let grants = stage.grants.load(Ordering::SeqCst);
    println!("{grants} grants beside {number} strangers in {:?}", began.elapsed());

    let held = keeper.lock(OBJECT).await.expect("the lock is free");
    let late = client(&store, PeerOptions::new(ANY_PORT)).await;
    let asking = in_line(&late).await;
    held.unlock().await.expect("the lock was held");
    let guard = asking.await.expect("it does not panic").expect("it is served");
    guard.unlock().await.expect("the lock was held");
    for client in [&keeper, &guest, &late] {
        client.shutdown().await.expect("nothing is left");
    }
    sleep(ms(200)).await;
    let connecting = TcpStream::connect(address).await;
    assert!(connecting.is_err(), "a client that was shut down still listens");
}

// Goal: an operator learns who has a lock and who waits, from a client that keeps no place itself.
// Method: ask while a guest has the turn and a caller of the keeper and a second guest wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_sees_who_is_inside() {
    let store = FaultyStore::new();
    store.delay_calls(ms(2));
    let options = || PeerOptions::new(ANY_PORT);
    let keeper = client(&store, options()).await;
    let [guest, second] = [client(&store, options()).await, client(&store, options()).await];
    let operator = client(&store, options().keep(false)).await;
    sleep(ms(200)).await;
    let nothing = operator.line(OBJECT).await.expect_err("the lock is free");
    assert!(matches!(nothing, LineError::NotHeld { .. }), "{nothing:?}");

    let held = keeper.request(OBJECT).label("nightly job").acquire().await;
    let held = held.expect("the lock is free");
    let line = operator.line(OBJECT).await.expect("the keeper answers");
    let user = line.user.expect("a caller is inside");
    assert_eq!((user.client, user.owner.label()), (line.keeper.client, Some("nightly job")));
    assert_eq!(line.keeper.owner.host_name(), Some("host"));
    assert_eq!((line.waiting, line.first.len()), (0, 0));

    let asking = in_line(&guest).await;
    let later = tokio::spawn(keeper.request(OBJECT).label("later").acquire());
    sleep(ms(50)).await;
    held.unlock().await.expect("the lock was held");
    let turn = asking.await.expect("it does not panic").expect("it is served");
    let waiting = in_line(&second).await;
    let line = operator.line(OBJECT).await.expect("the keeper answers");
    let user = line.user.expect("a guest is inside");
    assert_ne!(user.client, line.keeper.client);
    let [next, last] = &line.first[..] else { panic!("two wait: {:?}", line.first) };
    assert_eq!((next.client, next.owner.label()), (line.keeper.client, Some("later")));
    assert!(![user.client, line.keeper.client].contains(&last.client), "{last:?}");
    assert_eq!(line.waiting, 2);

    turn.unlock().await.expect("the lock was held");
    later.await.expect("it does not panic").expect("it is served").unlock().await.expect("held");
    waiting.await.expect("it does not panic").expect("it is served").unlock().await.expect("held");
    for client in [keeper, guest, second, operator] {
        client.shutdown().await.expect("nothing is left");
    }
}

// Goal: what keeps a client from the line of another one is said.
// Method: ask about a lock whose client keeps no place for others, from a client with options for
// peers and from one without.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_keeps_no_place_can_not_be_asked() {
    let store = FaultyStore::new();
    let without = store.client_builder().host("host").register_host(true);
    let without = without.build().await.expect("a client in memory is built");
    let operator = client(&store, PeerOptions::new(ANY_PORT).keep(false)).await;
    let held = without.request(OBJECT).label("nightly job").acquire().await;
    let held = held.expect("the lock is free");
    let error = operator.line(OBJECT).await.expect_err("it listens nowhere");
    assert!(matches!(error, LineError::NotReached { .. }), "{error:?}");
    assert!(error.to_string().contains("nightly job"), "{error}");
    let own = without.line(OBJECT).await.expect("it is its own");
    assert!(own.user.expect("a caller is inside").owner.label() == Some("nightly job"));
    held.unlock().await.expect("the lock was held");

    let held = operator.lock(OBJECT).await.expect("the lock is free");
    let error = without.line(OBJECT).await.expect_err("it asks none");
    assert!(matches!(error, LineError::AsksNone { .. }), "{error:?}");
    held.unlock().await.expect("the lock was held");
}

// Goal: a guest that finds no place at a keeper takes the lock through the table, and so do all
// that come later.
// Method: a keeper has a place for one guest; a second one asks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_guest_too_many_waits_in_the_table() {
    let store = FaultyStore::new();
    store.delay_calls(ms(2));
    let keeper = client(&store, PeerOptions::new(ANY_PORT).max_guests(1)).await;
    let [guest, second] = [
        client(&store, PeerOptions::new(ANY_PORT)).await,
        client(&store, PeerOptions::new(ANY_PORT)).await,
    ];
    sleep(ms(200)).await;
    let held = keeper.lock(OBJECT).await.expect("the lock is free");
    let first = in_line(&guest).await;
    let later = tokio::spawn(second.request(OBJECT).acquire());
    while store.live_rows(OBJECT) < 3 {
        sleep(ms(5)).await;
    }
    sleep(ms(300)).await;
    assert_eq!(store.live_rows(OBJECT), 3, "it stays in the table");
    held.unlock().await.expect("the lock was held");
    for asking in [first, later] {
        let guard = asking.await.expect("it does not panic").expect("it is served");
        guard.unlock().await.expect("the lock was held");
    }
    for client in [keeper, guest, second] {
        client.shutdown().await.expect("nothing is left");
    }
}

// Goal: callers that stop waiting together leave nothing behind, also if the first one asked the
// client that served it last, and the next one wants what only the table has. After that the lock
// is taken as before.
// Method: a guest has had a turn. One of its callers wants the lock for itself, and another one
// wants to share it, for as long, while the keeper holds it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_give_up_together_leave_nothing() {
    let store = FaultyStore::new();
    store.delay_calls(ms(2));
    let keeper = client(&store, PeerOptions::new(ANY_PORT)).await;
    let guest = client(&store, PeerOptions::new(ANY_PORT)).await;
    sleep(ms(200)).await;
    let held = keeper.lock(OBJECT).await.expect("the lock is free");
    let turn = in_line(&guest).await;
    held.unlock().await.expect("the lock was held");
    let turn = turn.await.expect("it does not panic").expect("it is served");
    turn.unlock().await.expect("the lock was held");

    let held = keeper.lock(OBJECT).await.expect("the lock is free");
    let request = guest.request(OBJECT).timeout(ms(400));
    let both = (request.clone().acquire(), request.shared().acquire());
    let (alone, shared) = tokio::join!(both.0, both.1);
    for answer in [alone, shared] {
        let error = answer.expect_err("the keeper holds the lock");
        assert!(matches!(error, LockError::TimedOut { .. }), "{error:?}");
    }
    held.unlock().await.expect("the lock was held");
    let shared = guest.request(OBJECT).shared().acquire().await.expect("the lock is free");
    shared.unlock().await.expect("the lock was held");
    for client in [keeper, guest] {
        client.shutdown().await.expect("nothing is left");
    }
    assert_eq!(store.live_rows(OBJECT), 0);
}

// Goal: a client that would advertise all addresses of its machine is not built: it would reach
// itself there, and others would reach themselves.
// Method: build one that listens everywhere, with and without an address for others.
#[tokio::test]
async fn a_client_advertises_no_wildcard() {
    let store = FaultyStore::new();
    let anywhere = PeerOptions::new(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)));
    let builder = store.client_builder().host("host").register_host(true);
    let error = builder.clone().peers(anywhere.clone()).build().await;
    let error = error.expect_err("others can't connect to it");
    assert!(matches!(error, BuildError::NotAdvertised { .. }), "{error:?}");
    for fine in [anywhere.clone().advertised("web1:7100"), anywhere.keep(false)] {
        builder.clone().peers(fine).build().await.expect("a client in memory is built");
    }
}
