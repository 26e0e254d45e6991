//! The paths of a cluster's files.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::ClusterError;
use crate::artifacts;

/// The environment variable that overrides the directory of all clusters.
pub(crate) const DIRECTORY_VARIABLE: &str = "CASSANDRA_CLUSTER_DIR";

/// This package's manifest, passed to cargo because the working directory may be anywhere.
pub(crate) const MANIFEST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");

/// The paths of one cluster's files. All are absolute.
#[derive(Clone, Debug)]
pub(crate) struct ClusterPaths {
    root: PathBuf,
    name: String,
}

impl ClusterPaths {
    /// The paths of the cluster `name`, below `CASSANDRA_CLUSTER_DIR` if set, otherwise below
    /// `cassandra-cluster` in cargo's target directory.
    pub(crate) fn find(name: &str) -> Result<Self, ClusterError> {
        let root = match std::env::var_os(DIRECTORY_VARIABLE) {
            Some(directory) if !directory.is_empty() => PathBuf::from(directory),
            Some(_) | None => target_directory()?.join("cassandra-cluster"),
        };
        Self::below(&root, name)
    }

    /// The paths of the cluster `name` below `root`.
    pub(crate) fn below(root: &Path, name: &str) -> Result<Self, ClusterError> {
        let root = std::path::absolute(root)
            .map_err(ClusterError::io(format!("resolve {}", root.display())))?;
        Ok(Self { root, name: name.to_owned() })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The parent directory of all clusters.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The directory of the jars, which all clusters share.
    pub(crate) fn jars(&self) -> PathBuf {
        self.root.join(format!("lib-{}", artifacts::cassandra_version()))
    }

    /// The directory of this cluster.
    pub(crate) fn directory(&self) -> PathBuf {
        self.root.join(&self.name)
    }

    /// The file that a running supervisor locks. It is never removed: a lock on a deleted file
    /// excludes no other process.
    pub(crate) fn lock_file(&self) -> PathBuf {
        self.directory().join("lock")
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory().join(SOCKET)
    }

    pub(crate) fn supervisor_log(&self) -> PathBuf {
        self.directory().join("supervisor.log")
    }

    /// The options with which the data on disk was written.
    pub(crate) fn options_file(&self) -> PathBuf {
        self.directory().join("options.json")
    }

    /// The directory of the logging configuration, which is on the class path.
    pub(crate) fn configuration_directory(&self) -> PathBuf {
        self.directory().join("conf")
    }

    /// The directory of node `number`, with its configuration and data.
    pub(crate) fn node_directory(&self, number: u8) -> PathBuf {
        self.directory().join(format!("node{number}"))
    }

    /// The file that sets the clock of node `number`, if it has a settable clock.
    pub(crate) fn clock_file(&self, number: u8) -> PathBuf {
        self.node_directory(number).join("clock")
    }

    /// The log of node `number`, across its restarts within one run of the cluster.
    pub(crate) fn node_log(&self, number: u8) -> PathBuf {
        self.directory().join("logs").join(format!("node{number}.log"))
    }
}

/// The file name of the socket in the cluster's directory.
pub(crate) const SOCKET: &str = "socket";

/// The cargo that runs this process, or else the one in `PATH`.
pub(crate) fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"))
}

fn target_directory() -> Result<PathBuf, ClusterError> {
    let output = Command::new(cargo())
        .args(["metadata", "--no-deps", "--format-version=1", "--manifest-path", MANIFEST])
        .stdin(Stdio::null())
        .output()
        .map_err(ClusterError::io("run cargo metadata"))?;
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    match metadata["target_directory"].as_str() {
        Some(directory) => Ok(PathBuf::from(directory)),
        None => Err(ClusterError::Build(format!(
            "cargo metadata returned no target directory; set {DIRECTORY_VARIABLE}. Its errors: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        ))),
    }
}
