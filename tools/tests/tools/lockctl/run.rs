//! `run`.

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bakery_lock::LockClient;
use procfs::process::{Process, all_processes};
use rand::Rng;
use rustix::process::Signal;
use serde_json::Value;
use support::environment::{chance, number};
use support::pace;
use support::scene::built;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixDatagram;
use tokio::process::Command;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::{builder, client, ms, s};
use crate::command::{Answer, Tool, finish, line, paced, send};

pub(super) const NAME: &str = "backup";

/// How often the long test kills and how often it stops `lockctl`.
const ENDINGS: &str = "BAKERY_LOCK_ENDINGS";
const ENDINGS_DEFAULT: usize = 20;

/// How often the long test runs a command.
const RUNS: &str = "BAKERY_LOCK_RUNS";
const RUNS_DEFAULT: usize = 80;

/// Tables, and a registered host for `run`.
pub(crate) async fn prepared(tag: &str) -> Tool {
    let tool = Tool::initialized(tag).await;
    tool.done(&["add"]).await;
    tool
}

/// `lockctl run` with options, and a shell's script as its command.
pub(super) fn run(tool: &Tool, options: &[&str], script: &str) -> Command {
    run_on(tool, NAME, options, script)
}

/// Runs `lockctl` in its own process group. In a container or under `nohup` no shell watches the
/// group of the tests, and Linux sends HUP to the whole group if a command ends while its `lockctl`
/// is stopped (`kill_orphaned_pgrp` in kernel/exit.c).
pub(super) fn run_on(tool: &Tool, name: &str, options: &[&str], script: &str) -> Command {
    let arguments = [&["run"], options, &[name, "--", "sh", "-c", script]].concat();
    let mut command = tool.lockctl_command(&arguments);
    command.process_group(0);
    command
}

async fn ended(mut command: Command) -> Answer {
    finish(command.spawn().expect("the tool starts")).await
}

/// A file of this test alone.
pub(super) fn file(tag: &str) -> PathBuf {
    std::env::temp_dir().join(format!("lockctl-{tag}-{}", std::process::id()))
}

/// The pids of those that hold a lock or wait for it, as the table shows them.
pub(crate) async fn holders_of(observer: &LockClient, name: &str) -> Vec<u32> {
    let all = observer.contenders(name).await.expect("the cluster answers");
    all.iter().filter_map(|contender| contender.owner.pid()).collect()
}

pub(crate) async fn observer(tool: &Tool) -> LockClient {
    built(builder(tool, "observer").await.read_only(true)).await
}

/// Waits until this many hold a lock or wait for it.
pub(crate) async fn until_there_are(count: usize, observer: &LockClient, name: &str) {
    let what = format!("{count} hold {name} or wait for it");
    pace::until(&what, async || holders_of(observer, name).await.len() == count).await;
}

