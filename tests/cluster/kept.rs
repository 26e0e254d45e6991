//! Places that a client keeps between two uses, and whose client is killed or stopped.

use std::sync::Arc;
use std::time::Duration;

use bakery_lock::{LockClient, LockGuard, UnlockError};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rustix::process::Signal;
use tokio::sync::Notify;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::sleep;
use uuid::Uuid;

use super::scene::{Scene, built};
use super::subleases::{peer, ttl};
use support::environment::{chance, repeats};
use support::history::{Moment, overlap};
use support::monotonic::now;
use support::pace;
use support::program::{self, Program};

/// This often a keeper is killed, and stopped,
const KILLS: usize = 40;
const STOPS: usize = 20;
/// this many at a time.
const AT_A_TIME: usize = 10;

/// How long a keeper does not use its lock, in milliseconds. It keeps the place for that long.
const PAUSES: std::ops::Range<u64> = 100..400;

/// How often a keeper has used its kept place before it is killed or stopped, at most.
const USES_MAX: u32 = 6;

/// How long clients have the lock.
const SHORT: Duration = Duration::from_millis(5);

/// For how long after a stopped keeper continues others have the lock, at least.
const HELD_AFTER: Duration = Duration::from_millis(300);

/// Others ask for the lock within this time.
const ASKED_WITHIN: Duration = Duration::from_millis(300);

// Goal: a keeper that is killed while it keeps an idle place keeps others out for its TTL, until a
// waiter looks again, and lets no two in.
// Method: kill the processes of many keepers at random moments between two uses. A guest that has
// had turns, another peer and a client without peers want each lock.
#[tokio::test]
#[ignore = "takes long; scripts/nightly runs it"]
async fn killed_keeper_blocks_others_for_its_ttl() {
    let _alone = support::alone().await;
    let waits = many(repeats(KILLS), kill_one).await;
    let kills = waits.len();
    let mut blocked: Vec<_> = waits.into_iter().flatten().collect();
    blocked.sort_unstable();
    let (Some(most), median) = (blocked.last(), blocked.get(blocked.len() / 2)) else {
        panic!("no keeper had its place when it was killed");
    };
    let median = median.expect("there is one");
    let late = blocked.iter().filter(|blocked| **blocked > ttl()).count();
    println!(
        "{kills} keepers were killed between two uses: others had to wait for the rows of {}, for \
         {median:.2?} in the median and {most:.2?} at most, {late} times for longer than the TTL \
         of {:?}; no two held at once",
        blocked.len(),
        ttl(),
    );
    // A waiter looks again after a sixteenth of its wait, or a little more.
    let look = (ttl() / 8).max(Duration::from_secs(1));
    assert!(*most <= ttl() + look, "others waited for {most:?}");
    assert!(blocked.len() * 2 > kills, "most places are given up too early");
}

// Goal: a keeper that is stopped for longer than its lease while it keeps an idle place gives no
// turn of it afterwards, to its own caller or to a guest whose request waited in its socket.
// Method: stop keepers by SIGSTOP at random moments between two uses until another client has the
// lock, and look who holds it when they continue.
#[tokio::test]
#[ignore = "takes long; scripts/nightly runs it"]
async fn stopped_keeper_gives_no_turn_after_its_lease() {
    let _alone = support::alone().await;
    let stopped = many(repeats(STOPS), async |scene, chance| {
        loop {
            if let Some(stopped) = stop_one(scene, chance).await {
                return stopped;
            }
        }
    });
    let stopped = stopped.await;
    let (least, most) = (stopped.iter().min(), stopped.iter().max());
    println!(
        "{} keepers were stopped between two uses, while their rows stood, for {:.2?} to {:.2?}, \
         with a TTL of {:?}; no two held at once",
        stopped.len(),
        least.expect("there are many"),
        most.expect("there are many"),
        ttl(),
    );
}

/// Does something this often, some at a time. Each has a scene, and chances of its own.
async fn many<T, F>(times: usize, one: F) -> Vec<T>
where
    T: Send + 'static,
    F: AsyncFn(&Scene, &mut StdRng) -> T + Clone + 'static,
{
    let scene = Scene::new().await;
    let mut chance = chance();
    let tasks = tokio::task::LocalSet::new();
    let mut doing = JoinSet::new();
    for number in 0..AT_A_TIME {
        let (scene, one) = (scene.clone(), one.clone());
        let mut chance = StdRng::from_rng(&mut chance);
        let share = times / AT_A_TIME + usize::from(number < times % AT_A_TIME);
        let some = async move {
            let mut done = Vec::new();
            for _ in 0..share {
                done.push(one(&scene, &mut chance).await);
            }
            done
        };
        doing.spawn_local_on(some, &tasks);
    }
    tasks.run_until(doing.join_all()).await.into_iter().flatten().collect()
}

