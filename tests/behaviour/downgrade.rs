//! Writers that become readers.

use bakery_lock::{EnsureError, FencingError, LockMode};
use tokio::time::{sleep, timeout};

use super::{OBJECT, SOON, client, expect_rows, ms, s, store};

// Goal: a writer becomes a reader without a gap: readers join it, of its own client and of others,
// those that waited already too, and no writer has the lock in between.
// Method: readers and a writer wait before the downgrade, and others come after it.
#[tokio::test(start_paused = true)]
async fn writer_becomes_a_reader() {
    let store = store();
    let (one, other) = (client(&store, "one").await, client(&store, "other").await);
    let guard = one.lock(OBJECT).await.expect("the lock is free");
    let token = guard.fencing_token().await.expect("it is held alone");
    let own = tokio::spawn(one.request(OBJECT).shared().acquire());
    let waiting = tokio::spawn(other.request(OBJECT).shared().acquire());
    sleep(ms(500)).await;
    assert!(!own.is_finished() && !waiting.is_finished(), "a writer holds it");

    guard.downgrade().await.expect("it is held alone");
    assert!(guard.state().is_held());
    let own = timeout(SOON, own).await.expect("it joins at once");
    let own = own.expect("the task does not panic").expect("it is shared");
    let waiting = timeout(s(1), waiting).await.expect("it joins soon");
    let waiting = waiting.expect("the task does not panic").expect("it is shared");
    let contenders = other.contenders(OBJECT).await.expect("the store answers");
    assert!(contenders.iter().all(|it| it.mode == Some(LockMode::Shared)), "{contenders:?}");
    let late = other.request(OBJECT).shared().try_acquire().await.expect("the store answers");
    assert!(late.is_some(), "one that comes later joins too");
    for writer in [&one, &other] {
        assert!(writer.try_lock(OBJECT).await.expect("the store answers").is_none());
    }
    let error = guard.fencing_token().await.expect_err("it is shared");
    assert!(matches!(error, FencingError::Downgraded { .. }), "{error:?}");
    assert_eq!(waiting.fencing_token().await.expect("it is that of the writer"), token);

    // Renewals keep it shared.
    sleep(s(100)).await;
    assert!(guard.state().is_held() && own.state().is_held() && waiting.state().is_held());
    guard.unlock().await.expect("it was held");
    assert!(one.try_lock(OBJECT).await.expect("the store answers").is_none(), "others read");
    drop((own, waiting, late));
    let writer = other.lock(OBJECT).await.expect("the lock is free");
    assert!(writer.fencing_token().await.expect("it is held alone") > token);
    writer.unlock().await.expect("it was held");
    expect_rows(&store, 0).await;
}

// Goal: a writer that waits is not let in by a downgrade, and is served before readers that come
// after it.
// Method: a writer of another client waits first, then a reader.
#[tokio::test(start_paused = true)]
async fn writer_that_waits_comes_before_later_readers() {
    let store = store();
    let (one, other) = (client(&store, "one").await, client(&store, "other").await);
    let third = client(&store, "third").await;
    let guard = one.lock(OBJECT).await.expect("the lock is free");
    let writer = tokio::spawn(other.request(OBJECT).timeout(s(60)).acquire());
    sleep(s(1)).await;
    let reader = tokio::spawn(third.request(OBJECT).shared().timeout(s(60)).acquire());
    sleep(s(1)).await;
    guard.downgrade().await.expect("it is held alone");
    sleep(s(5)).await;
    assert!(!writer.is_finished() && !reader.is_finished());
    guard.unlock().await.expect("it was held");
    let writer = timeout(s(2), writer).await.expect("it is its turn");
    let writer = writer.expect("the task does not panic").expect("the lock is free");
    sleep(s(2)).await;
    assert!(!reader.is_finished(), "a writer holds it");
    writer.unlock().await.expect("it was held");
    let reader = timeout(s(2), reader).await.expect("it is its turn");
    assert!(reader.expect("the task does not panic").is_ok(), "the lock is free");
}

// Goal: what can't be downgraded stays as it was.
// Method: a reader, a limited holder, one with a minimum hold and one that is not renewed.
#[tokio::test(start_paused = true)]
async fn only_what_is_held_alone_is_downgraded() {
    let store = store();
    let client = client(&store, "a").await;
    let request = || client.request(OBJECT);
    for request in [
        request().shared(),
        request().max_holders(2),
        request().min_hold(s(1)),
        request().auto_renew(false),
    ] {
        let guard = request.acquire().await.expect("the lock is free");
        let error = guard.downgrade().await.expect_err("it can't be");
        assert!(matches!(error, EnsureError::Unchangeable { .. }), "{error:?}");
        assert!(guard.state().is_held());
        guard.unlock().await.expect("it was held");
        sleep(s(2)).await;
    }
    let guard = request().auto_renew(false).acquire().await.expect("the lock is free");
    guard.downgrade().await.expect_err("it can't be");
    assert!(guard.fencing_token().await.is_ok(), "it holds alone as before");
}
