//! How `run` and `elect` start a command, and what they say if they can't.

use std::process::{Command, Stdio};

use rustix::process::{Pid, Resource, Rlimit, prlimit};

use super::client;
use super::run::{observer, prepared, until_there_are};
use crate::command::{Answer, finish, id, lockctl, words};

const NAME: &str = "start";

// Goal: the command inherits no descriptor of lockctl or its guardian.
// Method: a shell lists its own, alone and under each command.
#[tokio::test]
async fn command_has_no_more_descriptors_than_alone() {
    const LIST: &str = "cd /proc/self/fd && echo *";
    let tool = prepared("descriptors").await;
    let mut alone = Command::new("sh");
    alone.args(["-c", LIST]).stdin(Stdio::null()).stderr(Stdio::piped());
    let alone = Answer::from(alone.output().expect("a shell starts"));
    for command in ["run", "elect"] {
        let answer = tool.lockctl(&[command, NAME, "--", "sh", "-c", LIST]).await;
        assert_eq!(answer, alone, "{command}");
    }
}

// Goal: where no process can be started, the error says what failed, and the exit code is not one
// of a command.
// Method: no more descriptors for a `lockctl` that waits for its lock.
#[tokio::test]
async fn start_that_fails_is_named() {
    let tool = prepared("start").await;
    let guard = client(&tool, "holder").await.lock(NAME).await.expect("it is free");
    let mut waiting = tool.lockctl_command(&["run", NAME, "--", "echo", "ran"]);
    let waiting = waiting.spawn().expect("the tool starts");
    until_there_are(2, &observer(&tool).await, NAME).await;
    let pid = i32::try_from(id(&waiting)).ok().and_then(Pid::from_raw);
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    prlimit(pid, Resource::Nofile, none).expect("it is a child");
    guard.unlock().await.expect("it is held");
    let answer = finish(waiting).await;
    assert_eq!((answer.code, answer.stdout.as_str()), (Some(125), ""), "{answer:?}");
    let said = "lockctl: the command's guardian can't be started: too many open files";
    assert!(answer.stderr.contains(said), "{}", answer.stderr);
}

#[test]
fn runtime_that_can_not_be_started_is_named() {
    let program = &words(&lockctl(&[]))[0];
    for (arguments, code) in [(&["list"][..], 1), (&["run", "a", "true"], 125)] {
        let mut limited = Command::new("sh");
        limited.args(["-c", "ulimit -n 4; exec \"$@\"", "sh"]).arg(program).args(arguments);
        let answer = Answer::from(limited.output().expect("a shell starts"));
        assert_eq!(answer.code, Some(code), "{answer:?}");
        let said = "lockctl: the runtime can't be started: too many open files";
        assert!(answer.stderr.contains(said), "{}", answer.stderr);
    }
}

// Goal: a lock's name that is as long as names may be reaches the command.
#[tokio::test]
async fn longest_name_reaches_the_command() {
    let tool = prepared("longest").await;
    let longest = "x".repeat(65_535);
    let count = "printf %s \"$LOCK_NAME\" | wc -c";
    let answer = tool.lockctl(&["run", &longest, "--", "sh", "-c", count]).await;
    assert_eq!((answer.code, answer.stdout.trim()), (Some(0), "65535"), "{answer:?}");
}
