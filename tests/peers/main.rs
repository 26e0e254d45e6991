//! Clients that take turns of each other over TCP, on the memory store.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bakery_lock::admin::{HolderQueue, QueueError};
use bakery_lock::testing::FaultyStore;
use bakery_lock::{BuildError, LockClient, LockError, LockGuard, PeerOptions};
use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};
use support::{failure, pace};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};

const OBJECT: &str = "users::snap";

const ANY_PORT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// A store that answers at once.
fn quick_store() -> FaultyStore {
    failure::explain();
    FaultyStore::new()
}

/// A store whose calls take two milliseconds.
fn store() -> FaultyStore {
    let store = quick_store();
    store.delay_calls(ms(2));
    store
}

/// A client whose callers wait as long as tests do.
async fn client(store: &FaultyStore, options: PeerOptions) -> LockClient {
    let builder = store.client_builder().host("host").peers(options);
    let builder = builder.acquire_timeout(pace::limit());
    builder.build().await.expect("a client in memory is built")
}

/// Waits until this many clients can be connected to.
async fn until_listening(store: &FaultyStore, clients: usize) {
    pace::until("all clients listen", async || store.live_peers() == clients).await;
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
// Method: eight clients take the lock 500 times each, in rounds, and more until a round cost few
// operations: a client that is too busy to answer within 20 ms is left for the table.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_pass_a_lock_on_over_tcp() {
    const ROUNDS: u64 = 10;
    let store = store();
    let stage = Arc::<Stage>::default();
    let mut clients = Vec::new();
    for _ in 0..8 {
        clients.push(client(&store, PeerOptions::new(ANY_PORT)).await);
    }
    until_listening(&store, clients.len()).await;
    let began = Instant::now();
    let round = || operations_of_a_round(&clients, &stage);
    for _ in 0..ROUNDS {
        pace::within_limit("a round", round()).await;
    }
    // Through the table each grant costs ten and more.
    let few = async { while round().await >= GRANTS_OF_A_ROUND * 2 {} };
    pace::within_limit("a round of few operations", few).await;
    let grants = stage.grants.load(Ordering::SeqCst);
    println!("{grants} grants in {:?}, {} operations", began.elapsed(), operations(&clients));
    for client in &clients {
        client.shutdown().await.expect("nothing is left");
    }
    assert_eq!((store.live_rows(OBJECT), store.live_peers()), (0, 0));
}

const GRANTS_OF_A_ROUND: u64 = 8 * 50;

/// Lets clients share the grants of a round, and counts the operations that they cost.
async fn operations_of_a_round(clients: &[LockClient], stage: &Arc<Stage>) -> u64 {
    let before = (operations(clients), stage.grants.load(Ordering::SeqCst));
    let mut tasks = JoinSet::new();
    for client in clients {
        let times = GRANTS_OF_A_ROUND / clients.len() as u64;
        tasks.spawn(Arc::clone(stage).work(client.clone(), times));
    }
    tasks.join_all().await;
    assert_eq!(stage.grants.load(Ordering::SeqCst) - before.1, GRANTS_OF_A_ROUND);
    operations(clients) - before.0
}

fn operations(clients: &[LockClient]) -> u64 {
    clients.iter().map(|client| client.statistics().operations()).sum()
}

/// A caller that waits.
type Waiting = JoinHandle<Result<LockGuard, LockError>>;

/// Lets a client wait in the line of a keeper. A keeper that is too busy to answer within 20 ms is
/// left for the table; then it is asked again.
async fn in_line(store: &FaultyStore, client: &LockClient, keeper: &LockClient) -> Waiting {
    let mut waiting = None;
    pace::until("a place in a line", async || {
        waiting = ask_keeper(store, client, keeper).await;
        waiting.is_some()
    })
    .await;
    waiting.expect("it was waited for")
}

/// Asks a keeper once. `None` if it was too busy to answer, and nothing is left of that.
async fn ask_keeper(
    store: &FaultyStore,
    client: &LockClient,
    keeper: &LockClient,
) -> Option<Waiting> {
    let look = async || (line(keeper).await.waiting, store.live_rows(OBJECT));
    let (waiting, rows) = look().await;
    let asking = tokio::spawn(client.request(OBJECT).acquire());
    let stands = until_it_lasts(async || look().await == (waiting + 1, rows));
    if timeout(Duration::from_secs(1), stands).await.is_ok() {
        return Some(asking);
    }
    asking.abort();
    pace::until("nothing is left of it", async || look().await == (waiting, rows)).await;
    None
}

/// Waits until a condition holds for longer than a client waits for its first answer.
async fn until_it_lasts(condition: impl AsyncFn() -> bool) {
    loop {
        sleep(ms(5)).await;
        if condition().await {
            sleep(ms(50)).await;
            if condition().await {
                return;
            }
        }
    }
}

