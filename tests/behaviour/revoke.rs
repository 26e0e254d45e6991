//! Listing the contenders for a lock, and taking it from its holder.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use bakery_lock::testing::Fault;
use bakery_lock::{
    ContenderInfo, EnsureError, ExpiringReason, GuardState, InvalidOption, LockClient, LockError,
    LockGuard, LostReason, TableError,
};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::{OBJECT, SOON, client, client_on_the_wall, expect_rows, ms, s, store};

/// The default TTL, and when a lease with it is renewed.
const TTL: Duration = s(60);
const RENEWAL_DUE: Duration = s(20);

const WHY: &str = "it hangs";

/// A client that waits for the lock, and holds it until the guard is dropped.
fn wait(client: &LockClient) -> JoinHandle<Result<LockGuard, LockError>> {
    tokio::spawn(client.request(OBJECT).timeout(s(600)).acquire())
}

async fn contenders(client: &LockClient) -> Vec<ContenderInfo> {
    client.contenders(OBJECT).await.expect("the store answers")
}

/// Contenders without what changes while they hold or wait.
fn who(contenders: &[ContenderInfo]) -> Vec<ContenderInfo> {
    let mut contenders = contenders.to_vec();
    for contender in &mut contenders {
        (contender.state, contender.held_since) = (None, None);
        (contender.renewed_at, contender.remaining, contender.overdue) = (None, None, None);
    }
    contenders
}

/// Whether a holder is to finish because the other client asked.
fn is_asked_by_other(reason: &ExpiringReason) -> bool {
    matches!(reason, ExpiringReason::Revoked { by, why, .. } if is_other(by, why))
}

/// Whether a holder that was asked by the other client stayed, and lost the lock.
fn is_by_other(reason: &LostReason) -> bool {
    matches!(reason, LostReason::Revoked { by, why, .. } if is_other(by, why))
}

fn is_other(by: &str, why: &str) -> bool {
    by == format!("other pid {}", std::process::id()) && why == WHY
}

// Goal: all holders and waiters are shown in the order of the queue, with what tells one from
// another, and listing them changes nothing.
// Method: a holder on the fast path and two waiters; then one of them holds with its ticket.
#[tokio::test(start_paused = true)]
async fn contenders_are_shown_in_the_order_of_the_queue() {
    let (began, store) = (SystemTime::now(), store());
    let [first, second, third] =
        [client(&store, "a").await, client(&store, "b").await, client(&store, "c").await];
    assert_eq!(contenders(&first).await, []);
    let guard = first.request(OBJECT).label("import").acquire().await.expect("the lock is free");
    let second = wait(&second);
    sleep(s(1)).await;
    let third_waits = wait(&third);
    sleep(s(1)).await;

    let all = contenders(&third).await;
    let pid = std::process::id();
    let owners = all.iter().map(|ContenderInfo { owner, .. }| {
        assert_eq!(owner.pid(), Some(pid), "{owner}");
        (owner.host_name(), owner.label())
    });
    let expected = [(Some("a"), Some("import")), (Some("b"), None), (Some("c"), None)];
    assert_eq!(owners.collect::<Vec<_>>(), expected);
    assert_eq!(all[0].owner.to_string(), format!("a pid {pid} import"));
    assert_eq!(all.iter().map(|c| c.ticket).collect::<Vec<_>>(), [None, Some(1), Some(2)]);
    assert!(all[0].client != all[1].client && all[0].host != all[1].host);
    assert!(all.windows(2).all(|pair| pair[0].since() < pair[1].since()));
    // The clock of the store began at the system's time, and went on by two seconds.
    let since = all[0].since().expect("its rows can be read");
    assert!(since > began && since < SystemTime::now() + s(2), "{since:?}");

    guard.unlock().await.expect("the lock was held");
    let guard = second.await.expect("the task does not panic").expect("it is its turn");
    assert_eq!(who(&contenders(&third).await), who(&all[1..]));
    drop(guard);
    drop(third_waits.await.expect("the task does not panic").expect("it is its turn"));
    expect_rows(&store, 0).await;
}

