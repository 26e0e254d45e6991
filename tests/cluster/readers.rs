//! Readers that share a lock and writers that want it alone, in processes that are killed and
//! stopped.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bakery_lock::{LockClient, LockError, LockRequest, UnlockError};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rustix::process::Signal;
use tokio::sync::mpsc;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::sleep;

use support::environment::number;
use support::history::{Moment, inside, lingering, overlap, overlap_between, rounds};
use support::monotonic::now;
use support::program::{self, Program};
use support::record::record_rounds;
use support::scene::Scene;

/// What the tasks of the programs do, and how many of them a program has: 16 readers and 2 writers
/// in 6 programs.
const PROGRAMS: [(Role, usize); 6] = [
    (Role::Reader, 4),
    (Role::Reader, 4),
    (Role::Reader, 4),
    (Role::Reader, 4),
    (Role::Writer, 1),
    (Role::Writer, 1),
];

const TTL: Duration = Duration::from_secs(5);
/// The default.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(1);

/// Writers that yield to readers do so for this long at most.
const YIELD_LIMIT: Duration = Duration::from_secs(2);

/// New ones share a place for so long once it is known that a writer waits.
const JOINING_MAX: Duration = Duration::from_millis(100);

/// For how many seconds they run, with writers that yield and with others.
const SECONDS: &str = "BAKERY_LOCK_READERS_SECONDS";
const SECONDS_DEFAULT: u64 = 45;
/// Chooses which programs are killed and stopped, when, and for how long.
const SEED: &str = "BAKERY_LOCK_READERS_SEED";

/// What a program says when it ends.
const DONE: &str = "done";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Reader,
    Writer,
}

/// What is done to a program.
#[derive(Clone, Copy, Debug)]
enum Harm {
    Kill,
    Stop(Duration),
}

/// What the programs told.
#[derive(Default)]
struct Told {
    /// When readers were inside, and when writers were.
    reads: Vec<Moment>,
    writes: Vec<Moment>,
    /// How long they had waited, in nanoseconds.
    read_waits: Vec<u64>,
    write_waits: Vec<u64>,
    /// The rounds of writers, and the places of readers.
    rounds: Vec<Moment>,
    places: Vec<Moment>,
    /// How many callers were told an error: that they waited for too long or lost the lock.
    errors: usize,
}

// Goal: readers never overlap a writer, and no two writers overlap; readers overlap each other, and
// no reader joins others for longer than 100 ms once it is known that a writer waits. Writers that
// yield wait until no reader is there, or as long as they are told; then readers wait for less.
// Programs are killed and stopped, for longer than their leases, too.
// Method: start `reading_program` six times, with 16 readers and 2 writers, for each kind of
// writers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes long; .ci/run runs it"]
async fn readers_and_writers_keep_apart() {
    let _alone = support::alone().await;
    let scene = Scene::new().await;
    let seed: u64 = number(SEED).unwrap_or_else(rand::random);
    let seconds = number(SECONDS).unwrap_or(SECONDS_DEFAULT);
    println!("repeat what is done to them by {SEED}={seed} {SECONDS}={seconds}");
    let [hard, yielding] = [None, Some(YIELD_LIMIT)].map(|limit| {
        let (scene, mut rng) = (scene.clone(), StdRng::seed_from_u64(seed));
        async move { run(&scene, limit, Duration::from_secs(seconds), &mut rng).await }
    });
    let (hard, yielding) = (hard.await, yielding.await);
    let (hard_read, hard_write) = (median(&hard.read_waits), median(&hard.write_waits));
    let (soft_read, soft_write) = (median(&yielding.read_waits), median(&yielding.write_waits));
    assert!(soft_read < hard_read, "readers wait for {soft_read:?}, not below {hard_read:?}");
    assert!(soft_write > hard_write, "writers wait for {soft_write:?}, not above {hard_write:?}");
    assert!(soft_write > YIELD_LIMIT / 2, "there was no reader: {soft_write:?}");
}

