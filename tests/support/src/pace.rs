//! How fast this machine is while the tests run, and how long they wait because of it.
//!
//! A test waits for what it needs to see. Its only limit, [`limit`], says that something hangs, so
//! it is generous, and it grows with what the machine takes for two things when the tests begin: a
//! bare quorum write and the start of a process. How long the lock itself takes is tested in
//! virtual time, and measured by the benches.

use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::statement::Consistency;
use tokio::time::{sleep, timeout};

/// After this time nothing that a test waits for will come, on a quiet machine with two cores.
const LIMIT: Duration = Duration::from_secs(120);

/// What the two things take on such a machine, whose nodes have just started.
const QUIET_WRITE: Duration = Duration::from_millis(4);
const QUIET_START: Duration = Duration::from_millis(2);

/// A slower machine than this shows nothing any more.
const SLOWNESS_MAX: f64 = 10.0;

/// Takes the pace over from the process that started this one.
const SLOWNESS: &str = "BAKERY_LOCK_TEST_SLOWNESS";

/// How often each of the two is measured; the median counts.
const SAMPLES: usize = 21;

/// The first and the longest interval between checks of a condition. They grow, so that polling
/// does not load the machine.
const STEP: Duration = Duration::from_millis(5);
const STEP_MAX: Duration = Duration::from_millis(80);

static WRITE: OnceLock<Duration> = OnceLock::new();
static START: OnceLock<Duration> = OnceLock::new();

/// How long a test waits before it says that something hangs.
pub fn limit() -> Duration {
    LIMIT.mul_f64(slowness())
}

/// A time that a test gives a lock, such as a TTL, for as many operations as on a quiet machine: in
/// whole seconds, as a TTL must be.
pub fn scaled(time: Duration) -> Duration {
    Duration::from_secs_f64(time.mul_f64(slowness()).as_secs_f64().ceil())
}

/// Waits for a future, which is to be done before the [`limit`].
///
/// # Panics
///
/// If it is not: `what` hangs.
pub async fn within_limit<T>(what: &str, future: impl Future<Output = T>) -> T {
    let limit = limit();
    timeout(limit, future).await.unwrap_or_else(|_| panic!("{what}: not within {limit:?}"))
}

/// Waits until a condition holds, which is to be before the [`limit`]. On the test's own task: such
/// a future can't be sent to another thread.
///
/// # Panics
///
/// If it does not hold by then: `what` hangs.
pub async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let met = async {
        let mut steps = Steps::new();
        while !condition().await {
            steps.next().await;
        }
    };
    within_limit(what, met).await;
}

/// The pauses between checks of a condition; each is twice as long as the previous one.
pub(crate) struct Steps(Duration);

impl Steps {
    pub(crate) fn new() -> Self {
        Steps(STEP)
    }

    pub(crate) async fn next(&mut self) {
        sleep(self.0).await;
        self.0 = (self.0 * 2).min(STEP_MAX);
    }
}

/// Measures quorum writes on these nodes, once in each process.
pub(crate) fn measure_writes(nodes: &[SocketAddr]) {
    if inherited().is_none() {
        WRITE.get_or_init(|| of_writes(nodes));
    }
}

/// What was measured so far, for a person.
pub(crate) fn measured() -> String {
    let of = |what: &OnceLock<Duration>| {
        what.get().map_or("not measured".to_owned(), |median| format!("{median:.1?}"))
    };
    format!("a quorum write: {}, the start of a process: {}", of(&WRITE), of(&START))
}

/// The environment variable that hands the pace on to a process that is started.
pub(crate) fn handed_on() -> (&'static str, String) {
    (SLOWNESS, slowness().to_string())
}

/// How many times slower than a quiet machine this one was when the tests began.
fn slowness() -> f64 {
    inherited().unwrap_or_else(|| {
        let start = START.get_or_init(of_starts).div_duration_f64(QUIET_START);
        let write = WRITE.get().map_or(1.0, |write| write.div_duration_f64(QUIET_WRITE));
        start.max(write).clamp(1.0, SLOWNESS_MAX)
    })
}

fn inherited() -> Option<f64> {
    crate::environment::number(SLOWNESS)
}

fn of_starts() -> Duration {
    median(|| {
        let mut program = Command::new("true");
        program.stdin(Stdio::null()).stdout(Stdio::null());
        program.status().expect("the program `true` can be started");
    })
}

/// On a thread and a runtime of its own, because tests call from theirs.
fn of_writes(nodes: &[SocketAddr]) -> Duration {
    let measure = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime can be built");
        let (session, insert) = runtime.block_on(table(nodes));
        let write = || {
            let written = runtime.block_on(session.execute_unpaged(&insert, ()));
            written.expect("the cluster answers");
        };
        median(write)
    };
    std::thread::scope(|scope| scope.spawn(measure).join()).expect("measuring does not panic")
}

/// A table of one row, and the statement that writes it.
async fn table(nodes: &[SocketAddr]) -> (Session, scylla::statement::prepared::PreparedStatement) {
    let session = SessionBuilder::new().known_nodes_addr(nodes);
    let session = session.fetch_full_schema_metadata(false).build().await;
    let session = session.expect("the cluster answers");
    let replicas = session.get_cluster_state().get_nodes_info().len().min(3);
    let keyspace = format!(
        "CREATE KEYSPACE IF NOT EXISTS bakery_lock_pace WITH replication = \
         {{'class': 'NetworkTopologyStrategy', 'replication_factor': {replicas}}}"
    );
    let table = "CREATE TABLE IF NOT EXISTS bakery_lock_pace.writes (id int PRIMARY KEY)";
    for statement in [keyspace.as_str(), table] {
        session.query_unpaged(statement, ()).await.expect("the schema can be made");
    }
    let insert = session.prepare("INSERT INTO bakery_lock_pace.writes (id) VALUES (1)").await;
    let mut insert = insert.expect("the table is there");
    insert.set_consistency(Consistency::Quorum);
    (session, insert)
}

fn median(mut of: impl FnMut()) -> Duration {
    let sample = |_| {
        let began = Instant::now();
        of();
        began.elapsed()
    };
    let mut samples: Vec<_> = (0..SAMPLES).map(sample).collect();
    samples.sort_unstable();
    samples[SAMPLES / 2]
}
