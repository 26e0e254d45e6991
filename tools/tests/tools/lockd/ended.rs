//! The end of a daemon, and its restart.

use std::time::Duration;

use rustix::process::Signal;

use super::{Daemon, LONG, until_taken};

// Goal: a planned restart loses no lock: the new daemon takes the socket over, and the old one
// serves those that are connected until what it holds has ended.
// Method: a lock with a time, and one that is bound to its connection.
#[tokio::test]
async fn next_daemon_takes_the_socket_over() {
    let mut old = Daemon::new("lockd_restart").await;
    let mut client = old.connect();
    assert!(client.done(&["SET", "timed", "one", "NX", "PX", LONG]).is_ok());
    client.done(&["LOCK", "bound", "OWNER", "one"]);
    let new = old.next().await;
    old.send(Signal::TERM);
    let mut next = new.connect();
    for name in ["timed", "bound"] {
        assert!(next.done(&["LOCK", name, "NOWAIT"]).is_nil(), "{name}");
    }
    let refused = client.call(&["LOCK", "more"]).error();
    assert!(refused.starts_with("NOLOCK "), "{refused}");
    for name in ["timed", "bound"] {
        assert_eq!(client.done(&["UNLOCK", name, "one"]).number(), 1, "{name}");
    }
    assert_eq!(old.ended().await, Some(0), "it holds nothing more");
    for name in ["timed", "bound"] {
        assert!(!next.done(&["LOCK", name, "WAIT", LONG]).is_nil(), "{name}");
    }
}

// Goal: the end of a daemon breaks no promise, also if it does not wait for it.
// Method: TERM without time to drain, and a measurement of when the lock is free.
#[tokio::test]
async fn promise_outlives_the_end() {
    let promise = Duration::from_secs(6);
    let mut daemon = Daemon::with("lockd_ended", &["--drain", "0", "--ttl", "5s"]).await;
    let mut client = daemon.connect();
    let ttl = promise.as_millis().to_string();
    assert!(client.done(&["SET", "k", "one", "NX", "PX", &ttl]).is_ok());
    let granted = std::time::Instant::now();
    daemon.send(Signal::TERM);
    assert_eq!(daemon.ended().await, Some(0));
    let other = daemon.another(&[]).await;
    until_taken(&mut other.connect(), &["SET", "k", "two", "NX", "PX", LONG]);
    let held_for = granted.elapsed();
    assert!(held_for + Duration::from_millis(500) >= promise, "{held_for:?}");
}

// Goal: a lock without an end is free when its process is gone.
// Method: another process takes it over the socket, and is killed.
#[tokio::test]
async fn lock_without_an_end_ends_with_its_process() {
    let daemon = Daemon::new("lockd_process").await;
    let script = "import socket, sys, time\n\
                  s = socket.socket(socket.AF_UNIX)\n\
                  s.connect(sys.argv[1])\n\
                  s.sendall(b'SET k child NX\\r\\n')\n\
                  print(s.recv(100).decode().strip(), flush=True)\n\
                  s.close()\n\
                  time.sleep(1000)";
    let mut child = tokio::process::Command::new("python3")
        .args(["-c", script])
        .arg(&daemon.socket)
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("python3 starts");
    assert_eq!(crate::command::line(child.stdout.as_mut()).await, "+OK");
    let mut wire = daemon.connect();
    assert!(wire.done(&["SET", "k", "two", "NX", "PX", LONG]).is_nil(), "the connection is closed");
    child.kill().await.expect("it runs");
    until_taken(&mut wire, &["SET", "k", "two", "NX", "PX", LONG]);
}
