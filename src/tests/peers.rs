//! Peers, over a network within the process.

mod give_up;
mod lines;
mod messages;
mod metrics;
mod min_hold;
mod mishap;
mod network;
mod panic;
mod shutdown;
mod table;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};

use self::network::{STORMY, TestNetwork};
use crate::admin::types::{QUEUE_SHOWN_MAX, TurnUser};
use crate::client::{ClientSetup, LockClient};
use crate::error::{EnsureError, LockError, LostReason, QueueError};
use crate::guard::LockGuard;
use crate::peers::Join;
use crate::store::Embedded;
use crate::testing::{FaultyStore, Weather};

const OBJECT: &str = "users::snap";

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A client with peers.
fn client(store: &FaultyStore, network: &TestNetwork) -> LockClient {
    start(store, Some(network.join()))
}

/// A client that may join a network.
fn start(store: &FaultyStore, join: Option<Join>) -> LockClient {
    let Embedded { store, clock, entropy, .. } = store.embedded();
    LockClient::start(ClientSetup {
        store,
        clock,
        entropy,
        registered: None,
        read_only: false,
        host_name: "host".to_owned(),
        prefix: String::new(),
        acquire_timeout: s(60),
        ttl: s(60),
        local_handoff: true,
        keep_idle: s(0),
        join,
        max_ttl: s(120),
        max_clock_skew: s(1),
        lock_table: None,
    })
}

fn store() -> FaultyStore {
    let store = FaultyStore::seeded(7);
    store.delay_calls(ms(5));
    store
}

/// What callers do, and what must hold of it.
#[derive(Default)]
struct Stage {
    inside: AtomicI64,
    last_token: AtomicI64,
    grants: AtomicU64,
    losses: AtomicU64,
}

impl Stage {
    /// Locks over and over, and asks for tokens now and then.
    async fn work(self: Arc<Self>, client: LockClient, times: u64, stay: Duration) {
        for time in 0..times {
            let guard = client.lock(OBJECT).await.expect("each caller is served");
            assert_eq!(self.inside.fetch_add(1, Ordering::SeqCst), 0, "two are inside");
            if time % 3 == 0 {
                let token = guard.fencing_token().await.expect("the lock is held").value();
                let before = self.last_token.swap(token, Ordering::SeqCst);
                assert!(token > before, "{token} after {before}");
            }
            sleep(stay).await;
            self.inside.fetch_sub(1, Ordering::SeqCst);
            self.grants.fetch_add(1, Ordering::SeqCst);
            guard.unlock().await.expect("the lock was held");
        }
    }

    /// Locks now and then, gives up now and then, and stays for up to some seconds.
    async fn wander(self: Arc<Self>, client: LockClient, mut rng: StdRng) {
        for _ in 0..10 {
            sleep(ms(rng.random_range(0..50))).await;
            let patience = if rng.random_bool(0.2) { ms(rng.random_range(1..100)) } else { s(60) };
            let Ok(Ok(guard)) = timeout(patience, client.lock(OBJECT)).await else {
                continue;
            };
            assert_eq!(self.inside.fetch_add(1, Ordering::SeqCst), 0, "two are inside");
            self.grants.fetch_add(1, Ordering::SeqCst);
            let stay = if rng.random_bool(0.1) { s(4) } else { ms(rng.random_range(0..10)) };
            let takes_tokens = rng.random_bool(0.3);
            let lost = guard.lost();
            let work = async {
                if takes_tokens && let Ok(token) = guard.fencing_token().await {
                    let before = self.last_token.swap(token.value(), Ordering::SeqCst);
                    assert!(token.value() > before, "{token:?} after {before}");
                }
                sleep(stay).await;
            };
            let is_lost = tokio::select! {
                biased;
                reason = lost => reason.is_some(),
                () = work => false,
            };
            self.losses.fetch_add(u64::from(is_lost), Ordering::SeqCst);
            self.inside.fetch_sub(1, Ordering::SeqCst);
            drop(guard);
        }
    }
}

