//! Whom a keeper lets in: clients with the private key to the public one in their row.

use tokio::net::TcpStream;

use super::super::publishing::{CHECK_AGAIN, WRITE_EVERY};
use super::*;
use crate::peers::wire::{Channel, ClientName, ToGuest, ToKeeper};
use crate::testing::Fault;

const OTHER: u128 = 3;

/// Connects to a keeper with these keys and under this name, and expects that it closes the
/// connection without a word.
async fn is_sent_away(keeper: &Party, keys: &KeyPair, name: u128) {
    let row = keeper.row().await.expect("it is published");
    let stream = TcpStream::connect(&row.addresses[0]).await.expect("it listens");
    let known = (Uuid::from_u128(keeper.client), &PublicKey::from_bytes(row.key));
    let name = ClientName::new(Uuid::from_u128(name), "host pid 9");
    let channel: Channel<_, ToGuest, ToKeeper> =
        Channel::connect(stream, keys, known, name).await.expect("it knows the keeper's key");
    let (mut receiver, _sender) = channel.split();
    let ended = within_limit("an end", receiver.recv()).await;
    assert!(ended.is_err(), "{ended:?}");
}

// Goal: who can read the table but not write it is let in nowhere, whatever name it gives; a guest
// whose name it gives keeps its connection.
// Method: connect with keys that nobody has published, under names without a row, of a connected
// guest, and of a guest that is not connected.
#[tokio::test]
async fn client_is_known_by_the_key_in_its_row() {
    let (_still, store) = (still_time(), FaultyStore::new());
    let mut keeper = Party::keeper(&store, KEEPER, socket().await).await;
    let [guest, other] = [GUEST, OTHER].map(|client| Party::guest(&store, client));
    assert!(guest.reaches(KEEPER).await);
    guest.is_heard_by(&mut keeper, 1).await;
    assert!(other.shared().is_published().await);

    let strange = keys();
    for name in [9, GUEST, OTHER, KEEPER] {
        is_sent_away(&keeper, &strange, name).await;
    }
    assert!(keeper.sockets.owner(9).is_none());
    guest.is_heard_by(&mut keeper, 2).await;
    assert_eq!(guest.received.len(), 1, "it has one connection, and had no other");
}

// Goal: a client that can't publish its key asks no keeper, and tries again later.
// Method: refuse its write, once; then let the time pass after which it writes again.
#[tokio::test]
async fn client_without_a_row_asks_nobody() {
    let (_still, store) = (still_time(), FaultyStore::new());
    let keeper = Party::keeper(&store, KEEPER, socket().await).await;
    store.fail_next(1, Fault::Refused);
    let guest = Party::guest(&store, GUEST);
    assert!(!guest.reaches_later(KEEPER).await);
    assert!(keeper.sockets.owner(GUEST).is_none() && guest.row().await.is_none());
    later(WRITE_EVERY).await;
    until("a row", async || guest.row().await.is_some()).await;
    assert!(guest.reaches(KEEPER).await, "it was skipped for a second");
}

// Goal: a client keeps its key, and its row, for as long as it lives.
// Method: let four hours pass, in which the row is written every twenty minutes.
#[tokio::test]
async fn key_stays() {
    let (_still, store) = (still_time(), FaultyStore::new());
    let keeper = Party::keeper(&store, KEEPER, socket().await).await;
    let first = keeper.row().await.expect("it is published");
    let mut last = first.stamp;
    for _ in 0..12 {
        later(WRITE_EVERY).await;
        until("another write", async || keeper.row().await.is_some_and(|row| row.stamp > last))
            .await;
        let row = keeper.row().await.expect("it is published");
        assert_eq!((row.key, &row.addresses), (first.key, &first.addresses));
        last = row.stamp;
    }
}

// Goal: a client that can't connect to itself serves no guest until it can; it is a guest of others
// all the time.
// Method: advertise an address where another client listens at first, and it itself later.
#[tokio::test]
async fn client_tries_again_to_reach_itself() {
    let (_still, store) = (still_time(), FaultyStore::new());
    let front = socket().await;
    let advertised = address(&front);
    let mut other = Party::keeper(&store, OTHER, front).await;
    let hidden = socket().await;
    let at = address(&hidden);
    let hidden = listener(hidden, vec![advertised.to_string()]);
    let party = Party::new(&store, KEEPER, Some(hidden));
    until_later("a row", async || party.row().await.is_some()).await;
    assert!(party.row().await.is_some_and(|row| row.addresses.is_empty()));
    assert!(party.reaches(OTHER).await);
    party.is_heard_by(&mut other, 1).await;

    drop(other);
    let front = within_limit("the address", async {
        loop {
            match TcpListener::bind(advertised).await {
                Ok(socket) => return socket,
                Err(_) => pass(STEP).await,
            }
        }
    })
    .await;
    tokio::spawn(forward(front, at));
    later(CHECK_AGAIN).await;
    until_later("its address", async || {
        party.row().await.is_some_and(|row| row.addresses == [advertised.to_string()])
    })
    .await;
}

/// Passes connections on to another address.
async fn forward(front: TcpListener, to: SocketAddr) {
    while let Ok((mut inbound, _)) = front.accept().await {
        tokio::spawn(async move {
            let mut outbound = TcpStream::connect(to).await?;
            tokio::io::copy_bidirectional(&mut inbound, &mut outbound).await
        });
    }
}

// Goal: a client that has left the network has no row any more.
// Method: leave, as a shutdown does.
#[tokio::test]
async fn client_that_has_left_has_no_row() {
    let (_still, store) = (still_time(), FaultyStore::new());
    let keeper = Party::keeper(&store, KEEPER, socket().await).await;
    let guest = Party::guest(&store, GUEST);
    assert!(guest.reaches(KEEPER).await);
    assert_eq!(store.live_peers(), 2);
    for party in [&guest, &keeper] {
        within_limit("its end", party.sockets.leave()).await;
        assert!(party.row().await.is_none());
    }
    // One that never asked anybody has published nothing.
    let silent = Party::guest(&store, OTHER);
    within_limit("its end", silent.sockets.leave()).await;
    assert_eq!(store.live_peers(), 0);
}
