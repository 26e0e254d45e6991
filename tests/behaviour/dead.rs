//! What dies, a client or a replica, and for how long others wait because of it.
//!
//! On simulated replicas whose clocks differ by as much as they may. To others a client is dead as
//! soon as nothing passes any more between it and them, or the replicas.

use std::array;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bakery_lock_instrumented::testing::virtual_time::run;
use bakery_lock_instrumented::testing::{Conditions, Cut, Replicas, SimulatedCluster};
use bakery_lock_instrumented::{GuardState, LockClient, LockGuard};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep};

use super::{OBJECT, ms, s};

const TTL: Duration = s(6);
const MAX_CLOCK_SKEW: Duration = s(1);

/// Until rows are seen to be gone, and the next one is let in: a client that has waited for seconds
/// looks twice a second or so.
const SEEN: Duration = ms(700);

const BOTH: Cut = Cut { requests: true, answers: true };

fn cluster(seed: u64) -> SimulatedCluster {
    let replicas =
        Replicas { quorum: 2, ahead: [Duration::ZERO, MAX_CLOCK_SKEW / 2, MAX_CLOCK_SKEW] };
    SimulatedCluster::new(seed, replicas, Conditions::CALM, &["host".to_owned()])
}

/// A client, and its number in the cluster.
struct Member {
    cluster: SimulatedCluster,
    number: usize,
    client: LockClient,
}

impl Member {
    /// A client that takes turns of others, or none. All are built before time passes.
    async fn join(cluster: &SimulatedCluster, seed: u64, has_peers: bool) -> Self {
        let member = cluster.connect(Duration::ZERO, 0, seed);
        let builder = if has_peers { member.peer_builder() } else { member.client_builder() };
        let builder = builder.host("host").ttl(TTL).acquire_timeout(s(600));
        let client = builder.build().await.expect("the host is registered");
        Member { cluster: cluster.clone(), number: member.number(), client }
    }

    /// Asks for the lock.
    fn asks(&self) -> JoinHandle<LockGuard> {
        let request = self.client.request(OBJECT);
        tokio::spawn(async { request.acquire().await.expect("each is served") })
    }

    /// Lets nothing pass any more between it and the replicas, but what this cut lets pass.
    fn cut(&self, cut: Cut) {
        for replica in 0..3 {
            self.cluster.set_cut(self.number, replica, cut);
        }
    }

    fn dies(&self) {
        self.cut(BOTH);
        self.cluster.set_cut_off(self.number, None, true);
    }
}

async fn join<const N: usize>(cluster: &SimulatedCluster, has_peers: bool) -> [Member; N] {
    let mut members = Vec::new();
    for seed in 0..N as u64 {
        members.push(Member::join(cluster, seed, has_peers).await);
    }
    let mut members = members.into_iter();
    array::from_fn(|_| members.next().expect("there are as many"))
}

/// The guard of one that waited.
async fn let_in(waiting: JoinHandle<LockGuard>) -> LockGuard {
    waiting.await.expect("it does not panic")
}

fn is_lost(guard: &LockGuard) -> bool {
    matches!(guard.state(), GuardState::Lost(_))
}

/// Each quarter of a second of the time between two renewals.
fn moments() -> impl Iterator<Item = Duration> {
    (0..8).map(|quarter| ms(250) * quarter)
}

// Goal: a holder that dies keeps the next client waiting for its TTL and the clock skew at most,
// and has lost the lock before that one has it.
// Method: kill it at moments between two renewals while another client waits.
#[test]
fn dead_holder_blocks_the_next_client_for_its_ttl() {
    for (seed, moment) in (0..).zip(moments()) {
        let cluster = cluster(seed);
        let blocked = run(&cluster.clone(), async move {
            let [holder, next] = join(&cluster, false).await;
            let guard = holder.client.lock(OBJECT).await.expect("the lock is free");
            let waiting = next.asks();
            sleep(s(5) + moment).await;
            holder.dies();
            let died = Instant::now();
            let next = let_in(waiting).await;
            assert!(is_lost(&guard) && !is_lost(&next), "two hold");
            died.elapsed()
        });
        println!("a holder that died blocked the next client for {blocked:?}");
        assert!(blocked <= TTL + MAX_CLOCK_SKEW + SEEN, "{blocked:?}");
    }
}

// Goal: a client keeps others waiting for its TTL and the clock skew at most, whatever gets lost of
// what it sends and is answered, and from whichever step on.
// Method: it waits behind a holder, holds and gives back; cut it off at moments of that, wholly, or
// its answers only. It waits for three seconds.
#[test]
fn unacknowledged_rows_block_others_for_their_ttl() {
    for answers_only in [true, false] {
        let cut = Cut { requests: !answers_only, answers: true };
        let mut longest = Duration::ZERO;
        for (seed, moment) in (0..).zip((0..160).step_by(8)) {
            longest = longest.max(blocked_by_a_cut(seed, ms(moment), cut));
        }
        println!("with {cut:?} a client blocked others for {longest:?} at most");
        assert!(longest <= TTL + MAX_CLOCK_SKEW + SEEN, "{longest:?}");
    }
}

