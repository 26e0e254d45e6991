//! All processes of a command of `run`: when they end, and what signals they get.

use std::fs;
use std::path::PathBuf;

use procfs::process::Process;
use rustix::process::{Pid, Signal, kill_process};
use support::pace;
use tokio::process::Child;

use super::run::{NAME, file, holders_of, is_alive, observer, prepared, run, until_there_are};
use crate::command::{finish, id, line, paced, send, variables, words};

/// A file that a script waits for. It is removed when this is dropped.
struct Event(PathBuf);

impl Event {
    fn new(tag: &str) -> Self {
        Event(file(tag))
    }

    /// A shell's command that waits.
    fn awaited(&self) -> String {
        format!("while [ ! -e {} ]; do sleep 0.1; done", self.0.display())
    }

    fn happens(&self) {
        fs::write(&self.0, "").expect("the file can be written");
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // It may not have happened.
        let _ = fs::remove_file(&self.0);
    }
}

/// Waits until a `lockctl` says that its command has ended, and some of its processes have not.
async fn until_told_of_the_rest(lockctl: &mut Child) {
    // A shell says of what it has died.
    while !line(lockctl.stderr.as_mut()).await.starts_with("lockctl: sh has ended; ") {}
}

/// The guardian of a `lockctl`: its only child. `None` if it has ended.
pub(super) fn guardian(lockctl: &Child) -> Option<Process> {
    let tasks = Process::new(id(lockctl).cast_signed()).ok()?.tasks().ok()?;
    let mut children = tasks.filter_map(|task| task.ok()?.children().ok()).flatten();
    Process::new(children.next()?.cast_signed()).ok()
}

// Goal: the lock is held until the processes that a command leaves in the background have ended,
// and whoever waits for that is told why. With `--detach` it is not.
// Method: a shell ends, and a child of it waits for a file.
#[tokio::test]
async fn lock_is_held_until_the_last_process_ends() {
    let tool = prepared("background").await;
    let observer = observer(&tool).await;
    let end = Event::new("background");
    let script = format!("({}; echo ended) & echo left; exit 3", end.awaited());
    let mut attached = run(&tool, &[], &script).spawn().expect("the tool starts");
    assert_eq!(line(attached.stdout.as_mut()).await, "left");
    until_told_of_the_rest(&mut attached).await;
    assert_eq!(holders_of(&observer, NAME).await, [id(&attached)]);
    end.happens();
    let answer = finish(attached).await;
    assert_eq!((answer.code, answer.stdout.as_str()), (Some(3), "ended\n"), "{answer:?}");

    let end = Event::new("detached");
    let script = format!("({}) >&- 2>&- & echo $LOCK_DEADLINE; exit 4", end.awaited());
    let detached = run(&tool, &["--detach"], &script).spawn().expect("the tool starts");
    let answer = finish(detached).await;
    assert_eq!((answer.code, answer.stderr.as_str()), (Some(4), ""), "{answer:?}");
    let deadline = answer.stdout.trim().parse().expect("it tells its deadline");
    assert!(is_alive(NAME, deadline), "it was ended");
    assert!(holders_of(&observer, NAME).await.is_empty());
    end.happens();
    pace::until("the process ends", async || !is_alive(NAME, deadline)).await;
}

// Goal: after TERM the next command starts once the last process of the one before has ended, not
// when its shell has.
// Method: a worker of a shell that ends slowly, and a second command that waits for the lock.
#[tokio::test]
async fn next_command_starts_after_the_last_process() {
    let tool = prepared("slow_end").await;
    let end = Event::new("slow-end");
    let ends = format!("echo asked; {}; echo ended; exit", end.awaited());
    let worker = format!("trap \"{ends}\" TERM; echo ready; while :; do sleep 0.1; done");
    let script = format!("sh -c '{worker}'; true");
    let mut first = run(&tool, &[], &script).spawn().expect("the tool starts");
    assert_eq!(line(first.stdout.as_mut()).await, "ready");
    let mut second = run(&tool, &[], "echo begins").spawn().expect("the tool starts");
    until_there_are(2, &observer(&tool).await, NAME).await;
    send(&first, Signal::TERM);
    assert_eq!(line(first.stdout.as_mut()).await, "asked");
    until_told_of_the_rest(&mut first).await;
    assert_eq!(second.try_wait().expect("it was started"), None, "two commands run at once");
    end.happens();
    let answer = finish(first).await;
    assert_eq!((answer.code, answer.stdout.as_str()), (Some(143), "ended\n"), "{answer:?}");
    assert_eq!(line(second.stdout.as_mut()).await, "begins");
    assert_eq!(finish(second).await.code, Some(0));
}

