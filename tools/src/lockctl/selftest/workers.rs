//! The processes that take locks, as the process that started them sees them.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::worker::{Told, WorkerOptions};
use crate::connect::ConnectOptions;
use crate::lockctl::process::this_program;

/// The processes of a run. Dropped, they are killed.
pub(super) struct Workers {
    /// By their numbers; `None` once they are to end.
    orders: Vec<Option<ChildStdin>>,
    pub(super) pids: Vec<u32>,
    heard: mpsc::UnboundedReceiver<(u16, Heard)>,
    listeners: JoinSet<()>,
}

/// What was heard of a process.
#[derive(Debug)]
pub(super) enum Heard {
    Told(Told),
    /// It said something else.
    Noise(String),
    /// It is gone.
    Ended(io::Result<ExitStatus>),
}

impl Workers {
    pub(super) fn start(
        connection: &ConnectOptions,
        options: impl Iterator<Item = WorkerOptions>,
    ) -> io::Result<Self> {
        let (sender, heard) = mpsc::unbounded_channel();
        let mut workers =
            Workers { orders: Vec::new(), pids: Vec::new(), heard, listeners: JoinSet::new() };
        for options in options {
            let mut child = command(connection, &options)?.spawn()?;
            workers.orders.push(child.stdin.take());
            workers.pids.push(child.id().unwrap_or(0));
            workers.listeners.spawn(listen(options.process, child, sender.clone()));
        }
        Ok(workers)
    }

    /// Has them begin.
    pub(super) async fn begin(&mut self) {
        for orders in self.orders.iter_mut().flatten() {
            // If one is gone, that is heard.
            let _ = orders.write_all(b"\n").await;
        }
    }

    /// Has them end.
    pub(super) fn end(&mut self) {
        self.orders.clear();
    }

    /// What is heard next, and of which process; `None` once all are gone.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> Option<(u16, Heard)> {
        self.heard.recv().await
    }

    /// Kills those that are left.
    pub(super) async fn kill(&mut self) {
        self.listeners.shutdown().await;
    }
}

/// A process in a group of its own: signals of the terminal are for the one that starts it.
fn command(connection: &ConnectOptions, options: &WorkerOptions) -> io::Result<Command> {
    let mut command = Command::new(this_program()?);
    command
        .arg0("lockctl")
        .arg("selftest-worker")
        .args(options.arguments())
        .args(connection.arguments())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    Ok(command)
}

async fn listen(number: u16, mut child: Child, heard: mpsc::UnboundedSender<(u16, Heard)>) {
    let mut lines = BufReader::new(child.stdout.take().expect("its output is a pipe")).lines();
    loop {
        let next = match lines.next_line().await {
            Ok(Some(line)) => match serde_json::from_str(&line) {
                Ok(told) => Heard::Told(told),
                Err(_) => Heard::Noise(line),
            },
            Ok(None) => break,
            Err(error) => Heard::Noise(error.to_string()),
        };
        if heard.send((number, next)).is_err() {
            return;
        }
    }
    let _ = heard.send((number, Heard::Ended(child.wait().await)));
}

/// How a process ended, in words.
pub(super) fn ending(status: &io::Result<ExitStatus>) -> String {
    match status {
        Ok(status) => match status.signal() {
            Some(signal) => format!("it was ended by signal {signal}"),
            None => format!("it ended too early, with exit code {}", status.code().unwrap_or(0)),
        },
        Err(error) => format!("it can't be waited for: {error}"),
    }
}

impl WorkerOptions {
    /// Itself, as arguments of the process.
    fn arguments(&self) -> Vec<String> {
        let WorkerOptions { run, process, load, seed, host } = self;
        let millis = |time: std::time::Duration| format!("{}ms", time.as_millis());
        let mut arguments = vec![
            format!("--run={run}"),
            format!("--process={process}"),
            format!("--callers={}", load.callers),
            format!("--names={}", load.names),
            format!("--hold={}", millis(load.hold)),
            format!("--wait={}", millis(load.wait)),
            format!("--seed={seed}"),
        ];
        arguments.extend(load.ttl.map(|ttl| format!("--ttl={}", millis(ttl))));
        arguments.extend(load.peers.then(|| "--peers".to_owned()));
        arguments.extend(host.host.as_ref().map(|host| format!("--host={host}")));
        arguments.extend(host.register_host.map(|register| format!("--register-host={register}")));
        arguments
    }
}
