//! What a lock is for: several processes change one thing, and no change is lost.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bakery_lock::PeerOptions;
use tokio::task::JoinSet;

use super::data::Counter;
use super::scene::{Scene, built};
use support::history::{Moment, Round, overlap, overtaking, rounds};
use support::monotonic::now;
use support::program;
use support::record::record_rounds;

const PROCESSES: u32 = 8;
const TASKS: u32 = 8;
const INCREMENTS: u32 = 2_000;
const NANOS: f64 = 1e9;

/// The default.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(1);

// Goal: eight processes with eight tasks each increment a counter row 2,000 times in all, with a
// plain read and a plain write, each time under the lock. No increment is lost, no two tasks hold
// at the same time, none overtakes, and no row is left. Without the
// lock the same program loses increments, or else the test would show nothing.
// Method: start `counting_program` eight times, without the lock and with it.
#[tokio::test]
#[ignore = "takes long; scripts/nightly runs it"]
async fn eight_processes_lose_no_increment() {
    let _alone = support::alone().await;
    let scene = Scene::new().await;
    let unlocked = Counter::new(&scene, &support::unique("counter")).await;
    count(&scene, &unlocked.name, "unlocked").await;
    let unlocked = unlocked.value().await;
    assert!(unlocked < i64::from(INCREMENTS), "no increment was lost without the lock");

    let counter = Counter::new(&scene, &support::unique("counter")).await;
    let moments = count(&scene, &counter.name, "locked").await;
    let began = moments.iter().map(Moment::first).min().expect("something happened");
    let ended = moments.iter().map(Moment::last).max().expect("something happened");
    scene.wait_until_deleted(&counter.name).await;
    let gone = Duration::from_nanos(now() - ended);
    assert_eq!(counter.value().await, i64::from(INCREMENTS));
    let grants = moments.iter().filter(|moment| matches!(moment, Moment::Held { .. })).count();
    assert_eq!(grants, INCREMENTS as usize);
    assert_eq!(overlap(&moments), None, "two tasks held the lock");
    assert_eq!(overtaking(&moments), None, "a task overtook");
    let with_ticket =
        |moment: &&Moment| matches!(moment, Moment::Round(Round { drawn: Some(_), .. }));
    let tickets = moments.iter().filter(with_ticket).count();
    assert!(tickets > 0, "the order of tickets was not tested");
    println!(
        "{INCREMENTS} increments by {PROCESSES} processes x {TASKS} tasks: exact; {:.1} grants a \
         second, {tickets} with a ticket; no row left {gone:?} after the last release; without the \
         lock the counter came to {unlocked}",
        f64::from(INCREMENTS) * NANOS / (ended - began) as f64,
    );
}

// Goal: the same of clients that pass the lock on by message: no increment is lost, no two hold at
// the same time, no row is left, and nearly none of the grants costs an operation on the table.
// Method: the same program, whose clients listen for each other.
#[tokio::test]
async fn eight_processes_that_are_peers_lose_no_increment() {
    let _alone = support::alone().await;
    let scene = Scene::new().await;
    let counter = Counter::new(&scene, &support::unique("counter")).await;
    let moments = count(&scene, &counter.name, "peers").await;
    let began = moments.iter().map(Moment::first).min().expect("something happened");
    let ended = moments.iter().map(Moment::last).max().expect("something happened");
    scene.wait_until_deleted(&counter.name).await;
    assert_eq!(counter.value().await, i64::from(INCREMENTS));
    let grants = moments.iter().filter(|moment| matches!(moment, Moment::Held { .. })).count();
    assert_eq!(grants, INCREMENTS as usize);
    assert_eq!(overlap(&moments), None, "two tasks held the lock");
    assert_eq!(overtaking(&moments), None, "a contender in the table was overtaken by another one");
    let places = rounds(&moments).len();
    println!(
        "{INCREMENTS} increments by {PROCESSES} processes x {TASKS} tasks that are peers: exact; \
         {:.1} grants a second, {places} rounds in the table",
        f64::from(INCREMENTS) * NANOS / (ended - began) as f64,
    );
    assert!(places < grants / 2, "{places} rounds in the table");
}

// Goal: the program that the tests above start eight times. By itself: a single process loses no
// increment.
// Method: tasks share a number of increments; each notes when it held the lock.
#[tokio::test]
async fn counting_program() {
    let Some(order) = program::order() else {
        let scene = Scene::new().await;
        let name = support::unique("counter");
        increment(&scene, &name, "locked", 40).await;
        assert_eq!(Counter::new(&scene, &name).await.value().await, 40);
        return;
    };
    let (scene, order) = Scene::of(&order).await;
    let words: Vec<_> = order.split(' ').collect();
    let [name, how, increments] = words[..] else {
        panic!("not an order: {order}");
    };
    let recorder = record_rounds(MAX_CLOCK_SKEW);
    program::say("ready");
    program::wait_for_word();
    let increments = increments.parse().expect("an order ends with a number");
    let held = increment(&scene, name, how, increments).await;
    program::say("done");
    let rounds = recorder.lock().expect("the mutex is not poisoned").take();
    // The registry of hosts has a lock of its own.
    let rounds = rounds.into_iter().filter_map(|(of, round)| (of == name).then_some(round));
    for moment in held.into_iter().chain(rounds) {
        program::say(&moment.to_string());
    }
}

/// Runs the program eight times at once, and returns what they tell.
async fn count(scene: &Scene, name: &str, how: &str) -> Vec<Moment> {
    let increments = INCREMENTS / PROCESSES;
    let order = format!("{name} {how} {increments}");
    let mut programs = Vec::new();
    for _ in 0..PROCESSES {
        programs.push(scene.start("counter::counting_program", &order));
    }
    for program in &mut programs {
        program.expect("ready").await;
    }
    for program in &mut programs {
        program.go_on().await;
    }
    for program in &mut programs {
        program.expect("done").await;
    }
    let mut moments = Vec::new();
    for program in programs {
        let said = program.finish().await;
        let said = said.iter().map(|line| line.parse::<Moment>().expect("programs tell moments"));
        moments.extend(said);
    }
    moments
}

/// Increments a counter by eight tasks, and returns when each held the lock.
async fn increment(scene: &Scene, name: &str, how: &str, increments: u32) -> Vec<Moment> {
    let counter = Counter::new(scene, name).await;
    let mut builder = scene.builder();
    if how == "peers" {
        builder = builder.peers(PeerOptions::new(SocketAddr::from(([127, 0, 0, 1], 0))));
    }
    let is_locked = how != "unlocked";
    let client = built(builder).await;
    let left = Arc::new(AtomicU32::new(increments));
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let (counter, client, left) = (counter.clone(), client.clone(), Arc::clone(&left));
        tasks.spawn(async move {
            let mut held = Vec::new();
            let take = |left: u32| left.checked_sub(1);
            while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok() {
                if is_locked {
                    let guard = client.lock(&counter.name).await.expect("each task gets the lock");
                    let from = now();
                    counter.increment().await;
                    held.push(Moment::Held { from, until: now() });
                    guard.unlock().await.expect("the lock was held");
                } else {
                    counter.increment().await;
                }
            }
            held
        });
    }
    let held = tasks.join_all().await.into_iter().flatten().collect();
    // Clients of other processes may wait in its line.
    client.shutdown().await.expect("the database answers");
    held
}
