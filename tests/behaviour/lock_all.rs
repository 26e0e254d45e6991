//! Several locks at once: all or none of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bakery_lock::testing::{Fault, FaultyStore};
use bakery_lock::{
    GuardState, InvalidOption, LockClient, LockError, LostReason, MultiGuard, UnlockError,
};
use rand::Rng;
use rand::seq::IndexedRandom;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::chance::chance;
use super::{SOON, client, ms, s, store};

const ACCOUNTS: [&str; 4] = ["accounts::1", "accounts::10", "accounts::2", "accounts::é"];

/// The rows of all accounts.
fn rows(store: &FaultyStore) -> usize {
    ACCOUNTS.iter().map(|account| store.live_rows(account)).sum()
}

async fn expect_no_rows(store: &FaultyStore) {
    let gone = async {
        while rows(store) > 0 {
            sleep(ms(1)).await;
        }
    };
    timeout(SOON, gone).await.expect("no row is left");
}

async fn lock(client: &LockClient, names: &[&str]) -> MultiGuard {
    client.lock_all(names.iter().copied()).await.expect("the locks are free")
}

// Goal: all are held, in the order of their bytes, and all are given back.
// Method: name them in another order; unlock once, and drop once.
#[tokio::test(start_paused = true)]
async fn all_are_held_or_none() {
    let store = store();
    let (client, other) = (client(&store, "holder").await, client(&store, "other").await);
    for drops in [false, true] {
        let names = [ACCOUNTS[2], ACCOUNTS[0], ACCOUNTS[3], ACCOUNTS[1]];
        let guard = lock(&client, &names).await;
        let held: Vec<_> = guard.guards().iter().map(|guard| guard.name().to_owned()).collect();
        assert_eq!(held, ACCOUNTS);
        assert!(guard.state().is_held() && guard.remaining() > s(50), "{guard:?}");
        assert_eq!(guard.get(ACCOUNTS[3]).map(|guard| guard.name()), Some(ACCOUNTS[3]));
        assert!(guard.get("accounts::3").is_none());
        for account in ACCOUNTS {
            let taken = other.try_lock(account).await.expect("the database answers");
            assert!(taken.is_none(), "{account} is held");
        }
        let lost = guard.lost();
        if drops {
            drop(guard);
        } else {
            guard.unlock().await.expect("the locks were held");
            assert_eq!(rows(&store), 0);
        }
        assert_eq!(lost.await, None, "they were given back");
        expect_no_rows(&store).await;
    }
}

// Goal: a call that fails holds nothing and leaves nothing, within one timeout for all.
// Method: the last name is held by another client, and the first ones come late.
#[tokio::test(start_paused = true)]
async fn failed_call_leaves_nothing() {
    let store = store();
    let (client, other) = (client(&store, "holder").await, client(&store, "other").await);
    let first = other.lock(ACCOUNTS[0]).await.expect("the lock is free");
    let last = other.lock(ACCOUNTS[3]).await.expect("the lock is free");
    let began = Instant::now();
    let request = client.request_all(ACCOUNTS).timeout(s(3)).label("transfer 42");
    let asking = tokio::spawn(request.acquire());
    sleep(s(2)).await;
    first.unlock().await.expect("the lock was held");
    sleep(ms(500)).await;
    assert_eq!(rows(&store), 1 + 1 + 1 + 2, "it holds three, and waits for the last one");
    let error = asking.await.expect("it does not panic").expect_err("the last one is held");
    let LockError::TimedOut { name, waited, ahead, .. } = error else {
        panic!("{error:?}");
    };
    assert_eq!((name.as_str(), ahead.len()), (ACCOUNTS[3], 1));
    assert!((s(3)..s(3) + SOON).contains(&waited), "{waited:?}");
    assert!((s(3)..s(3) + SOON).contains(&began.elapsed()), "{:?}", began.elapsed());
    last.unlock().await.expect("the lock was held");
    expect_no_rows(&store).await;
}

// Goal: what can't be locked is refused before anything is written.
// Method: no name, a name twice, an empty one, and options that do not fit.
#[tokio::test(start_paused = true)]
async fn bad_requests_are_refused_first() {
    let store = store();
    let client = client(&store, "holder").await;
    let refused = async |names: &[&str]| match client.lock_all(names.iter().copied()).await {
        Err(LockError::Option(option)) => option,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(&[]).await, InvalidOption::NoNames);
    let name = "b".to_owned();
    assert_eq!(refused(&["b", "a", "b"]).await, InvalidOption::NameTwice { name });
    assert_eq!(refused(&["a", ""]).await, InvalidOption::EmptyName);
    let written = client.statistics().writes;
    for request in [
        client.request_all(ACCOUNTS).timeout(s(0)),
        client.request_all(ACCOUNTS).ttl(ms(5_500)),
        client.request_all(ACCOUNTS).max_hold_grace(s(1)),
        client.request_all(ACCOUNTS).max_hold(s(0)),
    ] {
        let error = request.acquire().await.expect_err("it is refused");
        assert!(matches!(error, LockError::Option(_)), "{error:?}");
    }
    assert_eq!((client.statistics().writes, rows(&store)), (written, 0));
}

