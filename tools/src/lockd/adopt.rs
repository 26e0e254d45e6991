//! Adopting the locks of daemons that have died: what they had promised for a time is known to the
//! next one, which releases it for its owners and ends it in time.
//!
//! The lock of a journal's file proves that its process has ended. Its rows are deleted only if
//! they were those of that process alone; otherwise they stay until they are over, and only the
//! daemon's own knowledge ends.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::NAME;
use super::daemon::Daemon;
use super::journal::{Orphan, Other};
use super::locks::Held;
use crate::output;

/// How often it is looked whether daemons have ended that lived when this one started.
const LOOK: Duration = Duration::from_millis(200);

/// Adopts the locks of all daemons with the same journal that have ended, now and in the background
/// those that end later: after a planned restart, the one before.
pub(super) fn adopt(daemon: &Arc<Daemon>) {
    let others = daemon.journal.others().unwrap_or_else(|error| {
        output::warn(&format!("journals of other daemons can't be found: {error}"));
        Vec::new()
    });
    let living = still_living(daemon, others);
    if !living.is_empty() {
        tokio::spawn(adopt_later(Arc::clone(daemon), living));
    }
}

async fn adopt_later(daemon: Arc<Daemon>, mut living: Vec<PathBuf>) {
    while !living.is_empty() && !daemon.is_ending.load(Ordering::Relaxed) {
        tokio::time::sleep(LOOK).await;
        living = still_living(&daemon, living);
    }
}

fn still_living(daemon: &Arc<Daemon>, mut others: Vec<PathBuf>) -> Vec<PathBuf> {
    others.retain(|other| lives(daemon, other));
    others
}

/// Whether another daemon lives. If not, its locks are adopted.
fn lives(daemon: &Arc<Daemon>, other: &Path) -> bool {
    match daemon.journal.look(other) {
        Ok(Other::Lives) => true,
        Ok(Other::Nothing) => false,
        Ok(Other::Died(mut estate)) => {
            let orphans = std::mem::take(&mut estate.orphans);
            let adopted = orphans.into_iter().filter_map(|orphan| adopt_one(daemon, orphan));
            let adopted = adopted.count();
            estate.finish();
            if adopted > 0 {
                output::note(&format!(
                    "{NAME}: locks adopted of a daemon that has ended: {adopted}"
                ));
            }
            false
        }
        Err(error) => {
            let path = other.display();
            output::warn(&format!("the journal {path} can't be read: {error}"));
            false
        }
    }
}

/// Adopts a lock, unless its rows are certainly over, or it was adopted before.
fn adopt_one(daemon: &Arc<Daemon>, orphan: Orphan) -> Option<()> {
    let Orphan { name, owner, promise, peer, place } = orphan;
    let is_over = promise.until.after(daemon.terms.ttl_max).left().is_zero();
    if is_over || daemon.locks.find(name.in_table(), &owner).is_some() {
        return None;
    }
    daemon.adopt(&Held::adopted(name, owner, promise, peer, place));
    Some(())
}