// Goal: clients use one place in turn: all are served, no two at once, tokens grow, and nearly none
// of their grants costs an operation.
// Method: eight clients with two callers each, on a calm network.
#[tokio::test(start_paused = true)]
async fn clients_take_turns_of_each_other() {
    let (store, network) = (store(), TestNetwork::new(1, Weather::CALM));
    let stage = Arc::<Stage>::default();
    let clients: Vec<_> = (0..8).map(|_| client(&store, &network)).collect();
    let mut tasks = JoinSet::new();
    for client in clients.iter().cycle().take(16) {
        tasks.spawn(Arc::clone(&stage).work(client.clone(), 50, ms(1)));
    }
    tasks.join_all().await;
    assert_eq!(stage.grants.load(Ordering::SeqCst), 16 * 50);
    sleep(s(5)).await;
    assert_eq!(store.live_rows(OBJECT), 0);
    let writes: u64 = clients.iter().map(|client| client.statistics().writes).sum();
    assert!(writes < 100, "{writes} writes");
    let sent: u64 = clients.iter().map(|client| client.statistics().messages).sum();
    assert_eq!(sent, network.messages() as u64);
}

/// A keeper, a guest that has its turn, and a caller of the keeper that waits for the next one.
struct Scene {
    store: FaultyStore,
    network: TestNetwork,
    keeper: LockClient,
    turn: LockGuard,
    next: JoinHandle<LockGuard>,
}

impl Scene {
    async fn new() -> Self {
        let (store, network) = (store(), TestNetwork::new(1, Weather::CALM));
        let (keeper, guest) = (client(&store, &network), client(&store, &network));
        let first = keeper.lock(OBJECT).await.expect("the lock is free");
        let asking = caller(&guest);
        sleep(ms(100)).await;
        assert_eq!(store.live_rows(OBJECT), 1, "the guest has left the table");
        let next = caller(&keeper);
        sleep(ms(1)).await;
        let before = Instant::now();
        first.unlock().await.expect("the lock was held");
        let turn = asking.await.expect("the task does not panic");
        assert!(before.elapsed() <= ms(5), "{:?}", before.elapsed());
        Scene { store, network, keeper, turn, next }
    }

    /// The client that keeps the place, as messages name it.
    async fn keeper_id(&self) -> u128 {
        let contenders = self.keeper.contenders(OBJECT).await.expect("the store answers");
        contenders[0].client.as_u128()
    }

    async fn ends_well(self) {
        let next = timeout(s(5), self.next).await.expect("the next one is served");
        next.expect("the task does not panic").unlock().await.expect("the lock was held");
        sleep(s(1)).await;
        assert_eq!(self.store.live_rows(OBJECT), 0);
    }
}

fn caller(client: &LockClient) -> JoinHandle<LockGuard> {
    let request = client.request(OBJECT).timeout(s(3_600));
    tokio::spawn(async { request.acquire().await.expect("each caller is served") })
}

// Goal: a turn goes from client to client and back without the table, and is extended while it
// lasts.
// Method: a guest stays for ten minutes between two callers of the keeper.
#[tokio::test(start_paused = true)]
async fn guest_keeps_its_turn_as_long_as_it_wants() {
    let scene = Scene::new().await;
    for _ in 0..600 {
        sleep(s(1)).await;
        assert!((s(6)..=s(10)).contains(&scene.turn.remaining()), "{:?}", scene.turn);
    }
    assert!(!scene.next.is_finished(), "the guest is inside");
    let Scene { turn, store, next, .. } = scene;
    turn.unlock().await.expect("the lock was held");
    let turn = timeout(ms(5), next).await.expect("it is its turn").expect("it does not panic");
    turn.unlock().await.expect("the lock was held");
    sleep(s(1)).await;
    assert_eq!(store.live_rows(OBJECT), 0);
}

