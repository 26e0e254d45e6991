//! Each kind of message in trouble.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::mishap::{Kind, Mishap, Trouble};
use super::network::TestNetwork;
use super::{OBJECT, Stage, client, ms, s, store};
use crate::client::LockClient;
use crate::testing::Weather;

const CLIENTS: u64 = 4;

/// Callers of each client.
const CALLERS: u64 = 2;

/// For how long messages of a kind are lost at most; longer than a first sublease.
const LOST_FOR: Duration = s(5);

/// As long as this, or less, until each has the lock once no message is in trouble.
const SERVED_MAX: Duration = s(70);

// Goal: no kind of message must arrive, or arrive once, or in time: no two are inside, tokens grow,
// all are served, and no row is left.
// Method: for each kind, lose the first ones, or all for a while, repeat each, or delay each,
// while clients take turns, give up and stay longer than guests may, and places are revoked.
#[tokio::test(start_paused = true)]
async fn each_kind_of_message_may_be_lost() {
    let lost = || Mishap::LostUntil(Instant::now() + LOST_FOR);
    befall(0, &[|| Mishap::FirstLost(1), || Mishap::FirstLost(5), lost]).await;
}

#[tokio::test(start_paused = true)]
async fn each_kind_of_message_may_be_repeated() {
    befall(3, &[|| Mishap::Repeated(ms(3)), || Mishap::Repeated(ms(400))]).await;
}

#[tokio::test(start_paused = true)]
async fn each_kind_of_message_may_be_late() {
    befall(5, &[|| Mishap::Late(ms(15)), || Mishap::Late(ms(700))]).await;
}

/// Lets each mishap befall each kind of message. `first` is the number of the first mishap, from
/// which the seeds are made.
async fn befall(first: u64, mishaps: &[fn() -> Mishap]) {
    let mut grants = 0;
    for kind in Kind::ALL {
        let mut times = 0;
        for (number, mishap) in (first..).zip(mishaps) {
            for seed in 0..4 {
                let trouble = Trouble::new(kind, mishap());
                let (befallen, granted) = run(trouble, number * 100 + seed).await;
                times += befallen;
                grants += granted;
            }
        }
        println!("{times} messages in trouble: {kind:?}");
        assert!(times > 0, "no message was {kind:?}");
    }
    println!("{grants} grants");
}

/// Lets clients take turns while messages are in trouble; how many messages were, and how often
/// the lock was granted.
async fn run(trouble: Trouble, seed: u64) -> (usize, u64) {
    let shown = format!("{trouble:?}, seed {seed}");
    let (store, network) = (store(), TestNetwork::new(seed, Weather::CALM));
    network.make(trouble);
    // Shorter than a long stay.
    network.limit_guests(s(2));
    let stage = Arc::<Stage>::default();
    let clients: Vec<_> = (0..CLIENTS).map(|_| client(&store, &network)).collect();
    let mut tasks = JoinSet::new();
    for (number, client) in (0..CLIENTS * CALLERS).zip(clients.iter().cycle()) {
        let rng = StdRng::seed_from_u64(seed * 100 + number);
        tasks.spawn(Arc::clone(&stage).wander(client.clone(), rng));
    }
    for _ in 0..3 {
        sleep(ms(700)).await;
        revoke(&clients[0]).await;
    }
    tasks.join_all().await;
    let times = network.calm_down();
    for client in &clients {
        let served = timeout(SERVED_MAX, Arc::clone(&stage).work(client.clone(), 3, ms(1))).await;
        served.unwrap_or_else(|_| panic!("{shown}: a client is not served"));
    }
    sleep(s(5)).await;
    assert_eq!(store.live_rows(OBJECT), 0, "{shown}");
    (times, stage.grants.load(Ordering::SeqCst))
}

/// Asks all that have a place to leave: its guest must, too.
async fn revoke(client: &LockClient) {
    for contender in client.contenders(OBJECT).await.expect("the store answers") {
        // It may have left by itself.
        let _ = client.revoke(OBJECT, &contender, "a test").await;
    }
}
