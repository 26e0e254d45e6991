//! The daemon's own commands.

use std::time::Duration;

use redis::Value;
use support::pace;

use super::{Daemon, LONG};
use crate::lockctl::client;

// Goal: a lock is granted, known, refused to others and given back.
// Method: two connections, RESP2 and RESP3.
#[tokio::test]
async fn lock_is_had_by_one_owner_at_a_time() {
    let daemon = Daemon::new("lockd_lock").await;
    for version in ["2", "3"] {
        let (mut one, mut other) = (daemon.connect(), daemon.connect());
        one.done(&["HELLO", version]);
        let held = one.done(&["LOCK", "a", "OWNER", "me", "FENCE"]);
        assert_eq!(held.part("owner").text(), "me");
        let token = held.part("token").number();
        assert!(held.part("valid_ms").number() > 1_000, "{held:?}");
        assert!(other.done(&["LOCK", "a", "NOWAIT"]).is_nil());
        let refused = other.call(&["LOCK", "a", "WAIT", "50"]).error();
        assert!(refused.starts_with("LOCKFAILED timedout web1 pid "), "{refused}");
        assert!(one.done(&["HELD", "a", "me"]).number() > 0);
        assert_eq!(one.done(&["HELD", "a", "you"]).number(), 0);
        assert!(one.done(&["TOKEN", "a", "me"]).number() > token);
        assert!(other.done(&["TOKEN", "a", "you"]).is_nil());
        assert_eq!(other.done(&["UNLOCK", "a", "you"]).number(), 0);
        assert_eq!(other.done(&["UNLOCK", "a", "me"]).number(), 1, "whoever knows the owner");
        assert_eq!(one.done(&["UNLOCK", "a", "me"]).number(), 0);
        let next = other.done(&["LOCK", "a", "NOWAIT"]);
        assert_eq!(next.part("owner").text().len(), 32, "{next:?}");
        assert!(next.part("token").is_nil());
    }
}

// Goal: what stands behind a waiting command is carried out at once, and answers keep their order.
// Method: the release of what is waited for stands behind the wait, in one connection.
#[tokio::test]
async fn command_behind_a_wait_is_carried_out() {
    let daemon = Daemon::new("lockd_pipeline").await;
    let mut wire = daemon.connect();
    wire.done(&["LOCK", "b", "OWNER", "me"]);
    wire.send(&["LOCK", "b", "WAIT", LONG, "OWNER", "next"]);
    wire.send(&["UNLOCK", "b", "me"]);
    wire.send(&["PING"]);
    assert_eq!(wire.reply().part("owner").text(), "next");
    assert_eq!(wire.reply().number(), 1);
    assert_eq!(wire.reply().text(), "PONG");
}

// Goal: a lock ends with its connection, and so does the wait for one.
// Method: close connections that hold and wait, while another one waits behind them.
#[tokio::test]
async fn closed_connection_holds_and_waits_for_nothing() {
    let daemon = Daemon::new("lockd_closed").await;
    let (mut holder, mut waiter, mut last) = (daemon.connect(), daemon.connect(), daemon.connect());
    holder.done(&["LOCK", "a"]);
    waiter.send(&["LOCK", "a", "WAIT", LONG]);
    last.send(&["LOCK", "a", "WAIT", LONG, "OWNER", "last"]);
    drop((holder, waiter));
    assert_eq!(last.reply().part("owner").text(), "last");
}

// Goal: within its grace a lock outlives its connection and can be had again by its owner's name;
// after it, it is free.
// Method: close connections, and attach from another one.
#[tokio::test]
async fn grace_keeps_a_lock_for_its_owner() {
    let daemon = Daemon::new("lockd_grace").await;
    let mut first = daemon.connect();
    first.done(&["LOCK", "a", "OWNER", "me", "GRACE", LONG]);
    first.done(&["LOCK", "b", "OWNER", "me", "GRACE", "50"]);
    drop(first);
    let mut second = daemon.connect();
    // The end of the first one is noticed by then.
    second.done(&["LOCK", "b", "WAIT", LONG]);
    assert!(second.done(&["ATTACH", "a", "you"]).is_nil());
    assert!(second.done(&["LOCK", "a", "NOWAIT"]).is_nil());
    assert!(second.done(&["ATTACH", "a", "me"]).part("valid_ms").number() > 0);
    drop(second);
    assert!(!daemon.connect().done(&["LOCK", "a", "WAIT", LONG]).is_nil());
}

