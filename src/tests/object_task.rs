//! What the task of an object does, and what is done without it.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tracing::Span;
use uuid::Uuid;

use super::shared;
use crate::combiner::Combiner;
use crate::context::ClientContext;
use crate::core::bakery::{Acquire, LeaseTerms, Mode, Patience};
use crate::core::object::Memory;
use crate::core::object::io;
use crate::driver::caller::{Caller, Reply, ReplyTo};
use crate::driver::object_task::{Command, Ended, SharedTask};
use crate::entropy::Entropy;
use crate::error::UnlockError;
use crate::guard::LockGuard;
use crate::guard::grant::Trace;
use crate::testing::FaultyStore;

const CALLERS: u64 = 1_000;

/// As many as wait for anything but a caller: commands, the operation, a timer.
const OTHERS: usize = 10;

fn caller(number: u64, asked: Duration) -> (Caller, oneshot::Receiver<Reply>) {
    let (reply, answer) = oneshot::channel();
    let acquire = Acquire {
        mode: Mode::Exclusive,
        terms: LeaseTerms::new(Duration::from_secs(60), Duration::from_secs(1)),
        patience: Patience::Wait,
        renew: true,
        gives_up: None,
        owner: "snap".into(),
    };
    let deadline = asked + Duration::from_secs(3_600);
    let trace = Trace { span: Span::none(), label: None };
    let (hold_terms, yields) = (None, None);
    let (min_hold, at_least) = (Duration::ZERO, Duration::ZERO);
    let wants =
        io::Caller { number, acquire, hold_terms, yields, min_hold, at_least, asked, deadline };
    (Caller { wants: Box::new(wants), reply_to: ReplyTo { reply, trace } }, answer)
}

/// Polls the task until it waits, as a waker that counts for how many things it waits.
async fn run_until_it_waits(
    mut task: Pin<&mut impl Future<Output = Ended>>,
    waker: &Arc<impl Wake + Send + Sync + 'static>,
) {
    // Else it waits also when it has done as much as a task may do at once.
    let waits = poll_fn(|_| {
        let waker = Waker::from(Arc::clone(waker));
        Poll::Ready(task.as_mut().poll(&mut Context::from_waker(&waker)).is_pending())
    });
    assert!(tokio::task::unconstrained(waits).await, "there is work to do");
}

// Goal: what the task waits for does not grow with the callers that wait, so that waking up costs
// the same for one and for thousands.
// Method: its waker is cloned for each thing that it waits for; count the clones.
#[tokio::test(start_paused = true)]
async fn task_does_not_wait_for_each_caller() {
    struct Count;
    impl Wake for Count {
        fn wake(self: Arc<Self>) {}
    }
    let store = FaultyStore::new();
    store.delay_calls(Duration::from_millis(1));
    let shared = shared(&store);
    let name = Arc::from("users::snap");
    let task = SharedTask::new(name, Arc::clone(&shared), Memory::default(), Handle::current());
    let waker = Arc::new(Count);

    let mut answers = Vec::new();
    for number in 0..CALLERS {
        let (caller, answer) = caller(number, shared.clock.elapsed());
        answers.push(answer);
        task.add(Command::Acquire(caller));
    }
    let mut working = pin!(task.work());
    run_until_it_waits(working.as_mut(), &waker).await;
    let waits_for = Arc::strong_count(&waker);
    assert!(waits_for <= OTHERS, "it waits for {waits_for} things");
}

#[tokio::test]
async fn task_with_nothing_left_to_do_ends() {
    let name = Arc::from("users::snap");
    let shared = shared(&FaultyStore::new());
    let task = SharedTask::new(name, shared, Memory::default(), Handle::current());
    // As when the client is shut down just as the object is released.
    task.add(Command::Close);
    let mut ending = pin!(task.work());
    let ended = poll_fn(|context| Poll::Ready(ending.as_mut().poll(context)));
    assert_eq!(ended.await, Poll::Ready(Ended::Idle), "it waits for nothing");
}