// Goal: a holder that is asked to leave knows it after a third of its TTL, with the requester and
// the reason, and holds on until it is released: no other client is let in before.
// Method: both ways of holding; another client waits.
#[tokio::test(start_paused = true)]
async fn revoked_holder_excludes_others_until_its_release() {
    for with_ticket in [false, true] {
        let store = store();
        let (holder, other) = (client(&store, "holder").await, client(&store, "other").await);
        let before = if with_ticket { Some(other.lock(OBJECT).await) } else { None };
        let holding = wait(&holder);
        sleep(s(1)).await;
        drop(before);
        let guard = holding.await.expect("the task does not panic").expect("the lock is free");
        let began = Instant::now();
        let next = tokio::spawn(other.request(OBJECT).timeout(s(100)).acquire());
        sleep(s(5)).await;

        let all = contenders(&other).await;
        assert_eq!(all[0].ticket.is_some(), with_ticket);
        other.revoke(OBJECT, &all[0], WHY).await.expect("the store answers");
        assert!(matches!(guard.state(), GuardState::Held { .. }), "only it can leave by itself");
        let token = guard.expiring_token();
        let asked = guard.expiring().await;
        assert!(asked.as_ref().is_some_and(is_asked_by_other), "{asked:?}");
        assert!(began.elapsed() < RENEWAL_DUE + SOON, "{:?}", began.elapsed());
        assert!(token.is_cancelled() && !guard.cancellation_token().is_cancelled());
        sleep(s(30)).await;
        let GuardState::Expiring { reason, remaining } = guard.state() else {
            panic!("{:?}", guard.state());
        };
        assert!(is_asked_by_other(&reason), "{reason:?}");
        assert!(!next.is_finished(), "two clients hold the lock");
        assert_eq!(guard.ensure(remaining).await.expect("so much is left"), remaining);
        let error = guard.ensure(remaining + s(1)).await.expect_err("it is not renewed");
        assert!(matches!(error, EnsureError::TooLong { .. }), "{error:?}");
        guard.fencing_token().await.expect("it is held");
        guard.unlock().await.expect("it is held");
        let next = timeout(s(2), next).await.expect("the holder left");
        let next = next.expect("the task does not panic").expect("the holder left");
        next.unlock().await.expect("the store answers");
        expect_rows(&store, 0).await;
    }
}

// Goal: a holder that is asked to leave and does not is lost when its lease ends, and the next
// client is let in then.
// Method: watch the states of such a holder, while another client waits.
#[tokio::test(start_paused = true)]
async fn revoked_holder_is_lost_when_its_lease_ends() {
    let store = store();
    let (holder, other) = (client(&store, "holder").await, client(&store, "other").await);
    let guard = holder.lock(OBJECT).await.expect("the lock is free");
    let next = tokio::spawn(other.request(OBJECT).timeout(s(100)).acquire());
    sleep(s(5)).await;
    let all = contenders(&other).await;
    other.revoke(OBJECT, &all[0], WHY).await.expect("the store answers");
    let mut states = guard.states();
    let mut seen = Vec::new();
    while let Some(state) = states.changed().await {
        seen.push((state, Instant::now()));
    }
    let [(GuardState::Held { .. }, _), (GuardState::Expiring { remaining, .. }, from), (last, at)] =
        seen.as_slice()
    else {
        panic!("{seen:?}");
    };
    assert!(matches!(last, GuardState::Lost(reason) if is_by_other(reason)), "{last:?}");
    assert_eq!(*at, *from + *remaining);
    let next = next.await.expect("the task does not panic").expect("the lease is over");
    assert!(Instant::now() >= *at && at.elapsed() < s(2), "{:?}", at.elapsed());
    next.unlock().await.expect("the store answers");
    expect_rows(&store, 0).await;
}

