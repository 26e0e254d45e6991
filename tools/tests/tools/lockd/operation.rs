//! Passwords, limits, and clients that behave badly.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;

use super::{Daemon, LONG};
use crate::command::{Answer, Tool, finish};

pub(super) fn users_file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().expect("there is room");
    file.write_all(text.as_bytes()).expect("there is room");
    file
}

// Goal: users have passwords, and names of their own.
// Method: two users take the same name.
#[tokio::test]
async fn users_have_names_of_their_own() {
    let file = users_file("# name password prefix\ndefault secret\nshop else shop::\n");
    let path = file.path().to_str().expect("it is text");
    let daemon = Daemon::with("lockd_users", &["--users", path]).await;
    let (mut one, mut other) = (daemon.connect(), daemon.connect());
    assert!(one.call(&["LOCK", "a", "NOWAIT"]).error().starts_with("NOAUTH "));
    assert!(one.call(&["AUTH", "wrong"]).error().starts_with("WRONGPASS "));
    assert!(one.done(&["AUTH", "secret"]).is_ok());
    other.done(&["HELLO", "3", "AUTH", "shop", "else"]);
    assert!(!one.done(&["LOCK", "a", "NOWAIT"]).is_nil());
    assert!(!other.done(&["LOCK", "a", "NOWAIT"]).is_nil());
    assert!(one.done(&["LOCK", "shop::a", "NOWAIT"]).is_nil());
    assert!(one.done(&["RESET"]).text() == "RESET" && !one.call(&["PING"]).error().is_empty());
}

pub(super) async fn refused(tool: &Tool, options: &[&str]) -> Answer {
    let socket = std::env::temp_dir().join(format!("{}.sock", support::unique("refused")));
    let mut command = tool.lockd_command(options);
    command.arg("--socket").arg(socket).args(["--host", "web1"]);
    finish(command.spawn().expect("the daemon starts")).await
}

// Goal: what would let strangers in is refused before anything is connected to.
// Method: an address without TLS or passwords, and a file that others can read.
#[tokio::test]
async fn open_doors_are_refused() {
    let tool = Tool::new("lockd_open").await;
    let answer = refused(&tool, &["--listen", "0.0.0.0:0"]).await;
    assert_eq!(answer.code, Some(2), "{answer:?}");
    assert!(answer.stderr.contains("--tls-server-cert"), "{answer:?}");
    let file = users_file("default secret\n");
    std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o644))
        .expect("it is ours");
    let path = file.path().to_str().expect("it is text");
    let answer = refused(&tool, &["--users", path]).await;
    assert!(answer.code == Some(2) && answer.stderr.contains("mode be 600"), "{answer:?}");
}

// Goal: a client gets no more than it may, and what is too much ends its connection alone.
// Method: one connection too many, one lock too many, a request that is too long.
#[tokio::test]
async fn limits_are_kept() {
    let options = ["--max-connections", "2", "--max-locks", "1"];
    let daemon = Daemon::with("lockd_limits", &options).await;
    let mut one = daemon.connect();
    assert!(!one.done(&["LOCK", "a", "NOWAIT"]).is_nil());
    assert!(one.call(&["LOCK", "b", "NOWAIT"]).error().starts_with("LIMIT "));
    let mut other = daemon.connect();
    other.write(b"*1\r\n$1000000000\r\n");
    assert!(other.reply().error().starts_with("ERR Protocol error"));
    assert_eq!(other.reply_or_end(), None, "it is closed");
    let (mut third, mut fourth) = (daemon.connect(), daemon.connect());
    third.done(&["PING"]);
    assert!(fourth.reply().error().starts_with("LIMIT "));
    assert_eq!(one.done(&["PING"]).text(), "PONG");
}

// Goal: one that does not read its answers harms no other.
// Method: a pipeline of many commands whose answers are not read.
#[tokio::test]
async fn slow_reader_harms_no_other() {
    let daemon = Daemon::new("lockd_slow").await;
    let mut slow = daemon.connect();
    slow.write_until_blocked(&b"INFO\r\n".repeat(1_000));
    let mut other = daemon.connect();
    assert!(other.done(&["SET", "k", "one", "NX", "PX", LONG]).is_ok());
    assert_eq!(other.done(&["UNLOCK", "k", "one"]).number(), 1);
}
