//! Tests of this binary, started as programs of their own: a lock is for several processes.
//!
//! A test that can be a program looks for its order in [`ORDER`]; run as a plain test it works by
//! itself. It talks to the process that started it in lines behind [`MARK`], because the test
//! harness writes to the same stream, and a line tells it to begin.

use std::env;
use std::net::SocketAddr;
use std::process::Stdio;

use rustix::process::{Pid, Signal};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::pace;

/// The environment variable with a program's order.
const ORDER: &str = "BAKERY_LOCK_TEST_ORDER";

/// The environment variable by which a program finds the same cluster.
const NODES: &str = "BAKERY_LOCK_TEST_NODES";

/// Goes before each line that a program says.
const MARK: &str = "@ ";

/// The order of this process, if it is a program.
pub fn order() -> Option<String> {
    env::var(ORDER).ok()
}

/// Tells something to the process that started this program.
pub fn say(line: &str) {
    println!("{MARK}{line}");
}

/// Waits for a line from the process that started this program: the first one tells it to begin.
pub fn wait_for_word() -> String {
    let mut line = String::new();
    let read = std::io::stdin().read_line(&mut line);
    assert!(read.expect("the other side is there") > 0, "the other side is gone");
    line.trim_end().to_owned()
}

/// A program that runs. It is killed when this value is dropped.
pub struct Program {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Program {
    /// Starts a test of this binary, named with its path, with an order, on a cluster's nodes.
    pub fn start(test: &str, order: &str, nodes: &[SocketAddr]) -> Self {
        let nodes: Vec<_> = nodes.iter().map(ToString::to_string).collect();
        let (slowness, handed_on) = pace::handed_on();
        let mut child = Command::new(env::current_exe().expect("this binary has a path"))
            .args(["--exact", test, "--nocapture", "--test-threads=1"])
            .env(ORDER, order)
            .env(NODES, nodes.join(","))
            .env(slowness, handed_on)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("this binary can be started");
        let stdout = child.stdout.take().expect("it is piped");
        Program { child, lines: BufReader::new(stdout).lines() }
    }

    /// The next thing that the program says; `None` when it has ended.
    pub async fn next(&mut self) -> Option<String> {
        let next = async {
            while let Some(line) = self.lines.next_line().await.expect("the output is text") {
                if let Some((_, said)) = line.split_once(MARK) {
                    return Some(said.to_owned());
                }
            }
            None
        };
        pace::within_limit("the next line of a program", next).await
    }

    /// Waits until the program says `expected`, and for nothing else.
    pub async fn expect(&mut self, expected: &str) {
        assert_eq!(self.next().await.as_deref(), Some(expected), "from a program");
    }

    /// Tells a program that waits for it to begin, or to come to an end.
    pub async fn go_on(&mut self) {
        self.tell("go on").await;
    }

    /// Tells a program that waits for it something.
    pub async fn tell(&mut self, word: &str) {
        let stdin = self.child.stdin.as_mut().expect("it is piped");
        let line = format!("{word}\n");
        stdin.write_all(line.as_bytes()).await.expect("the program listens");
    }

    /// Sends the program a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = self.child.id().expect("it was not waited for yet");
        let pid =
            i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a pid is no large number");
        rustix::process::kill_process(pid, signal).expect("it is our child");
    }

    /// Takes what the program still says, and asserts that it ends well.
    pub async fn finish(mut self) -> Vec<String> {
        let mut said = Vec::new();
        while let Some(line) = self.next().await {
            said.push(line);
        }
        let status = self.child.wait().await.expect("it is our child");
        assert!(status.success(), "a program failed: {status}");
        said
    }

    /// Kills the program with `SIGKILL`, and returns what it still had said.
    pub async fn kill(mut self) -> Vec<String> {
        self.child.kill().await.expect("it is our child");
        let mut said = Vec::new();
        while let Some(line) = self.next().await {
            said.push(line);
        }
        said
    }
}
