//! What a guard tells those who watch it, by its handle and the stream of its states.

use std::mem::discriminant;

use bakery_lock::testing::Fault;
use bakery_lock::{EnsureError, ExpiringReason, FencingError, GuardState, GuardStates, LostReason};
use tokio::time::{Instant, sleep, timeout};

use super::{OBJECT, SOON, client, ms, s, store};

const TTL: std::time::Duration = s(5);

/// The next state, which is of the kind that is expected, within some time.
async fn expect(states: &mut GuardStates, expected: &GuardState, within: std::time::Duration) {
    let next = timeout(within, states.changed()).await.expect("it comes in time");
    let state = next.expect("it is not the end");
    assert_eq!(discriminant(&state), discriminant(expected), "{state:?}, not {expected:?}");
}

const HELD: GuardState = GuardState::Held { remaining: s(0) };
const AT_RISK: GuardState = GuardState::AtRisk { remaining: s(0) };
const EXPIRING: GuardState =
    GuardState::Expiring { reason: ExpiringReason::HoldLimit, remaining: s(0) };

// Goal: the stream tells each state as it begins, and ends with the lock.
// Method: no renewal is acknowledged for a while, then again, then never; and a hold limit.
#[tokio::test(start_paused = true)]
async fn stream_tells_each_state_of_a_guard() {
    let store = store();
    let request = client(&store, "holder").await.request(OBJECT).ttl(TTL);
    let guard = request.max_hold(s(60)).acquire().await.expect("the lock is free");
    let mut states = guard.states();
    expect(&mut states, &HELD, ms(1)).await;
    assert!(timeout(s(20), states.changed()).await.is_err(), "it is held and renewed");

    store.fail_next(usize::MAX, Fault::UnknownNotApplied);
    expect(&mut states, &AT_RISK, s(4)).await;
    assert!(matches!(guard.state(), GuardState::AtRisk { .. }), "told as it begins");
    store.fail_next(0, Fault::NotApplied);
    // A renewal is tried again at least once a second, and the stream looks as often.
    expect(&mut states, &HELD, s(2)).await;

    expect(&mut states, &EXPIRING, s(60)).await;
    store.fail_next(usize::MAX, Fault::UnknownNotApplied);
    let began = Instant::now();
    let last = loop {
        match states.changed().await {
            Some(GuardState::AtRisk { .. }) => {}
            last => break last,
        }
    };
    assert_eq!(last, Some(GuardState::Lost(LostReason::Expired)));
    assert!(began.elapsed() < s(4), "{:?}", began.elapsed());
    assert_eq!(states.changed().await, None);
    assert_eq!(states.changed().await, None);
}

// Goal: the stream ends when the lock is given back, and a handle tells so from then on.
// Method: unlock while a task waits for the next state, and one drops the guard.
#[tokio::test(start_paused = true)]
async fn handle_outlives_its_guard() {
    let store = store();
    let client = client(&store, "holder").await;
    for drops in [false, true] {
        let guard = client.lock(OBJECT).await.expect("the lock is free");
        let (handle, mut states) = (guard.handle(), guard.states());
        let watch = tokio::spawn(async move {
            let mut seen = Vec::new();
            while let Some(state) = states.changed().await {
                seen.push(state);
            }
            seen
        });
        sleep(ms(10)).await;
        assert!(handle.state().is_held() && handle.fencing_token().await.is_ok());
        let began = Instant::now();
        if drops {
            drop(guard);
        } else {
            guard.unlock().await.expect("the lock was held");
        }
        let seen = watch.await.expect("the task does not panic");
        assert!(matches!(&seen[..], [GuardState::Held { .. }, GuardState::Released]), "{seen:?}");
        assert!(began.elapsed() < SOON);
        assert_eq!((handle.state(), handle.remaining()), (GuardState::Released, s(0)));
        assert!(!handle.state().is_held());
        assert_eq!(handle.lost().await, None);
        let error = handle.ensure(s(1)).await.expect_err("it is given back");
        assert!(matches!(error, EnsureError::Released { .. }), "{error:?}");
        let error = handle.check().await.expect_err("it is given back");
        assert!(matches!(error, EnsureError::Released { .. }), "{error:?}");
        let error = handle.fencing_token().await.expect_err("it is given back");
        assert!(matches!(error, FencingError::Released { .. }), "{error:?}");
        // The lock is free, although the handle is still there.
        client.lock(OBJECT).await.expect("the lock is free").unlock().await.expect("it was held");
    }
}
