//! Lines of one object at several keepers.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::task::JoinSet;
use tokio::time::sleep;

use super::network::TestNetwork;
use super::{OBJECT, Stage, client, ms, s, store};
use crate::client::LockClient;
use crate::testing::Weather;

/// Answers come soon enough for clients to wait for them.
const WEATHER: Weather = Weather { latency: 4, ..Weather::CALM };

const CLIENTS: usize = 8;

/// How often each client locks on average while there are two lines.
const TIMES: u64 = 400;

// Goal: two lines of one object become one, once their keepers can reach each other, though both
// are always busy.
// Method: half of the clients can't reach the other half, so each half has a line of its own.
// Then all can. In the end, turns cost no writes.
#[tokio::test(start_paused = true)]
async fn two_lines_become_one() {
    for seed in 0..5 {
        let (store, network) = (store(), TestNetwork::new(seed, WEATHER));
        let clients: Vec<_> = (0..CLIENTS).map(|_| client(&store, &network)).collect();
        let mut ids = Vec::new();
        for client in &clients {
            ids.push(id(client).await);
        }
        let (some, others) = ids.split_at(CLIENTS / 2);
        let apart = || some.iter().flat_map(|one| others.iter().map(|other| (*one, *other)));
        for (one, other) in apart() {
            network.cut_apart(one, other);
        }
        let stage = Arc::<Stage>::default();
        let mut working = JoinSet::new();
        for client in &clients {
            working.spawn(Arc::clone(&stage).work(client.clone(), 2 * TIMES, ms(1)));
        }
        while stage.grants.load(Ordering::SeqCst) < CLIENTS as u64 * TIMES {
            sleep(ms(10)).await;
        }
        let in_two_lines = writes(&clients);
        for (one, other) in apart() {
            network.join_again(one, other);
        }
        assert!(in_two_lines > 50, "seed {seed}: {in_two_lines} writes in two lines");
        sleep(s(1)).await;
        let before = writes(&clients);
        sleep(ms(500)).await;
        assert_eq!(writes(&clients), before, "seed {seed}: all stand in one line");
        let grants = stage.grants.load(Ordering::SeqCst);
        assert!(grants < 2 * CLIENTS as u64 * TIMES, "seed {seed}: the clients are no longer busy");
        working.join_all().await;
    }
}

/// The uuid of a client, as a number.
async fn id(client: &LockClient) -> u128 {
    let guard = client.lock(OBJECT).await.expect("the lock is free");
    let contenders = client.contenders(OBJECT).await.expect("the store answers");
    guard.unlock().await.expect("the lock was held");
    contenders[0].client.as_u128()
}

/// How often they wrote to the table.
fn writes(clients: &[LockClient]) -> u64 {
    clients.iter().map(|client| client.statistics().writes).sum()
}