/// Lets the programs run for a while, checks what they tell, and prints it.
async fn run(scene: &Scene, limit: Option<Duration>, time: Duration, rng: &mut StdRng) -> Told {
    let object = support::unique("readers");
    let limit = limit.unwrap_or(Duration::ZERO).as_millis();
    let mut crews = JoinSet::new();
    let mut orders = Vec::new();
    for (role, tasks) in PROGRAMS {
        let order = format!("{} {object} {role:?} {tasks} {limit}", scene.keyspace);
        let (sender, harms) = mpsc::unbounded_channel();
        orders.push(sender);
        crews.spawn(crew(order, harms));
    }
    let (kills, stops) = do_harm(orders, time, rng).await;
    let told = Told::of(crews.join_all().await.into_iter().flatten());
    // Rows of the killed ones expire.
    scene.wait_for_rows(&object, 0, TTL + MAX_CLOCK_SKEW * 2).await;

    assert_eq!(overlap(&told.writes), None, "two writers were inside");
    assert_eq!(overlap_between(&told.writes, &told.reads), None, "a reader was beside a writer");
    let (most, average) = inside(&told.reads, u64::MAX);
    assert!(most > 4, "readers of several programs share: {most}");
    assert_eq!(lingering(&told.places, JOINING_MAX), None, "readers joined for too long");
    let joined = told.joined_after_ticket();
    println!(
        "16 readers, 2 writers yielding for {limit} ms, {time:?}, {kills} kills, {stops} stops: \
         {} reads, {} writes, {} errors; {most} readers inside at most, {average:.1} on average; \
         waits of readers: median {:.1?}, 99th percentile {:.1?}; of writers: {:.1?}, {:.1?}; last \
         reader that joined after a writer's ticket: median {:.1?}, 99th percentile {:.1?}",
        told.reads.len(),
        told.writes.len(),
        told.errors,
        median(&told.read_waits),
        percentile(&told.read_waits, 99),
        median(&told.write_waits),
        percentile(&told.write_waits, 99),
        median(&joined),
        percentile(&joined, 99),
    );
    told
}

/// Kills and stops programs, and returns how often. Then all are let go on to their end.
async fn do_harm(
    orders: Vec<mpsc::UnboundedSender<Harm>>,
    time: Duration,
    rng: &mut StdRng,
) -> (usize, usize) {
    let (began, mut kills, mut stops) = (now(), 0, 0);
    while Duration::from_nanos(now() - began) < time {
        sleep(Duration::from_millis(rng.random_range(2_000..6_000))).await;
        let harm = if rng.random_bool(0.4) {
            kills += 1;
            Harm::Kill
        } else {
            stops += 1;
            Harm::Stop(Duration::from_millis(rng.random_range(100..7_000)))
        };
        let chosen = rng.random_range(0..orders.len());
        orders[chosen].send(harm).expect("it takes orders up to the end");
    }
    (kills, stops)
}

/// Runs a program until no more harm is done to it, and returns what it told. One that was killed
/// is started again.
async fn crew(order: String, mut harms: mpsc::UnboundedReceiver<Harm>) -> Vec<String> {
    let mut told = Vec::new();
    let mut program = started(&order).await;
    let mut is_ending = false;
    loop {
        tokio::select! {
            line = program.next() => match line {
                Some(line) if line == DONE => break,
                Some(line) => told.push(line),
                None => panic!("a program ended by itself"),
            },
            harm = harms.recv(), if !is_ending => match harm {
                Some(Harm::Kill) => {
                    told.extend(program.kill().await);
                    program = started(&order).await;
                }
                Some(Harm::Stop(time)) => {
                    program.signal(Signal::STOP);
                    sleep(time).await;
                    program.signal(Signal::CONT);
                }
                None => {
                    program.go_on().await;
                    is_ending = true;
                }
            },
        }
    }
    assert_eq!(program.finish().await, Vec::<String>::new());
    told
}

async fn started(order: &str) -> Program {
    let nodes = support::nodes().await;
    let mut program = Program::start("readers::reading_program", order, &nodes);
    program.expect("ready").await;
    program
}

impl Told {
    fn of(lines: impl Iterator<Item = String>) -> Self {
        let mut told = Told::default();
        for line in lines {
            let (what, value) = line.split_once(' ').expect("a line has several words");
            let moment = || value.parse::<Moment>().expect("programs tell moments");
            let time = || value.parse::<u64>().expect("programs tell times");
            match what {
                "read" => told.reads.push(moment()),
                "write" => told.writes.push(moment()),
                "read-wait" => told.read_waits.push(time()),
                "write-wait" => told.write_waits.push(time()),
                "round" => told.rounds.push(moment()),
                "place" => told.places.push(moment()),
                "error" => told.errors += 1,
                _ => panic!("a program tells {line:?}"),
            }
        }
        assert!(told.writes.len() > 10 && told.reads.len() > 100, "they do something");
        told
    }

    /// How long after a writer had its ticket the last reader came in before it, in nanoseconds.
    fn joined_after_ticket(&self) -> Vec<u64> {
        let began: BTreeMap<_, _> = self.reads.iter().map(|read| (read.first(), ())).collect();
        let with_ticket = rounds(&self.rounds).into_iter();
        let with_ticket = with_ticket.filter_map(|round| Some((round.drawn?, round.end.time())));
        let joined = with_ticket.map(|(drawn, end)| {
            let last = began.range(drawn..end.max(drawn)).next_back();
            last.map_or(0, |(last, ())| last - drawn)
        });
        joined.collect()
    }
}

fn median(times: &[u64]) -> Duration {
    percentile(times, 50)
}

