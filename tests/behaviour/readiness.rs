//! `LockClient::health`: whether a client gets locks now.

use std::time::Duration;

use bakery_lock::testing::Fault;
use bakery_lock::{Health, LockClient, LockError, UnreadyReason};
use tokio::time::{Instant, sleep, timeout};

use super::{OBJECT, client, ms, s, store};

/// How long a client waits for the database by default.
const ACQUIRE_TIMEOUT: Duration = s(5);

/// How old what a client knows of its host, the clocks and the table may be.
const LIFE: Duration = s(60);

/// The only reason that a client is not ready.
async fn reason(client: &LockClient) -> UnreadyReason {
    let mut health = client.health().await;
    assert_eq!(health.reasons.len(), 1, "{health}");
    health.reasons.remove(0)
}

async fn expect_ready(client: &LockClient) {
    let health = client.health().await;
    assert!(health.is_ready() && health.to_string() == "ready", "{health}");
}

// Goal: a probe costs one read and nothing else; a client that is probed often looks at clocks and
// table once a minute. It leaves no rows.
// Method: probe every other second for ten minutes, and count.
#[tokio::test(start_paused = true)]
async fn probe_costs_one_read() {
    let store = store();
    let client = client(&store, "web1").await;
    let observer = store.client_builder().host("unknown").read_only(true).build().await;
    let observer = observer.expect("an observer needs no registration");
    for _ in 0..300 {
        for client in [&client, &observer] {
            let asked = Instant::now();
            expect_ready(client).await;
            assert!(asked.elapsed() <= ms(2), "a read or a look takes 1 ms");
        }
        sleep(s(2)).await;
    }
    for client in [&client, &observer] {
        let done = client.statistics();
        assert_eq!((done.object_reads, done.writes, done.deletes), (300, 0, 0));
    }
    assert!((18..=20).contains(&store.looks()), "{} looks of two clients", store.looks());
    assert_eq!(store.live_rows(OBJECT), 0);
}

// Goal: whatever keeps a client from getting locks is named, within the acquire timeout, with what
// to do; and a client that is said to be ready gets a lock. Each time the trouble passes, the
// client is ready again.
// Method: cause each kind of trouble in turn, probe a client and let it lock.
#[tokio::test(start_paused = true)]
async fn each_reason_is_named_and_passes() {
    let store = store();
    let client = client(&store, "web1").await;
    let expect_refusal = async |client: &LockClient, told: &str| {
        let asked = Instant::now();
        let health = client.health().await;
        assert!(asked.elapsed() <= ACQUIRE_TIMEOUT, "{:?}", asked.elapsed());
        assert!(!health.is_ready() && health.to_string().contains(told), "{health}");
        client.lock(OBJECT).await.expect_err("the client is not ready");
    };
    let expect_lock = async |client: &LockClient| {
        expect_ready(client).await;
        client.lock(OBJECT).await.expect("the client is ready").unlock().await.expect("it is held");
    };
    expect_lock(&client).await;

    store.fail_next(usize::MAX, Fault::NotApplied);
    let silent = reason(&client).await;
    let UnreadyReason::Unanswered { waited, cause: Some(_) } = silent else {
        panic!("the table does not answer: {silent:?}");
    };
    assert_eq!(waited, ACQUIRE_TIMEOUT);
    expect_refusal(&client, "no quorum of replicas answered within 5s").await;
    store.fail_next(usize::MAX, Fault::Refused);
    assert!(matches!(reason(&client).await, UnreadyReason::Refused { .. }));
    expect_refusal(&client, "the database refuses a request: run `lock-hosts doctor`").await;
    store.fail_next(usize::MAX, Fault::LoginRefused);
    assert!(matches!(reason(&client).await, UnreadyReason::LoginRefused { .. }));
    expect_refusal(&client, "the nodes refuse the login of this client's session").await;
    expect_refusal(&client, "build another session with the present credentials").await;
    store.fail_next(3, Fault::UnknownNotApplied);
    expect_lock(&client).await;

    let registry = store.host_registry();
    registry.remove("web1").await.expect("the store answers");
    sleep(LIFE).await;
    assert!(matches!(reason(&client).await, UnreadyReason::HostRemoved { .. }));
    expect_refusal(&client, "run `lock-hosts add web1`").await;
    registry.add("web1").await.expect("the store answers");
    sleep(LIFE).await;
    expect_lock(&client).await;

    store.set_clocks_apart(s(3));
    sleep(LIFE).await;
    assert!(matches!(reason(&client).await, UnreadyReason::ClocksDiffer { .. }));
    expect_refusal(&client, "synchronize the clocks").await;
    store.set_clocks_apart(ms(10));
    sleep(s(5)).await;
    client.health().await;
    expect_lock(&client).await;

    // No node tells anything, which is no reason: the rows are there.
    store.silence_nodes(true);
    sleep(LIFE).await;
    expect_lock(&client).await;
    store.silence_nodes(false);
    sleep(LIFE).await;

    store.drop_table();
    store.make_table_again();
    assert!(matches!(reason(&client).await, UnreadyReason::TableGone));
    expect_refusal(&client, "build another client").await;
}

