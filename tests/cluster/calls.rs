//! Calls that no other test makes on a real database: of operators, for leases, below prefixes, and
//! without async code.

use std::time::Duration;

use bakery_lock::admin::LockInUse;
use bakery_lock::blocking::Runtime;
use bakery_lock::{ContenderState, GuardState, InvalidOption, LockClient, LockError, LostReason};
use tokio::time::sleep;

use super::renewals::own_thread;
use super::scene::{Scene, built};
use support::monotonic::now;
use support::{pace, rows};

// Goal: a client that takes no locks is ready, sees the locks of others, and releases one whose
// holder is dead by the place that it had noted.
// Method: a holder whose runtime ends, and one that waits behind it.
#[tokio::test]
async fn observer_sees_locks_and_releases_one_of_a_dead_holder() {
    let _beside = support::beside_others().await;
    let scene = Scene::new().await;
    let name = support::unique("observed");
    let observer = built(scene.builder().host("not-registered").read_only(true)).await;
    let refused = observer.lock(&name).await.expect_err("it takes no locks");
    assert!(matches!(refused, LockError::Option(InvalidOption::ReadOnly)), "{refused:?}");
    assert!(observer.health().await.is_ready());
    assert_eq!(in_use(&observer, &name).await, []);

    let (thread, alive) = own_thread();
    let (builder, of_holder) = (scene.builder(), name.clone());
    let holder = thread.spawn(async move {
        let client = built(builder).await;
        (client.lock(&of_holder).await.expect("the lock is free"), client)
    });
    let (guard, holder) = holder.await.expect("the task does not panic");
    let waiter = scene.client().await;
    let waiting = tokio::spawn(waiter.request(&name).label("waits").acquire());
    rows::wait_for_tickets(&observer, &name, 1).await;
    let [lock] = &in_use(&observer, &name).await[..] else {
        panic!("it is in use, once");
    };
    let shown = lock.contenders.iter().map(|it| (it.state, it.owner.label()));
    let expected =
        [(Some(ContenderState::Holding), None), (Some(ContenderState::Waiting), Some("waits"))];
    assert_eq!(shown.collect::<Vec<_>>(), expected);
    assert!(lock.contenders[0].is_me(&holder));

    let place = guard.place();
    drop(alive);
    pace::until("the end of a runtime", async || matches!(guard.state(), GuardState::Lost(_)))
        .await;
    for is_there in [true, false] {
        let released = observer.release_for_dead(&name, &place).await;
        assert_eq!(released.expect("the rows can be deleted"), is_there);
    }
    let next = pace::within_limit("a lock that was released", waiting).await;
    let next = next.expect("the task does not panic").expect("it is free");
    next.unlock().await.expect("the lock was held");
    scene.wait_until_deleted(&name).await;
}

/// The locks of a name that are in use, among all.
async fn in_use(client: &LockClient, name: &str) -> Vec<LockInUse> {
    let (mut locks, mut found) = (client.locks(), Vec::new());
    while let Some(lock) = locks.try_next().await.expect("the table can be read") {
        found.extend(Some(lock).filter(|lock| lock.name == name));
    }
    found
}

// Goal: a lease lasts as long as a request, or its guard later, asks for; without renewal it ends,
// and the next client is let in then, not before.
// Method: ask for more than the TTL gives and for more than is left; compare times.
#[tokio::test]
async fn leases_last_as_long_as_is_asked_for() {
    const LONG: Duration = Duration::from_secs(100);
    let _beside = support::beside_others().await;
    let scene = Scene::new().await;
    let (client, other) = (scene.client().await, scene.client().await);
    let name = support::unique("lease");
    let request = client.request(&name).ttl(pace::scaled(Duration::from_secs(5)));
    let guard = request.clone().at_least(LONG).acquire().await.expect("the lock is free");
    // Longer than the TTL on the slowest machine.
    assert!(guard.remaining() > LONG / 2, "{:?}", guard.remaining());
    guard.unlock().await.expect("the lock was held");

    let guard = request.clone().acquire().await.expect("the lock is free");
    sleep(Duration::from_millis(500)).await;
    let more = guard.remaining() + Duration::from_millis(100);
    let ensured = guard.ensure(more).await.expect("it is renewed");
    assert!(ensured >= more, "{ensured:?} instead of {more:?}");
    guard.unlock().await.expect("the lock was held");

    let guard = request.auto_renew(false).acquire().await.expect("the lock is free");
    // Noted before it is asked for, so that the end is not taken for later than it is.
    let asked = now();
    let end = asked + u64::try_from(guard.remaining().as_nanos()).expect("it is short");
    let next = other.lock(&name).await.expect("the lease ends");
    let let_in = now();
    assert!(let_in > end, "let in {} ns before the lease ended", end - let_in);
    assert_eq!(guard.lost().await, Some(LostReason::Expired));
    next.unlock().await.expect("the lock was held");
    scene.wait_until_deleted(&name).await;
}

// Goal: services with different prefixes do not exclude each other.
// Method: two of them hold one name, and a client without a prefix sees both locks.
#[tokio::test]
async fn prefixes_keep_services_apart() {
    let _beside = support::beside_others().await;
    let scene = Scene::new().await;
    let name = support::unique("prefix");
    let below = async |prefix: &str| built(scene.builder().prefix(prefix)).await;
    let (billing, shipping) = (below("billing/").await, below("shipping/").await);
    let guards = [&billing, &shipping].map(|client| client.request(&name).acquire());
    for (guard, client) in guards.into_iter().zip([&billing, &shipping]) {
        let guard = guard.await.expect("no one of this service holds it");
        assert!(client.try_lock(&name).await.expect("a try is answered").is_none());
        guard.unlock().await.expect("the lock was held");
    }
    let guard = billing.lock(&name).await.expect("the lock is free");
    let plain = scene.client().await;
    for (prefix, count) in [("billing/", 1), ("shipping/", 0), ("", 0)] {
        let shown = plain.contenders(&format!("{prefix}{name}")).await;
        assert_eq!(shown.expect("the rows can be read").len(), count, "{prefix}");
    }
    guard.unlock().await.expect("the lock was held");
}

// Goal: a lock is taken and given back, and its token grows, without async code.
// Method: a client and its clone on the library's own runtime.
#[test]
fn lock_is_taken_without_async_code() {
    let runtime = Runtime::new().expect("a thread can be started");
    let scene = runtime.block_on(Scene::new());
    let client = runtime.build(scene.builder()).expect("the database answers");
    let name = support::unique("blocking");
    let guard = client.lock(&name).expect("the lock is free");
    let token = guard.fencing_token().expect("it is held");
    assert!(client.clone().try_lock(&name).expect("a try is answered").is_none());
    guard.unlock().expect("the lock was held");
    let worked = client.with_lock(&name, |lock| lock.remaining() > Duration::ZERO);
    assert!(worked.expect("the lock is free"));
    let guard = client.lock(&name).expect("the lock is free");
    assert!(guard.fencing_token().expect("it is held") > token);
    guard.unlock().expect("the lock was held");
    runtime.block_on(scene.wait_until_deleted(&name));
}
