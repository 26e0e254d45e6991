//! What the library warns of.

use std::cell::RefCell;
use std::fmt::Debug;
use std::net::TcpListener;
use std::sync::Once;
use std::time::Duration;

use bakery_lock::testing::Fault;
use bakery_lock::{GuardState, LockError, LostReason, PeerOptions};
use tokio::time::sleep;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry};

use super::{OBJECT, SOON, client, ms, paused_runtime, s, store};
use support::pace;

/// The shortest TTL, and the lease that it gives.
const TTL: Duration = s(5);
const LEASE: Duration = s(3);

thread_local! {
    /// Events above DEBUG: level, message and fields. A test has a thread of its own.
    static SAID: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Records what is said from now on, by thread. Called before the library says anything: where a
/// subscriber comes while another thread says something for the first time, `tracing` may conclude
/// that this has no listener, and keep to that.
pub(crate) fn record() {
    static RECORDING: Once = Once::new();
    RECORDING.call_once(|| Registry::default().with(LevelFilter::INFO).with(Recorder).init());
}

/// What was said on this thread.
struct Warnings;

impl Warnings {
    /// What is said from now on.
    fn listen() -> Self {
        record();
        Warnings.take();
        Warnings
    }

    fn take(&self) -> Vec<String> {
        SAID.take()
    }

    /// The one warning since the last look, which must say all of this.
    fn expect_one(&self, parts: &[&str]) {
        let warnings = self.take();
        let [warning] = &warnings[..] else {
            panic!("there is not one warning: {warnings:?}");
        };
        for part in parts {
            assert!(warning.contains(part), "{part:?} is missing: {warning}");
        }
    }
}

struct Recorder;

impl<S: Subscriber> Layer<S> for Recorder {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        struct Text(String);
        impl Visit for Text {
            fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
                self.0 += &format!(" {}={value:?}", field.name());
            }
        }
        let mut text = Text(event.metadata().level().to_string());
        event.record(&mut text);
        SAID.with_borrow_mut(|said| said.push(text.0));
    }
}

// Goal: that a lock is at risk is said once for each time that it is, that it is lost once.
// Method: two outages, a short one and one to the end of the lease.
#[tokio::test(start_paused = true)]
async fn at_risk_and_lost_are_said_once_each() {
    let warnings = Warnings::listen();
    let store = store();
    let client = client(&store, "a").await;
    let request = client.request(OBJECT).ttl(TTL).label("nightly run");
    let guard = request.acquire().await.expect("the lock is free");
    sleep(TTL * 3).await;
    assert!(warnings.take().is_empty(), "all is well");

    for _ in 0..2 {
        store.fail_next(usize::MAX, Fault::UnknownNotApplied);
        while !matches!(guard.state(), GuardState::AtRisk { .. }) {
            assert!(warnings.take().is_empty(), "it is not at risk yet");
            sleep(ms(10)).await;
        }
        sleep(ms(10)).await;
        store.fail_next(0, Fault::UnknownNotApplied);
        warnings.expect_one(&["WARN", "at risk", "users::snap", "remaining=", "held_for="]);
        sleep(TTL * 2).await;
        assert!(matches!(guard.state(), GuardState::Held { .. }), "{:?}", guard.state());
        assert!(warnings.take().is_empty(), "it was renewed");
    }

    store.fail_next(usize::MAX, Fault::UnknownNotApplied);
    assert_eq!(guard.lost().await, Some(LostReason::Expired));
    sleep(SOON).await;
    let said = warnings.take();
    let [at_risk, lost] = &said[..] else {
        panic!("it was at risk, and then lost: {said:?}");
    };
    assert!(at_risk.contains("at risk") && lost.contains("lost"), "{said:?}");
    for part in [
        "WARN",
        "users::snap",
        "label=\"nightly run\"",
        "reason=the lease ran out",
        "held_for=3",
        "unrenewed_for=2.99",
    ] {
        assert!(lost.contains(part), "{part:?} is missing: {lost}");
    }
    drop(guard);
    sleep(SOON).await;
    assert!(warnings.take().is_empty(), "it was said before");
}