// Goal: a refused login is named as such to callers and holders too, with what to do, and a waiting
// caller does not wait for what can't come.
// Method: the nodes refuse the login of a client that holds one lock and waits for another one.
#[tokio::test(start_paused = true)]
async fn refused_login_is_named_in_errors() {
    let store = store();
    let (client, other) = (client(&store, "web1").await, client(&store, "web2").await);
    let guard = client.lock("held").await.expect("the lock is free");
    let _taken = other.lock(OBJECT).await.expect("the lock is free");
    let waiting = tokio::spawn(client.request(OBJECT).timeout(s(300)).acquire());
    sleep(s(1)).await;
    store.fail_next(usize::MAX, Fault::LoginRefused);
    let began = Instant::now();
    let waited = waiting.await.expect("no task panics").expect_err("the login is refused");
    assert!(began.elapsed() < s(10), "it waited for {:?}", began.elapsed());
    let free = client.lock("free").await.expect_err("the login is refused");
    for error in [waited, free] {
        let LockError::Refused { cause, .. } = &error else {
            panic!("another error came: {error:?}");
        };
        assert!(cause.is_login_refused() && cause.missing_permission().is_none(), "{cause:?}");
        assert!(error.to_string().contains("the login of the session is refused"), "{error}");
    }
    let token = guard.fencing_token().await.expect_err("the login is refused");
    assert!(token.to_string().contains("the login of the session is refused"), "{token}");
    assert!(guard.state().is_held(), "it is held until its lease ends: {:?}", guard.state());
    store.fail_next(0, Fault::LoginRefused);
    guard.unlock().await.expect("it was held");
}

// Goal: a client that was shut down says so at once, and so does one whose shutdown waits for a
// release; a probe that waits for the database meanwhile does not wait longer.
// Method: probe while the database is silent, shut down, and probe again.
#[tokio::test(start_paused = true)]
async fn closed_client_is_not_ready() {
    let store = store();
    let client = client(&store, "web1").await;
    let _guard = client.lock(OBJECT).await.expect("the lock is free");
    store.fail_next(usize::MAX, Fault::NotApplied);
    let probing = tokio::spawn({
        let client = client.clone();
        async move { client.health().await }
    });
    sleep(ms(100)).await;
    let closing = tokio::spawn({
        let client = client.clone();
        async move { client.shutdown().await }
    });
    sleep(ms(100)).await;
    assert!(matches!(reason_soon(&client).await, UnreadyReason::Closed));
    store.fail_next(0, Fault::NotApplied);
    closing.await.expect("no task panics").expect("the store answers again");
    assert!(matches!(reason_soon(&client).await, UnreadyReason::Closed));
    let Health { reasons, .. } = probing.await.expect("no task panics");
    assert!(matches!(reasons[..], [UnreadyReason::Closed]), "{reasons:?}");
}

async fn reason_soon(client: &LockClient) -> UnreadyReason {
    timeout(ms(10), reason(client)).await.expect("it is known at once")
}

// Goal: probes may be dropped at any moment: the next one, and callers, are served as usual.
// Method: drop probes after each millisecond while the registration and the clocks are looked at.
#[tokio::test(start_paused = true)]
async fn probes_that_are_dropped_leave_nothing_behind() {
    let store = store();
    let client = client(&store, "web1").await;
    for wait in 0..20 {
        sleep(LIFE).await;
        store.delay_calls(ms(10));
        let dropped = timeout(ms(wait), client.health()).await;
        assert_eq!(dropped.is_ok(), wait > 10, "after {wait} ms");
        expect_ready(&client).await;
        let guard = client.lock(OBJECT).await.expect("the lock is free");
        guard.unlock().await.expect("it is held");
    }
}