/// Kills a keeper between two uses. Returns for how long others had to wait, if it still had its
/// place.
async fn kill_one(scene: &Scene, chance: &mut StdRng) -> Option<Duration> {
    let mut case = Case::begin(scene, chance).await;
    case.wait_until_idle(chance).await;
    let killed = now();
    let said = case.keeper.kill().await;
    let had_place = holder(&case.others[0], &case.name).await == Some(case.id);
    let served = serve(&case.others, &case.name, SHORT, chance, Arc::new(Notify::new())).await;
    let granted = served.iter().map(|(from, _)| *from).min().expect("others are served");
    case.moments.extend(served.into_iter().map(held));
    case.moments.extend(moments(&said, killed));
    check(scene, &case.name, &case.moments, case.others).await;
    had_place.then(|| Duration::from_nanos(granted - killed))
}

/// Stops a keeper between two uses until another client has the lock. Returns for how long, if it
/// still had its place.
async fn stop_one(scene: &Scene, chance: &mut StdRng) -> Option<Duration> {
    let mut case = Case::begin(scene, chance).await;
    case.wait_until_idle(chance).await;
    case.keeper.signal(Signal::STOP);
    let stopped = now();
    let had_place = holder(&case.others[0], &case.name).await == Some(case.id);
    let time = HELD_AFTER + Duration::from_secs(1);
    let granted = Arc::new(Notify::new());
    let pause = Duration::from_secs(1).mul_f64(chance.random());
    let serving = serve(&case.others, &case.name, time, chance, Arc::clone(&granted));
    let continuing = async {
        pace::within_limit("a lock that a stopped keeper had", granted.notified()).await;
        sleep(pause).await;
        let continued = now();
        case.keeper.signal(Signal::CONT);
        continued
    };
    let (served, continued) = tokio::join!(serving, continuing);
    case.keeper.go_on().await;
    let said = case.keeper.finish().await;
    case.moments.extend(served.into_iter().map(held));
    case.moments.extend(moments(&said, now()));
    check(scene, &case.name, &case.moments, case.others).await;
    had_place.then(|| Duration::from_nanos(continued - stopped))
}

/// A keeper in a process of its own that keeps a place, and others that will want it.
struct Case {
    name: String,
    keeper: Program,
    /// The keeper's client.
    id: Uuid,
    /// How long it does not use the lock.
    pause: Duration,
    /// A guest that has had turns, another peer, and a client without peers.
    others: Vec<LockClient>,
    /// When the lock was held so far.
    moments: Vec<Moment>,
}

impl Case {
    async fn begin(scene: &Scene, chance: &mut StdRng) -> Self {
        let name = support::unique("kept");
        let pause = chance.random_range(PAUSES);
        let mut keeper = scene.start("kept::keeping_program", &format!("{name} {pause}"));
        let id = keeper.next().await.and_then(|id| id.parse().ok());
        let others =
            vec![peer(scene).await, peer(scene).await, built(scene.builder().ttl(ttl())).await];
        let (pause, moments) = (Duration::from_millis(pause), Vec::new());
        Case { name, id: id.expect("a keeper has an id"), keeper, pause, others, moments }
    }

    /// Waits for a random moment between two uses of the keeper, after some of its own and its
    /// guest's.
    async fn wait_until_idle(&mut self, chance: &mut StdRng) {
        let mut uses = chance.random_range(1..=USES_MAX);
        loop {
            let since = self.next_idle().await;
            let moment = since + nanoseconds(self.pause.mul_f64(chance.random_range(0.0..0.9)));
            // It may be long ago that it said so.
            let Some(left) = moment.checked_sub(now()) else {
                continue;
            };
            if uses == 0 {
                return sleep(Duration::from_nanos(left)).await;
            }
            uses -= 1;
            if chance.random() {
                let turn = use_once(&self.others[0], &self.name, SHORT, |_| ()).await;
                self.moments.extend(turn.map(held));
            }
        }
    }

    /// Since when the keeper keeps the place, the next time that it does.
    async fn next_idle(&mut self) -> u64 {
        loop {
            let said = self.keeper.next().await.expect("a keeper continues");
            if let Some(("kept", since)) = said.split_once(' ') {
                return since.parse().expect("it is a time");
            }
            self.moments.extend(moments(&[said], u64::MAX));
        }
    }
}