// Goal: a guest can make sure of its lease and of its turn: the keeper answers.
// Method: ask for a long lease in the first moments of a turn, whose first sublease is short; then
// ask without the keeper.
#[tokio::test(start_paused = true)]
async fn guest_makes_sure_of_its_turn() {
    let scene = Scene::new().await;
    let asked = Instant::now();
    let remaining = scene.turn.ensure(s(40)).await.expect("the keeper extends it");
    assert!(remaining >= s(40) && asked.elapsed() <= ms(5), "{remaining:?}");
    let remaining = scene.turn.check().await.expect("the keeper answers");
    assert!(remaining > s(40), "{remaining:?}");
    let error = scene.turn.ensure(s(59)).await.expect_err("no lease is as long");
    assert!(matches!(error, EnsureError::TooLong { .. }), "{error:?}");
    scene.network.cut_off(scene.keeper_id().await);
    let error = scene.turn.check().await.expect_err("the keeper does not answer");
    assert!(
        matches!(error, EnsureError::Lost { reason: LostReason::KeeperUnreachable, .. }),
        "{error:?}"
    );
}

// Goal: those that wait learn which guest has the turn: from the keeper at once, in the table from
// the next renewal on.
// Method: a caller of the keeper times out while a guest is inside; then another client looks.
#[tokio::test(start_paused = true)]
async fn others_see_which_guest_is_inside() {
    let scene = Scene::new().await;
    let error = scene.keeper.request(OBJECT).timeout(ms(10)).acquire().await;
    let error = error.expect_err("the guest is inside").to_string();
    assert!(error.contains("guest "), "{error}");
    sleep(s(21)).await;
    let other = client(&scene.store, &scene.network);
    let contenders = other.contenders(OBJECT).await.expect("the store answers");
    assert!(contenders[0].owner.as_str().starts_with("guest "), "{contenders:?}");
    let Scene { turn, next, .. } = scene;
    turn.unlock().await.expect("the lock was held");
    next.await.expect("it does not panic").unlock().await.expect("the lock was held");
}

// Goal: a guest that gives up learns who has the turn, whether a caller of the keeper or another
// guest; so does a second caller of a guest whose first one has its turn.
// Method: guests time out in the line.
#[tokio::test(start_paused = true)]
async fn guest_that_gives_up_learns_who_is_inside() {
    let (store, network) = (store(), TestNetwork::new(1, Weather::CALM));
    let (keeper, one, other) =
        (client(&store, &network), client(&store, &network), client(&store, &network));
    let of = |client: &LockClient| client.shared().id.client;
    let nightly = keeper.request(OBJECT).label("nightly job");
    let held = nightly.acquire().await.expect("the lock is free");
    let user = gives_up(&one).await;
    assert_eq!(user.client.as_u128(), of(&keeper));
    assert!(user.owner.label() == Some("nightly job"), "{user:?}");

    let asking = caller(&one);
    sleep(ms(100)).await;
    held.unlock().await.expect("the lock was held");
    let turn = asking.await.expect("the task does not panic");
    let user = gives_up(&other).await;
    assert_eq!(user.client.as_u128(), of(&one));
    assert_eq!(user.owner.as_str(), format!("guest {}", of(&one)));
    let user = gives_up(&one).await;
    assert_eq!(user, TurnUser::new(of(&one), one.shared().owner.clone()));
    turn.unlock().await.expect("the lock was held");
}

/// Who has the turn, as a caller learns that gives up.
async fn gives_up(client: &LockClient) -> TurnUser {
    let error = client.request(OBJECT).timeout(ms(100)).acquire().await;
    let Err(LockError::TimedOut { user: Some(user), .. }) = error else {
        panic!("{error:?}");
    };
    user
}

