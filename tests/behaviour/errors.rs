//! What programs do about errors.

use std::error::Error;

use bakery_lock::hosts::RegistryError;
use bakery_lock::testing::Fault;
use bakery_lock::{BuildError, DatabaseError, InvalidOption, LostReason};

use super::{OBJECT, client, s, store};

/// The first error of the chain that is of this type.
fn source_of<'a, T: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a T> {
    let mut chain =
        std::iter::successors(Some(error), |&error: &&'a (dyn Error + 'static)| error.source());
    chain.find_map(|error| error.downcast_ref())
}

// Goal: an error says whether a retry may help, or whether something must be corrected first.
// Method: one of each kind.
#[tokio::test(start_paused = true)]
async fn errors_say_what_to_do_next() {
    let store = store();
    let (holder, other) = (client(&store, "holder").await, client(&store, "other").await);
    let held = holder.lock(OBJECT).await.expect("the lock is free");
    let late = other.lock(OBJECT).await.expect_err("it is held");
    assert!(late.is_timeout() && late.is_retryable(), "{late:?}");
    assert!(!late.is_lost() && !late.is_misconfigured(), "{late:?}");

    let wrong = other.request(OBJECT).ttl(s(1)).acquire().await.expect_err("it is too short");
    assert!(wrong.is_misconfigured(), "{wrong:?}");
    assert!(!wrong.is_timeout() && !wrong.is_retryable() && !wrong.is_lost(), "{wrong:?}");

    store.lose_rows(OBJECT);
    let reason = held.lost().await.expect("its rows are gone");
    assert_eq!(reason, LostReason::RowMissing);
    let lost = held.ensure(s(1)).await.expect_err("it is lost");
    assert!(lost.is_lost() && !lost.is_retryable(), "{lost:?}");
    let lost = held.fencing_token().await.expect_err("it is lost");
    assert!(lost.is_lost() && lost.to_string().contains(OBJECT), "{lost}");
    let lost = held.unlock().await.expect_err("it is lost");
    assert!(lost.is_lost() && lost.to_string().contains(OBJECT), "{lost}");

    store.fail_next(usize::MAX, Fault::Refused);
    let refused = other.contenders(OBJECT).await.expect_err("the store refuses");
    assert!(refused.is_misconfigured() && !refused.is_retryable(), "{refused:?}");
    store.fail_next(usize::MAX, Fault::NotApplied);
    let silent = other.contenders(OBJECT).await.expect_err("the store fails");
    assert!(silent.is_timeout() && silent.is_retryable(), "{silent:?}");
}

// Goal: programs find the cause of an error by its type.
// Method: walk the chain of sources of errors with causes of several depths.
#[tokio::test(start_paused = true)]
async fn causes_are_found_in_the_chain() {
    let store = store();
    let client = client(&store, "a").await;
    let wrong = client.request("").acquire().await.expect_err("the name is empty");
    assert_eq!(source_of::<InvalidOption>(&wrong), Some(&InvalidOption::EmptyName));
    assert_eq!(wrong.to_string(), InvalidOption::EmptyName.to_string());

    store.fail_next(usize::MAX, Fault::Refused);
    let refused = client.lock(OBJECT).await.expect_err("the store refuses");
    assert!(source_of::<DatabaseError>(&refused).is_some_and(DatabaseError::is_permanent));
    let unbuilt = store.client_builder().host("b").build().await.expect_err("the store refuses");
    assert!(matches!(unbuilt, BuildError::Registry(_)), "{unbuilt:?}");
    assert!(unbuilt.is_misconfigured(), "{unbuilt:?}");
    assert!(source_of::<RegistryError>(&unbuilt).is_some());
    assert!(source_of::<DatabaseError>(&unbuilt).is_some());
    store.fail_next(0, Fault::Refused);

    let guard = client.lock(OBJECT).await.expect("the lock is free");
    store.lose_rows(OBJECT);
    guard.lost().await;
    let lost = anyhow::Error::from(guard.unlock().await.expect_err("it is lost"));
    let reason = lost.chain().find_map(|cause| cause.downcast_ref::<LostReason>());
    assert_eq!(reason, Some(&LostReason::RowMissing));
}
