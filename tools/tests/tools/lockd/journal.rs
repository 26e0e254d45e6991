//! The journal: what the next daemon knows of the locks of one that was killed.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rustix::process::Signal;
use support::environment::{chance, repeats};
use support::pace;

use super::redis::{EXTEND, RELEASE};
use super::wire::Wire;
use super::{Daemon, KILLS, LOCKS, LONG, Promises, socket, until_taken};
use crate::command::{Tool, replicas};

/// Rows live for this long, so that whatever is free before was released.
const TTL: &str = "100s";

/// What is promised for this long outlives a restart on a busy machine.
const PROMISE: &str = "60000";

fn info(wire: &mut Wire, name: &str) -> u64 {
    let info = wire.done(&["INFO"]).text();
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.expect("it is shown").parse().expect("it is a number")
}

fn owners(wire: &mut Wire, name: &str) -> Vec<String> {
    let redis::Value::Array(parts) = wire.done(&["WHO", name]).0 else { panic!("it is a list") };
    redis::from_redis_value_ref(&parts[3]).expect("they are texts")
}

impl Daemon {
    async fn kill(&mut self) {
        self.send(Signal::KILL);
        assert_eq!(self.ended().await, None, "it was killed");
    }

    /// The next daemon at the same socket, after this one was killed.
    async fn after_kill(&mut self) -> Daemon {
        self.kill().await;
        self.next_with(&["--ttl", TTL]).await
    }
}

// Goal: what a killed daemon had promised for a time is known to the next one: it answers for it,
// extends nothing, refuses strangers, and releases it for its owners at once.
// Method: locks with times, one that was released and one without a time; then another daemon takes
// what was released.
#[tokio::test]
async fn next_daemon_adopts_promises() {
    let mut old = Daemon::with("lockd_adopt", &["--ttl", TTL]).await;
    let mut client = old.connect();
    for name in ["script", "unlock", "del", "given back"] {
        assert!(client.done(&["SET", name, "one", "NX", "PX", PROMISE]).is_ok());
    }
    assert_eq!(client.done(&["EVAL", EXTEND, "1", "unlock", "one", "110000"]).number(), 1);
    // Longer than the table allows.
    assert!(client.done(&["SET", "long", "one", "NX", "PX", "3600000"]).is_ok());
    client.done(&["LOCK", "bound", "OWNER", "one"]);
    assert_eq!(client.done(&["UNLOCK", "given back", "one"]).number(), 1);

    let next = old.after_kill().await;
    let third = next.another(&["--ttl", TTL]).await;
    let (mut wire, mut there) = (next.connect(), third.connect());
    assert_eq!(info(&mut wire, "locks_adopted"), 4);
    assert_eq!(info(&mut wire, "locks_held"), 0);
    let left = wire.done(&["HELD", "long", "one"]).number();
    assert!((1..=120_000).contains(&left), "no longer than its rows: {left}");
    assert_eq!(wire.done(&["UNLOCK", "long", "one"]).number(), 1);
    assert!(wire.done(&["SET", "long", "two", "NX", "PX", LONG]).is_ok());
    for (name, most) in [("script", 60_000), ("unlock", 110_000), ("del", 60_000)] {
        let left = wire.done(&["HELD", name, "one"]).number();
        assert!((1..=most).contains(&left), "{name}: {left}");
        assert!((1..=left).contains(&wire.done(&["PTTL", name]).number()), "{name}");
        assert_eq!(wire.done(&["GET", name]).text(), "one");
        assert_eq!(wire.done(&["EXISTS", name]).number(), 1);
        assert_eq!(owners(&mut wire, name), ["one"]);
    }
    assert!(wire.done(&["PTTL", "unlock"]).number() > 60_000, "it was extended");
    for name in ["given back", "bound"] {
        assert_eq!(wire.done(&["HELD", name, "one"]).number(), 0, "{name}");
    }

    let before = wire.done(&["PTTL", "script"]).number();
    assert_eq!(wire.done(&["EVAL", EXTEND, "1", "script", "one", "90000"]).number(), 0);
    assert!(wire.done(&["SET", "script", "one", "XX", "PX", "90000"]).is_nil());
    assert_eq!(wire.done(&["RENEW", "script", "one", "TTL", "90000"]).number(), 0);
    assert!(wire.done(&["ATTACH", "script", "one"]).is_nil());
    assert!(wire.call(&["TOKEN", "script", "one"]).error().starts_with("NOTOKEN "));
    assert!(wire.done(&["PTTL", "script"]).number() <= before);
    for owner in ["one", "two"] {
        assert!(wire.done(&["SET", "script", owner, "NX", "PX", LONG]).is_nil());
    }
    assert_eq!(wire.done(&["EVAL", RELEASE, "1", "script", "two"]).number(), 0);
    assert_eq!(wire.done(&["UNLOCK", "script", "two"]).number(), 0);

    assert!(there.done(&["SET", "script", "two", "NX", "PX", LONG]).is_nil());
    assert_eq!(wire.done(&["EVAL", RELEASE, "1", "script", "one"]).number(), 1);
    assert_eq!(wire.done(&["UNLOCK", "unlock", "one"]).number(), 1);
    assert_eq!(wire.done(&["DEL", "del"]).number(), 1, "its taker is the same process");
    for name in ["script", "unlock", "del"] {
        assert_eq!(wire.done(&["UNLOCK", name, "one"]).number(), 0);
        assert!(there.done(&["SET", name, "two", "NX", "PX", LONG]).is_ok(), "{name} is free");
    }
    assert_eq!(info(&mut wire, "locks_adopted"), 0);
    assert_eq!(next.journals().len(), 1, "that of the killed daemon is gone");
}

