//! Calls that are polled where there is no tokio runtime, while that of their client runs.

use std::thread;

use bakery_lock::admin::QueueError;
use bakery_lock::testing::FaultyStore;
use bakery_lock::{
    ExpiringReason, GuardState, LockClient, LockError, LostReason, PeerOptions, TableError,
    UnreadyReason,
};
use tokio::runtime::{Builder, Runtime};

use super::{OBJECT, ms, s, seeded};
use support::pace;
use support::polls::{outside_tokio, poll_at_most};

/// A runtime with a thread of its own, for connections too.
fn runtime() -> Runtime {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.expect("a runtime can be built")
}

/// A store whose calls take a millisecond on the wall.
fn store() -> FaultyStore {
    let store = seeded();
    store.delay_calls(ms(1));
    store
}

/// A client on `runtime`. With peers it draws tokens as a keeper does.
fn client(runtime: &Runtime, store: &FaultyStore, host: &str, peers: bool) -> LockClient {
    let builder = store.client_builder().host(host);
    let builder = builder.acquire_timeout(pace::limit());
    let any_port = ([127, 0, 0, 1], 0).into();
    let builder = if peers { builder.peers(PeerOptions::new(any_port)) } else { builder };
    runtime.block_on(builder.build()).expect("a client in memory is built")
}

// Goal: locks, guards and tokens work outside tokio, with and without peers.
// Method: take locks in each way on a thread without a runtime.
#[test]
fn locks_and_guards_work_outside_tokio() {
    for peers in [false, true] {
        let (runtime, store) = (runtime(), store());
        let client = client(&runtime, &store, "a", peers);
        let guard = outside_tokio("lock", client.lock(OBJECT)).expect("the lock is free");
        let refused = outside_tokio("try_lock", client.try_lock(OBJECT));
        assert!(refused.expect("the store answers").is_none());
        outside_tokio("ensure", guard.ensure(s(1))).expect("it is held");
        outside_tokio("check", guard.check()).expect("it is held");
        outside_tokio("fencing_token", guard.fencing_token()).expect("it is held");
        let mut states = guard.states();
        let state = outside_tokio("states", states.changed()).expect("it is held");
        assert!(matches!(state, GuardState::Held { .. }), "{state:?}");
        let lost = guard.lost();
        outside_tokio("unlock", guard.unlock()).expect("it was held");
        assert_eq!(outside_tokio("lost", lost), None);

        let output = outside_tokio("with_lock", client.with_lock(OBJECT, async |_| 7));
        assert_eq!(output.expect("the lock is free"), 7);
        let both = outside_tokio("lock_all", client.lock_all(["one", "other"]));
        let both = both.expect("the locks are free");
        outside_tokio("ensure", both.ensure(s(1))).expect("they are held");
        outside_tokio("unlock", both.unlock()).expect("they were held");
        outside_tokio("shutdown", client.shutdown()).expect("nothing is held");
    }
}

// Goal: a request that lets readers go first works outside tokio.
// Method: a try, and a request that times out.
#[test]
fn yielding_to_readers_works_outside_tokio() {
    let (runtime, store) = (runtime(), store());
    let client = client(&runtime, &store, "a", false);
    let reader = outside_tokio("acquire", client.request(OBJECT).shared().acquire());
    let reader = reader.expect("the lock is free");
    let yielding = client.request(OBJECT).yield_to_shared(pace::limit());
    let tried = outside_tokio("try_acquire", yielding.clone().try_acquire());
    assert!(tried.expect("the store answers").is_none());
    let error = outside_tokio("acquire", yielding.timeout(ms(50)).acquire());
    let error = error.expect_err("a reader has it");
    assert!(matches!(error, LockError::TimedOut { .. }), "{error:?}");
    outside_tokio("unlock", reader.unlock()).expect("it was held");
}

