//! One process that uses the library: a runtime of its own, whose time continues when it is told
//! to.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use bakery_lock::testing::{SimulatedClient, SimulatedCluster};
use bakery_lock::{ContenderInfo, LockClient, LockGuard};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, advance, sleep_until};

use super::log::{Failure, HoldEnd, Log};
use super::plan::MachinePlan;

/// A process that runs, or is stopped.
pub(crate) struct Machine {
    runtime: Runtime,
    client: SimulatedClient,
    lock_client: LockClient,
    site: Site,
    /// Its client refuses all work; another process must take its place.
    pub(crate) is_shut_down: bool,
    /// Up to when it has run.
    ran: Duration,
    paused: bool,
    has_peers: bool,
}

/// What the tasks of a machine share.
#[derive(Clone)]
pub(crate) struct Site {
    pub(crate) number: usize,
    pub(crate) cluster: SimulatedCluster,
    pub(crate) log: Arc<Mutex<Log>>,
    /// The guards that are held, by their place in the log.
    pub(crate) held: Arc<Mutex<BTreeMap<usize, Weak<LockGuard>>>>,
    started: Duration,
    origin: Instant,
}

impl Site {
    /// The time of the simulation, as this machine has come to it.
    pub(crate) fn now(&self) -> Duration {
        self.started + self.origin.elapsed()
    }

    pub(crate) fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().expect("the mutex is not poisoned")
    }

    /// Notes what a caller was told instead of what it asked for.
    pub(crate) fn failure(&self, object: &str, why: String) {
        let (client, object, at) = (self.number, object.to_owned(), self.now());
        self.log().failures.push(Failure { client, object, at, why });
    }

    /// Whether a contender is this client.
    pub(crate) fn is_self(&self, contender: &ContenderInfo) -> bool {
        self.cluster.number_of(contender.client) == Some(self.number)
    }

    /// The client whose place a guard uses, and the slot of that place.
    pub(crate) fn place(&self, guard: &LockGuard) -> (usize, i16) {
        let keeper = self.cluster.number_of(guard.keeper()).expect("its place has rows");
        (keeper, guard.slot())
    }

    /// Whether a contender was killed, and no guest can be inside its place. A guest lives on when
    /// its keeper dies, and has its turn until its sublease ends.
    pub(crate) fn is_gone(&self, contender: &ContenderInfo) -> bool {
        let log = self.log();
        let number = self.cluster.number_of(contender.client);
        let is_gone = |number| log.deaths.contains_key(number) && !log.lenders.contains(number);
        number.as_ref().is_some_and(is_gone)
    }

    pub(crate) fn held(&self) -> MutexGuard<'_, BTreeMap<usize, Weak<LockGuard>>> {
        self.held.lock().expect("the mutex is not poisoned")
    }
}

impl Machine {
    /// Starts a process on a host, with a client and with what `work` spawns.
    pub(crate) fn start(
        cluster: &SimulatedCluster,
        plan: &MachinePlan,
        host: &str,
        start: Start,
        work: impl FnOnce(&LockClient, &Site),
    ) -> Self {
        let Start { now, seed, log } = start;
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
        let runtime = runtime.expect("a runtime without threads and I/O needs nothing");
        let (client, lock_client, site) = runtime.block_on(async {
            let client = cluster.connect(now, plan.wall_error, seed);
            let origin = Instant::now();
            let number = client.number();
            let (cluster, held) = (cluster.clone(), Arc::default());
            let site = Site { number, cluster, log, held, started: now, origin };
            if plan.peers {
                site.log().lenders.insert(number);
            }
            let builder = if plan.peers { client.peer_builder() } else { client.client_builder() };
            let builder = builder.host(host).ttl(plan.ttl).local_handoff(plan.turns);
            let built = builder.build().await.expect("the host is registered");
            work(&built, &site);
            (client, built, site)
        });
        Machine {
            runtime,
            client,
            lock_client,
            site,
            is_shut_down: false,
            ran: now,
            paused: false,
            has_peers: plan.peers,
        }
    }

    /// The number of its client.
    pub(crate) fn client(&self) -> usize {
        self.site.number
    }

    /// Up to when it has run; `None` while it is stopped.
    pub(crate) fn ran(&self) -> Option<Duration> {
        (!self.paused).then_some(self.ran)
    }

    /// Up to when it has run, if it may send messages to others; `None` while it is stopped.
    pub(crate) fn may_send_from(&self) -> Option<Duration> {
        self.ran().filter(|_| self.has_peers)
    }

    /// Lets the process do something beside the work of its tasks.
    pub(crate) fn spawn<F: Future<Output = ()> + Send + 'static>(
        &self,
        work: impl FnOnce(LockClient, Site) -> F,
    ) {
        self.runtime.spawn(work(self.lock_client.clone(), self.site.clone()));
    }

    /// Runs until it has called the cluster or sent a message, and up to this time at most.
    pub(crate) fn run(&mut self, until: Duration) {
        let until = self.site.origin + (until - self.site.started);
        let called = self.client.called();
        self.ran = self.runtime.block_on(async {
            tokio::select! {
                biased;
                () = called => {}
                () = sleep_until(until) => {}
            }
            self.site.now()
        });
    }

    /// Stops the process as it is.
    pub(crate) fn pause(&mut self) {
        self.paused = true;
    }

    /// Lets it continue: for its tasks no time has passed, but their clocks say otherwise.
    pub(crate) fn resume(&mut self, now: Duration) {
        if std::mem::take(&mut self.paused) {
            self.note_lapses(now);
            self.ran = self.runtime.block_on(async {
                advance(now - self.ran).await;
                self.site.now()
            });
        }
    }

    /// Ends the process as `kill -9` does.
    pub(crate) fn kill(self, now: Duration) {
        self.note_lapses(now);
        let mut log = self.site.log();
        for hold in self.site.held().keys() {
            log.end(*hold, now, HoldEnd::Died);
        }
        log.deaths.insert(self.client(), now);
        drop(log);
        self.site.held().clear();
        // Guards are dropped with the tasks that have them; no task sends their releases any more.
        drop(self.runtime);
    }

    /// Notes which leases ended while the process was stopped, by what it knew before: its clock
    /// was never asked meanwhile, and no renewal reached it.
    fn note_lapses(&self, now: Duration) {
        let _clock = self.runtime.enter();
        let mut log = self.site.log();
        for (hold, guard) in &*self.site.held() {
            if let Some(guard) = guard.upgrade() {
                let lapses = self.ran + guard.remaining();
                if lapses <= now {
                    log.end(*hold, lapses, HoldEnd::Slept);
                }
            }
        }
    }
}

/// How a process comes into being.
pub(crate) struct Start {
    pub(crate) now: Duration,
    pub(crate) seed: u64,
    pub(crate) log: Arc<Mutex<Log>>,
}
