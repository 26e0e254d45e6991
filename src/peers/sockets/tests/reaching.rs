//! Which clients are reached, and which are skipped for how long.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::super::keepers::{ANSWER_MAX, SKIP_FIRST};
use super::super::reaching::{OF_NAME_MAX, RETRIES, reach_at_one_of};
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

/// How often a client is called that closes the connection.
const CALLS: usize = RETRIES as usize + 1;

/// An address at which nothing listens.
async fn dead() -> SocketAddr {
    address(&socket().await)
}

fn any_key() -> PublicKey {
    keys().public()
}

// Goal: a client that is not reached, although that is tried some times, is skipped for a second,
// then for twice as long each time, up to ten minutes; then it is tried again, and used once it is
// reached.
// Method: count connections at the address that a client has published; it listens there later.
#[tokio::test]
async fn unreachable_client_is_skipped_ever_longer() {
    let (_still, store) = (still_time(), FaultyStore::new());
    let stranger = Stranger::new().await;
    let guest = Party::guest(&store, GUEST);
    let mut calls = 0;
    for skipped in [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600] {
        // The row lives for an hour.
        publish(&store, KEEPER, &[stranger.address], any_key()).await;
        assert!(!guest.reaches_later(KEEPER).await);
        calls += CALLS;
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
    let key = keeper.shared().keys.public();
    publish(&store, KEEPER, &[dead().await, stranger.address, own], key).await;
    let guest = Party::guest(&store, GUEST);
    assert!(guest.reaches_later(KEEPER).await);
    guest.is_heard_by(&mut keeper, 1).await;
    assert_eq!(stranger.calls(), CALLS);
}

// Goal: a name whose first addresses don't work is reached at a later one, of the first few.
// Method: connect to a client at the last address that is tried, and at the one after that.
#[tokio::test]
async fn addresses_of_name_are_tried_in_turn() {
    let (_still, store) = (still_time(), FaultyStore::new());
    let socket = socket().await;
    let own = address(&socket);
    let keeper = Party::keeper(&store, KEEPER, socket).await;
    let guest = Party::guest(&store, GUEST);
    assert!(guest.shared().is_published().await);
    let key = keeper.shared().keys.public();
    let mut addresses = vec![dead().await; OF_NAME_MAX - 1];
    for is_reached in [true, false] {
        let tried = addresses.iter().copied().chain([own]);
        let reached = reach_at_one_of(guest.shared(), tried, (Uuid::from_u128(KEEPER), &key)).await;
        assert_eq!(reached.is_ok(), is_reached, "{addresses:?}, {own}");
        addresses.push(dead().await);
    }
}

// Goal: a client without a row, or whose row has expired, is not reached.
// Method: look before it listens, and an hour after it has published for the last time.
#[tokio::test]
async fn client_without_a_row_is_not_reached() {
    let (_still, store) = (still_time(), FaultyStore::new());
    let guest = Party::guest(&store, GUEST);
    assert!(!guest.reaches(KEEPER).await);

    let stranger = Stranger::new().await;
    publish(&store, KEEPER, &[stranger.address], any_key()).await;
    later(s(3_601)).await;
    assert!(!guest.reaches(KEEPER).await);
    assert_eq!(stranger.calls(), 0, "its row has expired");
}

// Goal: a client that is restarted at the same address is another one: it gets the messages to it,
// and none to the one before, whether that one deleted its row or not.
// Method: restart it after a shutdown; then look for the former one, whose row is written again as
// if it had crashed.
#[tokio::test]
async fn client_that_is_restarted_is_reached_again() {
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
    until("no row", async || super::row(&guest.shared().peers, KEEPER).await.is_none()).await;
    until("an end", async || !guest.sockets.is_connected(KEEPER)).await;
    let socket = bind(at).await;
    let mut restarted = Party::keeper(&store, RESTARTED, socket).await;
    publish(&store, KEEPER, &[at], PublicKey::from_bytes(row.key)).await;
    assert!(!guest.reaches_later(KEEPER).await, "it is another client now");
    assert!(guest.reaches(RESTARTED).await);
    guest.is_heard_by(&mut restarted, 2).await;
}

// Goal: a connection that carries nothing for a minute is closed, and made again when it is needed.
// Method: let a minute pass after a message.
#[tokio::test]
async fn idle_connection_is_closed() {
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

// Goal: a keeper that does not answer has a dead connection, which is replaced when it is needed.
// Method: ask for a turn, and let the time for an answer pass; a message that needs no answer
// leaves the connection as it is.
#[tokio::test]
async fn connection_without_answers_is_replaced() {
    let (_still, store) = (still_time(), FaultyStore::new());
    let mut keeper = Party::keeper(&store, KEEPER, socket().await).await;
    let guest = Party::guest(&store, GUEST);
    assert!(guest.reaches(KEEPER).await);
    guest.is_heard_by(&mut keeper, 1).await;
    later(ANSWER_MAX * 2).await;
    pass(A_WHILE).await;
    assert!(guest.sockets.is_connected(KEEPER), "nothing was asked");

    let request = Request::Ask { request: 2, ttl: s(60), is_try: false, least: Duration::ZERO };
    let asked = TimedRequest { sent: s(0), request };
    guest.sockets.ask(KEEPER, guest.sockets.key("a"), asked);
    let heard = async { while keeper.hears().await != (GUEST, asked) {} };
    within_limit("the question", heard).await;
    assert!(guest.sockets.is_connected(KEEPER), "there is time to answer");
    later(ANSWER_MAX).await;
    until_later("an end", async || !guest.sockets.is_connected(KEEPER)).await;
    // It has never answered anything.
    later(SKIP_FIRST).await;
    assert!(guest.reaches(KEEPER).await);
    guest.is_heard_by(&mut keeper, 3).await;
}

// Goal: all that need a connection at once share the one that is made.
// Method: connect ten times at once.
#[tokio::test]
async fn connection_in_the_making_is_shared() {
    let (_still, store) = (still_time(), FaultyStore::new());
    let _keeper = Party::keeper(&store, KEEPER, socket().await).await;
    let mut guest = Party::guest(&store, GUEST);
    let mut connecting = tokio::task::JoinSet::new();
    for _ in 0..10 {
        connecting.spawn(guest.sockets.connect(KEEPER));
    }
    let connected = within_limit("a connection", connecting.join_all()).await;
    assert_eq!(connected, [true; 10]);
    assert!(matches!(guest.received.try_recv(), Ok(Received::Reconnected { keeper: KEEPER })));
    assert!(guest.received.try_recv().is_err(), "there was one connection");
}
