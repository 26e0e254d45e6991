//! The commands that continue through outages: what they print meanwhile, and after it.

use std::io::{BufRead, BufReader, Read};
use std::process::Child;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use bakery_lock::LockClient;
use cassandra_cluster::{Cluster, ClusterError, ClusterOptions};
use rustix::process::{Pid, Signal, kill_process};
use scylla::client::session_builder::SessionBuilder;
use support::pace;
use tokio::runtime::Handle;
use tokio::task::{JoinHandle, block_in_place};

use super::{Place, TABLES_SETTLE, timeout, waited_in_vain};
use crate::command::{lockctl, paced};
use crate::lockctl::s;

const NAME: &str = "scheduler";

/// How long an outage lasts at least: one that is not noticed, and one of a quorum.
const UNNOTICED: Duration = s(8);
const NOTICED: Duration = s(14);

/// How long each look of the commands may take: `--timeout`.
fn look_max() -> Duration {
    paced(5)
}

/// The TTL of leaders: longer than what renewals wait for one frozen node.
fn ttl() -> Duration {
    paced(10)
}

/// Waits until a condition holds, on a thread that may block.
fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    Handle::current().block_on(pace::until(what, async || condition()));
}

/// A line that a command printed, and when.
#[derive(Clone, Debug)]
struct Line {
    at: Instant,
    text: String,
    is_error: bool,
}

/// A command that continues until it is interrupted.
struct Watching {
    child: Child,
    lines: Arc<Mutex<Vec<Line>>>,
    /// They end with the command.
    readers: Vec<thread::JoinHandle<()>>,
}

impl Watching {
    fn start(place: &Place, arguments: &[&str]) -> Self {
        let mut command = lockctl(&["--nodes", &place.nodes, "--keyspace", &place.keyspace]);
        let mut child = command.args(arguments).spawn().expect("the tool starts");
        let lines = Arc::default();
        let out = read(child.stdout.take(), false, &lines);
        let errors = read(child.stderr.take(), true, &lines);
        Watching { child, lines, readers: vec![out, errors] }
    }

    fn lines(&self) -> Vec<Line> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The first line since a moment of which this is true, and how long it took.
    fn first(&self, since: Instant, is_it: impl Fn(&Line) -> bool) -> Option<(Duration, Line)> {
        let line = self.lines().into_iter().find(|line| line.at >= since && is_it(line))?;
        Some((line.at - since, line))
    }

    /// Waits for a line with a text, and tells how long after a moment it came.
    fn expect(&self, since: Instant, text: &str, is_error: bool) -> Duration {
        let mut took = None;
        wait_until(&format!("{text:?} is printed"), || {
            let found = |line: &Line| line.is_error == is_error && line.text.contains(text);
            took = self.first(since, found).map(|(took, _)| took);
            took.is_some()
        });
        took.expect("it was printed")
    }

    /// Until it shows a leader or ends: its exit code if it has ended, how long that took, and what
    /// it printed.
    fn begins(&mut self, began: Instant) -> (Option<i32>, Duration, String) {
        let mut ended = None;
        wait_until("a command shows something or ends", || {
            ended = self.child.try_wait().expect("it can be waited for");
            let shows = |line: &Line| !line.is_error && line.text.contains(" term ");
            ended.is_some() || self.first(began, shows).is_some()
        });
        let took = began.elapsed();
        if ended.is_some() {
            for reader in self.readers.drain(..) {
                reader.join().expect("it reads to the end");
            }
        }
        let lines: Vec<_> = self.lines().into_iter().map(|line| line.text).collect();
        (ended.and_then(|status| status.code()), took, lines.join("\n"))
    }

    fn interrupt(mut self) -> Option<i32> {
        kill_process(Pid::from_child(&self.child), Signal::INT).expect("it runs");
        self.child.wait().expect("it was started here").code()
    }
}

/// Takes the lines of a stream as they come.
fn read(
    stream: Option<impl Read + Send + 'static>,
    is_error: bool,
    lines: &Arc<Mutex<Vec<Line>>>,
) -> thread::JoinHandle<()> {
    let (stream, lines) = (stream.expect("it is a pipe"), Arc::clone(lines));
    thread::spawn(move || {
        for line in BufReader::new(stream).lines() {
            let line = Line { at: Instant::now(), text: line.expect("it is text"), is_error };
            lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        }
    })
}

