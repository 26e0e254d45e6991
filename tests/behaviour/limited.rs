//! Locks that a limited number hold at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bakery_lock::{FencingError, InvalidOption, LockClient, LockError, LockGuard, LockMode};
use rand::Rng;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::chance::chance;
use super::{OBJECT, SOON, client, expect_rows, ms, s, store};

const LIMIT: u32 = 3;

async fn hold(client: &LockClient) -> LockGuard {
    let request = client.request(OBJECT).max_holders(LIMIT).timeout(s(600));
    request.acquire().await.expect("each caller is served")
}

// Goal: as many as the limit says hold, of one client and of others, and no more.
// Method: take all places, try once more, wait for one, and give all back.
#[tokio::test(start_paused = true)]
async fn limited_number_hold() {
    let store = store();
    let (one, other) = (client(&store, "one").await, client(&store, "other").await);
    let (first, second, third) = (hold(&one).await, hold(&one).await, hold(&other).await);
    for client in [&one, &other] {
        let request = client.request(OBJECT).max_holders(LIMIT);
        assert!(request.try_acquire().await.expect("it is answered").is_none());
    }
    expect_rows(&store, 3).await;
    let contenders = one.contenders(OBJECT).await.expect("it is answered");
    let slots: Vec<_> = contenders.iter().map(|seen| (seen.host, seen.slot)).collect();
    assert_eq!(contenders.len(), 3, "{contenders:?}");
    assert!(slots.windows(2).all(|pair| pair[0] != pair[1]), "{slots:?}");
    let mode = Some(LockMode::Limited { max_holders: LIMIT });
    assert!(contenders.iter().all(|seen| seen.mode == mode), "{contenders:?}");

    let began = Instant::now();
    let waiting = tokio::spawn(async move { hold(&other).await });
    sleep(s(10)).await;
    assert!(!waiting.is_finished());
    second.unlock().await.expect("it was held");
    let next = waiting.await.expect("it does not panic");
    assert!(began.elapsed() < s(10) + s(2), "{:?}", began.elapsed());
    sleep(s(120)).await;
    for guard in [first, third, next] {
        assert!(guard.state().is_held(), "it is renewed: {guard:?}");
        guard.unlock().await.expect("it was held");
    }
    expect_rows(&store, 0).await;
}

// Goal: one that wants the lock alone waits for all that limit it, and they for it, also within a
// client.
// Method: take turns.
#[tokio::test(start_paused = true)]
async fn one_alone_excludes_a_limited_number() {
    let store = store();
    let client = client(&store, "one").await;
    let (first, second) = (hold(&client).await, hold(&client).await);
    let alone = client.request(OBJECT).timeout(s(600)).acquire();
    let alone = tokio::spawn(async { alone.await.expect("it is served") });
    sleep(s(5)).await;
    let later = client.clone();
    let later = tokio::spawn(async move { hold(&later).await });
    first.unlock().await.expect("it was held");
    sleep(s(5)).await;
    assert!(!alone.is_finished() && !later.is_finished(), "one is left, and one is ahead");
    second.unlock().await.expect("it was held");
    let alone = timeout(s(2), alone).await.expect("it is next").expect("it does not panic");
    sleep(s(5)).await;
    assert!(!later.is_finished(), "it waits for the one alone");
    alone.unlock().await.expect("it was held");
    let later = timeout(s(2), later).await.expect("it is next").expect("it does not panic");
    later.unlock().await.expect("it was held");
    expect_rows(&store, 0).await;
}

// Goal: callers of one client that want the lock alone, without a pause, keep out none that wants
// it with others.
// Method: two of them pass it on in turn while a limited one of the same client comes.
#[tokio::test(start_paused = true)]
async fn turns_of_one_alone_leave_room_for_a_limited_one() {
    let store = store();
    let client = client(&store, "one").await;
    let mut busy = JoinSet::new();
    for _ in 0..2 {
        let client = client.clone();
        busy.spawn(async move {
            loop {
                let guard = client.lock(OBJECT).await.expect("each caller is served");
                sleep(ms(10)).await;
                guard.unlock().await.expect("it was held");
            }
        });
    }
    sleep(s(1)).await;
    let guard = timeout(s(1), hold(&client)).await.expect("it is served beside the turns");
    guard.unlock().await.expect("it was held");
    busy.shutdown().await;
    expect_rows(&store, 0).await;
}

// Goal: holders with another limit exclude each other, and both are served, without refusals.
// Method: six clients with one number and one with another one lock over and over.
#[tokio::test(start_paused = true)]
async fn two_limits_exclude_each_other_and_share_the_time() {
    let store = store();
    store.delay_calls(ms(2));
    let inside = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
    let mut tasks = JoinSet::new();
    for number in 0..7 {
        let client = client(&store, "host").await;
        let inside = Arc::clone(&inside);
        let group = usize::from(number == 6);
        tasks.spawn(async move {
            let mut grants = 0;
            let until = Instant::now() + s(10);
            while Instant::now() < until {
                let limit = if group == 0 { 2 } else { 3 };
                let request = client.request(OBJECT).max_holders(limit).timeout(s(60));
                let guard = request.acquire().await.expect("each caller is served");
                inside[group].fetch_add(1, Ordering::SeqCst);
                let others = inside[1 - group].load(Ordering::SeqCst);
                assert_eq!(others, 0, "holders with two limits are inside");
                assert!(inside[group].load(Ordering::SeqCst) <= limit as usize);
                sleep(ms(10)).await;
                inside[group].fetch_sub(1, Ordering::SeqCst);
                guard.unlock().await.expect("it was held");
                grants += 1;
            }
            grants
        });
    }
    let grants = tasks.join_all().await;
    println!("grants of each client: {grants:?}");
    assert!(grants.iter().all(|grants| *grants >= 7), "{grants:?}");
}

