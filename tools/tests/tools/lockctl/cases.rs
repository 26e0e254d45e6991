//! What becomes of a command, and of the tool that runs it, when it gets signals: `lockctl run`
//! beside `flock` and `timeout`.

use std::ffi::OsString;
use std::fmt::{self, Display, Formatter};
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use comfy_table::Table;
use comfy_table::presets::ASCII_MARKDOWN;
use procfs::process::Process;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use support::pace;
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use super::ms;
use super::run::{file, prepared};
use super::terminal::{INTERRUPT, PROMPT, QUIT, SUSPEND, Shell, quoted};
use crate::command::{self, Tool, id, variables, with_default_signals};

/// In what surroundings a tool is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Program,
    Background,
    Nohup,
    FirstProcess,
}

const PLACES: [(Place, &str); 4] = [
    (Place::Program, "by a program"),
    (Place::Background, "in a script's background"),
    (Place::Nohup, "by `nohup`"),
    (Place::FirstProcess, "as process 1"),
];

const SIGNALS: [(Signal, &str); 5] = [
    (Signal::INT, "INT"),
    (Signal::TERM, "TERM"),
    (Signal::HUP, "HUP"),
    (Signal::QUIT, "QUIT"),
    (Signal::USR1, "USR1"),
];

const TOOLS: [&str; 3] = ["flock", "timeout", "lockctl run"];

/// The files of a case.
struct Files {
    /// What the command prints.
    printed: PathBuf,
    /// The command ends once it is there.
    end: PathBuf,
    /// What `flock` locks.
    lock: PathBuf,
}

impl Files {
    fn new() -> Self {
        Files { printed: file("case-printed"), end: file("case-end"), lock: file("case-lock") }
    }

    fn begin(&self) {
        // It may not be there.
        let _ = fs::remove_file(&self.end);
        fs::write(&self.printed, "").expect("the file can be written");
    }

    /// A command that counts its signals until a file is there, and exits with 7.
    fn counting(&self) -> String {
        let traps = SIGNALS.map(|(_, name)| format!("trap 'echo got {name}' {name}; "));
        let (printed, end) = (self.printed.display(), self.end.display());
        format!(
            "exec >>{printed}; {}echo ready $$; while [ ! -e {end} ]; do sleep 0.05; done; exit 7",
            traps.concat()
        )
    }

    /// The words of a tool that runs a script.
    fn words(&self, tool: &Tool, runner: &str, script: &str) -> Vec<OsString> {
        let words = |words: &[&str]| words.iter().map(OsString::from).collect();
        let lock = self.lock.to_str().expect("the path is text");
        match runner {
            "flock" => words(&["flock", lock, "sh", "-c", script]),
            "timeout" => words(&["timeout", "1000", "sh", "-c", script]),
            _ => {
                let arguments = ["run", "cases", "--", "sh", "-c", script];
                command::words(tool.lockctl_command(&arguments).as_std())
            }
        }
    }

    fn printed(&self) -> String {
        fs::read_to_string(&self.printed).unwrap_or_default()
    }

    /// How often the command got a signal.
    fn got(&self, name: &str) -> usize {
        let line = format!("got {name}");
        self.printed().lines().filter(|printed| *printed == line).count()
    }

    /// Ends the command, which may hold the file of `flock` until then.
    async fn end(&self, command: Pid) {
        File::create(&self.end).expect("the file can be written");
        pace::until("the command ends", async || !is_there(command)).await;
    }

    /// Waits until the command got a signal, for some time, and then for more of them.
    async fn until_got(&self, name: &str, patience: Duration) {
        let got = async {
            while self.got(name) == 0 {
                sleep(ms(10)).await;
            }
        };
        // It may never get one.
        let _ = timeout(patience, got).await;
        sleep(effect()).await;
    }

    /// Waits until the command runs, and tells its pid, which is its own in a container.
    async fn ready(&self) -> Option<Pid> {
        pace::until("the command runs", async || self.printed().contains('\n')).await;
        // The shell that said so may begin to wait only now.
        sleep(effect()).await;
        let printed = self.printed();
        let pid = printed.lines().next()?.strip_prefix("ready ")?.parse().ok()?;
        Pid::from_raw(pid)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        for file in [&self.printed, &self.end, &self.lock] {
            // It may not be there.
            let _ = fs::remove_file(file);
        }
    }
}

/// How long a signal may take to have an effect.
fn effect() -> Duration {
    pace::scaled(ms(400))
}

/// How long what `lockctl` does may take, and whether others do it is looked at.
fn patience(runner: &str) -> Duration {
    if runner == "lockctl run" { pace::limit() } else { effect() * 5 }
}

