//! Holders, while servers are away and without a majority.

use std::time::Duration;

use bakery_lock::{LockError, LostReason};
use tokio::time::{Instant, sleep};

use super::scene::{self, MAX_TTL, QUARANTINE, Scene, built};
use support::pace;

/// Short, but longer on a slow machine, as far as the table allows.
fn ttl() -> Duration {
    pace::scaled(Duration::from_secs(10)).min(MAX_TTL)
}

#[tokio::test]
async fn one_client_holds_at_a_time() {
    let scene = Scene::new().await;
    let (one, other) = (scene.client().await, scene.client().await);
    let guard = one.lock("name").await.expect("it is free");
    assert!(other.try_lock("name").await.expect("the servers answer").is_none());
    let waiting = tokio::spawn(async move { other.lock("name").await });
    sleep(Duration::from_millis(100)).await;
    assert!(!waiting.is_finished());
    guard.unlock().await.expect("it was held");
    let guard = waiting.await.expect("the task does not panic").expect("it is free now");
    guard.unlock().await.expect("it was held");

    let readers = [one.request("name").shared().acquire(), one.request("name").shared().acquire()];
    for reader in readers {
        reader.await.expect("readers share it").unlock().await.expect("it was held");
    }
    let mut locks = one.locks();
    assert_eq!(locks.try_next().await.expect("the servers answer"), None, "no row is left");
}

// Goal: a lock is renewed while any one server is down or stands still.
// Method: hold for longer than two renewals are apart, with a server frozen and then another one
// killed for as long.
#[tokio::test]
async fn lock_is_kept_while_a_server_is_away() {
    let mut scene = Scene::new().await;
    let client = scene.client().await;
    let guard = client.lock("name").await.expect("it is free");
    scene.servers.freeze(0);
    let frozen_until = Instant::now() + MAX_TTL * 2 / 5;
    while Instant::now() < frozen_until {
        assert!(guard.state().is_held(), "{:?}", guard.state());
        sleep(Duration::from_millis(50)).await;
    }
    scene.servers.thaw(0);
    scene::wait_for_finding(&scene.masters, "3 of 3 masters take part").await;
    scene.servers.kill(2);
    let killed_until = Instant::now() + MAX_TTL * 2 / 5;
    while Instant::now() < killed_until {
        assert!(guard.state().is_held(), "{:?}", guard.state());
        sleep(Duration::from_millis(50)).await;
    }
    guard.unlock().await.expect("it was held");
}

// Goal: without a majority no lock is granted, none is kept beyond its lease, and what was begun
// meanwhile leaves nothing behind.
// Method: two of three servers stand still while one client holds and another one asks.
#[tokio::test]
async fn nothing_is_granted_without_a_majority() {
    let scene = Scene::new().await;
    let client = built(scene.builder().ttl(ttl())).await;
    let guard = client.lock("held").await.expect("it is free");
    scene.servers.freeze(0);
    scene.servers.freeze(1);
    let refused = client.request("other").timeout(Duration::from_secs(2)).acquire().await;
    let error = refused.expect_err("there is no majority");
    assert!(error.is_timeout(), "{error:?}");
    let reason = pace::within_limit("the end of the lease", guard.lost()).await;
    assert_eq!(reason, Some(LostReason::Expired));
    scene.servers.thaw(0);
    scene.servers.thaw(1);
    for name in ["other", "held"] {
        let guard = client.lock(name).await.expect("it is free, or will be");
        guard.unlock().await.expect("it was held");
    }
}

// Goal: tokens grow from holder to holder, whichever servers answered the one before.
// Method: another server stands still for each grant.
#[tokio::test]
async fn tokens_grow_whichever_servers_answer() {
    let scene = Scene::new().await;
    let clients = [scene.client().await, scene.client().await];
    let mut last = 0;
    for grant in 0..12 {
        scene.servers.freeze(grant % 3);
        let guard = clients[grant % 2].lock("name").await.expect("it is free");
        let token = guard.fencing_token().await.expect("the servers answer").value();
        assert!(token >= last + 1_000, "{token} after {last}");
        last = token;
        guard.unlock().await.expect("it was held");
        scene.servers.thaw(grant % 3);
    }
}

// Goal: a server that was emptied while a lock is held lets no one else in, and comes back by
// itself once all that it may have forgotten is over.
// Method: empty a server under a holder; another client tries all the time, with the servers that
// have the holder's rows and without one of them.
#[tokio::test]
async fn emptied_server_lets_no_one_in() {
    let scene = Scene::new().await;
    let (holder, other) = (scene.client().await, scene.client().await);
    let guard = holder.lock("name").await.expect("it is free");
    scene.servers.flush(0);
    let emptied = Instant::now();
    scene::wait_for_finding(&scene.masters, "it lost its data, and takes part in").await;
    // Only the emptied server and one other answer.
    scene.servers.freeze(1);
    let tried = other.request("name").timeout(Duration::from_secs(3)).acquire().await;
    let error = tried.expect_err("it is held, and there is no majority");
    assert!(matches!(error, LockError::TimedOut { .. }), "{error:?}");
    scene.servers.thaw(1);
    while emptied.elapsed() < QUARANTINE + Duration::from_secs(1) {
        let tried = other.try_lock("name").await;
        assert!(!matches!(tried, Ok(Some(_))), "two clients hold the lock");
        assert!(guard.state().is_held(), "{:?}", guard.state());
        sleep(Duration::from_millis(200)).await;
    }
    scene::wait_for_finding(&scene.masters, "3 of 3 masters take part").await;
    // The rows were written to it again since.
    scene.servers.freeze(1);
    assert!(other.try_lock("name").await.expect("a majority answers").is_none());
    scene.servers.thaw(1);
    guard.unlock().await.expect("it was held");
}
