//! What locks rely on fails while they are held: clocks drift apart, or the lock table goes.

use std::time::Duration;

use bakery_lock::{GuardState, LockClient, LockError, LostReason, UnlockError};
use tokio::time::{Instant, sleep, timeout};

use super::chance::exchanges;
use super::{OBJECT, SOON, client, expect_rows, ms, s, store};

/// More than leases of a memory store allow for.
const APART: Duration = s(3);

/// Renewals come in thirds of the default TTL.
const RENEWAL: Duration = s(20);

/// The pause between two looks.
const PAUSE: Duration = s(5);

// Goal: a client that finds out at a renewal that clocks differ by too much puts its guards at
// risk. It sends waiters away and refuses new callers, with the figure and what to do; held locks
// continue. Once the clocks agree, all is as before, and no renewal has failed.
// Method: one guard, one caller behind another client and one behind the guard; the clocks differ
// for some minutes.
#[tokio::test(start_paused = true)]
async fn clocks_that_differ_put_guards_at_risk_and_refuse_callers() {
    let store = store();
    let (here, other) = (client(&store, "here").await, client(&store, "other").await);
    let began = Instant::now();
    let guard = here.lock(OBJECT).await.expect("the lock is free");
    let others =
        other.request("others").auto_renew(false).acquire().await.expect("the lock is free");
    let waiting = ["others", OBJECT].map(|object| {
        let request = here.request(object).timeout(s(300));
        tokio::spawn(async move { (request.acquire().await, began.elapsed()) })
    });
    sleep(RENEWAL / 2).await;
    store.set_clocks_apart(APART);
    assert!(matches!(guard.state(), GuardState::Held { .. }), "{:?}", guard.state());
    sleep(RENEWAL / 2 + SOON).await;
    let GuardState::AtRisk { remaining } = guard.state() else {
        panic!("clocks differ: {:?}", guard.state());
    };
    assert!(remaining > s(50) && remaining == guard.remaining(), "{remaining:?} are left");
    for waiting in waiting {
        let (waited, answered) = waiting.await.expect("the task does not panic");
        expect_figure(waited.expect_err("clocks differ"));
        assert!((RENEWAL..RENEWAL + SOON).contains(&answered), "after {answered:?}");
    }
    for _ in 0..3 {
        let asked = Instant::now();
        expect_figure(here.lock("free").await.expect_err("clocks differ"));
        expect_figure(here.try_lock("free").await.expect_err("clocks differ"));
        assert_eq!(asked.elapsed(), s(0), "no caller is kept waiting");
        sleep(RENEWAL).await;
    }
    assert_eq!([store.live_rows(OBJECT), store.live_rows("others")], [1, 0]);
    drop(others);
    sleep(s(300)).await;
    assert!(matches!(guard.state(), GuardState::AtRisk { .. }), "{:?}", guard.state());
    assert!(guard.remaining() > s(30), "it is renewed: {:?}", guard.remaining());

    store.set_clocks_apart(ms(999));
    sleep(RENEWAL + SOON).await;
    assert!(matches!(guard.state(), GuardState::Held { .. }), "{:?}", guard.state());
    here.lock("free").await.expect("clocks agree").unlock().await.expect("it was held");
    guard.unlock().await.expect("it was held to the end");
    expect_rows(&store, 0).await;
}

// Goal: a client that holds nothing for long looks too, but once a minute at most. While clocks
// differ, each caller that is sent away makes it look again, so that it continues soon after they
// agree.
// Method: lock once a second for some minutes, while the clocks agree, differ and agree again.
#[tokio::test(start_paused = true)]
async fn client_of_short_locks_looks_once_a_minute() {
    let store = store();
    let client = client(&store, "a").await;
    lock_for(&client, s(330)).await.expect("clocks agree");
    assert_eq!(store.looks(), 5);

    store.set_clocks_apart(APART);
    let began = Instant::now();
    expect_figure(lock_for(&client, s(120)).await.expect_err("clocks differ"));
    assert!(began.elapsed() <= s(60) + SOON, "noticed after {:?}", began.elapsed());
    let looks = store.looks();
    let refused = Instant::now();
    while refused.elapsed() < s(60) {
        expect_figure(client.lock("short").await.expect_err("clocks differ"));
        sleep(s(1)).await;
    }
    assert!((11..=12).contains(&(store.looks() - looks)), "{} looks", store.looks() - looks);

    store.set_clocks_apart(s(0));
    let agreed = Instant::now();
    while client.lock("short").await.is_err() {
        sleep(s(1)).await;
    }
    assert!(agreed.elapsed() <= PAUSE + s(1), "it went on after {:?}", agreed.elapsed());
}

