//! Tries: they don't wait, and at most one wins.

use std::time::{Duration, Instant};

use bakery_lock::{LockClient, LockGuard};
use support::rows;
use tokio::task::JoinSet;

use super::scene::Scene;

/// What a try asks the database at most: the doorway and a release, and single rows for the time of
/// four doorways. How long it takes is tested in virtual time.
const OPERATIONS_MAX: u64 = 40;

const TRIES: usize = 50;

// Goal: a try of a held lock asks the database little, and never takes the lock, whether that is
// held by the fast path or with a ticket.
// Method: 50 tries of another client and of the holder's own, for both ways of holding.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn try_of_a_held_lock_does_not_take_it() {
    let _beside = support::beside_others().await;
    let scene = Scene::new().await;
    let (holder, other) = (scene.client().await, scene.client().await);
    let name = support::unique("try");

    let short = holder.lock(&name).await.expect("the lock is free");
    assert_eq!(scene.rows(&name).await, ["entering::"]);
    expect_taken("held on the fast path", &other, &name).await;
    expect_taken("held on the fast path, same client", &holder, &name).await;

    let with_ticket = behind(short, &other, &scene, &name).await;
    assert_eq!(scene.rows(&name).await, ["entering::"]);
    expect_taken("held with a ticket", &holder, &name).await;
    expect_taken("held with a ticket, same client", &other, &name).await;

    with_ticket.unlock().await.expect("the lock was held");
    let won = holder.try_lock(&name).await.expect("the database answers");
    drop(won.expect("the lock is free"));
    scene.wait_until_deleted(&name).await;
}

/// Lets a client queue behind a holder, so that it holds with a ticket in the end.
async fn behind(held: LockGuard, client: &LockClient, scene: &Scene, name: &str) -> LockGuard {
    // The rows of the last try may still be on their way out.
    scene.wait_for_rows(name, 1).await;
    let request = client.request(name);
    let waiting = tokio::spawn(request.acquire());
    rows::wait_for_tickets(client, name, 1).await;
    held.unlock().await.expect("the lock was held");
    waiting.await.expect("the task does not panic").expect("the lock is free")
}

async fn expect_taken(how: &str, client: &LockClient, name: &str) {
    let mut times = Vec::new();
    let before = client.statistics();
    for _ in 0..TRIES {
        let asked = Instant::now();
        let won = client.try_lock(name).await.expect("the database answers");
        times.push(asked.elapsed());
        assert!(won.is_none(), "a held lock was taken");
    }
    times.sort_unstable();
    let (median, longest) = (times[times.len() / 2], times[times.len() - 1]);
    let operations = client.statistics().operations() - before.operations();
    println!(
        "a try of a lock {how}: median {median:?}, longest {longest:?}; {operations} operations in \
         {TRIES} tries"
    );
    assert!(operations <= OPERATIONS_MAX * TRIES as u64, "{operations} operations");
}

// Goal: of 16 tries of a free lock at the same moment never two win, and in at least 95 of 100
// rounds one does. On a busy cluster, where a try gives up on slow contenders, some round has a
// winner.
// Method: 16 clients try at once, a hundred times; the winner holds until all have answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes long; scripts/nightly runs it"]
async fn one_of_many_tries_wins() {
    const CLIENTS: usize = 16;
    const ROUNDS: usize = 100;
    let _alone = support::alone().await;
    let scene = Scene::new().await;
    let name = support::unique("try");
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(scene.client().await);
    }
    let all: Vec<_> = clients.iter().collect();
    let was_quick = warm_up(&all).await;
    let mut won = 0;
    let mut longest = Duration::ZERO;
    for _ in 0..ROUNDS {
        let mut tries = JoinSet::new();
        for client in clients.clone() {
            let name = name.clone();
            tries.spawn(async move {
                let asked = Instant::now();
                (client.try_lock(&name).await.expect("the database answers"), asked.elapsed())
            });
        }
        let answers = tries.join_all().await;
        let winners = answers.iter().filter(|(guard, _)| guard.is_some()).count();
        assert!(winners <= 1, "{winners} won");
        won += winners;
        for (guard, elapsed) in answers {
            longest = longest.max(elapsed);
            if let Some(guard) = guard {
                guard.unlock().await.expect("the lock was held");
            }
        }
        scene.wait_until_deleted(&name).await;
    }
    let is_quick = was_quick && median_of_locks(&all).await <= warm(&all);
    println!(
        "{CLIENTS} tries at once: one won in {won} of {ROUNDS} rounds, two never; the longest \
         answer took {longest:?}; the cluster was quick: {is_quick}"
    );
    let least = if is_quick { 95 } else { 1 };
    assert!(won >= least, "only in {won} rounds one won");
}

/// Lets all clients lock names of their own, all at once, until that is as quick as on a cluster
/// that has run for minutes: a fresh one still compiles its code. A cluster that is busy for other
/// reasons gets half a minute: it shows less then. Returns whether it is quick.
async fn warm_up(clients: &[&LockClient]) -> bool {
    const LONGEST: Duration = Duration::from_secs(30);
    let began = Instant::now();
    loop {
        let median = median_of_locks(clients).await;
        let is_warm = median <= warm(clients);
        if is_warm || began.elapsed() > LONGEST {
            println!("warmed up for {:?}: locks take {median:?}", began.elapsed());
            return is_warm;
        }
    }
}

/// How long locks of all clients take on a cluster that has run for minutes, at most.
fn warm(clients: &[&LockClient]) -> Duration {
    Duration::from_millis(5 + clients.len() as u64)
}

async fn median_of_locks(clients: &[&LockClient]) -> Duration {
    const ROUNDS: usize = 20;
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        times.push(lock_at_once(clients).await);
    }
    times.sort_unstable();
    times[ROUNDS / 2]
}

/// How long it takes until all have locked and unlocked a name of their own.
async fn lock_at_once(clients: &[&LockClient]) -> Duration {
    let began = Instant::now();
    let mut locks = JoinSet::new();
    for client in clients {
        let request = client.request(support::unique("warm-up"));
        locks.spawn(async move {
            let guard = request.acquire().await.expect("it is free");
            guard.unlock().await.expect("the lock was held");
        });
    }
    locks.join_all().await;
    began.elapsed()
}
