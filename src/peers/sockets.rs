//! The network of real clients: connections from guests to keepers (design section 7, R9, R10).
//!
//! A client publishes its public key in the table `lock_peers`, and where it listens for guests. It
//! connects to keepers on demand, by a [`socket`], and lets in as guests only clients with the
//! private key to the public one that they have published. A lost connection loses messages,
//! nothing else: keeper and guest repeat what matters.
//!
//! # Where to look
//!
//! This file is the client's end. [`guests`] accepts connections of guests, [`handshakes`] limits
//! how many strangers are listened to, [`keepers`] makes connections to keepers, and
//! [`connection_writer`] writes to either. [`queue_requests`] asks keepers who is in line, and
//! [`publishing`] keeps the client's row fresh.

mod allowance;
mod connection_writer;
mod guests;
mod handshakes;
mod keepers;
mod publishing;
mod queue_requests;
mod reaching;
pub(super) mod socket;
#[cfg(test)]
mod tests;
#[cfg(target_os = "linux")]
mod unix_stream;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use self::guests::Guests;
use self::keepers::Keepers;
use self::publishing::Publishing;
use self::queue_requests::QueueRequests;
use self::socket::LocalListener;
use super::wire::{ClientName, KeyPair, LineView, ObjectHash, ToGuest, ToKeeper};
use super::{HolderQueueFuture, Inbox, KeeperId, Network, NetworkEnd, ObjectKey, Received};
use crate::admin::types::{HolderQueue, TurnUser};
use crate::clock::{Clock, Stamps};
use crate::core::turns::{GuestId, Response, TimedRequest};
use crate::owner::Owner;
use crate::store::PeerTable;

/// What a client needs to have peers.
pub(crate) struct Site {
    /// Where clients publish where they listen.
    pub(crate) peers: Arc<dyn PeerTable>,
    /// The client's clock, for stamps.
    pub(crate) clock: Arc<dyn Clock>,
    /// The keyspace and the lock table: the same name elsewhere is another object.
    pub(crate) keyspace: String,
    pub(crate) table: String,
    /// Host name and process id, for people.
    pub(crate) owner: Owner,
    /// Where guests connect; `None` for a client that keeps no place for others.
    pub(crate) listener: Option<Listener>,
}

/// Where guests connect.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) socket: TcpListener,
    /// For guests of this machine, where there is one.
    pub(crate) local: Option<LocalListener>,
    /// Where others reach it.
    pub(crate) advertised: Vec<String>,
    /// How many guests may be connected.
    pub(crate) guests_max: usize,
    /// How long a guest may have a turn, if that is limited.
    pub(crate) guest_hold_max: Option<Duration>,
}

/// A client's end of the network.
struct Sockets {
    shared: Arc<SocketState>,
}

/// What the tasks of a client's end share.
struct SocketState {
    client: Uuid,
    name: ClientName,
    peers: Arc<dyn PeerTable>,
    clock: Arc<dyn Clock>,
    stamps: Stamps,
    keyspace: String,
    table: String,
    keys: KeyPair,
    publishing: Publishing,
    guests: Guests,
    guest_hold_max: Option<Duration>,
    keepers: Keepers,
    queue_requests: QueueRequests,
    /// How many messages were sent.
    sent: Arc<AtomicU64>,
    inbox: Inbox,
    runtime: Handle,
    /// Cancelled when the client leaves the network, or its task has ended.
    ended: CancellationToken,
    /// The task that withdraws the client's row at the end.
    withdrawal: TaskTracker,
}

/// Joins the network as the client with this uuid. Called on the client's runtime.
pub(crate) fn join(client: u128, keys: KeyPair, site: Site) -> NetworkEnd {
    let (shared, received) = start(client, keys, site);
    NetworkEnd { network: Arc::new(Sockets { shared }), received }
}