/// Counts how often the task is woken up.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wakes {
    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// The guard of one caller and the answer to another one, which waits; the task waits as well.
async fn guard_and_waiter(
    task: &SharedTask,
    mut working: Pin<&mut impl Future<Output = Ended>>,
    wakes: &Arc<Wakes>,
    now: Duration,
) -> (LockGuard, oneshot::Receiver<Reply>) {
    let ((first, mut granted), (second, waiting)) = (caller(1, now), caller(2, now));
    task.add(Command::Acquire(first));
    let guard = loop {
        run_until_it_waits(working.as_mut(), wakes).await;
        if let Ok(answer) = granted.try_recv() {
            break answer.expect("the store answers").expect("it waits for the lock");
        }
        tokio::task::yield_now().await;
    };
    task.add(Command::Acquire(second));
    run_until_it_waits(working.as_mut(), wakes).await;
    (guard, waiting)
}

// Goal: a lock passes on without the object's own task, which would have to be woken up for that.
// Method: unlock while another caller waits, and do not poll the task.
#[tokio::test(start_paused = true)]
async fn unlock_passes_the_lock_on_at_once() {
    let shared = shared(&FaultyStore::new());
    let now = shared.clock.elapsed();
    let task =
        SharedTask::new(Arc::from("users::snap"), shared, Memory::default(), Handle::current());
    let (mut working, wakes) = (pin!(task.work()), Arc::new(Wakes::default()));
    let (guard, mut waiting) = guard_and_waiter(&task, working.as_mut(), &wakes, now).await;

    let before = wakes.count();
    guard.unlock().await.expect("it is held");
    let passed_on = waiting.try_recv().expect("it is answered").expect("it is granted");
    assert_eq!(wakes.count(), before);
    drop(passed_on);
    assert!(wakes.count() > before, "a guard that is dropped leaves the work to the task");
}

/// Panics once it is set: stands for a bug in what is done for an object.
#[derive(Debug, Default)]
struct Bug(AtomicBool);

impl Entropy for Bug {
    fn client(&self) -> Uuid {
        Uuid::nil()
    }

    fn jitter(&self) -> f64 {
        assert!(!self.0.load(Ordering::SeqCst), "a bug");
        0.5
    }
}

// Goal: a bug in what is done for an object ends that object, and does not panic in the caller that
// happens to do it.
// Method: unlock while another caller waits, and let the library's randomness panic.
#[tokio::test(start_paused = true)]
async fn bug_is_not_the_callers() {
    let bug = Arc::new(Bug::default());
    let shared = Arc::into_inner(shared(&FaultyStore::new())).expect("no one else has it");
    let shared = Arc::new(ClientContext { entropy: Arc::clone(&bug) as _, ..shared });
    let now = shared.now();
    let task =
        SharedTask::new(Arc::from("users::snap"), shared, Memory::default(), Handle::current());
    let other = Arc::clone(&task);
    let (mut working, wakes) = (Box::pin(async move { other.work().await }), Arc::default());
    let (guard, waiting) = guard_and_waiter(&task, working.as_mut(), &wakes, now.elapsed).await;

    let mut unlocking = pin!(guard.unlock());
    let before = wakes.count();
    bug.0.store(true, Ordering::SeqCst);
    let unlocked = poll_fn(|context| Poll::Ready(unlocking.as_mut().poll(context))).await;
    assert!(unlocked.is_pending(), "there is no answer");
    assert!(wakes.count() > before, "the task learns of it");
    let ended = poll_fn(|context| Poll::Ready(working.as_mut().poll(context))).await;
    assert_eq!(ended, Poll::Ready(Ended::Failed));
    task.run();
    drop((task.fail(now), task, working));
    assert!(matches!(unlocking.await, Err(UnlockError::Closed)));
    assert!(waiting.await.is_err(), "it has no answer");
}
