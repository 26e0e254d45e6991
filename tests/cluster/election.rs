//! Elections of candidates in processes of their own, of which leaders are killed.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use bakery_lock::{ContenderInfo, Leaders};
use rand::Rng;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::scene::{Scene, built};
use support::environment::{chance, number};
use support::history::{Moment, inside};
use support::monotonic::now;
use support::pace;
use support::program::{self, Program};

const WATCH: Duration = Duration::from_millis(400);
/// How long a candidate waits longer than the next better one.
const STEP: Duration = Duration::from_millis(500);

/// How many elections of one leader are held while all candidates are healthy. A fifth as many
/// leaders are killed.
const ELECTIONS: &str = "BAKERY_LOCK_ELECTIONS";
const ELECTIONS_DEFAULT: usize = 20;

/// What a candidate says now and then, so that it is not taken for dead while others lead.
const STANDS: &str = "stands";
const SAYS_AFTER: Duration = Duration::from_secs(10);

/// What a candidate said.
#[derive(Debug)]
enum Said {
    /// It leads, since then, with this token.
    Leads { candidate: u8, since: u64, token: i64 },
    /// It led from then on, and at least up to then.
    Led { candidate: u8, from: u64, until: u64 },
}

/// Candidates, each in a process of its own.
struct Candidates {
    scene: Scene,
    object: String,
    seats: u32,
    programs: Vec<Option<Running>>,
    said: mpsc::UnboundedReceiver<Said>,
    sender: mpsc::UnboundedSender<Said>,
    /// By candidate and beginning: the end, as far as it was told.
    held: BTreeMap<(u8, u64), u64>,
    last_token: i64,
}

/// A candidate's process, and the task that reads what it says.
struct Running {
    orders: mpsc::UnboundedSender<Order>,
    reading: JoinHandle<()>,
}

/// What is done to a candidate.
#[derive(Clone, Copy, Debug)]
enum Order {
    Kill,
    Resign,
}

// Goal: of five healthy candidates the best one wins at least 95 of 100 elections; a leader that is
// killed is replaced; no two lead, tokens grow from leader to leader, and observers see every
// leader.
// Method: start `candidate` five times. The leader resigns, and stands again once another one
// leads; then leaders are killed at random moments and started again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes long; scripts/nightly runs it"]
async fn one_of_five_leads() {
    let elections = number(ELECTIONS).unwrap_or(ELECTIONS_DEFAULT);
    let kills = elections / 5;
    let _alone = support::alone().await;
    let mut chance = chance();
    let mut candidates = Candidates::start("one", 5, 1).await;
    let mut observed = candidates.observe().await;
    let mut leader = candidates.next_leader().await;
    let mut elected = vec![leader];
    let mut best = 0;
    for _ in 0..elections {
        observed.sees(leader).await;
        sleep(WATCH * 2).await;
        candidates.order(leader, Order::Resign);
        let next = candidates.next_leader().await;
        // The one that resigned stands aside for this time.
        best += usize::from(next == if leader == 1 { 2 } else { 1 });
        elected.push(next);
        leader = next;
    }
    println!("the best candidate won {best} of {elections} elections");
    assert!(best * 100 >= elections * 95, "only {best}: {elected:?}");

    let mut replaced = Vec::new();
    for _ in 0..kills {
        observed.sees(leader).await;
        sleep(ttl().mul_f64(chance.random())).await;
        candidates.kill(leader).await;
        let killed = Instant::now();
        let next = candidates.next_leader().await;
        let steps = STEP * u32::from(next - 1);
        replaced.push((killed.elapsed(), steps));
        candidates.stand(leader).await;
        elected.push(next);
        leader = next;
    }
    print_replaced(&replaced);
    observed.sees(leader).await;
    observed.stop().await;
    let held = candidates.finish().await;
    assert_eq!(inside(&held, u64::MAX).0, 1, "two led");
    println!("{} terms, no two at once; an observer saw all", elected.len());
}

// Goal: three of ten candidates lead, the best ones first; leaders that are killed are replaced
// within the same time, and never do more than three lead.
// Method: as above, with three seats.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes long; scripts/nightly runs it"]
async fn three_of_ten_lead() {
    const KILLS: usize = 4;
    let _alone = support::alone().await;
    let mut chance = chance();
    let mut candidates = Candidates::start("three", 10, 3).await;
    let mut leaders = Vec::new();
    for _ in 0..3 {
        leaders.push(candidates.next_leader().await);
    }
    println!("candidates {leaders:?} led first");
    let mut replaced = Vec::new();
    for kill in 0..KILLS {
        sleep(ttl().mul_f64(chance.random())).await;
        let killed = leaders.remove(kill % leaders.len());
        candidates.kill(killed).await;
        let at = Instant::now();
        let next = candidates.next_leader().await;
        replaced.push((at.elapsed(), STEP * u32::from(next - 1)));
        candidates.stand(killed).await;
        leaders.push(next);
    }
    print_replaced(&replaced);
    let held = candidates.finish().await;
    assert_eq!(inside(&held, u64::MAX).0, 3, "three lead at most");
}

