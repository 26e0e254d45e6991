//! Turns of guests of other processes, whose keeper dies, is stopped or shuts down.

use std::time::Duration;

use bakery_lock::{LockClient, LockError, LockGuard, LostReason, PeerOptions};
use rand::Rng;
use rustix::process::Signal;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use super::scene::{Scene, built};
use support::environment::{chance, repeats};
use support::monotonic::now;
use support::pace;
use support::program::{self, Program};

/// Longer than any test: for waits that have a limit elsewhere.
const UNBOUNDED: Duration = Duration::from_secs(3_600);

/// This often a keeper is stopped, this many at a time.
const STOPS: usize = 20;
const AT_A_TIME: usize = 10;

/// A client that takes turns of others.
pub(crate) async fn peer(scene: &Scene) -> LockClient {
    peer_with(scene, PeerOptions::auto()).await
}

pub(crate) async fn peer_with(scene: &Scene, peers: PeerOptions) -> LockClient {
    built(scene.builder().ttl(ttl()).peers(peers)).await
}

/// A guest that waits: its client, and when it is let in.
pub(crate) type Waiting = (LockClient, JoinHandle<(LockGuard, u64)>);

/// A client in the line of a keeper in another process. A keeper that is too busy to answer within
/// 20 ms is left for the table; then it is asked again. Later a keeper that is silent for a second
/// is left too, so on a busy machine the order of guests may change, and some may wait in the
/// table.
pub(crate) async fn guest(scene: Scene, name: String) -> Waiting {
    let client = peer(&scene).await;
    let mut asking = None;
    let asked = async {
        while asking.is_none() {
            asking = ask_keeper(&client, &name).await;
        }
    };
    pace::within_limit("a place in a keeper's line", asked).await;
    (client, asking.expect("it has a place"))
}

/// Asks the keeper of a lock once. `None` if it was too busy to answer.
async fn ask_keeper(client: &LockClient, name: &str) -> Option<JoinHandle<(LockGuard, u64)>> {
    let before = client.statistics().deletes;
    let asking = ask(client, name);
    let leaves_the_table = async {
        while client.statistics().deletes == before {
            sleep(Duration::from_millis(5)).await;
        }
    };
    if timeout(Duration::from_secs(1), leaves_the_table).await.is_ok() {
        return Some(asking);
    }
    asking.abort();
    // It leaves the table without a place.
    sleep(Duration::from_millis(200)).await;
    None
}

/// Asks for a lock without a limit: others join the line after it, each in its own time.
pub(crate) fn ask(client: &LockClient, name: &str) -> JoinHandle<(LockGuard, u64)> {
    let request = client.request(name).timeout(UNBOUNDED);
    tokio::spawn(async {
        let guard = request.acquire().await.expect("each one in line is served");
        (guard, now())
    })
}

/// Waits until a guest has the lock, and since when.
pub(crate) async fn served(asking: JoinHandle<(LockGuard, u64)>) -> (LockGuard, u64) {
    let served = pace::within_limit("a lock for one in a line", asking).await;
    served.expect("the task does not panic")
}

/// Waits until one of these guests has the lock. Returns it, and the others.
async fn first_served(mut line: Vec<Waiting>) -> ((LockClient, LockGuard), Vec<Waiting>) {
    let has_lock = |(_, asking): &Waiting| asking.is_finished();
    let any_has_lock = async {
        while !line.iter().any(has_lock) {
            sleep(Duration::from_millis(5)).await;
        }
    };
    pace::within_limit("a lock for the first in a line", any_has_lock).await;
    let first = line.iter().position(has_lock).expect("one has it");
    let (client, asking) = line.remove(first);
    let (guard, _) = served(asking).await;
    ((client, guard), line)
}

/// A guest that has the turn of a keeper in another process, and the next one in its line.
struct Sublease {
    inside: (LockClient, LockGuard),
    next: Waiting,
    name: String,
}

impl Sublease {
    async fn new(scene: &Scene) -> (Program, Self) {
        loop {
            if let Some(sublease) = Sublease::set_up(scene).await {
                return sublease;
            }
        }
    }

