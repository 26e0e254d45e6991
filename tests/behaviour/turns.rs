//! The callers of one client use its place in the table in turn.

use std::time::Duration;

use bakery_lock::testing::{Fault, FaultyStore};
use bakery_lock::{ExpiringReason, LockClient, LockGuard, LostReason, Statistics, UnlockError};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::chance::exchanges;
use super::{OBJECT, SOON, client, expect_rows, ms, s, store};

/// A caller that asks now, and waits as long as it takes.
async fn caller(client: &LockClient) -> JoinHandle<LockGuard> {
    let request = client.request(OBJECT).timeout(s(600));
    let caller = tokio::spawn(async { request.acquire().await.expect("each has its turn") });
    tokio::task::yield_now().await;
    caller
}

async fn guard(caller: JoinHandle<LockGuard>) -> LockGuard {
    let guard = timeout(SOON, caller).await.expect("it is this caller's turn");
    guard.expect("the task does not panic")
}

/// Operations since `before`, but for reads of one replica.
fn operations(client: &LockClient, before: Statistics) -> u64 {
    let of = |statistics: Statistics| statistics.operations() - statistics.one_replica_reads;
    of(client.statistics()) - of(before)
}

async fn client_without_turns(store: &FaultyStore, host: &str) -> LockClient {
    let builder = store.client_builder().host(host).local_handoff(false);
    builder.build().await.expect("a client in memory is built")
}

// Goal: a release passes the lock on to the next caller without any operation, and only the last
// one deletes the rows.
// Method: a hundred callers wait; count the operations, and the time of each release.
#[tokio::test(start_paused = true)]
async fn release_passes_the_lock_on_without_the_database() {
    let store = store();
    let client = client(&store, "a").await;
    let first = client.lock(OBJECT).await.expect("the lock is free");
    let before = client.statistics();
    let mut callers = Vec::new();
    for _ in 0..100 {
        callers.push(caller(&client).await);
    }
    let began = Instant::now();
    first.unlock().await.expect("the lock was held");
    let mut callers = callers.into_iter();
    let last = callers.next_back().expect("there are a hundred");
    for (i, next) in callers.enumerate() {
        let guard = guard(next).await;
        if i % 2 == 0 {
            guard.unlock().await.expect("the lock was held");
        }
    }
    assert_eq!((operations(&client, before), began.elapsed()), (0, Duration::ZERO));
    guard(last).await.unlock().await.expect("the lock was held");
    assert_eq!(operations(&client, before), 1);
    assert!((ms(1)..=ms(3)).contains(&began.elapsed()), "{:?}", began.elapsed());
    expect_rows(&store, 0).await;
}

// Goal: without turns, each caller goes through the table by itself.
// Method: a caller waits for another one of its client; count the operations.
#[tokio::test(start_paused = true)]
async fn without_turns_each_caller_has_a_place_of_its_own() {
    let store = store();
    let client = client_without_turns(&store, "a").await;
    let first = client.lock(OBJECT).await.expect("the lock is free");
    let before = client.statistics();
    let next = caller(&client).await;
    first.unlock().await.expect("the lock was held");
    guard(next).await.unlock().await.expect("the lock was held");
    let fast_path = if exchanges() { 1 } else { 2 };
    assert_eq!(operations(&client, before), 2 + fast_path, "both releases, and the fast path");
    expect_rows(&store, 0).await;
}

// Goal: a client that waits in the table is not overtaken for longer than the time until it is
// seen, a tenth of a second, and a turn.
// Method: a client with many callers, each of which holds for some time, keeps the lock busy; time
// how long the other one waits, for short turns and for long ones.
#[tokio::test(start_paused = true)]
async fn contender_in_the_table_is_not_overtaken_for_long() {
    for (turn, at_most) in [(ms(3), ms(50 + 100 + 3)), (ms(80), ms(100 + 2 * 80)), (s(2), s(4))] {
        let store = store();
        let (busy, other) = (client(&store, "busy").await, client(&store, "other").await);
        let tasks: Vec<_> = (0..8).map(|_| tokio::spawn(keep_busy(busy.clone(), turn))).collect();
        sleep(ms(500)).await;
        let asked = Instant::now();
        let guard = other.request(OBJECT).timeout(s(60)).acquire().await.expect("it is let in");
        let waited = asked.elapsed();
        // The doorway, and the time until the release is seen.
        assert!(waited < at_most + ms(20), "turns of {turn:?}: {waited:?}");
        // The line goes through the doorway again.
        sleep(ms(100)).await;
        let before = busy.statistics();
        guard.unlock().await.expect("the lock was held");
        sleep(s(10)).await;
        // All of it with one contender.
        if !exchanges() {
            assert_eq!(busy.statistics().writes, before.writes, "turns of {turn:?}");
        }
        for task in tasks {
            task.abort();
        }
    }
}