// Goal: a row of an acquisition that is missing although it was acknowledged makes the client look:
// the table may have been made again. An acquisition that was revoked does not.
// Method: lose the row of a caller in the doorway, and revoke another one that waits; count looks.
#[tokio::test(start_paused = true)]
async fn missing_row_of_an_acquisition_is_a_reason_to_look() {
    if exchanges() {
        // Nothing can come between its write and its read.
        return;
    }
    let store = store();
    let (waiter, other) = (client(&store, "waiter").await, client(&store, "other").await);
    sleep(s(2)).await;
    store.delay_calls(ms(100));
    let acquiring = tokio::spawn(waiter.request(OBJECT).acquire());
    // It writes after 50 ms, and reads after 150 ms.
    sleep(ms(100)).await;
    store.lose_rows(OBJECT);
    let error = acquiring.await.expect("it does not panic").expect_err("its row was lost");
    assert!(matches!(error, LockError::RowMissing { .. }), "{error:?}");
    sleep(SOON).await;
    assert_eq!(store.looks(), 1);

    store.delay_calls(ms(1));
    let guard = other.request(OBJECT).auto_renew(false).acquire().await.expect("the lock is free");
    let waiting = tokio::spawn(waiter.request(OBJECT).timeout(s(30)).acquire());
    sleep(s(2)).await;
    let contenders = other.contenders(OBJECT).await.expect("the store answers");
    other.revoke(OBJECT, &contenders[1], "a test").await.expect("it waits");
    let error = waiting.await.expect("it does not panic").expect_err("it was revoked");
    assert!(matches!(error, LockError::Revoked { .. }), "{error:?}");
    sleep(SOON).await;
    assert_eq!(store.looks(), 1);
    guard.unlock().await.expect("the lock was held");
}

// Goal: however many locks a client holds, it looks once in five seconds at most, and never twice
// at the same time; each renewal of a short lease is followed by a look.
// Method: hold many locks, which are renewed at all times; then one with the shortest TTL there is.
#[tokio::test(start_paused = true)]
async fn looks_do_not_grow_with_locks() {
    let store = store();
    let many = client(&store, "many").await;
    let mut guards = Vec::new();
    for number in 0..40 {
        guards.push(many.lock(&number.to_string()).await.expect("the lock is free"));
        sleep(ms(500)).await;
    }
    let before = store.looks();
    sleep(s(100)).await;
    let looks = store.looks() - before;
    assert!((18..=20).contains(&looks), "{looks} looks in 100 s");
    drop((guards, many));

    let builder = store.client_builder().host("short");
    let short = builder.ttl(s(5)).build().await.expect("a client in memory is built");
    let before = store.looks();
    let guard = short.lock(OBJECT).await.expect("the lock is free");
    sleep(s(100)).await;
    let looks = store.looks() - before;
    assert!((65..=67).contains(&looks), "{looks} looks at 66 renewals");
    drop(guard);
}

// Goal: a table that was dropped and made again is noticed at the next renewal, which misses its
// rows and does not write them again: the guards are lost for good, and waiting and later callers
// are told why. Others use the new table.
// Method: one guard, and a caller behind it; another client locks the same name in the new table.
#[tokio::test(start_paused = true)]
async fn table_that_was_made_again_ends_the_client() {
    let store = store();
    let old = client(&store, "old").await;
    let guard = old.lock(OBJECT).await.expect("the lock is free");
    let (lost, token) = (guard.lost(), guard.cancellation_token());
    let waiting = tokio::spawn(old.request(OBJECT).timeout(s(300)).acquire());
    sleep(RENEWAL / 2).await;
    store.drop_table();
    store.make_table_again();
    let new = client(&store, "new").await;
    let next = new.lock(OBJECT).await.expect("the new table is empty");
    assert!(matches!(guard.state(), GuardState::Held { .. }), "the client has not looked yet");

    let reason = timeout(RENEWAL / 2 + SOON, lost).await.expect("a renewal is due");
    assert_eq!(reason, Some(LostReason::RowMissing));
    assert!(token.is_cancelled());
    let waited = waiting.await.expect("the task does not panic");
    expect_table_gone(&waited.expect_err("the table is another one"));
    expect_rows(&store, 1).await;
    for _ in 0..3 {
        expect_table_gone(&old.lock("free").await.expect_err("the table is another one"));
        expect_table_gone(&old.try_lock("free").await.expect_err("the table is another one"));
        sleep(s(300)).await;
    }
    assert_eq!(guard.state(), GuardState::Lost(LostReason::RowMissing));
    let error = guard.unlock().await.expect_err("it was lost");
    assert!(matches!(error, UnlockError::Lost { reason: LostReason::RowMissing, .. }), "{error:?}");
    old.shutdown().await.expect("no row is left");
    assert!(matches!(next.state(), GuardState::Held { .. }), "{:?}", next.state());
    next.unlock().await.expect("it was held to the end");
}

