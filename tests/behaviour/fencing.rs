//! Fencing tokens: they grow from holder to holder, and only holders get them.

use std::sync::Arc;
use std::time::Duration;

use bakery_lock::testing::{Fault, FaultyStore};
use bakery_lock::{
    FenceGate, FencingError, FencingToken, GuardState, LockGuard, LostReason, Outcome,
};
use tokio::time::{Instant, sleep};

use super::{OBJECT, SOON, client, client_on_the_wall, ms, runtime_on_the_wall, s, seeded, store};
use support::pace;
use support::polls::poll_at_most;

/// The shortest TTL.
const TTL: Duration = s(5);

// Goal: tokens grow from holder to holder and from call to call, with room for a thousand writes
// in between; each costs a read and a write of the fence, and a read of the own rows.
// Method: three clients take turns and ask once, twice or three times each.
#[tokio::test(start_paused = true)]
async fn tokens_grow_from_holder_to_holder() {
    let store = store();
    let clients = [client(&store, "a").await, client(&store, "b").await, client(&store, "c").await];
    let mut tokens = Vec::new();
    for round in 0..30 {
        let asking = &clients[round % 3];
        let guard = asking.lock(OBJECT).await.expect("the lock is free");
        let before = asking.statistics();
        for _ in 0..=round % 3 {
            tokens.push(token(&guard).await);
        }
        let (after, calls) = (asking.statistics(), round as u64 % 3 + 1);
        assert_eq!(after.fence_reads - before.fence_reads, calls);
        assert_eq!(after.fence_writes - before.fence_writes, calls);
        assert_eq!(after.object_reads, before.object_reads, "own rows are read by key");
        assert_eq!(after.contender_reads - before.contender_reads, calls);
        guard.unlock().await.expect("the store answers");
    }
    expect_growing(&tokens);
}

// Goal: a token is above the last one although that is ahead of the clock.
// Method: a fence that is ahead by as much as the clocks of two clients may differ.
#[tokio::test(start_paused = true)]
async fn tokens_grow_although_the_clock_is_behind() {
    let store = store();
    let client = client(&store, "a").await;
    store.set_fence_ahead(OBJECT, s(2));
    let guard = client.lock(OBJECT).await.expect("the lock is free");
    let tokens = [token(&guard).await, token(&guard).await];
    assert_eq!(tokens[1].value() - tokens[0].value(), 1_000, "both follow the fence");
    sleep(s(3)).await;
    let next = token(&guard).await;
    assert!(next.value() - tokens[1].value() > 500_000, "it follows the clock again");
}

// Goal: a holder that lost the lock gets no token, whatever the reason, and the database is not
// asked.
// Method: let a lease run out; shut a client down.
#[tokio::test(start_paused = true)]
async fn lost_guard_gets_no_token() {
    let store = store();
    let client = client(&store, "a").await;
    let guard = hold_for_one_lease(&store).await;
    token(&guard).await;
    assert_eq!(guard.lost().await, Some(LostReason::Expired));
    let asked = Instant::now();
    let error = guard.fencing_token().await.expect_err("it is lost");
    assert!(matches!(error, FencingError::Lost { reason: LostReason::Expired, .. }), "{error:?}");
    assert_eq!(asked.elapsed(), Duration::ZERO);

    let guard = client.lock(OBJECT).await.expect("the lock is free");
    client.shutdown().await.expect("the store answers");
    let error = guard.fencing_token().await.expect_err("it is lost");
    assert!(
        matches!(error, FencingError::Lost { reason: LostReason::ClientClosed, .. }),
        "{error:?}"
    );
    assert_eq!(client.statistics().fence_reads, 0);
}

// Goal: a token is handed out only while the lock is held, wherever the lease ends in between; and
// the next holder's token is above it.
// Method: ask so long before the end of the lease that it comes before, during or after the read,
// the write and the read of the rows, of which each takes 0.4 s.
#[tokio::test(start_paused = true)]
async fn token_that_comes_after_the_lease_is_not_handed_out() {
    let (mut tokens, mut refused) = (Vec::new(), 0);
    let store = store();
    let other = client(&store, "other").await;
    for before_the_end in (25..1_600).step_by(50) {
        let guard = hold_for_one_lease(&store).await;
        let lease_ends = Instant::now() + guard.remaining();
        sleep(guard.remaining() - ms(before_the_end)).await;
        store.delay_calls(ms(400));
        match guard.fencing_token().await {
            Ok(token) => {
                assert!(Instant::now() < lease_ends, "it came after the lease");
                assert!(before_the_end > 1_200, "it takes 1.2 s");
                tokens.push(token);
            }
            Err(FencingError::Lost { reason: LostReason::Expired, .. }) => {
                let late = Instant::now() - lease_ends;
                assert!(late < SOON, "noticed {late:?} after the end");
                refused += 1;
            }
            Err(other) => panic!("another error came: {other:?}"),
        }
        store.delay_calls(ms(1));
        drop(guard);
        let next = other.lock(OBJECT).await.expect("the lock is free again");
        tokens.push(token(&next).await);
        next.unlock().await.expect("the store answers");
    }
    assert!(refused > 10 && tokens.len() > 25, "{refused} refused, {} drawn", tokens.len());
    expect_growing(&tokens);
}