// Goal: `with_lock` drops what runs under a revoked lock before another client is let in.
// Method: a body that never ends, and notes when it is dropped; another client waits.
#[tokio::test(start_paused = true)]
async fn revoked_body_is_dropped_before_the_next_grant() {
    struct Inside(Arc<AtomicBool>);

    impl Drop for Inside {
        fn drop(&mut self) {
            self.0.store(false, Ordering::Relaxed);
        }
    }

    let store = store();
    let (holder, other) = (client(&store, "holder").await, client(&store, "other").await);
    let is_inside = Arc::new(AtomicBool::new(true));
    let inside = Inside(Arc::clone(&is_inside));
    let working = tokio::spawn(async move {
        let body = async |_| {
            let _inside = inside;
            std::future::pending::<()>().await;
        };
        holder.with_lock(OBJECT, body).await
    });
    sleep(s(1)).await;
    let next = tokio::spawn(other.request(OBJECT).timeout(s(100)).acquire());
    sleep(s(1)).await;
    let all = contenders(&other).await;
    other.revoke(OBJECT, &all[0], WHY).await.expect("the store answers");
    let next = timeout(RENEWAL_DUE + SOON, next).await.expect("the body is dropped by then");
    let next = next.expect("the task does not panic").expect("the holder left");
    assert!(!is_inside.load(Ordering::Relaxed), "it was let in while the body ran");
    let error = working.await.expect("the task does not panic").expect_err("it is revoked");
    assert!(matches!(error, LockError::WorkStopped { reason, .. } if is_by_other(&reason)));
    next.unlock().await.expect("the store answers");
    expect_rows(&store, 0).await;
}

// Goal: a holder that confirms its hold finds the revocation at once, and one that never reads its
// rows leaves with its lease.
// Method: a lock that is not renewed, revoked; one holder asks, the other one does not.
#[tokio::test(start_paused = true)]
async fn holder_that_does_not_renew_finds_it_when_it_asks() {
    let store = store();
    let (holder, other) = (client(&store, "holder").await, client(&store, "other").await);
    for asks in [true, false] {
        let guard = holder.request(OBJECT).auto_renew(false).acquire().await.expect("it is free");
        let began = Instant::now();
        let all = contenders(&other).await;
        other.revoke(OBJECT, &all[0], WHY).await.expect("the store answers");
        if asks {
            guard.check().await.expect("it is still held");
            let asked = guard.expiring().await;
            assert!(asked.as_ref().is_some_and(is_asked_by_other), "{asked:?}");
            assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
        }
        let lost = guard.lost().await.expect("it is not given back");
        assert!(if asks { is_by_other(&lost) } else { lost == LostReason::Expired }, "{lost:?}");
        assert!((s(50)..TTL).contains(&began.elapsed()), "{:?}", began.elapsed());
        drop(guard);
        // A holder that never read the request leaves it behind.
        expect_rows(&store, usize::from(!asks)).await;
    }
}

// Goal: a waiter can be sent away as well, and the next caller of the same client is not affected.
// Method: two callers of one client behind a holder; the error of the caller that times out names
// the contender to revoke.
#[tokio::test(start_paused = true)]
async fn waiter_is_revoked_alone() {
    let store = store();
    let (waiter, other) = (client(&store, "waiter").await, client(&store, "other").await);
    let guard = other.lock(OBJECT).await.expect("the lock is free");
    let (first, second) = (wait(&waiter), wait(&waiter));
    sleep(s(1)).await;
    let error = client(&store, "third").await.lock(OBJECT).await.expect_err("it is held");
    let LockError::TimedOut { ahead, .. } = error else { panic!("{error:?}") };
    assert_eq!(who(&ahead), who(&contenders(&other).await[..2]));
    other.revoke(OBJECT, &ahead[1], WHY).await.expect("the store answers");

    let error = timeout(RENEWAL_DUE + SOON, first).await.expect("it reads its rows by then");
    let error = error.expect("the task does not panic").expect_err("it is revoked");
    assert!(matches!(&error, LockError::Revoked { why, .. } if why == WHY), "{error:?}");
    assert!(error.to_string().contains("revoked by other pid"), "{error}");
    guard.unlock().await.expect("the lock was held");
    drop(timeout(SOON, second).await.expect("it is its turn").expect("the task does not panic"));
    expect_rows(&store, 0).await;
}

