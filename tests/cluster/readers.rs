//! Readers that share a lock and writers that want it alone, in processes that are killed and
//! stopped.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bakery_lock::{LockClient, LockError, LockRequest, UnlockError};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rustix::process::Signal;
use tokio::sync::mpsc;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::sleep;

use super::scene::{Scene, built};
use support::environment::{chance, number};
use support::history::{Moment, inside, lingering, overlap, overlap_between, rounds};
use support::monotonic::now;
use support::pace;
use support::program::{self, Program};
use support::record::record_rounds;

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

/// The default.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(1);

/// Writers that yield to readers do so for this long at most.
const YIELD_LIMIT: Duration = Duration::from_secs(2);

/// New ones share a place for so long once it is known that a writer waits.
const JOINING_MAX: Duration = Duration::from_millis(100);

/// For how many seconds they run while harm is done to them, for each kind of writers.
const SECONDS: &str = "BAKERY_LOCK_READERS_SECONDS";
const SECONDS_DEFAULT: u64 = 25;

/// They run for longer where they have not held the lock more often than this by then.
const READS_MIN: usize = 100;
const WRITES_MIN: usize = 10;

/// For how long they run when no harm is done to them.
const CALM: Duration = Duration::from_secs(12);

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
    /// From when until when they had waited.
    read_waits: Vec<Moment>,
    write_waits: Vec<Moment>,
    /// The rounds of writers, and the places of readers.
    rounds: Vec<Moment>,
    places: Vec<Moment>,
    /// How many callers were told an error: that they waited for too long or lost the lock.
    errors: usize,
}

// Goal: readers never overlap a writer, and no two writers overlap; readers overlap each other, and
// no reader joins others for longer than 100 ms once it is known that a writer waits. Programs are
// killed and stopped, for longer than their leases, too.
// Method: start `reading_program` six times, with 16 readers and 2 writers, for each kind of
// writers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes long; scripts/nightly runs it"]
async fn readers_and_writers_keep_apart() {
    let _alone = support::alone().await;
    let scene = Scene::new().await;
    let seconds = number(SECONDS).unwrap_or(SECONDS_DEFAULT);
    let mut chance = chance();
    for limit in [None, Some(YIELD_LIMIT)] {
        let programs = Programs::start(&scene, limit, &mut chance).await;
        let time = Duration::from_secs(seconds);
        let (kills, stops) = do_harm(&programs, time, &mut chance).await;
        let told = programs.end(&scene).await;
        println!("max yield {limit:?}, {kills} kills, {stops} stops: {told}");
        assert!(told.writes.len() > WRITES_MIN, "{} writes", told.writes.len());
        assert!(told.reads.len() > READS_MIN, "{} reads", told.reads.len());
    }
}

// Goal: writers that yield wait until no reader is there, or as long as they are told; then readers
// wait for less than beside other writers.
// Method: as above, without harm. What was waited for while all programs ran is compared.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes long; scripts/nightly runs it"]
async fn yielding_writers_wait_instead_of_readers() {
    let _alone = support::alone().await;
    let scene = Scene::new().await;
    let mut chance = chance();
    let mut waits = Vec::new();
    for limit in [None, Some(YIELD_LIMIT)] {
        let programs = Programs::start(&scene, limit, &mut chance).await;
        let from = now();
        sleep(CALM).await;
        let all_run = from..now();
        let told = programs.end(&scene).await;
        println!("writers yield for {limit:?}, {CALM:?}: {told}");
        waits.push([told.read_waits, told.write_waits].map(|waits| mean(&waits, &all_run)));
    }
    let [[hard_read, hard_write], [soft_read, soft_write]] = waits[..] else {
        unreachable!("there are two kinds of writers");
    };
    println!("readers wait for {soft_read:?} beside writers that yield, else for {hard_read:?}");
    println!("writers that yield wait for {soft_write:?}, others for {hard_write:?}");
    assert!(soft_read < hard_read, "readers wait for less");
    assert!(soft_write > hard_write, "writers that yield wait for longer");
    assert!(soft_write > YIELD_LIMIT / 2, "there was a reader all the time");
}

/// The programs with their readers and writers.
struct Programs {
    object: String,
    crews: JoinSet<Vec<String>>,
    /// What to do to each of them.
    harms: Vec<mpsc::UnboundedSender<Harm>>,
    /// How often they have held the lock.
    held: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    reads: AtomicUsize,
    writes: AtomicUsize,
}

