//! Several daemons on one cluster.

use std::time::{Duration, Instant};

use rand::Rng;
use rustix::process::Signal;
use support::environment::{chance, repeats};

use super::{Daemon, KILLS, LOCKS, LONG, Promises, until_taken};

// Goal: a lock of one daemon is taken at all of them, and passes from one to the other.
// Method: two daemons.
#[tokio::test]
async fn lock_is_held_at_one_daemon() {
    let one = Daemon::new("lockd_two").await;
    let other = one.another(&[]).await;
    let (mut here, mut there) = (one.connect(), other.connect());
    for _ in 0..3 {
        assert!(here.done(&["SET", "k", "here", "NX", "PX", LONG]).is_ok());
        assert!(there.done(&["SET", "k", "there", "NX", "PX", LONG]).is_nil());
        let holder = there.done(&["GET", "k"]).text();
        assert!(holder.starts_with("~web1 pid "), "{holder}");
        assert_eq!(there.done(&["UNLOCK", "k", "here"]).number(), 0, "it is not held there");
        there.send(&["LOCK", "k", "WAIT", LONG, "OWNER", "there"]);
        assert_eq!(here.done(&["UNLOCK", "k", "here"]).number(), 1);
        assert_eq!(there.reply().part("owner").text(), "there");
        assert!(here.done(&["SET", "k", "here", "NX", "PX", LONG]).is_nil());
        assert_eq!(there.done(&["UNLOCK", "k", "there"]).number(), 1);
    }
}

// Goal: what a daemon has promised for a time outlives it: no other owner has the lock before.
// Method: kill it with nine, with and without a lock that it had from the other one, and measure
// when the other one has the lock.
#[tokio::test]
async fn promise_outlives_a_killed_daemon() {
    let promise = Duration::from_secs(8);
    let ttl = promise.as_millis().to_string();
    let other = Daemon::with("lockd_killed", &["--ttl", "5s"]).await;
    let mut there = other.connect();
    for passed_on in [false, true] {
        let mut one = other.another(&["--ttl", "5s"]).await;
        let mut here = one.connect();
        if passed_on {
            there.done(&["LOCK", "k", "OWNER", "there"]);
            here.send(&["LOCK", "k", "WAIT", LONG, "OWNER", "here", "TTL", &ttl]);
            std::thread::sleep(Duration::from_millis(300));
            assert_eq!(there.done(&["UNLOCK", "k", "there"]).number(), 1);
            assert_eq!(here.reply().part("owner").text(), "here");
        } else {
            assert!(here.done(&["SET", "k", "here", "NX", "PX", &ttl]).is_ok());
        }
        let granted = Instant::now();
        one.send(Signal::KILL);
        assert_eq!(one.ended().await, None);
        until_taken(&mut there, &["SET", "k", "there", "NX", "PX", LONG]);
        let held_for = granted.elapsed();
        // The answer came a moment after the grant.
        assert!(held_for + Duration::from_millis(500) >= promise, "{passed_on}: {held_for:?}");
        assert_eq!(there.done(&["DEL", "k"]).number(), 1);
    }
}

// Goal: as above, for many locks with times of their own.
// Method: kill daemons at random moments, and let another one try again and again.
#[tokio::test]
#[ignore = "takes long; scripts/nightly runs it"]
async fn promises_outlive_killed_daemons() {
    let mut chance = chance();
    let other = Daemon::with("lockd_kills", &["--ttl", "5s"]).await;
    let mut there = other.connect();
    let mut promises = Promises::new();
    for _ in 0..repeats(KILLS) {
        let mut one = other.another(&["--ttl", "5s"]).await;
        let mut here = one.connect();
        let mut held = Vec::new();
        for number in 0..LOCKS {
            let promise = Duration::from_millis(chance.random_range(500..12_000));
            let (name, ttl) = (format!("k{number}"), promise.as_millis().to_string());
            // A client counts from before it asks, and may count on nothing more.
            let asked = Instant::now();
            assert!(here.done(&["SET", &name, "here", "NX", "PX", &ttl]).is_ok());
            held.push((name, asked + promise));
        }
        std::thread::sleep(Duration::from_millis(chance.random_range(0..500)));
        one.send(Signal::KILL);
        one.ended().await;
        while !held.is_empty() {
            held.retain(|(name, promised)| {
                if there.done(&["SET", name, "there", "NX", "PX", LONG]).is_nil() {
                    return true;
                }
                promises.is_free(name, *promised);
                assert_eq!(there.done(&["DEL", name]).number(), 1);
                false
            });
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    println!("{promises}");
}
