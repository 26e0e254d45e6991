//! Hosts of which no client was seen.

use bakery_lock::LockClient;
use scylla::statement::Consistency;
use scylla::statement::unprepared::Statement;
use support::pace;
use support::scene::built;

use crate::command::{Tool, replicas};

/// A moment in 2020, in milliseconds.
const LONG_AGO: i64 = 1_577_836_800_000;

// Goal: `remove --inactive-for` removes the hosts that were neither seen nor added since, and
// prints them; it asks first, unless it has `--yes`, and `--dry-run` shows what it would do.
// Method: hosts that were added long ago, one of which is in use, and a new one.
#[tokio::test]
async fn hosts_that_are_not_in_use_are_removed() {
    let tool = Tool::initialized("unseen").await;
    for (number, name) in [(101, "pod-a"), (102, "pod-b"), (103, "used")] {
        add_long_ago(&tool, name, number).await;
    }
    tool.done(&["add", "new"]).await;
    let _client = client(&tool, "used").await;
    wait_until_seen(&tool, "used").await;

    let remove = ["remove", "--inactive-for", "30d"];
    let shown = tool.done(&[&remove[..], &["--dry-run"]].concat()).await;
    let line = |name, number| {
        let added = "never seen, added 2020-01-01T00:00:00.000Z";
        format!("would remove host {name} with number {number}: {added}\n")
    };
    assert_eq!(shown, line("pod-a", 101) + &line("pod-b", 102));
    let answer = tool.run(&remove).await;
    assert_eq!((answer.code, answer.stdout.as_str()), (Some(2), ""), "{answer:?}");
    assert!(answer.stderr.contains("2 hosts would be removed: add --yes"), "{}", answer.stderr);
    assert_eq!(tool.done(&["list"]).await.lines().count(), 5, "something was removed unasked");

    let json = tool.done(&[&remove[..], &["--yes", "--json"]].concat()).await;
    let removed: Vec<serde_json::Value> = serde_json::from_str(&json).expect("it is JSON");
    let names: Vec<_> = removed.iter().map(|host| host["name"].as_str()).collect();
    assert_eq!(names, [Some("pod-a"), Some("pod-b")]);
    assert!(removed.iter().all(|host| host["removed_at"].is_string()), "{json}");
    let list = tool.done(&["list"]).await;
    assert_eq!(list, "     ID  Host\n    104  new\n    103  used\n");
    let none = tool.done(&[&remove[..], &["--yes"]].concat()).await;
    assert_eq!(none, "no host to remove: all were seen or added since\n");
}

// Goal: a registry of an earlier version works as before; `check` and `remove --inactive-for` name
// the missing column, and `init` adds it. From then on hosts are seen, and none counts as unseen
// for the time before.
// Method: drop the column, and use the registry before and after `init`.
#[tokio::test]
async fn registry_of_an_earlier_version_is_completed() {
    let tool = Tool::initialized("earlier").await;
    let drop = format!("ALTER TABLE \"{}\".lock_hosts DROP seen_at", tool.keyspace);
    support::session().await.query_unpaged(drop, ()).await.expect("the cluster answers");
    add_long_ago(&tool, "old", 101).await;
    assert_eq!(tool.done(&["add", "web1"]).await, "host web1 has number 102\n");
    let client = client(&tool, "old").await;
    let guard = client.lock("object").await.expect("the lock is free");
    guard.unlock().await.expect("the lock was held");
    let check = tool.done(&["doctor", "--host", "old"]).await;
    let warning = "warning  lock_hosts: column seen_at is missing, as an earlier version made the \
                   table; run `lock-hosts init`";
    assert!(check.contains(warning), "{check}");
    let remove = ["remove", "--inactive-for", "30d", "--yes"];
    let answer = tool.run(&remove).await;
    assert_eq!(answer.code, Some(1), "{answer:?}");
    assert!(answer.stderr.contains("run `lock-hosts init`"), "{}", answer.stderr);

    let added = format!("added column {}.lock_hosts.seen_at; now build", tool.keyspace);
    let made = tool.done(&["init", "--replication", &replicas().await]).await;
    assert!(made.contains(&added), "{made}");
    assert!(!tool.done(&["init"]).await.contains("added"), "it was added twice");
    let check = tool.done(&["doctor", "--host", "old"]).await;
    assert!(check.contains("ok       lock_hosts: as it should be\n"), "{check}");
    assert_eq!(tool.done(&remove).await, "no host to remove: all were seen or added since\n");
    let _client = self::client(&tool, "web1").await;
    wait_until_seen(&tool, "web1").await;
}

async fn client(tool: &Tool, host: &str) -> LockClient {
    let builder = LockClient::builder(support::session().await, tool.keyspace.clone());
    let builder = builder.host(host).acquire_timeout(pace::limit());
    built(builder).await
}

/// Waits for a client, which records in the background that its host is in use.
async fn wait_until_seen(tool: &Tool, host: &str) {
    pace::until("a host is seen", async || {
        let json = tool.done(&["list", "--json"]).await;
        let hosts: Vec<serde_json::Value> = serde_json::from_str(&json).expect("it is JSON");
        let found = hosts.iter().find(|found| found["name"] == host).expect("it is registered");
        found["seen_at"].is_string()
    })
    .await;
}

/// Adds a host with the rows that `add` would have written years ago.
async fn add_long_ago(tool: &Tool, name: &str, number: i32) {
    let table = format!("\"{}\".lock_hosts", tool.keyspace);
    let columns = "registry, host_name, number, added_at";
    let values = format!("'hosts', '{name}', {number}, {LONG_AGO}");
    let stamp = LONG_AGO * 1_000;
    let insert = format!("INSERT INTO {table} ({columns}) VALUES ({values})");
    write(&format!("{insert} USING TIMESTAMP {stamp}")).await;
    write(&format!(
        "UPDATE {table} USING TIMESTAMP {number} SET next = {number} WHERE registry = 'hosts'"
    ))
    .await;
}

/// Writes to all replicas; again, if one is too busy to answer in time.
async fn write(statement: &str) {
    let session = support::session().await;
    let mut statement = Statement::new(statement);
    statement.set_consistency(Consistency::All);
    pace::until("all replicas answer", async || {
        session.query_unpaged(statement.clone(), ()).await.is_ok()
    })
    .await;
}
