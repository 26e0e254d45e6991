//! Many at once. `QCassandraLock` broke when more than a hundred waited for one name.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use tokio::task::JoinSet;

use super::scene::{Scene, built};
use support::pace;

const CLIENTS: usize = 300;

// Goal: 300 clients wait for one name at once; all get it, once each, one at a time.
// Method: the first client holds until a read shows the tickets of the 299 others. Each holder
// counts the clients inside. What may not hang is the next ticket and the next turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes long; scripts/nightly runs it"]
async fn three_hundred_clients_get_one_lock() {
    let _alone = support::alone().await;
    let scene = Scene::new().await;
    let name = support::unique("crowd");
    let clients = clients(&scene).await;
    let first = clients[0].lock(&name).await.expect("the lock is free");
    let inside = Arc::new(AtomicUsize::new(1));
    let mut waiting = JoinSet::new();
    for client in clients.iter().skip(1) {
        let (client, name, inside) = (client.clone(), name.clone(), Arc::clone(&inside));
        waiting.spawn(async move {
            let guard = client.lock(&name).await.expect("each client gets the lock");
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two clients hold the lock");
            tokio::task::yield_now().await;
            assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1, "two clients hold the lock");
            guard.unlock().await.expect("the lock was held");
        });
    }
    let began = Instant::now();
    let mut tickets = 0;
    while tickets < CLIENTS - 1 {
        let before = tickets;
        let one_more = async || {
            tickets = count_tickets(&clients[0], &name).await;
            tickets > before
        };
        pace::until("the next ticket", one_more).await;
    }
    let drawn = began.elapsed();
    inside.store(0, Ordering::SeqCst);
    let released = Instant::now();
    first.unlock().await.expect("the lock was held");
    let mut served = 1;
    while let Some(outcome) = pace::within_limit("the next turn", waiting.join_next()).await {
        outcome.expect("the task does not panic");
        served += 1;
    }
    let elapsed = released.elapsed();
    assert_eq!(served, CLIENTS);
    scene.wait_until_deleted(&name).await;
    println!(
        "{CLIENTS} clients: all had drawn their tickets after {drawn:?}, and all were served \
         {elapsed:?} after the first one left, {:.0} a second",
        (CLIENTS - 1) as f64 / elapsed.as_secs_f64(),
    );
}

/// How many have drawn a ticket; none if the busy cluster does not answer.
async fn count_tickets(client: &bakery_lock::LockClient, name: &str) -> usize {
    let contenders = client.contenders(name).await.unwrap_or_default();
    contenders.iter().filter(|contender| contender.ticket.is_some()).count()
}

/// Builds the clients, a few at a time. The last one waits for the turns of all others.
async fn clients(scene: &Scene) -> Vec<bakery_lock::LockClient> {
    let others = u32::try_from(CLIENTS).expect("they are few");
    let turns = pace::limit() * others;
    let mut clients = Vec::new();
    while clients.len() < CLIENTS {
        let mut building = JoinSet::new();
        for _ in 0..20.min(CLIENTS - clients.len()) {
            building.spawn(built(scene.builder().acquire_timeout(turns)));
        }
        clients.extend(building.join_all().await);
    }
    clients
}