// Goal: a process that left the group and the session of its command is ended with it.
// Method: revoke the lock of a shell with such a child, and both ignore TERM.
#[tokio::test]
async fn process_that_left_its_session_ends_with_the_lock() {
    let tool = prepared("left_session").await;
    let ttl = format!("{:?}", paced(12));
    let options = ["--ttl", &ttl, "--kill-after", "500ms"];
    let script = "trap '' TERM; setsid sh -c 'echo $LOCK_DEADLINE; exec sleep 1000'; exit 3";
    let mut child = run(&tool, &options, script).spawn().expect("the tool starts");
    let deadline = line(child.stdout.as_mut()).await.parse().expect("it tells its deadline");
    let revoked = tool.lockctl(&["revoke", NAME, "--why", "a test"]).await;
    assert_eq!(revoked.code, Some(0), "{revoked:?}");
    let answer = finish(child).await;
    assert_eq!(answer.code, Some(76), "{answer:?}");
    assert!(!is_alive(NAME, deadline), "it outlives the lock");
}

// Goal: no process of a command is left when its guardian was killed.
// Method: kill it, beside a process that left its session.
#[tokio::test]
async fn command_ends_with_its_guardian() {
    let tool = prepared("guardian").await;
    let script = "trap '' TERM; setsid sleep 1000 & echo $LOCK_DEADLINE; sleep 1000";
    let mut child = run(&tool, &[], script).spawn().expect("the tool starts");
    let deadline = line(child.stdout.as_mut()).await.parse().expect("it tells its deadline");
    let guardian = guardian(&child).expect("it runs");
    let pid = Pid::from_raw(guardian.pid).expect("it is a pid");
    kill_process(pid, Signal::KILL).expect("it runs");
    let answer = finish(child).await;
    assert_eq!(answer.code, Some(137), "{answer:?}");
    assert!(answer.stderr.contains("guardian was killed, so the command is ended"), "{answer:?}");
    assert!(!is_alive(NAME, deadline), "a process is left");
    assert!(holders_of(&observer(&tool).await, NAME).await.is_empty(), "the lock is held");
}

// Goal: orphans of a command do not stay as zombies.
// Method: a shell leaves many, and looks at all processes until none is left of them.
#[tokio::test]
async fn orphans_are_removed() {
    let tool = prepared("orphans").await;
    let orphans = "for i in $(seq 200); do (sleep 0.01 &); done";
    let left = "grep -sl \"^PPid:[[:space:]]$PPID$\" /proc/[0-9]*/status | wc -l";
    let script = format!("{orphans}; until [ $({left}) = 1 ]; do sleep 0.1; done; echo none");
    let child = run(&tool, &[], &script).spawn().expect("the tool starts");
    let answer = finish(child).await;
    assert_eq!((answer.code, answer.stdout.as_str()), (Some(0), "none\n"), "{answer:?}");
}

// Goal: a signal that comes while the command is being started reaches it.
// Method: TERM as soon as the lock is obtained.
#[tokio::test]
async fn signal_during_the_start_is_kept() {
    const TIMES: usize = 20;
    let tool = prepared("start_signal").await;
    for _ in 0..TIMES {
        let mut child = run(&tool, &["-v"], "exec sleep 1000").spawn().expect("the tool starts");
        while !line(child.stderr.as_mut()).await.starts_with("lockctl: obtained ") {}
        send(&child, Signal::TERM);
        assert_eq!(finish(child).await.code, Some(143));
    }
}

// Goal: signals that are ignored when `lockctl` starts stay ignored, by it and by its command: as
// after `nohup`, and in the background of a script.
// Method: a shell that ignores them becomes lockctl.
#[tokio::test]
async fn ignored_signals_stay_ignored() {
    let tool = prepared("ignored").await;
    for signal in [Signal::HUP, Signal::INT, Signal::QUIT, Signal::USR1, Signal::TERM] {
        let number = signal.as_raw();
        let end = Event::new(&format!("ignored-{number}"));
        let script = format!("kill -{number} $$; echo ready; {}; echo done", end.awaited());
        let lockctl = run(&tool, &[], &script);
        let mut ignoring = tokio::process::Command::new("sh");
        ignoring.args(["-c", &format!("trap '' {number}; exec \"$@\""), "sh"]);
        ignoring.args(words(lockctl.as_std()));
        for variable in variables() {
            ignoring.env_remove(variable);
        }
        ignoring.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        let mut child = ignoring.kill_on_drop(true).spawn().expect("a shell starts");
        assert_eq!(line(child.stdout.as_mut()).await, "ready");
        for pid in [id(&child), guardian(&child).expect("it runs").pid.cast_unsigned()] {
            let pid = Pid::from_raw(pid.cast_signed()).expect("it is a pid");
            kill_process(pid, signal).expect("it runs");
        }
        end.happens();
        let answer = finish(child).await;
        let expected = (Some(0), "done\n");
        assert_eq!((answer.code, answer.stdout.as_str()), expected, "{signal:?}: {answer:?}");
    }
}
