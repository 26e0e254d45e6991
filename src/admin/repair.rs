//! Repairing the mark of a lock that was written by hand.

use tracing::debug;

use crate::client::LockClient;
use crate::context::retry::until_answered;
use crate::core::bakery::{Change, Write, sweep};
use crate::error::TableError;
use crate::options::check_name;
use crate::store::StoredMark;

impl LockClient {
    /// Replaces the mark of the lock of `name` if it was written by hand, and returns whether it
    /// was.
    ///
    /// A client that sweeps the rows of those that left writes a mark, and others begin above it,
    /// however wrong its clock was. Above a mark that no clock shows they can't: they fail with
    /// [`LockError::MarkOutOfReach`](crate::LockError::MarkOutOfReach). Such a mark was written by
    /// hand. It is replaced with an ordinary one, so this is safe at any time: holders and waiters
    /// stay what they are, and no sweep hides a row that counts.
    ///
    /// # Errors
    ///
    /// See [`TableError`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the mark may be replaced or not. Calling this again is harmless.
    ///
    /// # Example
    ///
    /// ```
    /// # use bakery_lock::{LockClient, MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let store = MemoryStore::new();
    /// # let client = LockClient::builder_in_memory(&store).build().await?;
    /// if client.repair_mark("users::snap").await? {
    ///     println!("its mark was written by hand");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn repair_mark(&self, name: &str) -> Result<bool, TableError> {
        let name = &*self.shared().table_name(name);
        check_name(name)?;
        let table = &self.shared().store.rows;
        let refused = |cause| TableError::Refused { name: Some(name.to_owned()), cause };
        let mut last_error = None;
        let repaired = self.unless_interrupted(async {
            let mark = until_answered(|| table.read_mark(name), &mut last_error).await;
            let Some(StoredMark { value, stamp }) = mark.map_err(refused)? else {
                return Ok(false);
            };
            let Some(stamp) = sweep::repaired(value, stamp) else {
                let is_in_reach = value <= sweep::MARK_MAX;
                let error = || TableError::MarkOutOfReach { name: name.to_owned() };
                return if is_in_reach { Ok(false) } else { Err(error()) };
            };
            let write = Write { stamp, change: Change::Mark };
            let written = until_answered(|| table.write(name, &write), &mut last_error).await;
            written.map_err(refused)?;
            debug!(object = name, value, stamp, "the mark was replaced");
            Ok(true)
        });
        let repaired = repaired.await;
        repaired.map_err(|interruption| interruption.on_table(Some(name), last_error))?
    }
}
