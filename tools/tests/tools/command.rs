//! Runs a tool.

use std::ffi::{OsStr, OsString};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use support::pace;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{self, Child};

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Answer {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("the tool prints text");
        let code = output.status.code();
        Answer { code, stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}

/// `lock-hosts`, without the variables of this process's environment that it would read.
pub(crate) fn lock_hosts(arguments: &[&str]) -> Command {
    tool(env!("CARGO_BIN_EXE_lock-hosts"), arguments)
}

/// `lockctl`, likewise.
pub(crate) fn lockctl(arguments: &[&str]) -> Command {
    tool(env!("CARGO_BIN_EXE_lockctl"), arguments)
}

/// `bakery-lockd`, likewise.
pub(crate) fn lockd(arguments: &[&str]) -> Command {
    tool(env!("CARGO_BIN_EXE_bakery-lockd"), arguments)
}

/// The variables of this process's environment that a tool would read.
pub(crate) fn variables() -> impl Iterator<Item = OsString> {
    let names = std::env::vars_os().map(|(name, _)| name);
    names.filter(|name| name.to_string_lossy().starts_with("BAKERY_LOCK_"))
}

/// The words of a tool's command, to be run by another program.
pub(crate) fn words(command: &Command) -> Vec<OsString> {
    let words = command.get_args().skip_while(|word| *word == DEFAULT_SIGNALS);
    words.map(OsString::from).collect()
}

/// Starts a program that ignores no signal. Tests that were started by `nohup`, or by a script in
/// the background, ignore some, and so would all that they start.
pub(crate) fn with_default_signals(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("env");
    command.arg(DEFAULT_SIGNALS).arg(program);
    command
}

const DEFAULT_SIGNALS: &str = "--default-signal";

fn tool(program: &str, arguments: &[&str]) -> Command {
    let mut command = with_default_signals(program);
    for variable in variables() {
        command.env_remove(variable);
    }
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Lets a tool wait for the database as long as a test does.
pub(crate) fn patient(mut command: Command) -> Command {
    command.arg(format!("--timeout={}s", pace::limit().as_secs()));
    command
}

/// A time that a lock or a tool is given: this many seconds on a quiet machine, and more on a slow
/// one, up to the longest TTL that tables allow.
pub(crate) fn paced(seconds: u64) -> Duration {
    const TTL_MAX: Duration = Duration::from_secs(120);
    pace::scaled(Duration::from_secs(seconds)).min(TTL_MAX)
}

/// Runs `lock-hosts` to its end.
pub(crate) fn run(arguments: &[&str]) -> Answer {
    lock_hosts(arguments).output().expect("the tool starts").into()
}

/// The tools on the cluster for tests, in one keyspace. Where nothing else is said, it is
/// `lock-hosts`.
#[derive(Clone, Debug)]
pub(crate) struct Tool {
    nodes: String,
    pub(crate) keyspace: String,
}

impl Tool {
    /// The tool in a keyspace that does not exist yet.
    pub(crate) async fn new(tag: &str) -> Self {
        let nodes = support::nodes().await;
        let nodes: Vec<_> = nodes.iter().map(ToString::to_string).collect();
        Tool { nodes: nodes.join(","), keyspace: support::unique_keyspace(tag) }
    }

    /// The tool in a keyspace of its own, with tables.
    pub(crate) async fn initialized(tag: &str) -> Self {
        let tool = Tool::new(tag).await;
        let answer = tool.run(&["init", "--replication", &replicas().await]).await;
        assert_eq!(answer.code, Some(0), "{answer:?}");
        tool
    }

    /// A command that is killed when its child is dropped. It is as patient as the test, unless its
    /// arguments say something else.
    fn on_cluster(&self, mut command: Command, arguments: &[&str]) -> process::Command {
        if !arguments.contains(&"--timeout") {
            command = patient(command);
        }
        command.args(["--nodes", &self.nodes, "--keyspace", &self.keyspace]).args(arguments);
        let mut command = process::Command::from(command);
        command.kill_on_drop(true);
        command
    }

    /// Starts the tool.
    pub(crate) fn start(&self, arguments: &[&str]) -> Child {
        self.on_cluster(lock_hosts(&[]), arguments).spawn().expect("the tool starts")
    }

    /// Runs the tool to its end.
    pub(crate) async fn run(&self, arguments: &[&str]) -> Answer {
        let _turn = if arguments.contains(&"init") {
            Some(support::turn_to_change_the_schema().await)
        } else {
            None
        };
        finish(self.start(arguments)).await
    }

    /// Runs the tool to its end, with one more variable of the environment.
    pub(crate) async fn run_with(&self, arguments: &[&str], variable: (&str, &str)) -> Answer {
        let mut command = self.on_cluster(lock_hosts(&[]), arguments);
        command.env(variable.0, variable.1);
        finish(command.spawn().expect("the tool starts")).await
    }

    /// Runs `lockctl` to its end.
    pub(crate) async fn lockctl(&self, arguments: &[&str]) -> Answer {
        finish(self.lockctl_command(arguments).spawn().expect("the tool starts")).await
    }

    /// A command of `lockctl` that was not started yet.
    pub(crate) fn lockctl_command(&self, arguments: &[&str]) -> process::Command {
        self.on_cluster(lockctl(&[]), arguments)
    }

    /// A command of `bakery-lockd` that was not started yet.
    pub(crate) fn lockd_command(&self, arguments: &[&str]) -> process::Command {
        self.on_cluster(lockd(&[]), arguments)
    }

    /// Runs the tool, which must succeed, and returns its output.
    pub(crate) async fn done(&self, arguments: &[&str]) -> String {
        let answer = self.run(arguments).await;
        assert_eq!((answer.code, answer.stderr.as_str()), (Some(0), ""), "{arguments:?}");
        answer.stdout
    }
}

/// Waits for the end of a run.
pub(crate) async fn finish(child: Child) -> Answer {
    let output = pace::within_limit("the end of a tool", child.wait_with_output()).await;
    output.expect("the tool can be waited for").into()
}

/// Waits for the next line of a tool's output.
pub(crate) async fn line(output: Option<&mut (impl AsyncRead + Unpin)>) -> String {
    line_unless_ended(output).await.expect("it prints a line")
}

/// The same; `None` if its output ends before.
pub(crate) async fn line_unless_ended(
    output: Option<&mut (impl AsyncRead + Unpin)>,
) -> Option<String> {
    let output = output.expect("it is a pipe");
    let read = async {
        let mut line = Vec::new();
        while line.last() != Some(&b'\n') {
            line.push(output.read_u8().await.ok()?);
        }
        Some(line)
    };
    let line = pace::within_limit("the next line of a tool", read).await?;
    Some(String::from_utf8_lossy(&line).trim_end().to_owned())
}

/// The process id of a tool that was not waited for yet.
pub(crate) fn id(child: &Child) -> u32 {
    child.id().expect("it was not waited for")
}

pub(crate) fn send(child: &Child, signal: Signal) {
    let pid = i32::try_from(id(child)).ok().and_then(Pid::from_raw);
    kill_process(pid.expect("an id is no large number"), signal).expect("it runs");
}

/// As many replicas as there are nodes for, at most three.
pub(crate) async fn replicas() -> String {
    let nodes = support::session().await.get_cluster_state().get_nodes_info().len();
    nodes.min(3).to_string()
}