// Goal: what no limit can be is refused before anything is written.
// Method: ask for it.
#[tokio::test(start_paused = true)]
async fn impossible_limit_is_refused() {
    let store = store();
    let client = client(&store, "one").await;
    let written = client.statistics().writes;
    for max_holders in [0, u32::MAX] {
        let error = client.request(OBJECT).max_holders(max_holders).acquire().await;
        let refused = InvalidOption::MaxHolders { max_holders };
        assert!(matches!(error, Err(LockError::Option(option)) if option == refused));
    }
    assert_eq!(client.statistics().writes, written);
}

// Goal: there is no token where several hold and exclude others, and the error says so.
// Method: ask for one.
#[tokio::test(start_paused = true)]
async fn limited_holder_has_no_token() {
    let store = store();
    let guard = hold(&client(&store, "one").await).await;
    let error = guard.fencing_token().await.expect_err("holders have no order");
    assert!(matches!(error, FencingError::Limited { .. }), "{error:?}");
    guard.ensure(s(30)).await.expect("it is held");
    guard.check().await.expect("its row is there");
    guard.unlock().await.expect("it was held");
}

// Goal: many callers of few clients are all served, never more than the limit at once and mostly as
// many, although a client has places for 64 only; those that give up leave nothing.
// Method: eighty callers of each of three clients.
#[tokio::test(start_paused = true)]
async fn many_callers_share_a_limit() {
    const CALLERS: usize = 80;
    const STAY: u64 = 50;
    let store = store();
    let inside = Arc::new(AtomicUsize::new(0));
    let mut callers = JoinSet::new();
    let began = Instant::now();
    for host in ["one", "two", "three"] {
        let client = client(&store, host).await;
        for _ in 0..CALLERS {
            let (client, inside, mut rng) = (client.clone(), Arc::clone(&inside), chance());
            callers.spawn(async move {
                if rng.random_bool(0.1) {
                    let request = client.request(OBJECT).max_holders(LIMIT).timeout(s(600));
                    let patience = ms(rng.random_range(1..500));
                    drop(timeout(patience, request.acquire()).await);
                }
                let guard = hold(&client).await;
                let most = inside.fetch_add(1, Ordering::SeqCst) + 1;
                assert!(most <= LIMIT as usize, "{most} hold");
                sleep(ms(STAY)).await;
                inside.fetch_sub(1, Ordering::SeqCst);
                guard.unlock().await.expect("it was held");
            });
        }
    }
    while let Some(caller) = callers.join_next().await {
        caller.expect("it does not panic");
    }
    let held = ms(STAY) * 240;
    let average = held.as_secs_f64() / began.elapsed().as_secs_f64();
    assert!(average > 2.5, "{average} hold on average");
    timeout(SOON, expect_rows(&store, 0)).await.expect("no row is left");
}

// Goal: callers beyond the contenders that a client may have for a lock are served in their order
// as soon as any place is free, give up in time, and are dismissed by a shutdown.
// Method: 64 callers hold the lock; three more wait, of which one gives up.
#[tokio::test(start_paused = true)]
async fn any_free_place_serves_next_of_many_callers() {
    const PLACES: u32 = 64;
    let store = store();
    let client = client(&store, "many").await;
    let request = |timeout| client.request(OBJECT).max_holders(PLACES).timeout(timeout);
    let mut held = Vec::new();
    for _ in 0..PLACES {
        held.push(request(s(60)).acquire().await.expect("there is a place"));
    }
    let impatient = tokio::spawn(request(s(3)).acquire());
    sleep(ms(1)).await;
    let left = tokio::spawn(request(s(600)).acquire());
    let waiting = tokio::spawn(request(s(600)).acquire());
    sleep(s(1)).await;
    left.abort();
    let error = impatient.await.expect("it does not panic").expect_err("all places are taken");
    assert!(matches!(error, LockError::TimedOut { waited, .. } if waited == s(3)), "{error:?}");
    // Not the place that the caller would have been tied to.
    held.swap_remove(40).unlock().await.expect("it was held");
    let next = timeout(SOON, waiting).await.expect("there is a place").expect("it does not panic");
    held.push(next.expect("each caller is served"));
    let dismissed = tokio::spawn(request(s(600)).acquire());
    sleep(ms(1)).await;
    client.shutdown().await.expect("all are given back");
    let error = dismissed.await.expect("it does not panic").expect_err("the client is closed");
    assert!(matches!(error, LockError::Closed), "{error:?}");
    drop(held);
    expect_rows(&store, 0).await;
}
