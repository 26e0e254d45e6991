//! Settable clocks: a Java class from which a node's Cassandra reads the time. The class adds an
//! offset to the machine's clock, and reads it from a file that may change while the node runs.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::paths::ClusterPaths;
use crate::{ClusterError, java};

/// The class name; the class is in no package.
const CLASS: &str = "SettableClock";

const SOURCE: &str = include_str!("../java/SettableClock.java");

/// Compiles the class into the configuration directory, which is on the nodes' class path.
///
/// # Errors
///
/// [`ClusterError::NotStarted`]. If this Java has no compiler, the message says what to install.
pub(crate) fn compile(paths: &ClusterPaths) -> Result<(), ClusterError> {
    let directory = paths.configuration_directory();
    let source = directory.join(format!("{CLASS}.java"));
    fs::write(&source, SOURCE).map_err(ClusterError::io(format!("write {}", source.display())))?;
    let output = Command::new(java::program())
        .args(java::compiler_arguments(paths, &source, &directory))
        .stdin(Stdio::null())
        .output()
        .map_err(ClusterError::io("run the Java compiler"))?;
    if output.status.success() {
        return Ok(());
    }
    let output = [output.stdout, output.stderr].concat();
    Err(ClusterError::NotStarted(failure(&String::from_utf8_lossy(&output))))
}

/// Explains a failed compilation from the compiler's output.
fn failure(output: &str) -> String {
    // The missing module is jdk.compiler, or java.compiler, on which it depends.
    let reason = if output.contains("compiler not found") {
        "this Java has no compiler: install a JDK (Debian: openjdk-17-jdk-headless)"
    } else {
        "it could not be compiled"
    };
    format!("settable clocks need a Java class, but {reason}\n{}", output.trim())
}

/// The arguments that make a node use a settable clock controlled by the file `clock`.
pub(crate) fn arguments(clock: &Path) -> [String; 2] {
    [format!("-Dcassandra.clock={CLASS}"), format!("-Dsettable_clock.file={}", clock.display())]
}

/// Sets the clock controlled by the file `clock` this many seconds ahead.
pub(crate) fn set(clock: &Path, seconds_ahead: i32) -> Result<(), ClusterError> {
    // Replaced atomically, because the node may read the file at any time.
    let new = clock.with_extension("new");
    fs::write(&new, format!("{}\n", i64::from(seconds_ahead) * 1_000))
        .and_then(|()| fs::rename(&new, clock))
        .map_err(ClusterError::io(format!("write {}", clock.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offset_is_written_in_milliseconds() {
        let clock = std::env::temp_dir().join(format!("clock-{}", std::process::id()));
        for (seconds_ahead, written) in [(3, "3000\n"), (0, "0\n"), (-2, "-2000\n")] {
            set(&clock, seconds_ahead).unwrap();
            assert_eq!(fs::read_to_string(&clock).unwrap(), written);
        }
        fs::remove_file(&clock).unwrap();
    }

    #[test]
    fn source_matches_class_and_property() {
        assert!(SOURCE.contains(&format!("public final class {CLASS} ")));
        let [_, file] = arguments(Path::new("f"));
        let property = file.strip_prefix("-D").and_then(|rest| rest.split_once('=')).unwrap().0;
        assert!(SOURCE.contains(&format!("System.getProperty(\"{property}\")")));
    }

    #[test]
    fn missing_compiler_and_compile_error_differ() {
        let missing = "Error occurred during initialization of boot layer\n\
                       java.lang.module.FindException: Module jdk.compiler not found\n";
        assert!(failure(missing).contains("install a JDK"), "{}", failure(missing));
        let rejected = failure("SettableClock.java:1: error: ';' expected");
        assert!(!rejected.contains("install"), "{rejected}");
        assert!(rejected.ends_with("error: ';' expected"), "{rejected}");
    }
}
