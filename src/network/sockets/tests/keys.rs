//! Which keys open a connection.

use super::super::keepers::reach_at;
use super::super::publishing::{WRITE_EVERY, WRITES_PER_TTL};
use super::*;
use crate::network::wire::WireError;

/// What comes of a connection to the keeper with this key.
async fn with_key(guest: &Party, keeper: &Party, key: [u8; 32]) -> Result<(), WireError> {
    let row = keeper.row().await.expect("it is published");
    let client = Uuid::from_u128(keeper.client);
    let key = Key::from_bytes(key);
    let reached = reach_at(guest.shared(), client, &row.addresses[0], &key);
    within_limit("a connection", reached).await.map(drop)
}

fn is_refused(connected: &Result<(), WireError>) -> bool {
    matches!(connected, Err(WireError::Refused))
}

// Goal: a keeper has another key each hour. The one before opens connections for twenty minutes
// more, which is longer than two of the longest TTLs; older ones and others do not.
// Method: let the time pass in which the row is written again; connect with each key.
#[tokio::test]
async fn a_key_is_valid_for_a_while_after_its_rotation() {
    let (_still, store) = (still_time(), FaultyStore::new());
    let keeper = Party::keeper(&store, KEEPER, socket().await).await;
    let guest = Party::guest(&store, GUEST);
    let first = keeper.row().await.expect("it is published");
    assert!(is_refused(&with_key(&guest, &keeper, [7; 32]).await));

    let written = |stamp: i64| {
        let keeper = &keeper;
        async move || keeper.row().await.is_some_and(|row| row.stamp > stamp)
    };
    let mut row = first.clone();
    for _ in 0..WRITES_PER_TTL {
        assert_eq!(row.key, first.key);
        later(WRITE_EVERY).await;
        until("another write", written(row.stamp)).await;
        row = keeper.row().await.expect("it is published");
    }
    assert_ne!(row.key, first.key);
    assert_eq!(row.previous_key, Some(first.key));
    for key in [first.key, row.key] {
        with_key(&guest, &keeper, key).await.expect("it is valid");
    }

    later(WRITE_EVERY).await;
    until("another write", written(row.stamp)).await;
    assert!(is_refused(&with_key(&guest, &keeper, first.key).await));
    let last = keeper.row().await.expect("it is published");
    assert_eq!((last.key, last.previous_key), (row.key, None));
    with_key(&guest, &keeper, row.key).await.expect("it is valid");
}

// Goal: a connection stays when its key is not valid any more.
// Method: the same, with a guest that is connected.
#[tokio::test]
async fn a_connection_survives_the_rotation_of_its_key() {
    let (_still, store) = (still_time(), FaultyStore::new());
    let mut keeper = Party::keeper(&store, KEEPER, socket().await).await;
    let mut guest = Party::guest(&store, GUEST);
    assert!(guest.reaches(KEEPER).await);
    let first = keeper.row().await.expect("it is published").key;
    // A message in each half a minute keeps the connection from being idle.
    for request in 0..200 {
        later(s(30)).await;
        guest.is_heard_by(&mut keeper, request).await;
    }
    assert!(is_refused(&with_key(&guest, &keeper, first).await), "100 minutes have passed");
    assert!(matches!(guest.received.try_recv(), Ok(Received::Reconnected { keeper: KEEPER })));
    assert!(guest.received.try_recv().is_err(), "there was one connection");
}
