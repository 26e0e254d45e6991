//! Several locks at once, by clients that want overlapping sets of them.

use std::time::Duration;

use bakery_lock::{LockClient, LockError};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::scene::Scene;
use support::environment::{number, seed};
use support::history::{Moment, overlap};
use support::monotonic::now;
use support::program::{self, Program};

const PROCESSES: u64 = 8;
const TASKS: u64 = 2;
/// How often all of them together call, unless [`CALLS`] says another number.
const CALLS_DEFAULT: usize = 1_000;
const NAMES: usize = 12;

/// A call locks up to this many names.
const NAMES_MAX: usize = 4;

/// One call of this many gives up early, somewhere on its way.
const IMPATIENT: f64 = 0.05;

/// What a program says.
const DONE: &str = "done";
const GAVE_UP: &str = "gave-up";

const CALLS: &str = "BAKERY_LOCK_TOGETHER_CALLS";

// Goal: callers that lock overlapping sets of names again and again do not wait for each other in a
// circle, no two hold one name at the same time, and calls that fail leave nothing behind.
// Method: start `locking_program` eight times, with random sets in random order; some give up.
#[tokio::test]
#[ignore = "takes long; scripts/nightly runs it"]
async fn overlapping_sets_are_locked() {
    let _alone = support::alone().await;
    let scene = Scene::new().await;
    let seed = seed();
    let calls = number(CALLS).unwrap_or(CALLS_DEFAULT);
    let object = support::unique("together");
    let each = calls / usize::try_from(PROCESSES).expect("they are few");
    let mut programs = Vec::new();
    for place in 0..PROCESSES {
        let seed = seed.wrapping_add(place * TASKS);
        let order = format!("{object} {each} {seed}");
        programs.push(scene.start("together::locking_program", &order));
    }
    for program in &mut programs {
        program.expect("ready").await;
    }
    let began = now();
    for program in &mut programs {
        program.go_on().await;
    }
    let mut telling = JoinSet::new();
    for program in programs {
        telling.spawn(told_by(program));
    }
    let told = telling.join_all().await;
    let took = Duration::from_nanos(now() - began);
    for name in names(&object) {
        scene.wait_until_deleted(&name).await;
    }
    let mut held = vec![Vec::new(); NAMES];
    let mut gave_up = 0;
    for line in told.into_iter().flatten() {
        match line.split_once(' ') {
            Some((place, moment)) => {
                let place: usize = place.parse().expect("a line begins with a place");
                held[place].push(moment.parse::<Moment>().expect("programs tell moments"));
            }
            None => {
                assert_eq!(line, GAVE_UP);
                gave_up += 1;
            }
        }
    }
    for (place, moments) in held.iter().enumerate() {
        assert_eq!(overlap(moments), None, "two held name {place}");
    }
    let locks: usize = held.iter().map(Vec::len).sum();
    println!(
        "{calls} calls of {PROCESSES} processes x {TASKS} tasks in {took:.1?}: {locks} locks, no \
         two of one name at once; {gave_up} calls gave up, and left nothing"
    );
    assert!(gave_up > calls / 100, "{gave_up} calls gave up");
    assert!(locks > calls, "{locks} locks");
}

/// All that a program tells until it is done.
async fn told_by(mut program: Program) -> Vec<String> {
    let mut told = Vec::new();
    loop {
        match program.next().await.expect("it says when it is done") {
            done if done == DONE => break,
            line => told.push(line),
        }
    }
    assert_eq!(program.finish().await, Vec::<String>::new());
    told
}

// Goal: the program that the test above starts eight times. By itself: one process is served.
// Method: tasks share a number of calls; each notes when it held which names.
#[tokio::test]
async fn locking_program() {
    let Some(order) = program::order() else {
        let scene = Scene::new().await;
        return call(&scene.client().await, &support::unique("together"), 20, 1).await;
    };
    let (scene, order) = Scene::of(&order).await;
    let words: Vec<_> = order.split(' ').collect();
    let [object, calls, seed] = words[..] else {
        panic!("not an order: {order}");
    };
    let client = scene.client().await;
    let calls = calls.parse().expect("the second word is a number");
    let seed = seed.parse().expect("the last word is a number");
    program::say("ready");
    program::wait_for_word();
    call(&client, object, calls, seed).await;
    client.shutdown().await.expect("the database answers");
    program::say(DONE);
}

fn names(object: &str) -> Vec<String> {
    (0..NAMES).map(|place| format!("{object}::{place}")).collect()
}

/// Makes this many calls, and tells when it held which names, and when it gave up.
async fn call(client: &LockClient, object: &str, calls: usize, seed: u64) {
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (client, names) = (client.clone(), names(object));
        let mut rng = StdRng::seed_from_u64(seed.wrapping_add(task));
        let calls = calls / usize::try_from(TASKS).expect("they are few");
        tasks.spawn(async move {
            for _ in 0..calls {
                let some = rng.random_range(1..=NAMES_MAX);
                let places: Vec<_> = (0..NAMES).collect();
                let places: Vec<_> = places.choose_multiple(&mut rng, some).copied().collect();
                let is_impatient = rng.random_bool(IMPATIENT);
                let patience = if is_impatient { rng.random_range(1..30) } else { 120_000 };
                let request = client.request_all(places.iter().map(|place| names[*place].as_str()));
                match request.timeout(Duration::from_millis(patience)).acquire().await {
                    Ok(guard) => {
                        let from = now();
                        sleep(Duration::from_millis(rng.random_range(0..3))).await;
                        let held = Moment::Held { from, until: now() };
                        for place in &places {
                            program::say(&format!("{place} {held}"));
                        }
                        guard.unlock().await.expect("the locks were held");
                    }
                    Err(LockError::TimedOut { .. }) if is_impatient => program::say(GAVE_UP),
                    Err(error) => panic!("each call is served: {error}"),
                }
            }
        });
    }
    tasks.join_all().await;
}