// Goal: a client that others do not reach where it says warns once, with the address, and works.
// Method: advertise a port at which nothing listens.
#[tokio::test]
async fn client_that_does_not_reach_itself_warns() {
    let warnings = Warnings::listen();
    let anywhere = TcpListener::bind("127.0.0.1:0").expect("there are free ports");
    let dead = anywhere.local_addr().expect("it is bound");
    drop(anywhere);
    let peers = PeerOptions::new(([127, 0, 0, 1], 0).into()).advertised(dead.to_string());
    let builder = store().client_builder().host("a").peers(peers);
    let client = builder.acquire_timeout(pace::limit()).build().await;
    let client = client.expect("a client in memory is built");
    let mut said = Vec::new();
    pace::until("a warning", async || {
        said = warnings.take();
        !said.is_empty()
    })
    .await;
    let address = format!("address={:?}", dead.to_string());
    for part in ["WARN", "can't connect to its own address", &address] {
        assert!(said[0].contains(part), "{part:?} is missing: {said:?}");
    }
    let guard = client.lock(OBJECT).await.expect("the lock is free");
    guard.unlock().await.expect("the lock was held");
    client.shutdown().await.expect("nothing is left");
    assert!(said.len() == 1 && warnings.take().is_empty(), "it was said once");
}

// Goal: a lock that is held for one lease on purpose comes to its end without a warning of a risk.
// Method: let it end.
#[tokio::test(start_paused = true)]
async fn lock_without_renewal_is_not_at_risk() {
    let warnings = Warnings::listen();
    let store = store();
    let client = client(&store, "a").await;
    let request = client.request(OBJECT).ttl(TTL).auto_renew(false);
    let guard = request.acquire().await.expect("the lock is free");
    sleep(LEASE - ms(10)).await;
    assert!(guard.state().is_held(), "{guard:?}");
    let said = warnings.take();
    assert!(said.is_empty(), "{said:?}");
    guard.unlock().await.expect("it was held");
}

// Goal: that clocks differ puts a holder at risk, which is said with its name.
// Method: clocks that differ for a while.
#[tokio::test(start_paused = true)]
async fn holder_is_warned_of_clocks_that_differ() {
    let warnings = Warnings::listen();
    let store = store();
    let client = client(&store, "a").await;
    let guard = client.lock(OBJECT).await.expect("the lock is free");
    store.set_clocks_apart(s(3));
    sleep(s(21)).await;
    assert!(matches!(guard.state(), GuardState::AtRisk { .. }), "{:?}", guard.state());
    let said = warnings.take();
    let at_risk = said.iter().filter(|warning| warning.contains("at risk")).collect::<Vec<_>>();
    assert!(at_risk.len() == 1 && at_risk[0].contains("users::snap"), "{said:?}");
    guard.unlock().await.expect("it was held");
}

// Goal: that the registry can't be read is said once, with how long, and once when it is again.
// Method: it is silent while locks are taken for an hour, then answers.
#[tokio::test(start_paused = true)]
async fn silent_registry_is_reported_once() {
    let warnings = Warnings::listen();
    let store = store();
    let client = client(&store, "web1").await;
    store.silence_registry(true);
    sleep(s(60)).await;
    for _ in 0..120 {
        let guard = client.lock(OBJECT).await.expect("the last known registration counts");
        guard.unlock().await.expect("it was held");
        sleep(s(30)).await;
    }
    let what = "the registry of hosts can't be read";
    warnings.expect_one(&["WARN", what, "web1", "unread_for=62", "cause="]);
    store.silence_registry(false);
    sleep(s(3)).await;
    warnings.expect_one(&["INFO", "the registry of hosts is read again", "web1", "unread_for=3"]);
    sleep(s(600)).await;
    client.lock(OBJECT).await.expect("the host is registered").unlock().await.expect("it was held");
    assert!(warnings.take().is_empty(), "all is well");
}