/// Lets all clients have the lock for this long, each at some moment from now on. Returns when each
/// was seen to hold it; the first one that holds it notifies.
async fn serve(
    clients: &[LockClient],
    name: &str,
    time: Duration,
    chance: &mut StdRng,
    granted: Arc<Notify>,
) -> Vec<(u64, u64)> {
    let mut serving = JoinSet::new();
    for client in clients {
        let (client, name, granted) = (client.clone(), name.to_owned(), Arc::clone(&granted));
        let pause = ASKED_WITHIN.mul_f64(chance.random());
        serving.spawn(async move {
            sleep(pause).await;
            use_once(&client, &name, time, |_| granted.notify_one()).await
        });
    }
    let served = pace::within_limit("a lock whose keeper is gone", serving.join_all()).await;
    served.into_iter().map(|held| held.expect("nothing happens to these clients")).collect()
}

/// Checks that no two held at once, and that nothing is left.
async fn check(scene: &Scene, name: &str, moments: &[Moment], others: Vec<LockClient>) {
    if let Some(both) = overlap(moments) {
        panic!("two held {name} at once, {both:?}, of {moments:?}");
    }
    for client in others {
        client.shutdown().await.expect("nothing is left");
    }
    assert_eq!(scene.rows(name).await, Vec::<String>::new(), "rows are left");
}

/// The client whose rows hold the lock.
async fn holder(client: &LockClient, name: &str) -> Option<Uuid> {
    let contenders = client.contenders(name).await.expect("the rows can be read");
    contenders.first().map(|contender| contender.client)
}

/// When a keeper held the lock, by what it said. It may have died in the midst.
fn moments(said: &[String], died: u64) -> Vec<Moment> {
    let (mut moments, mut begun) = (Vec::new(), None);
    for line in said {
        match line.split_once(' ') {
            Some(("holds", from)) => begun = Some(from.parse().expect("it is a time")),
            Some(("past", moment)) => {
                begun = None;
                moments.push(moment.parse().expect("it is a moment"));
            }
            Some(_) | None => {}
        }
    }
    let ended = |from: u64| held((from.min(died), died));
    // One that lives says itself until when it held.
    moments.extend(begun.filter(|_| died < u64::MAX).map(ended));
    moments
}

fn held((from, until): (u64, u64)) -> Moment {
    Moment::Held { from, until }
}

/// Has the lock for this long. Returns when it was first and last seen to be held; the first time
/// is also notified at once.
async fn use_once(
    client: &LockClient,
    name: &str,
    time: Duration,
    begins: impl FnOnce(u64),
) -> Option<(u64, u64)> {
    let guard = client.lock(name).await.expect("each one is served");
    let held = match look(&guard) {
        Some(from) => {
            begins(from);
            let mut last = from;
            while let Some(seen) = look(&guard) {
                last = seen;
                if last - from >= nanoseconds(time) {
                    break;
                }
                sleep(Duration::from_millis(1)).await;
            }
            Some((from, last))
        }
        None => None,
    };
    match guard.unlock().await {
        // A keeper may be stopped while it holds.
        Ok(()) | Err(UnlockError::Lost { .. }) => held,
        Err(error) => panic!("the lock was held: {error:?}"),
    }
}

/// A time at which the lock was held: before the guard was asked, and it says that it is.
fn look(guard: &LockGuard) -> Option<u64> {
    let time = now();
    (guard.remaining() > Duration::ZERO).then_some(time)
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).expect("it is short")
}

// Goal: the program that the tests above start. By itself: a client keeps a place between its uses,
// and gives it up when these end.
// Method: use a lock again and again with a short pause.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keeping_program() {
    let Some(order) = program::order() else {
        let scene = Scene::new().await;
        let (client, name) = (peer(&scene).await, support::unique("kept"));
        let kept = async || {
            use_once(&client, &name, SHORT, |_| ()).await;
            sleep(Duration::from_millis(PAUSES.start)).await;
            client.statistics().kept == 1
        };
        pace::until("a place is kept", kept).await;
        pace::until("it is given up", async || client.statistics().kept == 0).await;
        scene.wait_until_deleted(&name).await;
        return client.shutdown().await.expect("nothing is left");
    };
    let (scene, order) = Scene::of(&order).await;
    let (name, pause) = order.split_once(' ').expect("an order is a name and a pause");
    let pause = Duration::from_millis(pause.parse().expect("a pause is a number"));
    let client = peer(&scene).await;
    program::say(&client.id().to_string());
    let ending = spawn_blocking(program::wait_for_word);
    while !ending.is_finished() {
        let begins = |from| program::say(&format!("holds {from}"));
        let held_for = use_once(&client, name, SHORT, begins).await;
        if let Some(moment) = held_for.map(held) {
            program::say(&format!("past {moment}"));
        }
        let since = now();
        // The unlock returns at once, and the place is kept after it.
        sleep(Duration::from_millis(3)).await;
        if client.statistics().kept == 1 {
            program::say(&format!("kept {since}"));
        }
        sleep(pause).await;
    }
    client.shutdown().await.expect("nothing is left");
}
