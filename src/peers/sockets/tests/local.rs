//! Connections between processes of one machine.

use tokio::net::UnixListener;

use super::*;
use crate::peers::sockets::socket::{connect_locally, listen_locally};

// Goal: clients of one machine need no network between them, and each knows the other.
// Method: connect to a client that has published no address, because it does not reach itself.
#[tokio::test]
async fn guest_of_same_machine_needs_no_network() {
    let (_still, store) = (still_time(), FaultyStore::new());
    let (socket, keys, dead) = (socket().await, keys(), address(&socket().await));
    let local = listen_locally(&keys.public()).expect("the name is free");
    let listener = Listener { local: Some(local), ..listener(socket, vec![dead.to_string()]) };
    let mut keeper = Party::with_keys(&store, KEEPER, keys, Some(listener));
    until("a row", async || keeper.row().await.is_some_and(|row| row.addresses.is_empty())).await;
    let guest = Party::guest(&store, GUEST);
    assert!(guest.reaches(KEEPER).await);
    guest.is_heard_by(&mut keeper, 1).await;
    assert!(keeper.sockets.owner(GUEST).is_some());
}

// Goal: a program that listens at the name of a keeper neither poses as it nor keeps guests away.
// Method: close all connections that come to the name; then leave them open and say nothing.
#[tokio::test]
async fn other_program_at_name_of_keeper_is_passed_over() {
    let _still = still_time();
    for stays_open in [false, true] {
        let store = FaultyStore::new();
        let mut keeper = Party::keeper(&store, KEEPER, socket().await).await;
        let key = keeper.shared().keys.public();
        let stranger: UnixListener = listen_locally(&key).expect("the name is free");
        assert!(listen_locally(&key).is_err(), "the name is taken");
        tokio::spawn(async move {
            let mut open = Vec::new();
            while let Ok((stream, _)) = stranger.accept().await {
                open.extend(stays_open.then_some(stream));
            }
        });
        let guest = Party::guest(&store, GUEST);
        assert!(guest.reaches_later(KEEPER).await);
        guest.is_heard_by(&mut keeper, 1).await;
    }
}

#[tokio::test]
async fn key_of_no_keeper_is_not_found() {
    let error = connect_locally(&keys().public()).await.err().expect("no one listens");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
}
