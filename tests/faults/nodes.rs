//! Nodes that are killed and come back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bakery_lock::schema::{CreateOptions, MAX_TTL_DEFAULT};
use bakery_lock::{GuardState, LockClient, LockError, LockGuard, LostReason, Outcome, UnlockError};
use cassandra_cluster::ClusterOptions;
use scylla::client::session_builder::SessionBuilder;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::hurt::Hurt;
use support::pace;
use support::scene::{Scene, built};

/// A short TTL, so that renewals fall into the time in which a node is missed.
const TTL: Duration = Duration::from_secs(9);
const PATIENCE: Duration = Duration::from_secs(5);

// Goal: when one node of three is killed, locks continue: no error, no lost guard. When a second
// one is killed, callers get a clear error, not before their timeout, and holders know that they
// lost their locks. When the nodes return, the rows are gone, and locks work again.
// Method: clients lock in a closed loop, some for themselves and some one name together, while
// others hold; nodes are killed with SIGKILL.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes long; scripts/nightly runs it"]
async fn nodes_die_and_return() {
    let _alone = support::alone().await;
    let cluster = three_nodes().await;
    let scene = cluster.scene("locks", CreateOptions::new()).await;
    let client = |ttl| built(scene.builder().ttl(ttl).acquire_timeout(pace::scaled(PATIENCE)));
    let holder = client(pace::scaled(TTL)).await;
    let held = holder.lock("held").await.expect("the lock is free");

    one_node_dies(&cluster, &scene).await;
    assert!(!matches!(held.state(), GuardState::Lost(_)), "{:?}", held.state());

    let long_held = client(MAX_TTL_DEFAULT).await.lock("long-held").await.expect("a quorum is up");
    cluster.on(|cluster| cluster.kill(3)).await;
    no_quorum_is_left(&holder, held, "at once").await;
    cluster.on(|cluster| cluster.wait_until_seen_down(3)).await;
    expect_unacknowledged(long_held).await;
    expect_timeout(&holder, "late").await;
    let error = scene.builder().build().await.expect_err("there is no quorum");
    println!("without a quorum a client is not built: {error}");

    cluster.heal().await;
    let returned = Instant::now();
    for object in ["held", "long-held", "at once", "late"] {
        scene.wait_for_rows(object, 0).await;
    }
    println!("once the nodes had returned, all rows were gone after {:?}", returned.elapsed());
    for object in ["held", "long-held", "at once", "late"] {
        let guard = holder.request(object).timeout(pace::limit()).acquire().await;
        let guard = guard.expect("the cluster is whole again");
        guard.unlock().await.expect("the lock was held");
    }
}

// Goal: a client that is built while a node is frozen is not kept waiting for long: it is built, or
// told that a node does not answer. Once the session has noticed that the node is frozen, which its
// keepalive decides, it is built.
// Method: two sessions that are connected to a node when it is frozen: one with the driver's
// defaults, and one that notices after three seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_is_built_while_a_node_is_frozen() {
    const NOTICED: Duration = Duration::from_secs(3);
    let _alone = support::alone().await;
    let cluster = three_nodes().await;
    let Scene { keyspace, .. } = cluster.scene("frozen", CreateOptions::new()).await;
    let builder = || SessionBuilder::new().known_nodes_addr(cluster.nodes());
    let scene = async |builder: SessionBuilder| {
        let session = Arc::new(builder.build().await.expect("the cluster is ready"));
        Scene { session, keyspace: keyspace.clone() }
    };
    let slow = scene(builder()).await;
    let keepalive = builder().keepalive_interval(NOTICED / 3);
    let keen = scene(keepalive.keepalive_timeout(NOTICED / 3 * 2)).await;
    keen.client().await;

    cluster.on(|cluster| cluster.pause(2)).await;
    let frozen = Instant::now();
    let slow = async {
        let built = slow.builder().build().await;
        (built.map(drop), frozen.elapsed())
    };
    let keen = async {
        while let Err(error) = keen.builder().build().await {
            println!("after {:?} with a short keepalive: {}", frozen.elapsed(), told(&error));
        }
        frozen.elapsed()
    };
    let both = Box::pin(async { tokio::join!(slow, keen) });
    let ((slow, slow_took), keen_took) = pace::within_limit("a client", both).await;
    let slow = slow.map_err(|error| told(&error));
    println!("with the driver's keepalive after {slow_took:?}: {slow:?}");
    println!("with a short keepalive a client is built after {keen_took:?}");
    cluster.heal().await;
    if let Err(error) = slow {
        let named = ["a node does not answer", "exceeded a client timeout"];
        assert!(named.iter().any(|part| error.contains(part)), "{error}");
    }
}

async fn three_nodes() -> Hurt {
    let options = ClusterOptions {
        name: "faults".to_owned(),
        nodes: 3,
        first_host: 41,
        ..ClusterOptions::default()
    };
    Hurt::lease(options).await
}