/// Starts the tasks of a client's end.
fn start(client: u128, keys: KeyPair, site: Site) -> (Arc<SocketState>, mpsc::Receiver<Received>) {
    let (inbox, received) = Inbox::new();
    let client = Uuid::from_u128(client);
    let ended = CancellationToken::new();
    let Site { peers, clock, keyspace, table, owner, listener } = site;
    let shared = Arc::new(SocketState {
        client,
        name: ClientName::new(client, owner.as_str()),
        peers,
        clock,
        stamps: Stamps::default(),
        keyspace,
        table,
        keys,
        publishing: Publishing::default(),
        guests: Guests::new(listener.as_ref().map_or(0, |listener| listener.guests_max)),
        guest_hold_max: listener.as_ref().and_then(|listener| listener.guest_hold_max),
        keepers: Keepers::default(),
        queue_requests: QueueRequests::default(),
        sent: Arc::default(),
        inbox: inbox.clone(),
        runtime: Handle::current(),
        ended: ended.clone(),
        withdrawal: TaskTracker::new(),
    });
    let mut addresses = Vec::new();
    if let Some(Listener { socket, local, advertised, .. }) = listener {
        tokio::spawn(guests::accept(Arc::clone(&shared), socket));
        if let Some(local) = local {
            tokio::spawn(guests::accept(Arc::clone(&shared), local));
        }
        addresses = advertised;
    }
    shared.withdrawal.spawn(publishing::publish(Arc::clone(&shared), addresses));
    shared.withdrawal.close();
    tokio::spawn(async move {
        inbox.ended().await;
        ended.cancel();
    });
    (shared, received)
}

impl Network for Sockets {
    fn key(&self, object: &str) -> ObjectKey {
        ObjectHash::of(&self.shared.keyspace, &self.shared.table, object).into_bytes()
    }

    fn inbox(&self) -> &Inbox {
        &self.shared.inbox
    }

    fn connect(&self, keeper: KeeperId) -> Pin<Box<dyn Future<Output = bool> + Send>> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move { keepers::connect(&shared, keeper).await })
    }

    fn is_connected(&self, keeper: KeeperId) -> bool {
        self.shared.keepers.is_connected(keeper)
    }

    fn ask(&self, keeper: KeeperId, object: ObjectKey, request: TimedRequest) {
        let message = ToKeeper::Request { object: ObjectHash::from_bytes(object), request };
        if !self.shared.keepers.send(keeper, &message) {
            // Over the new connection everything unanswered is sent again.
            let shared = Arc::clone(&self.shared);
            self.shared.runtime.spawn(async move { keepers::connect(&shared, keeper).await });
        }
    }

    fn owner(&self, guest: GuestId) -> Option<String> {
        self.shared.guests.owner(guest)
    }

    fn answer(
        &self,
        guest: GuestId,
        object: ObjectKey,
        response: Response,
        user: Option<TurnUser>,
    ) {
        let (object, user) = (ObjectHash::from_bytes(object), user.map(ClientName::from));
        self.shared.guests.send(guest, &ToGuest::Response { object, response, user });
    }

    fn messages_sent(&self) -> u64 {
        self.shared.sent.load(Ordering::Relaxed)
    }

    fn who(&self, keeper: KeeperId, object: ObjectKey) -> HolderQueueFuture {
        let shared = Arc::clone(&self.shared);
        Box::pin(queue_requests::who(shared, keeper, ObjectHash::from_bytes(object)))
    }

    fn tell(&self, guest: GuestId, object: ObjectKey, line: Option<HolderQueue>) {
        let (object, line) = (ObjectHash::from_bytes(object), line.map(LineView::from));
        self.shared.guests.send(guest, &ToGuest::Is { object, line });
    }

    fn guest_hold_max(&self) -> Option<Duration> {
        self.shared.guest_hold_max
    }

    fn leave(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            shared.ended.cancel();
            shared.withdrawal.wait().await;
        })
    }
}

impl fmt::Debug for Sockets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sockets").field("client", &self.shared.client).finish_non_exhaustive()
    }
}

/// Locks only briefly, and nothing panics meanwhile.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
