//! A daemon of the bench.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use common::resp::Connection;
use rustix::process::{Pid, Signal, kill_process};
use uuid::Uuid;

use crate::Arguments;

/// The longest time for which the daemon may be busy with what a client left behind.
const BUSY_MAX: Duration = Duration::from_secs(300);

/// A daemon that sends the database no request for this long is at rest.
const REST: Duration = Duration::from_millis(300);

/// A daemon that runs. It is killed when this is dropped.
pub(crate) struct Daemon {
    child: Child,
    pub(crate) socket: PathBuf,
}

impl Daemon {
    pub(crate) fn start(arguments: &Arguments, options: &[&str]) -> Result<Self> {
        let programs = match &arguments.programs {
            Some(programs) => programs.clone(),
            // `target/release/deps/hostile-..`
            None => std::env::current_exe()?
                .ancestors()
                .nth(2)
                .context("this program is in no directory")?
                .to_owned(),
        };
        let program = |name: &str| {
            let mut command = Command::new(programs.join(name));
            command.args(["--nodes", &arguments.nodes, "--keyspace", &arguments.keyspace]);
            command
        };
        let init = ["init", "--replication", "3", "--max-ttl", &arguments.max_ttl];
        let init = program("lock-hosts").args(init).output();
        let init = init.context("build bakery-lock-tools first, in release mode")?;
        ensure!(init.status.success(), "{}", String::from_utf8_lossy(&init.stderr));
        let socket = std::env::temp_dir().join(format!("hostile-{}.sock", std::process::id()));
        let mut child = program("bakery-lockd")
            .args(["--host", "hostile", "--register-host", "--drain", "0"])
            // A killed daemon's locks stay taken for a while.
            .args(["--name-prefix", &format!("{}::", Uuid::new_v4().simple()), "--socket"])
            .arg(&socket)
            .args(options)
            .stderr(Stdio::piped())
            .spawn()?;
        let mut said = String::new();
        let stderr = child.stderr.take().context("it is a pipe")?;
        let mut lines = BufReader::new(stderr);
        lines.read_line(&mut said)?;
        // Pass its warnings on while it runs: a full pipe would block it.
        thread::spawn(move || std::io::copy(&mut lines, &mut std::io::stderr()));
        let daemon = Daemon { child, socket };
        ensure!(said.contains("serves at"), "{said}");
        Ok(daemon)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it sends the database nothing more, and says how long that took.
    pub(crate) fn rested(&self) -> Result<Duration> {
        let began = Instant::now();
        let (mut seen, mut last) = (self.figure("table_operations")?, Instant::now());
        while last.elapsed() < REST {
            ensure!(began.elapsed() < BUSY_MAX, "it does not come to rest");
            thread::sleep(Duration::from_millis(10));
            let now = self.figure("table_operations")?;
            if now != seen {
                (seen, last) = (now, Instant::now());
            }
        }
        Ok(last - began)
    }

    /// A figure of `INFO`.
    pub(crate) fn figure(&self, name: &str) -> Result<u64> {
        let mut connection = Connection::unix(&self.socket)?;
        connection.write(b"INFO\r\n")?;
        let mut answer = Vec::new();
        let mut buffer = [0; 4_096];
        loop {
            let count = connection.read(&mut buffer)?;
            ensure!(count > 0, "the daemon has closed the connection");
            answer.extend_from_slice(&buffer[..count]);
            let text = String::from_utf8_lossy(&answer);
            let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            if let Some(found) = found
                && text.ends_with("\r\n\r\n")
            {
                return Ok(found.parse()?);
            }
        }
    }

    /// Asks it to end, and says how long that took.
    pub(crate) fn end(mut self) -> Result<(Duration, ExitStatus)> {
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw).context("it has an id")?;
        let began = Instant::now();
        kill_process(pid, Signal::TERM)?;
        while began.elapsed() < BUSY_MAX {
            if let Some(status) = self.child.try_wait()? {
                return Ok((began.elapsed(), status));
            }
            thread::sleep(Duration::from_millis(5));
        }
        bail!("it does not end")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        remove(&self.socket);
    }
}

fn remove(socket: &Path) {
    let _ = std::fs::remove_file(socket);
}
