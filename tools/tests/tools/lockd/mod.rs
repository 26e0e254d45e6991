//! `bakery-lockd`, as clients on its socket see it.

mod ended;
mod native;
mod operation;
mod redis;
mod several;
mod wire;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use support::pace;
use tokio::process::Child;

use self::wire::Wire;
use crate::command::{Tool, line};

/// A daemon that runs. It is killed when this is dropped.
struct Daemon {
    tool: Tool,
    child: Child,
    socket: PathBuf,
    /// The first one of TCP.
    address: Option<SocketAddr>,
}

impl Daemon {
    /// A daemon in a keyspace of its own.
    async fn new(tag: &str) -> Self {
        Daemon::with(tag, &[]).await
    }

    /// The same, with options.
    async fn with(tag: &str, options: &[&str]) -> Self {
        let tool = Tool::initialized(tag).await;
        tool.done(&["add", "web1"]).await;
        Daemon::beside(&tool, tag, options).await
    }

    /// One more daemon of a keyspace.
    async fn beside(tool: &Tool, tag: &str, options: &[&str]) -> Self {
        let socket = std::env::temp_dir().join(format!("{}.sock", support::unique(tag)));
        Daemon::at(tool, socket, options).await
    }

    /// One more daemon of a keyspace, whose socket is there.
    async fn at(tool: &Tool, socket: PathBuf, options: &[&str]) -> Self {
        let mut command = tool.lockd_command(options);
        command.arg("--socket").arg(&socket).args(["--host", "web1"]);
        let mut child = command.stdout(Stdio::null()).spawn().expect("the daemon starts");
        let said = line(child.stderr.as_mut()).await;
        assert!(said.contains("serves at"), "{said}");
        let address = said.split_once(" and ").and_then(|(_, address)| address.parse().ok());
        Daemon { tool: tool.clone(), child, socket, address }
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
    }
}

/// A time to live that no test waits for.
const LONG: &str = "30000";

/// Tries again and again until a lock is free; how long that took.
fn until_taken(wire: &mut Wire, words: &[&str]) -> Duration {
    let began = std::time::Instant::now();
    while wire.call(words).is_nil() {
        assert!(began.elapsed() < pace::limit(), "it stays taken");
        std::thread::sleep(Duration::from_millis(5));
    }
    began.elapsed()
}