// Goal: what another client writes as its reason moves no terminal's cursor and ends no line of a
// log, whoever is shown it.
// Method: a reason with control characters, for a waiter and for a holder that stays.
#[tokio::test(start_paused = true)]
async fn control_characters_of_reason_are_replaced() {
    const SHOWN: &str = "\u{fffd}[2Jdone\u{fffd}";
    let store = store();
    let (holder, waiter) = (client(&store, "holder").await, client(&store, "waiter").await);
    let guard = holder.lock(OBJECT).await.expect("the lock is free");
    let waiting = wait(&waiter);
    sleep(s(1)).await;
    for contender in contenders(&waiter).await {
        let revoked = waiter.revoke(OBJECT, &contender, "\u{1b}[2Jdone\n").await;
        revoked.expect("the store answers");
    }
    let error = waiting.await.expect("the task does not panic").expect_err("it is revoked");
    assert!(matches!(&error, LockError::Revoked { why, .. } if why == SHOWN), "{error:?}");
    let expiring = guard.expiring().await;
    let Some(ExpiringReason::Revoked { why, .. }) = expiring else { panic!("{expiring:?}") };
    assert_eq!(why, SHOWN);
    let lost = guard.lost().await;
    assert!(matches!(&lost, Some(LostReason::Revoked { why, .. }) if why == SHOWN), "{lost:?}");
}

// Goal: what is over can't be revoked, and a later round of the same client is not affected.
// Method: remember a holder, let it lock again, revoke what is remembered, by both means.
#[tokio::test(start_paused = true)]
async fn round_that_is_over_is_told_so() {
    let store = store();
    let (holder, other) = (client(&store, "holder").await, client(&store, "other").await);
    let guard = holder.lock(OBJECT).await.expect("the lock is free");
    let before = contenders(&other).await.remove(0);
    guard.unlock().await.expect("the lock was held");
    let error = other.revoke(OBJECT, &before, WHY).await.expect_err("no contender is there");
    assert!(matches!(error, TableError::Gone { .. }), "{error:?}");
    let guard = holder.lock(OBJECT).await.expect("the lock is free");
    for error in [
        other.revoke(OBJECT, &before, WHY).await.expect_err("it is over"),
        other.revoke_by_force(OBJECT, &before, WHY).await.expect_err("it is over"),
    ] {
        assert!(matches!(error, TableError::Gone { .. }), "{error:?}");
        assert!(error.to_string().contains("neither holds it nor waits for it"), "{error}");
    }
    sleep(TTL).await;
    guard.unlock().await.expect("it was not revoked");
    expect_rows(&store, 0).await;
}

/// Runs work on a runtime that has ended when this returns.
fn on_another_runtime<T: Send>(work: impl Future<Output = T> + Send) -> T {
    let run = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime can be built").block_on(work)
    };
    std::thread::scope(|scope| scope.spawn(run).join().expect("the thread does not panic"))
}

// Goal: by force the next contender is let in at once when the holder is dead.
// Method: a holder whose runtime has ended.
#[tokio::test(start_paused = true)]
async fn dead_holder_is_removed_by_force() {
    let store = store();
    let dead = store.clone();
    on_another_runtime(async move {
        let client = client_on_the_wall(&dead, "dead").await;
        std::mem::forget(client.lock(OBJECT).await.expect("it is free"));
    });
    let other = client(&store, "other").await;
    let waiting = wait(&other);
    sleep(s(2)).await;
    let all = contenders(&other).await;
    other.revoke_by_force(OBJECT, &all[0], WHY).await.expect("the store answers");
    let guard = timeout(s(1), waiting).await.expect("no contender is before it");
    let guard = guard.expect("the task does not panic").expect("no contender is before it");
    assert_eq!(contenders(&other).await, all[1..]);
    guard.unlock().await.expect("the lock was held");
    // The request stays for the holder that might have lived.
    expect_rows(&store, 1).await;
}

