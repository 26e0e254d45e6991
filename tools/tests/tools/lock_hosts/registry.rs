//! `add`, `remove` and `list` on a cluster.

use crate::command::{Tool, finish};

#[tokio::test]
async fn hosts_keep_their_numbers() {
    let tool = Tool::initialized("hosts").await;
    let added = tool.done(&["add", "web2", "web1"]).await;
    assert_eq!(added, "host web2 has number 1\nhost web1 has number 2\n");
    assert_eq!(tool.done(&["list"]).await, "     ID  Host\n      2  web1\n      1  web2\n");

    assert_eq!(tool.done(&["add", "web1"]).await, "host web1 has number 2\n");
    let removed = tool.done(&["remove", "web1"]).await;
    assert_eq!(removed, "host web1 is removed, its number 2 is kept\n");
    assert_eq!(tool.done(&["list"]).await, "     ID  Host\n      1  web2\n");
    let all = tool.done(&["list", "--all"]).await;
    assert!(all.contains("      2  web1  (removed 2"), "{all}");

    assert_eq!(tool.done(&["add", "web3"]).await, "host web3 has number 3\n");
    assert_eq!(tool.done(&["add", "web1"]).await, "host web1 has number 2\n");
    let list = "     ID  Host\n      2  web1\n      1  web2\n      3  web3\n";
    assert_eq!(tool.done(&["list", "--all"]).await, list);
}

#[tokio::test]
async fn list_can_be_json() {
    let tool = Tool::initialized("json").await;
    assert_eq!(tool.done(&["list", "--json"]).await, "[]\n");
    tool.done(&["add", "a", "größe"]).await;
    tool.done(&["remove", "a"]).await;
    let hosts = async |arguments: &[&str]| -> Vec<serde_json::Value> {
        let text = tool.done(arguments).await;
        serde_json::from_str(&text).expect("the tool prints JSON")
    };
    let listed = hosts(&["list", "--json"]).await;
    assert_eq!(listed.len(), 1);
    assert_eq!((&listed[0]["name"], &listed[0]["number"]), (&"größe".into(), &2.into()));
    assert!(listed[0]["removed_at"].is_null() && listed[0]["added_at"].is_string());
    let all = hosts(&["list", "--json", "--all"]).await;
    assert_eq!(all.len(), 2);
    assert!(all[0]["removed_at"].as_str().is_some_and(|time| time.ends_with('Z')), "{all:?}");
}

#[tokio::test]
async fn empty_registry_causes_a_warning() {
    let tool = Tool::initialized("empty").await;
    let answer = tool.run(&["list"]).await;
    assert_eq!((answer.code, answer.stdout.as_str()), (Some(0), ""));
    assert!(answer.stderr.starts_with("warning: no host is registered"), "{}", answer.stderr);
}

#[tokio::test]
async fn this_host_is_added_unless_others_are_named() {
    let tool = Tool::initialized("this").await;
    let host = bakery_lock::hosts::this_host();
    assert_eq!(tool.done(&["add"]).await, format!("host {host} has number 1\n"));
}

#[tokio::test]
async fn unknown_hosts_are_reported_and_the_others_removed() {
    let tool = Tool::initialized("unknown").await;
    tool.done(&["add", "web1"]).await;
    let answer = tool.run(&["remove", "ghost1", "web1", "ghost2"]).await;
    assert_eq!(answer.code, Some(1), "{answer:?}");
    assert!(answer.stderr.contains("never registered: ghost1, ghost2"), "{}", answer.stderr);
    assert_eq!(tool.run(&["list"]).await.stdout, "");
}

#[tokio::test]
async fn closed_pipe_is_not_an_error() {
    let tool = Tool::initialized("pipe").await;
    tool.done(&["add", "web1"]).await;
    let mut child = tool.start(&["list"]);
    drop(child.stdout.take());
    let answer = finish(child).await;
    assert_eq!((answer.code, answer.stderr.as_str()), (Some(0), ""));
}
