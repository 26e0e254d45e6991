//! Locks that a limited number hold at once.

use std::time::Duration;

use bakery_lock::LockClient;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::scene::Scene;
use support::history::{Moment, inside};
use support::monotonic::now;
use support::program;

const LIMIT: u32 = 3;
const PROCESSES: usize = 5;
const CALLERS: usize = 4;
const LOCKS: usize = 4;
/// Long beside what a handoff takes on a busy machine.
const STAY: Duration = Duration::from_secs(1);

// Goal: of twenty callers never more than three are inside, and more than two on average.
// Method: start `limited_program` five times; each tells when its callers were inside. The average
// is taken while all of them still want the lock.
#[tokio::test]
#[ignore = "takes long; scripts/nightly runs it"]
async fn three_of_twenty_callers_are_inside() {
    let _alone = support::alone().await;
    let scene = Scene::new().await;
    let object = support::unique("limited");
    let mut programs = Vec::new();
    for _ in 0..PROCESSES {
        programs.push(scene.start("limited::limited_program", &object));
    }
    for program in &mut programs {
        program.expect("ready").await;
    }
    for program in &mut programs {
        program.go_on().await;
    }
    let (mut held, mut first_done, mut operations) = (Vec::new(), u64::MAX, 0);
    for program in &mut programs {
        program.expect("done").await;
    }
    for program in programs {
        for line in program.finish().await {
            match line.split_once(' ') {
                Some(("last", time)) => first_done = first_done.min(time.parse().expect("a time")),
                Some(("operations", number)) => operations += number.parse::<usize>().expect("one"),
                _ => held.push(line.parse::<Moment>().expect("programs tell moments")),
            }
        }
    }
    assert_eq!(held.len(), PROCESSES * CALLERS * LOCKS);
    let (most, _) = inside(&held, u64::MAX);
    let (_, average) = inside(&held, first_done);
    println!(
        "max_holders({LIMIT}), {PROCESSES} processes x {CALLERS} callers x {LOCKS} locks of \
         {STAY:?}: {most} inside at most, {average:.2} on average; {:.1} operations per lock",
        operations as f64 / held.len() as f64,
    );
    assert_eq!(most, LIMIT as usize);
    // How soon a free place is taken depends on the machine; that the third one is used does not.
    assert!(average > f64::from(LIMIT - 1), "{average} are inside on average");
    scene.wait_until_deleted(&object).await;
}

// Goal: the program that the test above starts five times. By itself: three callers of one process
// are inside together, and never more.
// Method: take three at once, and try a fourth. Then callers take the lock again and again; each
// notes when it was inside.
#[tokio::test]
async fn limited_program() {
    let Some(order) = program::order() else {
        let scene = Scene::new().await;
        let (client, object) = (scene.client().await, support::unique("limited"));
        all_places_are_taken(&client, &object).await;
        let held: Vec<_> = take(&client, &object, 3).await.into_iter().flatten().collect();
        assert_eq!(held.len(), CALLERS * 3);
        return assert!(inside(&held, u64::MAX).0 <= LIMIT as usize);
    };
    let (scene, object) = Scene::of(&order).await;
    let client = scene.client().await;
    program::say("ready");
    program::wait_for_word();
    let told = take(&client, object, LOCKS).await;
    client.shutdown().await.expect("the database answers");
    program::say("done");
    program::say(&format!("operations {}", client.statistics().operations()));
    for caller in told {
        let last = caller.last().expect("each caller was inside").last();
        program::say(&format!("last {last}"));
        for moment in caller {
            program::say(&moment.to_string());
        }
    }
}

/// Takes all places, and looks whether one is left; gives them back.
async fn all_places_are_taken(client: &LockClient, object: &str) {
    let request = client.request(object).max_holders(LIMIT);
    let mut held = Vec::new();
    for _ in 0..LIMIT {
        held.push(request.clone().acquire().await.expect("there is a place"));
    }
    let one_more = request.try_acquire().await.expect("the database answers");
    assert!(one_more.is_none(), "more than {LIMIT} hold it");
    for guard in held {
        guard.unlock().await.expect("the lock was held");
    }
}

/// Takes the lock this many times with each caller, and tells when each was inside.
async fn take(client: &LockClient, object: &str, locks: usize) -> Vec<Vec<Moment>> {
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        let request = client.request(object).max_holders(LIMIT);
        callers.spawn(async move {
            let mut told = Vec::new();
            for _ in 0..locks {
                let guard = request.clone().acquire().await.expect("each caller is served");
                let from = now();
                sleep(STAY).await;
                told.push(Moment::Held { from, until: now() });
                guard.unlock().await.expect("the lock was held");
            }
            told
        });
    }
    callers.join_all().await
}
