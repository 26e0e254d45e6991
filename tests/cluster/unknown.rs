//! Writes of which the client does not know what became.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bakery_lock::{GuardState, LockError, LockGuard, LostReason, UnlockError};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::lossy::{Loss, LossyLink};
use super::scene::{Scene, built};
use support::history::{Moment, overlap};
use support::monotonic::now;
use support::pace;

/// With the shortest one, a renewal that is written a second time has half a second left, which a
/// busy database may take.
const TTL: Duration = Duration::from_secs(10);
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(1);

/// How long the one whose writes get lost waits, on a quiet machine.
const PATIENCE: Duration = Duration::from_secs(3);

/// Which write gets lost first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Announce,
    Draw,
    Renew,
    Release,
}

const STEPS: [Step; 4] = [Step::Announce, Step::Draw, Step::Renew, Step::Release];

// Goal: when one acknowledgement gets lost, the lock is obtained, renewed and given back all the
// same; no other client holds it meanwhile, and each is let in afterwards.
// Method: proxies between one client and the database lose one answer; another client without such
// trouble locks the same name again and again.
#[tokio::test]
async fn one_lost_acknowledgement_costs_nothing_but_time() {
    let _beside = support::beside_others().await;
    expect_for_all_steps(Loss::OneAcknowledgement).await;
}

// Goal: when all acknowledgements of a client get lost, it does not take its writes for undone:
// it times out, or loses what it held, and others are let in once its rows are gone.
// Method: as before, with all answers to writes lost.
#[tokio::test]
async fn others_are_let_in_after_lost_acknowledgements() {
    let _beside = support::beside_others().await;
    expect_for_all_steps(Loss::Acknowledgements).await;
}

// Goal: the same when the requests get lost, so that the rows stand until their TTL is over.
// Method: as before, with the requests lost.
#[tokio::test]
async fn others_are_let_in_after_lost_requests() {
    let _beside = support::beside_others().await;
    expect_for_all_steps(Loss::Requests).await;
}

/// Tries all steps at the same time, each with its own name, clients and proxies.
async fn expect_for_all_steps(loss: Loss) {
    let cases = STEPS.map(|step| (step, tokio::spawn(lose(step, loss))));
    for (step, case) in cases {
        let (blocked, visits) = case.await.expect("the task does not panic");
        println!(
            "{loss:?} from {step:?} on: no client held the lock for {blocked:?} at most, {visits} \
             others were let in"
        );
        assert!(visits > 0, "{step:?}: no other client was let in");
    }
}

/// Lets the victim lock and lose something at a step. Returns for how long at most no client held
/// the lock while another client waited for it, and how often that client was let in.
async fn lose(step: Step, loss: Loss) -> (Duration, usize) {
    let scene = Scene::new().await;
    let name = support::unique("unknown");
    let lossy = Arc::new(LossyLink::new(&scene).await);
    let builder = lossy.builder(&scene).ttl(pace::scaled(TTL)).acquire_timeout(patience(loss));
    let victim = built(builder).await;

    let (victims_visit, others) = match step {
        Step::Announce => {
            lossy.lose(loss);
            let locking = tokio::spawn(victim.request(&name).acquire());
            let others = Others::begin(&scene, &name).await;
            (visit(locking.await.expect("the task does not panic"), loss).await, others)
        }
        Step::Draw => {
            let held = scene.client().await.lock(&name).await.expect("the lock is free");
            let locking = tokio::spawn(victim.request(&name).acquire());
            lossy.before_a_ticket().await;
            lossy.lose(loss);
            let others = Others::begin(&scene, &name).await;
            sleep(Duration::from_millis(500)).await;
            held.unlock().await.expect("the lock was held");
            (visit(locking.await.expect("the task does not panic"), loss).await, others)
        }
        Step::Renew => {
            let guard = victim.lock(&name).await.expect("nothing is lost yet");
            lossy.lose(loss);
            let others = Others::begin(&scene, &name).await;
            (Some(hold(guard, loss).await), others)
        }
        Step::Release => {
            let guard = victim.lock(&name).await.expect("nothing is lost yet");
            let from = now();
            let others = Others::begin(&scene, &name).await;
            lossy.lose(loss);
            let until = now();
            expect_unlock(guard.unlock().await, loss);
            (Some(Moment::Held { from, until }), others)
        }
    };
    // Long enough for what the victim has left to expire.
    sleep(pace::scaled(TTL) + MAX_CLOCK_SKEW * 2).await;
    let visits = others.end().await;
    lossy.heal();
    victim.shutdown().await.expect("nothing is lost any more");
    scene.wait_until_deleted(&name).await;

    let all: Vec<_> = visits.iter().map(|visit| visit.held).chain(victims_visit).collect();
    assert_eq!(overlap(&all), None, "two clients held the lock");
    let blocked = visits.iter().map(|visit| visit.blocked(&all)).max().unwrap_or_default();
    (blocked, visits.len())
}

