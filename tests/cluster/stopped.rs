//! Work under a lock whose process is stopped for longer than its lease.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bakery_lock::{LockError, LostReason};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rustix::process::Signal;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::scene::{Scene, built};
use support::environment::chance;
use support::monotonic::now;
use support::pace;
use support::program;

/// This many are stopped at a time,
const PROGRAMS: usize = 10;
/// each of them this often between two polls.
const STOPS: usize = 5;
/// A lease is renewed two or three times by then.
const WORKED_MAX: Duration = Duration::from_secs(5);

// Goal: work under a lock is not polled again once its process was stopped for longer than the
// lease; it ends as lost, and nothing of the stopped one stays or comes back in the next holder's
// time.
// Method: programs work under `with_lock` and note when they are polled. Each is stopped by SIGSTOP
// at a random moment until the next client holds the lock; 50 times in all between two polls. A
// poll that has begun when it is stopped continues: it may note one time that is too late, never
// two.
#[tokio::test]
#[ignore = "takes long; scripts/nightly runs it"]
async fn stopped_work_is_not_polled_after_the_lease() {
    let _alone = support::alone().await;
    let scene = Scene::new().await;
    let mut chance = chance();
    let mut stopping = JoinSet::new();
    for _ in 0..PROGRAMS {
        let scene = scene.clone();
        let mut chance = StdRng::from_rng(&mut chance);
        stopping.spawn(async move {
            let (mut between_polls, mut in_the_midst) = (0, 0);
            while between_polls < STOPS {
                if stop_one(&scene, &mut chance).await {
                    in_the_midst += 1;
                } else {
                    between_polls += 1;
                }
            }
            in_the_midst
        });
    }
    let stopped = pace::within_limit("stops between two polls", stopping.join_all());
    let in_the_midst: usize = stopped.await.into_iter().sum();
    println!(
        "{} times a holder was stopped past its lease between two polls, and {in_the_midst} times \
         in the midst of one; none of its work was polled after that",
        PROGRAMS * STOPS
    );
}

/// Stops a program until its lock is another client's. Returns whether a poll had begun just then.
async fn stop_one(scene: &Scene, chance: &mut StdRng) -> bool {
    let name = support::unique("stopped");
    let mut stopped = scene.start("stopped::working_program", &name);
    stopped.expect("ready").await;
    stopped.go_on().await;
    stopped.expect("held").await;
    // After a few polls at least.
    sleep(Duration::from_millis(50) + WORKED_MAX.mul_f64(chance.random())).await;
    stopped.signal(Signal::STOP);

    let client = scene.client().await;
    let next = client.request(&name).acquire().await;
    let next = next.expect("the stopped program's rows expire");
    let granted = now();
    // Up to a second into the next holder's time.
    sleep(Duration::from_secs(1).mul_f64(chance.random())).await;
    stopped.signal(Signal::CONT);
    let said = stopped.finish().await;
    let [last, before] = said.as_slice() else {
        panic!("a program said {said:?}");
    };
    let [last, before] =
        [last, before].map(|poll| poll.parse::<u64>().expect("it told when it was polled"));
    assert!(before < granted, "polled {} ns after the next holder's grant", before - granted);

    next.check().await.expect("the stopped program deleted no row of this client");
    next.unlock().await.expect("the lock was held");
    assert_eq!(scene.rows(&name).await, Vec::<String>::new(), "rows came back");
    last > granted
}

// Goal: the program that the test above starts. By itself: work that is not stopped is polled to
// its end, over several renewals.
// Method: work that notes the time of each poll.
#[tokio::test]
async fn working_program() {
    let Some(order) = program::order() else {
        let scene = Scene::new().await;
        let client = scene.client().await;
        let request = client.request(support::unique("stopped")).ttl(ttl());
        let work = async |_| note_polls(&Polls::default(), 1_000).await;
        let polls = request.with_lock(work).await;
        return assert_eq!(polls.expect("nothing stops it"), 1_000);
    };
    let (scene, name) = Scene::of(&order).await;
    let client = built(scene.builder().ttl(ttl())).await;
    program::say("ready");
    program::wait_for_word();
    let polls = Polls::default();
    let work = client.with_lock(name, async |_| {
        program::say("held");
        note_polls(&polls, usize::MAX).await
    });
    let error = work.await.expect_err("it is stopped before it ends");
    assert!(
        matches!(error, LockError::WorkStopped { reason: LostReason::Expired, .. }),
        "{error:?}"
    );
    let polls = polls.lock().expect("the mutex is not poisoned");
    for poll in polls.iter().rev().take(2) {
        program::say(&poll.to_string());
    }
}

/// When work was polled.
type Polls = Arc<Mutex<Vec<u64>>>;

/// Work of this many polls, a few milliseconds each.
async fn note_polls(polls: &Polls, count: usize) -> usize {
    for _ in 0..count {
        polls.lock().expect("the mutex is not poisoned").push(now());
        sleep(Duration::from_millis(5)).await;
    }
    count
}

/// The shortest, so that a lease is renewed every other second.
fn ttl() -> Duration {
    pace::scaled(Duration::from_secs(5))
}