fn started(place: Place, words: &[OsString]) -> Child {
    let (program, arguments): (_, &[&str]) = match place {
        Place::Program => ("env", &[]),
        // As a shell without job control starts it.
        Place::Background => ("sh", &["-c", "trap '' INT QUIT; exec \"$@\"", "sh"]),
        Place::Nohup => ("nohup", &[]),
        Place::FirstProcess => ("unshare", &["--pid", "--fork", "--kill-child", "--mount-proc"]),
    };
    let mut command = Command::from(with_default_signals(program));
    command.args(arguments).args(words);
    for variable in variables() {
        command.env_remove(variable);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.process_group(0).kill_on_drop(true).spawn().expect("the tool starts")
}

/// Whether this user may make namespaces of processes, as root may.
fn may_make_namespaces() -> bool {
    let status = std::process::Command::new("unshare").args(["--pid", "--fork", "true"]).status();
    let may = status.is_ok_and(|status| status.success());
    if !may {
        println!("not tried as process 1: this user may make no namespaces");
    }
    may
}

/// The tool itself: below `unshare` it is a child of what was started.
fn pid_of_tool(place: Place, child: &Child) -> Pid {
    let mut pid = id(child);
    if place == Place::FirstProcess {
        let tasks = Process::new(pid.cast_signed()).and_then(|it| it.tasks()).expect("it runs");
        let mut children = tasks.flat_map(|it| it.expect("it runs").children().expect("it runs"));
        pid = children.next().expect("the tool was started");
    }
    Pid::from_raw(pid.cast_signed()).expect("it is a pid")
}

fn is_there(pid: Pid) -> bool {
    let stat = Process::new(pid.as_raw_nonzero().get()).and_then(|process| process.stat());
    stat.is_ok_and(|stat| stat.state != 'Z')
}

/// What a case showed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    /// How often the command got the signal.
    got: usize,
    is_tool_left: bool,
    is_command_left: bool,
    code: Option<i32>,
}

/// How often a signal was received.
fn received(times: usize) -> String {
    match times {
        0 => "not received".to_owned(),
        1 => "received".to_owned(),
        times => format!("received {times} times"),
    }
}

impl Display for Seen {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&received(self.got))?;
        match (self.is_tool_left, self.is_command_left) {
            (true, true) => write!(f, ", both continue")?,
            (false, true) => write!(f, ", **outlives the tool**")?,
            (_, false) => write!(f, ", both end")?,
        }
        match self.code {
            Some(code) => write!(f, ": {code}"),
            None => write!(f, ": killed"),
        }
    }
}

/// Sends a signal to a tool, or to its group. The command has some time to get it.
async fn sent(
    files: &Files,
    words: &[OsString],
    place: Place,
    to_group: bool,
    (signal, name): (Signal, &str),
    patience: Duration,
) -> Seen {
    files.begin();
    let mut child = started(place, words);
    let command = files.ready().await;
    let tool = pid_of_tool(place, &child);
    if to_group {
        let group = Pid::from_raw(id(&child).cast_signed()).expect("it is a pid");
        kill_process_group(group, signal).expect("it runs");
    } else {
        kill_process(tool, signal).expect("it runs");
    }
    files.until_got(name, patience).await;
    let is_tool_left = is_there(tool);
    // In a container nothing is left of it without the first process.
    let is_command_left =
        if place == Place::FirstProcess { is_tool_left } else { command.is_some_and(is_there) };
    let got = files.got(name);
    // A pid of a container is none of this process's.
    files.end(if place == Place::FirstProcess { tool } else { command.unwrap_or(tool) }).await;
    let status = pace::within_limit("the end of a tool", child.wait()).await;
    let code = status.expect("it was started").code();
    Seen { got, is_tool_left, is_command_left, code }
}

/// Types a key while a command runs, which gets this signal by it.
async fn typed(
    files: &Files,
    words: &[OsString],
    key: &str,
    name: &str,
    patience: Duration,
) -> String {
    files.begin();
    let mut shell = Shell::start().await;
    shell.line(&quoted(words)).await;
    let command = files.ready().await.expect("it tells its pid");
    shell.keys(key).await;
    files.until_got(name, patience).await;
    let got = files.got(name);
    files.end(command).await;
    let code = shell.code().await.1;
    format!("{}, both continue: {code}", received(got))
}

/// Stops a command by a key, and continues it in the foreground.
async fn suspended(files: &Files, words: &[OsString], patience: Duration) -> String {
    files.begin();
    let mut shell = Shell::start().await;
    shell.line(&quoted(words)).await;
    let command = files.ready().await.expect("it tells its pid");
    shell.keys(SUSPEND).await;
    if timeout(patience, shell.until("Stopped")).await.is_err() {
        files.end(command).await;
        return format!("not stopped: {}", shell.code().await.1);
    }
    shell.until(PROMPT).await;
    shell.line("fg").await;
    files.end(command).await;
    format!("stops, continues: {}", shell.code().await.1)
}

