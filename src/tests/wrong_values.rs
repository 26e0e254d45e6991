//! Values that one client writes and others compare, wrong by any amount: what they do at most.
//! `docs/safety.md` has the table that these tests follow, line by line.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::scene::{DEAD, FOREIGN, OBJECT, SOON, Scene, TTL, lock_once, ms, s};
use crate::builder::BuildError;
use crate::core::bakery::{Change, Claim, LastRelease, Mode, Revocation, RevokeKind};
use crate::error::{LockError, LostReason};
use crate::fencing::FencingError;
use crate::guard::grant::GuardState;
use crate::setup::hosts::{Host, RegistryError};
use crate::store::HostRow;

/// How far clocks may differ.
const SKEW: Duration = s(1);

const HOUR: i64 = 3_600_000_000;
const YEAR: i64 = 365 * 24 * HOUR;

/// By how many µs a value is off.
const OFF: [i64; 7] = [i64::MIN, -YEAR, -HOUR, 0, HOUR, YEAR, i64::MAX];

/// How many wait for a holder.
const WAITERS: u32 = 4;

impl Scene {
    async fn put(&self, stamp: i64, claim: Claim) {
        let ttl_seconds = i32::try_from(TTL.as_secs()).expect("it is a minute");
        self.write(stamp, Change::Put { claim, ttl_seconds }).await;
    }

    /// A row of the host `a` with number 4, added a year ago.
    async fn write_host(&self, stamp: i64) {
        let row = HostRow {
            name: "a".to_owned(),
            number: 4,
            added_at_millis: self.now(-YEAR) / 1_000,
            removed_at_millis: None,
            seen_at_millis: None,
            stamp,
        };
        self.store.hosts.write_host(&row).await.expect("the store answers");
    }
}

/// The claim of a foreign contender.
fn foreign(round: i64) -> Claim {
    Claim {
        contender: FOREIGN,
        round,
        mode: Mode::Exclusive,
        ticket: None,
        owner: "foreign pid 1".into(),
        held_since: None,
    }
}

// Goal: rows of a contender that died with a wrong clock block for their TTL, and no longer,
// whatever its round, its stamps and its ticket; by force they are removed at once.
// Method: such rows; wait for their end, and remove them.
#[tokio::test(start_paused = true)]
async fn rows_of_any_round_and_stamp_block_for_their_ttl() {
    let tickets = [i64::MIN, 1, i64::MAX - 2].map(|ticket| (0, Some(ticket)));
    for (off, ticket) in OFF.map(|off| (off, None)).into_iter().chain(tickets) {
        let scene = Scene::new();
        let (client, other) = (scene.client("a").await, scene.client("b").await);
        let claim = Claim { ticket, ..foreign(scene.now(off)) };
        scene.put(scene.now(off), claim.clone()).await;
        let waited = lock_once(&client).await;
        assert!((TTL - s(1)..TTL + s(4)).contains(&waited), "{off} {ticket:?}: {waited:?}");
        assert!(lock_once(&other).await < SOON, "{off} {ticket:?}");

        let scene = Scene::new();
        let client = scene.client("a").await;
        scene.put(scene.now(off), claim).await;
        let seen = scene.only_contender(&client).await;
        client.revoke_by_force(OBJECT, &seen, "it is dead").await.expect("it is there");
        assert!(lock_once(&client).await < SOON, "{off} {ticket:?}");
    }
}

// Goal: the largest ticket leaves none, for the TTL of its row.
// Method: such a row, in rounds of any time.
#[tokio::test(start_paused = true)]
async fn largest_ticket_ends_with_its_row() {
    for off in OFF {
        let scene = Scene::new();
        let client = scene.client("a").await;
        let claim = Claim { ticket: Some(i64::MAX), ..foreign(scene.now(off)) };
        scene.put(scene.now(off), claim).await;
        let error = client.lock(OBJECT).await.expect_err("there is no larger ticket");
        assert!(matches!(error, LockError::NoTicketLeft { .. }), "{error:?}");
        sleep(TTL).await;
        assert!(lock_once(&client).await < SOON, "{off}");
    }
}

