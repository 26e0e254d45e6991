//! A lock table on independent Redis or Valkey servers, of which a majority decides.
//!
//! The servers know nothing of each other. A write is sent to all, and acknowledged once a majority
//! has applied it; a read merges what a majority shows. Any two majorities have a server in common,
//! so a read that begins after a write was acknowledged shows it or a newer one, which is all that
//! the protocol needs.
//!
//! What only a minority has, because a write failed or its client died, is seen by some reads and
//! not by others. The protocol expects that of a write that was not acknowledged: nothing was
//! granted on it.

mod attendance;
mod cells;
mod codec;
mod error;
mod facts;
mod keys;
mod link;
mod listing;
mod membership;
mod probe;
mod quorum;
mod record;
mod reply;
mod scripts;
mod setup;
mod tables;

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use redis::{Client, ConnectionAddr, IntoConnectionInfo};
use tokio::net::lookup_host;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tracing::{debug, warn};
use uuid::Uuid;

use self::attendance::{Attendance, MemberState, Members, Restore, Sight};
use self::cells::{Copy, Merged};
pub(crate) use self::error::MastersTrouble;
use self::keys::Keys;
use self::link::{CallError, Link, LinkState, TRY_TIMEOUT};
use self::listing::Listing;
use self::quorum::{NoQuorum, quorum};
pub(crate) use self::record::MastersSettings;
use self::reply::Reply;
use self::scripts::Script;
pub(crate) use self::setup::{Initialised, MasterStatus, Wanted};
use super::{DatabaseError, Identifier, Outcome};

/// How many masters there may be.
const COUNTS: [usize; 5] = [1, 3, 5, 7, 9];

/// How long the name of a server may take to be found.
const RESOLVING_MAX: Duration = Duration::from_secs(1);

/// How long the first connections are waited for, if some are slow.
const FIRST_CONNECTIONS: Duration = Duration::from_secs(3);

/// The shortest pause between two looks at masters.
const LOOK_PAUSE_MIN: Duration = Duration::from_millis(20);

/// The pause between two looks at masters while one takes no part, and its random part.
const LOOK_PAUSE: Duration = Duration::from_millis(500);
const LOOK_JITTER: Duration = Duration::from_millis(300);

/// Why a server that lost its data refuses requests.
const WAITS: &str = "it lost its data, and takes part once all locks from before are over";

/// The pause between two looks at masters that all take part.
const IDLE_PAUSE: Duration = Duration::from_secs(30);

/// Independent Redis or Valkey servers that keep lock tables together: a majority decides.
///
/// Each is a master of its own, without replicas, cluster mode and eviction. Locks work while a
/// majority of them answers. Clones share the connections: one to each server, opened again in the
/// background when it fails.
///
/// # Example
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use bakery_lock::{LockClient, Masters};
///
/// let masters = Masters::connect(["redis://r1", "redis://r2", "redis://r3"]).await?;
/// let client = LockClient::builder_on_masters(&masters).build().await?;
/// let guard = client.lock("users::snap").await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Masters {
    shared: Arc<Shared>,
}

struct Shared {
    links: Arc<[Link]>,
    allow_replicas: bool,
    /// The addresses of servers whose names were found.
    resolved: Vec<SocketAddr>,
    /// Keeps the connections open; they end with this.
    tasks: Mutex<JoinSet<()>>,
}

impl Masters {
    /// Connects to servers.
    pub(crate) async fn connected<A: Into<String>>(
        addresses: impl IntoIterator<Item = A>,
        allow_replicas: bool,
    ) -> Result<Self, MastersTrouble> {
        let mut links = Vec::new();
        for (number, address) in (1..).zip(addresses) {
            let client = client(&address.into());
            let client = client.map_err(|reason| MastersTrouble::Address { number, reason })?;
            links.push(Link::new(client));
        }
        if !COUNTS.contains(&links.len()) {
            return Err(MastersTrouble::Count { given: links.len() });
        }
        let links: Arc<[Link]> = links.into();
        let mut tasks = JoinSet::new();
        let mut changes: Vec<_> = links.iter().map(Link::changes).collect();
        for index in 0..links.len() {
            let links = Arc::clone(&links);
            tasks.spawn(async move { links[index].keep().await });
        }
        let first = async {
            for change in &mut changes {
                // The sender is in `links`.
                let _ = change.wait_for(|state| !matches!(state, LinkState::Opening)).await;
            }
        };
        // Those that are slow may answer later.
        let _ = timeout(FIRST_CONNECTIONS, first).await;
        let mut resolved = Vec::new();
        for link in &*links {
            let found = timeout(RESOLVING_MAX, lookup_host(&link.address)).await;
            resolved.extend(found.ok().and_then(Result::ok).and_then(|mut found| found.next()));
        }
        let shared = Shared { links, allow_replicas, resolved, tasks: Mutex::new(tasks) };
        Ok(Masters { shared: Arc::new(shared) })
    }

