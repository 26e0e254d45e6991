//! Sweeps of an object whose reads meet very many dead rows: those of clients that left or died.

use std::sync::Arc;

use tracing::{Instrument, debug};

use super::Runner;
use crate::engine::shared::Shared;
use crate::protocol::{Change, Read, StoredRow, Write, sweep};
use crate::store::{DatabaseError, Seen};

impl Runner {
    /// Begins a sweep, if one is of use by the rows of a read that calls for it. It goes on beside
    /// the operations of the contender, and delays none.
    pub(super) fn consider_sweep(&mut self, rows: &[StoredRow]) {
        let Some(wanted) = &self.wanted else {
            return;
        };
        let now = self.shared.now().stamp;
        let horizon = sweep::horizon(rows, now, wanted.terms.max_clock_skew());
        if let (Some(horizon), None) = (horizon, &self.sweep) {
            let span = self.span().clone();
            let sweep = sweep(Arc::clone(&self.shared), Arc::clone(&self.object), horizon);
            self.sweep = Some(Box::pin(sweep.instrument(span)));
        }
    }
}

/// Whether a read calls for a sweep: if it met very many dead rows; and, from time to time, if it
/// shows that the object was swept before.
pub(super) fn is_called_for(shared: &Shared, read: Read, seen: &Seen) -> bool {
    let by_chance = || shared.entropy.jitter() < sweep::SHARE_OF_READS;
    seen.many_dead || read == Read::Object && sweep::was_swept(&seen.rows) && by_chance()
}

/// Sweeps what was written up to the horizon. Each step is one try: a later read warns again.
async fn sweep(shared: Arc<Shared>, object: Arc<str>, horizon: i64) {
    match steps(&shared, &object, horizon).await {
        Ok(true) => debug!(horizon, "swept the rows of clients that left or died"),
        Ok(false) => debug!(horizon, "not swept: a contender has an earlier round"),
        Err(error) => debug!(%error, horizon, "a sweep was given up"),
    }
}

/// Whether the object could be swept. An error ends it at any step: what was sent may be applied
/// later, which is harmless.
async fn steps(shared: &Shared, object: &str, horizon: i64) -> Result<bool, DatabaseError> {
    let store = &shared.store;
    store.write(object, &Write { stamp: horizon, change: Change::Mark }).await?;
    let seen = store.read(object, Read::Object).await?;
    let is_clear = sweep::is_clear(&seen.rows, horizon);
    if is_clear {
        store.write(object, &Write { stamp: horizon, change: Change::Sweep }).await?;
    }
    Ok(is_clear)
}
