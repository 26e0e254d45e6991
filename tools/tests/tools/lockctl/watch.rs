//! `watch`.

use rustix::process::Signal;
use serde_json::Value;
use tokio::process::Child;

use super::client;
use crate::command::{Tool, finish, line, send};

const NAME: &str = "users::snap";

/// The labels of the contenders in the next change that a program prints.
async fn next(watch: &mut Child) -> Vec<String> {
    let line = line(watch.stdout.as_mut()).await;
    let seen: Value = serde_json::from_str(&line).expect("each line is JSON");
    let contenders = seen["contenders"].as_array().expect("it is a list");
    contenders.iter().map(|one| one["label"].as_str().unwrap_or("").to_owned()).collect()
}

// Goal: without a terminal each change is printed once, and nothing else; a signal ends it.
// Method: watch a lock while it is taken and given back.
#[tokio::test]
async fn changes_are_printed_once() {
    let tool = Tool::initialized("watch").await;
    let holder = client(&tool, "web1").await;
    let arguments = ["watch", NAME, "--json", "--interval", "100ms"];
    let mut watch = tool.lockctl_command(&arguments).spawn().expect("the tool starts");
    assert_eq!(next(&mut watch).await, [""; 0]);
    for label in ["first", "second"] {
        let guard = holder.request(NAME).label(label).acquire().await.expect("it is free");
        // The state may be waiting at first, which is a change of its own.
        while next(&mut watch).await != [label] {}
        guard.unlock().await.expect("it is held");
        while !next(&mut watch).await.is_empty() {}
    }
    send(&watch, Signal::TERM);
    assert_eq!(finish(watch).await.code, Some(143));
}