// Goal: an adopted lock ends when it was promised to end, not before, and not with its rows.
// Method: let another daemon try from the kill on.
#[tokio::test]
async fn adopted_lock_ends_in_time() {
    let promise = pace::scaled(Duration::from_secs(4)).min(Duration::from_secs(30));
    let mut old = Daemon::with("lockd_adopt_end", &["--ttl", TTL]).await;
    let third = old.another(&["--ttl", TTL]).await;
    let (mut client, mut there) = (old.connect(), third.connect());
    let asked = Instant::now();
    let ttl = promise.as_millis().to_string();
    assert!(client.done(&["SET", "k", "one", "NX", "PX", &ttl]).is_ok());
    let next = old.after_kill().await;
    until_taken(&mut there, &["SET", "k", "two", "NX", "PX", LONG]);
    let held_for = asked.elapsed();
    assert!(held_for >= promise, "{held_for:?}");
    assert!(held_for < Duration::from_secs(90), "{held_for:?}");
    assert_eq!(next.connect().done(&["HELD", "k", "one"]).number(), 0);
}

// Goal: what is adopted outlives the next kill, too.
// Method: kill two daemons before the owner releases its lock.
#[tokio::test]
async fn adopted_locks_are_adopted_again() {
    let mut first = Daemon::with("lockd_twice", &["--ttl", TTL]).await;
    assert!(first.connect().done(&["SET", "a", "one", "NX", "PX", PROMISE]).is_ok());
    let mut second = first.after_kill().await;
    assert!(second.connect().done(&["SET", "b", "two", "NX", "PX", PROMISE]).is_ok());
    let third = second.after_kill().await;
    let mut wire = third.connect();
    assert_eq!(info(&mut wire, "locks_adopted"), 2);
    for (name, owner) in [("a", "one"), ("b", "two")] {
        assert_eq!(wire.done(&["UNLOCK", name, owner]).number(), 1);
        assert!(wire.done(&["SET", name, "three", "NX", "PX", LONG]).is_ok());
    }
}