/// For how long the last one in a queue waits after the lock has been held by the first one, and
/// by the second one, which is cut off.
fn blocked_by_a_cut(seed: u64, moment: Duration, cut: Cut) -> Duration {
    let cluster = cluster(seed);
    run(&cluster.clone(), async move {
        let [first, victim, last] = join(&cluster, false).await;
        let held = first.client.lock(OBJECT).await.expect("the lock is free");
        let request = victim.client.request(OBJECT).timeout(s(3));
        let visit = tokio::spawn(async move {
            let guard = request.acquire().await.ok()?;
            tokio::select! {
                _ = guard.lost() => {}
                () = sleep(ms(50)) => {}
            }
            let left = Instant::now();
            // What it is told of that is tested elsewhere.
            let _ = guard.unlock().await;
            Some(left)
        });
        sleep(ms(40)).await;
        let waiting = last.asks();
        let begun = Instant::now();
        let cutting = async {
            sleep(moment).await;
            victim.cut(cut);
        };
        let giving_back = async {
            sleep(ms(20)).await;
            held.unlock().await.expect("it was held");
            Instant::now()
        };
        let ((), given_back) = tokio::join!(cutting, giving_back);
        let guard = let_in(waiting).await;
        let let_in = Instant::now();
        let left = visit.await.expect("it does not panic").filter(|left| *left <= let_in);
        assert!(!is_lost(&guard));
        let free = left.unwrap_or(given_back).max(given_back).max(begun + moment);
        let_in.saturating_duration_since(free)
    })
}

// Goal: a keeper that dies keeps its line waiting for its TTL and the clock skew at most; then the
// whole line is served within seconds.
// Method: kill it at moments between two renewals, with sixteen guests in its line.
#[test]
fn dead_keeper_blocks_its_line_for_its_ttl() {
    const GUESTS: usize = 16;
    for (seed, moment) in (0..).zip(moments()) {
        let cluster = cluster(seed);
        let (blocked, all) = run(&cluster.clone(), async move {
            let members: [Member; GUESTS + 1] = join(&cluster, true).await;
            let (keeper, guests) = members.split_first().expect("there are some");
            let held = keeper.client.lock(OBJECT).await.expect("the lock is free");
            let mut waiting = Vec::new();
            for guest in guests {
                waiting.push(guest.asks());
                sleep(ms(100)).await;
            }
            sleep(s(5) + moment).await;
            let line = keeper.client.queue(OBJECT).await.expect("it is the keeper");
            assert_eq!(line.waiting, GUESTS, "all wait in its line");
            keeper.dies();
            let died = Instant::now();
            let mut served = JoinSet::new();
            for waiting in waiting {
                served.spawn(async move {
                    let guard = let_in(waiting).await;
                    let served = died.elapsed();
                    guard.unlock().await.expect("it was held");
                    served
                });
            }
            let mut served = served.join_all().await;
            served.sort_unstable();
            assert!(is_lost(&held), "two held");
            (served[0], served[GUESTS - 1])
        });
        println!("a dead keeper blocked its line for {blocked:?}, which was served after {all:?}");
        assert!(blocked <= TTL + MAX_CLOCK_SKEW + SEEN, "{blocked:?}");
        assert!(all <= blocked + s(2), "{all:?}");
    }
}

// Goal: a guest that dies while it waits keeps those behind it waiting for two seconds at most, the
// length of its first sublease; one that dies inside for its sublease, which is no longer than its
// TTL, and it has lost its turn before.
// Method: kill it in the line of a keeper, or at moments of its turn, with another guest behind it.
#[test]
fn dead_guest_blocks_the_line_for_its_sublease() {
    const FIRST_SUBLEASE: Duration = s(2);
    for (seed, moment) in (0..).zip(moments()) {
        for (inside, at_most) in [(false, FIRST_SUBLEASE), (true, TTL)] {
            let blocked = blocked_by_a_guest(seed, moment, inside);
            println!("a guest that died, inside: {inside}, blocked the line for {blocked:?}");
            assert!(blocked <= at_most + ms(50), "inside: {inside}: {blocked:?}");
        }
    }
}