/// So many of a hundred times are not above what is returned.
fn percentile(times: &[u64], percent: usize) -> Duration {
    let mut times = times.to_vec();
    times.sort_unstable();
    let place = times.len() * percent / 100;
    Duration::from_nanos(times.get(place).copied().unwrap_or_default())
}

// Goal: the program that the test above starts. By itself: readers and a writer are served.
// Method: tasks take the lock again and again, until they are told to end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reading_program() {
    let Some(order) = program::order() else {
        let client = Scene::new().await.client().await;
        let object = support::unique("readers");
        let is_over = Arc::default();
        let mut tasks = spawn_tasks(&client, &object, Role::Reader, 2, None, &is_over);
        let writer = spawn_tasks(&client, &object, Role::Writer, 1, None, &is_over);
        sleep(Duration::from_secs(1)).await;
        is_over.store(true, Ordering::Relaxed);
        while let Some(done) = tasks.join_next().await {
            assert!(done.expect("it does not panic") > 0, "a reader was inside");
        }
        assert!(
            writer.join_all().await.into_iter().all(|times| times > 0),
            "the writer was inside"
        );
        return;
    };
    let words: Vec<_> = order.split(' ').collect();
    let [keyspace, object, role, tasks, limit] = words[..] else {
        panic!("not an order: {order}");
    };
    let role = if role == "Writer" { Role::Writer } else { Role::Reader };
    let [tasks, limit] =
        [tasks, limit].map(|number| number.parse::<usize>().expect("an order ends with numbers"));
    let limit = (limit > 0).then(|| Duration::from_millis(limit as u64));
    let builder = Scene::in_keyspace(keyspace).await.builder().ttl(TTL);
    let client = builder.build().await.expect("the cluster is ready");
    let recorder = record_rounds(MAX_CLOCK_SKEW);
    program::say("ready");
    let is_over = Arc::default();
    let tasks = spawn_tasks(&client, object, role, tasks, limit, &is_over);
    spawn_blocking(program::wait_for_word).await.expect("it is told to end");
    is_over.store(true, Ordering::Relaxed);
    tasks.join_all().await;
    client.shutdown().await.expect("the cluster answers");
    for (of, moment) in recorder.lock().expect("the mutex is not poisoned").take() {
        match moment {
            Moment::Round(_) if role == Role::Writer && of == object => {
                program::say(&format!("round {moment}"));
            }
            Moment::Place(_) if role == Role::Reader && of == object => {
                program::say(&format!("place {moment}"));
            }
            Moment::Held { .. } | Moment::Round(_) | Moment::Place(_) => {}
        }
    }
    program::say(DONE);
}

/// Starts tasks that take the lock until it is over, and tell how often they did.
fn spawn_tasks(
    client: &LockClient,
    object: &str,
    role: Role,
    tasks: usize,
    limit: Option<Duration>,
    is_over: &Arc<AtomicBool>,
) -> JoinSet<u64> {
    let request = client.request(object).timeout(Duration::from_secs(60));
    let request = match (role, limit) {
        (Role::Reader, _) => request.shared(),
        (Role::Writer, None) => request,
        (Role::Writer, Some(limit)) => request.yield_to_shared(limit),
    };
    let mut running = JoinSet::new();
    for _ in 0..tasks {
        running.spawn(work(request.clone(), role, Arc::clone(is_over)));
    }
    running
}

async fn work(request: LockRequest, role: Role, is_over: Arc<AtomicBool>) -> u64 {
    let (what, stays, pauses) = match role {
        Role::Reader => ("read", 5..30, 0..10),
        Role::Writer => ("write", 1..10, 50..300),
    };
    let mut times = 0;
    while !is_over.load(Ordering::Relaxed) {
        let asked = now();
        match request.clone().acquire().await {
            Ok(guard) => {
                times += 1;
                let stay = Duration::from_millis(rand::rng().random_range(stays.clone()));
                let from = now();
                if guard.state().is_held() {
                    let mut until = from;
                    // What is noted before a look that finds the lock held is certain.
                    while Duration::from_nanos(until - from) < stay {
                        sleep(Duration::from_millis(1)).await;
                        let noted = now();
                        if !guard.state().is_held() {
                            break;
                        }
                        until = noted;
                    }
                    program::say(&format!("{what} {}", Moment::Held { from, until }));
                    program::say(&format!("{what}-wait {}", from - asked));
                }
                match guard.unlock().await {
                    Ok(()) => {}
                    Err(UnlockError::Lost(reason)) => program::say(&format!("error {reason:?}")),
                    Err(error) => panic!("the cluster answers: {error}"),
                }
            }
            // The process was stopped.
            Err(error @ (LockError::TimedOut { .. } | LockError::Lost { .. })) => {
                program::say(&format!("error {error}"));
            }
            Err(error) => panic!("each caller is served: {error}"),
        }
        let pause = rand::rng().random_range(pauses.clone());
        sleep(Duration::from_millis(pause)).await;
    }
    times
}
