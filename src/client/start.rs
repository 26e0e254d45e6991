//! The parts of a client, and how it starts.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{Inner, LockClient};
use crate::clock::{Clock, Moment, Stamps, WallClockBound};
use crate::context::idle_looks::IdleLooks;
use crate::context::{ClientContext, Process};
use crate::core::bakery::{ContenderId, LeaseTerms};
use crate::driver::client_task::{Channels, ClientTask};
use crate::driver::health::{Baseline, HealthMonitor};
use crate::driver::host::{REGISTRAR, RegisteredHost};
use crate::driver::registration::Registration;
use crate::entropy::Entropy;
use crate::owner::Owner;
use crate::peers::{Join, NetworkEnd};
use crate::store::{Counted, LockRows, Store};

/// The parts of a client.
pub(crate) struct ClientSetup {
    /// Where the rows live.
    pub(crate) store: Store,
    /// The clock for everything the client does.
    pub(crate) clock: Arc<dyn Clock>,
    /// The randomness for everything the client does.
    pub(crate) entropy: Arc<dyn Entropy>,
    /// The host as the registry showed it; `None` for the registry's own client, and for one
    /// that takes no locks.
    pub(crate) registered: Option<Registered>,
    /// Whether the client takes no locks.
    pub(crate) read_only: bool,
    /// The name of the host.
    pub(crate) host_name: String,
    /// What all names begin with in the table, and not for callers.
    pub(crate) prefix: String,
    /// How long acquisitions, releases and a shutdown wait.
    pub(crate) acquire_timeout: Duration,
    /// How long rows live without renewal.
    pub(crate) ttl: Duration,
    /// Whether several callers may use one place in turn.
    pub(crate) local_handoff: bool,
    /// How long an idle place is kept at most; zero: not at all.
    pub(crate) keep_idle: Duration,
    /// Joins the network of peers, with the client's uuid.
    pub(crate) join: Option<Join>,
    /// The longest TTL that the lock table allows.
    pub(crate) max_ttl: Duration,
    /// How far clocks may differ, according to the lock table's settings.
    pub(crate) max_clock_skew: Duration,
    /// The id of the lock table, if the client checks health.
    pub(crate) lock_table: Option<Uuid>,
}

/// A registration as it was read.
pub(crate) struct Registered {
    /// The host it shows.
    pub(crate) host: RegisteredHost,
    /// A moment before the read.
    pub(crate) read: Moment,
}

impl LockClient {
    /// Starts a client's task.
    pub(crate) fn start(setup: ClientSetup) -> Self {
        let ClientSetup {
            store,
            clock,
            entropy,
            registered,
            read_only,
            host_name,
            prefix,
            acquire_timeout,
            ttl,
            local_handoff,
            keep_idle,
            join,
            max_ttl,
            max_clock_skew,
            lock_table,
        } = setup;
        let (calls, receiver) = mpsc::unbounded_channel();
        let (check_sender, checks) = mpsc::unbounded_channel();
        let ended = CancellationToken::new();
        let number = registered.as_ref().map_or(REGISTRAR, |it| it.host.number);
        let client = entropy.client().as_u128();
        let joined = join.map(|join| join(client));
        let parts = |NetworkEnd { network, received }| (network, received);
        let (network, received) = joined.map(parts).unzip();
        let counted = Arc::new(Counted::new(store.rows));
        let shared = Arc::new(ClientContext {
            store: Store { rows: Arc::clone(&counted) as Arc<dyn LockRows>, ..store },
            wall_clock_bound: WallClockBound::new(&*clock),
            clock,
            stamps: Stamps::default(),
            id: ContenderId { host: number, client, slot: 0 },
            prefix: Arc::from(prefix),
            owner: Owner::this_process(&host_name),
            entropy,
            acquire_timeout,
            local_handoff,
            keep_idle,
            idle_looks: IdleLooks::new(),
            longest_terms: LeaseTerms::new(max_ttl, max_clock_skew),
            network,
            checks: check_sender,
            tally: Arc::default(),
            process: Process::current(),
        });
        let registration =
            registered.map(|it| Registration::new(host_name.clone(), it.host, it.read, &shared));
        let health = lock_table.map(|lock_table| {
            HealthMonitor::new(Baseline { max_clock_skew, lock_table }, ttl, shared.clock.elapsed())
        });
        let drop_guard = ended.clone().drop_guard();
        let channels = Channels { calls: receiver, received, checks };
        let task = ClientTask::new(Arc::clone(&shared), channels, registration, health, drop_guard);
        let (objects, runtime) = (Arc::clone(task.objects()), Handle::current());
        runtime.spawn(task.run());
        LockClient {
            inner: Arc::new(Inner {
                calls,
                objects,
                runtime,
                ended,
                read_only,
                counted,
                shared,
                ttl,
                max_ttl,
                max_clock_skew,
                callers: AtomicU64::new(0),
            }),
        }
    }
}
