//! `run` at a terminal, typed into a shell with job control.

use std::ffi::OsString;
use std::time::Duration;

use pty_process::{Command, OwnedReadPty, OwnedWritePty, Size};
use support::pace;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Child;

use super::run::{NAME, prepared};
use crate::command::{Tool, paced, variables, with_default_signals, words};

/// What the shell prints when it waits for a line.
pub(super) const PROMPT: &str = "next> ";

pub(super) const INTERRUPT: &str = "\x03";
pub(super) const QUIT: &str = "\x1c";
pub(super) const SUSPEND: &str = "\x1a";

/// An interactive shell in a terminal.
pub(super) struct Shell {
    read: OwnedReadPty,
    write: OwnedWritePty,
    /// What it printed and no test has looked for yet.
    printed: String,
    _shell: Child,
}

impl Shell {
    pub(super) async fn start() -> Self {
        let (pty, pts) = pty_process::open().expect("Linux has terminals");
        // No line is broken.
        pty.resize(Size::new(50, 2_000)).expect("it is open");
        let shell = tokio::process::Command::from(with_default_signals("bash"));
        let mut command = Command::from(shell).args(["--norc", "--noprofile", "-i"]);
        for variable in variables() {
            command = command.env_remove(variable);
        }
        let command = command.env("PS1", PROMPT).env("TERM", "dumb").kill_on_drop(true);
        let shell = command.spawn(pts).expect("bash starts");
        let (read, write) = pty.into_split();
        let mut shell = Shell { read, write, printed: String::new(), _shell: shell };
        shell.until(PROMPT).await;
        // What is typed is not printed, so all that is printed is output.
        shell.line("stty -echo").await;
        shell.until(PROMPT).await;
        shell
    }

    pub(super) async fn keys(&mut self, keys: &str) {
        self.write.write_all(keys.as_bytes()).await.expect("it is open");
    }

    pub(super) async fn line(&mut self, line: &str) {
        self.keys(&format!("{line}\n")).await;
    }

    /// Waits until it has printed this, and tells what it printed before.
    pub(super) async fn until(&mut self, text: &str) -> String {
        let what = format!("{text:?} in the terminal");
        let read = async {
            loop {
                if let Some((before, after)) = self.printed.split_once(text) {
                    let before = before.to_owned();
                    self.printed = after.to_owned();
                    return before;
                }
                let mut bytes = [0; 512];
                let read = self.read.read(&mut bytes).await.expect("it is open");
                let new = String::from_utf8_lossy(&bytes[..read]);
                print!("{new}");
                self.printed += &new;
            }
        };
        pace::within_limit(&what, read).await
    }

