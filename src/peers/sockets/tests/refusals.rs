//! Connections that a keeper ends.

use std::io::Write;

use tokio::net::TcpStream;

use super::*;
use crate::peers::wire::{Channel, ClientName, ToGuest, ToKeeper};

// Goal: a guest for which there is no place is sent away and skips this keeper for a while; those
// that are there stay. It is let in when one has left.
// Method: three guests of a keeper that has places for two.
#[tokio::test]
async fn one_guest_too_many_is_sent_away() {
    const OTHER: u128 = 3;
    const LATE: u128 = 4;
    let (_still, store) = (still_time(), FaultyStore::new());
    let mut keeper = Party::keeper(&store, KEEPER, socket().await).await;
    let [guest, other, late] = [GUEST, OTHER, LATE].map(|client| Party::guest(&store, client));
    for party in [&guest, &other] {
        assert!(party.reaches(KEEPER).await);
        party.is_heard_by(&mut keeper, 1).await;
    }
    // The handshake succeeds; then the connection ends.
    late.reaches(KEEPER).await;
    until("an end", async || !late.sockets.is_connected(KEEPER)).await;
    late.is_not_heard_by(&mut keeper, 1).await;
    assert!(!late.reaches(KEEPER).await);
    guest.is_heard_by(&mut keeper, 2).await;

    drop(other);
    until("an end", async || keeper.sockets.owner(OTHER).is_none()).await;
    later(s(10)).await;
    assert!(late.reaches(KEEPER).await);
    late.is_heard_by(&mut keeper, 2).await;
}

// Goal: a guest that sends a frame of more than a KiB is disconnected, and no other one.
// Method: write the length of one into a connection behind the back of its encryption.
#[tokio::test]
async fn guest_with_too_long_a_frame_is_disconnected() {
    let (_still, store) = (still_time(), FaultyStore::new());
    let mut keeper = Party::keeper(&store, KEEPER, socket().await).await;
    let guest = Party::guest(&store, GUEST);
    assert!(guest.reaches(KEEPER).await);

    let row = keeper.row().await.expect("it is published");
    let stream = TcpStream::connect(&row.addresses[0]).await.expect("it listens");
    let stream = stream.into_std().expect("it is a socket");
    let mut behind = stream.try_clone().expect("it is a socket");
    let stream = TcpStream::from_std(stream).expect("it does not block");
    let (name, own) = (ClientName::new(Uuid::from_u128(9), "long"), keys());
    publish(&store, 9, &[], own.public()).await;
    let known = (Uuid::from_u128(KEEPER), &PublicKey::from_bytes(row.key));
    let channel: Channel<_, ToGuest, ToKeeper> =
        Channel::connect(stream, &own, known, name).await.expect("it knows the keeper");
    until("a guest", async || keeper.sockets.owner(9).is_some()).await;
    let frame = [&1_023_u16.to_be_bytes(), [0; 1_023].as_slice()].concat();
    behind.write_all(&frame).expect("there is room");
    until("an end", async || keeper.sockets.owner(9).is_none()).await;
    drop(channel);
    guest.is_heard_by(&mut keeper, 1).await;
}