// Goal: the exit code and the streams are those of the command, as with `flock`; where they differ,
// the help says so.
// Method: the same scripts under both.
#[tokio::test]
async fn exit_codes_and_streams_are_those_of_flock() {
    let tool = prepared("flock").await;
    let lock_file = file("flock");
    let lock_path = lock_file.to_str().expect("the path is text").to_owned();
    for script in [
        "true",
        "exit 7",
        "exit 255",
        "kill -TERM $$",
        "kill -KILL $$",
        "cat; echo out; echo err >&2; exit 3",
        "no-such-program-in-a-shell 2>/dev/null",
    ] {
        let mut flock = Command::new("flock");
        flock.args([&lock_path, "sh", "-c", script]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut answers = Vec::new();
        for mut command in [flock, run(&tool, &[], script)] {
            let mut child = command.stdin(Stdio::piped()).spawn().expect("the program starts");
            let mut stdin = child.stdin.take().expect("it is a pipe");
            let _ = stdin.write_all(b"from standard input\n").await;
            drop(stdin);
            answers.push(finish(child).await);
        }
        assert_eq!(answers[0], answers[1], "{script}");
    }
    fs::remove_file(lock_file).expect("flock has made it");
    let absent = tool.lockctl(&["run", NAME, "--", "/no/such/program"]).await;
    assert_eq!(absent.code, Some(127), "{absent:?}");
    assert!(absent.stderr.starts_with("/no/such/program: "), "{}", absent.stderr);
    let unfit = tool.lockctl(&["run", NAME, "--", "/"]).await;
    assert_eq!(unfit.code, Some(126), "{unfit:?}");
}

// Goal: a lock that is held is not waited for, or not for longer than asked; the exit code is 75 or
// the one that was chosen, and the command does not run. A wait without a limit ends with the lock.
// Method: a holder in this process.
#[tokio::test]
async fn lock_that_is_held_is_a_conflict() {
    let tool = prepared("conflict").await;
    let guard = client(&tool, "holder").await.lock(NAME).await.expect("it is free");
    // A wait of less than one try of a request: none of those can have failed before it ends.
    for (options, code) in [
        (&["-n"][..], 75),
        (&["-w", "500ms"], 75),
        (&["-n", "-E", "9"], 9),
        (&["-n", "--shared"], 75),
    ] {
        let answer = ended(run(&tool, options, "echo ran")).await;
        assert_eq!((answer.code, answer.stdout.as_str()), (Some(code), ""), "{answer:?}");
        assert!(answer.stderr.contains(NAME), "{}", answer.stderr);
    }
    let waiting = run(&tool, &["-v"], "echo ran").spawn().expect("the tool starts");
    until_there_are(2, &observer(&tool).await, NAME).await;
    guard.unlock().await.expect("it is held");
    let answer = finish(waiting).await;
    assert_eq!((answer.code, answer.stdout.as_str()), (Some(0), "ran\n"), "{answer:?}");
    let uses = format!("uses lock table {}.lock_table\nlockctl: obtained backup", tool.keyspace);
    assert!(answer.stderr.starts_with("lockctl: connected to "), "{}", answer.stderr);
    assert!(answer.stderr.contains(&uses), "{}", answer.stderr);
}

// Goal: the command learns what it holds, until when, and the token for its data.
// Method: print the environment, twice; and with a limit of holders, which have no tokens.
#[tokio::test]
async fn command_knows_its_lock() {
    let tool = prepared("environment").await;
    let print = "echo \"$LOCK_NAME ${LOCK_TOKEN-none} $LOCK_DEADLINE\"";
    let mut last = 0;
    for (options, ttl) in [(&[][..], 60), (&["--shared"], 60), (&["--ttl", "30s"], 30)] {
        let before = unix_millis();
        let answer = ended(run(&tool, options, print)).await;
        assert_eq!((answer.code, answer.stderr.as_str()), (Some(0), ""), "{answer:?}");
        let mut words = answer.stdout.split_whitespace();
        assert_eq!(words.next(), Some(NAME));
        let token: i64 = words.next().and_then(|word| word.parse().ok()).expect("it is a number");
        assert!(token >= last, "{token} after {last}");
        last = token;
        let deadline: u128 = words.next().and_then(|word| word.parse().ok()).expect("it is too");
        let last_possible = unix_millis() + ttl * 1_000;
        assert!(before < deadline && deadline < last_possible, "{deadline} after {before}");
    }
    let limited = ended(run(&tool, &["--max-holders", "2"], print)).await;
    assert!(limited.stdout.starts_with("backup none "), "{limited:?}");
}

fn unix_millis() -> u128 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("it is later than 1970").as_millis()
}

// Goal: each signal reaches all processes of the command, and the exit code is theirs.
// Method: a script with a child; both note the signal.
#[tokio::test]
async fn signals_are_passed_on() {
    let tool = prepared("signals").await;
    for (signal, name) in [
        (Signal::INT, "INT"),
        (Signal::TERM, "TERM"),
        (Signal::HUP, "HUP"),
        (Signal::QUIT, "QUIT"),
        (Signal::USR1, "USR1"),
        (Signal::USR2, "USR2"),
    ] {
        // A shell's child may take a signal for its parent's before it runs its program.
        let script = format!(
            "trap 'echo outer; exit 5' {name}; \
             sh -c 'trap \"echo inner; exit 0\" {name}; echo ready; while :; do sleep 0.1; done'; \
             true"
        );
        let mut child = run(&tool, &[], &script).spawn().expect("the tool starts");
        assert_eq!(line(child.stdout.as_mut()).await, "ready");
        send(&child, signal);
        let answer = finish(child).await;
        assert_eq!(answer.code, Some(5), "{name}: {answer:?}");
        assert_eq!(answer.stdout, "inner\nouter\n", "{name}");
    }
}