/// The line of the lock, as a client learns it. A keeper that is too busy to answer is asked again.
async fn line(client: &LockClient) -> HolderQueue {
    let asks = async {
        loop {
            match client.queue(OBJECT).await {
                Ok(line) => return line,
                Err(QueueError::NotReached { .. }) => {}
                Err(error) => panic!("{error:?}"),
            }
        }
    };
    pace::within_limit("a line", asks).await
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
        // An end is a refusal, whether it is an error or not.
        let _ = pace::within_limit("a refusal", stream.read_to_end(&mut answer)).await;
    }
}

// Goal: connections of strangers are refused, and disturb nothing: neither clients that pass a lock
// on, nor one that connects later.
// Method: 10,000 connections, 300 at a time, that say nothing, random bytes or the length of a huge
// frame, and more until two clients have passed a lock on 30 times beside them; then a third one
// joins.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_disturb_nothing() {
    let store = store();
    let address = free_address();
    let keeper = client(&store, PeerOptions::new(address)).await;
    let guest = client(&store, PeerOptions::new(ANY_PORT)).await;
    until_listening(&store, 2).await;
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
    let number = tokio::select! {
        number = pace::within_limit("grants beside strangers", strangers_call(address, &stage)) => {
            number
        }
        Some(ended) = workers.join_next() => panic!("a client has stopped: {ended:?}"),
    };
    is_over.store(1, Ordering::SeqCst);
    workers.join_all().await;
    let grants = stage.grants.load(Ordering::SeqCst);
    println!("{grants} grants beside {number} strangers in {:?}", began.elapsed());

    let held = keeper.lock(OBJECT).await.expect("the lock is free");
    let late = client(&store, PeerOptions::new(ANY_PORT)).await;
    let asking = in_line(&store, &late, &keeper).await;
    held.unlock().await.expect("the lock was held");
    let guard = asking.await.expect("it does not panic").expect("it is served");
    guard.unlock().await.expect("the lock was held");
    for client in [&keeper, &guest, &late] {
        client.shutdown().await.expect("nothing is left");
    }
    pace::until("a client that was shut down does not listen", async || {
        TcpStream::connect(address).await.is_err()
    })
    .await;
}

