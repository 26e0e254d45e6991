//! Resolves Cassandra's jars with Maven, once per release.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use rustix::fs::FlockOperation;

use crate::ClusterError;
use crate::paths::ClusterPaths;

/// The project file, which is the only place that sets the release.
const POM: &str = include_str!("../pom.xml");

/// The release of Apache Cassandra in [`POM`].
pub(crate) fn cassandra_version() -> &'static str {
    POM.split_once("<cassandra.version>")
        .and_then(|(_, rest)| rest.split_once("</cassandra.version>"))
        .map(|(version, _)| version)
        .expect("the committed pom.xml has the property cassandra.version")
}

/// Ensures that the jars exist, and prints a line to standard error if they must be fetched.
///
/// If several processes call this at once, one fetches the jars and the others wait. The directory
/// is renamed when it is complete, so an interrupted attempt leaves no usable directory.
pub(crate) fn resolve(paths: &ClusterPaths) -> Result<(), ClusterError> {
    let jars = paths.jars();
    if jars.exists() {
        return Ok(());
    }
    let root = paths.root();
    fs::create_dir_all(root).map_err(ClusterError::io(format!("create {}", root.display())))?;
    let lock_path = root.join("lib.lock");
    let lock = File::create(&lock_path)
        .map_err(ClusterError::io(format!("create {}", lock_path.display())))?;
    rustix::fs::flock(&lock, FlockOperation::LockExclusive)
        .map_err(|error| ClusterError::io("lock lib.lock")(error.into()))?;
    if jars.exists() {
        return Ok(());
    }
    let partial = root.join("lib.partial");
    if partial.exists() {
        fs::remove_dir_all(&partial)
            .map_err(ClusterError::io(format!("remove {}", partial.display())))?;
    }
    fs::create_dir(&partial).map_err(ClusterError::io(format!("create {}", partial.display())))?;
    copy_dependencies(&partial)?;
    fs::rename(&partial, &jars).map_err(ClusterError::io(format!("create {}", jars.display())))
}

/// Runs Maven, and shows the number of fetched files on a terminal.
fn copy_dependencies(directory: &Path) -> Result<(), ClusterError> {
    let pom = directory.join("pom.xml");
    fs::write(&pom, POM).map_err(ClusterError::io(format!("write {}", pom.display())))?;
    let mut maven = Command::new("mvn")
        .args(["-B", "-Dstyle.color=never", "dependency:copy-dependencies"])
        .arg("-DincludeScope=runtime")
        .arg(format!("-DoutputDirectory={}", directory.display()))
        .arg("-f")
        .arg(&pom)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|_| ClusterError::MissingProgram {
            program: "mvn".to_owned(),
            package: "maven",
        })?;
    let title = format!("resolving Apache Cassandra {} with Maven, once", cassandra_version());
    let progress = progress(&title);
    let output = maven.stdout.take().expect("the output is piped");
    let mut messages = Vec::new();
    for line in BufReader::new(output).lines() {
        let line = line.map_err(ClusterError::io("read the output of mvn"))?;
        if line.contains("Downloaded from") {
            progress.inc(1);
        } else {
            messages.push(line);
        }
    }
    let status = maven.wait().map_err(ClusterError::io("wait for mvn"))?;
    progress.finish_and_clear();
    if status.success() {
        return Ok(());
    }
    let errors: Vec<&str> =
        messages.iter().map(String::as_str).filter(|line| line.starts_with("[ERROR]")).collect();
    let output = if errors.is_empty() { messages.join("\n") } else { errors.join("\n") };
    Err(ClusterError::Artifacts(format!("{status}\n{output}")))
}

/// The progress bar is drawn only on terminals; elsewhere, a line explains the wait. It is written
/// to standard error directly, because test harnesses capture the output of `eprintln!`.
fn progress(title: &str) -> ProgressBar {
    let bar = ProgressBar::new_spinner().with_message(title.to_owned());
    bar.set_style(
        ProgressStyle::with_template("{spinner} {msg}: {pos} files in {elapsed}")
            .expect("the template is constant"),
    );
    bar.enable_steady_tick(Duration::from_millis(200));
    if bar.is_hidden() {
        // A closed standard error must not fail the start.
        let _ = writeln!(std::io::stderr(), "{title} (about 70 MB)");
    }
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pom_sets_a_release() {
        let version = cassandra_version();
        assert!(version.starts_with("5.0."), "{version}");
        assert!(version.split('.').all(|part| part.parse::<u32>().is_ok()), "{version}");
    }
}
