//! Clients whose connections to the servers are bad, each in a way of its own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::clients::line::work;
use super::scene::{self, MAX_TTL, Scene};
use support::environment::{chance, repeats};
use support::history::overlap;
use support::pace;
use support::relay::{Relay, Traffic};

const CLIENTS: usize = 4;

/// What may happen to a connection, other than that all passes.
const BAD: [Traffic; 5] =
    [Traffic::Late, Traffic::Breaks, Traffic::Stalls, Traffic::AnswersStall, Traffic::Cut];

/// For how long connections are as they are. What stalls for the longest time is not applied any
/// more when it arrives.
const SPELLS: [Duration; 4] = [
    Duration::from_millis(300),
    Duration::from_secs(1),
    Duration::from_secs(3),
    Duration::from_secs(12),
];

// Goal: whatever happens to the bytes between clients and servers, no two hold at the same time by
// their guards; once all passes again each client is served, and no row is left.
// Method: clients behind relays of their own, one to each server, lock all the time. Each relay is
// good half of the time.
#[tokio::test]
#[ignore = "takes long; scripts/nightly runs it"]
async fn no_two_hold_on_bad_connections() {
    lock_on_bad_connections(repeats(40)).await;
}

// Goal: the same for a short time.
#[tokio::test]
async fn no_two_hold_on_bad_connections_for_a_while() {
    lock_on_bad_connections(4).await;
}

async fn lock_on_bad_connections(spells: usize) {
    let scene = Scene::new().await;
    let mut chance = chance();
    let ttl = pace::scaled(Duration::from_secs(8)).min(MAX_TTL);
    let (mut relays, mut working) = (Vec::new(), JoinSet::new());
    let is_over = Arc::new(AtomicBool::new(false));
    for _ in 0..CLIENTS {
        let mut urls = Vec::new();
        for server in 0..scene.servers.count() {
            let relay = Relay::to(scene.servers.address(server), chance.random()).await;
            urls.push(format!("redis://{}", relay.address()));
            relays.push(relay);
        }
        let masters = scene::connect(&urls).await;
        let client = scene::built(scene::builder(&masters).ttl(ttl)).await;
        let chance = StdRng::from_rng(&mut chance);
        working.spawn(work(client, "name".to_owned(), Arc::clone(&is_over), chance));
    }
    let mut times = BTreeMap::<_, usize>::new();
    for spell in 0..spells {
        for relay in &relays {
            let bad = BAD.choose(&mut chance).filter(|_| chance.random());
            let traffic = bad.copied().unwrap_or(Traffic::Passes);
            relay.set(traffic);
            *times.entry(traffic).or_default() += 1;
        }
        // Each of them first, then any.
        let any = SPELLS.choose(&mut chance).expect("there are some");
        sleep(*SPELLS.get(spell).unwrap_or(any)).await;
    }
    relays.iter().for_each(|relay| relay.set(Traffic::Passes));
    is_over.store(true, Ordering::Relaxed);
    let (mut moments, mut lost) = (Vec::new(), 0);
    let worked = pace::within_limit("a lock for each client", working.join_all()).await;
    for (held, losses) in worked {
        moments.extend(held);
        lost += losses;
    }
    println!("{} grants, {lost} lost or not given back, on connections {times:?}", moments.len());
    assert_eq!(overlap(&moments), None, "two held the lock");
    assert!(moments.len() > CLIENTS, "there were no grants meanwhile");
    let client = scene.client().await;
    let none_is_in_use = async || {
        let mut locks = client.locks();
        locks.try_next().await.expect("the servers answer").is_none()
    };
    pace::until("the end of all rows", none_is_in_use).await;
}