// Goal: a record that was not written whole is as if it were not there.
// Method: cut the journal of a killed daemon, and append what does not belong there.
#[tokio::test]
async fn torn_record_is_passed_over() {
    let mut old = Daemon::with("lockd_torn", &["--ttl", TTL]).await;
    let mut client = old.connect();
    for name in ["whole", "torn"] {
        assert!(client.done(&["SET", name, "one", "NX", "PX", PROMISE]).is_ok());
    }
    old.kill().await;
    let journals = old.journals();
    let [path] = &journals[..] else { panic!("{journals:?}") };
    let bytes = fs::read(path).expect("it is there");
    fs::write(path, &bytes[..bytes.len() - 3]).expect("it is ours");
    let next = old.next_with(&["--ttl", TTL]).await;
    let mut wire = next.connect();
    assert!(wire.done(&["HELD", "whole", "one"]).number() > 0);
    assert_eq!(wire.done(&["HELD", "torn", "one"]).number(), 0);
    assert!(wire.done(&["SET", "torn", "two", "NX", "PX", LONG]).is_nil(), "its rows are there");
}

// Goal: a file that is no journal of this start of the machine is passed over, and removed.
// Method: spoil the first record; and begin a file that was never completed.
#[tokio::test]
async fn other_files_are_passed_over() {
    let mut old = Daemon::with("lockd_spoilt", &["--ttl", TTL]).await;
    assert!(old.connect().done(&["SET", "k", "one", "NX", "PX", PROMISE]).is_ok());
    old.kill().await;
    let journals = old.journals();
    let mut file = fs::OpenOptions::new().write(true).open(&journals[0]).expect("it is there");
    file.write_all(&[0; 16]).expect("it is ours");
    let mut incomplete = journals[0].clone().into_os_string();
    incomplete.push(".new");
    fs::write(&incomplete, b"").expect("there is room");
    let next = old.next_with(&["--ttl", TTL]).await;
    let mut wire = next.connect();
    assert_eq!(info(&mut wire, "locks_adopted"), 0);
    assert_eq!(wire.done(&["HELD", "k", "one"]).number(), 0);
    assert!(wire.done(&["SET", "k", "two", "NX", "PX", LONG]).is_nil());
    let left = next.journals();
    assert!(left.len() == 1 && !journals.contains(&left[0]), "{left:?}");
}

// Goal: a planned restart leaves to the new daemon what the old one promised, once that has ended.
// Method: two daemons at one socket, and TERM for the first one without time to drain.
#[tokio::test]
async fn planned_restart_leaves_promises() {
    let mut old = Daemon::with("lockd_left", &["--ttl", TTL, "--drain", "0"]).await;
    let mut client = old.connect();
    assert!(client.done(&["SET", "k", "one", "NX", "PX", PROMISE]).is_ok());
    let next = old.next_with(&["--ttl", TTL]).await;
    let mut wire = next.connect();
    assert_eq!(wire.done(&["HELD", "k", "one"]).number(), 0, "the old one lives, and answers");
    let holder = wire.done(&["GET", "k"]).text();
    assert!(holder.starts_with("~web1 pid "), "{holder}");
    assert!(client.done(&["HELD", "k", "one"]).number() > 0);
    old.send(Signal::TERM);
    assert_eq!(old.ended().await, Some(0));
    pace::until("the adoption", async || wire.done(&["HELD", "k", "one"]).number() > 0).await;
    assert_eq!(wire.done(&["UNLOCK", "k", "one"]).number(), 1);
    assert!(wire.done(&["SET", "k", "two", "NX", "PX", LONG]).is_ok());
}

// Goal: a daemon that ends without holding anything leaves no journal; one that keeps none adopts
// nothing.
// Method: TERM; and a daemon without a journal.
#[tokio::test]
async fn no_journal_is_left_for_nothing() {
    let mut old = Daemon::with("lockd_nothing", &["--journal", "off"]).await;
    assert!(old.journals().is_empty());
    assert!(old.connect().done(&["SET", "k", "one", "NX", "PX", PROMISE]).is_ok());
    let mut next = old.after_kill().await;
    assert_eq!(next.journals().len(), 1);
    assert_eq!(next.connect().done(&["HELD", "k", "one"]).number(), 0);
    next.send(Signal::TERM);
    assert_eq!(next.ended().await, Some(0));
    assert!(next.journals().is_empty());
}

