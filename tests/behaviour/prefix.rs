//! Names below a prefix.

use bakery_lock::testing::FaultyStore;
use bakery_lock::{InvalidOption, LockClient, LockError};

use tokio::time::sleep;

use super::{SOON, client, expect_rows, s, store};

async fn below(store: &FaultyStore, prefix: &str) -> LockClient {
    let builder = store.client_builder().host("a").prefix(prefix);
    builder.build().await.expect("a client in memory is built")
}

// Goal: clients with different prefixes hold locks of the same name at once, and those with
// the same one don't; what a client shows is without its prefix, and errors and others have it.
// Method: two services, and a client without a prefix that looks at the table.
#[tokio::test(start_paused = true)]
async fn services_with_prefixes_do_not_collide() {
    let store = store();
    let (billing, shipping) = (below(&store, "billing/").await, below(&store, "shipping/").await);
    let (another, plain) = (below(&store, "billing/").await, client(&store, "plain").await);
    let held = billing.lock("orders::7").await.expect("the lock is free");
    let shipped = shipping.lock("orders::7").await.expect("the lock is free");
    assert_eq!((held.name(), shipped.name()), ("orders::7", "orders::7"));
    assert!(another.try_lock("orders::7").await.expect("the store answers").is_none());
    assert!(plain.try_lock("orders::7").await.expect("the store answers").is_some());
    let error = another.lock("orders::7").await.expect_err("it is held");
    let LockError::TimedOut { name, .. } = &error else { panic!("{error:?}") };
    assert_eq!(name, "billing/orders::7");
    assert!(error.to_string().contains("billing/orders::7"), "{error}");

    // The rows of the caller that gave up go in the background.
    sleep(SOON).await;
    assert_eq!(plain.contenders("billing/orders::7").await.expect("the store answers").len(), 1);
    let contenders = another.contenders("orders::7").await.expect("the store answers");
    assert!(contenders[0].is_me(&billing), "{contenders:?}");
    let mut locks = another.locks();
    let mut names = Vec::new();
    while let Some(lock) = locks.try_next().await.expect("the store answers") {
        names.push(lock.name);
    }
    assert_eq!(names, ["orders::7"]);
    let queue = billing.queue("orders::7").await.expect("it is held here");
    assert_eq!(queue.user.expect("it is held").client, billing.id());
    another.revoke("orders::7", &contenders[0], "a test").await.expect("the store answers");
    held.check().await.expect("it is still held");
    assert!(held.expiring().await.is_some());
    held.unlock().await.expect("it was held");
    shipped.unlock().await.expect("it was held");
    assert!(!another.repair_mark("orders::7").await.expect("the store answers"));
    expect_rows(&store, 0).await;
}

// Goal: elections and several locks at once are below the prefix too.
// Method: two services elect a leader and lock a pair of the same names.
#[tokio::test(start_paused = true)]
async fn elections_are_below_the_prefix() {
    let store = store();
    let (billing, shipping) = (below(&store, "billing/").await, below(&store, "shipping/").await);
    for service in [&billing, &shipping] {
        let election = service.election("scheduler");
        let leadership = election.campaign().await.expect("the seat is free");
        assert_eq!(leadership.name(), "scheduler");
        let leaders = election.observe().try_next().await.expect("the store answers");
        let leaders = leaders.expect("the client lives");
        assert!(leaders.iter().all(|leader| leader.is_me(service)), "{leaders:?}");
        let pair = service.lock_all(["one", "other"]).await.expect("the locks are free");
        assert!(pair.get("one").is_some());
        // Held until the end of the test, while the other service holds its own.
        std::mem::forget((leadership, pair));
    }
}

// Goal: a prefix makes no name of an empty one, nor one that is too long.
// Method: both, and a prefix that is too long itself.
#[tokio::test(start_paused = true)]
async fn names_below_a_prefix_are_checked() {
    let store = store();
    let client = below(&store, "billing/").await;
    let error = client.lock("").await.expect_err("it is empty");
    assert!(matches!(error, LockError::Option(InvalidOption::EmptyName)), "{error:?}");
    let error = client.lock("a".repeat(65_535)).await.expect_err("it is too long");
    let LockError::Option(InvalidOption::NameTooLong { bytes }) = error else {
        panic!("{error:?}");
    };
    assert_eq!(bytes, 65_543);
    let builder = store.client_builder().host("a").prefix("p".repeat(1_025));
    let error = builder.build().await.expect_err("it is too long");
    assert!(error.is_misconfigured() && error.to_string().contains("1024 bytes"), "{error}");
    assert!(client.request("one").timeout(s(1)).acquire().await.is_ok());
}