// Goal: one lock that is lost is told as the state of all, and ends a call that still waits.
// Method: lose its rows; in a guard, and while the next lock is waited for.
#[tokio::test(start_paused = true)]
async fn one_that_is_lost_counts_for_all() {
    let store = store();
    let (client, other) = (client(&store, "holder").await, client(&store, "other").await);
    let guard = lock(&client, &ACCOUNTS).await;
    guard.ensure(s(50)).await.expect("all are held");
    store.lose_rows(ACCOUNTS[1]);
    let reason = timeout(s(30), guard.lost()).await.expect("a renewal finds it");
    assert_eq!(reason, Some(LostReason::RowMissing));
    assert_eq!(guard.state(), GuardState::Lost(LostReason::RowMissing));
    assert_eq!(guard.remaining(), s(0));
    assert!(guard.guards()[0].state().is_held(), "the others are held");
    guard.ensure(s(1)).await.expect_err("one is lost");
    guard.unlock().await.expect_err("one is lost");
    expect_no_rows(&store).await;

    let held = other.lock(ACCOUNTS[3]).await.expect("the lock is free");
    let asking = tokio::spawn(client.request_all(ACCOUNTS).timeout(s(300)).acquire());
    sleep(s(1)).await;
    store.lose_rows(ACCOUNTS[0]);
    let error = timeout(s(30), asking).await.expect("it does not wait on");
    let error = error.expect("it does not panic").expect_err("one is lost");
    let LockError::Lost { name, reason: LostReason::RowMissing, .. } = error else {
        panic!("{error:?}");
    };
    assert_eq!(name, ACCOUNTS[0]);
    held.unlock().await.expect("the lock was held");
    expect_no_rows(&store).await;
}

// Goal: a dropped call leaves nothing, wherever it stands.
// Method: drop it after each millisecond of its way.
#[tokio::test(start_paused = true)]
async fn dropped_call_leaves_nothing() {
    let store = store();
    let client = client(&store, "holder").await;
    let mut dropped = 0;
    for patience in 0.. {
        if let Ok(guard) = timeout(ms(patience), client.lock_all(ACCOUNTS)).await {
            guard.expect("the locks are free").unlock().await.expect("the locks were held");
            break;
        }
        dropped += 1;
        expect_no_rows(&store).await;
    }
    assert!(dropped > 4, "dropped {dropped} times: at least once for each lock");
}

// Goal: callers that want overlapping sets do not wait for each other in a circle, and no two hold
// one name.
// Method: tasks of four clients lock random sets in random order, all at once.
#[tokio::test(start_paused = true)]
async fn overlapping_sets_do_not_wait_in_a_circle() {
    let store = store();
    let inside: Arc<[AtomicBool; 4]> = Arc::default();
    let mut tasks = JoinSet::new();
    for number in 0..8 {
        let client = client(&store, &format!("host{}", number % 4)).await;
        let (inside, mut rng) = (Arc::clone(&inside), chance());
        tasks.spawn(async move {
            for _ in 0..30 {
                let some = rng.random_range(1..=ACCOUNTS.len());
                let places: Vec<_> =
                    [0, 1, 2, 3].choose_multiple(&mut rng, some).copied().collect();
                let names = places.iter().map(|place| ACCOUNTS[*place]);
                let request = client.request_all(names).timeout(s(600));
                let guard = request.acquire().await.expect("each call is served");
                for place in &places {
                    assert!(!inside[*place].swap(true, Ordering::SeqCst), "two hold {place}");
                }
                sleep(ms(rng.random_range(0..5))).await;
                for place in &places {
                    inside[*place].store(false, Ordering::SeqCst);
                }
                guard.unlock().await.expect("the locks were held");
            }
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.expect("it does not panic");
    }
    expect_no_rows(&store).await;
}

// Goal: the releases of many locks take no longer than that of one, also with the database down.
// Method: no call succeeds while ten locks are released.
#[tokio::test(start_paused = true)]
async fn many_locks_are_released_within_one_timeout() {
    let store = store();
    let builder = store.client_builder().host("holder").acquire_timeout(s(5));
    let client = builder.build().await.expect("a client in memory is built");
    let names: Vec<_> = (0..10).map(|number| format!("accounts::{number}")).collect();
    let guard = client.lock_all(names.iter().map(String::as_str)).await;
    let guard = guard.expect("the locks are free");
    store.fail_next(usize::MAX, Fault::NotApplied);
    let began = Instant::now();
    let error = guard.unlock().await.expect_err("the database is down");
    assert!(matches!(error, UnlockError::Unacknowledged { .. }), "{error:?}");
    assert_eq!(began.elapsed(), s(5));
}

// Goal: a try of several locks gets all of them or none, and waits for none.
// Method: one of them is held by another client, and then by none.
#[tokio::test(start_paused = true)]
async fn try_gets_all_or_none() {
    let store = store();
    let (holder, other) = (client(&store, "holder").await, client(&store, "other").await);
    let held = holder.lock("accounts::2").await.expect("the lock is free");
    let names = ["accounts::1", "accounts::2"];
    let tried = other.request_all(names).try_acquire().await.expect("the store answers");
    assert!(tried.is_none(), "{tried:?}");
    held.unlock().await.expect("it was held");
    expect_no_rows(&store).await;
    let tried = other.request_all(names).try_acquire().await.expect("the store answers");
    tried.expect("both are free").unlock().await.expect("they were held");
}

// Goal: of several locks some are shared with others.
// Method: two callers share one of their names and hold another one each.
#[tokio::test(start_paused = true)]
async fn some_of_the_locks_are_shared() {
    let store = store();
    let (one, other) = (client(&store, "one").await, client(&store, "other").await);
    let with = |client: &LockClient, name: &str| {
        client.request_all([name]).and_shared(["accounts::all"]).try_acquire()
    };
    let first = with(&one, "accounts::1").await.expect("the store answers");
    let second = with(&other, "accounts::2").await.expect("the store answers");
    assert!(first.is_some() && second.is_some());
    let third = with(&other, "accounts::1").await.expect("the store answers");
    assert!(third.is_none(), "{third:?}");
    let alone = other.try_lock("accounts::all").await.expect("the store answers");
    assert!(alone.is_none(), "{alone:?}");
    drop((first, second));
    expect_no_rows(&store).await;
}
