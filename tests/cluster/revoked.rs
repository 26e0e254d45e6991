//! Holders that are revoked, asked or by force.

use std::time::Duration;

use bakery_lock::{
    ContenderInfo, ExpiringReason, GuardState, LockClient, LockError, LockGuard, LostReason,
};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::holder;
use super::scene::{Scene, built};
use support::monotonic::now;
use support::{pace, rows};

/// Of a holder that is removed: longer than that takes on the busiest machine.
const LONG_TTL: Duration = Duration::from_secs(120);

const WHY: &str = "a test asks for it";

// Goal: a holder that is asked to leave learns of it at a renewal, and no other client is let in
// before it has released the lock, or its lease has ended; both for a holder on the fast path and
// for one with a ticket.
// Method: revoke at different distances from the last renewal, while another client waits; one
// holder of each kind stays.
#[tokio::test]
async fn revoked_holder_blocks_until_it_leaves() {
    let _beside = support::beside_others().await;
    let scene = Scene::new().await;
    let cases =
        [(false, 100, true), (false, 1_900, false), (true, 1_000, true), (true, 2_500, false)];
    let revocations = cases.map(|(with_ticket, after_ms, releases)| {
        let (scene, after) = (scene.clone(), Duration::from_millis(after_ms));
        tokio::spawn(async move { revoke(&scene, with_ticket, after, releases).await })
    });
    for (revocation, (with_ticket, after_ms, releases)) in revocations.into_iter().zip(cases) {
        let (known, entered) = revocation.await.expect("the task does not panic");
        let way = if with_ticket { "with a ticket" } else { "on the fast path" };
        let end = if releases { "it released the lock" } else { "its lease had ended" };
        println!(
            "revoked {after_ms} ms after its grant, a holder {way} knew it {known:?} later, and \
             the next contender was let in {entered:?} after {end}"
        );
    }
}

/// How long it took from the revocation until the holder knew it, and from when it left until the
/// next contender was let in.
async fn revoke(
    scene: &Scene,
    with_ticket: bool,
    after: Duration,
    releases: bool,
) -> (Duration, Duration) {
    let name = support::unique("revoked");
    let (holder, other) = (client(scene).await, client(scene).await);
    let guard = if with_ticket {
        let first = other.lock(&name).await.expect("the lock is free");
        let holding = wait(&holder, &name);
        rows::wait_for_tickets(&other, &name, 1).await;
        first.unlock().await.expect("the lock was held");
        holding.await.expect("the task does not panic").0.expect("it is its turn")
    } else {
        holder.lock(&name).await.expect("the lock is free")
    };
    let waiting = wait(&other, &name);
    sleep(after).await;
    // Until the waiter has a ticket, the rows don't show which of the two is the holder.
    rows::wait_for_tickets(&other, &name, if with_ticket { 2 } else { 1 }).await;

    let shown = first_contender(&other, &name).await;
    assert_eq!(shown.ticket.is_some(), with_ticket, "it holds the other way");
    other.revoke(&name, &shown, WHY).await.expect("the database answers");
    let revoked = now();
    let reason = pace::within_limit("a revoked holder learns of it", guard.expiring()).await;
    let Some(ExpiringReason::Revoked { why, .. }) = reason else { panic!("{reason:?}") };
    assert_eq!(why, WHY);
    let known = now();
    let left = if releases {
        guard.check().await.expect("it is held until it is released");
        assert!(!waiting.is_finished(), "two clients hold the lock");
        let left = now();
        guard.unlock().await.expect("it is held");
        left
    } else {
        // Noted before it is asked for, so that the end is not taken for later than it is.
        let asked = now();
        let lease_end = asked + u64::try_from(guard.remaining().as_nanos()).expect("it is short");
        expect_revoked(pace::within_limit("the end of the lease", guard.lost()).await);
        lease_end
    };
    let (next, entered) = waiting.await.expect("the task does not panic");
    assert!(entered > left, "let in {} ns before the holder had left", left - entered);
    next.expect("the holder left").unlock().await.expect("the lock was held");
    scene.wait_until_deleted(&name).await;
    (Duration::from_nanos(known - revoked), Duration::from_nanos(entered - left))
}

