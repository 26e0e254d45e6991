//! The program of a client: tasks that take locks, and note what only a holder may note.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bakery_lock::{
    BuildError, LockClient, LockClientBuilder, LockError, LockGuard, MemoryStore, PeerOptions,
    UnlockError,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use scylla::client::session_builder::SessionBuilder;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{sleep, timeout};

use super::said::{LOST, NO_OBJECT, Said, What};
use super::{CLIENTS, KEYSPACE, MAX_CLOCK_SKEW, PEERS, TTL};
use support::environment::chance;
use support::history::{Drawn, Moment};
use support::monotonic::now;
use support::record::{Recorder, record_rounds};
use support::{pace, program};

/// The test below, as a program.
pub(crate) const PROGRAM: &str = "storm::worker::client_program";

/// How many names a client wants that others want too, with a task each. Each name is wanted by so
/// many clients: a client in trouble keeps those behind it waiting, but not all.
const COMMON: usize = 3;

/// Names that only one client wants, with a task each.
const OWN: usize = 1;

/// The home of the client, a name that it wants again and again, so that it keeps the place if it
/// has peers; and the home of another client, that it wants now and then.
const HOMES: usize = 2;

/// The other client is this many after it: the homes of two peers are visited by clients that wait
/// in the table.
const VISITED: usize = 3;

/// How many tasks a client has.
pub(crate) const TASKS: usize = COMMON + OWN + HOMES;

/// How long it takes until a task comes back for a name of its own.
const OWN_PAUSE_MAX: Duration = Duration::from_secs(1);

/// How long it may take to connect and to prepare statements, on a quiet machine. The driver waits
/// for some answers for as long as the connection lives, and the proxies lose answers of
/// connections that live.
const CLIENT_MAX: Duration = Duration::from_secs(20);

/// What is refused at once is not asked for all the time.
const REFUSED_PAUSE: Duration = Duration::from_millis(100);

/// How often a holder looks whether it still holds.
const LOOK_PAUSE: Duration = Duration::from_millis(1);

/// For how long a client that takes turns of others holds a lock, at most.
const STAY_MAX: Duration = Duration::from_millis(60);

/// How long it takes until a task of such a client comes back for a name of its own.
const PEER_PAUSE_MAX: Duration = Duration::from_secs(5);

/// How long it takes until a task comes back for the home of its client: shorter than idle places
/// are kept,
const HOME_PAUSE_MAX: Duration = Duration::from_millis(400);

/// and until one comes back for the home of another client.
const VISIT_PAUSE_MAX: Duration = Duration::from_secs(3);

/// Which client a program is, and how it reaches the nodes and other clients.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) client: usize,
    /// Of what its tasks choose.
    pub(crate) seed: u64,
    pub(crate) peer: Option<Peer>,
    /// By the address of each node.
    pub(crate) routes: HashMap<SocketAddr, SocketAddr>,
}

/// Where a client keeps places for guests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub(crate) bind: SocketAddr,
    pub(crate) advertised: SocketAddr,
}

impl Order {
    pub(crate) fn to_line(&self) -> String {
        let peer = self.peer.map(|peer| format!("{}={}", peer.bind, peer.advertised));
        let peer = peer.unwrap_or_else(|| "-".to_owned());
        let routes = self.routes.iter().map(|(node, route)| format!(" {node}={route}"));
        format!("{} {} {peer}{}", self.client, self.seed, routes.collect::<String>())
    }

    fn from_line(line: &str) -> Self {
        let mut words = line.split(' ');
        let client = words.next().and_then(|word| word.parse().ok());
        let seed = words.next().and_then(|word| word.parse().ok());
        let address = |text: &str| text.parse().expect("a way has two addresses");
        let way = |word: &str| {
            let (from, to) = word.split_once('=').expect("a way is from one to another");
            (address(from), address(to))
        };
        let peer = words.next().filter(|word| *word != "-").map(way);
        Order {
            client: client.expect("an order begins with a number"),
            seed: seed.expect("another number follows"),
            peer: peer.map(|(bind, advertised)| Peer { bind, advertised }),
            routes: words.map(way).collect(),
        }
    }
}

/// What the tasks of a client work with.
#[derive(Clone)]
struct Hands {
    locks: LockClient,
    ending: Arc<AtomicBool>,
    /// For how long they hold a lock, at most.
    stay_max: Duration,
    own_pause_max: Duration,
    recorder: Option<Arc<Mutex<Recorder>>>,
}