    /// Closes the connections. Clients on these masters lose their locks at the end of the leases,
    /// so shut them down first.
    pub fn close(&self) {
        self.shared.tasks.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
        for link in &*self.shared.links {
            link.end();
        }
    }

    /// Where the servers are, without passwords.
    pub fn addresses(&self) -> impl Iterator<Item = &str> {
        self.shared.links.iter().map(|link| link.address.as_str())
    }

    /// The same as socket addresses, as far as the names of the servers were found.
    pub(crate) fn socket_addresses(&self) -> &[SocketAddr] {
        &self.shared.resolved
    }

    /// Opens a lock table, and has its servers looked at while the store is used.
    pub(crate) async fn open(&self, lock_table: &str) -> Result<Arc<MastersStore>, MastersTrouble> {
        let store = self.open_once(lock_table).await?;
        let attendant = Attendant { store: Arc::downgrade(&store), masters: self.clone() };
        let doubted = Arc::clone(&store.doubted);
        let mut tasks = store.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.spawn(attendant.run(doubted));
        drop(tasks);
        Ok(store)
    }

    /// Opens a lock table as its servers are now.
    pub(crate) async fn open_once(
        &self,
        lock_table: &str,
    ) -> Result<Arc<MastersStore>, MastersTrouble> {
        let keys = Keys::new(Identifier::table(lock_table)?);
        let attendance = self.attendance(&keys);
        let sights = attendance.look().await;
        let plan = match attendance.judged(&sights, &vec![None; sights.len()]) {
            Err(MastersTrouble::NoRecord { .. }) if !self.has_answers(&sights) => {
                return Err(self.unfit(&sights));
            }
            plan => plan?,
        };
        let members = attendance.carry_out(plan, &sights, Restore::Never).await?;
        Ok(Arc::new(MastersStore {
            masters: self.clone(),
            id: members.cluster,
            keys,
            members: RwLock::new(Arc::new(members)),
            doubted: Arc::default(),
            listing: Mutex::default(),
            tasks: Mutex::default(),
        }))
    }

    fn attendance<'a>(&'a self, keys: &'a Keys) -> Attendance<'a> {
        let Shared { links, allow_replicas, .. } = &*self.shared;
        Attendance { links, keys, allow_replicas: *allow_replicas }
    }
}

impl fmt::Debug for Masters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Masters").field(&self.addresses().collect::<Vec<_>>()).finish()
    }
}

/// A client of one server. What is wrong with an address is said without its password.
fn client(address: &str) -> Result<Client, String> {
    let info = address.into_connection_info().map_err(|_| "it is no URL".to_owned())?;
    if !matches!(info.addr(), ConnectionAddr::Tcp(..)) {
        return Err("only TCP without TLS is supported".to_owned());
    }
    Client::open(info).map_err(|error| error.to_string())
}

/// A lock table on masters, with its registry and its peers.
pub(crate) struct MastersStore {
    masters: Masters,
    id: Uuid,
    keys: Keys,
    members: RwLock<Arc<Members>>,
    /// Has the members looked at.
    doubted: Arc<Notify>,
    /// The names of all objects, as they were last listed.
    listing: Mutex<Option<Arc<Listing>>>,
    tasks: Mutex<JoinSet<()>>,
}

impl fmt::Debug for MastersStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MastersStore").field("keys", &self.keys).finish_non_exhaustive()
    }
}

/// The arguments of a script that follow the view.
enum Arguments {
    /// Those of a read.
    Read(Vec<Vec<u8>>),
    /// Those of a change, before which come its limit and for how many ms dead cells are kept.
    Change { keep: Duration, rest: Vec<Vec<u8>> },
}

impl MastersStore {
    /// The settings of the lock table.
    pub(crate) fn settings(&self) -> MastersSettings {
        self.members().settings
    }

    /// Identifies the lock table.
    pub(crate) fn id(&self) -> Uuid {
        self.id
    }

