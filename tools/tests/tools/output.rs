//! What the commands print, for people and as JSON.
//!
//! Accepted is what they print on the nodes that the tests start themselves. CONTRIBUTING.md tells
//! how to accept a change.

use bakery_lock::hosts::this_host;
use bakery_lock::{LockClient, LockGuard};
use rustix::process::Signal;
use support::pace;
use tokio::task::JoinHandle;

use crate::command::{Answer, Tool, finish, line, send};
use crate::lockctl::{client, s, until_observed, until_waits};

const NAME: &str = "users::snap";
const OTHER: &str = "users::other";

/// What differs from run to run, and what is printed here instead.
type Filter = (&'static str, &'static str);

const DIFFERS: [Filter; 4] = [
    // The first node that answers.
    (r"connected to \S+,", "connected to [node],"),
    (r"\d{4}-\d{2}-\d{2}T[0-9:.]+Z", "[time]"),
    (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "[client]"),
    (r#"(pid(?:": ?| ))\d+"#, "${1}[pid]"),
];

/// The same in what is told of contenders.
const CONTENDERS: [Filter; 6] = [
    (r#"(_seconds": ?)\d+"#, "${1}[seconds]"),
    (r#"("round": ?)\d+"#, "${1}[round]"),
    // Rows tell it from the first renewal on.
    (r#"("held_since": ?)(null|"\[time\]")"#, "${1}[time or null]"),
    (r" +\d+m?\d*s\b", " [age]"),
    // Columns are as wide as what is in them.
    (r"(\S)  +", "$1  "),
    (r"(?m)^(holds|waits)  (\S+)  \d+", "$1  $2  [pid]"),
];

/// The same in what was measured.
const MEASURED: [Filter; 2] =
    [(r"\d+ ms ± \d+ ms", "[difference]"), (r"(within|after) \d[\d.]*m?s\b", "$1 [duration]")];

/// The same in what verify and bench say.
const FIGURES: [Filter; 10] = [
    // On a slow machine only.
    ("waits are nearly as long as a block of .*\n", ""),
    ("[0-9a-f]{16}::", "[run]::"),
    (r#"("run": )"[0-9a-f]{16}""#, "${1}[run]"),
    (r#"(seed(?:": | ))\d+"#, "${1}[seed]"),
    (r#"(": )(?:null|\d+(?:\.\d+)?)"#, "${1}[figure]"),
    (r"\d+ (grants|of them|tries|failed|were|holds|tokens|between)", "[figure] $1"),
    (r"\d+(?:\.\d+)? m?s\b", "[time]"),
    // Columns are as wide as what is in them.
    (r"(\S)  +", "$1  "),
    (
        r"(?m)^(\d)  [\d.]+  [\d.]+  (.*)  [\d.-]+  [\d.-]+$",
        "$1  [figure]  [figure]  $2  [figure]  [figure]",
    ),
    (r"(?m)^  +\{", "    {"),
];

/// Commands, and what they printed.
struct Session<'a> {
    tool: &'a Tool,
    said: Vec<String>,
}

impl<'a> Session<'a> {
    fn new(tool: &'a Tool) -> Self {
        Session { tool, said: Vec::new() }
    }

    async fn lock_hosts(&mut self, commands: &[&str]) {
        for command in commands {
            let answer = self.tool.run(&words(command)).await;
            self.note(&format!("lock-hosts {command}"), &answer);
        }
    }

    async fn lockctl(&mut self, commands: &[&str]) {
        for command in commands {
            let answer = self.tool.lockctl(&words(command)).await;
            self.note(&format!("lockctl {command}"), &answer);
        }
    }

    /// A check by `lock-hosts`, once all nodes have answered it in time.
    async fn check(&mut self, command: &str) {
        let answer = until_answers(async || {
            let answer = self.tool.run(&words(command)).await;
            let clocks = answer.stdout.contains("those of 3 nodes agree within");
            let logs = answer.stdout.matches("commitlog_sync is periodic").count();
            (clocks && logs == 3).then_some(answer)
        })
        .await;
        self.note(&format!("lock-hosts {command}"), &answer);
    }

    /// A command of `lockctl` that waits for a lock, once it has seen in time who holds that.
    async fn waiting(&mut self, command: &str) {
        let answer = until_answers(async || {
            let answer = self.tool.lockctl(&words(command)).await;
            let is_seen = answer.stderr.contains("holds it or is ahead");
            (is_seen && answer.code == Some(75)).then_some(answer)
        })
        .await;
        self.note(&format!("lockctl {command}"), &answer);
    }

    /// A command that continues until it is interrupted, here after some lines.
    async fn interrupted(&mut self, command: &str, lines: usize) {
        let mut child = self.tool.lockctl_command(&words(command)).spawn().expect("it starts");
        let mut stdout = String::new();
        for _ in 0..lines {
            stdout += &(line(child.stdout.as_mut()).await + "\n");
        }
        send(&child, Signal::INT);
        let answer = finish(child).await;
        stdout += &answer.stdout;
        self.note(&format!("lockctl {command}"), &Answer { stdout, ..answer });
    }

    fn note(&mut self, command: &str, answer: &Answer) {
        let code = answer.code.expect("no signal ended it");
        let failed = if code == 0 { String::new() } else { format!("exit code {code}\n") };
        self.said.push(format!("$ {command}\n{}{}{failed}", answer.stdout, answer.stderr));
    }

    /// Compares all that was printed with what was last accepted.
    fn accepted(self, name: &str, differs: &[Filter]) {
        let text = self.said.join("\n").replace(&self.tool.keyspace, "[keyspace]");
        let text = text.replace(&format!("by {} pid", this_host()), "by [this host] pid");
        insta::with_settings!({
            prepend_module_to_snapshot => false,
            omit_expression => true,
            filters => [&DIFFERS, differs].concat()
        }, {
            insta::assert_snapshot!(name, text);
        });
    }
}

/// Runs a command again until it answers what is accepted of it, on a slow machine too.
async fn until_answers(mut run: impl AsyncFnMut() -> Option<Answer>) -> Answer {
    let mut answer = None;
    pace::until("the answer of a command", async || {
        answer = run().await;
        answer.is_some()
    })
    .await;
    answer.expect("it has answered")
}

fn words(command: &str) -> Vec<&str> {
    // The script of a shell continues to the end.
    match command.split_once(" -c ") {
        Some((start, script)) => [&words(start)[..], &["-c", script]].concat(),
        None => command.split(' ').collect(),
    }
}

// Goal: no output changes by accident, and each change of one is seen in review.
// Method: compare what the commands print with the last accepted.
#[tokio::test]
async fn of_lock_hosts() {
    let tool = Tool::new("output_hosts").await;
    let mut session = Session::new(&tool);
    session
        .lock_hosts(&[
            "init",
            "init --replication 3",
            "init",
            "init --max-ttl 60s",
            "add web1 web2 web3",
            "remove web3",
            "remove web3 --json",
            "list",
            "list --json",
        ])
        .await;
    for host in ["web1", "web3"] {
        session.check(&format!("doctor --host {host}")).await;
        session.check(&format!("doctor --host {host} --json")).await;
    }
    session.accepted("output-lock-hosts", &MEASURED);
}

// The same for one holder and one waiter.
#[tokio::test]
async fn of_lockctl() {
    let tool = Tool::initialized("output_locks").await;
    let holder = client(&tool, "web1").await;
    let guard = hold(&holder, NAME).await;
    let waiting = wait(&tool).await;
    let mut session = Session::new(&tool);
    session
        .lockctl(&["show free", "show free --json", "show users::snap", "show users::snap --json"])
        .await;
    session.interrupted("watch free", 1).await;
    session.interrupted("watch users::snap", 3).await;
    session.interrupted("watch users::snap --json", 1).await;
    session
        .lockctl(&[
            "list",
            "list --json",
            "status --host web1",
            "status --host web1 --json",
            "status --host web9",
            "status --host web9 --json",
            "revoke free --why hangs",
            "revoke free --why hangs --json",
            "repair users::snap",
            "repair users::snap --json",
            "revoke users::snap --why hangs",
        ])
        .await;
    // The holder of the first one may find that any time.
    let other = hold(&holder, OTHER).await;
    session.lockctl(&["revoke users::other --why hangs --json"]).await;
    session.accepted("output-lockctl", &CONTENDERS);
    drop((guard, other));
    waiting.abort();
}

async fn hold(holder: &LockClient, name: &str) -> LockGuard {
    let guard = holder.request(name).label("nightly job").ttl(s(120)).acquire().await;
    guard.expect("it is free")
}

/// A client that waits for the lock as long as it is looked at, from when its rows say so.
async fn wait(tool: &Tool) -> JoinHandle<()> {
    let waiter = client(tool, "web2").await;
    let request = waiter.request(NAME).ttl(s(120));
    let waiting = tokio::spawn(async move { drop(request.acquire().await) });
    until_waits(&waiter, NAME).await;
    waiting
}

// The same for commands under a lock.
#[tokio::test]
async fn of_lockctl_run_and_elect() {
    let tool = Tool::initialized("output_run").await;
    tool.done(&["add", "web3"]).await;
    tool.done(&["remove", "web3"]).await;
    let holder = client(&tool, "web1").await;
    let tells = "sh -c echo $LOCK_NAME $LOCK_TOKEN | tr 0-9 N; exit 3";
    let mut session = Session::new(&tool);
    session
        .lockctl(&[
            &format!("run --host web1 backup -- {tells}"),
            "run -v --host web1 backup -- true",
            "run --host web1 backup -- /no/such/program",
            "run --host web9 backup -- true",
            "run --host web3 backup -- true",
        ])
        .await;
    let guard = holder.request("backup").label("nightly job").acquire().await.expect("it is free");
    session.lockctl(&["run -n --host web1 backup -- true"]).await;
    session.waiting("run -w 700ms --host web1 backup -- true").await;
    guard.unlock().await.expect("it is held");
    let waits = "sh -c echo runs; sleep 3600";
    let lost = [
        format!("run --host web1 --ttl 30s backup -- {waits}"),
        format!("elect --host web1 --ttl 30s --priority 1 scheduler -- {waits}"),
    ];
    // Side by side, because they learn of it late.
    let (run, elect) =
        tokio::join!(revoked(&tool, &lost[0], "backup"), revoked(&tool, &lost[1], "scheduler"));
    session.note(&format!("lockctl {}", lost[0]), &run);
    session.note(&format!("lockctl {}", lost[1]), &elect);
    session
        .lockctl(&[
            &format!("elect -v --host web1 --priority 1 scheduler -- {tells}"),
            "elect --host web1 --priority 1 scheduler -- /no/such/program",
            "elect --host web9 scheduler -- true",
        ])
        .await;
    let leadership = holder.election("scheduler").label("nightly job").campaign().await;
    let leadership = leadership.expect("it can lead");
    until_observed(&holder, "scheduler").await;
    session.interrupted("elect --observe scheduler", 1).await;
    session.interrupted("elect --observe --json scheduler", 1).await;
    leadership.resign().await.expect("it leads");
    session.interrupted("elect --observe scheduler", 1).await;
    session.accepted("output-lockctl-run", &[&MEASURED[..], &CONTENDERS[..3]].concat());
}

/// A command that tells that it runs, and whose lock is revoked then. Its TTL leaves time to learn
/// of that on a busy machine, before the command must end in any case.
async fn revoked(tool: &Tool, command: &str, name: &str) -> Answer {
    let mut child = tool.lockctl_command(&words(command)).spawn().expect("it starts");
    let first = line(child.stdout.as_mut()).await + "\n";
    let revoked = tool.lockctl(&["revoke", name, "--why", "it hangs"]).await;
    assert_eq!(revoked.code, Some(0), "{revoked:?}");
    let answer = finish(child).await;
    Answer { stdout: first + &answer.stdout, ..answer }
}

// The same where the tables are missing.
#[tokio::test]
async fn without_tables() {
    let tool = Tool::new("output_missing").await;
    let mut session = Session::new(&tool);
    session.lock_hosts(&["add web1", "remove web1", "list"]).await;
    session.check("doctor --host web1").await;
    session
        .lockctl(&[
            "show users::snap",
            "watch users::snap",
            "list",
            "revoke users::snap --why hangs",
            "status --host web1",
            "status --host web1 --json",
            "run backup -- true",
            "elect scheduler -- true",
            "elect --observe scheduler",
        ])
        .await;
    session.accepted("output-without-tables", &MEASURED);
}

// The same for the commands that take locks themselves: words and keys stay, figures don't count.
#[tokio::test]
async fn of_measurements() {
    let tool = Tool::initialized("measured").await;
    tool.done(&["add", "web1"]).await;
    let mut session = Session::new(&tool);
    let commands = [
        "selftest --host web1 --for 5s --processes 2",
        "selftest --host web1 --for 5s --processes 2 --json",
        "bench --host web1 --clients 1,2 --for 2s --warm-up 200ms",
        "bench --host web1 --clients 1,2 --for 2s --warm-up 200ms --json",
    ];
    let [first, second, third, fourth] = commands.map(words);
    // Side by side, so that each can take the time in which a slow machine grants a lock.
    let answers = tokio::join!(
        tool.lockctl(&first),
        tool.lockctl(&second),
        tool.lockctl(&third),
        tool.lockctl(&fourth)
    );
    for (command, answer) in commands.iter().zip(<[Answer; 4]>::from(answers)) {
        session.note(&format!("lockctl {command}"), &answer);
    }
    session.accepted("output-lockctl-measurements", &FIGURES);
}
