//! Fencing tokens: clocks that differ, holders that are stopped, and answers that
//! get lost.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bakery_lock::testing::set_wall_clock_error;
use bakery_lock::{
    FencingError, FencingToken, GuardState, LockClient, LockError, LockGuard, LostReason,
};
use rustix::process::Signal;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::data::{COLUMNS, Row};
use super::lossy::{Loss, LossyLink};
use super::scene::{Scene, built};
use support::monotonic::now;
use support::pace;
use support::program;

/// For how long a program is stopped: its rows are gone by then, and others had their turns.
const STOPPED: Duration = Duration::from_secs(7);

/// How far the clocks of the programs are off, in µs: up to a second apart.
const CLOCK_ERRORS: [i64; 4] = [-500_000, 499_000, 500_000, -100_000];
const STOPPED_PROGRAMS: [usize; 2] = [1, 3];
const NAMES: usize = 32;
const TASKS: usize = 4;
/// How many locks each task of each program takes.
const GRANTS_EACH: usize = 625;

/// What a program says now and then, so that it is not taken for dead.
const GOING_ON: &str = "going on";

// Goal: the tokens of 10,000 grants of several processes, whose clocks are up to a second apart and
// which are stopped now and then for longer than their leases, grow strictly, name by name, with
// room for a thousand writes in between.
// Method: four programs of four tasks take the locks of 32 names in turn and draw a token under
// each; two of them are stopped by SIGSTOP. A task that notes the time before it asks for a token,
// and gets one, held the lock at that time.
#[tokio::test]
#[ignore = "takes long; scripts/nightly runs it"]
async fn tokens_of_processes_with_different_clocks_grow() {
    let _alone = support::alone().await;
    let scene = Scene::new().await;
    let name = support::unique("tokens");
    let mut programs = Vec::new();
    for (number, error) in CLOCK_ERRORS.iter().enumerate() {
        let order = format!("{name} {number} {error}");
        programs.push(scene.start("tokens::drawing_program", &order));
    }
    for program in &mut programs {
        program.expect("ready").await;
    }
    let began = Instant::now();
    for program in &mut programs {
        program.go_on().await;
    }
    for stopped in STOPPED_PROGRAMS {
        sleep(Duration::from_secs(2)).await;
        programs[stopped].signal(Signal::STOP);
    }
    for stopped in STOPPED_PROGRAMS {
        sleep(STOPPED).await;
        programs[stopped].signal(Signal::CONT);
    }
    let mut drawn = Vec::new();
    for program in programs {
        let said = program.finish().await;
        let said = said.iter().filter(|line| *line != GOING_ON).map(|line| line.parse::<Drawn>());
        drawn.extend(said.map(|drawn| drawn.expect("programs tell what they drew")));
    }
    let (mut grants, mut lost) = (0, 0);
    for number in 0..NAMES {
        let mut of_name: Vec<_> = drawn.iter().filter(|drawn| drawn.name == number).collect();
        of_name.sort_unstable_by_key(|drawn| drawn.asked);
        grants += of_name.len();
        let tokens: Vec<_> = of_name.iter().filter_map(|drawn| drawn.token).collect();
        lost += of_name.len() - tokens.len();
        expect_growing(&tokens);
    }
    assert_eq!(grants, CLOCK_ERRORS.len() * TASKS * GRANTS_EACH);
    println!(
        "{grants} grants in {:?}: {} tokens, which grow; {lost} locks were lost before theirs",
        began.elapsed(),
        grants - lost,
    );
}

// Goal: the program that the test above starts. By itself: tokens of one process grow.
// Method: tasks take the locks of all names in turn, each beginning with another one, and draw a
// token under each.
#[tokio::test]
async fn drawing_program() {
    let Some(order) = program::order() else {
        let scene = Scene::new().await;
        let client = scene.client().await;
        let drawn = draw(&client, &support::unique("tokens"), std::iter::repeat_n(0, 40)).await;
        let tokens: Vec<_> = drawn.iter().filter_map(|drawn| drawn.token).collect();
        assert_eq!(tokens.len(), 40);
        return expect_growing(&tokens);
    };
    let (scene, order) = Scene::of(&order).await;
    let words: Vec<_> = order.split(' ').collect();
    let [name, number, clock_error] = words[..] else {
        panic!("not an order: {order}");
    };
    set_wall_clock_error(clock_error.parse().expect("an order ends with a clock error"));
    let number: usize = number.parse().expect("an order has the number of the program");
    let client = built(scene.builder().ttl(ttl())).await;
    program::say("ready");
    program::wait_for_word();
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (client, name) = (client.clone(), name.to_owned());
        let first = (number * TASKS + task) * NAMES / (CLOCK_ERRORS.len() * TASKS);
        let names = (0..NAMES).cycle().skip(first).take(GRANTS_EACH);
        tasks.spawn(async move { draw(&client, &name, names).await });
    }
    for drawn in tasks.join_all().await.iter().flatten() {
        program::say(&drawn.to_string());
    }
}