/// Lets a command read a line.
async fn reading(tool: &Tool, files: &Files, runner: &str, patience: Duration) -> String {
    files.begin();
    let script = format!("echo ready >>{}; read a; exit 7", files.printed.display());
    let mut shell = Shell::start().await;
    shell.line(&quoted(&files.words(tool, runner, &script))).await;
    files.ready().await;
    shell.line("word").await;
    match timeout(patience, shell.code()).await {
        Ok((_, code)) => format!("reads: {code}"),
        Err(_) => "**does not read, and hangs**".to_owned(),
    }
}

/// Closes the terminal of a command.
async fn hung_up(files: &Files, words: &[OsString], patience: Duration) -> String {
    files.begin();
    let mut shell = Shell::start().await;
    shell.line(&quoted(words)).await;
    let command = files.ready().await.expect("it tells its pid");
    drop(shell);
    files.until_got("HUP", patience).await;
    // The shell sends one and the kernel, at the shell's end, another: how far they are apart
    // decides whether the command counts two.
    let got = received(files.got("HUP").min(1));
    let ends = if is_there(command) { "continues" } else { "ends" };
    files.end(command).await;
    format!("{got}, {ends}")
}

// Goal: the table of this program's README: what becomes of a command and its tool, in 40 cases. No
// command continues without lockctl, and no signal to lockctl alone is lost.
// Method: flock, timeout and lockctl run the same command, in the same surroundings.
#[tokio::test]
#[ignore = "takes long; scripts/nightly runs it"]
async fn signals_have_the_effects_that_they_have_on_others() {
    let tool = prepared("cases").await;
    let files = Files::new();
    let script = files.counting();
    let words = TOOLS.map(|runner| files.words(&tool, runner, &script));
    let mut table = Table::new();
    table.load_preset(ASCII_MARKDOWN);
    table.set_header(["started", "sent", "to", "`flock`", "`timeout`", "`lockctl run`"]);
    for (place, place_name) in PLACES {
        for (to_group, receiver) in [(false, "the tool"), (true, "its group")] {
            // A container has signals for its first process alone.
            if place == Place::FirstProcess && (to_group || !may_make_namespaces()) {
                continue;
            }
            for (signal, name) in SIGNALS {
                let is_ignored = match place {
                    Place::Nohup => signal == Signal::HUP,
                    Place::Background => [Signal::INT, Signal::QUIT].contains(&signal),
                    Place::Program | Place::FirstProcess => false,
                };
                let mut row = vec![place_name.to_owned(), name.to_owned(), receiver.to_owned()];
                let mut last = None;
                for (runner, words) in TOOLS.iter().zip(&words) {
                    let patience = if is_ignored { effect() } else { patience(runner) };
                    let signal = (signal, name);
                    let seen = sent(&files, words, place, to_group, signal, patience).await;
                    row.push(seen.to_string());
                    last = Some(seen);
                }
                let lockctl = last.expect("it is one of them");
                assert_eq!(lockctl.got == 0, is_ignored, "{row:?}");
                assert!(lockctl.is_tool_left && lockctl.is_command_left, "{row:?}");
                assert_eq!(lockctl.code, Some(7), "{row:?}");
                table.add_row(row);
            }
        }
    }
    for (key, typed_as, name) in [("Ctrl-C", INTERRUPT, "INT"), ("Ctrl-\\", QUIT, "QUIT")] {
        let mut row = vec!["at a terminal".to_owned(), key.to_owned(), String::new()];
        for (runner, words) in TOOLS.iter().zip(&words) {
            row.push(typed(&files, words, typed_as, name, patience(runner)).await);
        }
        assert_eq!(row[5], "received, both continue: 7", "{row:?}");
        table.add_row(row);
    }
    let mut stops = vec!["at a terminal".to_owned(), "Ctrl-Z, `fg`".to_owned(), String::new()];
    let mut reads = vec!["at a terminal".to_owned(), "a line".to_owned(), String::new()];
    let mut ends = vec!["at a terminal".to_owned(), "its end".to_owned(), String::new()];
    for (runner, words) in TOOLS.iter().zip(&words) {
        let patience = patience(runner);
        stops.push(suspended(&files, words, patience).await);
        reads.push(reading(&tool, &files, runner, patience).await);
        ends.push(hung_up(&files, words, patience).await);
    }
    assert_eq!((&*stops[5], &*reads[5]), ("stops, continues: 7", "reads: 7"));
    assert_eq!(ends[5], "received, continues");
    for row in [stops, reads, ends] {
        table.add_row(row);
    }
    println!("{table}");
}
