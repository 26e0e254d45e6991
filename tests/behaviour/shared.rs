//! Locks that several share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bakery_lock::{InvalidOption, LockClient, LockError, LockGuard, LockMode, LostReason};
use rand::Rng;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};

use super::chance::chance;
use super::{OBJECT, SOON, client, expect_rows, ms, s, store};

async fn share(client: &LockClient) -> LockGuard {
    let request = client.request(OBJECT).shared().timeout(s(600));
    request.acquire().await.expect("each caller is served")
}

/// A caller that asks now.
async fn asks(client: &LockClient, shared: bool) -> JoinHandle<LockGuard> {
    let request = client.request(OBJECT).timeout(s(600));
    let request = if shared { request.shared() } else { request };
    let caller = tokio::spawn(async { request.acquire().await.expect("each caller is served") });
    tokio::task::yield_now().await;
    caller
}

async fn guard(caller: JoinHandle<LockGuard>) -> LockGuard {
    let guard = timeout(SOON, caller).await.expect("it is this caller's turn");
    guard.expect("it does not panic")
}

// Goal: callers of one client share its place, those of others have places of their own, and all
// hold at once.
// Method: share a lock twice in each of two clients; count rows, and what each costs.
#[tokio::test(start_paused = true)]
async fn many_share_a_lock() {
    let store = store();
    let (one, other) = (client(&store, "one").await, client(&store, "other").await);
    let first = share(&one).await;
    let before = one.statistics();
    let second = share(&one).await;
    let third = one.request(OBJECT).shared().try_acquire().await.expect("it is answered");
    let third = third.expect("it joins those that share");
    let now = one.statistics();
    assert_eq!((now.writes, now.object_reads), (before.writes, before.object_reads));
    expect_rows(&store, 1).await;
    let theirs = share(&other).await;
    expect_rows(&store, 2).await;
    let contenders = one.contenders(OBJECT).await.expect("it is answered");
    assert!(contenders.iter().all(|seen| seen.mode == Some(LockMode::Shared)), "{contenders:?}");

    sleep(s(120)).await;
    for guard in [&first, &second, &third, &theirs] {
        assert!(guard.state().is_held(), "it is renewed: {guard:?}");
    }
    for alone in [&one, &other] {
        let attempt = alone.try_lock(OBJECT).await.expect("it is answered");
        assert!(attempt.is_none(), "one alone waits for all");
    }
    for guard in [second, first, third] {
        expect_rows(&store, 2).await;
        guard.unlock().await.expect("it was held");
    }
    expect_rows(&store, 1).await;
    theirs.unlock().await.expect("it was held");
    expect_rows(&store, 0).await;
}

// Goal: in one client all are served in the order in which they came, alone or together.
// Method: one that wants the lock alone comes between others that share it.
#[tokio::test(start_paused = true)]
async fn one_alone_has_its_turn_in_the_line() {
    let store = store();
    let client = client(&store, "one").await;
    let (first, second) = (share(&client).await, share(&client).await);
    let alone = asks(&client, false).await;
    let (third, fourth) = (asks(&client, true).await, asks(&client, true).await);
    first.unlock().await.expect("it was held");
    sleep(s(5)).await;
    assert!(!alone.is_finished() && !third.is_finished() && !fourth.is_finished());
    second.unlock().await.expect("it was held");
    let alone = guard(alone).await;
    sleep(s(5)).await;
    assert!(!third.is_finished() && !fourth.is_finished());
    alone.unlock().await.expect("it was held");
    let (third, fourth) = (guard(third).await, guard(fourth).await);
    for guard in [third, fourth] {
        guard.unlock().await.expect("it was held");
    }
    expect_rows(&store, 0).await;
}

// Goal: readers that come without a pause keep out no writer of another client for long, and a
// writer that gives up keeps out no reader for long, while another reader stays.
// Method: readers of one client overlap each other; a writer of another client waits, holds, and
// comes again while a reader stays for a minute.
#[tokio::test(start_paused = true)]
async fn writer_waits_for_the_readers_ahead_alone() {
    const STAY: Duration = ms(200);
    let store = store();
    let (readers, writer) = (client(&store, "readers").await, client(&store, "writer").await);
    let mut busy = JoinSet::new();
    for reader in 0..4 {
        let readers = readers.clone();
        busy.spawn(async move {
            sleep(ms(50) * reader).await;
            loop {
                let guard = share(&readers).await;
                sleep(STAY).await;
                guard.unlock().await.expect("it was held");
            }
        });
    }
    sleep(s(1)).await;
    for _ in 0..5 {
        let began = Instant::now();
        let guard = writer.lock(OBJECT).await.expect("it is served");
        let waited = began.elapsed();
        // One that reads looks for writers every 50 ms at most, and a reader may begin 100 ms
        // later.
        assert!(waited < ms(50) + ms(100) + STAY + ms(100), "{waited:?}");
        guard.unlock().await.expect("it was held");
        sleep(s(1)).await;
    }

    let stays = share(&readers).await;
    let attempt = writer.request(OBJECT).timeout(s(1)).acquire().await;
    assert!(matches!(attempt, Err(LockError::TimedOut { .. })), "{attempt:?}");
    let began = Instant::now();
    share(&readers).await.unlock().await.expect("it was held");
    assert!(began.elapsed() < ms(300), "{:?}", began.elapsed());
    busy.shutdown().await;
    stays.unlock().await.expect("it was held");
    expect_rows(&store, 0).await;
}