// Goal: a keeper reports its own line without a message, guests and callers; a client without a
// place has none to report.
// Method: ask while a guest is inside, and afterwards.
#[tokio::test(start_paused = true)]
async fn keeper_tells_its_own_line() {
    let scene = Scene::new().await;
    let messages = scene.network.messages();
    let line = scene.keeper.queue(OBJECT).await.expect("it is the keeper");
    let own = TurnUser::new(scene.keeper_id().await, scene.keeper.shared().owner.clone());
    assert!(line.user.expect("a guest is inside").owner.as_str().starts_with("guest "));
    assert_eq!((line.keeper, line.waiting, line.first), (own.clone(), 1, vec![own]));
    for _ in 0..100 {
        tokio::spawn(scene.keeper.request(OBJECT).label("later").acquire());
    }
    sleep(ms(1)).await;
    let line = scene.keeper.queue(OBJECT).await.expect("it is the keeper");
    assert_eq!((line.waiting, line.first.len()), (101, QUEUE_SHOWN_MAX), "{line:?}");
    assert!(line.first[1].owner.label() == Some("later"), "{line:?}");
    assert_eq!(scene.network.messages(), messages);
    let Scene { turn, next, keeper, .. } = scene;
    turn.unlock().await.expect("the lock was held");
    drop(next.await);
    sleep(s(6)).await;
    let error = keeper.queue(OBJECT).await.expect_err("no caller is left");
    assert!(matches!(error, QueueError::NotHeld { .. }), "{error:?}");
}

// Goal: a caller that wants one lease and no more does not borrow a turn, which would be extended.
// Method: it asks while another client holds the lock, and waits in the table.
#[tokio::test(start_paused = true)]
async fn caller_without_renewal_waits_in_the_table() {
    let (store, network) = (store(), TestNetwork::new(1, Weather::CALM));
    let (keeper, other) = (client(&store, &network), client(&store, &network));
    let held = keeper.lock(OBJECT).await.expect("the lock is free");
    let request = other.request(OBJECT).auto_renew(false);
    let waiting = tokio::spawn(async { request.acquire().await.expect("it is served") });
    sleep(s(1)).await;
    assert_eq!(store.live_rows(OBJECT), 2, "it waits in the table");
    held.unlock().await.expect("the lock was held");
    waiting.await.expect("it does not panic").unlock().await.expect("the lock was held");
    assert_eq!(network.messages(), 0);
}

// Goal: nor does it when the caller before it had asked for a turn and leaves.
// Method: one in front of it times out in the line of a keeper, or is dropped.
#[tokio::test(start_paused = true)]
async fn caller_without_renewal_leaves_the_line_of_a_keeper() {
    for times_out in [true, false] {
        let (store, network) = (store(), TestNetwork::new(1, Weather::CALM));
        let (keeper, other) = (client(&store, &network), client(&store, &network));
        let held = keeper.lock(OBJECT).await.expect("the lock is free");
        let ends = if times_out { s(1) } else { s(3_600) };
        let first = tokio::spawn(other.request(OBJECT).timeout(ends).acquire());
        sleep(ms(100)).await;
        let request = other.request(OBJECT).auto_renew(false);
        let waiting = tokio::spawn(async { request.acquire().await.expect("it is served") });
        sleep(ms(100)).await;
        assert_eq!(store.live_rows(OBJECT), 1, "both wait in the line of the keeper");
        if !times_out {
            first.abort();
        }
        sleep(s(1)).await;
        assert_eq!(store.live_rows(OBJECT), 2, "the last one waits in the table");
        held.unlock().await.expect("the lock was held");
        let guard = waiting.await.expect("it does not panic");
        assert!(guard.remaining() > s(50), "it has a lease of its own: {guard:?}");
        guard.unlock().await.expect("the lock was held");
        sleep(s(1)).await;
        assert_eq!(store.live_rows(OBJECT), 0);
    }
}

