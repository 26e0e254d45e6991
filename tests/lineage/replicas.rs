//! Quorums that don't meet, and replicas that forget: R10 and R12.

use super::table::Level;
use super::{Original, Ours, TERMS, Verdict, Violation, World, enter, expect_excluded};

// Goal: two clients that ask different replicas exclude each other.
// Method: one client holds, the other one is nearer to other replicas. The old lock lets two in at
// ONE, and not at QUORUM; here no such level can be said, as the source of the type shows.
#[tokio::test(start_paused = true)]
async fn r10_levels_whose_replicas_do_not_meet() {
    assert_eq!(two_near_to_different_replicas(Ours::new()).await, Ok(()));
    assert_eq!(two_near_to_different_replicas(Original::new()).await, Ok(()));
    let weak = Original::with_level(Level::One);
    assert_eq!(two_near_to_different_replicas(weak).await, Err(Violation::TwoInside));

    assert_eq!(levels(), ["Quorum", "LocalQuorum(String)"]);
}

async fn two_near_to_different_replicas<W: World>(mut world: W) -> Verdict {
    let (mut holder, other) = (world.process().await, world.process().await);
    enter(&mut holder, TERMS).await;
    expect_excluded(&holder, other).await
}

/// The levels that `bakery_lock::Consistency` knows. Outside of the library a match over it needs
/// an arm for levels to come, so a compiler can't tell that there are none.
fn levels() -> Vec<&'static str> {
    let (_, rest) = include_str!("../../src/options/consistency.rs")
        .split_once("pub enum Consistency {")
        .expect("the levels stand there");
    let (variants, _) = rest.split_once("\n}").expect("the enum ends");
    let lines = variants.lines().map(str::trim);
    let code = lines.filter(|line| !line.is_empty() && !line.starts_with(['/', '#']));
    code.map(|line| line.trim_end_matches(',')).collect()
}

// Goal: that acknowledged writes are not lost is an assumption, of the old lock as of this one and
// of any that lives on quorums. Users are told what it takes, and what happens otherwise.
// Method: a replica of the port's table forgets what it acknowledged. Nothing can make the store in
// memory forget; the document for operators is read instead.
#[tokio::test(start_paused = true)]
async fn r12_a_replica_forgets() {
    assert_eq!(after_a_holder_came(|_| {}).await, Ok(()));
    let forgetful = after_a_holder_came(|world| world.table.empty_replica(1)).await;
    assert_eq!(forgetful, Err(Violation::TwoInside));

    let told = include_str!("../../docs/operations.md");
    let assumption = told.lines().find(|line| line.contains("| a write that was acknowledged"));
    let assumption = assumption.expect("operators are told so among what the lock assumes");
    for told in ["is not lost", "`commitlog_sync` is", "empty disk", "two can hold one lock"] {
        assert!(assumption.contains(told), "{assumption}");
    }
}

async fn after_a_holder_came(mishap: impl FnOnce(&Original)) -> Verdict {
    let mut world = Original::new();
    let (mut holder, other) = (world.process().await, world.process().await);
    enter(&mut holder, TERMS).await;
    mishap(&world);
    expect_excluded(&holder, other).await
}