    /// `None` if both guests have left the line, because the keeper was too busy to answer.
    async fn set_up(scene: &Scene) -> Option<(Program, Self)> {
        let name = support::unique("sublease");
        let mut keeper = keeper(scene, &name).await;
        let mut line = Vec::new();
        for _ in 0..2 {
            line.push(guest(scene.clone(), name.clone()).await);
        }
        let place = holder(&line[0].0, &name).await;
        lend(&mut keeper).await;
        let (inside, mut rest) = first_served(line).await;
        let next = rest.pop().expect("there are two");
        let is_lent = holder(&inside.0, &name).await == place;
        is_lent.then_some((keeper, Sublease { inside, next, name }))
    }

    /// Waits until the guest has lost its turn, and the next one has the lock. Returns when.
    async fn passes_on(self, scene: &Scene) -> (u64, u64) {
        let Sublease { inside: (first, guard), next: (client, asking), name } = self;
        let lost = pace::within_limit("the loss of a turn", guard.lost()).await;
        assert_eq!(lost, Some(LostReason::KeeperUnreachable));
        let lost = now();
        let (next, granted) = served(asking).await;
        next.check().await.expect("it is held");
        next.unlock().await.expect("the lock was held");
        scene.wait_until_deleted(&name).await;
        for client in [first, client] {
            client.shutdown().await.expect("nothing is left");
        }
        (lost, granted)
    }
}

/// Starts a keeper that holds the lock.
pub(crate) async fn keeper(scene: &Scene, name: &str) -> Program {
    let mut keeper = scene.start("subleases::keeping_program", name);
    keeper.expect("ready").await;
    keeper.go_on().await;
    keeper.expect("held").await;
    keeper
}

pub(crate) async fn lend(keeper: &mut Program) {
    keeper.go_on().await;
    keeper.expect("sublease").await;
}

/// The client whose rows hold the lock: while a turn is sublease, that of the keeper.
async fn holder(client: &LockClient, name: &str) -> Uuid {
    let contenders = client.contenders(name).await.expect("the rows can be read");
    contenders.first().expect("the lock is held").client
}

// Goal: when a keeper is killed its guest loses its turn, and after that its line is served.
// Method: kill the keeper's process while a guest is inside and another one waits.
#[tokio::test]
async fn line_of_a_killed_keeper_is_served() {
    let _beside = support::beside_others().await;
    let scene = Scene::new().await;
    let (keeper, sublease) = Sublease::new(&scene).await;
    let killed = now();
    keeper.kill().await;
    let (lost, granted) = sublease.passes_on(&scene).await;
    assert!(lost < granted, "let in {} ns before the guest had lost its turn", lost - granted);
    let blocked = Duration::from_nanos(granted - killed);
    println!("a killed keeper blocked its line for {blocked:?}, with a TTL of {:?}", ttl());
}

// Goal: a keeper that is stopped for longer than its lease while a guest is inside lets no two in:
// the guest loses its turn before another client has the lock.
// Method: stop keepers by SIGSTOP until the next client has held the lock, many times.
#[tokio::test]
#[ignore = "takes long; scripts/nightly runs it"]
async fn stopped_keeper_lets_no_two_in() {
    let _alone = support::alone().await;
    let scene = Scene::new().await;
    let mut chance = chance();
    let mut longest = Duration::ZERO;
    let stops = repeats(STOPS);
    for _ in 0..stops / AT_A_TIME {
        let mut stopping = JoinSet::new();
        for _ in 0..AT_A_TIME {
            let (scene, pause) = (scene.clone(), ttl().mul_f64(chance.random()));
            stopping.spawn(async move {
                let (keeper, sublease) = Sublease::new(&scene).await;
                sleep(pause).await;
                keeper.signal(Signal::STOP);
                let stopped = now();
                let (lost, granted) = sublease.passes_on(&scene).await;
                assert!(lost < granted, "let in {} ns too early", lost - granted);
                Duration::from_nanos(granted - stopped)
            });
        }
        for blocked in stopping.join_all().await {
            longest = longest.max(blocked);
        }
    }
    println!("{stops} keepers were stopped past their leases; blocked for {longest:?} at most");
}

