//! Clients' ends over TCP: who is reached, who is skipped, and who is let in.
//!
//! Time passes as it does on the wall, except where a test says [`later`].

mod keys;
mod lines;
mod outlets;
mod reaching;
mod refusals;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use super::{Listener, Shared, Site, Sockets, start};
use crate::network::wire::{Key, Keys};
use crate::network::{Message, Network, Received};
use crate::owner::Owner;
use crate::peers::{Request, TimedRequest};
use crate::store::{Embedded, PeerRow, Store};
use crate::testing::FaultyStore;

const KEEPER: u128 = 1;
const GUEST: u128 = 2;

/// Longer than anything takes here.
const SOON: Duration = Duration::from_secs(10);

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A client's end.
struct Party {
    client: u128,
    sockets: Sockets,
    received: mpsc::UnboundedReceiver<Received>,
}

impl Party {
    fn new(store: &FaultyStore, client: u128, listener: Option<Listener>) -> Self {
        let Embedded { store, clock, .. } = store.embedded();
        let owner = Owner::from(format!("host pid {client}"));
        let (keyspace, table) = ("app".to_owned(), "locks".to_owned());
        let site = Site { store, clock, keyspace, table, owner, listener };
        let key = Key::generate().expect("the system has randomness");
        let (shared, received) = start(client, key, site);
        Party { client, sockets: Sockets { shared }, received }
    }

    /// A client that keeps no place for others.
    fn guest(store: &FaultyStore, client: u128) -> Self {
        Party::new(store, client, None)
    }

    /// A client that listens at this address, and has published it.
    async fn keeper(store: &FaultyStore, client: u128, socket: TcpListener) -> Self {
        let advertised = vec![address(&socket).to_string()];
        let party = Party::new(store, client, Some(Listener { socket, advertised, guests_max: 2 }));
        let Keys { current, .. } = party.shared().keys();
        let has_published = |row: PeerRow| row.key == *current.as_bytes();
        until(async || party.row().await.is_some_and(has_published)).await;
        party
    }

    /// The row that it has published.
    async fn row(&self) -> Option<PeerRow> {
        row(&self.shared().store, self.client).await
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.sockets.shared
    }

    async fn reaches(&self, keeper: u128) -> bool {
        timeout(SOON, self.sockets.connect(keeper)).await.expect("it is tried or not")
    }

    /// Withdraws a request, which needs no answer. Returns whether the other one gets it.
    async fn is_heard_by(&self, keeper: &mut Party, request: u64) -> bool {
        let object = self.sockets.key("a");
        let asks = TimedRequest { sent: s(0), request: Request::Withdraw { request } };
        self.sockets.ask(keeper.client, object, asks);
        loop {
            match timeout(s(1), keeper.received.recv()).await {
                Ok(Some(Received::Message {
                    object: of,
                    message: Message::Request(guest, request),
                })) if (guest, of, request) == (self.client, object, asks) => return true,
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return false,
            }
        }
    }
}

async fn row(store: &Arc<dyn Store>, client: u128) -> Option<PeerRow> {
    store.read_peer(Uuid::from_u128(client)).await.expect("the store answers")
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

/// Publishes where a client listens, whether it does or not.
async fn publish(store: &FaultyStore, client: u128, addresses: &[SocketAddr], key: &Key) {
    let Embedded { store, clock, .. } = store.embedded();
    let row = PeerRow {
        client: Uuid::from_u128(client),
        addresses: addresses.iter().map(ToString::to_string).collect(),
        key: *key.as_bytes(),
        previous_key: None,
        version: 1,
        stamp: crate::clock::Stamps::default().draw(&*clock),
    };
    store.write_peer(&row, 3_600).await.expect("the store answers");
}

/// Waits until this holds.
async fn until(holds: impl AsyncFn() -> bool) {
    let waiting = async {
        while !holds().await {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(SOON, waiting).await.expect("it holds soon");
}

/// Lets this time pass at once.
async fn later(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}
