//! Clients that take turns of each other over TCP, on the memory store.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bakery_lock::testing::FaultyStore;
use bakery_lock::{LockClient, PeerOptions};
use tokio::task::JoinSet;
use tokio::time::sleep;

const OBJECT: &str = "users::snap";

const ANY_PORT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

async fn client(store: &FaultyStore, options: PeerOptions) -> LockClient {
    let builder = store.client_builder().host("host").register_host(true).peers(options);
    builder.build().await.expect("a client in memory is built")
}

#[derive(Default)]
struct Stage {
    inside: AtomicI64,
    grants: AtomicU64,
    last_token: AtomicI64,
}

impl Stage {
    async fn work(self: Arc<Self>, client: LockClient, times: u64) {
        for time in 0..times {
            let guard = client.lock(OBJECT).await.expect("each caller is served");
            assert_eq!(self.inside.fetch_add(1, Ordering::SeqCst), 0, "two are inside");
            self.grants.fetch_add(1, Ordering::SeqCst);
            if time % 100 == 0 {
                let token = guard.fencing_token().await.expect("the lock is held").value();
                let before = self.last_token.swap(token, Ordering::SeqCst);
                assert!(token > before, "{token} after {before}");
            }
            self.inside.fetch_sub(1, Ordering::SeqCst);
            guard.unlock().await.expect("the lock was held");
        }
    }
}

// Goal: clients pass a lock on over TCP: all are served, no two at once, tokens grow, and few of
// the grants cost an operation.
// Method: eight clients take the lock 500 times each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_pass_a_lock_on_over_tcp() {
    let store = FaultyStore::new();
    store.delay_calls(ms(2));
    let stage = Arc::<Stage>::default();
    let mut clients = Vec::new();
    for _ in 0..8 {
        clients.push(client(&store, PeerOptions::new(ANY_PORT)).await);
    }
    sleep(ms(200)).await;
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    for client in &clients {
        tasks.spawn(Arc::clone(&stage).work(client.clone(), 500));
    }
    tasks.join_all().await;
    let grants = stage.grants.load(Ordering::SeqCst);
    assert_eq!(grants, 8 * 500);
    let operations: u64 = clients
        .iter()
        .map(LockClient::statistics)
        .map(|s| s.writes + s.deletes + s.object_reads + s.contender_reads + s.glances)
        .sum();
    println!("{grants} grants in {:?}, {operations} operations", began.elapsed());
    assert!(operations < grants / 4, "{operations} operations for {grants} grants");
    for client in &clients {
        client.shutdown().await.expect("nothing is left");
    }
    assert_eq!(store.live_rows(OBJECT), 0);
}