// Goal: who knows the place of a dead holder releases its lock, that of its slot too, and leaves no
// row.
// Method: holders whose runtime has ended, while others wait.
#[tokio::test(start_paused = true)]
async fn lock_of_dead_holder_is_released_by_its_place() {
    for most in [None, Some(1)] {
        let store = store();
        let dead = store.clone();
        let place = on_another_runtime(async move {
            let client = client_on_the_wall(&dead, "dead").await;
            let request = client.request(OBJECT);
            let request = if let Some(most) = most { request.max_holders(most) } else { request };
            let guard = request.acquire().await.expect("it is free");
            let place = guard.place();
            assert_eq!(place.client, client.id());
            assert_eq!(place.slot > 0, most.is_some(), "{place:?}");
            std::mem::forget(guard);
            place
        });
        let other = client(&store, "other").await;
        let waiting = wait(&other);
        sleep(s(2)).await;
        assert!(!waiting.is_finished());
        for is_there in [true, false] {
            let released = other.release_for_dead(OBJECT, &place).await;
            assert_eq!(released.expect("the store answers"), is_there);
        }
        let guard = timeout(s(1), waiting).await.expect("no contender is before it");
        let guard = guard.expect("the task does not panic").expect("no contender is before it");
        guard.unlock().await.expect("the lock was held");
        expect_rows(&store, 0).await;
    }
}

// Goal: a place of an earlier round is over: the rows of a later one stay.
// Method: the same client holds the lock twice.
#[tokio::test(start_paused = true)]
async fn place_of_an_earlier_round_releases_nothing() {
    let store = store();
    let (holder, other) = (client(&store, "holder").await, client(&store, "other").await);
    let guard = holder.lock(OBJECT).await.expect("the lock is free");
    let before = guard.place();
    guard.unlock().await.expect("the lock was held");
    let guard = holder.lock(OBJECT).await.expect("the lock is free");
    assert!(guard.place().round > before.round);
    assert!(!other.release_for_dead(OBJECT, &before).await.expect("the store answers"));
    guard.check().await.expect("its rows are there");
    store.fail_next(usize::MAX, Fault::NotApplied);
    let place = guard.place();
    let error = other.release_for_dead(OBJECT, &place).await.expect_err("no one answers");
    assert!(error.is_timeout(), "{error:?}");
    store.fail_next(0, Fault::NotApplied);
    assert!(other.release_for_dead(OBJECT, &place).await.expect("the store answers"));
    expect_rows(&store, 0).await;
}

// Goal: a holder that lives although it was removed by force is lost at its next renewal, and what
// that renewal wrote is gone again.
// Method: force, and see the rows for two renewals.
#[tokio::test(start_paused = true)]
async fn living_holder_that_was_removed_leaves_no_row() {
    let store = store();
    let (holder, other) = (client(&store, "holder").await, client(&store, "other").await);
    let guard = holder.lock(OBJECT).await.expect("the lock is free");
    let began = Instant::now();
    let all = contenders(&other).await;
    other.revoke_by_force(OBJECT, &all[0], WHY).await.expect("the store answers");
    let next = other.lock(OBJECT).await.expect("no contender is before it");
    assert!(matches!(guard.state(), GuardState::Held { .. }), "it can't know yet");
    let lost = guard.lost().await;
    assert!(lost.as_ref().is_some_and(is_by_other), "{lost:?}");
    assert!(began.elapsed() < RENEWAL_DUE + SOON, "{:?}", began.elapsed());
    sleep(SOON).await;
    assert_eq!(contenders(&other).await.len(), 1, "its rows came back");
    sleep(TTL).await;
    next.unlock().await.expect("the lock was held");
    expect_rows(&store, 0).await;
}

