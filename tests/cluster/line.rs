//! The line of a keeper: guests in it die, its keeper dies, and the way to it is bad.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bakery_lock::{LockClient, PeerOptions};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Instant, sleep};

use super::scene::Scene;
use super::subleases::{ask, guest, keeper, peer, peer_with, serve_all, served, ttl};
use support::environment::{chance, repeats};
use support::history::{Moment, overlap};
use support::monotonic::now;
use support::program;
use support::relay::{Relay, Traffic};

/// This often guests are killed, this many at a time.
const KILLS: usize = 10;
const AT_A_TIME: usize = 5;

/// A turn is granted to a guest that was heard of within this time, and its first sublease is no
/// longer.
const SILENCE_MAX: Duration = Duration::from_secs(2);

/// Where a guest is killed.
#[derive(Clone, Copy, Debug)]
enum Killed {
    Waiting,
    Inside,
}

// Goal: a guest that is killed, while it waits or inside, does not block its line for ever. For how
// long it does is printed.
// Method: kill guests, each a program, at any time while another one stands behind them.
#[tokio::test]
#[ignore = "takes long; scripts/nightly runs it"]
async fn line_behind_a_killed_guest_is_served() {
    let _alone = support::alone().await;
    let scene = Scene::new().await;
    let mut chance = chance();
    let kills = repeats(KILLS);
    for killed in [Killed::Waiting, Killed::Inside] {
        let mut longest = Duration::ZERO;
        for _ in 0..kills / AT_A_TIME {
            let mut killing = JoinSet::new();
            for _ in 0..AT_A_TIME {
                let scene = scene.clone();
                let pause = SILENCE_MAX.mul_f64(2.0 * chance.random::<f64>());
                killing.spawn(async move { kill_guest(&scene, killed, pause).await });
            }
            longest = killing.join_all().await.into_iter().fold(longest, Duration::max);
        }
        println!("{kills} guests killed while {killed:?} blocked the line for {longest:?} at most");
    }
}

/// Kills a guest after a pause; for how long the one behind it had to wait although the lock was
/// free.
async fn kill_guest(scene: &Scene, killed: Killed, pause: Duration) -> Duration {
    let name = support::unique("killed-guest");
    let keeper = peer(scene).await;
    let held = keeper.lock(&name).await.expect("the lock is free");
    let mut first = scene.start("line::guest_program", &name);
    first.expect("waits").await;
    let (client, mut asking) = guest(scene.clone(), name.clone()).await;
    let free = match killed {
        Killed::Waiting => {
            first.kill().await;
            sleep(pause).await;
            let free = now();
            held.unlock().await.expect("the lock was held");
            free
        }
        Killed::Inside => {
            held.unlock().await.expect("the lock was held");
            tokio::select! {
                () = first.expect("held") => {}
                // The keeper was silent for a second, and the program has left its line.
                early = &mut asking => {
                    let (guard, _) = early.expect("it does not panic");
                    guard.unlock().await.expect("the lock was held");
                    first.expect("held").await;
                    asking = ask(&client, &name);
                }
            }
            sleep(pause).await;
            let free = now();
            first.kill().await;
            free
        }
    };
    let (guard, granted) = served(asking).await;
    guard.unlock().await.expect("the lock was held");
    client.shutdown().await.expect("nothing is left");
    keeper.shutdown().await.expect("nothing is left");
    scene.wait_until_deleted(&name).await;
    Duration::from_nanos(granted - free)
}

// Goal: the program that the test above starts. By itself: it waits in a line, and is served.
// Method: wait at a keeper, and hold the lock until it is killed.
#[tokio::test]
async fn guest_program() {
    if let Some(order) = program::order() {
        let (scene, name) = Scene::of(&order).await;
        let (_client, asking) = guest(scene.clone(), name.to_owned()).await;
        program::say("waits");
        let _held = served(asking).await;
        program::say("held");
        spawn_blocking(program::wait_for_word).await.expect("it is killed before that");
        return;
    }
    let scene = Scene::new().await;
    let name = support::unique("guest");
    let keeper = peer(&scene).await;
    let held = keeper.lock(&name).await.expect("the lock is free");
    let (client, asking) = guest(scene.clone(), name.clone()).await;
    held.unlock().await.expect("the lock was held");
    let (guard, _) = served(asking).await;
    guard.unlock().await.expect("the lock was held");
    client.shutdown().await.expect("nothing is left");
    keeper.shutdown().await.expect("nothing is left");
}