// Goal: what shows and revokes locks works outside tokio.
// Method: look at a lock in each way, and revoke it in both.
#[test]
fn looks_and_revocations_work_outside_tokio() {
    let (runtime, store) = (runtime(), store());
    let [client, other] = ["a", "b"].map(|host| client(&runtime, &store, host, false));
    let health = outside_tokio("health", client.health());
    assert!(health.is_ready(), "{health}");
    for by_force in [false, true] {
        let guard = outside_tokio("lock", client.lock(OBJECT)).expect("the lock is free");
        let seen = outside_tokio("contenders", other.contenders(OBJECT)).expect("it answers");
        assert_eq!(seen.len(), 1, "{seen:?}");
        let line = outside_tokio("line", client.queue(OBJECT)).expect("it is its own lock");
        assert!(line.user.is_some());
        let line = outside_tokio("line", other.queue(OBJECT)).expect_err("it asks no others");
        assert!(matches!(line, QueueError::AsksNone { .. }), "{line:?}");
        let mut locks = other.locks();
        let mut found = 0;
        while outside_tokio("locks", locks.try_next()).expect("the store answers").is_some() {
            found += 1;
        }
        assert_eq!(found, 1);
        let revoked = if by_force {
            outside_tokio("revoke_by_force", other.revoke_by_force(OBJECT, &seen[0], "a test"))
        } else {
            outside_tokio("revoke", other.revoke(OBJECT, &seen[0], "a test"))
        };
        revoked.expect("it is held");
        let checked = outside_tokio("check", guard.check());
        if by_force {
            checked.expect_err("its rows are deleted");
            let reason = outside_tokio("lost", guard.lost());
            assert!(matches!(reason, Some(LostReason::Revoked { .. })), "{reason:?}");
        } else {
            checked.expect("it is still held");
            let reason = outside_tokio("expiring", guard.expiring());
            assert!(matches!(reason, Some(ExpiringReason::Revoked { .. })), "{reason:?}");
        }
    }
}

// Goal: elections work outside tokio.
// Method: one leads, another one campaigns for a while, an observer looks twice.
#[test]
fn elections_work_outside_tokio() {
    let (runtime, store) = (runtime(), store());
    let [client, other] = ["a", "b"].map(|host| client(&runtime, &store, host, false));
    let election = |client: &LockClient| client.election(OBJECT).watch(ms(5));
    let leadership = outside_tokio("campaign", election(&client).campaign());
    let leadership = leadership.expect("the seat is free");
    let later = election(&other);
    let campaigning = poll_at_most(20, later.campaign(), async || thread::sleep(ms(2)));
    assert!(outside_tokio("campaign", campaigning).is_none(), "the seat is taken");
    let mut leaders = later.observe();
    // It is shown from its first renewal on.
    let mut seen = Vec::new();
    while seen.is_empty() {
        let next = outside_tokio("observe", leaders.try_next()).expect("the store answers");
        seen = next.expect("the client lives");
    }
    outside_tokio("resign", leadership.resign()).expect("it led");
    let next = outside_tokio("campaign", later.campaign()).expect("the seat is free");
    outside_tokio("resign", next.resign()).expect("it led");
}

// Goal: once the client's runtime has ended, no call that is polled outside tokio panics or hangs.
// Method: each of them.
#[test]
fn calls_are_closed_after_their_runtime() {
    let (runtime, store) = (runtime(), store());
    let client = client(&runtime, &store, "a", true);
    let guard = outside_tokio("lock", client.lock(OBJECT)).expect("the lock is free");
    let seen = outside_tokio("contenders", client.contenders(OBJECT)).expect("it answers");
    let (mut locks, mut leaders) = (client.locks(), client.election("leader").observe());
    drop(runtime);

    let error = outside_tokio("lock", client.lock("other")).expect_err("it is closed");
    assert!(matches!(error, LockError::Closed), "{error:?}");
    let yielding = client.request("other").yield_to_shared(s(1)).acquire();
    let error = outside_tokio("acquire", yielding).expect_err("it is closed");
    assert!(matches!(error, LockError::Closed), "{error:?}");
    let error = outside_tokio("campaign", client.election("leader").campaign());
    let error = error.expect_err("it is closed");
    assert!(matches!(error, LockError::Closed), "{error:?}");
    let error = outside_tokio("fencing_token", guard.fencing_token());
    error.expect_err("it is lost");
    let error = outside_tokio("contenders", client.contenders(OBJECT)).expect_err("it is closed");
    assert!(matches!(error, TableError::Closed), "{error:?}");
    let error = outside_tokio("line", client.queue(OBJECT)).expect_err("it is closed");
    assert!(matches!(error, QueueError::Table(TableError::Closed)), "{error:?}");
    let error = outside_tokio("revoke", client.revoke(OBJECT, &seen[0], "a test"));
    let error = error.expect_err("it is closed");
    assert!(matches!(error, TableError::Closed), "{error:?}");
    let error = outside_tokio("locks", locks.try_next()).expect_err("it is closed");
    assert!(matches!(error, TableError::Closed), "{error:?}");
    assert_eq!(outside_tokio("locks", locks.try_next()).expect("it has ended"), None);
    let error = outside_tokio("observe", leaders.try_next()).expect_err("it is closed");
    assert!(matches!(error, TableError::Closed), "{error:?}");
    assert_eq!(outside_tokio("observe", leaders.try_next()).expect("it has ended"), None);
    let health = outside_tokio("health", client.health());
    assert!(matches!(health.reasons[..], [UnreadyReason::Closed]), "{health}");
    outside_tokio("shutdown", client.shutdown()).expect("nothing runs");
}
