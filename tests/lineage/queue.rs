//! A long queue: R5.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::task::JoinSet;
use tokio::time::sleep;

use super::{Original, Ours, Party, TERMS, Terms, Verdict, Violation, World, enter, ms, s};

/// The old lock read the first hundred of a queue.
const QUEUE: usize = 300;

// Goal: every process in a long queue has a place of its own, and one after the other is let in.
// Method: 300 processes ask while the lock is held, one after the other; each counts the processes
// inside.
#[tokio::test(start_paused = true)]
async fn r05_more_than_a_hundred_wait() {
    assert_eq!(long_queue(Ours::new()).await, Ok(()));
    assert_eq!(long_queue(Original::new()).await, Err(Violation::TwoInside));
}

async fn long_queue<W: World>(mut world: W) -> Verdict {
    let terms = Terms { wait: s(100), ttl: s(120), ..TERMS };
    let mut holder = world.process().await;
    enter(&mut holder, terms).await;
    world.delay_calls(ms(2));
    let (mut visits, inside) = (JoinSet::new(), Arc::new(AtomicUsize::new(0)));
    for _ in 0..QUEUE {
        visits.spawn(visit(world.process().await, terms, Arc::clone(&inside)));
        sleep(ms(20)).await;
    }
    holder.unlock().await;
    let mut verdict = Ok(());
    while let Some(visit) = visits.join_next().await {
        verdict = verdict.and(visit.expect("the task does not panic"));
    }
    verdict
}

async fn visit<P: Party>(mut party: P, terms: Terms, inside: Arc<AtomicUsize>) -> Verdict {
    if !party.lock(terms).await {
        return Err(Violation::Blocked);
    }
    let others = inside.fetch_add(1, Ordering::Relaxed);
    sleep(ms(5)).await;
    inside.fetch_sub(1, Ordering::Relaxed);
    party.unlock().await;
    if others > 0 { Err(Violation::TwoInside) } else { Ok(()) }
}
