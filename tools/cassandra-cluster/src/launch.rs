//! Finds the supervisor of a cluster, or starts it.

use std::fs::{self, File};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use crate::place::{self, Place};
use crate::protocol::{self, Reply, Request};
use crate::{ClusterError, artifacts, java, log};

/// The hidden subcommand that supervises a cluster.
pub(crate) const SUPERVISE: &str = "supervise";

/// How long a supervisor may take to answer, including the end of an earlier one that is stopping.
const LIMIT: Duration = Duration::from_secs(30);
/// How often to try again when a supervisor ends between connecting and its reply.
const ATTEMPTS: u32 = 5;
const POLL: Duration = Duration::from_millis(20);

/// Where the program `cassandra-cluster` comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Program {
    /// It is the program of this process.
    Current,
    /// Cargo builds it: another package's tests have only the library.
    Built,
}

/// Asks the supervisor of the cluster at `place`, started if needed, and returns the connection
/// once the request is fulfilled. The open connection is a lease.
pub(crate) fn open(
    place: &Place,
    program: Program,
    request: &Request,
) -> Result<UnixStream, ClusterError> {
    for _ in 0..ATTEMPTS {
        let stream = reach(place, program)?;
        match protocol::ask(&stream, request)? {
            Some(Reply::Done) => return Ok(stream),
            Some(Reply::Failed(failure)) => return Err(failure.into()),
            Some(Reply::Status(_)) => {
                unreachable!("only a request for the status is answered with it")
            }
            // The supervisor ended at this moment.
            None => {}
        }
    }
    Err(ClusterError::SupervisorGone { log: place.supervisor_log() })
}

fn reach(place: &Place, program: Program) -> Result<UnixStream, ClusterError> {
    if let Some(stream) = protocol::connect(place)? {
        return Ok(stream);
    }
    java::check()?;
    artifacts::resolve(place)?;
    let program = match program {
        Program::Current => {
            std::env::current_exe().map_err(ClusterError::io("find this program"))?
        }
        Program::Built => build()?,
    };
    let deadline = Instant::now() + LIMIT;
    while Instant::now() < deadline {
        let mut supervisor = spawn(place, &program)?;
        let connected = connect_while_alive(place, &mut supervisor, deadline)?;
        if let Some(stream) = connected {
            // It usually outlives this process. If it does not, this thread reaps it.
            thread::spawn(move || supervisor.wait());
            return Ok(stream);
        }
    }
    Err(ClusterError::NotStarted(format!(
        "no supervisor answers; {}",
        log::tail(&place.supervisor_log())
    )))
}

fn spawn(place: &Place, program: &PathBuf) -> Result<Child, ClusterError> {
    let directory = place.directory();
    fs::create_dir_all(&directory)
        .map_err(ClusterError::io(format!("create {}", directory.display())))?;
    let log = place.supervisor_log();
    let output = File::options()
        .create(true)
        .append(true)
        .open(&log)
        .map_err(ClusterError::io(format!("open {}", log.display())))?;
    let errors = output.try_clone().map_err(ClusterError::io("share the supervisor's log"))?;
    Command::new(program)
        .arg(SUPERVISE)
        .arg(place.root())
        .arg(place.name())
        .current_dir(&directory)
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors)
        .spawn()
        .map_err(ClusterError::io(format!("start {}", program.display())))
}

/// Connects to whichever supervisor answers. `None` if the one just started has ended because there
/// is another one, which may be about to end.
fn connect_while_alive(
    place: &Place,
    supervisor: &mut Child,
    deadline: Instant,
) -> Result<Option<UnixStream>, ClusterError> {
    while Instant::now() < deadline {
        if let Some(stream) = protocol::connect(place)? {
            return Ok(Some(stream));
        }
        thread::sleep(POLL);
        let ended = supervisor.try_wait().map_err(ClusterError::io("wait for the supervisor"))?;
        match ended {
            Some(status) if status.success() => return Ok(None),
            Some(status) => {
                let tail = log::tail(&place.supervisor_log());
                return Err(ClusterError::NotStarted(format!(
                    "the supervisor ended with {status}; {tail}"
                )));
            }
            None => {}
        }
    }
    Ok(None)
}

/// Builds the program with cargo, in the profile of this library, and returns its path. Done once
/// per process.
fn build() -> Result<PathBuf, ClusterError> {
    static BUILT: Mutex<Option<PathBuf>> = Mutex::new(None);
    let mut built = BUILT.lock().expect("no thread panics while it builds");
    if let Some(program) = &*built {
        return Ok(program.clone());
    }
    let mut cargo = Command::new(place::cargo());
    cargo
        // Of the workspace, so that its dependencies are not compiled with other features.
        .args(["build", "--workspace", "--bin", "cassandra-cluster"])
        .args(["--manifest-path", place::MANIFEST])
        .arg("--message-format=json-render-diagnostics");
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    let output =
        cargo.stdin(Stdio::null()).output().map_err(ClusterError::io("run cargo build"))?;
    let program = String::from_utf8_lossy(&output.stdout).lines().find_map(executable);
    match program {
        Some(program) if output.status.success() => Ok(built.insert(program).clone()),
        Some(_) | None => Err(ClusterError::Build(format!(
            "cargo build ended with {}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        ))),
    }
}

/// The executable that a line of cargo's messages names.
fn executable(line: &str) -> Option<PathBuf> {
    let message: serde_json::Value = serde_json::from_str(line).ok()?;
    message["executable"].as_str().map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_executable_is_found_among_cargo_messages() {
        let library = r#"{"reason":"compiler-artifact","executable":null}"#;
        let program = r#"{"reason":"compiler-artifact","executable":"/t/debug/cassandra-cluster"}"#;
        assert_eq!(executable(library), None);
        assert_eq!(executable("warning: not JSON"), None);
        assert_eq!(executable(program), Some(PathBuf::from("/t/debug/cassandra-cluster")));
    }
}