    /// Waits until its list of jobs has this.
    async fn until_job(&mut self, state: &str) {
        let what = format!("a job that is {state}");
        let lists = async {
            loop {
                self.line("jobs; echo 'all jobs'").await;
                if self.until("all jobs").await.contains(state) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        pace::within_limit(&what, lists).await;
        self.until(PROMPT).await;
    }

    /// Waits for a script to print its process id as `pid=7.`.
    async fn pid(&mut self) -> i32 {
        self.until("pid=").await;
        self.until(".").await.parse().expect("it is a pid")
    }

    /// Stops the job to which this process belongs.
    ///
    /// The shell awaits `lockctl` alone. A process that waits for the terminal, and has not had the
    /// time to stop, would read what is typed next.
    async fn suspend(&mut self, pid: i32) {
        self.keys(SUSPEND).await;
        self.until("Stopped").await;
        self.until(PROMPT).await;
        let is_stopped = async || {
            let stat = procfs::process::Process::new(pid).and_then(|process| process.stat());
            stat.expect("it lives").state == 'T'
        };
        pace::until("the command is stopped", is_stopped).await;
    }

    /// Waits for the exit code of the last line, and tells what was printed before.
    pub(super) async fn code(&mut self) -> (String, u8) {
        let before = self.until(PROMPT).await;
        self.line("echo code=$?.").await;
        self.until("code=").await;
        let code = self.until(".").await;
        self.until(PROMPT).await;
        (before, code.parse().expect("it is a code"))
    }
}

/// A line for a shell that runs a script under a lock.
fn typed(tool: &Tool, options: &[&str], script: &str) -> String {
    let arguments = [&["run"], options, &[NAME, "--", "sh", "-c", script]].concat();
    quoted(&words(tool.lockctl_command(&arguments).as_std()))
}

/// Words as a line for a shell.
pub(super) fn quoted(words: &[OsString]) -> String {
    let quoted = words.iter().map(|word| word.to_string_lossy().replace('\'', r"'\''"));
    quoted.map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ")
}

// Goal: a command reads the terminal and changes its modes, as without lockctl.
#[tokio::test]
async fn command_has_the_terminal() {
    let tool = prepared("terminal").await;
    let mut shell = Shell::start().await;
    let script = "stty -icanon && stty icanon && echo ready; read a; echo got-$a; exit 3";
    shell.line(&typed(&tool, &[], script)).await;
    shell.until("ready").await;
    shell.line("word").await;
    shell.until("got-word").await;
    assert_eq!(shell.code().await.1, 3);
    // The other side of a pipe has it too, as with a pager.
    let pager = "sh -c 'read a </dev/tty; echo pager-$a'";
    shell
        .line(&format!("{} | {pager}", typed(&tool, &[], "echo ready >/dev/tty; sleep 0.1")))
        .await;
    shell.until("ready").await;
    shell.line("word").await;
    shell.until("pager-word").await;
    assert_eq!(shell.code().await.1, 0);
}

// Goal: a key that sends a signal reaches the command, once; a command that catches it continues.
#[tokio::test]
async fn keys_reach_the_command_once() {
    let tool = prepared("keys").await;
    let mut shell = Shell::start().await;
    let script = "trap 'echo int' INT; trap 'echo quit; exit 5' QUIT; echo ready; \
                  while :; do sleep 0.1; done";
    shell.line(&typed(&tool, &[], script)).await;
    shell.until("ready").await;
    for _ in 0..2 {
        shell.keys(INTERRUPT).await;
        shell.until("int").await;
    }
    shell.keys(QUIT).await;
    let (before, code) = shell.code().await;
    assert_eq!((before.matches("int").count(), before.matches("quit").count()), (0, 1), "{before}");
    assert_eq!(code, 5);
    shell.line(&typed(&tool, &[], "echo ready; exec sleep 1000")).await;
    shell.until("ready").await;
    shell.keys(INTERRUPT).await;
    assert_eq!(shell.code().await.1, 130);
}

// Goal: a command is stopped and continued as without lockctl, also in the background, where it is
// stopped when it reads.
#[tokio::test]
async fn command_is_a_job() {
    let tool = prepared("jobs").await;
    let mut shell = Shell::start().await;
    let script = "echo pid=$$.; read a; echo got-$a";
    let line = typed(&tool, &[], script);
    shell.line(&line).await;
    let pid = shell.pid().await;
    shell.suspend(pid).await;
    shell.line("fg").await;
    shell.until("lockctl").await;
    shell.line("word").await;
    shell.until("got-word").await;
    assert_eq!(shell.code().await.1, 0);

    shell.line(&format!("{line} &")).await;
    shell.pid().await;
    shell.until_job("Stopped").await;
    shell.line("fg").await;
    shell.line("word").await;
    shell.until("got-word").await;
    assert_eq!(shell.code().await.1, 0);
}

// Goal: a job that is stopped is ended by TERM, and when its lock can't be renewed.
#[tokio::test]
async fn stopped_job_can_be_ended() {
    let tool = prepared("stopped_job").await;
    let mut shell = Shell::start().await;
    shell.line(&typed(&tool, &[], "echo pid=$$.; read a")).await;
    let pid = shell.pid().await;
    shell.suspend(pid).await;
    shell.line("kill %1").await;
    shell.until_job("Exit 143").await;
    let ttl = format!("{:?}", paced(6));
    let options = ["--ttl", &ttl, "--kill-after", "500ms"];
    let script = "trap '' TERM; echo pid=$$.; exec sleep 1000";
    shell.line(&typed(&tool, &options, script)).await;
    let pid = shell.pid().await;
    shell.suspend(pid).await;
    pace::until("the command is ended", async || procfs::process::Process::new(pid).is_err()).await;
    shell.line("fg").await;
    assert_eq!(shell.code().await.1, 76);
}

// Goal: a command that reads the terminal is ended with its lock.
#[tokio::test]
async fn reading_command_ends_with_its_lock() {
    let tool = prepared("terminal_lost").await;
    let mut shell = Shell::start().await;
    let ttl = format!("{:?}", paced(12));
    shell.line(&typed(&tool, &["--ttl", &ttl], "echo ready; read a")).await;
    shell.until("ready").await;
    let revoked = tool.lockctl(&["revoke", NAME, "--why", "a test"]).await;
    assert_eq!(revoked.code, Some(0), "{revoked:?}");
    assert_eq!(shell.code().await.1, 76);
}
