//! Options and names that can't be used.

use std::time::Duration;

use bakery_lock::{BuildError, InvalidOption, LockError, Statistics};

use super::{OBJECT, client, ms, s, store};

// Goal: a name that can't be used is an error that says why, and nothing is sent.
// Method: an empty name, names at the border, statistics.
#[tokio::test(start_paused = true)]
async fn unusable_names_are_refused() {
    let store = store();
    let client = client(&store, "a").await;
    let too_long = "é".repeat(32_768);
    for (name, expected) in [
        ("", "an object name must not be empty"),
        (&too_long, "an object name has 65535 bytes at most, not 65536; hash longer ones"),
    ] {
        let error = client.lock(name).await.expect_err("the name can't be used");
        assert_eq!(error.to_string(), expected);
        let error = client.try_lock(name).await.expect_err("the name can't be used");
        assert!(matches!(error, LockError::Option(_)), "{error:?}");
    }
    assert_eq!(client.statistics(), Statistics::default());
    let longest = "é".repeat(32_767);
    for name in [&longest, "a", " ", "\0", "users::snap'; DROP TABLE lock_table", "日本"] {
        let guard = client.lock(name).await.expect("the name can be used");
        assert_eq!(guard.name(), name);
        guard.unlock().await.expect("the store answers");
    }
}

// Goal: a TTL out of bounds is an error that says what the bounds are, and nothing is sent.
// Method: TTLs of requests and of clients, around the bounds.
#[tokio::test(start_paused = true)]
async fn ttls_out_of_bounds_are_refused() {
    let store = store();
    let client = client(&store, "a").await;
    let built = |ttl| store.client_builder().host("a").ttl(ttl).build();
    for (ttl, expected) in [
        (Duration::ZERO, "a ttl of 0ns is too short: use at least 5s"),
        (s(4), "a ttl of 4s is too short: use at least 5s"),
        (ms(5_500), "a ttl of 5.5s is not in whole seconds"),
        (s(121), "a ttl of 121s is longer than the lock table allows: use at most 120s"),
    ] {
        let error = client.request(OBJECT).ttl(ttl).acquire().await.expect_err("it is refused");
        assert!(matches!(error, LockError::Option(_)), "{error:?}");
        assert!(error.to_string().starts_with(expected), "{error}");
        let error = built(ttl).await.expect_err("it is refused");
        assert!(matches!(error, BuildError::Option(_)), "{error:?}");
        assert!(error.to_string().starts_with(expected), "{error}");
    }
    assert_eq!(client.statistics(), Statistics::default());
    for ttl in [s(5), s(120)] {
        let client = built(ttl).await.expect("this ttl is allowed");
        client.lock(OBJECT).await.expect("it is free").unlock().await.expect("the store answers");
    }
}

// Goal: a timeout of zero is an error that names the way to not wait.
// Method: on a request and on a client.
#[tokio::test(start_paused = true)]
async fn a_timeout_of_zero_is_refused() {
    let store = store();
    let client = client(&store, "a").await;
    let request = client.request(OBJECT).timeout(Duration::ZERO);
    let error = request.acquire().await.expect_err("it is refused");
    assert!(matches!(error, LockError::Option(InvalidOption::ZeroTimeout)), "{error:?}");
    assert!(error.to_string().contains("use `try_lock` to not wait"), "{error}");
    let builder = store.client_builder().host("a").acquire_timeout(Duration::ZERO);
    let error = builder.build().await.expect_err("it is refused");
    assert!(matches!(error, BuildError::Option(InvalidOption::ZeroTimeout)), "{error:?}");
}
