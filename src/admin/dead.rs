//! Releasing a lock for a holder that died (design section 5).

use crate::admin::round_rows::RoundRows;
use crate::admin::types::HeldPlace;
use crate::client::LockClient;
use crate::error::TableError;
use crate::options::check_name;

impl LockClient {
    /// Releases the lock of `name` for a holder whose process is dead: deletes the rows of its
    /// place, which [`LockHandle::place`](crate::LockHandle::place) said while it lived. Returns
    /// whether they were there; rows of another round stay.
    ///
    /// Unlike [`revoke_by_force`](Self::revoke_by_force), it does not ask the holder to leave, so a
    /// living one would not learn of it: **two would hold the lock**. Call it only if
    ///
    /// - the process that held the lock has certainly ended, as a lock on a file shows that the
    ///   process kept, and had not begun to release it,
    /// - it held the lock at a place of its own ([`HeldPlace::client`] is the
    ///   [id](Self::id) of its client), which no other client used, and
    /// - it held the lock alone, or as one of a limited number, and without a
    ///   [hold limit](crate::LockRequest::max_hold): otherwise others may use the place by now.
    ///
    /// # Errors
    ///
    /// See [`TableError`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the rows may or may not be there. Calling this again is harmless.
    ///
    /// # Example
    ///
    /// ```
    /// # use bakery_lock::{LockClient, MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let store = MemoryStore::new();
    /// # let client = LockClient::builder_in_memory(&store).build().await?;
    /// let guard = client.lock("users::snap").await?;
    /// let place = guard.place();
    /// std::mem::forget(guard); // Its process was killed.
    /// # let other = LockClient::builder_in_memory(&store).build().await?;
    /// assert!(other.release_for_dead("users::snap", &place).await?);
    /// assert!(other.try_lock("users::snap").await?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn release_for_dead(
        &self,
        name: &str,
        place: &HeldPlace,
    ) -> Result<bool, TableError> {
        let shared = self.shared();
        let name = &*shared.table_name(name);
        check_name(name)?;
        let (contender, round) = (place.contender(), place.round);
        let rows = RoundRows { shared, object: name, contender, round };
        let mut last_error = None;
        // Its last write may still be on its way, and must not win. It writes no further round.
        let stamp_above = |newest: i64| shared.wall_clock().max(newest.saturating_add(1));
        let deleted = self.unless_interrupted(rows.delete(stamp_above, &mut last_error)).await;
        deleted.map_err(|interruption| interruption.on_table(Some(name), last_error))?
    }
}
