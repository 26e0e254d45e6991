//! A wrong clock for one node, by the library libfaketime.

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
    options.clock_offsets.values().try_for_each(|seconds| environment(*seconds).map(drop))
}

/// What the environment of a process has to say, so that its wall clock is this many seconds ahead.
///
/// Only the wall clock is: the virtual machine waits by its monotonic one, and would hang.
pub(crate) fn environment(
    seconds_ahead: i32,
) -> Result<[(&'static str, OsString); 3], ClusterError> {
    let library = library(Path::new(LIBRARIES)).ok_or_else(|| ClusterError::MissingProgram {
        program: format!("{LIBRARIES}/*/{LIBRARY}"),
        package: "libfaketime",
    })?;
    Ok([
        ("LD_PRELOAD", library.into_os_string()),
        ("FAKETIME", format!("{seconds_ahead:+}s").into()),
        ("DONT_FAKE_MONOTONIC", "1".into()),
    ])
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
}
