//! A caller that gives up on its way back from a keeper, with a guest behind it.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::network::TestNetwork;
use super::{OBJECT, caller, client, ms, s, store};
use crate::client::LockClient;
use crate::testing::Weather;

/// With this many ahead in the line of a keeper that shuts down, the way back takes a while.
const AHEAD: usize = 40;

/// Lets a client have its turn from another one, which it remembers for a second.
async fn serve(keeper: &LockClient, guest: &LockClient) {
    let held = keeper.lock(OBJECT).await.expect("the lock is free");
    let waiting = caller(guest);
    sleep(ms(40)).await;
    held.unlock().await.expect("the lock was held");
    let turn = waiting.await.expect("it does not panic");
    assert_eq!(turn.keeper().as_u128(), keeper.shared().id.client, "it is a guest there");
    turn.unlock().await.expect("the lock was held");
    sleep(ms(40)).await;
}

// Goal: a client acquires a place for a guest in its line although the caller that began the line
// has left, and the client itself never acquired one.
// Method: a caller asks a keeper that the client remembers, without the table; the keeper shuts
// down; a guest joins before the way back is over; then the caller gives up.
#[tokio::test(start_paused = true)]
async fn guest_is_served_after_caller_gave_up() {
    for seed in 0..20 {
        let (store, network) = (store(), TestNetwork::new(seed, Weather::CALM));
        let [first, middle, last] = [(); 3].map(|()| client(&store, &network));
        serve(&middle, &last).await;
        serve(&first, &middle).await;
        let held = first.lock(OBJECT).await.expect("the lock is free");
        let mut ahead = JoinSet::new();
        for _ in 0..AHEAD {
            ahead.spawn(first.request(OBJECT).acquire());
        }
        sleep(ms(1)).await;
        let rows = store.live_rows(OBJECT);
        let gives_up = caller(&middle);
        sleep(ms(20)).await;
        assert_eq!(store.live_rows(OBJECT), rows, "it asks without the table");
        let closing = tokio::spawn(async move { first.shutdown().await });
        // Until the keeper has sent it elsewhere.
        sleep(ms(10)).await;
        let guest = caller(&last);
        sleep(ms(10)).await;
        gives_up.abort();
        drop(held);
        let turn = timeout(s(10), guest).await.expect("it is served").expect("it does not panic");
        assert_eq!(turn.keeper().as_u128(), middle.shared().id.client, "it joined the line");
        turn.unlock().await.expect("the lock was held");
        closing.await.expect("it does not panic").expect("nothing is left");
        // After a bug, the object is not used until the rows of its task are over.
        let guard = timeout(s(2), middle.lock(OBJECT)).await.expect("its task has not failed");
        drop(guard.expect("the lock is free"));
        sleep(Duration::from_secs(1)).await;
    }
}
