//! Clients' ends over sockets: who is reached, who is skipped, and who is let in.
//!
//! Messages pass over real sockets, but tokio's time is paused, and passes only where a test says
//! [`later`]: however busy the machine is, no timeout of the library ends too early.

mod known;
mod lines;
#[cfg(target_os = "linux")]
mod local;
mod reaching;
mod refusals;
mod strangers;
mod writers;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use support::pace;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use uuid::Uuid;

use super::{Listener, Site, SocketState, Sockets, start};
use crate::core::turns::{Request, TimedRequest};
use crate::owner::Owner;
use crate::peers::wire::{KeyPair, PublicKey};
use crate::peers::{Message, Network, Received};
use crate::store::{Embedded, PeerRow, PeerTable};
use crate::testing::FaultyStore;
use crate::testing::clock::still_time;

const KEEPER: u128 = 1;
const GUEST: u128 = 2;

/// How often something is looked at that is waited for.
const STEP: Duration = Duration::from_millis(1);

/// Long enough for what must not happen to happen, on most machines.
const A_WHILE: Duration = Duration::from_millis(300);

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A client's end.
struct Party {
    client: u128,
    sockets: Sockets,
    received: mpsc::Receiver<Received>,
}

impl Party {
    fn new(store: &FaultyStore, client: u128, listener: Option<Listener>) -> Self {
        Party::with_keys(store, client, keys(), listener)
    }

    fn with_keys(
        store: &FaultyStore,
        client: u128,
        keys: KeyPair,
        listener: Option<Listener>,
    ) -> Self {
        let Embedded { store, clock, .. } = store.embedded();
        let owner = Owner::from(format!("host pid {client}"));
        let (keyspace, table) = ("app".to_owned(), "locks".to_owned());
        let site = Site { peers: store.peers, clock, keyspace, table, owner, listener };
        let (shared, received) = start(client, keys, site);
        Party { client, sockets: Sockets { shared }, received }
    }

    /// A client that keeps no place for others.
    fn guest(store: &FaultyStore, client: u128) -> Self {
        Party::new(store, client, None)
    }

    /// A client that listens at this address, and has published it.
    async fn keeper(store: &FaultyStore, client: u128, socket: TcpListener) -> Self {
        let advertised = vec![address(&socket).to_string()];
        let party = Party::new(store, client, Some(listener(socket, advertised)));
        let key = party.shared().keys.public();
        let has_published = |row: PeerRow| row.key == *key.as_bytes() && !row.addresses.is_empty();
        until("a row", async || party.row().await.is_some_and(has_published)).await;
        party
    }

    /// The row that it has published.
    async fn row(&self) -> Option<PeerRow> {
        row(&self.shared().peers, self.client).await
    }

    fn shared(&self) -> &Arc<SocketState> {
        &self.sockets.shared
    }

    async fn reaches(&self, keeper: u128) -> bool {
        within_limit("a connection", self.sockets.connect(keeper)).await
    }

    /// The same, while time passes, which a connection may have to wait for.
    async fn reaches_later(&self, keeper: u128) -> bool {
        tokio::select! {
            biased;
            connected = self.sockets.connect(keeper) => connected,
            () = until_later("an answer", async || false) => unreachable!("it never holds"),
        }
    }

    /// Withdraws a request, which needs no answer.
    fn asks(&self, keeper: u128, request: u64) -> TimedRequest {
        let asked = TimedRequest { sent: s(0), request: Request::Withdraw { request } };
        self.sockets.ask(keeper, self.sockets.key("a"), asked);
        asked
    }

    /// Asks, and waits until the other one gets it.
    async fn is_heard_by(&self, keeper: &mut Party, request: u64) {
        let asked = self.asks(keeper.client, request);
        let heard = async { while keeper.hears().await != (self.client, asked) {} };
        within_limit("a message", heard).await;
    }

    /// Asks, and expects that the other one does not get it.
    async fn is_not_heard_by(&self, keeper: &mut Party, request: u64) {
        let asked = self.asks(keeper.client, request);
        let heard = async { while keeper.hears().await != (self.client, asked) {} };
        tokio::select! {
            () = heard => panic!("it is heard"),
            () = pass(A_WHILE) => {}
        }
    }

    /// The next request that comes, and of whom.
    async fn hears(&mut self) -> (u128, TimedRequest) {
        loop {
            let received = self.received.recv().await.expect("its tasks run");
            if let Received::Message { object, message: Message::Request(guest, request) } =
                received
            {
                assert_eq!(object, self.sockets.key("a"));
                return (guest, request);
            }
        }
    }
}

async fn row(peers: &Arc<dyn PeerTable>, client: u128) -> Option<PeerRow> {
    peers.read_peer(Uuid::from_u128(client)).await.expect("the store answers")
}

/// Listens for two guests.
fn listener(socket: TcpListener, advertised: Vec<String>) -> Listener {
    Listener { socket, local: None, advertised, guests_max: 2, guest_hold_max: None }
}

async fn socket() -> TcpListener {
    bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await
}

async fn bind(address: SocketAddr) -> TcpListener {
    TcpListener::bind(address).await.expect("the address is free")
}

fn address(socket: &TcpListener) -> SocketAddr {
    socket.local_addr().expect("it is bound")
}

/// Publishes where a client listens, whether it does or not, in place of what it has published.
async fn publish(store: &FaultyStore, client: u128, addresses: &[SocketAddr], key: PublicKey) {
    later(Duration::ZERO).await;
    let Embedded { store, clock, .. } = store.embedded();
    let row = PeerRow {
        client: Uuid::from_u128(client),
        addresses: addresses.iter().map(ToString::to_string).collect(),
        key: *key.as_bytes(),
        version: 1,
        stamp: crate::clock::Stamps::default().draw(&*clock),
    };
    store.peers.write_peer(&row, 3_600).await.expect("the store answers");
}

fn keys() -> KeyPair {
    KeyPair::generate().expect("the system has randomness")
}

/// Lets this time pass at once, and a little more: timers go off at whole milliseconds.
async fn later(time: Duration) {
    tokio::time::advance(time + Duration::from_millis(1)).await;
}

/// Lets this time pass on the wall only.
async fn pass(time: Duration) {
    spawn_blocking(move || std::thread::sleep(time)).await.expect("it does not panic");
}

/// Waits until this holds; it hangs if that takes longer than the limit of all tests.
async fn until(what: &str, holds: impl AsyncFn() -> bool) {
    let began = std::time::Instant::now();
    while !holds().await {
        assert!(began.elapsed() < pace::limit(), "{what}: not within {:?}", pace::limit());
        pass(STEP).await;
    }
}

/// The same, while time passes faster than on the wall.
async fn until_later(what: &str, holds: impl AsyncFn() -> bool) {
    let passes = async || {
        let holds = holds().await;
        if !holds {
            later(STEP * 10).await;
        }
        holds
    };
    until(what, passes).await;
}

/// Waits for this; it hangs if that takes longer than the limit of all tests.
async fn within_limit<T>(what: &str, future: impl Future<Output = T>) -> T {
    before(future, until(what, async || false)).await
}

/// The same, while time passes faster than on the wall.
async fn within_limit_later<T>(what: &str, future: impl Future<Output = T>) -> T {
    before(future, until_later(what, async || false)).await
}

async fn before<T>(future: impl Future<Output = T>, limit: impl Future<Output = ()>) -> T {
    tokio::select! {
        biased;
        done = future => done,
        () = limit => unreachable!("it never ends"),
    }
}