/// How long the victim waits: where all gets lost it waits in vain.
fn patience(loss: Loss) -> Duration {
    match loss {
        Loss::OneAcknowledgement => pace::limit(),
        Loss::Acknowledgements | Loss::Requests => pace::scaled(PATIENCE),
    }
}

/// What the victim's acquisition must come to.
async fn visit(locked: Result<LockGuard, LockError>, loss: Loss) -> Option<Moment> {
    match (locked, loss) {
        (Ok(guard), Loss::OneAcknowledgement) => Some(hold(guard, loss).await),
        (Err(LockError::TimedOut { cause, .. }), Loss::Acknowledgements | Loss::Requests) => {
            let cause = cause.expect("the last thing that the database did was not to answer");
            assert!(LossyLink::explains(&cause), "{cause:?}");
            None
        }
        (other, loss) => panic!("with {loss:?} came {other:?}"),
    }
}

/// Holds for a TTL, or until the lock is lost, as it must be when everything gets lost.
async fn hold(guard: LockGuard, loss: Loss) -> Moment {
    let from = now();
    let mut until = from;
    let ttl = u64::try_from(pace::scaled(TTL).as_nanos()).expect("a ttl is short");
    while until < from + ttl {
        // Noted before asking, so that the lock was certainly held.
        let asked = now();
        let state = guard.state();
        if let GuardState::Lost(reason) = state {
            assert_ne!(loss, Loss::OneAcknowledgement, "the next renewal succeeds");
            assert_eq!(reason, LostReason::Expired);
            return Moment::Held { from, until };
        }
        let held = matches!(state, GuardState::Held { .. } | GuardState::AtRisk { .. });
        assert!(held, "it was not given back: {state:?}");
        until = asked;
        sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(loss, Loss::OneAcknowledgement, "without renewal the lock is lost");
    guard.unlock().await.expect("the lock was held");
    Moment::Held { from, until }
}

fn expect_unlock(unlocked: Result<(), UnlockError>, loss: Loss) {
    match (unlocked, loss) {
        (Ok(()), Loss::OneAcknowledgement) => {}
        (
            Err(UnlockError::Unacknowledged { waited, cause: Some(cause), .. }),
            Loss::Acknowledgements | Loss::Requests,
        ) => {
            assert!(LossyLink::explains(&cause), "{cause:?}");
            assert!(waited >= pace::scaled(PATIENCE), "{waited:?}");
        }
        (other, loss) => panic!("with {loss:?} came {other:?}"),
    }
}

/// Another client, which locks the same name again and again.
struct Others {
    ending: Arc<AtomicBool>,
    task: JoinHandle<Vec<Visit>>,
}

/// A visit of the other client.
struct Visit {
    asked: u64,
    held: Moment,
}

impl Others {
    async fn begin(scene: &Scene, name: &str) -> Self {
        let builder = scene.builder().ttl(pace::scaled(TTL));
        let client = built(builder).await;
        let (ending, name) = (Arc::new(AtomicBool::new(false)), name.to_owned());
        let end = Arc::clone(&ending);
        let task = tokio::spawn(async move {
            let mut visits = Vec::new();
            while !end.load(Ordering::Relaxed) {
                let asked = now();
                let guard = client.lock(&name).await.expect("no client blocks for ever");
                let from = now();
                sleep(Duration::from_millis(20)).await;
                let held = Moment::Held { from, until: now() };
                guard.unlock().await.expect("the lock was held");
                visits.push(Visit { asked, held });
            }
            visits
        });
        Others { ending, task }
    }

    async fn end(self) -> Vec<Visit> {
        self.ending.store(true, Ordering::Relaxed);
        self.task.await.expect("the task does not panic")
    }
}

impl Visit {
    /// For how long before this visit no client held the lock, while this one waited for it.
    fn blocked(&self, all: &[Moment]) -> Duration {
        let from = self.held.first();
        let earlier = all.iter().map(Moment::last).filter(|last| *last <= from);
        let free_from = earlier.fold(self.asked, u64::max);
        Duration::from_nanos(from - free_from)
    }
}
