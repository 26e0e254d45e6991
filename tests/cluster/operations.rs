//! What a lock costs, in operations of the store.

use std::time::Instant;

use bakery_lock::{LockClient, Statistics};
use tokio::task::JoinSet;

use super::scene::{READS_OF_A_LOCK, Scene, built};

// Goal: an uncontended lock is one write and one read, or both at once, and an unlock one delete. A
// try costs the same.
// Method: the client's statistics, before and after each.
#[tokio::test]
async fn uncontended_lock_and_its_unlock_cost_little() {
    let _beside = support::beside_others().await;
    let scene = Scene::new().await;
    let client = scene.client().await;
    let name = support::unique("cost");
    assert_eq!(client.statistics(), Statistics::default());
    for round in 1..=10 {
        let guard = if round % 2 == 0 {
            client.lock(&name).await.expect("the lock is free")
        } else {
            let won = client.try_lock(&name).await.expect("the database answers");
            won.expect("the lock is free")
        };
        let locked = client.statistics();
        assert_eq!((locked.writes, locked.object_reads), (round, READS_OF_A_LOCK * round));
        assert_eq!((locked.deletes, locked.contender_reads), (round - 1, 0));
        guard.unlock().await.expect("the lock was held");
        let unlocked = client.statistics();
        assert_eq!(unlocked.deletes, round);
        assert_eq!(unlocked.operations(), (2 + READS_OF_A_LOCK) * round);
        assert_eq!((unlocked.unknown_outcomes, unlocked.failures), (0, 0));
    }
}

const CLIENTS: usize = 32;
const LOCKS_EACH: u32 = 10;
const MEASUREMENTS_MAX: usize = 10;

// Goal: an acquisition among 32 contenders costs 12 operations on average at most, its release
// included; three of them read the whole partition: on looking, after drawing, and to confirm.
// Method: 32 clients lock one name in turn for a while; their statistics are summed up. A waiter
// looks more often where handoffs come irregularly, as on a cluster whose nodes still compile their
// code, or that is busy with other tests: so it is measured again until it has settled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes long; scripts/nightly runs it"]
async fn contended_lock_is_twelve_operations_at_most() {
    let _alone = support::alone().await;
    let scene = Scene::new().await;
    let name = support::unique("cost");
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let builder = scene.builder();
        clients.push(built(builder).await);
    }
    let mut least = f64::INFINITY;
    for _ in 0..MEASUREMENTS_MAX {
        let (all, whole_reads) = operations_of_a_lock(&clients, &name).await;
        assert!(whole_reads <= 3.1, "{whole_reads} whole reads");
        least = least.min(all);
        if least <= 12.0 {
            break;
        }
    }
    assert!(least <= 12.0, "{least} operations");
    scene.wait_until_deleted(&name).await;
}

/// Lets all clients lock a name in turn. How many operations a lock took on average, and how many
/// of them were reads of the whole partition.
async fn operations_of_a_lock(clients: &[LockClient], name: &str) -> (f64, f64) {
    let before: Vec<_> = clients.iter().map(LockClient::statistics).collect();
    let began = Instant::now();
    lock_in_turn(clients, name, LOCKS_EACH).await;
    let rate = f64::from(LOCKS_EACH) * CLIENTS as f64 / began.elapsed().as_secs_f64();
    let average = |part: fn(&Statistics) -> u64| -> f64 {
        let pairs = clients.iter().zip(&before);
        let parts = pairs.map(|(client, before)| part(&client.statistics()) - part(before));
        parts.sum::<u64>() as f64 / (CLIENTS as f64 * f64::from(LOCKS_EACH))
    };
    let (all, whole_reads) = (average(Statistics::operations), average(|all| all.object_reads));
    println!(
        "a lock among {CLIENTS} contenders, {rate:.0} a second: {all:.1} operations on average, \
         {whole_reads:.2} of them whole reads, {:.1} reads of one contender, {:.2} writes, \
         {:.2} deletes; {:.3} unknown, {:.3} failed",
        average(|all| all.contender_reads),
        average(|all| all.writes),
        average(|all| all.deletes),
        average(|all| all.unknown_outcomes),
        average(|all| all.failures),
    );
    (all, whole_reads)
}

/// Lets all clients lock a name this many times, all at once.
async fn lock_in_turn(clients: &[LockClient], name: &str, times: u32) {
    let mut tasks = JoinSet::new();
    for client in clients {
        let (client, name) = (client.clone(), name.to_owned());
        tasks.spawn(async move {
            for _ in 0..times {
                let guard = client.lock(&name).await.expect("each client gets the lock");
                guard.unlock().await.expect("the lock was held");
            }
        });
    }
    tasks.join_all().await;
}
