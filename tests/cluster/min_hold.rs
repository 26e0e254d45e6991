//! Jobs that must not run again for a while.

use std::time::Duration;

use bakery_lock::testing::set_wall_clock_error;
use tokio::time::sleep;

use super::scene::Scene;
use support::monotonic::now;
use support::program;

/// By how many µs the wall clocks of the machines are off: two seconds lie between the outermost.
const CLOCK_ERRORS: [i64; 6] = [-1_000_000, -600_000, -200_000, 200_000, 600_000, 1_000_000];

const MIN_HOLD: Duration = Duration::from_secs(10);
/// Longer than that, and than a TTL's rounding, the clock skew and the spread of the clocks.
const PERIOD: Duration = Duration::from_secs(16);
/// How often the job is due.
const TIMES: usize = 3;
/// The first time is so far away from the start.
const AHEAD: Duration = Duration::from_secs(5);
/// How long the job takes.
const WORK: Duration = Duration::from_millis(20);

// Goal: a job that is due on all machines at the same time by their own clocks, which differ by up
// to two seconds, runs once each time, if it holds its lock for longer than that. Without that it
// runs more than once, or else the test would show nothing.
// Method: start `scheduled_program` six times; each tries the lock when its clock says so. Only the
// last time goes without `min_hold`.
#[tokio::test]
#[ignore = "takes long; scripts/nightly runs it"]
async fn job_runs_once_on_clocks_two_seconds_apart() {
    let _alone = support::alone().await;
    let scene = Scene::new().await;
    let name = support::unique("job");
    let mut programs = Vec::new();
    for error in CLOCK_ERRORS {
        programs.push(scene.start("min_hold::scheduled_program", &format!("{name} {error}")));
    }
    for program in &mut programs {
        program.expect("ready").await;
    }
    let first = now() + nanos(AHEAD);
    for program in &mut programs {
        program.tell(&first.to_string()).await;
    }
    let mut runs = [const { Vec::new() }; TIMES];
    for (program, error) in programs.into_iter().zip(CLOCK_ERRORS) {
        for ran in program.finish().await {
            let time: usize = ran.parse().expect("it tells which time it was");
            runs[time].push(error);
        }
    }
    println!("of {} machines these ran the job, by their clocks: {runs:?}", CLOCK_ERRORS.len());
    let (without, with) = runs.split_last().expect("there are several");
    for time in with {
        assert_eq!(time.len(), 1, "the job ran {} times", time.len());
    }
    assert!(without.len() > 1, "a job without min_hold ran once: the clocks do not matter");
}

// Goal: the program that the test above starts. By itself: a lock with `min_hold` is taken until
// that has passed, and no longer than its TTL allows.
// Method: try the lock at certain times of the machine's own clock.
#[tokio::test]
async fn scheduled_program() {
    let Some(order) = program::order() else {
        return stays_taken().await;
    };
    let (scene, order) = Scene::of(&order).await;
    let (name, error) = order.split_once(' ').expect("an order is a name and a clock error");
    let error: i64 = error.parse().expect("an order ends with a clock error");
    set_wall_clock_error(error);
    let client = scene.client().await;
    program::say("ready");
    let first: u64 = program::wait_for_word().parse().expect("it is told when to begin");
    for time in 0..TIMES {
        // By a clock that is ahead it is due earlier.
        let due = first + nanos(PERIOD) * u64::try_from(time).expect("it is small");
        let due = due.saturating_add_signed(-error * 1_000);
        sleep(Duration::from_nanos(due.saturating_sub(now()))).await;
        let request = client.request(name);
        let request = if time + 1 < TIMES { request.min_hold(MIN_HOLD) } else { request };
        if let Some(guard) = request.try_acquire().await.expect("the database answers") {
            program::say(&time.to_string());
            sleep(WORK).await;
            guard.unlock().await.expect("the lock was held");
        }
    }
    client.shutdown().await.expect("the database answers");
}

async fn stays_taken() {
    const MIN_HOLD: Duration = Duration::from_secs(3);
    let scene = Scene::new().await;
    let (client, other) = (scene.client().await, scene.client().await);
    let name = support::unique("job");
    let began = now();
    let request = client.request(&name).min_hold(MIN_HOLD);
    let guard = request.try_acquire().await.expect("the database answers").expect("it is free");
    guard.unlock().await.expect("the lock was held");
    let next = other.lock(&name).await.expect("it becomes free");
    let taken = Duration::from_nanos(now() - began);
    println!("a lock with min_hold({MIN_HOLD:?}) was free after {taken:?}");
    assert!(taken >= MIN_HOLD, "it was free after {taken:?}");
    next.unlock().await.expect("the lock was held");
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).expect("it is short")
}
