//! Many locks while nodes, networks, clients and clocks fail, one after the other and together.
//!
//! ```sh
//! cargo test --test faults storm -- --ignored
//! BAKERY_LOCK_STORM_GRANTS=100000 \
//!     cargo test --release --test faults turns_hold -- --ignored --nocapture
//! ```
//!
//! The first one lets each kind of fault happen once, the second one continues until this many
//! locks were granted. `BAKERY_LOCK_TEST_SEED` repeats the faults of an earlier run, and what the
//! clients choose. Then all is healed, and every task must be served. What is checked is what
//! `history.rs` can find in the histories of all clients.

mod crew;
mod ledger;
mod nemesis;
mod progress;
mod report;
mod routes;
mod said;
mod worker;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use bakery_lock::schema::CreateOptions;
use cassandra_cluster::{ClusterOptions, CommitLog, Network};
use tokio::time::sleep;

use super::hurt::Hurt;
use crew::Crew;
use nemesis::{NODE_WITH_CLOCK, Nemesis};
use progress::Progress;
use report::Report;
use support::environment::{number, seed};
use support::pace;
use support::scene::Scene;
use worker::TASKS;

/// Says how many locks are to be granted, at least half of them contended, or as turns of guests.
const GRANTS: &str = "BAKERY_LOCK_STORM_GRANTS";

const KEYSPACE: &str = "storm";

const CLIENTS: usize = 10;

/// This many of them take turns of each other, in the storm of turns; the others wait in the table.
const PEERS: usize = 8;

const TTL: Duration = Duration::from_secs(8);

/// A node's clock is a second ahead or behind now and then. It is read over a network that is slow.
const MAX_CLOCK_SKEW: Duration = Duration::from_millis(1_499);

// Goal: whatever happens to nodes, networks, clients and clocks, as long as it is what a lock is
// made for, no two clients hold at the same time, none overtakes, tokens grow; and once all is
// healed, every task is served and no row is left.
// Method: clients in processes of their own take locks that others want too, through proxies,
// while faults come and go; their histories are checked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes long; scripts/nightly runs it"]
async fn locks_hold_in_a_storm() {
    storm(0).await;
}

// Goal: the same of clients that take turns of each other beside some that don't: neither the
// clocks of guests nor connections to keepers that break, stall or are slow let two in; turns end
// soon once a client waits in the table.
// Method: the same, with relays between guests and keepers. A client stays for some time, so that
// others stand in line.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes long; scripts/nightly runs it"]
async fn turns_hold_in_a_storm() {
    storm(PEERS).await;
}

async fn storm(peers: usize) {
    let _alone = support::alone().await;
    let asked = number(GRANTS);
    let seed = seed();
    let cluster = cluster().await;
    let scene = cluster.scene(KEYSPACE, CreateOptions::new().max_clock_skew(MAX_CLOCK_SKEW)).await;
    let began = Instant::now();
    let mut crew = Crew::start(CLIENTS, peers, &cluster.nodes(), seed).await;
    // Most locks are granted between faults.
    let gaps = if asked.is_some() { 3.0..15.0 } else { 1.0..3.0 };
    let mut nemesis = Nemesis::begin(seed, &cluster, crew.clients(), &gaps);
    weather_passes(&crew, &nemesis, asked).await;
    nemesis.end().await;
    let faults = nemesis.record().faults;
    let stormed = began.elapsed();
    crew.end().await;
    let healed = began.elapsed() - stormed;
    let objects = crew.ledger().names();
    let rows = rows_left(&scene, objects).await;
    let ledger = crew.ledger();
    let (violations, tasks) = (ledger.violations(), CLIENTS * TASKS);
    let report =
        Report { faults, stormed, healed, ledger: &ledger, violations, tasks, peers, rows };
    println!("{report}");
    if report.wrong() > 0 {
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("storm-{seed}.txt"));
        std::fs::write(&file, ledger.histories()).expect("there is room for a file");
        panic!("the histories are in {}", file.display());
    }
    assert!(peers == 0 || ledger.fewest_kept_used(peers) > 0, "a client used no kept place");
}

/// Waits until enough has happened.
async fn weather_passes(crew: &Crew, nemesis: &Nemesis, asked: Option<u64>) {
    let enough = asked.unwrap_or(1);
    let mut progress = asked.map(Progress::begin);
    let mut last_grant = (0, Instant::now());
    loop {
        sleep(Duration::from_millis(200)).await;
        let (grants, subleases, waited) = {
            let ledger = crew.ledger();
            (ledger.grants, ledger.subleases, ledger.contended.max(ledger.subleases))
        };
        if grants > last_grant.0 {
            last_grant = (grants, Instant::now());
        }
        assert!(last_grant.1.elapsed() < pace::limit(), "no lock is granted: {grants} so far");
        let record = nemesis.record();
        if let Some(progress) = &mut progress {
            progress.show(grants, subleases, &record);
        }
        if grants >= enough && waited * 2 >= enough && record.faults.len() == nemesis.kinds() {
            return;
        }
    }
}

/// The rows that are left of each object.
async fn rows_left(scene: &Scene, objects: Vec<String>) -> BTreeMap<String, Vec<String>> {
    let began = Instant::now();
    let mut left = BTreeMap::new();
    for object in objects {
        loop {
            let rows = scene.rows(&object).await;
            if rows.is_empty() {
                break;
            }
            if began.elapsed() > pace::limit() {
                left.insert(object, rows);
                break;
            }
            sleep(Duration::from_millis(50)).await;
        }
    }
    left
}

async fn cluster() -> Hurt {
    let options = ClusterOptions {
        name: "storm".to_owned(),
        nodes: 3,
        first_host: 61,
        // A node that is killed must not forget what it had acknowledged.
        commit_log: CommitLog::Group,
        network: Network::Relayed,
        // Else they write their memtables to disk all the time.
        heap_mib: 1024,
        clock_offsets: BTreeMap::from([(NODE_WITH_CLOCK, 0)]),
        // Else a node takes what comes from one whose clock is behind for too old, and drops it.
        settings: BTreeMap::from([("internode_timeout".to_owned(), "false".to_owned())]),
        ..ClusterOptions::default()
    };
    let cluster = Hurt::lease(options).await;
    // An earlier run may have left it wrong.
    cluster.on(|cluster| cluster.set_clock(NODE_WITH_CLOCK, 0)).await;
    cluster
}
