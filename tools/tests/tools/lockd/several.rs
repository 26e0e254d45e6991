//! Several daemons on one cluster.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::{Daemon, LONG, until_taken};

// Goal: a lock of one daemon is taken at all of them, and passes from one to the other.
// Method: two daemons.
#[tokio::test]
async fn lock_is_held_at_one_daemon() {
    let one = Daemon::new("lockd_two").await;
    let other = Daemon::beside(&one.tool, "lockd_two", &[]).await;
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
        let mut one = Daemon::beside(&other.tool, "lockd_killed", &["--ttl", "5s"]).await;
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