// Goal: each of those that share a lock has its own limits, and its end is not that of the others.
// Method: one is not renewed, one has a hold limit, one is revoked with the rest.
#[tokio::test(start_paused = true)]
async fn each_that_shares_has_limits_of_its_own() {
    let store = store();
    let (one, other) = (client(&store, "one").await, client(&store, "other").await);
    let unrenewed = one.request(OBJECT).shared().auto_renew(false).acquire().await;
    let unrenewed = unrenewed.expect("the lock is free");
    let short = one.request(OBJECT).shared().max_hold(s(10)).max_hold_grace(s(1)).acquire().await;
    let (short, stays) = (short.expect("it is shared"), share(&one).await);
    sleep(s(12)).await;
    assert_eq!(short.lost().await, Some(LostReason::HoldLimit));
    assert!(unrenewed.state().is_held() && stays.state().is_held());
    assert_eq!(timeout(s(60), unrenewed.lost()).await, Ok(Some(LostReason::Expired)));
    sleep(s(60)).await;
    assert!(stays.state().is_held(), "{:?}", stays.state());
    drop((unrenewed, short));

    let second = share(&one).await;
    let contenders = other.contenders(OBJECT).await.expect("it is answered");
    let revoked = other.revoke(OBJECT, &contenders[0], "they read for too long").await;
    revoked.expect("it is asked to leave");
    for guard in [&stays, &second] {
        let lost = timeout(s(60), guard.lost()).await.expect("it learns of it");
        assert!(matches!(lost, Some(LostReason::Revoked { .. })), "{lost:?}");
    }
    expect_rows(&store, 0).await;
}

// Goal: one that is not renewed gives its place back when it ends, unless others keep it.
// Method: share a lock without a renewal, after another one that was renewed has left.
#[tokio::test(start_paused = true)]
async fn place_is_renewed_for_those_that_want_it() {
    let store = store();
    let client = client(&store, "one").await;
    let renewed = share(&client).await;
    let unrenewed = client.request(OBJECT).shared().auto_renew(false).acquire().await;
    let unrenewed = unrenewed.expect("it is shared");
    renewed.unlock().await.expect("it was held");
    let writes = client.statistics().writes;
    assert_eq!(timeout(s(60), unrenewed.lost()).await, Ok(Some(LostReason::Expired)));
    assert_eq!(client.statistics().writes, writes, "none wanted a renewal");
    timeout(s(5), expect_rows(&store, 0)).await.expect("the rows are deleted");
}

// Goal: all that share a lock have the token of the last one that held it alone, and the next one
// alone has a later one.
// Method: draw tokens of each.
#[tokio::test(start_paused = true)]
async fn sharers_have_one_token() {
    let store = store();
    let client = client(&store, "one").await;
    let alone = client.lock(OBJECT).await.expect("the lock is free");
    let first = alone.fencing_token().await.expect("it is held");
    alone.unlock().await.expect("it was held");
    let (one, other) = (share(&client).await, share(&client).await);
    for guard in [&one, &other] {
        assert_eq!(guard.fencing_token().await.expect("it is held"), first);
    }
    drop((one, other));
    let alone = client.lock(OBJECT).await.expect("the others have left");
    assert!(alone.fencing_token().await.expect("it is held") > first);
}

