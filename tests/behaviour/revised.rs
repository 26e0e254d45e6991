//! What a holder changes about its rows.

use bakery_lock::{EnsureError, InvalidOption};
use tokio::time::sleep;

use super::{OBJECT, client, expect_rows, s, store};

// Goal: others see the note of a holder, as it is now, and the lock is not affected.
// Method: set it with the request and while the lock is held, with a label and without.
#[tokio::test(start_paused = true)]
async fn note_is_seen_by_others() {
    let store = store();
    let (holder, other) = (client(&store, "holder").await, client(&store, "other").await);
    for label in [None, Some("nightly run")] {
        let request = holder.request(OBJECT).note("0 of 3");
        let request = match label {
            Some(label) => request.label(label),
            None => request,
        };
        let guard = request.acquire().await.expect("the lock is free");
        let seen = async || {
            let contenders = other.contenders(OBJECT).await.expect("the store answers");
            let owner = &contenders[0].owner;
            assert_eq!(owner.label(), label, "{owner:?}");
            assert!(!owner.as_str().contains("of 3"), "{owner:?}");
            owner.note().map(str::to_owned)
        };
        assert_eq!(seen().await.as_deref(), Some("0 of 3"));
        guard.set_note("1 of 3").await.expect("it is held");
        assert_eq!(seen().await.as_deref(), Some("1 of 3"));
        // Each renewal has it too.
        sleep(s(100)).await;
        assert_eq!(seen().await.as_deref(), Some("1 of 3"));
        guard.set_note("").await.expect("it is held");
        assert_eq!(seen().await.as_deref(), Some(""));
        guard.unlock().await.expect("it was held");
    }
    let guard = holder.lock(OBJECT).await.expect("the lock is free");
    let contenders = other.contenders(OBJECT).await.expect("the store answers");
    assert_eq!(contenders[0].owner.note(), None, "the next holder has its own");
    guard.unlock().await.expect("it was held");
    expect_rows(&store, 0).await;
}

// Goal: a holder holds for longer without a renewal from then on, until it releases the lock.
// Method: the shortest TTL is raised to the longest one; then the store fails.
#[tokio::test(start_paused = true)]
async fn raised_ttl_outlasts_an_outage() {
    let store = store();
    let client = client(&store, "holder").await;
    let request = client.request(OBJECT).ttl(s(5));
    let guard = request.clone().acquire().await.expect("the lock is free");
    let error = guard.ensure(s(100)).await.expect_err("no lease of 5 s is as long");
    assert!(matches!(error, EnsureError::TooLong { .. }), "{error:?}");
    let held = guard.raise_ttl(s(120)).await.expect("it is held");
    assert_eq!(held, guard.remaining());
    assert!(held > s(110), "{held:?}");
    assert!(guard.ensure(s(110)).await.is_ok());
    store.fail_next(usize::MAX, bakery_lock::testing::Fault::NotApplied);
    sleep(s(110)).await;
    assert!(guard.state().is_held(), "{}", guard.state());
    store.fail_next(0, bakery_lock::testing::Fault::NotApplied);
    guard.unlock().await.expect("it was held");
    let guard = request.acquire().await.expect("the lock is free");
    assert!(guard.remaining() < s(5), "{:?}", guard.remaining());
}

// Goal: what can't be written is refused, and the lock stays held.
// Method: values out of bounds, and locks that are not renewed, released or lost.
#[tokio::test(start_paused = true)]
async fn unusable_changes_are_refused() {
    let store = store();
    let client = client(&store, "holder").await;
    let guard = client.lock(OBJECT).await.expect("the lock is free");
    let error = guard.set_note("n".repeat(1_025)).await.expect_err("it is too long");
    assert!(
        matches!(error, EnsureError::Option(InvalidOption::NoteTooLong { bytes: 1_025 })),
        "{error:?}"
    );
    assert!(error.is_misconfigured() && error.to_string().contains("1024 bytes"), "{error}");
    for ttl in [s(4), s(121)] {
        let error = guard.raise_ttl(ttl).await.expect_err("no lock has it");
        assert!(matches!(error, EnsureError::Option(_)), "{error:?}");
    }
    assert!(guard.state().is_held());
    let handle = guard.handle();
    guard.unlock().await.expect("it was held");
    let error = handle.set_note("late").await.expect_err("it is released");
    assert!(matches!(error, EnsureError::Released { .. }), "{error:?}");

    let unrenewed = client.request(OBJECT).auto_renew(false).acquire().await;
    let unrenewed = unrenewed.expect("the lock is free");
    let error = unrenewed.set_note("late").await.expect_err("it is not renewed");
    assert!(matches!(error, EnsureError::Unchangeable { .. }), "{error:?}");
    assert!(unrenewed.state().is_held() && error.to_string().contains(OBJECT), "{error}");
    let error = client.request(OBJECT).note("n".repeat(1_025)).acquire().await;
    assert!(error.expect_err("it is too long").is_misconfigured());
}

// Goal: readers that share a lock have one place, which shows the note of the last one.
// Method: two readers of one client.
#[tokio::test(start_paused = true)]
async fn note_of_the_last_reader_is_seen() {
    let store = store();
    let client = client(&store, "readers").await;
    let one = client.request(OBJECT).shared().note("one").acquire().await.expect("it is free");
    let two = client.request(OBJECT).shared().note("two").acquire().await.expect("it is shared");
    one.set_note("first").await.expect("it is held");
    two.set_note("second").await.expect("it is held");
    let contenders = client.contenders(OBJECT).await.expect("the store answers");
    assert_eq!(contenders[0].owner.note(), Some("second"));
    two.unlock().await.expect("it was held");
    one.set_note("alone").await.expect("it is held");
    let contenders = client.contenders(OBJECT).await.expect("the store answers");
    assert_eq!(contenders[0].owner.note(), Some("alone"));
}
