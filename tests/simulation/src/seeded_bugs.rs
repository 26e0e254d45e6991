//! The simulation with one bug after the other planted in the library's protocol: it must find
//! each.

use std::time::{Duration, Instant};

use bakery_lock::LockError;
use bakery_lock::testing::{FaultyStore, bugs, plant};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::runtime::Builder;

#[path = "../../behaviour/herd.rs"]
mod herd;

use self::herd::{HERD_GONE, behind_a_herd};
use super::batch::{Batch, Invariant, run_seeds};
use super::plan::{Deed, Disks, MAX_CLOCK_SKEW, Mix, Plan};
use support::environment::number;

/// Each bug must be found in this many seeds. One in a thousand shows a lease that begins with the
/// acknowledgement; most bugs show in the first fifty.
const SEEDS_MAX: u64 = 10_000;

/// This many are run at a time.
const SEEDS: u64 = 10;

/// The bugs that the first seeds do not show, and the seeds, from this one on, that did. They are
/// run first, and then all of them if the bug is not found there any more.
const FOUND_AT: [(&str, u64); 6] = [
    ("WaiterOnlyReads", 6_820),
    ("LeaseFromAcknowledgement", 550),
    ("LeaseFromReceipt", 150),
    ("OldGrantAccepted", 270),
    ("AnyReturnCounts", 300),
    ("BlockCarriedOver", 50),
];

/// Asks for the shortest history that is found in this many smaller plans, for each bug.
const SHRINK: &str = "BAKERY_LOCK_SIMULATION_SHRINK";

/// A bug is found when one of these is broken, unless it is one of waiting.
const FATAL: [Invariant; 4] =
    [Invariant::MutualExclusion, Invariant::Tokens, Invariant::TokenOrder, Invariant::Leaving];

/// The bug that keeps callers from the lock after a mark that is ahead.
const OF_MARKS: &str = "NextRoundBelowMark";

/// Those wait for too long then.
const SLOW: [Invariant; 2] = [Invariant::Served, Invariant::Promptness];

/// The bug that shows only behind more waiters than a run has.
const OF_HERDS: &str = "PauseUnbounded";

/// The bug that needs callers that share or limit. All others show sooner where each caller wants
/// a lock alone: only such take turns of other clients.
const OF_MODES: &str = "LimitedCountsExclusive";

/// The bug that needs a keeper whose wall clock jumps ahead while it can't reach its guest.
const OF_JUMPS: &str = "SubleaseOnJumpingClock";

/// The bug of replicas that write and read in one round trip. All others show without.
const OF_EXCHANGES: &str = "WaiterOnlyReads";

/// What no simulation can find, and why. The model finds all of them.
const OUT_OF_REACH: [(&str, &str); 15] = [
    ("LateRenewalCounts", "guards look at the clock themselves, and end when their lease does"),
    ("OwnRowsUnread", "only a living client that is removed by force has no rows then"),
    ("RenewalUnread", "no rows are lost, and a holder that does not know finds them at once"),
    ("HoldersDoNotCompare", "no rows are lost, so there are never two holders"),
    ("NoTieBreakOfHolders", "no rows are lost, so there are never two holders"),
    (
        "MarkIgnored",
        "an announcement has to come five seconds late, and just before a sweep that is late, too; \
         not seen in ten thousand seeds, nor in as many that cut a client off for so long",
    ),
    (
        "SweepUnchecked",
        "an announcement has to come five seconds late, and between two reads of a sweep; not seen \
         in ten thousand seeds",
    ),
    ("SubleaseBeyondPlace", "all processes measure time at one speed"),
    ("NoDriftAllowance", "all processes measure time at one speed"),
    (
        "EchoRefreshed",
        "a guest has to miss a grant, then to be cut off, and to stay to the end of its turn, and \
         another caller has to come within the second between; not seen in ten thousand seeds",
    ),
    (
        "TurnWithoutRound",
        "a message of a turn has to come in a later round, while the turn of that number is out; \
         not seen in ten thousand seeds",
    ),
    ("TurnWithoutClient", "the checks know by that client whose place a guest uses"),
    (
        "RowsShortenedInTurn",
        "a keeper has to stop in a turn just after it shortened its rows, and the guest to stay \
         for as long as the earlier ones; not seen in ten thousand seeds",
    ),
    (
        "RowsShortenedAfterReturn",
        "the database must not answer when `min_hold` is over, and the keeper die just after it \
         does; not seen in ten thousand seeds that cut each client off and kill it then",
    ),
    ("FinishedRequestsCount", "a guest returns such a turn at once, and no two are inside"),
];