// Goal: a writer that yields keeps out no reader, has no rows meanwhile and reads seldom; it is
// served once no reader is there, or waits like any other after its limit.
// Method: readers come and go without a gap, then with one; writers yield for ever, for a while,
// until their timeout, and as a try.
#[tokio::test(start_paused = true)]
async fn writer_that_yields_waits_until_none_reads() {
    let store = store();
    let (readers, writer) = (client(&store, "readers").await, client(&store, "writer").await);
    let patient = |limit| writer.request(OBJECT).yield_to_shared(limit).timeout(s(600));
    let free = patient(Duration::MAX).acquire().await.expect("the lock is free");
    free.unlock().await.expect("it was held");

    let mut reader = share(&readers).await;
    let before = writer.statistics();
    let waiting = tokio::spawn(patient(Duration::MAX).acquire());
    for _ in 0..60 {
        sleep(s(1)).await;
        let began = Instant::now();
        let next = share(&readers).await;
        // Once a minute the host's registration is read.
        assert!(began.elapsed() < ms(5), "it joins the other one");
        expect_rows(&store, 1).await;
        reader.unlock().await.expect("it was held");
        reader = next;
    }
    let now = writer.statistics();
    assert_eq!(now.writes, before.writes);
    let reads = now.object_reads - before.object_reads;
    assert!((50..150).contains(&reads), "{reads} reads in a minute");

    let attempt = patient(s(1)).try_acquire().await.expect("it is answered");
    assert!(attempt.is_none(), "another one reads");
    let began = Instant::now();
    let error = patient(Duration::MAX).timeout(s(3)).acquire().await;
    let Err(LockError::TimedOut { ahead, .. }) = error else { panic!("{error:?}") };
    assert_eq!(ahead.len(), 1, "{ahead:?}");
    assert_eq!(began.elapsed(), s(3));

    let hard = tokio::spawn(patient(s(2)).acquire());
    sleep(s(3)).await;
    // The one that joins makes its client look, and 100 ms later none joins any more.
    drop(share(&readers).await);
    sleep(ms(200)).await;
    let behind = asks(&readers, true).await;
    sleep(s(1)).await;
    assert!(!behind.is_finished(), "the one that waits in line is ahead");
    reader.unlock().await.expect("it was held");
    let hard = timeout(s(2), hard).await.expect("it is next").expect("it does not panic");
    hard.expect("the lock is free").unlock().await.expect("it was held");
    guard(behind).await.unlock().await.expect("it was held");
    let waiting = timeout(s(2), waiting).await.expect("none reads").expect("it does not panic");
    waiting.expect("the lock is free").unlock().await.expect("it was held");
    expect_rows(&store, 0).await;
}

// Goal: a lock is shared or limited, and who shares it does not yield; the error says so before
// anything is written.
// Method: ask for both.
#[tokio::test(start_paused = true)]
async fn contradictory_options_are_refused() {
    let store = store();
    let client = client(&store, "one").await;
    let writes = client.statistics().writes;
    let request = || client.request(OBJECT);
    for (request, expected) in [
        (request().shared().max_holders(2), InvalidOption::SharedAndLimited),
        (request().shared().yield_to_shared(s(1)), InvalidOption::YieldsWithOthers),
        (request().max_holders(2).yield_to_shared(s(1)), InvalidOption::YieldsWithOthers),
    ] {
        let error = request.acquire().await;
        assert!(matches!(&error, Err(LockError::Option(it)) if *it == expected), "{error:?}");
    }
    assert_eq!(client.statistics().writes, writes);
}

// Goal: whatever callers want, how long they stay and whether they give up, one alone is alone, all
// are served, and no row is left.
// Method: a hundred callers of three clients by chance.
#[tokio::test(start_paused = true)]
async fn readers_and_writers_by_chance() {
    const CALLERS: usize = 33;
    let store = store();
    let (readers, writers) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let together = Arc::new(AtomicUsize::new(0));
    let mut callers = JoinSet::new();
    for host in ["one", "two", "three"] {
        let client = client(&store, host).await;
        for _ in 0..CALLERS {
            let (client, mut rng) = (client.clone(), chance());
            let (readers, writers) = (Arc::clone(&readers), Arc::clone(&writers));
            let together = Arc::clone(&together);
            callers.spawn(async move {
                for _ in 0..10 {
                    sleep(ms(rng.random_range(0..500))).await;
                    let shared = rng.random_bool(0.8);
                    let request = client.request(OBJECT).timeout(s(600));
                    let request = if shared { request.shared() } else { request };
                    let request = request.auto_renew(rng.random_bool(0.9));
                    if rng.random_bool(0.2) {
                        let patience = ms(rng.random_range(1..500));
                        drop(timeout(patience, request.acquire()).await);
                        continue;
                    }
                    let guard = request.acquire().await.expect("each caller is served");
                    let mine = if shared { &readers } else { &writers };
                    let before = mine.fetch_add(1, Ordering::SeqCst);
                    let inside = (readers.load(Ordering::SeqCst), writers.load(Ordering::SeqCst));
                    assert!(matches!(inside, (_, 0) | (0, 1)), "{inside:?} are inside");
                    together.fetch_add(before, Ordering::SeqCst);
                    sleep(ms(rng.random_range(0..50))).await;
                    mine.fetch_sub(1, Ordering::SeqCst);
                    guard.unlock().await.expect("it was held");
                }
            });
        }
    }
    while let Some(caller) = callers.join_next().await {
        caller.expect("it does not panic");
    }
    assert!(together.load(Ordering::SeqCst) > 100, "{together:?} shared it");
    timeout(SOON, expect_rows(&store, 0)).await.expect("no row is left");
}