/// Takes locks in turn, and tells when a token was asked for under each, and which one came.
async fn draw(client: &LockClient, name: &str, numbers: impl Iterator<Item = usize>) -> Vec<Drawn> {
    let mut all = Vec::new();
    for number in numbers {
        let guard = lock(client, &format!("{name} {number}")).await;
        let asked = now();
        let token = match guard.fencing_token().await {
            Ok(token) => Some(token),
            Err(FencingError::Lost { .. }) => None,
            Err(other) => panic!("another error came: {other:?}"),
        };
        all.push(Drawn { name: number, asked, token });
        if all.len() % 50 == 0 {
            program::say(GOING_ON);
        }
        // A task that lost it has nothing to give back.
        let _ = guard.unlock().await;
    }
    all
}

/// Takes a lock. A program that is stopped may find it lost before it gets the guard.
async fn lock(client: &LockClient, name: &str) -> LockGuard {
    loop {
        match client.lock(name).await {
            Ok(guard) => return guard,
            Err(LockError::Lost { reason: LostReason::Expired, .. }) => {}
            Err(other) => panic!("another error came: {other:?}"),
        }
    }
}

/// A token that was asked for.
#[derive(Debug)]
struct Drawn {
    name: usize,
    asked: u64,
    /// `None` when the lock was lost before.
    token: Option<FencingToken>,
}

/// As a line between processes.
impl fmt::Display for Drawn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // No token is zero.
        let token = self.token.map_or(0, FencingToken::value);
        write!(f, "{} {} {token}", self.name, self.asked)
    }
}

impl FromStr for Drawn {
    type Err = ParseIntError;

    fn from_str(line: &str) -> Result<Self, ParseIntError> {
        let mut words = line.split(' ');
        let mut word = || words.next().unwrap_or_default();
        let (name, asked, token) = (word().parse()?, word().parse()?, word().parse()?);
        let token = Some(token).filter(|token| *token != 0).map(FencingToken::from_value);
        Ok(Drawn { name, asked, token })
    }
}

// Goal: a token whose write is acknowledged only at the second try is one token, above all earlier
// and below all later ones; where no write is acknowledged there is none, and what may have been
// written is in no client's way.
// Method: proxies between one client and the database lose answers or requests; after each token of
// that client, another client draws.
#[tokio::test]
async fn tokens_grow_although_acknowledgements_get_lost() {
    let _beside = support::beside_others().await;
    let scene = Scene::new().await;
    let name = support::unique("tokens");
    let lossy = Arc::new(LossyLink::new(&scene).await);
    // It waits that long in vain.
    let patience = pace::scaled(Duration::from_secs(3));
    let victim = built(lossy.builder(&scene).acquire_timeout(patience)).await;
    let other = scene.client().await;
    let mut tokens = Vec::new();
    let losses = [
        Loss::OneAcknowledgement,
        Loss::Acknowledgements,
        Loss::OneAcknowledgement,
        Loss::Requests,
        Loss::OneAcknowledgement,
    ];
    for loss in losses {
        let request = victim.request(&name).timeout(pace::limit());
        let guard = request.acquire().await.expect("nothing is lost now");
        let before = victim.statistics();
        lossy.lose(loss);
        let token = guard.fencing_token().await;
        let after = victim.statistics();
        match (loss, token) {
            (Loss::OneAcknowledgement, Ok(token)) => {
                assert!(after.fence_writes - before.fence_writes >= 2, "its answer got lost");
                tokens.push(token);
            }
            (
                Loss::Acknowledgements | Loss::Requests,
                Err(FencingError::TimedOut { cause: Some(cause), .. }),
            ) => assert!(LossyLink::explains(&cause), "{cause:?}"),
            (loss, other) => panic!("with {loss:?} came {other:?}"),
        }
        lossy.heal();
        // Nothing is lost any more, but its patience may be over.
        drop(guard);
        let next = other.lock(&name).await.expect("the lock is free");
        tokens.push(next.fencing_token().await.expect("nothing of this client is lost"));
        next.unlock().await.expect("the lock was held");
    }
    assert_eq!(tokens.len(), losses.len() + 3);
    expect_growing(&tokens);
}

fn expect_growing(tokens: &[FencingToken]) {
    for pair in tokens.windows(2) {
        assert!(pair[1].value() - pair[0].value() >= 1_000, "{} follows {}", pair[1], pair[0]);
    }
}

