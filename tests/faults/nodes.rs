//! Nodes that are killed and come back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bakery_lock::schema::CreateOptions;
use bakery_lock::{GuardState, LockClient, LockError, LockGuard, LostReason, Outcome, UnlockError};
use cassandra_cluster::ClusterOptions;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::hurt::Hurt;
use super::scene::Scene;
use super::support;

/// A short TTL, so that renewals fall into the time in which a node is missed.
const TTL: Duration = Duration::from_secs(6);
const PATIENCE: Duration = Duration::from_secs(3);
/// What a timeout may be exceeded by on a busy machine.
const MARGIN: Duration = Duration::from_millis(500);

// Goal: when one node of three is killed, locks go on: no error, no lost guard, and at least half
// the grants per second in the next 20 s. When a second one is killed, callers get a clear error
// within their timeout, and holders know that they lost their locks. When the nodes return, the
// rows are gone, and locks work again.
// Method: clients lock in a closed loop, some for themselves and some one name together, while
// others hold; nodes are killed with SIGKILL.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_die_and_return() {
    let _alone = support::alone().await;
    let options = ClusterOptions {
        name: "faults".to_owned(),
        nodes: 3,
        first_host: 41,
        ..ClusterOptions::default()
    };
    let cluster = Hurt::lease(options).await;
    let scene = cluster.scene("locks", CreateOptions::new()).await;
    let holder = scene.builder().ttl(TTL).acquire_timeout(PATIENCE).build().await;
    let holder = holder.expect("the cluster is ready");
    let held = holder.lock("held").await.expect("the lock is free");

    one_node_dies(&cluster, &scene).await;
    assert!(matches!(held.state(), GuardState::Held { .. }), "{:?}", held.state());

    let long_held = scene.builder().acquire_timeout(PATIENCE).build().await;
    let long_held = long_held.expect("a quorum is up").lock("long-held").await;
    let long_held = long_held.expect("a quorum is up");
    cluster.on(|cluster| cluster.kill(3)).await;
    no_quorum_is_left(&holder, held, "at once").await;
    cluster.on(|cluster| cluster.wait_until_seen_down(3)).await;
    assert!(matches!(long_held.state(), GuardState::Held { .. }), "{:?}", long_held.state());
    expect_unacknowledged(long_held).await;
    expect_timeout(&holder, "late").await;
    let error = scene.builder().build().await.expect_err("there is no quorum");
    println!("without a quorum a client is not built: {error}");

    cluster.heal().await;
    let returned = Instant::now();
    for object in ["held", "long-held", "at once", "late"] {
        scene.wait_for_rows(object, 0, Duration::from_secs(10)).await;
    }
    println!("once the nodes had returned, all rows were gone after {:?}", returned.elapsed());
    for object in ["held", "long-held", "at once", "late"] {
        let guard = holder.lock(object).await.expect("the cluster is whole again");
        guard.unlock().await.expect("the lock was held");
    }
}

/// Counts grants before and after a node is killed.
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
        let before = rate(warm[kind], before[kind], BEFORE);
        let after = rate(killed[kind], after[kind], AFTER);
        println!(
            "grants a second {what}: {before:.1} before a node was killed, {after:.1} in the next \
             {AFTER:?}: {:.0} %",
            after / before * 100.0
        );
        assert!(after >= before / 2.0, "{what}: {before} before and {after} after");
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
    let lost = timeout(TTL, held.lost()).await.expect("nothing is renewed");
    println!(
        "without a quorum a holder with a ttl of {TTL:?} lost its lock after {:?}",
        began.elapsed()
    );
    assert_eq!(lost, Some(LostReason::Expired));
    let error = held.unlock().await.expect_err("it was lost");
    assert!(matches!(error, UnlockError::Lost(LostReason::Expired)), "{error:?}");
    expect_timeout(client, object).await;
}

async fn expect_timeout(client: &LockClient, object: &str) {
    let asked = Instant::now();
    let error = client.lock(object).await.expect_err("there is no quorum");
    let elapsed = asked.elapsed();
    assert!((PATIENCE..PATIENCE + MARGIN).contains(&elapsed), "it took {elapsed:?}");
    let LockError::TimedOut { cause: Some(cause), .. } = &error else {
        panic!("another error came: {error:?}");
    };
    let source = std::error::Error::source(cause).expect("the driver said why");
    println!(
        "without a quorum a caller with {PATIENCE:?} is told after {elapsed:?}: {error}: \
         {cause}: {source}"
    );
    assert_ne!(cause.outcome(), Outcome::Applied);
    let asked = Instant::now();
    let error = client.try_lock(object).await.expect_err("there is no quorum");
    assert!(asked.elapsed() < PATIENCE + MARGIN, "a try took {:?}", asked.elapsed());
    assert!(matches!(error, LockError::TimedOut { cause: Some(_), .. }), "{error:?}");
}

async fn expect_unacknowledged(guard: LockGuard) {
    let asked = Instant::now();
    let error = guard.unlock().await.expect_err("there is no quorum");
    assert!(asked.elapsed() < PATIENCE + MARGIN, "an unlock took {:?}", asked.elapsed());
    assert!(matches!(error, UnlockError::Unacknowledged { cause: Some(_), .. }), "{error:?}");
    println!("without a quorum an unlock is told: {error}");
}