    fn members(&self) -> Arc<Members> {
        Arc::clone(&self.members.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Runs a script on all members, and returns what the first majority answered.
    async fn ask_all(
        &self,
        script: Script,
        keys: &[String],
        arguments: &Arguments,
    ) -> Result<Vec<Reply>, NoQuorum> {
        let members = self.members();
        let calls =
            members.states.iter().zip(&*self.masters.shared.links).map(|(state, link)| {
                (link.address.as_str(), self.ask(state, script, keys, arguments))
            });
        quorum(calls).await
    }

    async fn ask(
        &self,
        state: &MemberState,
        script: Script,
        keys: &[String],
        arguments: &Arguments,
    ) -> Result<Reply, CallError> {
        let (connection, gate) = match state {
            MemberState::Member { connection, gate, .. } => (connection, gate),
            MemberState::Out(why) => return Err(CallError::refused(why.as_str())),
        };
        let mut all = vec![gate.clone().into_bytes()];
        match arguments {
            Arguments::Read(rest) => all.extend(rest.iter().cloned()),
            Arguments::Change { keep, rest } => {
                all.push(connection.late_after().to_string().into_bytes());
                all.push(keep.as_millis().to_string().into_bytes());
                all.extend(rest.iter().cloned());
            }
        }
        let reply = connection.run(script, keys, &all).await.inspect_err(|_| {
            self.doubted.notify_one();
        })?;
        let why = match reply.status.as_str() {
            "ok" => return Ok(reply),
            "waits" => WAITS,
            "late" => "the request arrived too late, or its clock was set",
            _ => {
                // It has other data than it had, or others have made a new view.
                self.doubted.notify_one();
                "it goes by another view of the masters"
            }
        };
        Err(CallError::refused(why))
    }

    /// Reads hashes: some fields of one, or all of several.
    async fn read_hashes(
        &self,
        keys: Vec<String>,
        fields: &[String],
    ) -> Result<Vec<Merged>, DatabaseError> {
        let fields = fields.iter().map(|field| field.clone().into_bytes()).collect();
        let hashes = keys.len();
        let keys: Vec<_> = [self.keys.record.clone()].into_iter().chain(keys).collect();
        let replies = self.ask_all(Script::Read, &keys, &Arguments::Read(fields)).await;
        let mut replies = replies.map_err(NoQuorum::of_read)?;
        (0..hashes).map(|index| merged(&mut replies, index)).collect()
    }

    /// Changes one hash and reads it, each server both as a unit, in one round trip.
    async fn change_and_read(
        &self,
        key: String,
        keep: Duration,
        cells: Vec<Vec<u8>>,
        fields: Vec<String>,
    ) -> Result<Merged, DatabaseError> {
        let keys = [self.keys.record.clone(), key];
        let count = fields.len().to_string();
        let rest = [count].into_iter().chain(fields).map(String::into_bytes).chain(cells).collect();
        let replies =
            self.ask_all(Script::Exchange, &keys, &Arguments::Change { keep, rest }).await;
        let mut replies = replies.map_err(NoQuorum::of_write)?;
        merged(&mut replies, 0).map_err(DatabaseError::after_write)
    }

    /// Reads one hash as one server has it, another one for another name.
    async fn read_one(&self, name: &str, key: String) -> Result<Merged, DatabaseError> {
        let members = self.members();
        let first = name.bytes().fold(0_usize, |sum, byte| sum.wrapping_add(byte.into()));
        let order = (0..members.states.len()).map(|at| (first + at) % members.states.len());
        let mut states = order.map(|at| &members.states[at]);
        let here = states.find(|state| match state {
            MemberState::Member { connection, usable_from, .. } => {
                connection.now_millis() >= *usable_from
            }
            MemberState::Out(_) => false,
        });
        let state = here.unwrap_or(&members.states[0]);
        let keys = [self.keys.record.clone(), key];
        let arguments = Arguments::Read(Vec::new());
        let asked = self.ask(state, Script::Read, &keys, &arguments);
        let asked = timeout(TRY_TIMEOUT, asked).await;
        let asked = asked.unwrap_or_else(|_| Err(CallError::refused("it is silent")));
        let mut reply =
            asked.map_err(|error| DatabaseError::new(Outcome::NotApplied, error.why))?;
        let fields = reply.hashes.pop().unwrap_or_default();
        Merged::of(&[Copy { now_millis: reply.now_micros / 1000, fields }])
    }

    /// Reads one hash.
    async fn read_hash(&self, key: String, fields: &[String]) -> Result<Merged, DatabaseError> {
        let mut merged = self.read_hashes(vec![key], fields).await?;
        Ok(merged.pop().unwrap_or_default())
    }

    /// Changes one hash.
    async fn change(
        &self,
        script: Script,
        key: String,
        keep: Duration,
        rest: Vec<Vec<u8>>,
    ) -> Result<(), DatabaseError> {
        let keys = [self.keys.record.clone(), key];
        let changed = self.ask_all(script, &keys, &Arguments::Change { keep, rest }).await;
        changed.map(drop).map_err(NoQuorum::of_write)
    }
}

/// What a majority shows of the hash at this place in its answers.
fn merged(replies: &mut [Reply], place: usize) -> Result<Merged, DatabaseError> {
    let copies = replies.iter_mut().filter_map(|reply| {
        let fields = std::mem::take(reply.hashes.get_mut(place)?);
        Some(Copy { now_millis: reply.now_micros / 1000, fields })
    });
    Merged::of(&copies.collect::<Vec<_>>())
}

/// Looks at the servers of a lock table when one of them may have changed, for as long as there is
/// a store that uses them.
struct Attendant {
    store: std::sync::Weak<MastersStore>,
    masters: Masters,
}

impl Attendant {
    async fn run(self, doubted: Arc<Notify>) {
        let mut changes: Vec<_> = self.masters.shared.links.iter().map(Link::changes).collect();
        let mut known = vec![None; changes.len()];
        // Clients see a loss at the same time. One of them mends it, the others find it mended.
        let mut seen_lost = None;
        loop {
            let Some(store) = self.store.upgrade() else { return };
            let pause = store.attend(&mut known, &mut seen_lost).await;
            drop(store);
            // Each request that fails asks for a look.
            sleep(LOOK_PAUSE_MIN).await;
            let jitter = LOOK_JITTER.mul_f64(rand::random());
            let (changed, wait) = (any_change(&mut changes), pause + jitter);
            tokio::select! {
                () = sleep(wait) => {}
                () = changed => {}
                () = doubted.notified() => {}
            }
        }
    }
}

/// Waits until the state of any server changes.
async fn any_change(changes: &mut [tokio::sync::watch::Receiver<LinkState>]) {
    let mut waits: Vec<_> = changes.iter_mut().map(|change| Box::pin(change.changed())).collect();
    std::future::poll_fn(|cx| {
        let mut is_changed = false;
        for wait in &mut waits {
            is_changed |= wait.as_mut().poll(cx).is_ready();
        }
        if is_changed { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}

impl MastersStore {
    /// Looks at the servers, and has those that lost data restored if they were seen so before.
    /// Returns when to look again.
    async fn attend(
        &self,
        known: &mut [Option<usize>],
        seen_lost: &mut Option<(String, std::collections::BTreeSet<usize>)>,
    ) -> Duration {
        let attendance = self.masters.attendance(&self.keys);
        let sights = attendance.look().await;
        let plan = match attendance.judged(&sights, known) {
            Ok(plan) if plan.cluster == self.id => plan,
            Ok(plan) => {
                self.leave(&sights, plan.cluster, "its lock table was made again");
                return LOOK_PAUSE;
            }
            Err(_) => {
                let why = "it has no record of the lock table; if no master has one, run \
                           `lock-hosts init`";
                self.leave(&sights, self.id, why);
                return LOOK_PAUSE;
            }
        };
        let lost = Some((plan.view.to_string(), plan.lost())).filter(|(_, lost)| !lost.is_empty());
        let restore = if lost == *seen_lost { Restore::WithMajority } else { Restore::Never };
        let is_first_look_at_lost = lost.is_some() && lost != *seen_lost;
        *seen_lost = lost;
        match attendance.carry_out(plan, &sights, restore).await {
            Ok(members) => {
                for (known, place) in known.iter_mut().zip(members.places()) {
                    *known = place.or(*known);
                }
                let are_all_here = members.places().iter().all(Option::is_some);
                self.enter(members);
                match (are_all_here, is_first_look_at_lost) {
                    (true, _) => IDLE_PAUSE,
                    (false, true) => Duration::ZERO,
                    (false, false) => LOOK_PAUSE,
                }
            }
            Err(error) => {
                debug!(?error, "masters have changed while they were looked at");
                Duration::ZERO
            }
        }
    }

    fn enter(&self, members: Members) {
        let before = std::mem::replace(
            &mut *self.members.write().unwrap_or_else(PoisonError::into_inner),
            Arc::new(members),
        );
        let now = self.members();
        let links = self.masters.addresses().zip(before.states.iter().zip(&now.states));
        for (address, states) in links {
            if let (MemberState::Member { .. }, MemberState::Out(why)) = states {
                warn!(address, why, "a master takes no part any more");
            }
        }
    }

    /// No server takes part: those that answer keep another lock table of that name, or none.
    fn leave(&self, sights: &[Sight], cluster: Uuid, why: &str) {
        let members = self.members();
        let state = |sight: &Sight| match sight {
            Sight::Out(why) => MemberState::Out(why.clone()),
            Sight::Here { .. } => MemberState::Out(why.to_owned()),
        };
        let states = sights.iter().map(state).collect();
        self.enter(Members { cluster, states, ..Members::clone(&members) });
    }
}