// Goal: a keeper that shuts down leaves none of its line waiting: all are served elsewhere.
// Method: 31 guests wait while one is inside; the keeper shuts down, and the guest unlocks.
#[tokio::test]
async fn line_of_a_stopping_keeper_is_served_elsewhere() {
    const WAITING: usize = 31;
    let _beside = support::beside_others().await;
    let scene = Scene::new().await;
    let name = support::unique("sublease");
    let mut keeper = keeper(&scene, &name).await;
    let mut line = Vec::new();
    // One after the other: each asks a keeper that has 20 ms to answer.
    for _ in 0..=WAITING {
        line.push(guest(scene.clone(), name.clone()).await);
    }
    lend(&mut keeper).await;
    let ((first, guard), waiting) = first_served(line).await;
    keeper.go_on().await;
    // The keeper waits for the present turn.
    sleep(Duration::from_millis(300)).await;
    guard.check().await.expect("it is held");
    let began = now();
    guard.unlock().await.expect("the lock was held");
    keeper.expect("shut down").await;
    let last = serve_all(waiting).await;
    let all = Duration::from_nanos(last - began);
    // How long that may take is tested in virtual time.
    println!("{WAITING} in the line of a keeper that shut down had the lock within {all:?}");
    keeper.finish().await;
    first.shutdown().await.expect("nothing is left");
    scene.wait_until_deleted(&name).await;
}

/// Waits until all guests have had the lock; when the last one got it.
pub(crate) async fn serve_all(line: Vec<Waiting>) -> u64 {
    let mut all = JoinSet::new();
    for (client, asking) in line {
        all.spawn(async move {
            let (guard, granted) = served(asking).await;
            guard.unlock().await.expect("the lock was held");
            (client, granted)
        });
    }
    let all = all.join_all().await;
    // Not sooner: the one that has the place keeps it for the others.
    for (client, _) in &all {
        client.shutdown().await.expect("nothing is left");
    }
    all.into_iter().map(|(_, granted)| granted).max().expect("there are many")
}

// Goal: the program that the tests above start. By itself: a client that is alone keeps a place for
// its own callers.
// Method: hold the lock until guests are in line, pass it on, and shut down.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keeping_program() {
    let Some(order) = program::order() else {
        let scene = Scene::new().await;
        let client = peer(&scene).await;
        let guard = client.lock(&support::unique("sublease")).await.expect("the lock is free");
        guard.unlock().await.expect("the lock was held");
        return client.shutdown().await.expect("nothing is left");
    };
    let (scene, name) = Scene::of(&order).await;
    let client = peer(&scene).await;
    program::say("ready");
    word().await;
    let guard = client.lock(name).await.expect("the lock is free");
    program::say("held");
    word().await;
    // It stands behind the guests.
    let waiting = async || client.queue(name).await.expect("it keeps the place").waiting;
    let guests = waiting().await;
    let asking = client.request(name).acquire();
    // Should it have a turn, because no guest is left, it leaves the lock to those in the table.
    let behind = tokio::spawn(async { asking.await.map(drop) });
    pace::until("a caller stands behind the guests", async || waiting().await > guests).await;
    guard.unlock().await.expect("the lock was held");
    program::say("sublease");
    word().await;
    client.shutdown().await.expect("the guest gives its turn back");
    program::say("shut down");
    let behind = behind.await.expect("the task does not panic");
    assert!(matches!(behind, Ok(()) | Err(LockError::Closed)), "{behind:?}");
}

/// Waits for the other side, while the client's task runs.
async fn word() {
    tokio::task::spawn_blocking(program::wait_for_word).await.expect("the other side is there");
}

/// Short, but longer on a slow machine.
pub(crate) fn ttl() -> Duration {
    pace::scaled(Duration::from_secs(6))
}