// Goal: a signal while the lock is waited for withdraws the request, and leaves no row.
// Method: INT and TERM while another client holds the lock.
#[tokio::test]
async fn signal_ends_the_wait() {
    let tool = prepared("withdrawn").await;
    let guard = client(&tool, "holder").await.lock(NAME).await.expect("it is free");
    let observer = observer(&tool).await;
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let child = run(&tool, &[], "echo ran").spawn().expect("the tool starts");
        until_there_are(2, &observer, NAME).await;
        send(&child, signal);
        let answer = finish(child).await;
        assert_eq!((answer.code, answer.stdout.as_str()), (Some(code), ""), "{answer:?}");
        assert_eq!(holders_of(&observer, NAME).await.len(), 1, "its rows are left");
    }
    guard.unlock().await.expect("it is held");
}

// Goal: a command whose lock is revoked is ended, with all that it started, before the lock is
// released, and the exit code says so; with `--on-lost warn` it continues, until the lock is lost.
// Method: revoke the locks of scripts that ignore TERM and have a child.
#[tokio::test]
async fn command_does_not_outlive_its_lock() {
    let tool = prepared("lost").await;
    let (killed, warned) = tokio::join!(lost(&tool, "kill"), lost(&tool, "warn"));
    for (answer, name, printed) in [(killed, "kill", ""), (warned, "warn", "went on\n")] {
        assert_eq!((answer.code, answer.stdout.as_str()), (Some(76), printed), "{answer:?}");
        let told = "must be released while the command runs: it was revoked by ";
        assert!(answer.stderr.contains(&format!("warning: {name} {told}")), "{}", answer.stderr);
    }
}

/// Runs a command whose lock is revoked; one that is warned ends by itself after that. The lock has
/// the name of what happens when it is lost.
async fn lost(tool: &Tool, on_lost: &str) -> Answer {
    let observer = observer(tool).await;
    let end = file(&format!("end-{on_lost}"));
    let ttl = format!("{:?}", paced(12));
    let options = ["--ttl", &ttl, "--kill-after", "500ms", "--on-lost", on_lost];
    let path = end.to_str().expect("the path is text");
    let wait = format!("while [ ! -e {path} ]; do sleep 0.1; done; echo went on; exit 3");
    let script = format!("trap '' TERM; echo runs; ({wait})");
    let mut child = run_on(tool, on_lost, &options, &script).spawn().expect("the tool starts");
    assert_eq!(line(child.stdout.as_mut()).await, "runs");
    let revoked = tool.lockctl(&["revoke", on_lost, "--why", "a test"]).await;
    assert_eq!(revoked.code, Some(0), "{revoked:?}");
    until_there_are(0, &observer, on_lost).await;
    if on_lost == "warn" {
        // Time enough to be killed.
        sleep(s(2)).await;
        fs::write(&end, "").expect("the file can be written");
    }
    let answer = finish(child).await;
    let _ = fs::remove_file(&end);
    answer
}

/// A script that tells its deadline in a file, and whose processes stay until they are killed: one
/// of its group, and one that left it.
fn stubborn(file: &str) -> String {
    format!(
        "trap '' TERM HUP; setsid sleep 1000 & echo $LOCK_DEADLINE > {file}; sleep 1000 & wait; \
         sleep 1000"
    )
}

/// Whether a process of a command is left that may still run: see [`processes_of`].
pub(super) fn is_alive(name: &str, deadline: u64) -> bool {
    !processes_of(name, deadline).is_empty()
}

/// The processes of a command that may still run, wherever they have gone: those with this
/// `LOCK_NAME` and `LOCK_DEADLINE` in their environment. Another lock may have the same
/// deadline. One that was killed runs no more, but may take a while to be gone on a busy machine.
pub(super) fn processes_of(name: &str, deadline: u64) -> Vec<String> {
    const KILLED: u64 = 1 << (Signal::KILL.as_raw() - 1);
    let deadline = deadline.to_string();
    let is_guardian = |words: &[String]| words.get(1).is_some_and(|word| word == "guardian");
    let process_of = |process: Process| {
        let environment = process.environ().ok()?;
        let is = |variable: &str, value: &str| {
            environment.get(OsStr::new(variable)).is_some_and(|it| it == value)
        };
        let words = process.cmdline().ok()?;
        // The guardian ends after those that it watches over.
        if !is("LOCK_NAME", name) || !is("LOCK_DEADLINE", &deadline) || is_guardian(&words) {
            return None;
        }
        let status = process.status().ok()?;
        let is_killed = (status.sigpnd | status.shdpnd) & KILLED != 0;
        let may_run = !is_killed && !status.state.starts_with(['Z', 'X']);
        may_run.then(|| format!("{} {} {words:?}", process.pid, status.state))
    };
    let processes = all_processes().expect("Linux has /proc");
    processes.filter_map(|process| process_of(process.ok()?)).collect()
}