// Goal: requests that fail are made again, whatever became of them; when none is answered in time
// the error says that nothing is certain, and when they are refused, that.
// Method: faults of all kinds.
#[tokio::test(start_paused = true)]
async fn revoking_is_tried_until_the_timeout() {
    let store = store();
    let (holder, other) = (client(&store, "holder").await, client(&store, "other").await);
    for fault in [Fault::NotApplied, Fault::UnknownNotApplied, Fault::UnknownApplied] {
        let guard = holder.lock(OBJECT).await.expect("the lock is free");
        let all = contenders(&other).await;
        store.fail_next(7, fault);
        other.revoke(OBJECT, &all[0], WHY).await.expect("the eighth try is answered");
        let asked = guard.expiring().await;
        assert!(asked.as_ref().is_some_and(is_asked_by_other), "{asked:?}");
        guard.unlock().await.expect("it is held");

        let guard = holder.lock(OBJECT).await.expect("the lock is free");
        let all = contenders(&other).await;
        store.fail_next(usize::MAX, fault);
        let asked = Instant::now();
        let error = other.revoke(OBJECT, &all[0], WHY).await.expect_err("nothing is answered");
        assert!(matches!(error, TableError::TimedOut { cause: Some(_), .. }), "{error:?}");
        assert_eq!(asked.elapsed(), s(5));
        let error = other.contenders(OBJECT).await.expect_err("nothing is answered");
        assert!(matches!(error, TableError::TimedOut { cause: Some(_), .. }), "{error:?}");
        store.fail_next(0, fault);
        guard.unlock().await.expect("the store answers again");
    }
    let guard = holder.lock(OBJECT).await.expect("the lock is free");
    let all = contenders(&other).await;
    store.fail_next(2, Fault::Refused);
    let error = other.revoke(OBJECT, &all[0], WHY).await.expect_err("it is refused");
    assert!(matches!(error, TableError::Refused { .. }), "{error:?}");
    let error = other.contenders(OBJECT).await.expect_err("it is refused");
    assert!(matches!(error, TableError::Refused { .. }), "{error:?}");
    guard.unlock().await.expect("the store answers again");
}

// Goal: bad input and a closed client are told, and nothing is written.
// Method: an empty name; a client that was shut down.
#[tokio::test(start_paused = true)]
async fn unrevokable_contender_is_refused() {
    let store = store();
    let other = client(&store, "other").await;
    let guard = client(&store, "holder").await.lock(OBJECT).await.expect("the lock is free");
    let holder = contenders(&other).await.remove(0);
    let error = other.revoke("", &holder, WHY).await.expect_err("there is no such name");
    assert!(matches!(error, TableError::Option(InvalidOption::EmptyName)), "{error:?}");
    let error = other.contenders("").await.expect_err("there is no such name");
    assert!(matches!(error, TableError::Option(InvalidOption::EmptyName)), "{error:?}");
    let mut odd = holder.clone();
    odd.round = None;
    let error = other.revoke(OBJECT, &odd, WHY).await.expect_err("what to revoke is not known");
    assert!(matches!(error, TableError::Unreadable { .. }), "{error:?}");
    let error = other.revoke("another", &holder, WHY).await.expect_err("it is not there");
    assert!(matches!(error, TableError::Gone { .. }), "{error:?}");

    other.shutdown().await.expect("it holds nothing");
    let error = other.revoke(OBJECT, &holder, WHY).await.expect_err("it is closed");
    assert!(matches!(error, TableError::Closed), "{error:?}");
    let error = other.contenders(OBJECT).await.expect_err("it is closed");
    assert!(matches!(error, TableError::Closed), "{error:?}");
    sleep(TTL + ms(1)).await;
    guard.unlock().await.expect("it was not revoked");
    expect_rows(&store, 0).await;
}

// Goal: a request to leave goes with the contender's rows, however far the clock of the revoking
// client is ahead of the contender's; and revoking the same round again still works.
// Method: revoke twice, and set the clock back before the holder reads it and leaves.
#[tokio::test(start_paused = true)]
async fn revocation_ahead_of_the_clock_goes_with_the_rows() {
    let store = store();
    let (holder, other) = (client(&store, "holder").await, client(&store, "other").await);
    let guard = holder.lock(OBJECT).await.expect("the lock is free");
    sleep(s(1)).await;
    let all = contenders(&other).await;
    other.revoke(OBJECT, &all[0], "not this one").await.expect("the store answers");
    other.revoke(OBJECT, &all[0], WHY).await.expect("the store answers");
    store.set_wall_clock_back(s(3_600));
    guard.check().await.expect("it is held until it is released");
    assert!(
        matches!(guard.state(), GuardState::Expiring { reason, .. } if is_asked_by_other(&reason))
    );
    guard.unlock().await.expect("it is held");
    expect_rows(&store, 0).await;
}
