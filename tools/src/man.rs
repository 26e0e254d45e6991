//! `man`, which all tools have, hidden: packagers run it once.

use std::fs;
use std::io;
use std::path::PathBuf;

use clap::{Args, CommandFactory};
use thiserror::Error;

use crate::failure::Failure;

/// Write the manual pages of this tool, one for each command
///
/// Needs no database. Files of the same names are replaced.
#[derive(Clone, Debug, Args)]
pub(crate) struct ManOptions {
    /// Where to write them; the directory is made if it is missing
    #[arg(long, value_name = "DIRECTORY")]
    dir: PathBuf,
}

#[derive(Debug, Error)]
#[error("the manual pages can't be written to {}", dir.display())]
struct ManError {
    dir: PathBuf,
    #[source]
    cause: io::Error,
}

/// Writes the pages of a tool.
pub(crate) fn write_pages<T: CommandFactory>(options: &ManOptions) -> Result<(), Failure> {
    let ManOptions { dir } = options;
    fs::create_dir_all(dir)
        .and_then(|()| clap_mangen::generate_to(T::command(), dir))
        .map_err(|cause| Failure::No(Box::new(ManError { dir: dir.clone(), cause })))
}
