//! `bakery-lockd`, as clients on its socket see it.

mod ended;
mod journal;
mod monitoring;
mod native;
mod operation;
mod redis;
mod several;
mod wire;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use support::pace;
use tokio::process::Child;
use tokio::sync::OnceCell;

use self::wire::Wire;
use crate::command::{Tool, line};

/// How often a daemon is killed in long tests, and with how many locks each time.
const KILLS: usize = 10;
const LOCKS: usize = 20;

/// Promises that were kept, and how much later their locks were free.
struct Promises {
    count: usize,
    least: Duration,
    most: Duration,
}

impl Promises {
    fn new() -> Self {
        Promises { count: 0, least: Duration::MAX, most: Duration::ZERO }
    }

    /// A lock is free, which was promised until a moment.
    fn is_free(&mut self, name: &str, promised: Instant) {
        let late = Instant::now().checked_duration_since(promised);
        let late = late.unwrap_or_else(|| panic!("{name} was free before its time"));
        self.count += 1;
        (self.least, self.most) = (self.least.min(late), self.most.max(late));
    }
}

impl fmt::Display for Promises {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Promises { count, least, most } = self;
        write!(f, "{count} promises were kept; free {least:?} to {most:?} later")
    }
}

/// A daemon that runs. It is killed when this is dropped.
struct Daemon {
    tool: Tool,
    /// What the names of its locks begin with in the table.
    prefix: String,
    child: Child,
    socket: PathBuf,
    /// The first one of TCP.
    address: Option<SocketAddr>,
}

impl Daemon {
    /// A daemon whose locks are its own.
    async fn new(tag: &str) -> Self {
        Daemon::with(tag, &[]).await
    }

    /// The same, with options.
    async fn with(tag: &str, options: &[&str]) -> Self {
        // Nodes for tests are small, and a keyspace for each of these would be too many.
        static KEYSPACE: OnceCell<Tool> = OnceCell::const_new();
        let tool = KEYSPACE.get_or_init(async || {
            let tool = Tool::initialized("lockd").await;
            tool.done(&["add", "web1"]).await;
            tool
        });
        let prefix = format!("{}::", support::unique(tag));
        Daemon::start(tool.await.clone(), prefix, socket(tag), options).await
    }

    /// One more daemon of the same locks.
    async fn another(&self, options: &[&str]) -> Self {
        Daemon::start(self.tool.clone(), self.prefix.clone(), socket("another"), options).await
    }

    /// The same, at the same socket.
    async fn next(&self) -> Self {
        self.next_with(&[]).await
    }

    /// The same, with options.
    async fn next_with(&self, options: &[&str]) -> Self {
        Daemon::start(self.tool.clone(), self.prefix.clone(), self.socket.clone(), options).await
    }

    /// The journals of the daemons at this socket.
    fn journals(&self) -> Vec<PathBuf> {
        let begin = self.socket.with_extension("journal.");
        let begin = begin.file_name().expect("it has a name").to_string_lossy().into_owned();
        let directory = self.socket.parent().expect("it is in a directory");
        let entries = std::fs::read_dir(directory).expect("it is there").flatten();
        let found = entries.filter(|it| it.file_name().to_string_lossy().starts_with(&begin));
        found.map(|entry| entry.path()).collect()
    }

    async fn start(tool: Tool, prefix: String, socket: PathBuf, options: &[&str]) -> Self {
        let mut command = tool.lockd_command(options);
        command.arg("--socket").arg(&socket).args(["--host", "web1", "--name-prefix", &prefix]);
        let mut child = command.stdout(Stdio::null()).spawn().expect("the daemon starts");
        let mut said = line(child.stderr.as_mut()).await;
        while said.contains("locks adopted") {
            said = line(child.stderr.as_mut()).await;
        }
        assert!(said.contains("serves at"), "{said}");
        let address = said.split_once(" and ").and_then(|(_, address)| address.parse().ok());
        Daemon { tool, prefix, child, socket, address }
    }

    /// Where it listens for TCP.
    fn address(&self) -> SocketAddr {
        self.address.expect("it listens for TCP")
    }

    /// A connection over TCP.
    fn connect_over_tcp(&self) -> Wire {
        Wire::over_tcp(self.address())
    }

    /// A connection.
    fn connect(&self) -> Wire {
        Wire::connect(&self.socket)
    }

    /// Sends it a signal.
    fn send(&self, signal: rustix::process::Signal) {
        crate::command::send(&self.child, signal);
    }

    /// Waits until it has ended, and returns its exit code.
    async fn ended(&mut self) -> Option<i32> {
        let ended = pace::within_limit("the end of a daemon", self.child.wait()).await;
        ended.expect("it can be waited for").code()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have removed it.
        let _ = std::fs::remove_file(&self.socket);
        for journal in self.journals() {
            let _ = std::fs::remove_file(journal);
        }
    }
}

fn socket(tag: &str) -> PathBuf {
    std::env::temp_dir().join(format!("{}.sock", support::unique(tag)))
}

/// A time to live that no test waits for.
const LONG: &str = "30000";

/// Tries again and again until a lock is free; how long that took.
fn until_taken(wire: &mut Wire, words: &[&str]) -> Duration {
    let began = Instant::now();
    while wire.call(words).is_nil() {
        assert!(began.elapsed() < pace::limit(), "it stays taken");
        std::thread::sleep(Duration::from_millis(5));
    }
    began.elapsed()
}