// Goal: a revocation is said with its reason, of a holder and of a waiter.
// Method: another client revokes both.
#[tokio::test(start_paused = true)]
async fn revocations_are_said() {
    let warnings = Warnings::listen();
    let store = store();
    let (holder, other) = (client(&store, "holder").await, client(&store, "other").await);
    let waiter = client(&store, "waiter").await;
    let guard = holder.lock(OBJECT).await.expect("the lock is free");
    let waiting = tokio::spawn(waiter.request(OBJECT).timeout(s(60)).acquire());
    sleep(SOON).await;
    let all = other.contenders(OBJECT).await.expect("the store answers");
    other.revoke(OBJECT, &all[1], "too many").await.expect("it waits");
    let error = waiting.await.expect("waiting does not panic").expect_err("it is revoked");
    assert!(matches!(error, LockError::Revoked { .. }), "{error:?}");
    warnings.expect_one(&["WARN", "users::snap", "revoked by other pid", "too many", "waited="]);
    other.revoke(OBJECT, &all[0], "it hangs").await.expect("it holds");
    guard.expiring().await.expect("it is revoked");
    sleep(SOON).await;
    let revoked = "revoked by other pid";
    warnings.expect_one(&["WARN", "expiring", "users::snap", revoked, "it hangs", "remaining="]);
    assert!(matches!(guard.lost().await, Some(LostReason::Revoked { .. })));
    sleep(SOON).await;
    warnings.expect_one(&["WARN", "lost", "users::snap", revoked, "it hangs"]);
}

// Goal: what ends as it should is not warned of.
// Method: a lock that is given back in each way, one that is not obtained, and a client that is
// shut down with nothing held.
#[tokio::test(start_paused = true)]
async fn orderly_end_does_not_warn() {
    let warnings = Warnings::listen();
    let store = store();
    let client = client(&store, "a").await;
    client.lock(OBJECT).await.expect("the lock is free").unlock().await.expect("it was held");
    drop(client.lock(OBJECT).await.expect("the lock is free"));
    let held = client.lock(OBJECT).await.expect("the lock is free");
    assert!(client.request(OBJECT).timeout(s(1)).acquire().await.is_err(), "it is held");
    held.unlock().await.expect("it was held");
    client.shutdown().await.expect("the store answers");
    assert_eq!(warnings.take(), Vec::<String>::new());
}

// Goal: a loss is said also when the guard notices it before the client's runtime does.
// Method: the client's runtime is not run any more; the guard looks at the clock elsewhere.
#[test]
fn loss_is_said_by_the_first_to_notice() {
    let warnings = Warnings::listen();
    let stalled = paused_runtime();
    let guard = stalled.block_on(async {
        let client = client(&store(), "stalled").await;
        client.request(OBJECT).ttl(TTL).acquire().await.expect("the lock is free")
    });
    paused_runtime().block_on(async {
        sleep(LEASE + s(1)).await;
        assert!(warnings.take().is_empty(), "nothing has looked at the clock");
        assert_eq!(guard.state(), GuardState::Lost(LostReason::Expired));
        warnings.expect_one(&["WARN", "lost", "users::snap", "the lease ran out"]);
        drop(guard);
    });
    stalled.block_on(async { sleep(SOON).await });
    assert!(warnings.take().is_empty(), "it was said before");
}

// Goal: a bug that ends the task of a lock is logged at ERROR, once.
// Method: a store that panics.
#[tokio::test(start_paused = true)]
async fn bug_is_logged() {
    let warnings = Warnings::listen();
    let store = store();
    let client = client(&store, "a").await;
    store.fail_next(1, Fault::Panic);
    let error = client.lock(OBJECT).await.expect_err("the task ended");
    assert!(matches!(error, LockError::Closed), "{error:?}");
    sleep(SOON).await;
    warnings.expect_one(&["ERROR", "ended by a bug"]);
    client.lock(OBJECT).await.expect("the name has another task").unlock().await.expect("held");
}
