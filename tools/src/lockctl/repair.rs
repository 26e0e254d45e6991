//! `repair`.

use bakery_lock::LockClient;
use clap::Args;
use serde_json::json;

use crate::failure::Failure;
use crate::options::lock_name;
use crate::output::{self, visible};

/// Replace the mark of a lock that was written by hand, so that clients get the lock again
///
/// Clients that sweep dead rows mark up to when they do, and others begin above that mark. One that
/// no clock shows was written by hand, and every request fails: the mark is ahead, more than any
/// clock shows. The mark that replaces it is like those of clients, so this is safe at any time,
/// also while clients hold the lock or wait for it.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  lockctl repair users::snap")]
pub(super) struct RepairOptions {
    /// What is locked
    #[arg(value_parser = lock_name)]
    name: String,

    /// Print JSON: an object with `name` and `repaired`, which is false if there was nothing to
    /// repair
    #[arg(long)]
    json: bool,
}

/// Repairs one lock.
pub(super) async fn repair(client: &LockClient, options: &RepairOptions) -> Result<(), Failure> {
    let RepairOptions { name, json } = options;
    let repaired = client.repair_mark(name).await?;
    if *json {
        return output::print_json(&json!({ "name": name, "repaired": repaired }));
    }
    let name = visible(name);
    output::print(&if repaired {
        format!("the mark of {name} was replaced\n")
    } else {
        format!("{name} needs no repair\n")
    })
}
