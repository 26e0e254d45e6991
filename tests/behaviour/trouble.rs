//! A database that fails, and hosts that come and go.

use bakery_lock::testing::Fault;
use bakery_lock::{BuildError, GuardState, LockError, LockGuard, Outcome};
use tokio::time::{Instant, sleep, sleep_until};

use super::{OBJECT, SOON, client, expect_rows, ms, s, store};

// Goal: a database that does not answer is asked again until the timeout, and the error carries
// its last words.
// Method: every call fails, in each way that may pass.
#[tokio::test(start_paused = true)]
async fn unavailable_database_is_retried_until_the_timeout() {
    let faults = [
        (Fault::NotApplied, Outcome::NotApplied),
        (Fault::UnknownNotApplied, Outcome::Unknown),
        (Fault::UnknownApplied, Outcome::Unknown),
    ];
    for (fault, outcome) in faults {
        let store = store();
        let client = client(&store, "a").await;
        store.fail_next(usize::MAX, fault);
        let asked = Instant::now();
        let error = client.request(OBJECT).timeout(s(3)).acquire().await.expect_err("it fails");
        assert!((s(3)..s(3) + SOON).contains(&asked.elapsed()), "{:?}", asked.elapsed());
        let LockError::TimedOut { ahead, cause: Some(cause), .. } = error else {
            panic!("another error came: {error:?}");
        };
        assert_eq!((cause.outcome(), cause.is_permanent()), (outcome, false));
        assert!(ahead.is_empty(), "no contender is there: {ahead:?}");
        let tries = client.statistics().writes;
        assert!((5..60).contains(&tries), "{tries} tries in 3 s");
        store.fail_next(0, fault);
        sleep(s(1)).await;
        assert_eq!(store.live_rows(OBJECT), 0);
    }
}

// Goal: a database that comes back within the timeout is no error.
// Method: every call fails for two seconds.
#[tokio::test(start_paused = true)]
async fn database_that_comes_back_is_no_error() {
    let store = store();
    let client = client(&store, "a").await;
    store.fail_next(usize::MAX, Fault::NotApplied);
    let locking = tokio::spawn(client.request(OBJECT).acquire());
    sleep(s(2)).await;
    store.fail_next(0, Fault::NotApplied);
    let guard = locking.await.expect("the task does not panic").expect("the database came back");
    guard.unlock().await.expect("the database answers");
    expect_rows(&store, 0).await;
}

// Goal: whichever single call has an unknown outcome, the lock is obtained, is exclusive, and
// leaves nothing.
// Method: let the n-th call of an acquisition behind a holder, hold and release fail, n from 0 on,
// with each kind of fault.
#[tokio::test(start_paused = true)]
async fn one_failed_call_costs_nothing_but_time() {
    for fault in [Fault::NotApplied, Fault::UnknownNotApplied, Fault::UnknownApplied] {
        for moment in 0..60 {
            let store = store();
            let (holder, other) = (client(&store, "holder").await, client(&store, "b").await);
            let held = holder.lock(OBJECT).await.expect("the lock is free");
            let knobs = store.clone();
            tokio::spawn(async move {
                sleep(ms(moment)).await;
                knobs.fail_next(1, fault);
            });
            let waiting = tokio::spawn(other.request(OBJECT).acquire());
            sleep(ms(20)).await;
            assert!(!waiting.is_finished(), "two clients hold the lock");
            held.unlock().await.expect("the next try succeeds");
            let next: LockGuard =
                waiting.await.expect("the task does not panic").expect("it is free now");
            sleep(ms(5)).await;
            next.unlock().await.expect("the next try succeeds");
            expect_rows(&store, 0).await;
        }
    }
}

// Goal: what was written with an unknown outcome is counted, and deleted in the background until
// that is acknowledged, or until nothing that was sent can be there any more; no longer.
// Method: no call has a known outcome, for some time or for good, and a caller gives up after 2 s.
// What it sent may be on its way for 15 s; then it lives for its TTL of 5 s, and 1 s of clock skew.
#[tokio::test(start_paused = true)]
async fn cleaning_up_goes_on_as_long_as_it_has_to() {
    let cases = [(true, s(10)), (false, s(2 + 15 + 5 + 1))];
    for fault in [Fault::UnknownNotApplied, Fault::UnknownApplied] {
        for (heals, ends) in cases {
            let store = store();
            let client = client(&store, "a").await;
            let began = Instant::now();
            store.fail_next(usize::MAX, fault);
            let request = client.request(OBJECT).ttl(s(5)).timeout(s(2));
            request.acquire().await.expect_err("nothing is acknowledged");

            // Pauses between two tries are shorter than a second.
            sleep_until(began + ends - s(2)).await;
            let before = client.statistics().deletes;
            sleep_until(began + ends - s(1)).await;
            assert!(client.statistics().deletes > before, "it ended before {ends:?}");
            sleep_until(began + ends).await;
            if heals {
                store.fail_next(0, fault);
            }
            sleep(s(1)).await;
            let after = client.statistics();
            sleep(s(60)).await;
            assert_eq!(client.statistics(), after, "it went on after {ends:?}");
            let acknowledged = u64::from(heals);
            assert_eq!(after.unknown_outcomes, after.writes + after.deletes - acknowledged);
            assert_eq!(store.live_rows(OBJECT), 0);

            store.fail_next(0, fault);
            let guard = client.lock(OBJECT).await.expect("the client is as good as new");
            guard.unlock().await.expect("the database answers");
        }
    }
}