// Goal: rows that are not those of the killed daemon alone are not deleted: its owner's release
// counts for the daemon, and the lock stays taken for its time.
// Method: a lock that it had in its turn from another daemon, and one that two owners share.
#[tokio::test]
async fn rows_of_others_stay() {
    let promise = pace::scaled(Duration::from_secs(8)).min(Duration::from_secs(60));
    let ttl = promise.as_millis().to_string();
    let other = Daemon::with("lockd_turn", &["--ttl", TTL]).await;
    let mut one = other.another(&["--ttl", "10s"]).await;
    let (mut there, mut here) = (other.connect(), one.connect());
    let granted = loop {
        let operations = info(&mut here, "table_operations");
        there.done(&["LOCK", "turn", "OWNER", "there", "WAIT", LONG]);
        here.send(&["LOCK", "turn", "WAIT", LONG, "OWNER", "here", "TTL", &ttl]);
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(there.done(&["UNLOCK", "turn", "there"]).number(), 1);
        let granted = Instant::now();
        assert_eq!(here.reply().part("owner").text(), "here");
        let holder = there.done(&["GET", "turn"]).text();
        assert!(holder.starts_with("~web1 pid "), "{holder}");
        // Whoever is known as a guest gets its turn by messages alone.
        if info(&mut here, "table_operations") == operations {
            break granted;
        }
        assert_eq!(here.done(&["UNLOCK", "turn", "here"]).number(), 1);
    };
    for owner in ["one", "two"] {
        here.done(&["LOCK", "shared", "SHARED", "OWNER", owner, "TTL", PROMISE]);
    }
    let next = one.after_kill().await;
    let mut wire = next.connect();
    for (name, owner) in [("turn", "here"), ("shared", "one")] {
        assert!(wire.done(&["HELD", name, owner]).number() > 0, "{name}");
        assert_eq!(wire.done(&["UNLOCK", name, owner]).number(), 1, "{name}");
        assert_eq!(wire.done(&["HELD", name, owner]).number(), 0, "{name}");
        assert!(there.done(&["SET", name, "there", "NX", "PX", LONG]).is_nil(), "{name}");
    }
    assert!(wire.done(&["HELD", "shared", "two"]).number() > 0);
    until_taken(&mut there, &["SET", "turn", "there", "NX", "PX", LONG]);
    let held_for = granted.elapsed();
    assert!(held_for + Duration::from_millis(500) >= promise, "{held_for:?}");
}

// Goal: of a lock that is promised for longer than rows may live, the journal says how far its
// renewals reach.
// Method: a table whose rows live for half a minute at most, and a kill after that.
#[tokio::test]
#[ignore = "takes long; scripts/nightly runs it"]
async fn renewals_of_long_locks_are_noted() {
    let tool = Tool::new("lockd_renewed").await;
    let replicas = replicas().await;
    let answer = tool.run(&["init", "--replication", &replicas, "--max-ttl", "30s"]).await;
    assert_eq!(answer.code, Some(0), "{answer:?}");
    tool.done(&["add", "web1"]).await;
    let ttl = ["--ttl", "30s"];
    let mut old = Daemon::start(tool, String::new(), socket("renewed"), &ttl).await;
    let mut client = old.connect();
    assert!(client.done(&["SET", "k", "one", "NX", "PX", "3600000"]).is_ok());
    tokio::time::sleep(Duration::from_secs(40)).await;
    old.kill().await;
    let next = old.next_with(&ttl).await;
    let mut wire = next.connect();
    let left = wire.done(&["HELD", "k", "one"]).number();
    assert!((1..=30_000).contains(&left), "{left}");
    assert_eq!(wire.done(&["UNLOCK", "k", "one"]).number(), 1);
    assert!(wire.done(&["SET", "k", "two", "NX", "PX", LONG]).is_ok());
}