// Goal: a wall clock that is wrong for a moment leaves no stamp, round or time of holding beyond
// what the nodes' clocks confirm, and costs others nothing.
// Method: a client locks while its clock is ahead, and holds; then it is right again.
#[tokio::test(start_paused = true)]
async fn wrong_wall_clock_leaves_no_stamp_ahead() {
    for ahead in [HOUR, YEAR, 1_000 * YEAR].map(|it| Duration::from_micros(it.unsigned_abs())) {
        let scene = Scene::new();
        let (client, other) = (scene.client("a").await, scene.client("b").await);
        scene.faulty.set_wall_clock_ahead(ahead);
        let guard = client.lock(OBJECT).await.expect("the lock is free");
        scene.faulty.set_wall_clock_back(ahead);
        sleep(s(5)).await;
        guard.ensure(s(57)).await.expect("it is renewed");
        let seen = scene.only_contender(&other).await;
        let at_most = scene.now(i64::try_from(SKEW.as_micros()).expect("it is a second"));
        assert!(seen.round.is_some_and(|round| round <= at_most), "{seen:?}");
        let at_most = UNIX_EPOCH + Duration::from_micros(at_most.unsigned_abs());
        assert!(seen.held_since.is_some_and(|since| since <= at_most), "{seen:?}");
        guard.unlock().await.expect("it was held");
        for client in [&other, &client] {
            assert!(lock_once(client).await < SOON);
        }
    }
}

// Goal: a mark of any value costs each client one more round at most, and none a lock; above the
// largest ones no round is begun, and that is an error.
// Method: such marks; two clients lock in turn.
#[tokio::test(start_paused = true)]
async fn mark_of_any_value_costs_no_lock() {
    for off in OFF {
        let scene = Scene::new();
        let (client, other) = (scene.client("a").await, scene.client("b").await);
        scene.write(scene.now(off), Change::Mark).await;
        for client in [&client, &other, &client] {
            if off == i64::MAX {
                let error = client.lock(OBJECT).await.expect_err("no round is above it");
                assert!(matches!(error, LockError::MarkOutOfReach { .. }), "{error:?}");
            } else {
                assert!(lock_once(client).await < SOON, "{off}");
            }
            // Until the task of the lock has ended.
            sleep(SOON).await;
        }
    }
}

// Goal: a sweep hides nothing that the nodes' clocks don't confirm to be past, however wrong the
// wall clock of the client that makes it.
// Method: dead rows, and a client whose wall clock is ahead, or behind.
#[tokio::test(start_paused = true)]
async fn wrong_wall_clock_leaves_no_mark_ahead() {
    for off in [-YEAR, -HOUR, 0, HOUR, YEAR] {
        let scene = Scene::new();
        let (client, other) = (scene.client("a").await, scene.client("b").await);
        scene.leave_dead_rows(DEAD).await;
        sleep(s(10)).await;
        let by = Duration::from_micros(off.unsigned_abs());
        if off > 0 {
            scene.faulty.set_wall_clock_ahead(by);
        } else {
            scene.faulty.set_wall_clock_back(by);
        }
        let guard = client.lock(OBJECT).await.expect("the lock is free");
        sleep(s(5)).await;
        if off > 0 {
            scene.faulty.set_wall_clock_back(by);
        } else {
            scene.faulty.set_wall_clock_ahead(by);
        }
        let mark = scene.mark().await;
        assert!(mark.is_some_and(|mark| mark < scene.now(0)), "{off}: {mark:?}");
        guard.unlock().await.expect("it was held");
        assert!(lock_once(&other).await < SOON, "{off}");
    }
}

// Goal: what a release reports to waiters delays each by a few seconds at most, and lets in no
// two, whatever it says.
// Method: clients wait; a release that never was names one of them, with any time of a handoff.
#[tokio::test(start_paused = true)]
async fn wrong_release_delays_waiters_by_seconds() {
    let handoffs = [0, YEAR, i64::MAX].map(|handoff| (handoff, 0));
    for (handoff, off) in OFF.map(|off| (HOUR, off)).into_iter().chain(handoffs) {
        let took = handoffs_after_release(Duration::from_micros(handoff.unsigned_abs()), off).await;
        assert!(took < s(4) * WAITERS, "{handoff} {off}: {took:?}");
    }
}