/// Prints how long leaders took to be replaced, given the steps that the new ones waited.
fn print_replaced(replaced: &[(Duration, Duration)]) {
    let longest = replaced.iter().map(|(time, _)| *time).max().expect("leaders were killed");
    let mut without_steps: Vec<_> =
        replaced.iter().map(|(time, steps)| time.saturating_sub(*steps)).collect();
    without_steps.sort_unstable();
    println!(
        "{} leaders with a TTL of {:?} were killed and replaced after {:.2?} (median, less the \
         steps of the next one), {:.2?} at most; {longest:.2?} with its steps",
        replaced.len(),
        ttl(),
        without_steps[without_steps.len() / 2],
        without_steps.last().expect("leaders were killed"),
    );
}

impl Candidates {
    async fn start(tag: &str, number: u8, seats: u32) -> Self {
        let (sender, said) = mpsc::unbounded_channel();
        let (scene, object) = (Scene::new().await, support::unique(tag));
        let programs = (0..number).map(|_| None).collect();
        let (held, last_token) = (BTreeMap::new(), 0);
        let mut candidates =
            Candidates { scene, object, seats, programs, said, sender, held, last_token };
        for candidate in 1..=number {
            candidates.stand(candidate).await;
        }
        candidates
    }

    /// Starts a candidate's process.
    async fn stand(&mut self, candidate: u8) {
        let Candidates { scene, object, seats, .. } = self;
        let order = format!("{object} {seats} {candidate}");
        let mut program = scene.start("election::candidate", &order);
        program.expect("ready").await;
        let (orders, receiver) = mpsc::unbounded_channel();
        let reading = tokio::spawn(serve(program, candidate, receiver, self.sender.clone()));
        self.programs[usize::from(candidate) - 1] = Some(Running { orders, reading });
    }

    fn order(&self, candidate: u8, order: Order) {
        let running = self.programs[usize::from(candidate) - 1].as_ref().expect("it runs");
        running.orders.send(order).expect("it takes orders");
    }

    async fn kill(&mut self, candidate: u8) {
        self.order(candidate, Order::Kill);
        let running = self.programs[usize::from(candidate) - 1].take().expect("it runs");
        running.reading.await.expect("it does not panic");
    }

    /// Waits for the next leader. Its token is above those of the leaders before it, if there is
    /// one seat.
    async fn next_leader(&mut self) -> u8 {
        loop {
            let said = pace::within_limit("the next leader", self.said.recv()).await;
            match said.expect("the candidates run") {
                Said::Leads { candidate, token, since } => {
                    assert!(since <= now() && (self.seats > 1 || token > self.last_token));
                    self.last_token = token;
                    return candidate;
                }
                Said::Led { candidate, from, until } => self.led(candidate, from, until),
            }
        }
    }

    /// Notes who leads, as another client sees it.
    async fn observe(&self) -> Observed {
        let client = self.scene.client().await;
        let mut leaders = client.election(&self.object).observe();
        let (sender, seen) = mpsc::unbounded_channel();
        let watching = tokio::spawn(async move {
            loop {
                if let Some(leader) = one_leader(&mut leaders).await
                    && sender.send(leader).is_err()
                {
                    return;
                }
            }
        });
        Observed { seen, watching }
    }

    /// Ends all candidates, and returns when they led.
    async fn finish(mut self) -> Vec<Moment> {
        for running in std::mem::take(&mut self.programs).into_iter().flatten() {
            drop(running.orders);
            running.reading.await.expect("it does not panic");
        }
        while let Ok(said) = self.said.try_recv() {
            if let Said::Led { candidate, from, until } = said {
                self.led(candidate, from, until);
            }
        }
        // Rows of those that were killed expire.
        self.scene.wait_for_rows(&self.object, 0).await;
        let held = self.held.into_iter();
        held.map(|((_, from), until)| Moment::Held { from, until }).collect()
    }

    fn led(&mut self, candidate: u8, from: u64, until: u64) {
        let last = self.held.entry((candidate, from)).or_default();
        *last = until.max(*last);
    }
}

/// What an observer sees.
struct Observed {
    seen: mpsc::UnboundedReceiver<u8>,
    watching: JoinHandle<()>,
}

impl Observed {
    /// Waits until it sees the next leader, which is `leader`.
    async fn sees(&mut self, leader: u8) {
        let shown = pace::within_limit("a leader is seen", self.seen.recv()).await;
        let shown = shown.expect("it watches");
        assert_eq!(shown, leader, "an observer sees each leader once, and no other");
    }

