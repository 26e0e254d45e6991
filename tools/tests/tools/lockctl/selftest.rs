//! `selftest`.

use std::collections::BTreeSet;
use std::fs;

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use support::pace;
use tokio::process::Child;
use tokio::time::sleep;

use super::{in_use, json, ms, until_in_use};
use crate::command::{Tool, finish, id, paced, send};

async fn tool(tag: &str) -> Tool {
    let tool = Tool::initialized(tag).await;
    tool.done(&["add", "web1"]).await;
    tool
}

/// Starts `selftest`, and waits until its processes take locks.
async fn start(tool: &Tool, arguments: &[&str]) -> (Child, Vec<Pid>) {
    let arguments = [&["selftest", "--host", "web1"], arguments].concat();
    let mut child = tool.lockctl_command(&arguments).spawn().expect("the tool starts");
    until_in_use(tool, "lockctl-selftest::", &mut child).await;
    let workers = workers(id(&child));
    (child, workers)
}

/// The processes that a process has started.
fn workers(parent: u32) -> Vec<Pid> {
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
    let children = children.expect("the kernel lists children");
    let pid = |word: &str| Pid::from_raw(word.parse().expect("it is a number"));
    children.split_whitespace().filter_map(pid).collect()
}

/// Waits until processes that are no children of this one are gone.
async fn gone(pids: &[Pid]) {
    let what = format!("{pids:?} are gone");
    pace::until(&what, async || pids.iter().all(|pid| test_kill_process(*pid).is_err())).await;
}

// Goal: on a cluster that works no promise is broken, all holds and tokens are compared, and
// neither a row nor a process is left.
#[tokio::test]
async fn cluster_that_works_passes() {
    let tool = tool("selftest").await;
    let time = format!("{:?}", paced(3));
    let arguments = [
        "selftest",
        "--host",
        "web1",
        "--for",
        &time,
        "--processes",
        "3",
        "--names",
        "2",
        "--json",
    ];
    let told = json_of(&tool, &arguments).await;
    let granted = told["tries"]["granted"].as_u64().expect("it is a number");
    assert!(granted > 0, "{told}");
    assert_eq!(told["compared"]["holds"], granted, "{told}");
    assert_eq!(told["compared"]["tokens"], granted, "{told}");
    assert_eq!(told["compared"]["line"], granted, "{told}");
    assert_eq!(
        (&told["violations"], &told["failures"]),
        (&serde_json::json!([]), &serde_json::json!([]))
    );
    assert_eq!(in_use(&tool).await, BTreeSet::new());
}

// Goal: the same for processes that take turns of each other.
#[tokio::test]
async fn peers_pass() {
    let tool = tool("verify_peers").await;
    let time = format!("{:?}", paced(2));
    let arguments = [
        "selftest",
        "--host",
        "web1",
        "--for",
        &time,
        "--processes",
        "3",
        "--names",
        "1",
        "--peers",
        "--json",
    ];
    let told = json_of(&tool, &arguments).await;
    assert_eq!(told["violations"], serde_json::json!([]), "{told}");
    assert_eq!(told["compared"]["holds"], told["tries"]["granted"], "{told}");
}

/// What the tool prints, without its note about the run.
async fn json_of(tool: &Tool, arguments: &[&str]) -> serde_json::Value {
    let mut answer = tool.lockctl(arguments).await;
    assert!(answer.stderr.starts_with("lockctl: 3 processes take locks"), "{answer:?}");
    answer.stderr.clear();
    json(&answer)
}

// Goal: a process that dies is a failure, which is told, and the others continue; its rows, which
// expire by themselves, are none.
#[tokio::test]
async fn process_that_dies_is_told() {
    let tool = tool("verify_death").await;
    let time = format!("{:?}", paced(5));
    let (child, workers) = start(&tool, &["--for", &time, "--ttl", "5s", "--processes", "2"]).await;
    kill_process(workers[1], Signal::KILL).expect("it runs");
    let answer = finish(child).await;
    assert_eq!(answer.code, Some(1), "{answer:?}");
    let told = format!("failure  process 2 (pid {}): it was ended by signal 9\n", workers[1]);
    assert!(answer.stdout.contains(&told), "{answer:?}");
    assert!(answer.stdout.ends_with("\nno violation\n"), "{answer:?}");
    gone(&workers).await;
}

// Goal: a signal ends a run with a report of what was done, and leaves neither a row nor a process.
#[tokio::test]
async fn signal_ends_it_with_a_report() {
    let tool = tool("verify_signal").await;
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let (child, workers) = start(&tool, &["--processes", "2"]).await;
        assert_eq!(workers.len(), 2);
        sleep(ms(500)).await;
        send(&child, signal);
        let answer = finish(child).await;
        assert_eq!(answer.code, Some(code), "{answer:?}");
        let verdict = "\ninterrupted; no violation until then\n";
        assert!(answer.stdout.ends_with(verdict), "{answer:?}");
        gone(&workers).await;
        assert_eq!(in_use(&tool).await, BTreeSet::new());
    }
}

// Goal: if the tool is killed, its processes end by themselves, and leave no row.
#[tokio::test]
async fn no_process_outlives_the_tool() {
    let tool = tool("verify_killed").await;
    let (mut child, workers) = start(&tool, &["--processes", "2"]).await;
    child.kill().await.expect("it runs");
    gone(&workers).await;
    assert_eq!(in_use(&tool).await, BTreeSet::new());
}