// Goal: a holder that lives although it was removed by force gets no token once its successor may
// have one, and its guard knows from then on; what it got before is below all tokens of the
// successor.
// Method: remove it, let the next client in and draw, at each point of a call of the removed
// holder, which takes 1.2 s.
#[tokio::test(start_paused = true)]
async fn removed_holder_gets_no_token_above_its_successor() {
    let (mut drawn, mut refused) = (0, 0);
    for removed_after in (0..1_400).step_by(50) {
        let store = store();
        let (holder, other) = (client(&store, "a").await, client(&store, "b").await);
        let guard = Arc::new(holder.lock(OBJECT).await.expect("the lock is free"));
        let contenders = other.contenders(OBJECT).await.expect("the store answers");
        let asking = Arc::clone(&guard);
        store.delay_calls(ms(400));
        let first = tokio::spawn(async move { asking.fencing_token().await });
        sleep(ms(removed_after)).await;
        // The calls that have begun stay slow.
        store.delay_calls(ms(1));
        other.revoke_by_force(OBJECT, &contenders[0], "test").await.expect("the store answers");
        let next = other.lock(OBJECT).await.expect("the rows are gone");
        let before = token(&next).await;
        let first = first.await.expect("no panic");
        let second = guard.fencing_token().await.expect_err("it was removed");
        assert!(
            matches!(second, FencingError::Lost { reason: LostReason::Revoked { .. }, .. }),
            "{second:?}"
        );
        assert!(matches!(guard.state(), GuardState::Lost(LostReason::Revoked { .. })));
        let after = token(&next).await;
        match first {
            Ok(first) => {
                expect_growing(&[first, before, after]);
                drawn += 1;
            }
            Err(FencingError::Lost { reason: LostReason::Revoked { .. }, .. }) => refused += 1,
            Err(other) => panic!("another error came: {other:?}"),
        }
    }
    assert!(drawn > 3 && refused > 10, "{drawn} drawn before, {refused} refused");
}

// Goal: a fence that is too far ahead is refused, with the figure and advice; the lock is held all
// the same. Once the clock has come so far, there are tokens again.
// Method: a fence that is an hour ahead, and later by twice the bound on clock skew.
#[tokio::test(start_paused = true)]
async fn poisoned_fence_is_refused() {
    let store = store();
    let client = client(&store, "a").await;
    store.set_fence_ahead(OBJECT, s(3_600));
    let guard = client.lock(OBJECT).await.expect("the lock is free");
    let error = guard.fencing_token().await.expect_err("the fence is poisoned");
    let message = error.to_string();
    assert!(message.contains("ahead of this machine's clock"), "{message}");
    let FencingError::Poisoned { name, ahead, .. } = error else {
        panic!("another error came: {error:?}");
    };
    assert_eq!(name, OBJECT);
    assert!((s(3_599)..=s(3_600)).contains(&ahead), "{ahead:?}");
    assert_eq!(client.statistics().fence_writes, 0);
    sleep(s(3_597)).await;
    let error = guard.fencing_token().await.expect_err("it is still too far ahead");
    assert!(matches!(error, FencingError::Poisoned { .. }), "{error:?}");
    sleep(s(1)).await;
    assert!(matches!(guard.state(), GuardState::Held { .. }), "{:?}", guard.state());
    expect_growing(&[token(&guard).await, token(&guard).await]);
}

