//! Clients of Redis: their commands and scripts, and a lock library as it is.

use std::time::{Duration, Instant};

use rslock::{LockError, LockManager};
use support::pace;

use super::{Daemon, LONG, until_taken};

/// The script by which most clients release a lock.
pub(super) const RELEASE: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then \
                       return redis.call('del', KEYS[1]) else return 0 end";

/// And by which they extend it.
pub(super) const EXTEND: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then return \
                      redis.call('pexpire', KEYS[1], ARGV[2]) else return 0 end";

// Goal: `SET NX PX` takes a lock, and a script releases it, as of its owner only.
// Method: two owners.
#[tokio::test]
async fn lock_is_taken_by_set_and_released_by_a_script() {
    let daemon = Daemon::new("lockd_set").await;
    let mut wire = daemon.connect();
    assert!(wire.done(&["SET", "k", "one", "NX", "PX", LONG]).is_ok());
    assert!(wire.done(&["SET", "k", "two", "PX", LONG, "NX"]).is_nil());
    assert_eq!(wire.done(&["GET", "k"]).text(), "one");
    let left = wire.done(&["PTTL", "k"]).number();
    assert!((1..=30_000).contains(&left), "{left}");
    assert_eq!(wire.done(&["EXISTS", "k", "none"]).number(), 1);
    assert_eq!(wire.done(&["EVAL", RELEASE, "1", "k", "two"]).number(), 0);
    assert_eq!(wire.done(&["EVAL", EXTEND, "1", "k", "one", "60000"]).number(), 1);
    assert!(wire.done(&["PTTL", "k"]).number() > 30_000);
    assert_eq!(wire.done(&["EVAL", EXTEND, "1", "k", "two", "60000"]).number(), 0);
    assert_eq!(wire.done(&["EVAL", RELEASE, "1", "k", "one"]).number(), 1);
    assert_eq!(wire.done(&["EVAL", RELEASE, "1", "k", "one"]).number(), 0);
    assert!(wire.done(&["GET", "k"]).is_nil());
    assert_eq!(wire.done(&["PTTL", "k"]).number(), -2);
}

// Goal: a lock that has ended is not revived, a time of zero extends nothing, and times do not add
// up unless a client asks for that.
// Method: extend it then.
#[tokio::test]
async fn extension_revives_nothing() {
    let daemon = Daemon::new("lockd_extend").await;
    let mut wire = daemon.connect();
    assert!(wire.done(&["SET", "k", "one", "NX", "PX", "50"]).is_ok());
    let waited = until_taken(&mut wire, &["SET", "k", "two", "NX", "PX", LONG]);
    assert_eq!(wire.done(&["EVAL", EXTEND, "1", "k", "one", LONG]).number(), 0, "{waited:?}");
    assert!(wire.done(&["SET", "k", "one", "XX", "PX", LONG]).is_nil());
    assert_eq!(wire.done(&["EVAL", EXTEND, "1", "k", "two", "0"]).number(), 0);
    assert_eq!(wire.done(&["EVAL", EXTEND, "1", "k", "two", "-1"]).number(), 0);
    assert_eq!(wire.done(&["GET", "k"]).text(), "two", "it is still held");
    for _ in 0..3 {
        assert!(wire.done(&["SET", "k", "two", "XX", "PX", LONG]).is_ok());
    }
    assert!(wire.done(&["PTTL", "k"]).number() <= 30_000);
}

// Goal: `DEL` releases what its sender took, and nothing else.
// Method: another address asks for it.
#[tokio::test]
async fn strangers_delete_no_lock() {
    let daemon = Daemon::with("lockd_del", &["--listen", "127.0.0.1:0"]).await;
    let mut wire = daemon.connect();
    assert!(wire.done(&["SET", "k", "one", "NX", "PX", LONG]).is_ok());
    let mut tcp = daemon.connect_over_tcp();
    assert_eq!(tcp.done(&["DEL", "k"]).number(), 0);
    assert_eq!(tcp.done(&["GET", "k"]).text(), "one");
    assert_eq!(wire.done(&["DEL", "k"]).number(), 1);
    let refused = tcp.call(&["SET", "k", "one", "NX"]).error();
    assert!(refused.contains("--endless-over-tcp"), "{refused}");
    assert!(wire.done(&["SET", "k", "one", "NX"]).is_ok(), "it ends with its process");
}

// Goal: a script that is not known is refused, with what an operator needs to allow it.
// Method: read it off the error, and start another daemon with it.
#[tokio::test]
async fn unknown_script_can_be_allowed() {
    let daemon = Daemon::new("lockd_script").await;
    let script = "return redis.call('take', KEYS[1])";
    let mut wire = daemon.connect();
    let error = wire.call(&["EVAL", script, "1", "k", "one"]).error();
    let option = error.split_whitespace().find(|word| word.ends_with("=BEHAVIOUR"));
    let option = option.expect("the error has it").replace("BEHAVIOUR", "release");
    let sha = option.split('=').next().expect("it is the first").to_owned();
    assert!(wire.call(&["EVALSHA", &sha, "1", "k", "one"]).error().starts_with("NOSCRIPT"));
    drop(wire);
    let daemon = daemon.another(&["--script", &option]).await;
    let mut wire = daemon.connect();
    assert!(wire.done(&["SET", "k", "one", "NX", "PX", LONG]).is_ok());
    assert_eq!(wire.done(&["EVALSHA", &sha, "1", "k", "one"]).number(), 1);
}