// Goal: promises outlive killed daemons also if the next one adopts them: no other owner has a lock
// before its time is over or its owner has released it.
// Method: kill daemons at random moments, let half of the owners release their locks at the next
// one, and let another one try again and again.
#[tokio::test]
#[ignore = "takes long; scripts/nightly runs it"]
async fn promises_outlive_adoptions() {
    let mut chance = chance();
    let other = Daemon::with("lockd_adoptions", &["--ttl", TTL]).await;
    let mut there = other.connect();
    let mut one = other.another(&["--ttl", TTL]).await;
    // They have the same socket, and would remove it.
    let mut gone = Vec::new();
    let mut promises = Promises::new();
    for _ in 0..repeats(KILLS) {
        let mut here = one.connect();
        let mut held = Vec::new();
        for number in 0..LOCKS {
            let promise = Duration::from_millis(chance.random_range(500..6_000));
            let (name, ttl) = (format!("k{number}"), promise.as_millis().to_string());
            let asked = Instant::now();
            assert!(here.done(&["SET", &name, "here", "NX", "PX", &ttl]).is_ok());
            held.push((name, Some(asked + promise)));
        }
        std::thread::sleep(Duration::from_millis(chance.random_range(0..300)));
        let next = one.after_kill().await;
        let mut here = next.connect();
        for (name, promised) in &mut held {
            if chance.random_bool(0.5) && here.done(&["UNLOCK", name, "here"]).number() == 1 {
                *promised = None;
            }
        }
        while !held.is_empty() {
            held.retain(|(name, promised)| {
                if there.done(&["SET", name, "there", "NX", "PX", LONG]).is_nil() {
                    assert!(promised.is_some(), "{name} was released");
                    return true;
                }
                if let Some(promised) = promised {
                    promises.is_free(name, *promised);
                }
                assert_eq!(there.done(&["DEL", name]).number(), 1);
                false
            });
            std::thread::sleep(Duration::from_millis(20));
        }
        gone.push(std::mem::replace(&mut one, next));
    }
    println!("{promises}");
}

/// Clients of a daemon, and the locks for which all of them compete.
const CLIENTS: usize = 3;
const CONTENDED: usize = 3;

/// Clients that take locks and count overlaps.
struct Contest {
    prefix: &'static str,
    /// Who is inside; zero: no one.
    inside: [AtomicU64; CONTENDED],
    grants: AtomicU64,
    is_over: AtomicBool,
}

impl Contest {
    /// Takes locks until it is over, some of them for longer than a restart takes. A client whose
    /// daemon dies asks the next one to release what it may have, and what it had before: it need
    /// not know what was released.
    fn compete(&self, socket: &Path, number: u64, mut chance: StdRng) {
        let (mut wire, mut before) = (None, Vec::new());
        for turn in 0_u64.. {
            if self.is_over.load(Ordering::SeqCst) {
                return;
            }
            let index = chance.random_range(0..CONTENDED);
            let (name, owner) = (format!("{}{index}", self.prefix), format!("{number}-{turn}"));
            let words = ["LOCK", &name, "WAIT", "3000", "TTL", "6000", "OWNER", &owner];
            let asked = Instant::now();
            let answer = connected(&mut wire, socket).call_or_end(&words);
            let is_granted = answer.as_ref().is_some_and(|it| !it.is_error());
            // A client that was stopped for long can't rely on it.
            if is_granted && asked.elapsed() < Duration::from_secs(3) {
                let inside = self.inside[index].swap(number, Ordering::SeqCst);
                assert_eq!(inside, 0, "{name}: {owner} is let in too");
                let is_long = chance.random_bool(0.05);
                let millis = chance.random_range(if is_long { 500..1_500 } else { 0..3 });
                std::thread::sleep(Duration::from_millis(millis));
                let still = self.inside[index].swap(0, Ordering::SeqCst);
                assert_eq!(still, number, "{name}: another one is let in too");
                self.grants.fetch_add(1, Ordering::SeqCst);
            }
            if answer.is_none() {
                wire = None;
            }
            before.push((name, owner));
            let mut unsure = before.len() - 1;
            while let Some((name, owner)) = before.get(unsure) {
                let released = connected(&mut wire, socket).call_or_end(&["UNLOCK", name, owner]);
                if released.is_some() {
                    unsure += 1;
                } else {
                    (wire, unsure) = (None, 0);
                }
            }
            before.drain(..before.len().saturating_sub(50));
        }
    }
}