// Goal: the whole line of a keeper that is killed is served.
// Method: kill a keeper with sixteen guests in line.
#[tokio::test]
async fn whole_line_of_a_killed_keeper_is_served() {
    const WAITING: usize = 16;
    let _beside = support::beside_others().await;
    let scene = Scene::new().await;
    let name = support::unique("killed-keeper");
    let keeper = keeper(&scene, &name).await;
    let mut line = Vec::new();
    // One after the other: each asks a keeper that has 20 ms to answer.
    for _ in 0..WAITING {
        line.push(guest(scene.clone(), name.clone()).await);
    }
    let killed = now();
    keeper.kill().await;
    let all = Duration::from_nanos(serve_all(line).await - killed);
    let ttl = ttl();
    println!("{WAITING} in the line of a killed keeper had the lock within {all:?}, TTL {ttl:?}");
    scene.wait_for_rows(&name, 0).await;
}

// Goal: whatever happens to the bytes between guests and keepers, no two hold at the same time by
// their guards; once all passes again each is served, and no row is left.
// Method: clients behind relays lock all the time, while bytes are late, stall, and are lost with
// their connections.
#[tokio::test]
#[ignore = "takes long; scripts/nightly runs it"]
async fn turns_pass_a_bad_way() {
    const CLIENTS: u64 = 4;
    const TROUBLE: Duration = Duration::from_secs(6);
    let _alone = support::alone().await;
    let scene = Scene::new().await;
    let name = support::unique("bad-way");
    let mut chance = chance();
    let is_over = Arc::new(AtomicBool::new(false));
    let (mut relays, mut working) = (Vec::new(), JoinSet::new());
    for _ in 0..CLIENTS {
        let bind = free_address();
        let relay = Relay::to(bind, chance.random()).await;
        let options = PeerOptions::new(bind).advertised(relay.address().to_string());
        relays.push(relay);
        let client = peer_with(&scene, options).await;
        let (name, is_over) = (name.clone(), Arc::clone(&is_over));
        working.spawn(work(client, name, is_over, StdRng::from_rng(&mut chance)));
    }
    for traffic in
        [Traffic::Late, Traffic::Breaks, Traffic::Stalls, Traffic::AnswersStall, Traffic::Cut]
    {
        for traffic in [traffic, Traffic::Passes] {
            relays.iter().for_each(|relay| relay.set(traffic));
            sleep(TROUBLE).await;
        }
    }
    is_over.store(true, Ordering::Relaxed);
    let (mut moments, mut lost) = (Vec::new(), 0);
    for (held, losses) in working.join_all().await {
        moments.extend(held);
        lost += losses;
    }
    println!("{} grants on a bad way, {lost} lost", moments.len());
    assert_eq!(overlap(&moments), None, "two held the lock");
    scene.wait_until_deleted(&name).await;
}

/// Locks until it is over, and once more then. Returns when it held, and how often the lock was
/// lost or could not be given back.
pub(crate) async fn work(
    client: LockClient,
    name: String,
    is_over: Arc<AtomicBool>,
    mut chance: StdRng,
) -> (Vec<Moment>, u64) {
    let (mut held, mut lost, mut is_last) = (Vec::new(), 0, false);
    while !is_last {
        is_last = is_over.load(Ordering::Relaxed);
        let guard = client.lock(&name).await.expect("each is served");
        let stay = Duration::from_millis(200).mul_f64(chance.random());
        let (from, began) = (now(), Instant::now());
        let mut until = from;
        while began.elapsed() < stay {
            let seen = now();
            if guard.remaining().is_zero() {
                break;
            }
            until = seen;
            sleep(Duration::from_millis(1)).await;
        }
        held.push(Moment::Held { from, until });
        lost += u64::from(guard.unlock().await.is_err());
    }
    client.shutdown().await.expect("nothing is left");
    (held, lost)
}

/// An address of this machine that is free now.
fn free_address() -> SocketAddr {
    let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let socket = TcpListener::bind(any_port).expect("there are free ports");
    socket.local_addr().expect("it is bound")
}
