//! Options and names that can't be used.

use std::time::Duration;

use bakery_lock::{BuildError, InvalidOption, LockError, Statistics, TableError};

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
async fn timeout_of_zero_is_refused() {
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

/// The longest label, and the longest reason, in bytes.
const TEXT_BYTES_MAX: usize = 1_024;

// Goal: a label or a reason that is too long is an error that says the limit, before anything is
// written; the longest ones are stored whole.
// Method: both at the limit and above, in bytes of a text whose characters have two.
#[tokio::test(start_paused = true)]
async fn long_labels_and_reasons_are_refused() {
    let store = store();
    let client = client(&store, "a").await;
    let longest = "é".repeat(TEXT_BYTES_MAX / 2);
    let too_long = format!("{longest}x");
    let bytes = too_long.len();
    let request = client.request(OBJECT).label(too_long.as_str());
    let error = request.clone().acquire().await.expect_err("the label is too long");
    assert!(
        matches!(error, LockError::Option(InvalidOption::LabelTooLong { bytes: it }) if it == bytes)
    );
    assert_eq!(error.to_string(), "a label has 1024 bytes at most, not 1025");
    let election = client.election(OBJECT).label(too_long.as_str());
    let errors = [
        request.try_acquire().await.expect_err("the label is too long"),
        client.request_all([OBJECT]).label(&too_long).acquire().await.expect_err("so is this one"),
        election.campaign().await.expect_err("so is this one"),
    ];
    for error in errors {
        let expected = matches!(error, LockError::Option(InvalidOption::LabelTooLong { .. }));
        assert!(expected, "{error:?}");
    }
    assert_eq!(client.statistics(), Statistics::default());

    let guard = client.request(OBJECT).label(longest.as_str()).acquire().await;
    let guard = guard.expect("the label is short enough");
    let seen = client.contenders(OBJECT).await.expect("the store answers");
    assert_eq!(seen[0].owner.label(), Some(longest.as_str()));
    let before = client.statistics();
    let error = client.revoke(OBJECT, &seen[0], &too_long).await.expect_err("it is too long");
    let TableError::Option(InvalidOption::ReasonTooLong { .. }) = error else {
        panic!("another error came: {error:?}");
    };
    assert_eq!(client.statistics(), before);
    client.revoke(OBJECT, &seen[0], &longest).await.expect("the reason is short enough");
    let reason = guard.expiring().await.expect("it is revoked").to_string();
    assert!(reason.contains(&longest), "{reason}");
}

// Goal: nobody but the registry takes its lock, and everybody sees it.
// Method: ask for it in each way; then add a host, which takes it.
#[tokio::test(start_paused = true)]
async fn lock_of_the_registry_is_refused() {
    const REGISTRY: &str = "bakery-lock::hosts";
    let store = store();
    let client = client(&store, "a").await;
    let errors = [
        client.lock(REGISTRY).await.expect_err("it is refused"),
        client.try_lock(REGISTRY).await.expect_err("it is refused"),
        client.lock_all([OBJECT, REGISTRY]).await.expect_err("it is refused"),
        client.election(REGISTRY).campaign().await.expect_err("it is refused"),
    ];
    for error in errors {
        assert!(matches!(error, LockError::Option(InvalidOption::ReservedName)), "{error:?}");
        let text = error.to_string();
        assert!(text.contains(REGISTRY) && text.contains("use another name"), "{text}");
    }
    assert_eq!(client.statistics(), Statistics::default());
    assert_eq!(client.contenders(REGISTRY).await.expect("the store answers"), []);
    super::client(&store, "b").await;
}