/// Kills or stops `lockctl` at any moment of a run, this many times, a few side by side; no process
/// of the command may be left when its rows are gone.
async fn endings(tool: &Tool, times: usize, signal: Signal) {
    const SIDE_BY_SIDE: usize = 4;
    let observer = observer(tool).await;
    let mut chance = chance();
    let pauses: Vec<_> = (0..times).map(|_| ms(chance.random_range(0..3_000))).collect();
    let mut running = JoinSet::new();
    let mut longest = Duration::ZERO;
    for (round, pause) in pauses.into_iter().enumerate() {
        if running.len() == SIDE_BY_SIDE {
            let left = running.join_next().await.expect("some run");
            longest = longest.max(left.expect("no process outlives its lease"));
        }
        let (tool, observer) = (tool.clone(), observer.clone());
        running.spawn(async move { ending(&tool, &observer, round, signal, pause).await });
    }
    for left in running.join_all().await {
        longest = longest.max(left);
    }
    println!("{times} times {signal:?}: all ended before their rows, in {longest:.1?} at most");
}

/// Kills or stops a `lockctl` after a while, and tells how long its command is left.
async fn ending(
    tool: &Tool,
    observer: &LockClient,
    round: usize,
    signal: Signal,
    pause: Duration,
) -> Duration {
    let name = format!("signal-{}-{round}", signal.as_raw());
    let note = file(&name);
    let script = stubborn(note.to_str().expect("the path is text"));
    let ttl = format!("{:?}", paced(6));
    let options = ["--ttl", &ttl, "--kill-after", "500ms"];
    let mut child = run_on(tool, &name, &options, &script).spawn().expect("the tool starts");
    let runs = async {
        loop {
            let ended = child.try_wait().expect("it can be waited for");
            assert_eq!(ended, None, "{name}: the command did not start");
            match fs::read_to_string(&note).unwrap_or_default().trim().parse() {
                Ok(deadline) => break deadline,
                Err(_) => sleep(ms(5)).await,
            }
        }
    };
    let deadline = pace::within_limit("the start of a command", runs).await;
    fs::remove_file(&note).expect("it was written");
    sleep(pause).await;
    send(&child, signal);
    let began = Instant::now();
    let ends = async {
        loop {
            // A process that is there after a look that shows no rows outlives them.
            let holders = holders_of(observer, &name).await;
            if !is_alive(&name, deadline) {
                break;
            }
            assert!(!holders.is_empty(), "{name}: a process outlives the lease");
            sleep(ms(10)).await;
        }
    };
    pace::within_limit("the end of a command", ends).await;
    began.elapsed()
}

// Goal: no process of a command outlives the lease, also if `lockctl` is killed or stopped.
#[tokio::test]
async fn command_does_not_outlive_lockctl() {
    let tool = prepared("killed").await;
    endings(&tool, 2, Signal::KILL).await;
    endings(&tool, 2, Signal::STOP).await;
}

// The same many times.
#[tokio::test]
#[ignore = "takes long; scripts/nightly runs it"]
async fn no_command_of_many_outlives_lockctl() {
    let tool = prepared("killed_often").await;
    let times = number(ENDINGS).unwrap_or(ENDINGS_DEFAULT);
    endings(&tool, times, Signal::KILL).await;
    endings(&tool, times, Signal::STOP).await;
}

/// Counts in a file from several shells, each of which runs `lockctl` several times.
async fn count(tool: &Tool, shells: usize, times: usize) {
    let counter = file("counter");
    fs::write(&counter, "0\n").expect("the file can be written");
    let path = counter.to_str().expect("the path is text");
    let script = format!("n=$(cat {path}); echo $((n + 1)) > {path}");
    let mut counting = Vec::new();
    for _ in 0..shells {
        let (tool, script) = (tool.clone(), script.clone());
        counting.push(tokio::spawn(async move {
            for _ in 0..times {
                let answer = ended(run(&tool, &[], &script)).await;
                assert_eq!((answer.code, answer.stderr.as_str()), (Some(0), ""), "{answer:?}");
            }
        }));
    }
    for counting in counting {
        counting.await.expect("each count is done");
    }
    let counted = fs::read_to_string(&counter).expect("the file is there");
    fs::remove_file(&counter).expect("the file is there");
    assert_eq!(counted, format!("{}\n", shells * times));
}

