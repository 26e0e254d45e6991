//! Sweeps of an object whose reads meet very many dead rows: those of clients that left or died.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use tracing::{Instrument, debug, warn};

use super::Runner;
use crate::core::bakery::{Change, Read, Seen, StoredRow, Write, sweep};
use crate::engine::shared::Shared;
use crate::options::shown;
use crate::store::DatabaseError;

/// Before a sweep begins, up to this time passes at random, and the object is read again. Of many
/// clients that met the same dead rows, the first one has swept it by then.
const SPREAD: Duration = Duration::from_secs(1);

impl Runner {
    /// Begins a sweep, if one is of use by the rows of a read that calls for it. It goes on beside
    /// the operations of the contender, and delays none. While clocks are in doubt no object is
    /// swept.
    pub(super) fn consider_sweep(&mut self, rows: &[StoredRow], mark: Option<i64>) {
        let is_free = self.sweep.is_none() && !self.clocks_differ;
        if is_free && horizon(&self.shared, rows, mark).is_some() {
            let span = self.span().clone();
            let sweep = sweep(Arc::clone(&self.shared), Arc::clone(&self.object));
            self.sweep = Some(Box::pin(sweep.instrument(span)));
        }
    }

    /// Warns of a mark that only a wrong clock can have written, once.
    pub(super) fn look_at_mark(&mut self, mark: Option<i64>) {
        let Some(mark) = mark else {
            return;
        };
        let max_clock_skew = self.shared.longest_terms.max_clock_skew();
        let ahead = sweep::ahead(mark, self.shared.wall_clock(), max_clock_skew);
        if let Some(ahead) = ahead
            && !std::mem::replace(&mut self.warned_of_mark, true)
        {
            let object = shown(&self.object);
            warn!(
                parent: self.span(),
                object,
                ?ahead,
                "the mark of a sweep is ahead of the clock: the clock of a client was wrong"
            );
        }
    }
}

/// The horizon of a sweep by this client's clock.
fn horizon(shared: &Shared, rows: &[StoredRow], mark: Option<i64>) -> Option<i64> {
    sweep::horizon(rows, mark, shared.wall_clock(), shared.longest_terms.max_clock_skew())
}

/// Whether a read calls for a sweep: if it met very many dead rows; and, from time to time, if it
/// shows that the object was swept before. Only a whole read shows all rows that must stay.
pub(super) fn is_called_for(shared: &Shared, read: Read, seen: &Seen) -> bool {
    let by_chance = || shared.entropy.jitter() < sweep::SHARE_OF_READS;
    let was_swept = seen.statics.mark.is_some();
    read == Read::Object && (seen.many_dead || was_swept && by_chance())
}

/// Sweeps what was written up to the horizon. Each step is one try: a later read warns again.
async fn sweep(shared: Arc<Shared>, object: Arc<str>) {
    sleep(SPREAD.mul_f64(shared.entropy.jitter())).await;
    match steps(&shared, &object).await {
        Ok(Some(horizon)) => debug!(horizon, "swept the rows of clients that left or died"),
        Ok(None) => debug!("not swept: another client has, or too many contenders wait for long"),
        Err(error) => debug!(%error, "a sweep was given up"),
    }
}

/// The horizon, if the object could be swept. An error ends it at any step: what was sent may be
/// applied later, which is harmless.
async fn steps(shared: &Shared, object: &str) -> Result<Option<i64>, DatabaseError> {
    let store = &shared.store;
    let Seen { rows, statics, .. } = store.read(object, Read::Object).await?;
    let Some(horizon) = horizon(shared, &rows, statics.mark) else {
        return Ok(None);
    };
    store.write(object, &Write { stamp: horizon, change: Change::Mark }).await?;
    let Seen { rows, statics, .. } = store.read(object, Read::Object).await?;
    let Some(spared) = sweep::spared(&rows, statics.mark, horizon) else {
        return Ok(None);
    };
    store.write(object, &Write { stamp: horizon, change: Change::Sweep { spared } }).await?;
    Ok(Some(horizon))
}
