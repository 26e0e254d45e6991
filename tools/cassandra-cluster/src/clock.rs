//! A clock for one node that can be set while the node runs: a Java class that Cassandra asks for
//! the time instead of the machine. The class follows a file.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::place::Place;
use crate::{ClusterError, java};

/// The class, which has no package.
const CLASS: &str = "SettableClock";

const SOURCE: &str = include_str!("../java/SettableClock.java");

/// Compiles the class into the directory of the configuration, which is on the nodes' class path.
///
/// # Errors
///
/// [`ClusterError::NotStarted`], which says what to install if this Java has no compiler.
pub(crate) fn compile(place: &Place) -> Result<(), ClusterError> {
    let directory = place.configuration();
    let source = directory.join(format!("{CLASS}.java"));
    fs::write(&source, SOURCE).map_err(ClusterError::io(format!("write {}", source.display())))?;
    let output = Command::new(java::program())
        .args(java::compiler_arguments(place, &source, &directory))
        .stdin(Stdio::null())
        .output()
        .map_err(ClusterError::io("run the compiler of Java"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    Err(ClusterError::NotStarted(failure(&String::from_utf8_lossy(&said))))
}

/// Why there is no class, from the compiler's output.
fn failure(said: &str) -> String {
    // Either jdk.compiler is missing, or java.compiler below it.
    let why = if said.contains("compiler not found") {
        "this Java has no compiler: install a JDK (Debian: openjdk-17-jdk-headless)"
    } else {
        "the compiler refuses it"
    };
    format!("a node whose clock can be set needs a class in Java, and {why}\n{}", said.trim())
}

/// The arguments that make a node use the clock that follows the file `clock`.
pub(crate) fn arguments(clock: &Path) -> [String; 2] {
    [format!("-Dcassandra.clock={CLASS}"), format!("-Dsettable_clock.file={}", clock.display())]
}

/// Sets the clock that follows a file this many seconds ahead.
pub(crate) fn set(clock: &Path, seconds_ahead: i32) -> Result<(), ClusterError> {
    // The node may read the file at any moment, and must not see half of it.
    let new = clock.with_extension("new");
    fs::write(&new, format!("{}\n", i64::from(seconds_ahead) * 1_000))
        .and_then(|()| fs::rename(&new, clock))
        .map_err(ClusterError::io(format!("write {}", clock.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_set_by_its_file_in_milliseconds() {
        let clock = std::env::temp_dir().join(format!("clock-{}", std::process::id()));
        for (seconds_ahead, written) in [(3, "3000\n"), (0, "0\n"), (-2, "-2000\n")] {
            set(&clock, seconds_ahead).unwrap();
            assert_eq!(fs::read_to_string(&clock).unwrap(), written);
        }
        fs::remove_file(&clock).unwrap();
    }

    #[test]
    fn the_source_is_that_of_the_class() {
        assert!(SOURCE.contains(&format!("public final class {CLASS} ")));
        let [_, file] = arguments(Path::new("f"));
        let property = file.strip_prefix("-D").and_then(|rest| rest.split_once('=')).unwrap().0;
        assert!(SOURCE.contains(&format!("System.getProperty(\"{property}\")")));
    }

    #[test]
    fn a_missing_compiler_differs_from_one_that_refuses() {
        let missing = "Error occurred during initialization of boot layer\n\
                       java.lang.module.FindException: Module jdk.compiler not found\n";
        assert!(failure(missing).contains("install a JDK"), "{}", failure(missing));
        let refused = failure("SettableClock.java:1: error: ';' expected");
        assert!(!refused.contains("install"), "{refused}");
        assert!(refused.ends_with("error: ';' expected"), "{refused}");
    }
}
