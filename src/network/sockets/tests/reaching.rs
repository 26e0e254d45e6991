//! Which clients are reached, and which are skipped for how long.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

/// A program that is no client: it counts connections, and closes them.
struct Stranger {
    address: SocketAddr,
    calls: Arc<AtomicUsize>,
}

impl Stranger {
    async fn new() -> Self {
        let socket = socket().await;
        let (address, calls) = (address(&socket), Arc::<AtomicUsize>::default());
        let counted = Arc::clone(&calls);
        tokio::spawn(async move {
            while socket.accept().await.is_ok() {
                counted.fetch_add(1, Ordering::SeqCst);
            }
        });
        Stranger { address, calls }
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

/// An address at which nothing listens.
async fn dead() -> SocketAddr {
    address(&socket().await)
}

fn any_key() -> Key {
    Key::from_bytes([7; Key::BYTES])
}

// Goal: a client that is not reached is skipped for ten seconds, then for twice as long each time,
// up to ten minutes; then it is tried again, and used once it is reached.
// Method: count connections at the address that a client has published; it listens there later.
#[tokio::test]
async fn a_client_that_is_not_reached_is_skipped_for_longer_each_time() {
    let (_still, store) = (still_time(), FaultyStore::new());
    let stranger = Stranger::new().await;
    publish(&store, KEEPER, &[stranger.address], &any_key()).await;
    let guest = Party::guest(&store, GUEST);
    let mut calls = 0;
    for skipped in [10, 20, 40, 80, 160, 320, 600, 600] {
        // The row lives for an hour.
        publish(&store, KEEPER, &[stranger.address], &any_key()).await;
        assert!(!guest.reaches(KEEPER).await);
        calls += 1;
        until("a call", async || stranger.calls() == calls).await;
        later(s(skipped) - s(1)).await;
        assert!(!guest.reaches(KEEPER).await);
        assert_eq!(stranger.calls(), calls, "it was tried again before {skipped} seconds passed");
        later(s(1)).await;
    }
    let mut keeper = Party::keeper(&store, KEEPER, socket().await).await;
    assert!(guest.reaches(KEEPER).await);
    guest.is_heard_by(&mut keeper, 1).await;
}

// Goal: of several addresses the first one that works is used.
// Method: publish one where nothing listens, one of a stranger, and the client's own.
#[tokio::test]
async fn addresses_are_tried_in_turn() {
    let (_still, store) = (still_time(), FaultyStore::new());
    let socket = socket().await;
    let (own, stranger) = (address(&socket), Stranger::new().await);
    let mut keeper = Party::keeper(&store, KEEPER, socket).await;
    let key = Key::from_bytes(keeper.row().await.expect("it is published").key);
    publish(&store, KEEPER, &[dead().await, stranger.address, own], &key).await;
    let guest = Party::guest(&store, GUEST);
    assert!(guest.reaches(KEEPER).await);
    guest.is_heard_by(&mut keeper, 1).await;
    assert_eq!(stranger.calls(), 1);
}

// Goal: a client without a row, or whose row has expired, is not reached.
// Method: look before it listens, and an hour after it has published for the last time.
#[tokio::test]
async fn a_client_without_a_row_is_not_reached() {
    let (_still, store) = (still_time(), FaultyStore::new());
    let guest = Party::guest(&store, GUEST);
    assert!(!guest.reaches(KEEPER).await);

    let stranger = Stranger::new().await;
    publish(&store, KEEPER, &[stranger.address], &any_key()).await;
    later(s(3_601)).await;
    assert!(!guest.reaches(KEEPER).await);
    assert_eq!(stranger.calls(), 0, "its row has expired");
}

// Goal: a client that does not reach itself at its address publishes nothing and stops listening,
// but takes turns of others.
// Method: advertise an address where nothing listens, and one of another client.
#[tokio::test]
async fn a_client_that_does_not_reach_itself_is_a_guest_only() {
    let (_still, store) = (still_time(), FaultyStore::new());
    let other = socket().await;
    let others = address(&other);
    let mut keeper = Party::keeper(&store, KEEPER, other).await;
    for (client, advertised) in [(10, dead().await), (11, others)] {
        let socket = socket().await;
        let own = address(&socket);
        let advertised = vec![advertised.to_string()];
        let listener = Listener { socket, advertised, guests_max: 2 };
        let party = Party::new(&store, client, Some(listener));
        // A socket that is closed can be bound again.
        until("it is closed", async || TcpListener::bind(own).await.is_ok()).await;
        assert!(party.row().await.is_none());
        // The first request is lost, and makes the connection.
        party.asks(KEEPER, 1);
        until("a connection", async || party.sockets.is_connected(KEEPER)).await;
        party.is_heard_by(&mut keeper, 2).await;
    }
}

// Goal: a client that is restarted at the same address is another one: it gets the messages to it,
// and none to the one before, whether that one deleted its row or not.
// Method: restart it after a shutdown; then look for the former one, whose row is written again as
// if it had crashed.
#[tokio::test]
async fn a_client_that_is_restarted_is_reached_again() {
    const RESTARTED: u128 = 3;
    let (_still, store) = (still_time(), FaultyStore::new());
    let socket = socket().await;
    let at = address(&socket);
    let mut keeper = Party::keeper(&store, KEEPER, socket).await;
    let row = keeper.row().await.expect("it is published");
    let guest = Party::guest(&store, GUEST);
    assert!(guest.reaches(KEEPER).await);
    guest.is_heard_by(&mut keeper, 1).await;

    drop(keeper);
    until("no row", async || super::row(&guest.shared().store, KEEPER).await.is_none()).await;
    until("an end", async || !guest.sockets.is_connected(KEEPER)).await;
    let socket = bind(at).await;
    let mut restarted = Party::keeper(&store, RESTARTED, socket).await;
    publish(&store, KEEPER, &[at], &Key::from_bytes(row.key)).await;
    assert!(!guest.reaches(KEEPER).await, "it is another client now");
    assert!(guest.reaches(RESTARTED).await);
    guest.is_heard_by(&mut restarted, 2).await;
}

// Goal: a connection that carries nothing for a minute is closed, and made again when it is needed.
// Method: let a minute pass after a message.
#[tokio::test]
async fn an_idle_connection_is_closed() {
    let (_still, store) = (still_time(), FaultyStore::new());
    let mut keeper = Party::keeper(&store, KEEPER, socket().await).await;
    let guest = Party::guest(&store, GUEST);
    assert!(guest.reaches(KEEPER).await);
    later(s(30)).await;
    guest.is_heard_by(&mut keeper, 1).await;
    later(s(59)).await;
    pass(A_WHILE).await;
    assert!(guest.sockets.is_connected(KEEPER), "a message came 59 seconds ago");
    later(s(1)).await;
    until("an end", async || !guest.sockets.is_connected(KEEPER)).await;
    until("an end", async || keeper.sockets.owner(GUEST).is_none()).await;

    assert!(guest.reaches(KEEPER).await);
    guest.is_heard_by(&mut keeper, 2).await;
}
