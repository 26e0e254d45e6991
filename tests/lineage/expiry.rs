//! Rows that expire too early: R1, R2, R3 and R11.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{
    CALL, CLOCK_SKEW, Original, Ours, Party, TERMS, Terms, Verdict, Violation, World, ask, enter,
    expect_excluded, ms, s,
};

// Goal: a client that holds for longer than the TTL stays alone, or is told before the next client
// is let in.
// Method: one client never gives the lock back, another one waits for longer than the TTL. With
// renewal it waits in vain; without renewal it is let in.
#[tokio::test(start_paused = true)]
async fn r01_a_holder_outlives_its_ttl() {
    for renew in [true, false] {
        assert_eq!(holder_outlives_its_ttl(Ours::new(), Terms { renew, ..TERMS }).await, Ok(()));
    }
    let without = Terms { renew: false, ..TERMS };
    let port = holder_outlives_its_ttl(Original::new(), without).await;
    assert_eq!(port, Err(Violation::HolderNotTold));
}

async fn holder_outlives_its_ttl<W: World>(mut world: W, terms: Terms) -> Verdict {
    let (mut holder, mut next) = (world.process().await, world.process().await);
    enter(&mut holder, terms).await;
    let let_in = next.lock(Terms { wait: terms.ttl * 2, ..terms }).await;
    assert_eq!(let_in, !terms.renew, "rows that are not renewed expire, and others don't");
    if let_in && holder.is_inside() { Err(Violation::HolderNotTold) } else { Ok(()) }
}

// Goal: a waiter that waits for longer than its TTL keeps its place, and excludes others once it is
// inside.
// Method: one client waits for 100 s with a TTL of 60 s; when it is inside, another one asks.
#[tokio::test(start_paused = true)]
async fn r02_a_waiter_outlives_its_own_ticket() {
    assert_eq!(waiter_outlives_its_ticket(Ours::new()).await, Ok(()));
    assert_eq!(waiter_outlives_its_ticket(Original::new()).await, Err(Violation::TwoInside));
}

async fn waiter_outlives_its_ticket<W: World>(mut world: W) -> Verdict {
    let mut holder = world.process().await;
    enter(&mut holder, Terms { ttl: s(120), ..TERMS }).await;
    let waiting = ask(world.process().await, Terms { wait: s(300), ..TERMS });
    sleep(s(100)).await;
    assert!(!waiting.is_finished(), "the lock is held");
    holder.unlock().await;
    let (waiter, let_in) = waiting.await.expect("the task does not panic");
    assert!(let_in, "it is the only one in line");
    expect_excluded(&waiter, world.process().await).await
}

// Goal: a client that is stopped in the doorway, for longer than its row there lives, is not let in
// beside another one.
// Method: the answer to the read that draws the ticket comes 7 s late; another client comes half a
// second before. The old row lived for 6 s. Ours lives for the TTL, which is therefore made short
// once, with a wait that does not end before.
#[tokio::test(start_paused = true)]
async fn r03_a_stall_while_entering() {
    let short_wait = Terms { wait: s(1), ..TERMS };
    assert_eq!(stall_while_entering(Ours::new(), short_wait).await, Ok(()));
    let short_ttl = Terms { wait: s(30), ttl: s(5), ..TERMS };
    assert_eq!(stall_while_entering(Ours::new(), short_ttl).await, Ok(()));
    let port = stall_while_entering(Original::new(), short_wait).await;
    assert_eq!(port, Err(Violation::TwoInside));
}

async fn stall_while_entering<W: World>(mut world: W, terms: Terms) -> Verdict {
    const STALL: Duration = s(7);
    let (slow, mut quick) = (world.process().await, world.process().await);
    let stalled = ask(slow, terms);
    // The second call is the read. Now it is on its way, and soon it is applied.
    sleep(CALL + CALL / 4).await;
    world.delay_calls(STALL * 2);
    sleep(CALL / 2).await;
    world.delay_calls(CALL);
    sleep(ms(500)).await;
    assert!(!stalled.is_finished(), "it is stopped in the doorway");
    sleep(STALL - s(1)).await;
    let quick_let_in = quick.lock(TERMS).await;
    let (slow, slow_let_in) = stalled.await.expect("the task does not panic");
    assert!(quick_let_in || slow_let_in, "no other client keeps both of them out");
    if quick.is_inside() && slow.is_inside() { Err(Violation::TwoInside) } else { Ok(()) }
}

// Goal: a holder that can't renew is told while its rows still count for every node whose clock is
// right within the bound: a TTL is counted by the nodes, each on its own clock.
// Method: cut the holder off, note when it is told and when its rows are gone. It begins late in a
// second, which costs most of it: nodes count whole ones.
#[tokio::test(start_paused = true)]
async fn r11_nodes_count_ttls_on_their_own_clocks() {
    assert_eq!(told_before_nodes_differ(Ours::new()).await, Ok(()));
    assert_eq!(told_before_nodes_differ(Original::new()).await, Err(Violation::HolderNotTold));
}

async fn told_before_nodes_differ<W: World>(mut world: W) -> Verdict {
    let began = Instant::now();
    let mut holder = world.process().await;
    let second_ends = s(began.elapsed().as_secs() + 1) - began.elapsed();
    sleep(second_ends - CALL).await;
    enter(&mut holder, TERMS).await;
    world.cut_off();
    let mut told = None;
    while world.rows() > 0 {
        sleep(ms(5)).await;
        if !holder.is_inside() && told.is_none() {
            told = Some(Instant::now());
        }
    }
    let ahead = told.map(|told| told.elapsed());
    if ahead.is_some_and(|ahead| ahead >= CLOCK_SKEW) {
        Ok(())
    } else {
        Err(Violation::HolderNotTold)
    }
}