/// An error with its causes.
fn told(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Counts grants before and after a node is killed: there must be some.
async fn one_node_dies(cluster: &Hurt, scene: &Scene) {
    const BEFORE: Duration = Duration::from_secs(8);
    const AFTER: Duration = Duration::from_secs(20);
    let load = Load::begin(scene).await;
    // A fresh cluster gets faster for a while.
    sleep(Duration::from_secs(8)).await;
    let warm = load.grants();
    sleep(BEFORE).await;
    let before = load.grants();
    cluster.on(|cluster| cluster.kill(2)).await;
    let killed = load.grants();
    sleep(AFTER).await;
    let after = load.grants();
    let slowest = load.end().await;
    let rate = |from: u64, to: u64, time: Duration| (to - from) as f64 / time.as_secs_f64();
    for (kind, what) in ["of names of their own", "of one name"].into_iter().enumerate() {
        assert!(after[kind] > killed[kind], "none {what}");
        let before = rate(warm[kind], before[kind], BEFORE);
        let after = rate(killed[kind], after[kind], AFTER);
        println!(
            "grants a second {what}: {before:.1} before a node was killed, {after:.1} in the next \
             {AFTER:?}: {:.0} %",
            after / before * 100.0
        );
    }
    println!("the slowest lock took {slowest:?}");
}

/// Clients that lock and unlock all the time, and fail the test at the first error.
struct Load {
    ending: Arc<AtomicBool>,
    /// Of names of their own, and of one name.
    grants: Arc<[AtomicU64; 2]>,
    clients: JoinSet<Duration>,
}

impl Load {
    async fn begin(scene: &Scene) -> Self {
        let mut load =
            Load { ending: Arc::default(), grants: Arc::default(), clients: JoinSet::new() };
        for number in 0..4 {
            load.add(scene.client().await, 0, format!("own {number}"));
            load.add(scene.client().await, 1, "common".to_owned());
        }
        load
    }

    fn add(&mut self, client: LockClient, kind: usize, name: String) {
        let (ending, grants) = (Arc::clone(&self.ending), Arc::clone(&self.grants));
        self.clients.spawn(async move {
            let mut slowest = Duration::ZERO;
            while !ending.load(Ordering::Relaxed) {
                let asked = Instant::now();
                let guard = client.lock(&name).await.expect("a quorum is up");
                slowest = slowest.max(asked.elapsed());
                grants[kind].fetch_add(1, Ordering::Relaxed);
                guard.unlock().await.expect("the lock was held");
            }
            slowest
        });
    }

    fn grants(&self) -> [u64; 2] {
        [0, 1].map(|kind| self.grants[kind].load(Ordering::Relaxed))
    }

    /// Ends the load; returns how long the slowest lock took.
    async fn end(self) -> Duration {
        self.ending.store(true, Ordering::Relaxed);
        self.clients.join_all().await.into_iter().max().unwrap_or_default()
    }
}

/// What callers and holders see, from the moment at which there is no quorum.
async fn no_quorum_is_left(client: &LockClient, held: LockGuard, object: &str) {
    let began = Instant::now();
    let lost = pace::within_limit("the end of a lease", held.lost()).await;
    println!(
        "without a quorum a holder with a ttl of {:?} lost its lock after {:?}",
        pace::scaled(TTL),
        began.elapsed()
    );
    assert_eq!(lost, Some(LostReason::Expired));
    let error = held.unlock().await.expect_err("it was lost");
    assert!(matches!(error, UnlockError::Lost { reason: LostReason::Expired, .. }), "{error:?}");
    expect_timeout(client, object).await;
}

async fn expect_timeout(client: &LockClient, object: &str) {
    let (patience, asked) = (pace::scaled(PATIENCE), Instant::now());
    let error = client.lock(object).await.expect_err("there is no quorum");
    let elapsed = asked.elapsed();
    assert!(elapsed >= patience, "it took {elapsed:?}");
    let LockError::TimedOut { cause: Some(cause), .. } = &error else {
        panic!("another error came: {error:?}");
    };
    let source = std::error::Error::source(cause).expect("the driver said why");
    println!(
        "without a quorum a caller with {patience:?} is told after {elapsed:?}: {error}: {cause}: \
         {source}"
    );
    assert_ne!(cause.outcome(), Outcome::Applied);
    let asked = Instant::now();
    let error = client.try_lock(object).await.expect_err("there is no quorum");
    println!("and one that does not wait after {:?}", asked.elapsed());
    assert!(matches!(error, LockError::TimedOut { cause: Some(_), .. }), "{error:?}");
}

/// Gives back what is held, for as long as its lease lasts: a slow machine may need longer to get
/// here.
async fn expect_unacknowledged(guard: LockGuard) {
    if guard.remaining() < pace::scaled(PATIENCE) * 2 {
        return println!("the lease was over too soon to give it back without a quorum");
    }
    let asked = Instant::now();
    let error = guard.unlock().await.expect_err("there is no quorum");
    assert!(matches!(error, UnlockError::Unacknowledged { cause: Some(_), .. }), "{error:?}");
    println!("without a quorum an unlock is told after {:?}: {error}", asked.elapsed());
}
