//! Holders that die, and holders whose rows are deleted.

use std::time::Duration;

use bakery_lock::{LockGuard, LostReason, UnlockError};
use tokio::time::sleep;

use super::scene::{Scene, built};
use support::monotonic::now;
use support::pace;
use support::program::{self, Program};
use support::rows;

// Goal: when a holder is killed, the next client is let in, but not before the dead holder's lease
// ended. Both for a holder by the short way and for one with a ticket.
// Method: `holding_program` tells all the time when its lease ends; it is killed with SIGKILL, at
// different distances from its last renewal, while another client waits.
#[tokio::test]
async fn next_client_follows_a_killed_holder() {
    let _beside = support::beside_others().await;
    let scene = Scene::new().await;
    let cases = [("short-way", 300), ("short-way", 1_900), ("ticket", 1_000), ("ticket", 2_500)];
    let killings = cases.map(|(way, after_ms)| {
        let scene = scene.clone();
        let after = Duration::from_millis(after_ms);
        tokio::spawn(async move { kill_a_holder(&scene, way, after).await })
    });
    for (killing, (way, after_ms)) in killings.into_iter().zip(cases) {
        let (after_death, after_lease) = killing.await.expect("the task does not panic");
        println!(
            "holder ({way}) killed {after_ms} ms after its grant: the next client was let in \
             {after_death:?} later, {after_lease:?} after the lease had ended"
        );
    }
}

/// Kills a holder some time after its grant. Returns how long it took from then, and from the end
/// of the lease, until the next client was let in.
async fn kill_a_holder(scene: &Scene, way: &str, after: Duration) -> (Duration, Duration) {
    let (name, other) = (support::unique("killed"), scene.client().await);
    // With a holder before it, the program must draw a ticket.
    let first = match way {
        "ticket" => Some(other.lock(&name).await.expect("the lock is free")),
        _ => None,
    };
    let mut holder = start(scene, &name, ttl());
    holder.expect("ready").await;
    holder.go_on().await;
    if let Some(first) = first {
        rows::wait_for_tickets(&other, &name, 1).await;
        first.unlock().await.expect("the lock was held");
    }
    holder.expect("held").await;
    rows::wait_for_tickets(&other, &name, usize::from(way == "ticket")).await;
    let waiting = other.request(&name).acquire();
    let waiting = tokio::spawn(async move { (waiting.await, now()) });

    sleep(after).await;
    let killed = now();
    let said = holder.kill().await;
    let lease_end = said.last().expect("it told when its lease ends");
    let lease_end: u64 = lease_end.parse().expect("a lease ends at a number");
    let (guard, granted) = waiting.await.expect("the task does not panic");
    guard.expect("the dead holder's rows expire").unlock().await.expect("the lock was held");
    assert!(granted > lease_end, "let in {} ns before the lease ended", lease_end - granted);
    let after_death = Duration::from_nanos(granted - killed);
    scene.wait_until_deleted(&name).await;
    (after_death, Duration::from_nanos(granted - lease_end))
}

/// Starts [`holding_program`].
pub(crate) fn start(scene: &Scene, name: &str, ttl: Duration) -> Program {
    scene.start("holder::holding_program", &format!("{name} {}", ttl.as_secs()))
}

// Goal: the program that the test above kills. By itself: a lease is renewed before it ends.
// Method: hold and tell every few milliseconds when the lease ends.
#[tokio::test]
async fn holding_program() {
    let Some(order) = program::order() else {
        let scene = Scene::new().await;
        let guard = hold(&scene, &support::unique("held"), ttl()).await;
        let until = now() + 5_000_000_000;
        while now() < until {
            let remaining = guard.remaining();
            assert!(!remaining.is_zero(), "{:?}", guard.state());
            sleep(Duration::from_millis(100)).await;
        }
        return guard.unlock().await.expect("the lock was held");
    };
    let (scene, order) = Scene::of(&order).await;
    let (name, ttl) = order.split_once(' ').expect("an order is a name and a TTL");
    let ttl = Duration::from_secs(ttl.parse().expect("an order ends with a TTL in seconds"));
    program::say("ready");
    program::wait_for_word();
    let guard = hold(&scene, name, ttl).await;
    program::say("held");
    loop {
        // Noted before it is asked for, so that the end is not taken for later than it is.
        let asked = Duration::from_nanos(now());
        let remaining = guard.remaining();
        assert!(!remaining.is_zero(), "{:?}", guard.state());
        program::say(&(asked + remaining).as_nanos().to_string());
        sleep(Duration::from_millis(5)).await;
    }
}

async fn hold(scene: &Scene, name: &str, ttl: Duration) -> LockGuard {
    let client = built(scene.builder().ttl(ttl)).await;
    client.lock(name).await.expect("the lock will be free")
}

// Goal: a holder whose row was deleted notices at its next renewal, is lost, and leaves no row.
// Method: delete all rows of the object by hand.
#[tokio::test]
async fn holder_whose_row_is_deleted_is_lost() {
    let _beside = support::beside_others().await;
    let scene = Scene::new().await;
    let name = support::unique("deleted");
    let guard = hold(&scene, &name, ttl()).await;
    let lost = guard.lost();
    scene.delete_rows(&name).await;
    let reason = pace::within_limit("the next renewal", lost).await;
    assert_eq!(reason, Some(LostReason::RowMissing));
    let error = guard.unlock().await.expect_err("it was lost");
    assert!(matches!(error, UnlockError::Lost { reason: LostReason::RowMissing, .. }), "{error:?}");
    scene.wait_until_deleted(&name).await;
}

/// Short, but longer on a slow machine.
fn ttl() -> Duration {
    pace::scaled(Duration::from_secs(6))
}
