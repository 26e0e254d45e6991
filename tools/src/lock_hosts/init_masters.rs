//! `init` with `--masters`.

use std::time::Duration;

use bakery_lock::masters::{self, InitOptions, Initialized};
use bakery_lock::{Masters, MastersError};

use crate::connect::ConnectOptions;
use crate::failure::Failure;
use crate::output;

/// Creates the lock table on masters, or gives those that lost their data a place again.
pub(super) async fn init(
    connection: &ConnectOptions,
    masters: &Masters,
    (max_ttl, max_clock_skew, fresh): (Duration, Duration, bool),
) -> Result<(), Failure> {
    let lock_table = &connection.lock_table;
    let options = InitOptions::new()
        .lock_table(lock_table)
        .max_ttl(max_ttl)
        .max_clock_skew(max_clock_skew)
        .fresh(fresh);
    let Initialized { is_new, joined, wait, .. } = masters::init(masters, &options).await?;
    let mut text = String::new();
    if is_new {
        text.push_str(&format!("made lock table {lock_table} on {} masters\n", joined.len()));
    } else {
        for address in &joined {
            text.push_str(&format!("master {address} has a place again\n"));
        }
    }
    if joined.is_empty() {
        text.push_str(&format!("all masters have lock table {lock_table}\n"));
    } else if wait.is_zero() {
        text.push_str("they take part at once\n");
    } else {
        text.push_str(&format!(
            "they take part in {wait:?}, when all locks from before are over; if no client has \
             used them before, --fresh skips that\n"
        ));
    }
    output::print(&text)
}

impl From<MastersError> for Failure {
    fn from(error: MastersError) -> Self {
        let kind = match &error {
            MastersError::Address { .. }
            | MastersError::Count { .. }
            | MastersError::Name(_)
            | MastersError::Setting(_) => Failure::Usage,
            MastersError::Unfit { .. } | MastersError::Interrupted => Failure::Unreachable,
            MastersError::NotInitialised { .. }
            | MastersError::OtherCount { .. }
            | MastersError::Differs { .. }
            | _ => Failure::No,
        };
        kind(Box::new(error))
    }
}
