//! Holders that do not come to an end.

use std::convert::Infallible;
use std::sync::Mutex;
use std::time::Duration;

use bakery_lock::{GuardState, LockError, LockHandle, LockRequest, LostReason};
use tokio::sync::Notify;
use tokio::time::sleep;

use super::scene::Scene;
use support::monotonic::now;
use support::pace;

/// How a holder hangs.
#[derive(Clone, Copy, Debug)]
enum Hanging {
    /// A guard that is not given back.
    Guard,
    /// Work under `with_lock` that does not end.
    Work,
}

// Goal: a holder that does not come to an end is told so at its limit, loses the lock at the end of
// the grace and not before, and the next client is let in then. Until then its lock is renewed.
// Method: hold in both ways and look at the guard every millisecond, while another client waits.
#[tokio::test]
async fn hanging_holder_loses_the_lock_at_its_limit() {
    let _beside = support::beside_others().await;
    let scene = Scene::new().await;
    tokio::join!(
        outlast_the_limit(&scene, Hanging::Guard),
        outlast_the_limit(&scene, Hanging::Work)
    );
}

async fn outlast_the_limit(scene: &Scene, hanging: Hanging) {
    let name = support::unique("hold");
    let (holder, other) = (scene.client().await, scene.client().await);
    let request = holder.request(&name).ttl(ttl()).max_hold(max_hold()).max_hold_grace(grace());
    let watch = Watch::default();
    let asked = now();
    let (lost, (granted, next)) = tokio::join!(hang(request, hanging, &watch), async {
        watch.held.notified().await;
        let granted = now();
        let next = other.request(&name).acquire().await;
        (granted, (next.expect("the lock is taken from its holder"), now()))
    });
    let (next, let_in) = next;
    let Seen { last_held, first_expiring } = watch.seen();
    let renewals = holder.statistics().writes - 1;
    println!(
        "{hanging:?}: max_hold {:?}, grace {:?}: expiring {:?}, lost {:?}, the next \
         one let in {:?} after the grant; {renewals} renewals",
        max_hold(),
        grace(),
        since(granted, first_expiring),
        since(granted, lost),
        since(granted, let_in),
    );

    // The grant is between these two.
    let limit = [asked, granted].map(|grant| grant + nanos(max_hold()));
    let end = limit[0] + nanos(grace());
    assert!(last_held <= limit[1], "it was not told in time");
    assert!(limit[0] <= first_expiring && first_expiring < lost, "it was told too early");
    assert!(end <= lost && end <= let_in, "it was lost too early");
    assert!(u128::from(renewals) >= (max_hold() + grace()).as_nanos() / lease().as_nanos());

    next.check().await.expect("it is the only holder");
    next.unlock().await.expect("the lock was held");
    scene.wait_until_deleted(&name).await;
}

/// Hangs until the lock is lost by its limit. When that was.
async fn hang(request: LockRequest, hanging: Hanging, watch: &Watch) -> u64 {
    let reason = match hanging {
        Hanging::Guard => {
            let guard = request.acquire().await.expect("the lock is free");
            tokio::select! {
                never = watch.look_at(&guard) => match never {},
                reason = guard.lost() => reason.expect("it is not given back"),
            }
        }
        Hanging::Work => match request.with_lock(async |lock| watch.look_at(&lock).await).await {
            Ok(never) => match never {},
            Err(LockError::WorkStopped { reason, .. }) => reason,
            Err(other) => panic!("the lock is free: {other}"),
        },
    };
    assert_eq!(reason, LostReason::HoldLimit);
    now()
}

/// Looks at a guard all the time.
#[derive(Default)]
struct Watch {
    held: Notify,
    seen: Mutex<Seen>,
}

/// What a guard said of itself.
#[derive(Clone, Copy, Default)]
struct Seen {
    /// Just before it was asked for the last time that it said to be held within the limit.
    last_held: u64,
    /// Once it had said for the first time that it is expiring.
    first_expiring: u64,
}

impl Watch {
    async fn look_at(&self, lock: &LockHandle) -> Infallible {
        self.held.notify_one();
        loop {
            self.look_once(lock);
            sleep(Duration::from_millis(1)).await;
        }
    }

    fn look_once(&self, lock: &LockHandle) {
        let asked = now();
        let state = lock.state();
        let mut seen = self.seen.lock().expect("the mutex is not poisoned");
        if matches!(state, GuardState::Held { .. }) {
            seen.last_held = asked;
        } else if matches!(state, GuardState::Expiring { .. }) && seen.first_expiring == 0 {
            seen.first_expiring = now();
        }
    }

    fn seen(&self) -> Seen {
        *self.seen.lock().expect("the mutex is not poisoned")
    }
}

fn since(earlier: u64, later: u64) -> Duration {
    Duration::from_nanos(later.saturating_sub(earlier))
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).expect("a test is short")
}

/// Shorter than the limit, so that only a renewed lock lasts until then. Longer on a slow machine.
fn ttl() -> Duration {
    pace::scaled(Duration::from_secs(8))
}

/// What the TTL leaves: a second less for rounding, one for clock skew.
fn lease() -> Duration {
    ttl() - Duration::from_secs(2)
}

fn max_hold() -> Duration {
    lease() * 3 / 2
}

fn grace() -> Duration {
    lease() / 2
}