/// A candidate that leads whenever it can, each time under another label: `term 1`, `term 2`, ..
struct Candidate {
    standing: JoinHandle<()>,
    /// When each term began.
    elected: Arc<Mutex<Vec<Instant>>>,
    /// How many terms are over.
    lost: Arc<AtomicUsize>,
}

impl Candidate {
    fn stand(client: LockClient) -> Self {
        let (elected, lost) = (Arc::<Mutex<Vec<_>>>::default(), Arc::<AtomicUsize>::default());
        let (terms, over) = (Arc::clone(&elected), Arc::clone(&lost));
        let standing = tokio::spawn(async move {
            for term in 1.. {
                let election = client.election(NAME).priority(1).ttl(ttl());
                let election = election.label(label(term));
                let leadership = election.campaign().await.expect("outages pass");
                terms.lock().unwrap_or_else(PoisonError::into_inner).push(Instant::now());
                leadership.lost().await;
                over.store(term, Ordering::Release);
            }
        });
        Candidate { standing, elected, lost }
    }

    fn elected(&self) -> Vec<Instant> {
        assert!(!self.standing.is_finished(), "the candidate has failed");
        self.elected.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn terms(&self) -> usize {
        self.elected().len()
    }

    fn has_lost(&self, term: usize) -> bool {
        self.lost.load(Ordering::Acquire) >= term
    }
}

/// The label of a leader in a term.
fn label(term: usize) -> String {
    format!("term {term}.")
}

/// What happens to nodes.
#[derive(Clone, Copy, Debug)]
struct Outage {
    name: &'static str,
    begin: fn(&Cluster, u8) -> Result<(), ClusterError>,
    nodes: u8,
}

const OUTAGES: [Outage; 6] = [
    Outage { name: "one of three nodes frozen", begin: Cluster::pause, nodes: 1 },
    Outage { name: "two frozen", begin: Cluster::pause, nodes: 2 },
    Outage { name: "all frozen", begin: Cluster::pause, nodes: 3 },
    Outage { name: "one of three nodes killed", begin: Cluster::kill, nodes: 1 },
    Outage { name: "two killed", begin: Cluster::kill, nodes: 2 },
    Outage { name: "all killed", begin: Cluster::kill, nodes: 3 },
];

/// A cluster with a leader, and those that watch it.
struct Scene {
    cluster: Cluster,
    place: Place,
    candidate: Candidate,
    watch: Watching,
    observe: Watching,
}

impl Scene {
    fn start(cluster: Cluster, place: Place, client: LockClient) -> Self {
        let candidate = Candidate::stand(client);
        let timeout = format!("{:?}", look_max());
        let began = Instant::now();
        let watch = Watching::start(&place, &["--timeout", &timeout, "watch", NAME]);
        let observing = ["--timeout", &timeout, "elect", "--observe", NAME];
        let observe = Watching::start(&place, &observing);
        for watching in [&watch, &observe] {
            watching.expect(began, &label(1), false);
        }
        Scene { cluster, place, candidate, watch, observe }
    }

    /// An outage and its end. Returns a row of the table.
    fn go_through(&self, outage: Outage) -> String {
        let Outage { name, begin, nodes } = outage;
        let term = self.candidate.terms();
        for node in (1..=3).rev().take(nodes.into()) {
            begin(&self.cluster, node).expect("the cluster does it");
        }
        let began = Instant::now();
        if nodes == 1 {
            let (code, took, said) = self.started();
            assert!(code.is_none() && said.contains("web1"), "{name}: {code:?} {said}");
            sleep(UNNOTICED.saturating_sub(began.elapsed()));
            for watching in [&self.watch, &self.observe] {
                // A leader that renews late is shown again, with a warning of that.
                let shown = |text: &str| text.starts_with("STATE") || text.contains(&label(term));
                let said = watching.first(began, |line| !shown(&line.text));
                assert!(said.is_none(), "{name}: {said:?}");
            }
            self.cluster.heal().expect("the nodes come back");
            return format!("{name} | goes on | goes on | started: {took:.1?}, works");
        }
        let (code, took, said) = self.started();
        assert_eq!(code, Some(3), "{name}: {said}");
        let told = [&self.watch, &self.observe].map(|watching| {
            let text = format!("the database did not answer within {:?}", look_max());
            watching.expect(began, &text, true)
        });
        assert!(!waited_in_vain(&said), "{name}: {said}");
        wait_until("the leader is lost", || self.candidate.has_lost(term));
        sleep(NOTICED.saturating_sub(began.elapsed()));
        for (watching, told) in [&self.watch, &self.observe].into_iter().zip(told) {
            // A look before the first that failed may have been answered as the outage began.
            let seen = watching.first(began + told, |line| !line.is_error);
            assert!(seen.is_none(), "{name}: seen without a quorum: {seen:?}");
        }
        self.cluster.heal().expect("the nodes come back");
        let healed = Instant::now();
        let next = label(term + 1);
        let elected =
            [&self.watch, &self.observe].map(|watching| watching.expect(began, &next, false));
        let after = elected.map(|it| it.as_secs_f64() - (healed - began).as_secs_f64());
        format!(
            "{name} | says so after {:.1?} | says so after {:.1?} | started: {took:.1?}, \
             {said}\n    next leader shown {:+.1} s and {:+.1} s from when the last node was back",
            told[0], told[1], after[0], after[1]
        )
    }

