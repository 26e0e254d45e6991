//! A client in the table, together with many peers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::network::TestNetwork;
use super::{OBJECT, client, ms, s, start, store};
use crate::testing::Weather;

const PEERS: usize = 32;
const LOCKS: usize = 50;

// Goal: a client that takes no turns of others has its locks soon, although clients that do keep
// the object busy: each holder ahead overtakes it for 100 ms and a turn at most, and there are few
// holders ahead.
// Method: 32 clients with turns lock one object all the time; another one locks it now and then.
#[tokio::test(start_paused = true)]
async fn table_client_is_served_among_many_peers() {
    let (store, network) = (store(), TestNetwork::new(1, Weather::CALM));
    let is_over = Arc::new(AtomicBool::new(false));
    let mut busy = JoinSet::new();
    for _ in 0..PEERS {
        let (client, is_over) = (client(&store, &network), Arc::clone(&is_over));
        busy.spawn(async move {
            let mut grants = 0_u64;
            while !is_over.load(Ordering::SeqCst) {
                let guard = client.lock(OBJECT).await.expect("each is served");
                grants += 1;
                sleep(ms(1)).await;
                guard.unlock().await.expect("the lock was held");
            }
            grants
        });
    }
    // Until most of them stand in one line.
    sleep(s(3)).await;
    let outsider = start(&store, None);
    let mut longest = Duration::ZERO;
    for _ in 0..LOCKS {
        let asked = Instant::now();
        let guard = outsider.lock(OBJECT).await.expect("it is served");
        longest = longest.max(asked.elapsed());
        guard.unlock().await.expect("the lock was held");
        sleep(ms(100)).await;
    }
    is_over.store(true, Ordering::SeqCst);
    let grants: u64 = busy.join_all().await.into_iter().sum();
    println!("among {grants} turns a client waited for {longest:?} at most, {LOCKS} times");
    assert!(longest < s(1), "{longest:?}");
}
