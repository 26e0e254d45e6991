//! Servers that are started again without their data, at any moment and several at a time.

use std::time::Duration;

use bakery_lock::masters;
use rand::Rng;
use tokio::time::{Instant, sleep};

use super::scene::{self, QUARANTINE, Scene};
use super::storm::{self, Storm};
use support::environment;
use support::pace;

/// Says how many restarts the long test is to see.
const RESTARTS: &str = "BAKERY_LOCK_MASTERS_RESTARTS";

// Goal: however servers without persistence are started again, no two clients hold a lock at the
// same time, and locks are granted again once the wait is over.
// Method: four programs take locks. Servers are killed and started again at random moments, some
// together, some while another one is not back yet. When a majority has lost its data, an operator
// runs `lock-hosts init`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes long; scripts/nightly runs it"]
async fn restarts_without_data_let_no_two_in() {
    let restarts = environment::number(RESTARTS).unwrap_or(6);
    let seed = environment::seed();
    let mut chance = environment::chance();
    let mut scene = Scene::new().await;
    let began = Instant::now();
    let storm = Storm::begin(storm::PROGRAM, &scene.servers.urls(), seed);
    let (mut restored, mut last_grants) = (0, 0);
    for restart in 0..restarts {
        // Half of them come while an earlier one is not over.
        let pause = if chance.random() {
            Duration::from_millis(chance.random_range(0..10_000))
        } else {
            QUARANTINE + Duration::from_millis(chance.random_range(0..8_000))
        };
        let until = Instant::now() + pause;
        while Instant::now() < until {
            restored += usize::from(is_restored(&scene).await);
            sleep(Duration::from_millis(200)).await;
        }
        let first = chance.random_range(0..scene.servers.count());
        // Two at once are a majority; after three, no server knows the lock table any more.
        let victims = [1, 1, 1, 1, 2, 3][chance.random_range(0..6)];
        let victims: Vec<_> = (first..first + victims).map(|index| index % 3).collect();
        for &server in &victims {
            scene.servers.kill(server);
        }
        for &server in &victims {
            scene.servers.start_again(server);
        }
        if restart % 10 == 9 {
            println!("{} restarts, {} grants", restart + 1, storm.grants());
        }
        last_grants = storm.grants();
    }
    let granted_again = async {
        while storm.grants() <= last_grants + 100 {
            restored += usize::from(is_restored(&scene).await);
            sleep(Duration::from_millis(200)).await;
        }
    };
    pace::within_limit("grants after the last restart", granted_again).await;
    let outcome = storm.end().await;
    println!(
        "{restarts} restarts in {:?}, {restored} times of a majority; {} grants, overlaps: {}; \
         longest time without a grant {:?}, above a second {:?}",
        began.elapsed(),
        outcome.grants,
        outcome.overlaps.len(),
        outcome.longest_pause,
        outcome.pauses,
    );
    assert!(outcome.overlaps.is_empty(), "{:?}", outcome.overlaps);
}

/// Restores the masters as an operator does, if a majority has lost its data.
async fn is_restored(scene: &Scene) -> bool {
    let needs_operator = match masters::check(&scene.masters, "lock_table").await {
        Ok(report) => report
            .findings
            .iter()
            .any(|finding| finding.to_string().contains("if fewer have, run `lock-hosts init`")),
        Err(error) => error.to_string().contains("run `lock-hosts init`"),
    };
    // A server may be on its way back.
    needs_operator
        && masters::init(&scene.masters, &scene::options())
            .await
            .is_ok_and(|done| !done.joined.is_empty())
}

// Goal: the wait is needed: where an operator skips it although locks are held, two clients hold
// one. Otherwise the tests above would show nothing.
#[tokio::test]
async fn skipped_wait_lets_two_in() {
    let scene = Scene::new().await;
    let holder = scene.client().await;
    let guard = holder.lock("name").await.expect("it is free");
    scene.servers.flush(0);
    scene.servers.flush(1);
    let masters = scene::connect(&scene.servers.urls()).await;
    let options = scene::options().fresh(true);
    masters::init(&masters, &options).await.expect("all answer");
    scene.servers.freeze(2);
    let other = scene::built(scene::builder(&masters)).await;
    let second = other.try_lock("name").await.expect("a majority answers");
    assert!(second.is_some() && guard.state().is_held(), "{:?}", guard.state());
    scene.servers.thaw(2);
}