// Goal: a lock with a time to live outlives its connection and ends in time, not before; `RENEW`
// lets it end later, but not once it has ended.
// Method: measure when the next owner has it.
#[tokio::test]
async fn timed_lock_ends_in_time() {
    let daemon = Daemon::new("lockd_timed").await;
    let mut wire = daemon.connect();
    let began = std::time::Instant::now();
    wire.done(&["LOCK", "a", "OWNER", "me", "TTL", "200"]);
    drop(wire);
    let mut wire = daemon.connect();
    wire.done(&["LOCK", "a", "WAIT", LONG, "OWNER", "next", "TTL", LONG]);
    assert!(began.elapsed() >= Duration::from_millis(200), "{:?}", began.elapsed());
    assert_eq!(wire.done(&["RENEW", "a", "me", "TTL", LONG]).number(), 0, "it has ended");
    let left = wire.done(&["RENEW", "a", "next", "TTL", "60000"]).number();
    assert!(left > 30_000, "{left}");
}

// Goal: readers share a lock, and a limited number holds it at once.
// Method: one more than may hold it.
#[tokio::test]
async fn locks_are_shared_and_limited() {
    let daemon = Daemon::new("lockd_shared").await;
    let mut wire = daemon.connect();
    for _ in 0..2 {
        assert!(!wire.done(&["LOCK", "a", "NOWAIT", "SHARED"]).is_nil());
        assert!(!wire.done(&["LOCK", "b", "NOWAIT", "MAX", "2"]).is_nil());
    }
    assert!(wire.done(&["LOCK", "a", "NOWAIT"]).is_nil());
    assert!(wire.done(&["LOCK", "b", "NOWAIT", "MAX", "2"]).is_nil());
}

// Goal: a client learns that its lock is to be given up, and that it is lost: by a push, or on the
// channel.
// Method: revoke the lock of a daemon, which does not give it up.
#[tokio::test]
async fn holder_learns_that_it_is_to_leave() {
    let daemon = Daemon::with("lockd_lost", &["--ttl", "10s"]).await;
    let (mut holder, mut listener) = (daemon.connect(), daemon.connect());
    holder.done(&["HELLO", "3"]);
    holder.done(&["LOCK", "a", "OWNER", "me"]);
    listener.done(&["SUBSCRIBE", "lockd:lost"]);
    let operator = client(&daemon.tool, "web1").await;
    let name = format!("{}a", daemon.prefix);
    let held = operator.contenders(&name).await.expect("the cluster answers").remove(0);
    pace::within_limit("the request", operator.revoke(&name, &held, "work"))
        .await
        .expect("it is asked to leave");
    let Value::Push { data, .. } = holder.reply().0 else { panic!("it is pushed") };
    let words: Vec<_> = data.iter().map(|part| super::wire::Reply(part.clone())).collect();
    assert_eq!((words[0].text(), words[1].text()), ("a".to_owned(), "me".to_owned()), "{words:?}");
    assert!(words[2].number() > 0 && words[3].text().contains("work"), "{words:?}");
    operator.revoke_by_force(&name, &held, "work").await.expect("it is removed");
    let lost = listener.reply();
    assert!(format!("{lost:?}").contains("a me "), "{lost:?}");
}

// Goal: words that make no sense are refused before anything is done.
// Method: each of them.
#[tokio::test]
async fn nonsense_is_refused() {
    let daemon = Daemon::new("lockd_nonsense").await;
    let mut wire = daemon.connect();
    for words in [
        ["LOCK", "a", "TTL"].as_slice(),
        &["LOCK"],
        &["LOCK", "a", "TTL", "0"],
        &["LOCK", "a", "TTL", "-5"],
        &["LOCK", "a", "TTL", "x"],
        &["LOCK", "a", "MAX", "0"],
        &["LOCK", "a", "NOSUCH"],
        &["LOCK", "a", "TTL", "5", "GRACE", "5"],
        &["LOCK", "a", "SHARED", "MINHOLD", "5"],
        &["RENEW", "a", "me", "5"],
        &["UNLOCK", "a"],
        &["NOSUCH"],
        &["SET", "a", "b"],
        &["SET", "a", "b", "NX", "XX"],
    ] {
        let error = wire.call(words).error();
        assert!(error.starts_with("ERR "), "{words:?}: {error}");
    }
    assert!(!wire.done(&["LOCK", "a", "NOWAIT"]).is_nil());
    let status = daemon.connect().done(&["LOCKSTATUS"]).text();
    assert_eq!(status, "LOCKREADY");
}

// Goal: people use it by hand.
// Method: lines of words, and the end of what is sent before the answers have come.
#[tokio::test]
async fn lines_are_commands_too() {
    let daemon = Daemon::new("lockd_lines").await;
    let mut wire = daemon.connect();
    wire.write(b"lock \"a b\" owner me\r\n");
    assert_eq!(wire.reply().part("owner").text(), "me");
    wire.write(b"who \"a b\"\nLOCKSTATUS\n");
    let Value::Array(who) = wire.reply().0 else { panic!("it says who") };
    assert_eq!(super::wire::Reply(who[0].clone()).text(), "held");
    wire.end_of_input();
    assert_eq!(wire.reply().text(), "LOCKREADY");
}
