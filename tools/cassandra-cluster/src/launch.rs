//! Connects to a cluster's supervisor, and starts it if needed.

use std::fs::{self, File};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use crate::paths::{self, ClusterPaths};
use crate::protocol::{self, Reply, Request};
use crate::{ClusterError, artifacts, java, log};

/// The hidden subcommand that supervises a cluster.
pub(crate) const SUPERVISE: &str = "supervise";

/// How long to wait for a supervisor, including the exit of an earlier one.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// How often to send the request if supervisors exit before they reply.
const MAX_ATTEMPTS: u32 = 5;
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Where to get the program `cassandra-cluster`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ProgramSource {
    /// Use the program of this process.
    Current,
    /// Build it with cargo: tests of other packages only link the library.
    Built,
}

/// Sends a request to the supervisor of the cluster with these `paths`, and starts the supervisor
/// if needed. Returns the connection when the request has succeeded. The open connection is a
/// lease.
pub(crate) fn open(
    paths: &ClusterPaths,
    program: ProgramSource,
    request: &Request,
) -> Result<UnixStream, ClusterError> {
    for _ in 0..MAX_ATTEMPTS {
        let stream = connect_or_start(paths, program)?;
        match protocol::exchange(&stream, request)? {
            Some(Reply::Done) => return Ok(stream),
            Some(Reply::Failed(failure)) => return Err(failure.into()),
            Some(Reply::Status(_)) => {
                unreachable!("only status requests return a status")
            }
            // The supervisor has just exited.
            None => {}
        }
    }
    Err(ClusterError::SupervisorGone { log: paths.supervisor_log() })
}

fn connect_or_start(
    paths: &ClusterPaths,
    program: ProgramSource,
) -> Result<UnixStream, ClusterError> {
    if let Some(stream) = protocol::connect(paths)? {
        return Ok(stream);
    }
    java::check()?;
    artifacts::resolve(paths)?;
    let program = match program {
        ProgramSource::Current => {
            std::env::current_exe().map_err(ClusterError::io("find this program"))?
        }
        ProgramSource::Built => build()?,
    };
    let deadline = Instant::now() + CONNECT_TIMEOUT;
    while Instant::now() < deadline {
        let mut supervisor = spawn(paths, &program)?;
        let connected = connect_while_alive(paths, &mut supervisor, deadline)?;
        if let Some(stream) = connected {
            // The supervisor usually outlives this process. If not, this thread reaps it.
            thread::spawn(move || supervisor.wait());
            return Ok(stream);
        }
    }
    Err(ClusterError::NotStarted(format!(
        "could not connect to a supervisor; {}",
        log::tail(&paths.supervisor_log())
    )))
}

fn spawn(paths: &ClusterPaths, program: &PathBuf) -> Result<Child, ClusterError> {
    let directory = paths.directory();
    fs::create_dir_all(&directory)
        .map_err(ClusterError::io(format!("create {}", directory.display())))?;
    let log = paths.supervisor_log();
    let output = File::options()
        .create(true)
        .append(true)
        .open(&log)
        .map_err(ClusterError::io(format!("open {}", log.display())))?;
    let errors = output.try_clone().map_err(ClusterError::io("share the supervisor's log"))?;
    Command::new(program)
        .arg(SUPERVISE)
        .arg(paths.root())
        .arg(paths.name())
        .current_dir(&directory)
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors)
        .spawn()
        .map_err(ClusterError::io(format!("start {}", program.display())))
}

/// Connects to any supervisor of the cluster. `None` if `supervisor` has exited because another one
/// holds the lock; that one may be about to exit.
fn connect_while_alive(
    paths: &ClusterPaths,
    supervisor: &mut Child,
    deadline: Instant,
) -> Result<Option<UnixStream>, ClusterError> {
    while Instant::now() < deadline {
        if let Some(stream) = protocol::connect(paths)? {
            return Ok(Some(stream));
        }
        thread::sleep(POLL_INTERVAL);
        let exited = supervisor.try_wait().map_err(ClusterError::io("wait for the supervisor"))?;
        match exited {
            Some(status) if status.success() => return Ok(None),
            Some(status) => {
                let tail = log::tail(&paths.supervisor_log());
                return Err(ClusterError::NotStarted(format!(
                    "the supervisor failed ({status}); {tail}"
                )));
            }
            None => {}
        }
    }
    Ok(None)
}

/// Builds the program with cargo once per process, in the profile that this library has in tests or
/// benches, and returns its path.
fn build() -> Result<PathBuf, ClusterError> {
    static BUILT: Mutex<Option<PathBuf>> = Mutex::new(None);
    let mut built = BUILT.lock().expect("no thread panics while it builds");
    if let Some(program) = &*built {
        return Ok(program.clone());
    }
    let profile = if cfg!(debug_assertions) { "test" } else { "release" };
    let mut cargo = Command::new(paths::cargo());
    cargo
        // Without `--workspace`, cargo would recompile dependencies with different features.
        .args(["build", "--workspace", "--bin", "cassandra-cluster", "--profile", profile])
        .args(["--manifest-path", paths::MANIFEST])
        .arg("--message-format=json-render-diagnostics");
    let output =
        cargo.stdin(Stdio::null()).output().map_err(ClusterError::io("run cargo build"))?;
    let program = String::from_utf8_lossy(&output.stdout).lines().find_map(executable);
    match program {
        Some(program) if output.status.success() => Ok(built.insert(program).clone()),
        Some(_) | None => Err(ClusterError::Build(format!(
            "cargo build failed ({})\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        ))),
    }
}

/// The executable in a line of cargo's messages.
fn executable(line: &str) -> Option<PathBuf> {
    let message: serde_json::Value = serde_json::from_str(line).ok()?;
    message["executable"].as_str().map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executable_is_found_in_cargo_messages() {
        let library = r#"{"reason":"compiler-artifact","executable":null}"#;
        let program = r#"{"reason":"compiler-artifact","executable":"/t/debug/cassandra-cluster"}"#;
        assert_eq!(executable(library), None);
        assert_eq!(executable("warning: not JSON"), None);
        assert_eq!(executable(program), Some(PathBuf::from("/t/debug/cassandra-cluster")));
    }
}