// Goal: the program that the storm starts for each client. By itself: on the store in memory all
// tasks of all clients get their locks until they are told to end, and once more then.
// Method: tasks that take locks in a loop.
#[tokio::test]
async fn client_program() {
    let ending = Arc::new(AtomicBool::new(false));
    let Some(line) = program::order() else {
        let store = MemoryStore::new();
        let mut chance = chance();
        let mut clients = JoinSet::new();
        for client in 0..CLIENTS {
            let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            let peer = (client < PEERS).then(|| PeerOptions::new(any_port));
            let locks = build(LockClient::builder_in_memory(&store), peer).await;
            let locks = locks.expect("the store in memory is ready");
            let (stay_max, own_pause_max) = (LOOK_PAUSE, OWN_PAUSE_MAX);
            let ending = Arc::clone(&ending);
            let hands = Hands { locks, ending, stay_max, own_pause_max, recorder: None };
            clients.spawn(work(client, chance.random(), hands));
        }
        sleep(Duration::from_secs(2)).await;
        ending.store(true, Ordering::Relaxed);
        let served: usize = clients.join_all().await.into_iter().sum();
        return assert_eq!(served, CLIENTS * TASKS);
    };
    let order = Order::from_line(&line);
    let told = Arc::clone(&ending);
    spawn_blocking(move || {
        program::wait_for_word();
        told.store(true, Ordering::Relaxed);
    });
    let recorder = record_rounds(MAX_CLOCK_SKEW);
    let telling = tokio::spawn(tell_rounds(Arc::clone(&recorder)));
    let locks = client(&order).await;
    let (stay_max, own_pause_max) = match order.peer {
        Some(_) => (STAY_MAX, PEER_PAUSE_MAX),
        None => (LOOK_PAUSE, OWN_PAUSE_MAX),
    };
    let recorded = Some(Arc::clone(&recorder));
    let counting = tokio::spawn(report_kept_uses(locks.clone()));
    let hands = Hands { locks, ending, stay_max, own_pause_max, recorder: recorded };
    work(order.client, order.seed, hands).await;
    counting.abort();
    telling.abort();
    tell(&recorder);
}

/// A client of the cluster; it tries until that is well enough.
async fn client(order: &Order) -> LockClient {
    loop {
        let failure = match timeout(pace::scaled(CLIENT_MAX), try_client(order)).await {
            Ok(Ok(locks)) => return locks,
            Ok(Err(failure)) => failure,
            Err(_) => "no client in time".to_owned(),
        };
        say(NO_OBJECT, What::Failed(failure));
        sleep(REFUSED_PAUSE).await;
    }
}

async fn try_client(order: &Order) -> Result<LockClient, String> {
    let routes = Arc::new(order.routes.clone());
    let session = SessionBuilder::new().known_nodes_addr(routes.values());
    let session = session.address_translator(routes).build().await;
    let session = session.map_err(|_| "no session".to_owned())?;
    let options = |peer: Peer| PeerOptions::new(peer.bind).advertised(peer.advertised.to_string());
    let builder = LockClient::builder(Arc::new(session), KEYSPACE);
    let locks = build(builder, order.peer.map(options)).await;
    locks.map_err(|error| format!("no client: {}", kind(&error)))
}

async fn build(
    builder: LockClientBuilder,
    peer: Option<PeerOptions>,
) -> Result<LockClient, BuildError> {
    let builder = builder.host("storm-host").register_host(true).ttl(TTL);
    match peer {
        Some(options) => builder.peers(options).build().await,
        None => builder.build().await,
    }
}

/// Lets all tasks of a client work until it ends; how many got their locks once more then.
async fn work(client: usize, seed: u64, hands: Hands) -> usize {
    let mut chance = StdRng::seed_from_u64(seed);
    let common = (client..client + COMMON).map(|number| number % CLIENTS);
    let common = common.map(|number| (format!("common-{number}"), Duration::ZERO));
    let own = (0..OWN).map(|number| (format!("own-{client}-{number}"), hands.own_pause_max));
    let visited = (client + VISITED) % CLIENTS;
    let homes: [_; HOMES] = [(client, HOME_PAUSE_MAX), (visited, VISIT_PAUSE_MAX)];
    let homes = homes.map(|(home, pause_max)| (format!("home-{home}"), pause_max));
    let mut tasks = JoinSet::new();
    for (object, pause_max) in common.chain(own).chain(homes) {
        let hands = hands.clone();
        let mut chance = StdRng::from_rng(&mut chance);
        tasks.spawn(async move {
            while !hands.ending.load(Ordering::Relaxed) {
                lock_once(&hands, &object, &mut chance).await;
                sleep(pause_max.mul_f64(chance.random())).await;
            }
            let guard = hands.locks.request(&object).timeout(pace::limit()).acquire().await;
            let served = match guard {
                Ok(guard) => give_back(&object, guard).await,
                Err(error) => fail(&object, "not served", &error),
            };
            if served {
                say(&object, What::Served);
            }
            usize::from(served)
        });
    }
    let served = tasks.join_all().await.into_iter().sum();
    // Others may wait in its line.
    if let Err(error) = hands.locks.shutdown().await {
        fail(NO_OBJECT, "not shut down", &error);
    }
    served
}