// Goal: a table that was dropped shows by refused statements: the holder does not continue to the
// end of its lease, nor does a client that only tries meet the same refusal for ever.
// Method: drop it below a holder, and below a client without locks.
#[tokio::test(start_paused = true)]
async fn dropped_table_ends_the_client() {
    let store = store();
    let (holder, other) = (client(&store, "holder").await, client(&store, "other").await);
    let guard = holder.lock(OBJECT).await.expect("the lock is free");
    sleep(s(2)).await;
    store.drop_table();
    let error = other.lock(OBJECT).await.expect_err("the statement is refused");
    assert!(matches!(error, LockError::Refused { .. }), "{error:?}");
    sleep(SOON).await;
    expect_table_gone(&other.lock(OBJECT).await.expect_err("the table is gone"));

    let reason = timeout(RENEWAL + s(1), guard.lost()).await.expect("a renewal is due");
    assert_eq!(reason, Some(LostReason::TableGone));
    expect_table_gone(&holder.lock(OBJECT).await.expect_err("the table is gone"));
}

// Goal: a look without an answer says nothing, neither that all is well nor that it is not.
// Method: nodes are silent while all is well, and while clocks differ.
#[tokio::test(start_paused = true)]
async fn look_without_an_answer_changes_nothing() {
    let store = store();
    let client = client(&store, "a").await;
    let guard = client.lock(OBJECT).await.expect("the lock is free");
    store.silence_nodes(true);
    sleep(s(300)).await;
    assert!(store.looks() > 10, "it has not looked");
    assert!(matches!(guard.state(), GuardState::Held { .. }), "{:?}", guard.state());
    short_lock(&client).await.expect("nothing is known to be wrong");

    store.silence_nodes(false);
    store.set_clocks_apart(APART);
    sleep(RENEWAL + SOON).await;
    store.silence_nodes(true);
    sleep(s(300)).await;
    assert!(matches!(guard.state(), GuardState::AtRisk { .. }), "{:?}", guard.state());
    expect_figure(short_lock(&client).await.expect_err("clocks differed when last seen"));
}

// Goal: a difference that is not seen again ends by itself, also where clocks are never measured
// exactly enough to be seen to agree: callers are let in again, and a guard is held.
// Method: clocks that differ, then ones that agree about as well as the bound asks for, measured
// too coarsely to tell.
#[tokio::test(start_paused = true)]
async fn clocks_that_can_not_be_told_apart_let_in_again() {
    let store = store();
    let client = client(&store, "a").await;
    let guard = client.lock(OBJECT).await.expect("the lock is free");
    store.set_clocks_apart(APART);
    sleep(RENEWAL + SOON).await;
    expect_figure(short_lock(&client).await.expect_err("clocks differ"));

    store.set_clocks_apart(ms(999));
    store.set_clock_error(ms(5));
    let agreed = Instant::now();
    while short_lock(&client).await.is_err() {
        assert!(agreed.elapsed() < s(300), "no caller is let in again");
        sleep(s(1)).await;
    }
    let waited = agreed.elapsed();
    assert!((PAUSE * 2..=PAUSE * 3 + s(3)).contains(&waited), "it went on after {waited:?}");
    assert!(matches!(guard.state(), GuardState::Held { .. }), "{:?}", guard.state());
    guard.unlock().await.expect("it was held to the end");
}

// Goal: hosts can be added whatever clocks do, as when the registry is opened.
// Method: open the registry, let the clocks differ, and add a host after minutes.
#[tokio::test(start_paused = true)]
async fn registry_does_not_mind_clocks() {
    let store = store();
    let registry = store.host_registry();
    store.set_clocks_apart(APART);
    for host in ["one", "other"] {
        sleep(s(300)).await;
        registry.add(host).await.expect("the registry works");
    }
    assert_eq!(store.looks(), 0);
    registry.close().await;
}

/// Locks for a moment, each second; the first error ends it.
async fn lock_for(client: &LockClient, time: Duration) -> Result<(), LockError> {
    let began = Instant::now();
    while began.elapsed() < time {
        short_lock(client).await?;
        sleep(s(1)).await;
    }
    Ok(())
}

async fn short_lock(client: &LockClient) -> Result<(), LockError> {
    let guard = client.lock("short").await?;
    guard.unlock().await.expect("the store answers");
    Ok(())
}

/// The error says by how much, and what to do.
fn expect_figure(error: LockError) {
    let message = error.to_string();
    for text in
        ["memory 2 is ahead of memory 1 by 3000 ms ± 0 ms, more than 1s", "synchronize the clocks"]
    {
        assert!(message.contains(text), "{message}");
    }
    let LockError::ClocksDiffer { problems, .. } = error else {
        panic!("another error came: {error:?}");
    };
    assert_eq!(problems.len(), 2, "that of the host differs too: {problems:?}");
}

fn expect_table_gone(error: &LockError) {
    assert!(error.to_string().contains("build another client"), "{error}");
    assert!(matches!(error, LockError::TableGone { .. }), "{error:?}");
}