/// Lets strangers connect; returns how many did.
async fn strangers_call(address: SocketAddr, stage: &Stage) -> u64 {
    const CONNECTIONS: u64 = 10_000;
    const AT_ONCE: usize = 300;
    const GRANTS: u64 = 30;
    let mut strangers = JoinSet::new();
    let mut number = 0;
    while number < CONNECTIONS || stage.grants.load(Ordering::SeqCst) < GRANTS {
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
    number
}

// Goal: an operator learns who has a lock and who waits, from a client that keeps no place itself.
// Method: ask while a guest has the turn and a caller of the keeper and a second guest wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operator_sees_who_is_inside() {
    let store = store();
    let options = || PeerOptions::new(ANY_PORT);
    let keeper = client(&store, options()).await;
    let [guest, second] = [client(&store, options()).await, client(&store, options()).await];
    let operator = client(&store, options().serve_guests(false)).await;
    until_listening(&store, 3).await;
    let nothing = operator.queue(OBJECT).await.expect_err("the lock is free");
    assert!(matches!(nothing, QueueError::NotHeld { .. }), "{nothing:?}");

    let held = keeper.request(OBJECT).label("nightly job").acquire().await;
    let held = held.expect("the lock is free");
    let seen = line(&operator).await;
    let user = seen.user.expect("a caller is inside");
    assert_eq!((user.client, user.owner.label()), (seen.keeper.client, Some("nightly job")));
    assert_eq!(seen.keeper.owner.host_name(), Some("host"));
    assert_eq!((seen.waiting, seen.first.len()), (0, 0));

    let asking = in_line(&store, &guest, &keeper).await;
    let later = tokio::spawn(keeper.request(OBJECT).label("later").acquire());
    pace::until("two wait", async || line(&keeper).await.waiting == 2).await;
    held.unlock().await.expect("the lock was held");
    let turn = asking.await.expect("it does not panic").expect("it is served");
    let waiting = in_line(&store, &second, &keeper).await;
    let seen = line(&operator).await;
    let user = seen.user.expect("a guest is inside");
    assert_ne!(user.client, seen.keeper.client);
    let [next, last] = &seen.first[..] else { panic!("two wait: {:?}", seen.first) };
    assert_eq!((next.client, next.owner.label()), (seen.keeper.client, Some("later")));
    assert!(![user.client, seen.keeper.client].contains(&last.client), "{last:?}");
    assert_eq!(seen.waiting, 2);

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
async fn client_that_keeps_no_place_can_not_be_asked() {
    let store = quick_store();
    let without = store.client_builder().host("host");
    let without = without.build().await.expect("a client in memory is built");
    let operator = client(&store, PeerOptions::new(ANY_PORT).serve_guests(false)).await;
    let held = without.request(OBJECT).label("nightly job").acquire().await;
    let held = held.expect("the lock is free");
    let error = operator.queue(OBJECT).await.expect_err("it listens nowhere");
    assert!(matches!(error, QueueError::NotReached { .. }), "{error:?}");
    assert!(error.to_string().contains("nightly job"), "{error}");
    let own = without.queue(OBJECT).await.expect("it is its own");
    assert!(own.user.expect("a caller is inside").owner.label() == Some("nightly job"));
    held.unlock().await.expect("the lock was held");

    let held = operator.lock(OBJECT).await.expect("the lock is free");
    let error = without.queue(OBJECT).await.expect_err("it asks none");
    assert!(matches!(error, QueueError::AsksNone { .. }), "{error:?}");
    held.unlock().await.expect("the lock was held");
}

// Goal: a client that wants several locks of one keeper at once, to which it has no connection yet,
// waits in its line for each of them.
// Method: a new client asks for ten locks. A keeper that is too busy to answer within 20 ms is left
// for the table; then another new client tries.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_locks_of_one_keeper_are_waited_for_in_its_lines() {
    let store = store();
    let keeper = client(&store, PeerOptions::new(ANY_PORT)).await;
    let names: Vec<_> = (0..10).map(|number| format!("users::{number}")).collect();
    let mut held = Vec::new();
    for name in &names {
        held.push(keeper.lock(name).await.expect("the lock is free"));
    }
    pace::until("a place in each line", async || {
        let guest = Box::pin(client(&store, PeerOptions::new(ANY_PORT))).await;
        until_listening(&store, 2).await;
        let mut waiting = JoinSet::new();
        for name in &names {
            waiting.spawn(guest.request(name).acquire());
        }
        let stand = until_it_lasts(async || stand_in_lines(&store, &keeper, &names).await);
        let all = timeout(Duration::from_secs(1), stand).await.is_ok();
        waiting.shutdown().await;
        guest.shutdown().await.expect("nothing is left");
        all
    })
    .await;
    for guard in held {
        guard.unlock().await.expect("the lock was held");
    }
    keeper.shutdown().await.expect("nothing is left");
}

/// Whether one waits in the line of each lock, and none in the table.
async fn stand_in_lines(store: &FaultyStore, keeper: &LockClient, names: &[String]) -> bool {
    for name in names {
        let line = keeper.queue(name).await.expect("it is the keeper");
        if line.waiting != 1 || store.live_rows(name) != 1 {
            return false;
        }
    }
    true
}

// Goal: a guest that finds no place at a keeper takes the lock through the table, and so do all
// that come later.
// Method: a keeper has a place for one guest; a second one asks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_guest_too_many_waits_in_the_table() {
    let store = store();
    let keeper = client(&store, PeerOptions::new(ANY_PORT).max_guests(1)).await;
    let [guest, second] = [
        client(&store, PeerOptions::new(ANY_PORT)).await,
        client(&store, PeerOptions::new(ANY_PORT)).await,
    ];
    until_listening(&store, 3).await;
    let held = keeper.lock(OBJECT).await.expect("the lock is free");
    let first = in_line(&store, &guest, &keeper).await;
    let later = tokio::spawn(second.request(OBJECT).acquire());
    pace::until("it is in the table", async || store.live_rows(OBJECT) == 2).await;
    sleep(ms(300)).await;
    assert_eq!(store.live_rows(OBJECT), 2, "it stays in the table");
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
    let store = store();
    let keeper = client(&store, PeerOptions::new(ANY_PORT)).await;
    let guest = client(&store, PeerOptions::new(ANY_PORT)).await;
    until_listening(&store, 2).await;
    let held = keeper.lock(OBJECT).await.expect("the lock is free");
    let turn = in_line(&store, &guest, &keeper).await;
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
async fn client_advertises_no_wildcard() {
    let store = quick_store();
    let anywhere = PeerOptions::new(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)));
    let builder = store.client_builder().host("host");
    let error = builder.clone().peers(anywhere.clone()).build().await;
    let error = error.expect_err("others can't connect to it");
    assert!(matches!(error, BuildError::NotAdvertised { .. }), "{error:?}");
    for fine in [anywhere.clone().advertised("web1:7100"), anywhere.serve_guests(false)] {
        builder.clone().peers(fine).build().await.expect("a client in memory is built");
    }
}
