//! `watch`.

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::task::spawn_blocking;

use super::client;
use crate::command::Tool;

const NAME: &str = "users::snap";

/// The changes that a program prints, an object in a line.
struct Changes(Option<Lines<BufReader<ChildStdout>>>);

impl Changes {
    fn of(watch: &mut Child) -> Self {
        let stdout = watch.stdout.take().expect("it is a pipe");
        Changes(Some(BufReader::new(stdout).lines()))
    }

    /// The labels of the contenders in the next change.
    async fn next(&mut self) -> Vec<String> {
        let mut lines = self.0.take().expect("one change is awaited at a time");
        let (line, lines) = spawn_blocking(move || (lines.next(), lines)).await.expect("it reads");
        self.0 = Some(lines);
        let line = line.expect("it goes on").expect("the pipe is open");
        let seen: Value = serde_json::from_str(&line).expect("each line is JSON");
        let contenders = seen["contenders"].as_array().expect("it is a list");
        contenders.iter().map(|one| one["label"].as_str().unwrap_or("").to_owned()).collect()
    }
}

// Goal: without a terminal each change is printed once, and nothing else; a signal ends it.
// Method: watch a lock while it is taken and given back.
#[tokio::test]
async fn changes_are_printed_once() {
    let tool = Tool::initialized("watch").await;
    let holder = client(&tool, "web1").await;
    let arguments = ["watch", NAME, "--json", "--interval", "100ms"];
    let mut watch = tool.lockctl_command(&arguments).spawn().expect("the tool starts");
    let mut changes = Changes::of(&mut watch);
    assert_eq!(changes.next().await, [""; 0]);
    for label in ["first", "second"] {
        let guard = holder.request(NAME).label(label).acquire().await.expect("it is free");
        // The state may be waiting at first, which is a change of its own.
        while changes.next().await != [label] {}
        guard.unlock().await.expect("it is held");
        while !changes.next().await.is_empty() {}
    }
    kill_process(Pid::from_child(&watch), Signal::TERM).expect("it runs");
    let status = watch.wait().expect("it was started here");
    assert_eq!(status.code(), Some(143));
}
