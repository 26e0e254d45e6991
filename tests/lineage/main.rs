//! What let two in at once with `QCassandraLock`, the predecessor, and does not here.
//!
//! Each test is named after one of its twelve known races, R1 to R12. Its body knows neither lock:
//! it drives a [`World`], and says what went wrong in it, so the same body must find nothing here
//! and the race in a small port of the old algorithm, or else it would show nothing. Where a race
//! can't even be asked for here, the test shows why.

mod original;
mod ours;
mod table;

mod expiry;
mod keys;
mod queue;
mod replicas;

use std::future::Future;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::sleep;

use original::Original;
use ours::Ours;

/// The object that each party here wants to lock.
const OBJECT: &str = "users::snap";

/// How long a call of the database takes: it is applied after half of it.
const CALL: Duration = ms(20);

/// How far the clocks of two nodes may differ.
const CLOCK_SKEW: Duration = s(1);

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A database, the machines around it, and a lock that they use.
trait World {
    type Party: Party;

    /// An empty database whose calls take [`CALL`].
    fn new() -> Self;

    /// A process on a host of its own. The first host has the smallest number.
    async fn process(&mut self) -> Self::Party;

    /// Another process that has the host number and the process id of `other`.
    async fn namesake(&mut self, other: &Self::Party) -> Self::Party;

    /// Lets each half of a call that begins from now on take half of `delay`: what comes before
    /// the call is applied, and what comes after.
    fn delay_calls(&self, delay: Duration);

    /// From now on nothing that a party asks of the database is applied or answered.
    fn cut_off(&self);

    /// Sets the wall clocks of all machines but the database's back.
    fn set_clocks_back(&self, by: Duration);

    /// How many rows of the object a read of a quorum would show now.
    fn rows(&self) -> usize;
}

/// A party that takes the lock: an object of the old class, a handle and a guard here.
trait Party: Send + Sized + 'static {
    /// Another thread of the same process, with nothing locked.
    fn thread(&self) -> Self;

    /// Asks for the lock, and tells whether it was let in in time.
    fn lock(&mut self, terms: Terms) -> impl Future<Output = bool> + Send;

    /// Gives the lock back, or what it takes for it.
    fn unlock(&mut self) -> impl Future<Output = ()> + Send;

    /// Whether it was let in, and was not told since then that it is out.
    fn is_inside(&self) -> bool;
}

/// How a party asks for the lock.
#[derive(Clone, Copy, Debug)]
struct Terms {
    wait: Duration,
    ttl: Duration,
    /// Whether to renew what is held. The old lock can't.
    renew: bool,
}

/// What both locks do unless they are told otherwise.
const TERMS: Terms = Terms { wait: s(5), ttl: s(60), renew: true };

/// What can go wrong in a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Violation {
    /// Two parties are inside.
    TwoInside,
    /// A party is inside, or may be at any moment, and the holder before it was not told.
    HolderNotTold,
    /// No party is inside, and none is let in.
    Blocked,
}

type Verdict = Result<(), Violation>;

/// Asks for a lock that no other party has.
async fn enter<P: Party>(party: &mut P, terms: Terms) {
    assert!(party.lock(terms).await, "the lock is free");
}

/// Asks for a lock that others may have, which takes a while.
fn ask<P: Party>(mut party: P, terms: Terms) -> JoinHandle<(P, bool)> {
    tokio::spawn(async move {
        let let_in = party.lock(terms).await;
        (party, let_in)
    })
}

/// Asks for a lock that `holder` has.
async fn expect_excluded<P: Party>(holder: &P, mut other: P) -> Verdict {
    assert!(holder.is_inside(), "there is no holder to exclude the other party");
    let let_in = other.lock(TERMS).await;
    if let_in && holder.is_inside() { Err(Violation::TwoInside) } else { Ok(()) }
}

/// One party holds, one waits and is let in, one waits for too short a time, and one comes
/// afterwards.
async fn everyday_life<W: World>(mut world: W) -> Verdict {
    let mut holder = world.process().await;
    enter(&mut holder, TERMS).await;
    expect_excluded(&holder, world.process().await).await?;
    let waiting = ask(world.process().await, TERMS);
    sleep(s(1)).await;
    if waiting.is_finished() {
        return Err(Violation::TwoInside);
    }
    holder.unlock().await;
    let (mut next, let_in) = waiting.await.expect("the task does not panic");
    if !let_in {
        return Err(Violation::Blocked);
    }
    expect_excluded(&next, holder).await?;
    next.unlock().await;
    enter(&mut world.process().await, TERMS).await;
    Ok(())
}

// Goal: the port is a lock as long as nothing special happens, so that the other tests find the
// races and not a bad port.
// Method: everyday life with both of them.
#[tokio::test(start_paused = true)]
async fn both_locks_work_on_ordinary_days() {
    assert_eq!(everyday_life(Ours::new()).await, Ok(()));
    assert_eq!(everyday_life(Original::new()).await, Ok(()));
}