// Goal: a client whose wall clock was set ahead does not poison the fence for the others, before
// anything has compared the clock; and its tokens continue to grow.
// Method: draw while the clock is an hour ahead, and after it was set back.
#[tokio::test(start_paused = true)]
async fn clock_that_jumped_ahead_poisons_nothing() {
    let store = store();
    let client = client(&store, "a").await;
    let mut tokens = Vec::new();
    for (jumps, steps_back) in [(0, 0), (3_600, 0), (0, 3_600), (86_400, 86_400)] {
        let guard = client.lock(OBJECT).await.expect("the lock is free");
        store.set_wall_clock_ahead(s(jumps));
        tokens.push(token(&guard).await);
        store.set_wall_clock_back(s(steps_back));
        tokens.push(token(&guard).await);
        guard.unlock().await.expect("the store answers");
    }
    expect_growing(&tokens);
    let [first, last] = [tokens[0], tokens[tokens.len() - 1]].map(FencingToken::value);
    assert!(last - first < 3_000_000, "it went ahead by {} s", (last - first) / 1_000_000);
}

// Goal: tokens follow a wall clock that was set ahead once the clocks were found to agree, and not
// before.
// Method: draw after the looks of two renewals: while clocks differ, and when they agree again.
#[tokio::test(start_paused = true)]
async fn clock_is_followed_once_it_was_found_to_agree() {
    const AHEAD: Duration = s(3_600);
    let store = store();
    let client = client(&store, "a").await;
    let guard = client.lock(OBJECT).await.expect("the lock is free");
    let began = token(&guard).await;
    store.set_wall_clock_ahead(AHEAD);
    for apart in [s(3), s(0)] {
        store.set_clocks_apart(apart);
        // The next renewal looks at the clocks.
        sleep(s(21)).await;
        let ahead =
            Duration::from_micros((token(&guard).await.value() - began.value()).unsigned_abs());
        assert_eq!(ahead >= AHEAD, apart.is_zero(), "it went ahead by {ahead:?}");
    }
}

// Goal: whichever request fails, and whatever became of it, there is a token, above all earlier and
// below all later ones.
// Method: let the read or the write fail, in each way that may pass.
#[tokio::test(start_paused = true)]
async fn request_of_unknown_outcome_is_repeated() {
    let store = store();
    let (one, other) = (client(&store, "a").await, client(&store, "b").await);
    let mut tokens = Vec::new();
    for fault in [Fault::NotApplied, Fault::UnknownNotApplied, Fault::UnknownApplied] {
        for requests in [(2, 1), (1, 2)] {
            let guard = one.lock(OBJECT).await.expect("the lock is free");
            let before = one.statistics();
            let knobs = store.clone();
            if requests == (2, 1) {
                knobs.fail_next(1, fault);
            } else {
                // The read, which takes two milliseconds here, has begun by then.
                tokio::spawn(async move {
                    sleep(ms(1)).await;
                    knobs.fail_next(1, fault);
                });
            }
            tokens.push(token(&guard).await);
            let after = one.statistics();
            let asked =
                (after.fence_reads - before.fence_reads, after.fence_writes - before.fence_writes);
            assert_eq!(asked, requests, "{fault:?}");
            guard.unlock().await.expect("the store answers");
            let next = other.lock(OBJECT).await.expect("the lock is free");
            tokens.push(token(&next).await);
            next.unlock().await.expect("the store answers");
        }
    }
    expect_growing(&tokens);
}

// Goal: without a database there is an error at the acquire timeout, with its last words, and the
// next token is above what may have been written; a refused statement is an error at once.
// Method: all requests fail, in each way.
#[tokio::test(start_paused = true)]
async fn without_a_database_there_is_no_token() {
    let store = store();
    let guard = client(&store, "a").await.lock(OBJECT).await.expect("the lock is free");
    let mut tokens = vec![token(&guard).await];
    let faults = [
        (Fault::NotApplied, Outcome::NotApplied),
        (Fault::UnknownNotApplied, Outcome::Unknown),
        (Fault::UnknownApplied, Outcome::Unknown),
    ];
    for (fault, outcome) in faults {
        store.fail_next(usize::MAX, fault);
        let asked = Instant::now();
        let error = guard.fencing_token().await.expect_err("nothing is acknowledged");
        assert!((s(5)..s(5) + SOON).contains(&asked.elapsed()), "{:?}", asked.elapsed());
        let FencingError::TimedOut { name, waited, cause: Some(cause), .. } = error else {
            panic!("another error came: {error:?}");
        };
        assert_eq!((name.as_str(), waited, cause.outcome()), (OBJECT, s(5), outcome));
        store.fail_next(0, fault);
        tokens.push(token(&guard).await);
    }
    store.fail_next(1, Fault::Refused);
    let asked = Instant::now();
    let error = guard.fencing_token().await.expect_err("the statement is refused");
    assert!(asked.elapsed() < SOON);
    assert!(matches!(error, FencingError::Refused { .. }), "{error:?}");
    assert!(error.to_string().contains("run `lock-hosts doctor`"), "{error}");
    tokens.push(token(&guard).await);
    expect_growing(&tokens);
}