/// How long it takes until all waiters were inside, once a holder leaves behind which a release was
/// written that never was: of the second waiter, with this time of a handoff and a stamp that is so
/// much off.
async fn handoffs_after_release(handoff: Duration, off: i64) -> Duration {
    let scene = Scene::new();
    let holder = scene.client("holder").await;
    let guard = holder.lock(OBJECT).await.expect("the lock is free");
    let inside = Arc::new(AtomicU32::new(0));
    let mut waiting = JoinSet::new();
    for number in 0..WAITERS {
        let client = scene.client(&format!("waiter-{number}")).await;
        let inside = Arc::clone(&inside);
        waiting.spawn(async move {
            let guard = client.request(OBJECT).timeout(s(120)).acquire().await;
            let guard = guard.expect("it is let in");
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two are inside");
            sleep(ms(5)).await;
            inside.fetch_sub(1, Ordering::SeqCst);
            guard.unlock().await.expect("it is held");
        });
        sleep(ms(100)).await;
    }
    let seen = holder.contenders(OBJECT).await.expect("the store answers");
    let second = seen.get(2).expect("it is behind the holder and the first waiter");
    let (client, round) = (second.client.as_u128(), second.round.expect("its rows can be read"));
    let last_release = Some(LastRelease { client, round, handoff, stamp: scene.now(off) });
    let delete = Change::Delete { contender: FOREIGN, revoked: false, last_release };
    scene.write(1, delete).await;
    sleep(s(2)).await;
    guard.unlock().await.expect("it is held");
    let began = Instant::now();
    while let Some(done) = waiting.join_next().await {
        done.expect("it does not panic");
    }
    began.elapsed()
}

// Goal: of two holders whose rows conflict the earlier one is lost, by any values; one that is
// older than its round is of an earlier one, and does not count.
// Method: in addition to a holder, rows of another one with any time of holding.
#[tokio::test(start_paused = true)]
async fn time_of_holding_decides_which_holder_is_lost() {
    for off in OFF.into_iter().filter(|off| *off != 0) {
        for is_older_than_round in [false, true] {
            let scene = Scene::new();
            let client = scene.client("a").await;
            let guard = client.lock(OBJECT).await.expect("the lock is free");
            let since = scene.now(off) / 1_000;
            let round = since.saturating_add(i64::from(is_older_than_round)).saturating_mul(1_000);
            let claim = Claim { held_since: Some(since), ..foreign(round) };
            scene.put(scene.now(0), claim).await;
            // Its renewal is due after a third of the TTL.
            sleep(TTL / 3 + s(1)).await;
            let is_later = off > 0 && since >= round / 1_000;
            let state = guard.state();
            let is_lost = matches!(state, GuardState::Lost(LostReason::Conflict { .. }));
            let is_held = matches!(state, GuardState::Held { .. });
            let expected = (is_later, !is_later);
            assert_eq!((is_lost, is_held), expected, "{off} {is_older_than_round}: {state:?}");
        }
    }
}

// Goal: a request to leave ends the round that it names, and no other, whatever its stamp; later
// rounds of the same contender are not concerned, even if it can't be deleted.
// Method: requests for other rounds; then for this one, with any stamp.
#[tokio::test(start_paused = true)]
async fn request_to_leave_ends_its_round_only() {
    let revoke = |contender, round| {
        let (by, why) = ("ops".to_owned(), "it hangs".to_owned());
        let revocation = Revocation { contender, round, by, why, kind: RevokeKind::Request };
        Change::Revoke { revocation, ttl_seconds: 120 }
    };
    for off in OFF {
        let scene = Scene::new();
        let client = scene.client("a").await;
        let guard = client.lock(OBJECT).await.expect("the lock is free");
        let seen = scene.only_contender(&client).await;
        let round = seen.round.expect("its rows can be read");
        if off != 0 {
            scene.write(scene.now(0), revoke(seen.id(), round.saturating_add(off))).await;
            guard.check().await.expect("it is not asked to leave this round");
        }
        // Of two requests the one with the higher stamp is seen.
        scene.faulty.lose_rows(OBJECT);
        let claim =
            Claim { contender: seen.id(), owner: seen.owner.as_str().into(), ..foreign(round) };
        scene.put(scene.now(0), claim).await;
        scene.write(scene.now(off), revoke(seen.id(), round)).await;
        guard.check().await.expect("it is held until it is released");
        guard.expiring().await.expect("it is asked to leave");
        drop(guard);
        for _ in 0..2 {
            assert!(lock_once(&client).await < SOON, "{off}");
        }
    }
}

