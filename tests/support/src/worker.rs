//! Programs of one's own kind: a bench starts itself once more, for clients in other processes.
//! It may also start another build of itself, to compare the two.
//!
//! They talk in lines: orders go to a worker's standard input, its answers come from its standard
//! output.

use std::io::{self, BufRead, Error, Write};
use std::path::Path;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// A process of this very program, or of another build of it. It is killed when this value is
/// dropped.
pub struct Worker {
    child: Child,
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    /// Starts this program with these arguments, and more in its environment.
    pub fn start<const N: usize>(
        arguments: &[&str],
        environment: [(&str, String); N],
    ) -> io::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(arguments).envs(environment);
        Worker::spawn(command)
    }

    /// Starts another program that talks as this one does.
    pub fn start_other(program: &Path, arguments: &[&str]) -> io::Result<Self> {
        let mut command = Command::new(program);
        command.args(arguments);
        Worker::spawn(command)
    }

    fn spawn(mut command: Command) -> io::Result<Self> {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
        let orders = child.stdin.take().expect("its input is a pipe");
        let answers = BufReader::new(child.stdout.take().expect("its output is a pipe")).lines();
        Ok(Worker { child, orders, answers })
    }

    /// Gives it an order.
    pub async fn tell(&mut self, order: &str) -> io::Result<()> {
        self.orders.write_all(format!("{order}\n").as_bytes()).await
    }

    /// Its next answer.
    pub async fn answer(&mut self) -> io::Result<String> {
        let answer = self.answers.next_line().await?;
        answer.ok_or_else(|| Error::new(io::ErrorKind::UnexpectedEof, "a worker has ended"))
    }

    /// Its process id, until it has ended.
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Lets it end: there are no more orders.
    pub async fn end(self) -> io::Result<()> {
        let Worker { mut child, orders, .. } = self;
        drop(orders);
        let status = child.wait().await?;
        if status.success() {
            Ok(())
        } else {
            Err(Error::other(format!("a worker failed: {status}")))
        }
    }
}

/// The next order to this process; `None` if there are no more.
pub async fn next_order() -> io::Result<Option<String>> {
    let read = || {
        let mut line = String::new();
        io::stdin().lock().read_line(&mut line)?;
        Ok((!line.is_empty()).then_some(line))
    };
    tokio::task::spawn_blocking(read).await.map_err(Error::other)?
}

/// Answers an order.
pub fn say(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}