// Goal: calls of one guard at the same time get different tokens, each with its room.
// Method: ask ten times at once.
#[tokio::test(start_paused = true)]
async fn calls_at_once_get_tokens_of_their_own() {
    let store = store();
    let guard = client(&store, "a").await.lock(OBJECT).await.expect("the lock is free");
    let guard = Arc::new(guard);
    let calls = (0..10).map(|_| {
        let guard = Arc::clone(&guard);
        tokio::spawn(async move { token(&guard).await })
    });
    let mut tokens = Vec::new();
    for call in calls.collect::<Vec<_>>() {
        tokens.push(call.await.expect("the task does not panic"));
    }
    tokens.sort_unstable();
    expect_growing(&tokens);
}

// Goal: dropping the future, whenever it is, leaves nothing in the way of the next call.
// Method: drop it at its first poll, at its second one, and so on until it completes. A request
// takes four times as long as passes between two polls.
#[tokio::test(start_paused = true)]
async fn dropped_call_is_in_no_calls_way() {
    let store = seeded();
    store.delay_calls(ms(4));
    let guard = client(&store, "a").await.lock(OBJECT).await.expect("the lock is free");
    let mut tokens = Vec::new();
    for polls in 1.. {
        let pause = async || sleep(ms(1)).await;
        let drawn = poll_at_most(polls, guard.fencing_token(), pause).await;
        let is_complete = drawn.is_some();
        tokens.extend(drawn.map(|token| token.expect("the store answers")));
        tokens.push(token(&guard).await);
        if is_complete {
            assert!(polls > 8, "it was complete after {polls} polls");
            break;
        }
    }
    expect_growing(&tokens);
    // Nor does a call that continues keep the lock.
    let call = poll_at_most(1, guard.fencing_token(), async || ()).await;
    assert!(call.is_none(), "a request takes its time");
    guard.unlock().await.expect("the store answers");
}

// Goal: when the client's runtime has ended, a call says so on another one, and does not hang.
// Method: end the runtime of a holder.
#[test]
fn without_its_runtime_a_guard_gets_no_token() {
    let (first, second) = (runtime_on_the_wall(), runtime_on_the_wall());
    let store = seeded();
    let guard = first.block_on(async {
        client_on_the_wall(&store, "a").await.lock(OBJECT).await.expect("the lock is free")
    });
    // As long as it lives, any other one will do.
    second.block_on(token(&guard));
    drop(first);
    let call = pace::within_limit("a token", guard.fencing_token());
    let error = second.block_on(call).expect_err("no task renews it any more");
    assert!(
        matches!(error, FencingError::Lost { reason: LostReason::ClientClosed, .. }),
        "{error:?}"
    );
}

// Goal: at a gate the next holder's token shuts out the one before.
// Method: a holder whose lease runs out uses its token after the next holder.
#[tokio::test(start_paused = true)]
async fn next_holder_shuts_the_gate() {
    let (store, gate) = (store(), FenceGate::new(None));
    let stale = hold_for_one_lease(&store).await;
    let old = token(&stale).await;
    gate.admit(old).expect("it is the first one");
    gate.admit(old).expect("a holder writes more than once");
    let next = client(&store, "next").await.lock(OBJECT).await.expect("the lease ends");
    gate.admit(token(&next).await).expect("it holds the lock");
    let error = gate.admit(old).expect_err("it lost the lock");
    assert_eq!((Some(error.token), Some(error.high_water)), (Some(old), gate.high_water()));
}

async fn hold_for_one_lease(store: &FaultyStore) -> LockGuard {
    let client = client(store, "holder").await;
    let guard = client.request(OBJECT).ttl(TTL).auto_renew(false).acquire().await;
    guard.expect("the lock is free")
}

async fn token(guard: &LockGuard) -> FencingToken {
    guard.fencing_token().await.expect("the lock is held")
}

fn expect_growing(tokens: &[FencingToken]) {
    let grows = |pair: &[FencingToken]| pair[1].value() - pair[0].value() >= 1_000;
    assert!(tokens.len() > 1 && tokens.windows(2).all(grows), "{tokens:?}");
}
