//! A process that forks while it holds a lock.
//!
//! A program of its own: a fork copies only the thread that forks, so the test harness, which runs
//! tests on threads, must not be in between. On the store in memory: tokio itself does not survive
//! a fork with open connections, because both processes then share one queue of their events. Each
//! process has a time of its own, which passes as fast as it has nothing else to do.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use bakery_lock::testing::FaultyStore;
use bakery_lock::{
    EnsureError, GuardState, LockClient, LockError, LockGuard, LostReason, UnlockError,
    UnreadyReason,
};
use fork::Fork;
use rustix::process::{Pid, WaitOptions, WaitStatus, waitpid};
use support::pace;
use tokio::runtime::Builder;
use tokio::time::sleep;

const OBJECT: &str = "users::snap";

/// Short, so that both processes come to renew the lock several times.
const TTL: Duration = Duration::from_secs(6);

/// How long both live on after the fork, at least.
const LIVES: Duration = Duration::from_secs(9);

// Goal: when a process forks inside of a current-thread runtime that continues in the child, the
// parent keeps its lock; in the child the inherited guard is lost and the inherited client refuses,
// and neither touches the parent's rows.
// Method: fork between two polls of one task, and let both processes continue for longer than a
// lease.
fn main() {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime can be built").block_on(async {
        let store = FaultyStore::new();
        let builder = store.client_builder();
        let client = builder.ttl(TTL).build().await.expect("a client in memory is built");
        let guard = client.lock(OBJECT).await.expect("the lock is free");
        match fork::fork().expect("this process may fork") {
            Fork::Child => child(&store, &client, guard).await,
            Fork::Parent(pid) => parent(&store, guard, pid).await,
        }
    });
    println!("test result: ok. 1 passed; the parent of a fork kept its lock");
}

async fn parent(store: &FaultyStore, guard: LockGuard, pid: i32) {
    const STEP: Duration = Duration::from_millis(20);
    let pid = Pid::from_raw(pid).expect("a child has a number");
    let (began, mut lived) = (Instant::now(), Duration::ZERO);
    let mut ended = None;
    while ended.is_none() || lived < LIVES {
        let state = guard.state();
        assert!(matches!(state, GuardState::Held { .. }), "after {lived:?}: {state:?}");
        assert!(began.elapsed() < pace::limit(), "the child hangs");
        if ended.is_none() {
            ended = waitpid(Some(pid), WaitOptions::NOHANG).expect("there is a child");
        }
        sleep(STEP).await;
        lived += STEP;
    }
    let code = ended.map(|(_, status)| WaitStatus::exit_status(status));
    assert_eq!(code, Some(Some(0)), "the child saw something else");
    guard.check().await.expect("the rows are there");
    guard.unlock().await.expect("the lock was held to the end");
    assert_eq!(store.live_rows(OBJECT), 0);
}

/// Ends the process, so that nothing that is inherited is dropped.
async fn child(store: &FaultyStore, client: &LockClient, guard: LockGuard) {
    let outcome = expect_nothing_held(store, client, guard).await;
    if let Err(error) = &outcome {
        eprintln!("in the child: {error}");
    }
    // Not `exit`: what is registered to run then belongs to the parent.
    std::process::exit(i32::from(outcome.is_err()));
}

/// The child has a copy of the rows, which shows what it would do to those of the parent.
async fn expect_nothing_held(
    store: &FaultyStore,
    client: &LockClient,
    guard: LockGuard,
) -> Result<(), String> {
    let before = client.statistics();
    check(|| assert_eq!(guard.state(), GuardState::Lost(LostReason::Forked)))?;
    let checked = guard.check().await;
    check(|| {
        assert!(matches!(checked, Err(EnsureError::Lost { reason: LostReason::Forked, .. })));
    })?;
    for name in [OBJECT, "users::snoop"] {
        let locked = client.lock(name).await;
        check(|| assert!(matches!(locked, Err(LockError::Forked))))?;
        let tried = client.try_lock(name).await;
        check(|| assert!(matches!(tried, Err(LockError::Forked))))?;
    }
    let health = client.health().await;
    check(|| assert!(matches!(health.reasons[..], [UnreadyReason::Forked]), "{health}"))?;
    // The copied runtime continues, and with it the task that renews.
    sleep(LIVES).await;
    check(|| assert!(guard.cancellation_token().is_cancelled()))?;
    let unlocked = guard.unlock().await;
    check(|| {
        assert!(matches!(unlocked, Err(UnlockError::Lost { reason: LostReason::Forked, .. })));
    })?;
    check(|| assert_eq!(client.statistics(), before, "operations in the child"))?;
    check(|| assert_eq!(store.live_rows(OBJECT), 0, "not renewed, it expired in the child"))
}

/// A panic must not unwind into what the child inherited.
fn check(assertion: impl FnOnce()) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(assertion)).map_err(|_| "an assertion failed".to_owned())
}