// Goal: a draw that a holder waits for ends with its turn, and is in the way of none after it.
// Method: the fence is so far ahead that a token waits. Meanwhile its holder is removed by force,
// and finds that; the next caller gets a token.
#[tokio::test(start_paused = true)]
async fn draw_ends_with_its_turn() {
    let (store, network) = (store(), TestNetwork::new(1, Weather::CALM));
    let (keeper, other) = (client(&store, &network), client(&store, &network));
    let held = keeper.lock(OBJECT).await.expect("the lock is free");
    let Embedded { store: table, clock, .. } = store.embedded();
    let ahead = clock.unix_micros() + 900_000;
    table.rows.write_fence(OBJECT, ahead).await.expect("the store answers");
    let contenders = other.contenders(OBJECT).await.expect("the store answers");
    let removed = other.revoke_by_force(OBJECT, &contenders[0], "a test").await;
    removed.expect("the store answers");
    let next = caller(&keeper);
    sleep(ms(1)).await;
    let (token, checked) = tokio::join!(held.fencing_token(), held.check());
    assert!(token.is_err() && checked.is_err(), "{token:?}, {checked:?}");
    let held = next.await.expect("it does not panic");
    let token = timeout(s(2), held.fencing_token()).await.expect("it is soon there");
    token.expect("the lock is held");
    held.unlock().await.expect("the lock was held");
}

// Goal: a place that is acquired for a guest waits for it, whatever the caller before it wanted.
// Method: a keeper that has acquired by a try leaves its place to a client in the table, with which
// it exchanges no messages, and queues again for the guest in its line.
#[tokio::test(start_paused = true)]
async fn keeper_waits_for_its_guest() {
    let (store, network) = (store(), TestNetwork::new(1, Weather::CALM));
    let [keeper, guest, next] = [(); 3].map(|()| client(&store, &network));
    let other = client(&store, &TestNetwork::new(2, Weather::CALM));
    let held = keeper.try_lock(OBJECT).await.expect("the store answers");
    let held = held.expect("the lock is free");
    let place = keeper.contenders(OBJECT).await.expect("the store answers")[0].client;
    let mut waiting = Vec::new();
    for client in [&guest, &next, &other] {
        waiting.push(caller(client));
        sleep(ms(100)).await;
    }
    held.unlock().await.expect("the lock was held");
    let turn = waiting.remove(0).await.expect("it does not panic");
    sleep(s(1)).await;
    turn.unlock().await.expect("the lock was held");
    let outside = waiting.remove(1).await.expect("it does not panic");
    sleep(ms(200)).await;
    let contenders = keeper.contenders(OBJECT).await.expect("the store answers");
    let waits = contenders.iter().any(|contender| contender.client == place);
    assert!(waits, "it has sent its guest away: {contenders:?}");
    outside.unlock().await.expect("the lock was held");
    let turn = waiting.remove(0).await.expect("it does not panic");
    turn.unlock().await.expect("the lock was held");
}

// Goal: a guest that can't reach its keeper holds the lock until its lease ends; then it is lost,
// and the keeper serves the next one, not before.
// Method: cut the keeper off; look at both guards.
#[tokio::test(start_paused = true)]
async fn guest_without_its_keeper_loses_its_turn() {
    let mut scene = Scene::new().await;
    sleep(s(1)).await;
    scene.network.cut_off(scene.keeper_id().await);
    let left = scene.turn.remaining();
    assert!((s(6)..=s(10)).contains(&left), "{left:?}");
    let lost = scene.turn.lost();
    let served_early = timeout(left - ms(10), &mut scene.next).await.is_ok();
    assert!(!served_early && scene.turn.remaining() > Duration::ZERO);
    assert_eq!(lost.await, Some(LostReason::KeeperUnreachable));
    scene.ends_well().await;
}

// Goal: what was not answered is sent again over a new connection, so that a cut costs nothing.
// Method: cut the keeper off for a moment, in which the guest returns its turn.
#[tokio::test(start_paused = true)]
async fn new_connection_brings_what_was_not_answered() {
    let scene = Scene::new().await;
    let keeper = scene.keeper_id().await;
    scene.network.cut_off(keeper);
    let Scene { turn, store, network, keeper: client, next } = scene;
    turn.unlock().await.expect("the lock was held");
    sleep(ms(20)).await;
    assert!(!next.is_finished(), "the keeper does not know");
    network.reconnect(keeper);
    let turn = timeout(ms(5), next).await.expect("it is its turn").expect("it does not panic");
    turn.unlock().await.expect("the lock was held");
    drop(client);
    sleep(s(1)).await;
    assert_eq!(store.live_rows(OBJECT), 0);
}

