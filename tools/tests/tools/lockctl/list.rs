//! `list`.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;
use support::pace;

use super::{client, pid, s};
use crate::command::Tool;

/// The TTL of all locks: until the test ends, no renewed lock can become overdue, and the lock that
/// is not renewed does not expire.
const LONG: Duration = s(120);

// Goal: all locks in use are listed, or those that are asked for, and no other.
// Method: two locks of one client, one of them overdue; a free one with a fence.
#[tokio::test]
async fn locks_in_use_are_listed() {
    let tool = Tool::initialized("list").await;
    let none = tool.lockctl(&["list"]).await;
    assert_eq!((none.code, none.stdout.as_str()), (Some(0), ""));
    assert_eq!(none.stderr, "no such lock is in use\n");

    let holder = client(&tool, "web1").await;
    let free = holder.lock("free").await.expect("it is free");
    free.fencing_token().await.expect("it is held");
    free.unlock().await.expect("it is held");
    let once = holder.request("reports").shared().ttl(LONG).auto_renew(false);
    let _once = once.acquire().await.expect("it is free");
    pace::until("it is overdue", async || {
        let all = holder.contenders("reports").await.expect("the cluster answers");
        all.iter().any(|contender| contender.overdue.is_some())
    })
    .await;
    let first = holder.request("users::a\u{1b}[2J").ttl(LONG);
    let _first = first.acquire().await.expect("it is free");
    let second = client(&tool, "web2").await.request("reports").shared().ttl(LONG);
    let _second = second.acquire().await.expect("readers share it");

    let names = async |arguments: &[&str]| -> BTreeSet<String> {
        let answer = tool.lockctl(&[&["list", "--json"], arguments].concat()).await;
        assert_eq!((answer.code, answer.stderr.as_str()), (Some(0), ""), "{answer:?}");
        let name = |line: &str| {
            let lock: Value = serde_json::from_str(line).expect("each line is JSON");
            assert!(lock["contenders"].as_array().is_some_and(|all| !all.is_empty()), "{lock}");
            lock["name"].as_str().expect("it is text").to_owned()
        };
        answer.stdout.lines().map(name).collect()
    };
    let (users, reports) = ("users::a\u{1b}[2J".to_owned(), "reports".to_owned());
    // First what must be seen before the rows of the overdue one expire.
    let (list, overdue) = tokio::join!(tool.lockctl(&["list"]), names(&["--overdue"]));
    assert_eq!(overdue, [reports.clone()].into());
    assert_eq!((list.code, list.stderr.as_str()), (Some(0), ""), "{list:?}");
    let lines: BTreeSet<_> = list.stdout.lines().collect();
    let held = format!("users::a\\u{{1b}}[2J: held by web1 pid {}", pid());
    assert!(lines.contains(held.as_str()), "{lines:?}");
    let shared = format!("reports: held by web1 pid {0}, web2 pid {0}", pid());
    assert!(lines.contains(shared.as_str()), "{lines:?}");
    assert_eq!(lines.iter().filter(|line| line.starts_with("  warning: web1 pid ")).count(), 1);
    assert_eq!(lines.len(), 3, "{lines:?}");

    assert_eq!(names(&[]).await, [users.clone(), reports].into());
    assert_eq!(names(&["--prefix", "users::"]).await, [users].into());
    assert_eq!(names(&["--prefix", "x"]).await, [].into());
}