/// The connection, or another one as soon as a daemon listens.
fn connected<'a>(wire: &'a mut Option<Wire>, socket: &Path) -> &'a mut Wire {
    let began = Instant::now();
    wire.get_or_insert_with(|| {
        loop {
            match Wire::connect_if_there(socket) {
                Ok(wire) => return wire,
                Err(error) => assert!(began.elapsed() < pace::limit(), "{error}"),
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    })
}

// Goal: what is released for a dead daemon is not in the hands of others by then.
// Method: clients of two daemons, which pass locks on to each other, compete for them; one daemon
// is killed again and again, at any moment of a release.
#[tokio::test]
#[ignore = "takes long; scripts/nightly runs it"]
async fn adoption_lets_no_two_in() {
    let mut chance = chance();
    let other = Daemon::with("lockd_contest", &["--ttl", "5s"]).await;
    let mut one = other.another(&["--ttl", "5s"]).await;
    let contest = Contest {
        prefix: "contended",
        inside: Default::default(),
        grants: AtomicU64::new(0),
        is_over: AtomicBool::new(false),
    };
    let contest = Arc::new(contest);
    let mut clients = Vec::new();
    for (number, daemon) in [&one, &other].into_iter().cycle().take(2 * CLIENTS).enumerate() {
        let (contest, socket) = (Arc::clone(&contest), daemon.socket.clone());
        let chance = StdRng::seed_from_u64(chance.random());
        let number = number as u64 + 1;
        clients.push(std::thread::spawn(move || contest.compete(&socket, number, chance)));
    }
    // They have the same socket, and would remove it.
    let (mut gone, mut adopted) = (Vec::new(), 0);
    for _ in 0..repeats(2 * KILLS) {
        tokio::time::sleep(Duration::from_millis(chance.random_range(500..2_000))).await;
        one.kill().await;
        let next = one.next_with(&["--ttl", "5s"]).await;
        gone.push(std::mem::replace(&mut one, next));
        adopted += info(&mut one.connect(), "locks_adopted");
    }
    contest.is_over.store(true, Ordering::SeqCst);
    for client in clients {
        client.join().expect("no two are let in");
    }
    let grants = contest.grants.load(Ordering::SeqCst);
    assert!(grants > 0);
    println!("{grants} grants, {} kills, {adopted} still adopted a moment later", gone.len());
}

// Goal: the journal does not grow with the number of grants.
// Method: very many of them, on a few names.
#[tokio::test]
#[ignore = "takes long; scripts/nightly runs it"]
async fn journal_stays_bounded() {
    const BATCH: usize = 250;
    let mut daemon = Daemon::with("lockd_bounded", &["--ttl", TTL]).await;
    let mut wire = daemon.connect();
    assert!(wire.done(&["SET", "kept", "one", "NX", "PX", PROMISE]).is_ok());
    let mut most = 0;
    for _ in 0..100_000 / BATCH {
        for number in 0..BATCH {
            let (name, owner) = (format!("k{}", number % 10), format!("{number}"));
            wire.send(&["SET", &name, &owner, "NX", "PX", LONG]);
            wire.send(&["UNLOCK", &name, &owner]);
        }
        for _ in 0..BATCH {
            assert!(wire.reply().is_ok());
            assert_eq!(wire.reply().number(), 1);
        }
        let sizes = daemon.journals().into_iter().map(|path| fs::metadata(path).map(|it| it.len()));
        most = sizes.flatten().max().unwrap_or_default().max(most);
    }
    assert!((1..=2 << 20).contains(&most), "{most}");
    println!("at most {most} bytes");
    assert_eq!(info(&mut wire, "locks_granted"), 100_001);
    let left = wire.done(&["HELD", "kept", "one"]).number();
    let next = daemon.after_kill().await;
    let mut wire = next.connect();
    assert_eq!(info(&mut wire, "locks_adopted"), u64::from(left > 0));
    assert_eq!(wire.done(&["UNLOCK", "kept", "one"]).number(), i64::from(left > 0));
}