async fn keep_busy(client: LockClient, turn: Duration) {
    loop {
        let request = client.request(OBJECT).timeout(s(600));
        let guard = request.acquire().await.expect("each has its turn");
        sleep(turn).await;
        guard.unlock().await.expect("the lock was held");
    }
}

// Goal: the keeper reads one replica when it gives turns, every 50 ms at most, and a read that
// fails or takes long delays nothing.
// Method: count reads of one replica while turns are short, then long; fail all calls; slow them
// down.
#[tokio::test(start_paused = true)]
async fn reads_of_one_replica_are_few_and_delay_nothing() {
    let store = store();
    let client = client(&store, "a").await;
    let mut one_replica_reads = Vec::new();
    for (turn, turns) in [(ms(1), 1_000), (s(1), 4)] {
        let before = client.statistics().one_replica_reads;
        let tasks: Vec<_> = (0..8).map(|_| tokio::spawn(keep_busy(client.clone(), turn))).collect();
        sleep(turn * turns).await;
        one_replica_reads.push(client.statistics().one_replica_reads - before);
        tasks.iter().for_each(JoinHandle::abort);
        sleep(s(2)).await;
    }
    assert!(
        (15..=20).contains(&one_replica_reads[0]) && (3..=4).contains(&one_replica_reads[1]),
        "{one_replica_reads:?}"
    );

    let first = client.lock(OBJECT).await.expect("the lock is free");
    let (second, third) = (caller(&client).await, caller(&client).await);
    sleep(ms(60)).await;
    store.fail_next(usize::MAX, Fault::NotApplied);
    first.unlock().await.expect("the lock was held");
    let second = guard(second).await;
    sleep(ms(60)).await;
    store.fail_next(0, Fault::NotApplied);
    store.delay_calls(s(30));
    let before = Instant::now();
    second.unlock().await.expect("the lock was held");
    let third = guard(third).await;
    assert_eq!(before.elapsed(), Duration::ZERO);
    store.delay_calls(ms(1));
    third.unlock().await.expect("the lock was held");
}

// Goal: a place lives on the terms of its present turn: it is renewed on the TTL of the next one
// first, and when less than half of its lease is left.
// Method: callers with another TTL, and one that comes late; look at the lease, and count writes.
#[tokio::test(start_paused = true)]
async fn place_is_renewed_for_the_next_turn() {
    let store = store();
    let client = client(&store, "a").await;
    let first = client.lock(OBJECT).await.expect("the lock is free");
    let request = client.request(OBJECT).ttl(s(12));
    let shorter = tokio::spawn(async { request.acquire().await.expect("it has its turn") });
    let request = client.request(OBJECT).auto_renew(false).timeout(s(600));
    let not_renewed = tokio::spawn(async { request.acquire().await.expect("it has its turn") });
    sleep(ms(1)).await;
    let before = client.statistics();
    let released = Instant::now();
    first.unlock().await.expect("the lock was held");
    assert_eq!(released.elapsed(), Duration::ZERO, "a release waits for no renewal");
    let shorter = guard(shorter).await;
    assert_eq!(client.statistics().writes, before.writes + 1);
    assert!((s(10) - ms(5)..=s(10)).contains(&shorter.remaining()), "{:?}", shorter.remaining());
    shorter.unlock().await.expect("the lock was held");
    let not_renewed = guard(not_renewed).await;
    assert_eq!(client.statistics().writes, before.writes + 2);
    // It is not renewed for itself, and for the next one it is.
    sleep(s(40)).await;
    assert_eq!(client.statistics().writes, before.writes + 2);
    assert!(not_renewed.remaining() < s(18), "{:?}", not_renewed.remaining());
    let last = caller(&client).await;
    not_renewed.unlock().await.expect("the lock was held");
    let last = guard(last).await;
    assert_eq!(client.statistics().writes, before.writes + 3);
    assert!(last.remaining() > s(57), "{:?}", last.remaining());
    // And it is renewed as long as it lasts.
    sleep(s(120)).await;
    last.unlock().await.expect("the lock was held");
}

// Goal: a hold limit ends a turn, not the place.
// Method: a caller holds for too long while another one waits; count operations.
#[tokio::test(start_paused = true)]
async fn hold_limit_ends_the_turn_alone() {
    let store = store();
    let client = client(&store, "a").await;
    let request = client.request(OBJECT).max_hold(s(1)).max_hold_grace(s(1));
    let first = request.acquire().await.expect("the lock is free");
    let next = caller(&client).await;
    let before = client.statistics();
    assert_eq!(first.lost().await, Some(LostReason::HoldLimit));
    let next = guard(next).await;
    assert_eq!(operations(&client, before), 0);
    assert!(next.remaining() > s(50), "{:?}", next.remaining());
    let error = first.unlock().await.expect_err("it was lost");
    assert!(matches!(error, UnlockError::Lost { reason: LostReason::HoldLimit, .. }), "{error:?}");
    next.unlock().await.expect("the lock was held");
}