    /// A command that is started now, with the timeout of all commands.
    fn started(&self) -> (Option<i32>, Duration, String) {
        let timeout = format!("{}s", timeout());
        let began = Instant::now();
        let mut watch = Watching::start(&self.place, &["--timeout", &timeout, "watch", NAME]);
        let begun = watch.begins(began);
        if begun.0.is_none() {
            watch.interrupt();
        }
        begun
    }

    /// Each leader that the observer printed led then: its term had begun, and no later one.
    fn no_leader_was_false(&self) {
        wait_until("the last leader is seen", || {
            let last = label(self.candidate.terms());
            self.observe.lines().iter().any(|line| line.text.contains(&last))
        });
        let elected = self.candidate.elected();
        let mut last = 0;
        for line in self.observe.lines().into_iter().filter(|line| !line.is_error) {
            let Some((_, term)) = line.text.split_once("term ") else {
                assert!(line.text.ends_with("none leads"), "{line:?}");
                continue;
            };
            let term = term.split_once('.').and_then(|(term, _)| term.parse::<usize>().ok());
            let term = term.expect("it is a number");
            assert!(term > last, "term {term} after {last}");
            last = term;
            assert!(elected[term - 1] <= line.at, "term {term} was not elected yet");
            // A look tells what was so when it began.
            let next = elected.get(term).is_none_or(|next| line.at <= *next + look_max());
            assert!(next, "term {term} was over");
        }
        assert_eq!(last, elected.len(), "the last leader was not seen");
    }
}

// Goal: `watch` and `elect --observe` continue through each outage: while a quorum is left they
// print nothing of it; without one they say so at their timeout, and nothing else; after it they
// show the next leader. They never show a leader that does not lead.
// Method: three nodes, some or all of which are frozen and killed in turn, and a candidate whose
// short lease ends in each outage without a quorum.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes long; scripts/nightly runs it"]
async fn commands_watch_through_outages() {
    let _alone = support::alone().await;
    let options = ClusterOptions {
        name: "watched".to_owned(),
        nodes: 3,
        first_host: 84,
        ..ClusterOptions::default()
    };
    let cluster = Cluster::lease(options).unwrap_or_else(|error| panic!("no cluster: {error}"));
    let place = Place::new(&cluster, "watched");
    place.prepare(&["init", "--replication", "3"]);
    place.prepare(&["add", "web1"]);
    let client = client(&cluster, &place).await;
    block_in_place(|| {
        sleep(TABLES_SETTLE);
        let scene = Scene::start(cluster, place, client);
        for outage in OUTAGES {
            println!("{}", scene.go_through(outage));
        }
        scene.no_leader_was_false();
        let Scene { candidate, watch, observe, .. } = scene;
        candidate.standing.abort();
        assert_eq!([watch.interrupt(), observe.interrupt()], [Some(130); 2]);
    });
}

/// A client whose session notices a frozen node soon.
async fn client(cluster: &Cluster, place: &Place) -> LockClient {
    let session = SessionBuilder::new()
        .known_nodes_addr(cluster.nodes())
        .keepalive_interval(s(1))
        .keepalive_timeout(s(2))
        .build()
        .await
        .expect("the cluster is ready");
    let builder = LockClient::builder(session, &place.keyspace).host("web1");
    builder.build().await.expect("the tables are there")
}