// Goal: the simulation finds each seeded bug, so when it finds nothing in the shipped protocol,
// that is not because it does not look.
// Method: each bug by itself, on the seeds of the simulation, until something is broken.
#[test]
fn each_seeded_bug_is_found() {
    let tries = number(SHRINK);
    let mut missed = Vec::new();
    for way in bugs() {
        let began = Instant::now();
        if let Some((_, why)) = OUT_OF_REACH.iter().find(|(name, _)| *name == way) {
            println!("{way}: not looked for: {why}");
        } else if way == OF_HERDS {
            plant(&way);
            let waited = wait_behind_a_herd();
            println!("{way}: found: {waited:?} after the lock was free");
            if waited.is_ok_and(|waited| waited < HERD_GONE) {
                missed.push(way);
            }
        } else if let Some((first, batch)) = find(&way) {
            let took = began.elapsed().as_secs_f32();
            println!("{way}: found in the {SEEDS} seeds from {first} on, {took:.1} s");
            println!("    {}", batch.summary());
            if let Some(tries) = tries {
                plant(&way);
                println!("    shrunk: {}", batch.shrunk(tries).summary());
            }
        } else {
            missed.push(way);
        }
    }
    assert!(missed.is_empty(), "not found in {SEEDS_MAX} seeds: {}", missed.join(", "));
}

/// Some seeds where something is broken: the first of them, and what they came to.
fn find(way: &str) -> Option<(u64, Batch)> {
    let found_at = FOUND_AT.iter().filter(|(name, _)| *name == way).map(|(_, first)| *first);
    let batches = found_at.chain((0..SEEDS_MAX / SEEDS).map(|batch| batch * SEEDS)).map(|first| {
        let batch = run_seeds(first..first + SEEDS, |seed| {
            // A bug is planted for one thread, and this is called on each thread that runs a seed.
            plant(way);
            let mut plan = if way == OF_EXCHANGES {
                Plan::new(seed, Disks::Synced)
            } else {
                Plan::without_exchanges(seed, Disks::Synced)
            };
            if way != OF_MODES {
                plan.mixes.fill(Mix::default());
            }
            if way == OF_JUMPS {
                add_jumps(&mut plan);
            }
            plan
        });
        (first, batch)
    });
    let broken: &[_] = if way == OF_MARKS { &SLOW } else { &FATAL };
    batches.into_iter().find(|(_, batch)| broken.iter().any(|it| batch.violations(*it) > 0))
}

/// How long a lock is free before a patient waiter has it that is behind a herd.
fn wait_behind_a_herd() -> Result<Duration, LockError> {
    let paused = Builder::new_current_thread().enable_time().start_paused(true).build();
    let paused = paused.expect("a runtime can be built");
    paused
        .block_on(async { behind_a_herd(&FaultyStore::seeded(7), Duration::from_secs(300)).await })
}

/// Cuts all clients off each other now and then, and sets each wall clock ahead meanwhile, once: a
/// later jump must go farther to count.
fn add_jumps(plan: &mut Plan) {
    let mut rng = StdRng::seed_from_u64(plan.seed ^ 0x1EA9);
    let ahead = i64::try_from(MAX_CLOCK_SKEW.as_micros()).expect("it is a second");
    for (machine, one) in plan.machines.iter_mut().enumerate() {
        (one.peers, one.wall_error) = (true, 0);
        let begins = Duration::from_millis(rng.random_range(500..9_000));
        let jumps = begins + Duration::from_millis(rng.random_range(0..4_000));
        let cut = |cut_off| Deed::CutOff { machine, other: None, cut_off };
        plan.deeds.push((begins, cut(true)));
        plan.deeds.push((jumps, Deed::Step { machine, wall_error: ahead }));
        plan.deeds.push((jumps + Duration::from_secs(2), cut(false)));
    }
}
