//! `status`.

use std::net::TcpListener;

use serde_json::Value;

use crate::command::{Answer, Tool, lockctl};

// Goal: a host that gets locks is ready; one that was removed or never added is not, with the
// command that adds it; the exit code says so too. Looking writes nothing.
// Method: ask for a host before it is added, after that, and once it is removed.
#[tokio::test]
async fn host_is_ready_while_it_is_registered() {
    let tool = Tool::initialized("status").await;
    let unknown = tool.lockctl(&["status", "--host", "web1"]).await;
    let add = format!("run `lock-hosts --keyspace {} add web1`", tool.keyspace);
    let told = format!("NOLOCK\nerror    host web1: not registered; {add}\n");
    assert_eq!(unknown, no(&told));
    tool.done(&["add", "web1"]).await;
    let before = tool.done(&["list", "--json"]).await;
    let ready = tool.lockctl(&["status", "--host", "web1"]).await;
    assert_eq!((ready.code, ready.stdout.as_str()), (Some(0), "LOCKREADY\n"), "{ready:?}");
    let told = tool.lockctl(&["status", "--host", "web1", "--json"]).await;
    let told: Value = serde_json::from_str(&told.stdout).expect("the tool prints JSON");
    let expected = serde_json::json!({ "status": "LOCKREADY", "host": "web1", "reasons": [] });
    assert_eq!(told, expected);
    assert_eq!(tool.done(&["list", "--json"]).await, before, "the host counts as seen");
    tool.done(&["remove", "web1"]).await;
    let removed = tool.lockctl(&["status", "--host", "web1"]).await;
    assert_eq!(removed, no(&format!("NOLOCK\nerror    host web1: it was removed; {add}\n")));
    let told = tool.lockctl(&["status", "--host", "web1", "--json"]).await;
    assert_eq!(told.code, Some(1), "{told:?}");
    let told: Value = serde_json::from_str(&told.stdout).expect("the tool prints JSON");
    assert_eq!(
        (&told["status"], &told["reasons"][0]["severity"]),
        (&"NOLOCK".into(), &"error".into())
    );
}

fn no(stdout: &str) -> Answer {
    Answer { code: Some(1), stdout: stdout.to_owned(), stderr: String::new() }
}

// Goal: a database that can't be reached is a reason like any other, not another exit code.
#[test]
fn without_a_database_there_is_no_lock() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let node = listener.local_addr().expect("a listener has an address").to_string();
    drop(listener);
    let answer: Answer =
        lockctl(&["--nodes", &node, "status"]).output().expect("the tool starts").into();
    assert_eq!((answer.code, answer.stderr.as_str()), (Some(1), ""), "{answer:?}");
    let told = "NOLOCK\nerror    connection: no node can be reached";
    assert!(answer.stdout.starts_with(told), "{answer:?}");
}