// Goal: tokens grow from turn to turn, and a turn that is over gets none.
// Method: each of a line of callers draws two tokens; one lets a draw continue and releases.
#[tokio::test(start_paused = true)]
async fn tokens_grow_from_turn_to_turn() {
    let store = store();
    let client = client(&store, "a").await;
    let mut callers = Vec::new();
    for _ in 0..5 {
        callers.push(caller(&client).await);
    }
    let mut last = None;
    for caller in callers {
        let guard = guard(caller).await;
        for _ in 0..2 {
            let token = guard.fencing_token().await.expect("the lock is held");
            assert!(Some(token) > last, "{token:?} after {last:?}");
            last = Some(token);
        }
        assert!(timeout(ms(1), guard.fencing_token()).await.is_err(), "a draw takes longer");
        guard.unlock().await.expect("the lock was held");
    }
}

// Goal: no turn follows the present one of a place that is revoked; the line comes in again behind
// those that wait.
// Method: an operator revokes a holder behind which a caller of its client waits, and then another
// client.
#[tokio::test(start_paused = true)]
async fn revoked_place_has_no_other_turn() {
    let store = store();
    let (client, other) = (client(&store, "a").await, client(&store, "b").await);
    let first = client.lock(OBJECT).await.expect("the lock is free");
    let next = caller(&client).await;
    let holder = other.contenders(OBJECT).await.expect("the store answers").remove(0);
    other.revoke(OBJECT, &holder, "it hangs").await.expect("the store answers");
    let between = caller(&other).await;
    let asked = timeout(s(25), first.expiring()).await.expect("it reads its rows by then");
    assert!(matches!(asked, Some(ExpiringReason::Revoked { .. })), "{asked:?}");
    first.unlock().await.expect("it is held");
    let between = timeout(s(5), between).await.expect("the place is released");
    let between = between.expect("the task does not panic");
    assert!(!next.is_finished(), "a turn was given of a revoked place");
    between.unlock().await.expect("it is held");
    let next = timeout(s(5), next).await.expect("no other client waits");
    let next = next.expect("the task does not panic");
    assert!(next.fencing_token().await.is_ok());
    next.unlock().await.expect("the lock was held");
    expect_rows(&store, 0).await;
}

// Goal: others see whose turn it is from the next renewal on.
// Method: callers with labels; another client asks who holds.
#[tokio::test(start_paused = true)]
async fn rows_show_whose_turn_it_is_from_the_next_renewal_on() {
    let store = store();
    let (client, other) = (client(&store, "a").await, client(&store, "b").await);
    let labelled = |label: &str| client.request(OBJECT).label(label).timeout(s(600));
    let first = labelled("first").acquire().await.expect("the lock is free");
    let request = labelled("second");
    let second = tokio::spawn(async { request.acquire().await.expect("it has its turn") });
    sleep(ms(1)).await;
    first.unlock().await.expect("the lock was held");
    let second = guard(second).await;
    sleep(s(21)).await;
    let holder = other.contenders(OBJECT).await.expect("the store answers").remove(0);
    assert!(holder.owner.label() == Some("second"), "{holder:?}");
    second.unlock().await.expect("the lock was held");
}

// Goal: a try takes a turn only if no caller of its client has the lock or waits for it.
// Method: try while the lock is held, and while it is being released.
#[tokio::test(start_paused = true)]
async fn try_does_not_wait_in_the_line() {
    let store = store();
    let client = client(&store, "a").await;
    let first = client.lock(OBJECT).await.expect("the lock is free");
    let next = caller(&client).await;
    let asked = Instant::now();
    assert!(client.try_lock(OBJECT).await.expect("the store answers").is_none());
    first.unlock().await.expect("the lock was held");
    assert!(client.try_lock(OBJECT).await.expect("the store answers").is_none());
    assert_eq!(asked.elapsed(), Duration::ZERO);
    drop(guard(next).await);
    let last = client.try_lock(OBJECT).await.expect("the store answers");
    last.expect("no other caller wants it").unlock().await.expect("the lock was held");
}

// Goal: a long line of callers that left at once costs neither the lock nor the next caller.
// Method: 10,000 of 10,001 callers are dropped in one moment, while the lock is held and as it is
// released.
#[tokio::test(start_paused = true)]
async fn line_of_dropped_callers_is_passed_over() {
    for release_first in [false, true] {
        let store = store();
        let client = client(&store, "a").await;
        let mut held = Some(client.lock(OBJECT).await.expect("the lock is free"));
        let mut left = Vec::new();
        for _ in 0..10_000 {
            left.push(caller(&client).await);
        }
        let last = caller(&client).await;
        if release_first {
            drop(held.take());
        }
        left.iter().for_each(JoinHandle::abort);
        drop(left);
        drop(held.take());
        let guard = guard(last).await;
        guard.unlock().await.expect("the lock was held");
        expect_rows(&store, 0).await;
    }
}