// Goal: a read-modify-write of a file under a lock loses nothing.
#[tokio::test]
async fn file_is_counted_exactly() {
    count(&prepared("counter").await, 4, 5).await;
}

// The same many times, with more shells.
#[tokio::test]
#[ignore = "takes long; scripts/nightly runs it"]
async fn file_is_counted_exactly_many_times() {
    const SHELLS: usize = 8;
    let runs = number(RUNS).unwrap_or(RUNS_DEFAULT) / SHELLS;
    let began = Instant::now();
    count(&prepared("counter_long").await, SHELLS, runs).await;
    println!("{} runs in {:.1?}", runs * SHELLS, began.elapsed());
}

// Goal: a job for which another machine has the lock may count as done, and a last line tells
// programs how it went.
// Method: a job that ends, one that is skipped, one whose lock is revoked, one that can't be run.
#[tokio::test]
async fn last_line_tells_how_it_went() {
    let tool = prepared("json").await;
    let ttl = format!("{:?}", paced(12));
    let mut done = run(&tool, &["--json", "--ttl", &ttl], "echo runs; read a; exit 3");
    let mut done = done.stdin(Stdio::piped()).spawn().expect("the tool starts");
    assert_eq!(line(done.stdout.as_mut()).await, "runs");
    let skipped = ended(run(&tool, &["--json", "-n", "--skip-ok"], "echo ran")).await;
    let end = done.stdin.take();
    drop(end);
    let done = finish(done).await;
    let mut lost = run(&tool, &["--json", "--ttl", &ttl], "echo runs; exec sleep 1000");
    let mut lost = lost.spawn().expect("the tool starts");
    assert_eq!(line(lost.stdout.as_mut()).await, "runs");
    let revoked = tool.lockctl(&["revoke", NAME, "--why", "a test"]).await;
    assert_eq!(revoked.code, Some(0), "{revoked:?}");
    let lost = finish(lost).await;
    let failed = tool.lockctl(&["run", "--json", "--host", "absent", NAME, "--", "true"]).await;
    for (answer, outcome, code, has_token, reason) in [
        (&done, "done", 3, true, ""),
        (&skipped, "skipped", 0, false, "it is held"),
        (&lost, "lost", 76, true, "it was revoked by "),
        (&failed, "failed", 125, false, "host \"absent\" is not registered"),
    ] {
        let last = answer.stderr.lines().last().expect("there is a line");
        let told: Value = serde_json::from_str(last).expect("it is JSON");
        assert_eq!(told["name"], NAME, "{told}");
        assert_eq!(told["outcome"], outcome, "{told}");
        assert_eq!(told["exit_code"], code, "{told}");
        assert_eq!(answer.code, Some(code), "{answer:?}");
        assert_eq!(told["token"].is_i64(), has_token, "{told}");
        assert_eq!(told["held_seconds"].is_f64(), has_token, "{told}");
        assert!(told["reason"].as_str().unwrap_or_default().starts_with(reason), "{told}");
    }
}

// Goal: a service manager learns that a service has its lock, and not before.
// Method: a socket in the place of systemd's.
#[tokio::test]
async fn service_manager_is_told_of_the_lock() {
    let tool = prepared("notify").await;
    let path = file("notify");
    let manager = UnixDatagram::bind(&path).expect("the path is free");
    let guard = client(&tool, "holder").await.lock(NAME).await.expect("it is free");
    let mut notifying = run(&tool, &[], "exit 0");
    let notifying = notifying.env("NOTIFY_SOCKET", &path).spawn().expect("the tool starts");
    until_there_are(2, &observer(&tool).await, NAME).await;
    let mut told = [0; 256];
    let early = manager.try_recv(&mut told).map_err(|error| error.kind());
    assert_eq!(early, Err(ErrorKind::WouldBlock), "it is not held yet");
    guard.unlock().await.expect("it is held");
    assert_eq!(finish(notifying).await.code, Some(0));
    let bytes = manager.recv(&mut told).await.expect("it was told");
    fs::remove_file(&path).expect("it was bound");
    assert_eq!(String::from_utf8_lossy(&told[..bytes]), "READY=1\nSTATUS=holds backup\n");
}