// Goal: a fence that is ahead refuses tokens, and says how far; one that is behind is left behind.
// Locks are not concerned.
// Method: fences of any value.
#[tokio::test(start_paused = true)]
async fn wrong_fence_refuses_tokens_and_no_locks() {
    for off in OFF {
        let scene = Scene::new();
        let client = scene.client("a").await;
        let fence = scene.now(off);
        scene.store.rows.write_fence(OBJECT, fence).await.expect("the store answers");
        let guard = client.lock(OBJECT).await.expect("the lock is free");
        match guard.fencing_token().await {
            Ok(token) => assert!(off <= 0 && token.value() > fence, "{off}: {token:?}"),
            Err(FencingError::Poisoned { ahead, .. }) => {
                assert!(off > 0 && ahead > SKEW * 2, "{off}: {ahead:?}");
            }
            Err(error) => panic!("{off}: {error:?}"),
        }
        guard.unlock().await.expect("it was held");
    }
}

// Goal: a host's row of any stamp can be changed, except one that leaves no stamp above it, which
// is an error; the host keeps its number.
// Method: such rows; remove the host, and add it again.
#[tokio::test(start_paused = true)]
async fn host_of_any_stamp_keeps_its_number() {
    for off in OFF {
        let scene = Scene::new();
        scene.write_host(scene.now(off)).await;
        let registry = scene.faulty.host_registry();
        let removed = registry.remove("a").await;
        if off == i64::MAX {
            let error = removed.expect_err("no stamp is above it");
            assert!(matches!(error, RegistryError::Unconfirmed { .. }), "{error:?}");
            continue;
        }
        assert!(removed.expect("the store answers").is_some(), "{off}");
        let added = registry.add("a").await.expect("the store answers");
        assert_eq!(added.number(), 4, "{off}");
    }
}

// Goal: a host counts as used since it was seen last, by any values; one that was added again has
// its number.
// Method: hosts that were seen at any time; remove those that were unseen for a week.
#[tokio::test(start_paused = true)]
async fn last_seen_decides_whether_host_is_inactive() {
    const WEEK: Duration = s(7 * 24 * 3_600);
    for off in OFF {
        let scene = Scene::new();
        scene.write_host(scene.now(-YEAR)).await;
        scene.store.hosts.write_last_seen("a", scene.now(off)).await.expect("the store answers");
        let registry = scene.faulty.host_registry();
        let removed = registry.remove_inactive("a", WEEK).await.expect("the store answers");
        assert_eq!(removed.is_some(), off <= -YEAR, "{off}");
        let added = registry.add("a").await.expect("the store answers");
        assert_eq!(added.number(), 4, "{off}");
    }
}

// Goal: without a number left no host is added, and those that have one take locks; a register that
// is too small gives no number twice.
// Method: any values of the register.
#[tokio::test(start_paused = true)]
async fn wrong_register_gives_no_number_twice() {
    let scene = Scene::new();
    let first = scene.client("first").await;
    for next in [i32::MIN, -1, 0] {
        scene.store.hosts.raise_next(next).await.expect("the store answers");
        let host = format!("host-{next}");
        scene.client(&host).await;
    }
    scene.store.hosts.raise_next(i32::MAX - 1).await.expect("the store answers");
    scene.client("last").await;
    let registry = scene.faulty.host_registry();
    let hosts = registry.list().await.expect("the store answers");
    let mut numbers: Vec<_> = hosts.iter().map(Host::number).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [1, 2, 3, 4, i32::MAX]);
    let builder = scene.faulty.client_builder().host("late");
    let error = builder.build().await.expect_err("no number is left");
    assert!(matches!(error, BuildError::Registry(RegistryError::NoNumberLeft)), "{error:?}");
    assert!(lock_once(&first).await < SOON);
}