// Goal: a lock library for Redis, as it is: lock, refusal, extension, release, expiry.
// Method: rslock over TCP.
#[tokio::test]
async fn rslock_has_locks() {
    let daemon = Daemon::with("lockd_rslock", &["--listen", "127.0.0.1:0"]).await;
    let address = daemon.address();
    let manager = || {
        let mut manager = LockManager::new(vec![format!("redis://{address}/")]);
        manager.set_retry(1, Duration::from_millis(10));
        manager
    };
    let (one, other) = (manager(), manager());
    let long = Duration::from_secs(30);
    let lock = one.lock("k", long).await.expect("it is free");
    let refused = other.lock("k", long).await;
    assert!(matches!(refused, Err(LockError::Unavailable)), "{refused:?}");
    one.extend(&lock, long).await.expect("it is held");
    one.unlock(&lock).await;
    let brief = Duration::from_millis(300);
    let began = Instant::now();
    let first = other.lock("k", brief).await.expect("it was released");
    let next = pace::within_limit("the end of a lock", async {
        loop {
            if let Ok(lock) = one.lock("k", long).await {
                break lock;
            }
        }
    })
    .await;
    assert!(began.elapsed() >= brief, "{:?}", began.elapsed());
    other.unlock(&first).await;
    assert!(other.extend(&first, long).await.is_err(), "it has ended");
    assert!(other.lock("k", long).await.is_err(), "a stranger's release changes nothing");
    one.unlock(&next).await;
}

// Goal: commands about one lock are carried out in the order in which they were sent, although they
// are sent without waiting for answers.
// Method: what a client does with a lock, in one write.
#[tokio::test]
async fn pipelined_commands_keep_their_order() {
    let daemon = Daemon::new("lockd_order").await;
    let mut wire = daemon.connect();
    wire.send(&["SET", "k", "one", "NX", "PX", LONG]);
    wire.send(&["GET", "k"]);
    wire.send(&["EVAL", RELEASE, "1", "k", "one"]);
    wire.send(&["SET", "k", "two", "NX", "PX", LONG]);
    wire.send(&["GET", "k"]);
    assert!(wire.reply().is_ok());
    assert_eq!(wire.reply().text(), "one");
    assert_eq!(wire.reply().number(), 1);
    assert!(wire.reply().is_ok());
    assert_eq!(wire.reply().text(), "two");
}

// Goal: a client that gave up waiting and releases what it may have got leaves nothing behind.
// Method: over another connection, while the request waits behind another owner's lock; and a
// connection that is closed before its answer has come.
#[tokio::test]
async fn abandoned_request_leaves_nothing() {
    let daemon = Daemon::new("lockd_abandoned").await;
    let (mut holder, mut waiter, mut other) =
        (daemon.connect(), daemon.connect(), daemon.connect());
    holder.done(&["LOCK", "k", "OWNER", "holder"]);
    waiter.send(&["LOCK", "k", "WAIT", LONG, "TTL", LONG, "OWNER", "waiter"]);
    // It has come by then, or the release is asked for again.
    while other.done(&["UNLOCK", "k", "waiter"]).number() == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(waiter.reply().error().starts_with("LOCKFAILED withdrawn"));
    for number in 0..10 {
        let mut gone = daemon.connect();
        gone.send(&["SET", "gone", &number.to_string(), "NX", "PX", LONG]);
        drop(gone);
        until_taken(&mut other, &["SET", "gone", "other", "NX", "PX", LONG]);
        assert_eq!(other.done(&["DEL", "gone"]).number(), 1);
    }
}

// Goal: a lock can be extended for as long as one can be taken.
// Method: from a short time to a very long one.
#[tokio::test]
async fn extension_is_as_long_as_a_lock() {
    let daemon = Daemon::new("lockd_longer").await;
    let mut wire = daemon.connect();
    assert!(wire.done(&["SET", "k", "one", "NX", "PX", "5000"]).is_ok());
    for time in ["117000", "3600000"] {
        assert_eq!(wire.done(&["EVAL", EXTEND, "1", "k", "one", time]).number(), 1, "{time}");
    }
    let refusing = daemon.another(&["--long-ttl", "refuse"]).await;
    let refused = refusing.connect().call(&["SET", "l", "one", "NX", "PX", "3600000"]).error();
    assert!(refused.starts_with("LIMIT "), "{refused}");
}