impl Counts {
    fn add(&self, line: &str) {
        if line.starts_with("read ") {
            self.reads.fetch_add(1, Ordering::Relaxed);
        } else if line.starts_with("write ") {
            self.writes.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn are_enough(&self) -> bool {
        self.reads.load(Ordering::Relaxed) > READS_MIN
            && self.writes.load(Ordering::Relaxed) > WRITES_MIN
    }
}

impl Programs {
    /// Starts them. They are all ready when this returns.
    async fn start(scene: &Scene, limit: Option<Duration>, chance: &mut StdRng) -> Self {
        let object = support::unique("readers");
        let limit = limit.unwrap_or(Duration::ZERO).as_millis();
        let mut crews = JoinSet::new();
        let mut harms = Vec::new();
        let held = Arc::<Counts>::default();
        for (role, tasks) in PROGRAMS {
            let seed: u64 = chance.random();
            let order = format!("{object} {role:?} {tasks} {limit} {seed}");
            let program = started(scene, &order).await;
            let (sender, receiver) = mpsc::unbounded_channel();
            harms.push(sender);
            crews.spawn(crew(scene.clone(), program, order, receiver, Arc::clone(&held)));
        }
        Programs { object, crews, harms, held }
    }

    /// Lets them come to an end, and checks what they tell.
    async fn end(self, scene: &Scene) -> Told {
        drop(self.harms);
        let told = Told::of(self.crews.join_all().await.into_iter().flatten());
        // Rows of the killed ones expire.
        scene.wait_for_rows(&self.object, 0).await;
        assert_eq!(overlap(&told.writes), None, "two writers were inside");
        assert_eq!(
            overlap_between(&told.writes, &told.reads),
            None,
            "a reader was beside a writer"
        );
        let (most, _) = inside(&told.reads, u64::MAX);
        assert!(most > 4, "readers of several programs share: {most}");
        assert_eq!(lingering(&told.places, JOINING_MAX), None, "readers joined for too long");
        told
    }
}

/// Kills and stops programs, at least for this time and until they have held the lock often enough.
/// Returns how often it did.
async fn do_harm(programs: &Programs, time: Duration, chance: &mut StdRng) -> (usize, usize) {
    let (began, mut kills, mut stops) = (now(), 0, 0);
    let harms = &programs.harms;
    let elapsed = || Duration::from_nanos(now() - began);
    while elapsed() < time || !programs.held.are_enough() {
        assert!(elapsed() < time + pace::limit(), "there were too few reads or writes");
        sleep(Duration::from_millis(chance.random_range(2_000..6_000))).await;
        let harm = if chance.random_bool(0.4) {
            kills += 1;
            Harm::Kill
        } else {
            stops += 1;
            Harm::Stop(Duration::from_millis(chance.random_range(100..7_000)))
        };
        let chosen = chance.random_range(0..harms.len());
        harms[chosen].send(harm).expect("it is there up to the end");
    }
    (kills, stops)
}

/// Runs a program until no more harm is done to it, and returns what it told. One that was killed
/// is started again.
async fn crew(
    scene: Scene,
    mut program: Program,
    order: String,
    mut harms: mpsc::UnboundedReceiver<Harm>,
    held: Arc<Counts>,
) -> Vec<String> {
    let mut told = Vec::new();
    let mut is_ending = false;
    loop {
        tokio::select! {
            line = program.next() => match line {
                Some(line) if line == DONE => break,
                Some(line) => {
                    held.add(&line);
                    told.push(line);
                }
                None => panic!("a program ended by itself"),
            },
            harm = harms.recv(), if !is_ending => match harm {
                Some(Harm::Kill) => {
                    told.extend(program.kill().await);
                    program = started(&scene, &order).await;
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

async fn started(scene: &Scene, order: &str) -> Program {
    let mut program = scene.start("readers::reading_program", order);
    program.expect("ready").await;
    program
}

impl Told {
    fn of(lines: impl Iterator<Item = String>) -> Self {
        let mut told = Told::default();
        for line in lines {
            let (what, value) = line.split_once(' ').expect("a line has several words");
            let moment = || value.parse::<Moment>().expect("programs tell moments");
            match what {
                "read" => told.reads.push(moment()),
                "write" => told.writes.push(moment()),
                "read-wait" => told.read_waits.push(moment()),
                "write-wait" => told.write_waits.push(moment()),
                "round" => told.rounds.push(moment()),
                "place" => told.places.push(moment()),
                "error" => told.errors += 1,
                _ => panic!("a program tells {line:?}"),
            }
        }
        told
    }

    /// How long after a writer had its ticket the last reader came in before it.
    fn joined_after_ticket(&self) -> Vec<Duration> {
        let began: BTreeSet<_> = self.reads.iter().map(Moment::first).collect();
        let with_ticket = rounds(&self.rounds).into_iter();
        let with_ticket = with_ticket.filter_map(|round| Some((round.drawn?, round.end.time())));
        let joined = with_ticket.map(|(drawn, end)| {
            let last = began.range(drawn..end.max(drawn)).next_back();
            last.map_or(Duration::ZERO, |last| Duration::from_nanos(last - drawn))
        });
        joined.collect()
    }
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (most, average) = inside(&self.reads, u64::MAX);
        write!(
            f,
            "{} reads, {} writes, {} errors; {most} readers inside at most, {average:.1} on \
             average; waits of readers: {}; of writers: {}; last reader that joined after a \
             writer's ticket: {}",
            self.reads.len(),
            self.writes.len(),
            self.errors,
            Spread(waits(&self.read_waits)),
            Spread(waits(&self.write_waits)),
            Spread(self.joined_after_ticket()),
        )
    }
}

/// How long callers waited.
fn waits(moments: &[Moment]) -> Vec<Duration> {
    moments.iter().map(|wait| Duration::from_nanos(wait.last() - wait.first())).collect()
}

/// The mean of the waits that began and ended within some time.
fn mean(moments: &[Moment], time: &Range<u64>) -> Duration {
    let within = |wait: &&Moment| time.start <= wait.first() && wait.last() < time.end;
    let waits = waits(&moments.iter().filter(within).copied().collect::<Vec<_>>());
    assert!(!waits.is_empty(), "callers were served");
    let sum: Duration = waits.iter().sum();
    sum.div_f64(waits.len() as f64)
}

/// Times as their median and 99th percentile.
struct Spread(Vec<Duration>);

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut times = self.0.clone();
        times.sort_unstable();
        let percentile = |percent| times.get(times.len() * percent / 100).copied();
        let [median, high] = [50, 99].map(|percent| percentile(percent).unwrap_or_default());
        write!(f, "median {median:.1?}, 99th percentile {high:.1?}")
    }
}

// Goal: the program that the tests above start. By itself: readers and a writer are served.
// Method: tasks take the lock again and again, until they are told to end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reading_program() {
    let Some(order) = program::order() else {
        let scene = Scene::new().await;
        let client = scene.client().await;
        let object = support::unique("readers");
        let [reader, writer] =
            [Role::Reader, Role::Writer].map(|role| request(&client, &object, role, None));
        let (is_over, mut chance) = (Arc::default(), chance());
        let mut tasks = spawn_tasks(&reader, Role::Reader, 2, &is_over, &mut chance);
        let writer = spawn_tasks(&writer, Role::Writer, 1, &is_over, &mut chance);
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
    let (scene, order) = Scene::of(&order).await;
    let words: Vec<_> = order.split(' ').collect();
    let [object, role, tasks, limit, seed] = words[..] else {
        panic!("not an order: {order}");
    };
    let role = if role == "Writer" { Role::Writer } else { Role::Reader };
    let [tasks, limit, seed] = [tasks, limit, seed]
        .map(|number| number.parse::<u64>().expect("an order ends with numbers"));
    let limit = (limit > 0).then(|| Duration::from_millis(limit));
    let client = built(scene.builder().ttl(ttl())).await;
    let recorder = record_rounds(MAX_CLOCK_SKEW);
    program::say("ready");
    let request = request(&client, object, role, limit);
    let (is_over, mut chance) = (Arc::default(), StdRng::seed_from_u64(seed));
    let tasks = spawn_tasks(&request, role, tasks, &is_over, &mut chance);
    spawn_blocking(program::wait_for_word).await.expect("it is told to end");
    is_over.store(true, Ordering::Relaxed);
    tasks.join_all().await;
    client.shutdown().await.expect("the database answers");
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

fn request(client: &LockClient, object: &str, role: Role, limit: Option<Duration>) -> LockRequest {
    let request = client.request(object);
    match (role, limit) {
        (Role::Reader, _) => request.shared(),
        (Role::Writer, None) => request,
        (Role::Writer, Some(limit)) => request.yield_to_shared(limit),
    }
}

/// Starts tasks that take the lock until it is over, and tell how often they did.
fn spawn_tasks(
    request: &LockRequest,
    role: Role,
    tasks: u64,
    is_over: &Arc<AtomicBool>,
    chance: &mut StdRng,
) -> JoinSet<u64> {
    let mut running = JoinSet::new();
    for _ in 0..tasks {
        let chance = StdRng::from_rng(chance);
        running.spawn(work(request.clone(), role, Arc::clone(is_over), chance));
    }
    running
}

async fn work(
    request: LockRequest,
    role: Role,
    is_over: Arc<AtomicBool>,
    mut chance: StdRng,
) -> u64 {
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
                let stay = Duration::from_millis(chance.random_range(stays.clone()));
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
                    let waited = Moment::Held { from: asked, until: from };
                    program::say(&format!("{what}-wait {waited}"));
                }
                match guard.unlock().await {
                    Ok(()) => {}
                    // The process was stopped, here and below: after that, a release may be over
                    // its time as well, and continues in the background.
                    Err(
                        error @ (UnlockError::Lost { .. } | UnlockError::Unacknowledged { .. }),
                    ) => {
                        program::say(&format!("error {error}"));
                    }
                    Err(error) => panic!("the database answers: {error}"),
                }
            }
            Err(error @ (LockError::TimedOut { .. } | LockError::Lost { .. })) => {
                program::say(&format!("error {error}"));
            }
            Err(error) => panic!("each caller is served: {error}"),
        }
        let pause = chance.random_range(pauses.clone());
        sleep(Duration::from_millis(pause)).await;
    }
    times
}

/// Short, but longer on a slow machine.
fn ttl() -> Duration {
    pace::scaled(Duration::from_secs(5))
}