// Goal: by force the next contender is let in after a holder has died, while its rows would live.
// Method: `holding_program` is killed with SIGKILL, and removed by the client that waits.
#[tokio::test]
async fn dead_holder_is_removed_by_force() {
    let _beside = support::beside_others().await;
    let scene = Scene::new().await;
    let name = support::unique("forced");
    let mut dead = holder::start(&scene, &name, LONG_TTL);
    dead.expect("ready").await;
    dead.go_on().await;
    dead.expect("held").await;
    let other = client(&scene).await;
    let waiting = wait(&other, &name);
    rows::wait_for_tickets(&other, &name, 1).await;
    let said = dead.kill().await;
    let lease_end: u64 = said.last().and_then(|end| end.parse().ok()).expect("it told the end");

    let shown = first_contender(&other, &name).await;
    other.revoke_by_force(&name, &shown, WHY).await.expect("the database answers");
    let removed = now();
    let (guard, entered) = waiting.await.expect("the task does not panic");
    println!(
        "after a dead holder was removed by force, the next contender was let in {:?} later",
        Duration::from_nanos(entered.saturating_sub(removed))
    );
    assert!(entered < lease_end, "let in {} ns after the lease", entered - lease_end);
    guard.expect("no contender is before it").unlock().await.expect("the lock was held");
}

// Goal: a holder that lives although it was removed by force is lost at its next renewal, and its
// rows don't come back.
// Method: another client takes the lock meanwhile; then the rows are looked at for two TTLs.
#[tokio::test]
async fn living_holder_that_was_removed_does_not_come_back() {
    let _beside = support::beside_others().await;
    let scene = Scene::new().await;
    let name = support::unique("forced");
    let (holder, other) = (client(&scene).await, client(&scene).await);
    let guard = holder.lock(&name).await.expect("the lock is free");
    let shown = first_contender(&other, &name).await;
    other.revoke_by_force(&name, &shown, WHY).await.expect("the database answers");
    let removed = now();
    let next = other.lock(&name).await.expect("no contender is before it");
    let lost = pace::within_limit("a removed holder is told", guard.lost()).await;
    let known = Duration::from_nanos(now() - removed);
    println!("a living holder that was removed by force knew it {known:?} later");
    expect_revoked(lost);
    scene.wait_for_rows(&name, 1).await;

    let until = now() + u64::try_from(2 * ttl().as_nanos()).expect("a ttl is short");
    while now() < until {
        let all = other.contenders(&name).await.expect("the database answers");
        assert_eq!(all.len(), 1, "the rows came back: {all:?}");
        sleep(Duration::from_millis(100)).await;
    }
    assert!(matches!(next.state(), GuardState::Held { .. }), "{:?}", next.state());
    next.unlock().await.expect("the lock was held");
    scene.wait_until_deleted(&name).await;
}

async fn client(scene: &Scene) -> LockClient {
    built(scene.builder().ttl(ttl())).await
}

/// Waits for the lock, and notes when it was let in.
fn wait(client: &LockClient, name: &str) -> JoinHandle<(Result<LockGuard, LockError>, u64)> {
    let waiting = client.request(name).acquire();
    tokio::spawn(async move { (waiting.await, now()) })
}

async fn first_contender(client: &LockClient, name: &str) -> ContenderInfo {
    client.contenders(name).await.expect("the database answers").remove(0)
}

fn expect_revoked(reason: Option<LostReason>) {
    let Some(LostReason::Revoked { by, why, .. }) = reason else { panic!("{reason:?}") };
    assert!(by.starts_with("test-host pid ") && why == WHY, "revoked by {by}: {why}");
}

/// Short, but longer on a slow machine.
fn ttl() -> Duration {
    pace::scaled(Duration::from_secs(6))
}
