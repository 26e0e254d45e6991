//! Sweeps of an object whose reads meet very many dead rows.

use tokio::task::JoinSet;
use tokio::time::sleep;

use super::scene::{DEAD, OBJECT, Scene, TTL, lock_once, s};
use crate::testing::Fault;

// Goal: a read that does not show all contenders sweeps nothing, whatever dead rows it meets; a
// holder sweeps once it reads the object, which it does at each renewal.
// Method: dead rows appear while a client holds, and reads its rows by their keys; later they are
// renewed.
#[tokio::test(start_paused = true)]
async fn only_whole_reads_sweep() {
    let scene = Scene::new();
    let client = scene.client("a").await;
    let guard = client.lock(OBJECT).await.expect("the lock is free");
    scene.leave_dead_rows(DEAD).await;
    for _ in 0..3 {
        guard.check().await.expect("the rows are there");
        sleep(s(2)).await;
    }
    assert_eq!(scene.faulty.sweeps(), 0);
    sleep(TTL / 3).await;
    assert_eq!(scene.faulty.sweeps(), 1);
    guard.unlock().await.expect("the sweep hid none of its rows");
}

// Goal: clients that come at once to an object with many dead rows sweep it a few times, not each.
// Method: a hundred clients lock at the same moment.
#[tokio::test(start_paused = true)]
async fn herd_sweeps_few_times() {
    let scene = Scene::new();
    scene.leave_dead_rows(DEAD).await;
    let mut clients = Vec::new();
    for number in 0..100 {
        clients.push(scene.client(&format!("host-{number}")).await);
    }
    let mut locking = JoinSet::new();
    for client in clients {
        locking.spawn(async move { lock_once(&client).await });
    }
    let longest = locking.join_all().await.into_iter().max().expect("there are some");
    let sweeps = scene.faulty.sweeps();
    println!("{sweeps} sweeps, and the last client was served after {longest:?}");
    assert!((1..=5).contains(&sweeps), "{sweeps}");
    assert!(scene.mark().await.is_some());
}

// Goal: a row that a sweep has hidden before it was acknowledged costs its contender a round, and
// its caller no error.
// Method: an outage of six seconds begins before a client announces itself; as it ends, another
// client sweeps what was written before.
#[tokio::test(start_paused = true)]
async fn row_hidden_before_it_is_acknowledged_costs_one_round() {
    let scene = Scene::new();
    let client = scene.client("a").await;
    let began = scene.now(0);
    scene.faulty.fail_next(usize::MAX, Fault::NotApplied);
    let waiting = tokio::spawn(client.request(OBJECT).timeout(TTL).acquire());
    sleep(s(6)).await;
    scene.faulty.fail_next(0, Fault::NotApplied);
    scene.sweep(began + 1_000_000).await;
    let guard = waiting.await.expect("it does not panic").expect("the lock is free");
    let round = scene.only_contender(&client).await.round;
    assert!(round > Some(began + 6_000_000), "{round:?}: its first one began at {began}");
    guard.unlock().await.expect("it was held");
}