// Goal: a guest whose keeper falls silent goes back to the table.
// Method: cut the keeper off while a guest waits; the keeper releases.
#[tokio::test(start_paused = true)]
async fn guest_in_line_goes_back_to_the_table() {
    let scene = Scene::new().await;
    let other = client(&scene.store, &scene.network);
    let waiting = caller(&other);
    sleep(ms(200)).await;
    assert_eq!(scene.store.live_rows(OBJECT), 1, "it waits in the line");
    scene.network.cut_off(scene.keeper_id().await);
    sleep(s(3)).await;
    assert_eq!(scene.store.live_rows(OBJECT), 2, "it waits in the table");
    let Scene { turn, next, store, .. } = scene;
    // The keeper learns of neither, and ends the turn by its clock.
    drop(turn);
    next.await.expect("the task does not panic").unlock().await.expect("the lock was held");
    let guard = waiting.await.expect("the task does not panic");
    guard.unlock().await.expect("the lock was held");
    sleep(s(1)).await;
    assert_eq!(store.live_rows(OBJECT), 0);
}

// Goal: a keeper that shuts down sends its line elsewhere, and waits for the present turn.
// Method: shut it down with a guest inside and one in line.
#[tokio::test(start_paused = true)]
async fn keeper_that_shuts_down_leaves_none_waiting() {
    let scene = Scene::new().await;
    let other = client(&scene.store, &scene.network);
    let waiting = caller(&other);
    sleep(ms(200)).await;
    let Scene { turn, next, store, keeper, .. } = scene;
    let closing = tokio::spawn(async move { keeper.shutdown().await });
    sleep(ms(100)).await;
    assert!(!closing.is_finished() && next.is_finished(), "a guest is inside");
    assert!(next.await.is_err(), "its caller was dismissed");
    turn.unlock().await.expect("the lock was held");
    closing.await.expect("the task does not panic").expect("nothing is left");
    let guard = timeout(s(2), waiting).await.expect("it is served").expect("it does not panic");
    guard.unlock().await.expect("the lock was held");
    sleep(s(1)).await;
    assert_eq!(store.live_rows(OBJECT), 0);
}

// Goal: the same while messages are late, lost and repeated, callers give up and stay for longer
// than their first sublease.
// Method: many seeds; once the weather is calm again, each client is served, and no row is left.
#[tokio::test(start_paused = true)]
async fn no_two_are_inside_in_a_storm() {
    let (mut grants, mut losses) = (0, 0);
    for seed in 0..100 {
        let (store, network) = (store(), TestNetwork::new(seed, STORMY));
        let stage = Arc::<Stage>::default();
        let clients: Vec<_> = (0..4).map(|_| client(&store, &network)).collect();
        let mut tasks = JoinSet::new();
        for (number, client) in (0..).zip(clients.iter().cycle().take(8)) {
            let rng = StdRng::seed_from_u64(seed * 100 + number);
            tasks.spawn(Arc::clone(&stage).wander(client.clone(), rng));
        }
        tasks.join_all().await;
        network.set_weather(Weather::CALM);
        for client in &clients {
            let served = timeout(s(30), Arc::clone(&stage).work(client.clone(), 3, ms(1))).await;
            served.unwrap_or_else(|_| panic!("seed {seed}: a client is not served"));
        }
        sleep(s(5)).await;
        assert_eq!(store.live_rows(OBJECT), 0, "seed {seed}");
        grants += stage.grants.load(Ordering::SeqCst);
        losses += stage.losses.load(Ordering::SeqCst);
    }
    println!("{grants} grants, {losses} lost");
}
