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
        let init = program("lock-hosts").args(["init", "--replication", "3"]).output();
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
        BufReader::new(stderr).read_line(&mut said)?;
        let daemon = Daemon { child, socket };
        ensure!(said.contains("serves at"), "{said}");
        Ok(daemon)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How many locks are held once that does not change any more.
    pub(crate) fn quiet(&self, settling: Duration) -> Result<u64> {
        thread::sleep(settling);
        self.figure("locks_held")
    }

    /// Waits until at most so many locks are held.
    pub(crate) fn quiet_at(&self, held: u64) -> Result<()> {
        let began = Instant::now();
        while self.figure("locks_held")? > held {
            ensure!(began.elapsed() < BUSY_MAX, "locks of a client that has gone are still held");
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
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