/// Takes the lock, holds it for a while, and gives it back.
async fn lock_once(hands: &Hands, object: &str, chance: &mut StdRng) {
    let Hands { locks, stay_max, recorder, .. } = hands;
    let impatient = chance.random_ratio(1, 20);
    let patience =
        if impatient { Duration::from_secs(1).mul_f64(chance.random()) } else { pace::limit() };
    let asked = now();
    let guard = match locks.request(object).timeout(patience).acquire().await {
        Ok(guard) => guard,
        Err(LockError::TimedOut { .. }) if impatient => {
            return say(object, What::Failed("gave up early".to_owned()));
        }
        Err(error) => {
            fail(object, "not obtained", &error);
            return sleep(REFUSED_PAUSE).await;
        }
    };
    let recorder = recorder.as_ref().map(|it| it.lock().expect("the mutex is not poisoned"));
    let is_lent = recorder.is_some_and(|recorder| recorder.is_sublease(object));
    say(object, What::LetIn { waited: now() - asked, is_lent });
    hold(object, &guard, *stay_max, chance).await;
    give_back(object, guard).await;
}

/// Holds the lock, and tells for how long it was seen to be held.
async fn hold(object: &str, guard: &LockGuard, stay_max: Duration, chance: &mut StdRng) {
    let (draws, is_long) = (chance.random_ratio(1, 8), chance.random_ratio(1, 300));
    let time = if is_long { TTL } else { stay_max }.mul_f64(chance.random());
    let until = now() + u64::try_from(time.as_nanos()).expect("it is short");
    let Some(from) = look(guard) else {
        return;
    };
    say(object, What::Holds { from });
    let mut last = from;
    if draws {
        draw(object, guard).await;
    }
    while let Some(time) = look(guard) {
        last = time;
        if last >= until {
            break;
        }
        sleep(LOOK_PAUSE).await;
    }
    say(object, What::Past(Moment::Held { from, until: last }));
}

/// A time at which the lock was held: before the guard was asked, and it says that it is.
fn look(guard: &LockGuard) -> Option<u64> {
    let time = now();
    (guard.remaining() > Duration::ZERO).then_some(time)
}

async fn draw(object: &str, guard: &LockGuard) {
    let asked = now();
    match guard.fencing_token().await {
        Ok(token) => {
            let (given, value) = (now(), token.value());
            say(object, What::Drew(Drawn { asked, given, value }));
        }
        Err(error) => {
            fail(object, "no token", &error);
        }
    }
}

/// Gives the lock back; whether it was held to the end.
async fn give_back(object: &str, guard: LockGuard) -> bool {
    match guard.unlock().await {
        Ok(()) => true,
        Err(UnlockError::Lost { reason, .. }) => {
            say(object, What::Failed(format!("{LOST}{reason}")));
            false
        }
        Err(error) => fail(object, "not given back", &error),
    }
}

/// Tells that something failed; always false.
fn fail(object: &str, what: &str, error: &impl std::fmt::Debug) -> bool {
    say(object, What::Failed(format!("{what}: {}", kind(error))));
    false
}

/// The name of an error's variant.
fn kind(error: &impl std::fmt::Debug) -> String {
    let shown = format!("{error:?}");
    let end = shown.find(|c: char| !c.is_alphanumeric()).unwrap_or(shown.len());
    shown[..end].to_owned()
}

async fn tell_rounds(recorder: Arc<Mutex<Recorder>>) {
    loop {
        tell(&recorder);
        sleep(Duration::from_millis(20)).await;
    }
}

/// Reports how often kept places were used, so that little is left out when the client is killed.
async fn report_kept_uses(locks: LockClient) {
    let mut reported = 0;
    loop {
        let used = locks.statistics().kept_used;
        if used > reported {
            say(NO_OBJECT, What::UsedKept(used - reported));
            reported = used;
        }
        sleep(Duration::from_millis(100)).await;
    }
}

fn tell(recorder: &Mutex<Recorder>) {
    for (object, round) in recorder.lock().expect("the mutex is not poisoned").take() {
        say(&object, What::Past(round));
    }
}

fn say(object: &str, what: What) {
    program::say(&Said { object: object.to_owned(), what }.to_string());
}
