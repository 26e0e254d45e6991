//! Locks whose lease lasts for some time when they are granted.

use std::time::Duration;

use bakery_lock::testing::Fault;
use bakery_lock::{InvalidOption, LockError, LockRequest};
use tokio::time::sleep;

use super::{OBJECT, client, expect_rows, ms, s, store};

/// The longest lease of the table, less the time to pass a lock on.
const LONGEST: Duration = ms(117_500);

async fn remaining(request: LockRequest) -> Duration {
    let guard = request.acquire().await.expect("each caller is served");
    let remaining = guard.remaining();
    guard.unlock().await.expect("it was held");
    remaining
}

// Goal: a lock that is free has the lease that is asked for, whatever the TTL, at no further cost.
// Method: count operations with and without, for times that the TTL covers and that it does not.
#[tokio::test(start_paused = true)]
async fn ttl_is_raised_to_what_is_needed() {
    let store = store();
    let client = client(&store, "one").await;
    for (at_least, longest) in [(s(0), s(8)), (s(1), s(8)), (s(100), s(101)), (LONGEST, s(120))] {
        let before = client.statistics();
        let left = remaining(client.request(OBJECT).ttl(s(10)).at_least(at_least)).await;
        assert!(left >= at_least && left <= longest, "{left:?} instead of {at_least:?}");
        let after = client.statistics();
        let operations = after.operations() - before.operations();
        assert!(operations <= 3, "{operations} operations for {at_least:?}");
    }
    expect_rows(&store, 0).await;
}

// Goal: a time that no lease has is refused before anything is written.
// Method: ask for a millisecond more than there is.
#[tokio::test(start_paused = true)]
async fn longer_time_than_any_lease_is_refused() {
    let store = store();
    let client = client(&store, "one").await;
    let at_least = LONGEST + ms(1);
    let refused = client.request(OBJECT).at_least(at_least).acquire().await.err();
    let Some(LockError::Option(invalid)) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(invalid, InvalidOption::AtLeastTooLong { at_least, longest: LONGEST });
    assert_eq!(client.statistics().writes, 0);
}

// Goal: a lock that passes between callers is renewed first if too little of the lease is left, and
// only then.
// Method: the first of two callers holds it for some time.
#[tokio::test(start_paused = true)]
async fn lease_in_use_is_renewed_before_the_next_turn() {
    for (held, renewals) in [(s(5), 0), (s(15), 1)] {
        let store = store();
        let client = client(&store, "one").await;
        let request = client.request(OBJECT).ttl(s(60)).timeout(s(60));
        let guard = request.clone().acquire().await.expect("the lock is free");
        let next = tokio::spawn(remaining(request.at_least(s(45))));
        sleep(held).await;
        let writes = client.statistics().writes;
        guard.unlock().await.expect("it was held");
        let left = next.await.expect("it ends");
        assert!(left >= s(45), "{left:?}");
        assert_eq!(client.statistics().writes - writes, renewals, "held for {held:?}");
    }
}

// Goal: one that joins others has the lease that it asks for as well.
// Method: the first reader's rows live for 10 s.
#[tokio::test(start_paused = true)]
async fn rows_that_others_share_are_written_on_longer_terms() {
    let store = store();
    let client = client(&store, "one").await;
    let request = client.request(OBJECT).ttl(s(10)).shared();
    let first = request.clone().acquire().await.expect("the lock is free");
    let left = remaining(request.at_least(s(60))).await;
    assert!(left >= s(60), "{left:?}");
    first.unlock().await.expect("it was held");
}

// Goal: if the lease can't be made as long, nothing is held, and the caller learns why.
// Method: the store fails once the lock is free, so that the lease of others can't be renewed.
#[tokio::test(start_paused = true)]
async fn lock_is_given_back_if_its_lease_is_too_short() {
    let store = store();
    let client = client(&store, "one").await;
    let request = client.request(OBJECT).ttl(s(10)).shared();
    let first = request.clone().acquire().await.expect("the lock is free");
    store.fail_next(usize::MAX, Fault::NotApplied);
    let error = request.at_least(s(60)).acquire().await.expect_err("no write succeeds");
    assert!(error.is_timeout() && error.to_string().contains(OBJECT), "{error:?}");
    store.fail_next(0, Fault::NotApplied);
    drop(first);
    sleep(s(60)).await;
    expect_rows(&store, 0).await;
}