// Goal: once the next holder has written every column with its token, no cell is the stale one's,
// whenever that is stopped and whenever it continues. Without tokens it is, or else the test would
// show nothing.
// Method: a program writes the columns one after the other; it is stopped by SIGSTOP in the midst
// of it, and continues writing although it has lost the lock.
#[tokio::test]
async fn stale_holder_leaves_no_cell() {
    let _beside = support::beside_others().await;
    let scene = Scene::new().await;
    // The first one makes the table, for which programs would race.
    let _first = Row::new(&scene, &support::unique("stale"), None).await;
    let mut cases = JoinSet::new();
    for stopped_after in [40, 230, 700, 1_300] {
        for go_on in [GoOn::Between, GoOn::Afterwards] {
            let scene = scene.clone();
            let after = Duration::from_millis(stopped_after);
            cases.spawn(async move { (go_on, stop_a_writer(&scene, "token", after, go_on).await) });
        }
    }
    let unfenced = stop_a_writer(&scene, "none", Duration::from_millis(100), GoOn::Afterwards);
    let unfenced = unfenced.await;
    assert!(
        unfenced.contains(&"stale".to_owned()),
        "without tokens nothing is stale: {unfenced:?}"
    );
    let cases = cases.join_all().await;
    for (go_on, columns) in &cases {
        assert_eq!(columns[..], ["next"; 3], "the stale one went on {go_on:?}");
    }
    println!("{} stale holders left no cell; one without tokens left {unfenced:?}", cases.len());
}

/// When the stale holder continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GoOn {
    /// While the next holder writes.
    Between,
    /// When the next holder has written.
    Afterwards,
}

/// Stops a program that writes a row, lets the next holder write it, and lets the program continue.
/// What the columns are then.
async fn stop_a_writer(
    scene: &Scene,
    how: &str,
    stopped_after: Duration,
    go_on: GoOn,
) -> Vec<String> {
    let name = support::unique("stale");
    let mut stale = scene.start("tokens::writing_program", &format!("{name} {how}"));
    stale.expect("ready").await;
    stale.go_on().await;
    stale.expect("held").await;
    sleep(stopped_after).await;
    stale.signal(Signal::STOP);

    let client = scene.client().await;
    let next = client.request(&name).acquire().await;
    let next = next.expect("the stale holder's rows expire");
    let mut row = Row::new(scene, &name, token_of(&next, how).await).await;
    if go_on == GoOn::Between {
        stale.signal(Signal::CONT);
    }
    for column in 0..COLUMNS.len() {
        row.write(column, "next").await;
        sleep(Duration::from_millis(10)).await;
    }
    if go_on == GoOn::Afterwards {
        stale.signal(Signal::CONT);
    }
    stale.finish().await;
    next.unlock().await.expect("the lock was held");
    row.columns().await
}

// Goal: the program that the test above starts. By itself: a row of several writes is as the last
// one of them left it.
// Method: write the columns by turns; once the lock is lost, continue for a while.
#[tokio::test]
async fn writing_program() {
    let Some(order) = program::order() else {
        let scene = Scene::new().await;
        let name = support::unique("stale");
        let guard = scene.client().await.lock(&name).await.expect("the lock is free");
        let mut row = Row::new(&scene, &name, token_of(&guard, "token").await).await;
        for (column, text) in [(0, "a"), (1, "b"), (2, "c"), (1, "d"), (0, "e")] {
            row.write(column, text).await;
        }
        assert_eq!(row.columns().await, ["e", "d", "c"]);
        return guard.unlock().await.expect("the lock was held");
    };
    const WRITES_TOO_LATE: usize = 30;
    let (scene, order) = Scene::of(&order).await;
    let (name, how) = order.split_once(' ').expect("an order is a name and a way");
    let client = built(scene.builder().ttl(ttl())).await;
    program::say("ready");
    program::wait_for_word();
    let guard = client.lock(name).await.expect("the lock is free");
    let mut row = Row::new(&scene, name, token_of(&guard, how).await).await;
    program::say("held");
    let mut too_late = 0;
    for column in (0..COLUMNS.len()).cycle() {
        row.write(column, "stale").await;
        too_late += usize::from(matches!(guard.state(), GuardState::Lost(_)));
        if too_late == WRITES_TOO_LATE {
            break;
        }
        sleep(Duration::from_millis(5)).await;
    }
}

async fn token_of(guard: &LockGuard, how: &str) -> Option<FencingToken> {
    match how {
        "none" => None,
        _ => Some(guard.fencing_token().await.expect("the lock is held")),
    }
}

/// Short, but longer on a slow machine.
fn ttl() -> Duration {
    pace::scaled(Duration::from_secs(5))
}
