//! Keys of rows that are no identity: R4, R6, R7, R8 and R9.

use bakery_lock::{LockError, LockGuard, LostReason};
use tokio::time::sleep;

use super::{
    Original, Ours, Party, TERMS, Terms, Verdict, Violation, World, ask, enter, expect_excluded, s,
};

// Goal: a client that timed out and asks again with the same object is not let in beside the
// holder.
// Method: three hosts; the second one times out, the third one is let in, the second asks again.
#[tokio::test(start_paused = true)]
async fn r04_a_retry_on_the_same_object() {
    assert_eq!(retry_on_the_same_object(Ours::new()).await, Ok(()));
    assert_eq!(retry_on_the_same_object(Original::new()).await, Err(Violation::TwoInside));
}

async fn retry_on_the_same_object<W: World>(mut world: W) -> Verdict {
    let mut holder = world.process().await;
    let (mut retrying, third) = (world.process().await, world.process().await);
    enter(&mut holder, TERMS).await;
    assert!(!retrying.lock(TERMS).await, "the lock is held");
    let waiting = ask(third, TERMS);
    sleep(s(1)).await;
    holder.unlock().await;
    let (third, let_in) = waiting.await.expect("the task does not panic");
    assert!(let_in, "it is the only one in line");
    expect_excluded(&third, retrying).await
}

// Goal: two processes that have one host number and one process id exclude each other.
// Method: both ask at the same moment.
#[tokio::test(start_paused = true)]
async fn r06_equal_host_number_and_pid() {
    assert_eq!(two_namesakes(Ours::new()).await, Ok(()));
    assert_eq!(two_namesakes(Original::new()).await, Err(Violation::TwoInside));
}

async fn two_namesakes<W: World>(mut world: W) -> Verdict {
    let one = world.process().await;
    let other = world.namesake(&one).await;
    at_the_same_moment(one, other).await
}

// Goal: two threads of one process exclude each other, and a lock that one of them lost is not
// taken for that which the other one holds now.
// Method: both threads ask at the same moment; then one holds for longer than its TTL, the other
// one is let in, the first one gives back, and another process asks.
#[tokio::test(start_paused = true)]
async fn r07_two_threads_of_one_process() {
    assert_eq!(two_threads(Ours::new()).await, Ok(()));
    assert_eq!(two_threads(Original::new()).await, Err(Violation::TwoInside));
    assert_eq!(late_release_by_another_thread(Ours::new()).await, Ok(()));
    let port = late_release_by_another_thread(Original::new()).await;
    assert_eq!(port, Err(Violation::TwoInside));
}

async fn two_threads<W: World>(mut world: W) -> Verdict {
    let one = world.process().await;
    let other = one.thread();
    at_the_same_moment(one, other).await
}

async fn at_the_same_moment<P: Party>(mut one: P, mut other: P) -> Verdict {
    let let_in = tokio::join!(one.lock(TERMS), other.lock(TERMS));
    match let_in {
        (true, true) => Err(Violation::TwoInside),
        (false, false) => Err(Violation::Blocked),
        (true, false) | (false, true) => Ok(()),
    }
}

async fn late_release_by_another_thread<W: World>(mut world: W) -> Verdict {
    let mut late = world.process().await;
    let mut holder = late.thread();
    enter(&mut late, Terms { renew: false, ..TERMS }).await;
    sleep(TERMS.ttl + s(1)).await;
    enter(&mut holder, TERMS).await;
    late.unlock().await;
    expect_excluded(&holder, world.process().await).await
}

// Goal: what a fork copies into a child gives nothing back there.
// Method: the port's object is copied, and its destructor runs. Here nothing but a fork can make
// that copy, as a guard has no clone; what a child is answered is looked at. `tests/fork` forks.
#[tokio::test(start_paused = true)]
async fn r08_a_forked_child_ends() {
    assert_eq!(forked_child_ends().await, Err(Violation::TwoInside));

    a_guard_has_no_clone();
    let refused = LockError::Forked.to_string();
    assert!(refused.contains("forked from: build another"), "{refused}");
    let lost = LostReason::Forked.to_string();
    assert!(lost.contains("this process is a fork"), "{lost}");
}

async fn forked_child_ends() -> Verdict {
    let mut world = Original::new();
    let mut parent = world.process().await;
    enter(&mut parent, TERMS).await;
    let mut inherited = parent.clone();
    inherited.unlock().await;
    expect_excluded(&parent, world.process().await).await
}

/// Does not compile once a guard can be cloned: then both traits offer the function.
fn a_guard_has_no_clone() {
    trait Offers<A> {
        fn nothing() {}
    }
    struct WithClone;
    impl<T> Offers<()> for T {}
    impl<T: Clone> Offers<WithClone> for T {}
    <LockGuard as Offers<_>>::nothing();
}

// Goal: a wall clock that is set back hides neither the holder nor that the lock is free.
// Method: set it back between two acquisitions of one process, and while it holds.
#[tokio::test(start_paused = true)]
async fn r09_the_clock_steps_back() {
    assert_eq!(clock_back_between_two_locks(Ours::new()).await, Ok(()));
    assert_eq!(clock_back_between_two_locks(Original::new()).await, Err(Violation::TwoInside));
    assert_eq!(clock_back_while_held(Ours::new()).await, Ok(()));
    assert_eq!(clock_back_while_held(Original::new()).await, Err(Violation::Blocked));
}

async fn clock_back_between_two_locks<W: World>(mut world: W) -> Verdict {
    let mut holder = world.process().await;
    enter(&mut holder, TERMS).await;
    holder.unlock().await;
    world.set_clocks_back(s(10));
    enter(&mut holder, TERMS).await;
    expect_excluded(&holder, world.process().await).await
}

async fn clock_back_while_held<W: World>(mut world: W) -> Verdict {
    let mut holder = world.process().await;
    enter(&mut holder, TERMS).await;
    world.set_clocks_back(s(10));
    holder.unlock().await;
    let let_in = world.process().await.lock(TERMS).await;
    if let_in { Ok(()) } else { Err(Violation::Blocked) }
}
