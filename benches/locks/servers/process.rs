//! Server processes of the bench's own: started, frozen, killed, started again, and never left
//! behind.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use support::processor;

/// The hidden option by which the bench starts itself to become a server.
pub(crate) const EXECUTE: &str = "--execute";

/// How long servers may take until they answer.
pub(crate) const START_MAX: Duration = Duration::from_secs(60);

/// The address of server `number`, which counts from 0: 127.0.0.61 and following.
pub(crate) fn address(number: usize) -> Ipv4Addr {
    let last = u8::try_from(61 + number).expect("there are three servers");
    Ipv4Addr::new(127, 0, 0, last)
}

/// One server. It is killed when this value is dropped, and by the system when the bench ends for
/// any other reason.
#[derive(Debug)]
pub(crate) struct ServerProcess {
    command: Vec<String>,
    directory: PathBuf,
    listens: Vec<SocketAddr>,
    child: Child,
}

impl ServerProcess {
    /// Starts one in a new directory. Must be called on the bench's main thread, because the system
    /// ends servers with the thread that started them.
    pub(crate) fn start(
        directory: &Path,
        command: Vec<String>,
        listens: Vec<SocketAddr>,
    ) -> Result<Self> {
        for address in &listens {
            TcpListener::bind(address).with_context(|| {
                format!("{address} is in use: another benchmark may run, or its servers")
            })?;
        }
        let child = spawn(directory, &command)?;
        Ok(ServerProcess { command, directory: directory.to_owned(), listens, child })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The processor time that it has used.
    pub(crate) fn processor_time(&self) -> Result<Duration> {
        Ok(processor::time_of(self.pid())?)
    }

    /// Fails if it has ended by itself.
    pub(crate) fn check(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            let log = fs::read_to_string(log(&self.directory)).unwrap_or_default();
            let lines: Vec<_> = log.lines().collect();
            let tail = lines[lines.len().saturating_sub(10)..].join("\n");
            bail!("{} ended with {status}:\n{tail}", self.command[0]);
        }
        Ok(())
    }

    /// Kills it with `SIGKILL`, and waits for its end.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Starts it again, on its data.
    pub(crate) fn start_again(&mut self) -> Result<()> {
        self.child = spawn(&self.directory, &self.command)?;
        Ok(())
    }

    /// Freezes it: its connections stay open, and nothing answers.
    pub(crate) fn pause(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    /// Resumes it.
    pub(crate) fn resume(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    /// Where it listens for clients.
    pub(crate) fn listens(&self) -> SocketAddr {
        self.listens[0]
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_raw(self.pid().cast_signed()).context("a process has an id")?;
        Ok(kill_process(pid, signal)?)
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // It may have ended before.
        let _ = self.kill();
    }
}

/// An empty directory for the data of servers of a kind.
pub(crate) fn empty_directory(root: &Path, kind: &str) -> Result<PathBuf> {
    let directory = root.join(kind);
    if directory.exists() {
        fs::remove_dir_all(&directory)?;
    }
    fs::create_dir_all(&directory)?;
    Ok(directory)
}

/// The first line of what a program says about its version that has one of the words.
pub(crate) fn version(program: &str, arguments: &[&str], word: &str) -> Result<String> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "{program} {arguments:?}: {}", output.status);
    let line = said.lines().find(|line| line.contains(word));
    Ok(line.with_context(|| format!("{program} {arguments:?} said: {said}"))?.trim().to_owned())
}

/// Waits until something holds, for as long as servers may take to start.
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
    let began = Instant::now();
    loop {
        match holds().await {
            Ok(true) => return Ok(()),
            Ok(false) if began.elapsed() < START_MAX => {}
            Ok(false) => bail!("{what}: not within {START_MAX:?}"),
            Err(error) if began.elapsed() < START_MAX => drop(error),
            Err(error) => return Err(error.context(format!("{what}: not within {START_MAX:?}"))),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn spawn(directory: &Path, command: &[String]) -> Result<Child> {
    fs::create_dir_all(directory)?;
    let output = File::options().create(true).append(true).open(log(directory))?;
    // The link points to the running program even if a build has since replaced the file.
    let child = Command::new("/proc/self/exe")
        .arg(EXECUTE)
        .arg(std::process::id().to_string())
        .args(command)
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .spawn();
    child.with_context(|| format!("could not start {}", command[0]))
}

fn log(directory: &Path) -> PathBuf {
    directory.join("log")
}