    /// Ends it. It saw no leader but those that it was expected to see.
    async fn stop(mut self) {
        self.watching.abort();
        assert!(self.seen.try_recv().is_err(), "an observer sees each leader once, and no other");
    }
}

/// The next leader, or `None` for a look that shows none.
async fn one_leader(leaders: &mut Leaders) -> Option<u8> {
    let leaders =
        leaders.try_next().await.expect("the database answers").expect("the client lives");
    assert!(leaders.len() <= 1, "two lead: {leaders:?}");
    leaders.first().map(candidate_of)
}

/// The candidate's number, which its label ends with.
fn candidate_of(leader: &ContenderInfo) -> u8 {
    let label = leader.owner.label().expect("each has a label");
    let number = label.rsplit(' ').next().expect("its last word");
    number.parse().expect("it is a number")
}

/// Does what is ordered to a candidate, and passes on what it says.
async fn serve(
    mut program: Program,
    candidate: u8,
    mut orders: mpsc::UnboundedReceiver<Order>,
    said: mpsc::UnboundedSender<Said>,
) {
    let tell = |line: &str| {
        if line == STANDS {
            return;
        }
        let words: Vec<_> = line.split(' ').collect();
        let told = match words[..] {
            ["leads", since, token] => {
                let since = since.parse().expect("it tells a time");
                Said::Leads { candidate, since, token: token.parse().expect("it tells a token") }
            }
            ["led", from, until] => {
                let [from, until] = [from, until].map(|time| time.parse().expect("a time"));
                Said::Led { candidate, from, until }
            }
            _ => panic!("a candidate says {line:?}"),
        };
        // The test may be over.
        let _ = said.send(told);
    };
    loop {
        tokio::select! {
            line = program.next() => tell(&line.expect("it says when it is done")),
            order = orders.recv() => match order {
                Some(Order::Resign) => program.tell("resign").await,
                Some(Order::Kill) => return program.kill().await.iter().for_each(|line| tell(line)),
                None => {
                    program.tell("end").await;
                    return program.finish().await.iter().for_each(|line| tell(line));
                }
            },
        }
    }
}

// Goal: the program that the tests above start. By itself: one candidate leads.
// Method: it campaigns, tells when it leads and when it led, and resigns when it is told to. Then
// it stands aside until another one leads.
#[tokio::test]
async fn candidate() {
    let Some(order) = program::order() else {
        let scene = Scene::new().await;
        let client = scene.client().await;
        let election = client.election(support::unique("election"));
        let leadership = election.campaign().await.expect("it is the only one");
        let shown = election.observe().try_next().await.expect("the database answers");
        let shown = shown.expect("the client lives");
        assert!(shown.iter().all(|leader| leader.client == shown[0].client), "{shown:?}");
        return leadership.resign().await.expect("it led");
    };
    let (scene, order) = Scene::of(&order).await;
    let words: Vec<_> = order.split(' ').collect();
    let [object, seats, priority] = words[..] else {
        panic!("not an order: {order}");
    };
    let client = built(scene.builder().ttl(ttl())).await;
    let seats: u32 = seats.parse().expect("an order has the number of seats");
    let election = client.election(object).seats(seats);
    let election = election.priority(priority.parse().expect("an order ends with a priority"));
    let election = election.label(format!("candidate {priority}"));
    program::say("ready");
    let standing = tokio::spawn(async {
        loop {
            sleep(SAYS_AFTER).await;
            program::say(STANDS);
        }
    });
    let (sender, mut words) = mpsc::unbounded_channel();
    // It ends with the process.
    thread::spawn(move || while sender.send(program::wait_for_word()).is_ok() {});
    loop {
        let leadership = tokio::select! {
            leadership = election.campaign() => leadership.expect("one leads in the end"),
            word = words.recv() => break assert_eq!(word.as_deref(), Some("end")),
        };
        let since = now();
        let token = match seats {
            1 => leadership.fencing_token().await.expect("it leads").value(),
            _ => 0,
        };
        program::say(&format!("leads {since} {token}"));
        let mut until = since;
        let word = loop {
            // Of one that is killed this is the last that is known.
            program::say(&format!("led {since} {until}"));
            if let Ok(word) = timeout(Duration::from_millis(50), words.recv()).await {
                break word;
            }
            let noted = now();
            assert!(leadership.state().is_held(), "nothing stops it");
            until = noted;
        };
        leadership.resign().await.expect("it led");
        if word.as_deref() == Some("end") {
            break;
        }
        // Until another one leads.
        let mut others = election.observe();
        let mut lead = async || others.try_next().await.expect("the database answers");
        while lead().await.expect("the client lives").len() < seats as usize {}
    }
    standing.abort();
    client.shutdown().await.expect("the database answers");
}

/// Short, but longer on a slow machine.
fn ttl() -> Duration {
    pace::scaled(Duration::from_secs(5))
}