// Goal: a statement that the database refuses is an error at once, and says what to do.
// Method: the next call is refused.
#[tokio::test(start_paused = true)]
async fn refused_statement_is_an_error_at_once() {
    let store = store();
    let client = client(&store, "a").await;
    store.fail_next(1, Fault::Refused);
    let asked = Instant::now();
    let error = client.lock(OBJECT).await.expect_err("the statement is refused");
    assert!(asked.elapsed() < SOON);
    assert!(error.to_string().contains("run `lock-hosts doctor`"), "{error}");
    let LockError::Refused { cause, .. } = error else {
        panic!("another error came: {error:?}");
    };
    assert!(cause.is_permanent());
    expect_rows(&store, 0).await;
    let guard = client.lock(OBJECT).await.expect("it works again");
    guard.unlock().await.expect("the database answers");
}

// Goal: a host without a number can't lock; the error says how it gets one, and asking for it
// registers it.
// Method: build clients without and with `register_host`.
#[tokio::test(start_paused = true)]
async fn host_needs_a_number() {
    let store = store();
    let build = |register| {
        let builder = store.client_builder().host("snap-1");
        builder.register_host(register).build()
    };
    let error = build(false).await.expect_err("the host has no number");
    assert!(matches!(error, BuildError::UnknownHost { .. }), "{error:?}");
    let message = error.to_string();
    assert!(message.contains("snap-1") && message.contains("lock-hosts"), "{message}");
    assert!(store.host_registry().list().await.expect("it answers").is_empty());

    build(true).await.expect("the host is registered");
    build(false).await.expect("the host has a number now");
    build(true).await.expect("it is registered once");
    let hosts = store.host_registry().list().await.expect("it answers");
    assert_eq!(hosts.len(), 1);
    assert_eq!((hosts[0].name(), hosts[0].number()), ("snap-1", 1));
}

// Goal: one name for many machines works: clients tell themselves apart.
// Method: two clients of one host name.
#[tokio::test(start_paused = true)]
async fn clients_of_one_host_name_exclude_each_other() {
    let store = store();
    let (one, other) = (client(&store, "label").await, client(&store, "label").await);
    let held = one.lock(OBJECT).await.expect("the lock is free");
    assert!(other.try_lock(OBJECT).await.expect("the store answers").is_none());
    held.unlock().await.expect("the store answers");
    let won = other.try_lock(OBJECT).await.expect("the store answers");
    won.expect("it is free").unlock().await.expect("the store answers");
}

// Goal: once a host is removed its new acquisitions fail within about a minute, while what it
// holds stays held; once it is added again it works within about a minute.
// Method: lock another object every second and note when it fails, and when it works again.
#[tokio::test(start_paused = true)]
async fn removed_host_acquires_nothing_more() {
    let store = store();
    let registry = store.host_registry();
    let client = client(&store, "leaving").await;
    let held = client.lock(OBJECT).await.expect("the lock is free");
    registry.remove("leaving").await.expect("it answers").expect("it is registered");
    let removed = Instant::now();
    let error = loop {
        match client.lock("another").await {
            Ok(guard) => guard.unlock().await.expect("the store answers"),
            Err(error) => break error,
        }
        assert!(removed.elapsed() < s(65), "it still locks after {:?}", removed.elapsed());
        sleep(s(1)).await;
    };
    assert!(matches!(error, LockError::HostRemoved { .. }), "{error:?}");
    assert!(error.to_string().contains("run `lock-hosts add leaving`"), "{error}");
    assert_eq!(store.live_rows("another"), 0);
    sleep(s(300)).await;
    assert!(matches!(held.state(), GuardState::Held { .. }), "{:?}", held.state());

    registry.add("leaving").await.expect("it answers");
    let added = Instant::now();
    while client.lock("another").await.is_err() {
        assert!(added.elapsed() < s(65), "it still fails after {:?}", added.elapsed());
        sleep(s(1)).await;
    }
    held.unlock().await.expect("it was held to the end");
    registry.close().await;
}
