//! The files of a cluster.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::ClusterError;
use crate::artifacts;

/// Overrides the directory of all clusters.
pub(crate) const DIRECTORY_VARIABLE: &str = "CASSANDRA_CLUSTER_DIR";

/// This package's manifest, for questions to cargo: the working directory may be anywhere.
pub(crate) const MANIFEST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");

/// The files of one cluster. All paths are absolute.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    root: PathBuf,
    name: String,
}

impl Place {
    /// The place of the cluster `name`: below `CASSANDRA_CLUSTER_DIR` if that is set, else below
    /// `cassandra-cluster` in cargo's target directory.
    pub(crate) fn find(name: &str) -> Result<Self, ClusterError> {
        let root = match std::env::var_os(DIRECTORY_VARIABLE) {
            Some(directory) if !directory.is_empty() => PathBuf::from(directory),
            Some(_) | None => target_directory()?.join("cassandra-cluster"),
        };
        Self::at(&root, name)
    }

    /// The place of the cluster `name` below `root`.
    pub(crate) fn at(root: &Path, name: &str) -> Result<Self, ClusterError> {
        let root = std::path::absolute(root)
            .map_err(ClusterError::io(format!("resolve {}", root.display())))?;
        Ok(Self { root, name: name.to_owned() })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The directory that all clusters share.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The jars, shared by all clusters.
    pub(crate) fn jars(&self) -> PathBuf {
        self.root.join(format!("lib-{}", artifacts::cassandra_version()))
    }

    /// The directory of this cluster.
    pub(crate) fn directory(&self) -> PathBuf {
        self.root.join(&self.name)
    }

    /// The file that a running supervisor locks. It is never removed: a lock on a file that another
    /// process can no longer find would protect nothing.
    pub(crate) fn lock(&self) -> PathBuf {
        self.directory().join("lock")
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory().join(SOCKET)
    }

    pub(crate) fn supervisor_log(&self) -> PathBuf {
        self.directory().join("supervisor.log")
    }

    /// The options of the data on disk.
    pub(crate) fn options(&self) -> PathBuf {
        self.directory().join("options.json")
    }

    /// The directory with the logging configuration, which is on the class path.
    pub(crate) fn configuration(&self) -> PathBuf {
        self.directory().join("conf")
    }

    /// Configuration and data of node `number`.
    pub(crate) fn node(&self, number: u8) -> PathBuf {
        self.directory().join(format!("node{number}"))
    }

    /// The file that the clock of node `number` follows, if not the machine's clock.
    pub(crate) fn clock(&self, number: u8) -> PathBuf {
        self.node(number).join("clock")
    }

    /// The log of node `number`, over all its restarts within one run of the cluster.
    pub(crate) fn node_log(&self, number: u8) -> PathBuf {
        self.directory().join("logs").join(format!("node{number}.log"))
    }
}

/// The name of the socket in the cluster's directory.
pub(crate) const SOCKET: &str = "socket";

/// The cargo that runs this process, if one does.
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
            "cargo metadata named no target directory; set {DIRECTORY_VARIABLE}. It said: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        ))),
    }
}
