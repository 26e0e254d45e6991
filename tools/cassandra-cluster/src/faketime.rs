//! A wrong clock for one node, by the library libfaketime. It follows a file, so that it can be set
//! while the node runs.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use crate::{ClusterError, ClusterOptions};

/// Debian keeps libraries in a directory of each architecture below this one.
const LIBRARIES: &str = "/usr/lib";

/// The library for programs with threads, below the directory of an architecture.
const LIBRARY: &str = "faketime/libfaketimeMT.so.1";

/// Makes sure that the library is there, if any node needs it.
pub(crate) fn check(options: &ClusterOptions) -> Result<(), ClusterError> {
    if options.clock_offsets.is_empty() { Ok(()) } else { preload().map(drop) }
}

/// What the environment of a process has to say, so that its wall clock follows a file.
///
/// Only the wall clock does: the virtual machine waits by its monotonic one, and would hang.
pub(crate) fn environment(clock: &Path) -> Result<[(&'static str, OsString); 5], ClusterError> {
    Ok([
        ("LD_PRELOAD", preload()?.into_os_string()),
        ("FAKETIME_TIMESTAMP_FILE", clock.into()),
        // How many seconds it may take to notice that the file is another one.
        ("FAKETIME_CACHE_DURATION", "1".into()),
        ("DONT_FAKE_MONOTONIC", "1".into()),
        // Else all waits with a time limit end at once, and each thread of the node spins.
        ("FAKETIME_FORCE_MONOTONIC_FIX", "0".into()),
    ])
}

/// Sets the clock that follows a file this many seconds ahead.
pub(crate) fn set(clock: &Path, seconds_ahead: i32) -> Result<(), ClusterError> {
    // The node reads it at any moment, and must not find half of it.
    let new = clock.with_extension("new");
    fs::write(&new, format!("{seconds_ahead:+}s\n"))
        .and_then(|()| fs::rename(&new, clock))
        .map_err(ClusterError::io(format!("write {}", clock.display())))
}

fn preload() -> Result<PathBuf, ClusterError> {
    library(Path::new(LIBRARIES)).ok_or_else(|| ClusterError::MissingProgram {
        program: format!("{LIBRARIES}/*/{LIBRARY}"),
        package: "libfaketime",
    })
}

fn library(libraries: &Path) -> Option<PathBuf> {
    let architectures = fs::read_dir(libraries).ok()?.filter_map(Result::ok);
    architectures.map(|architecture| architecture.path().join(LIBRARY)).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_found_below_some_architecture() {
        let libraries = std::env::temp_dir().join(format!("faketime-{}", std::process::id()));
        let architecture = libraries.join("some-linux-gnu");
        fs::create_dir_all(architecture.join("faketime")).unwrap();
        fs::create_dir_all(libraries.join("other")).unwrap();
        assert_eq!(library(&libraries), None);
        fs::write(architecture.join(LIBRARY), "").unwrap();
        assert_eq!(library(&libraries), Some(architecture.join(LIBRARY)));
        fs::remove_dir_all(&libraries).unwrap();
        assert_eq!(library(&libraries), None);
    }

    #[test]
    fn a_clock_is_set_by_its_file() {
        let clock = std::env::temp_dir().join(format!("clock-{}", std::process::id()));
        for (seconds_ahead, written) in [(3, "+3s\n"), (0, "+0s\n"), (-2, "-2s\n")] {
            set(&clock, seconds_ahead).unwrap();
            assert_eq!(fs::read_to_string(&clock).unwrap(), written);
        }
        fs::remove_file(&clock).unwrap();
    }
}