fn blocked_by_a_guest(seed: u64, moment: Duration, inside: bool) -> Duration {
    let cluster = cluster(seed);
    run(&cluster.clone(), async move {
        let [keeper, guest, next] = join(&cluster, true).await;
        let held = keeper.client.lock(OBJECT).await.expect("the lock is free");
        let asking = guest.asks();
        sleep(ms(100)).await;
        let waiting = next.asks();
        sleep(ms(100)).await;
        let line = keeper.client.queue(OBJECT).await.expect("it is the keeper");
        assert_eq!(line.waiting, 2, "both wait in the line");
        let (free, turn) = if inside {
            held.unlock().await.expect("it was held");
            let turn = let_in(asking).await;
            sleep(s(1) + moment).await;
            guest.dies();
            (Instant::now(), Some(turn))
        } else {
            sleep(moment).await;
            guest.dies();
            sleep(ms(50)).await;
            held.unlock().await.expect("it was held");
            (Instant::now(), None)
        };
        let next = let_in(waiting).await;
        assert!(turn.is_none_or(|turn| is_lost(&turn)) && !is_lost(&next), "two are inside");
        free.elapsed()
    })
}

// Goal: a leader that dies is replaced within its TTL, the clock skew, a watch interval and the
// steps of the candidate that replaces it.
// Method: kill the leader at moments between two renewals, while the second and the third best
// candidate watch.
#[test]
fn dead_leader_is_replaced() {
    const WATCH: Duration = ms(400);
    const STEP: Duration = ms(500);
    for (seed, moment) in (0..).zip(moments()) {
        let cluster = cluster(seed);
        let (steps, replaced) = run(&cluster.clone(), async move {
            let [leader, second, third] = join(&cluster, false).await;
            let election = |member: &Member, priority| {
                let election = member.client.election(OBJECT).priority(priority);
                tokio::spawn(async move { election.campaign().await.expect("one leads") })
            };
            let leads = election(&leader, 1).await.expect("it does not panic");
            let mut campaigns = JoinSet::new();
            for (member, priority) in [(&second, 2), (&third, 3)] {
                let campaign = election(member, priority);
                campaigns.spawn(async move { (u32::from(priority), campaign.await) });
            }
            sleep(s(5) + moment).await;
            leader.dies();
            let died = Instant::now();
            let (won, next) = campaigns.join_next().await.expect("two are left").expect("one won");
            let next = next.expect("it does not panic");
            assert!(next.state().is_held() && !leads.state().is_held(), "two lead");
            (won - 1, died.elapsed())
        });
        println!("a dead leader was replaced after {replaced:?}, by one that waits {steps} steps");
        let at_most = TTL + MAX_CLOCK_SKEW + WATCH + STEP * steps + ms(100);
        assert!(replaced <= at_most, "{replaced:?} > {at_most:?}");
    }
}

// Goal: when one replica of three dies, no lock fails, and at least half as many are granted.
// Method: clients lock in a closed loop, some for themselves and some one name together, while
// another one holds.
#[test]
fn dead_replica_halves_the_grants_at_most() {
    const TIME: Duration = s(8);
    let cluster = cluster(1);
    let grants = run(&cluster.clone(), async move {
        let members: [Member; 9] = join(&cluster, false).await;
        let (holder, busy) = members.split_first().expect("there are some");
        let held = holder.client.lock("held").await.expect("the lock is free");
        let (is_over, grants) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let mut tasks = JoinSet::new();
        for (number, member) in (0..).zip(busy) {
            let (client, is_over) = (member.client.clone(), Arc::clone(&is_over));
            let name = if number % 2 == 0 { "common".to_owned() } else { format!("own {number}") };
            tasks.spawn(lock_in_a_loop(client, name, number % 2, Arc::clone(&grants), is_over));
        }
        let read = || [0, 1].map(|kind| grants[kind].load(Ordering::Relaxed));
        sleep(TIME).await;
        let before = read();
        cluster.crash(0, Duration::MAX);
        sleep(TIME).await;
        let after = read();
        is_over.store(true, Ordering::Relaxed);
        tasks.join_all().await;
        assert!(matches!(held.state(), GuardState::Held { .. }), "{:?}", held.state());
        held.unlock().await.expect("it was held");
        [0, 1].map(|kind| (before[kind], after[kind] - before[kind]))
    });
    println!("grants of one name and of own ones, before and after: {grants:?}");
    assert!(grants.iter().all(|(before, after)| after * 2 >= *before), "{grants:?}");
}

async fn lock_in_a_loop(
    client: LockClient,
    name: String,
    kind: usize,
    grants: Arc<[AtomicU64; 2]>,
    is_over: Arc<AtomicBool>,
) {
    while !is_over.load(Ordering::Relaxed) {
        let guard = client.lock(&name).await.expect("a quorum is up");
        grants[kind].fetch_add(1, Ordering::Relaxed);
        guard.unlock().await.expect("it was held");
    }
}
