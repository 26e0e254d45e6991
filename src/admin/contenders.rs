//! The contenders that hold a lock or wait for it.

use crate::admin::types::ContenderInfo;
use crate::client::LockClient;
use crate::context::retry::until_answered;
use crate::error::TableError;
use crate::options::check_name;

impl LockClient {
    /// The contenders that hold the lock of `name` or wait for it now, in the order of the queue.
    ///
    /// Contenders without a ticket come before the others: each of them may hold the lock, or be
    /// about to draw a ticket. [`ContenderInfo::state`] says which of them holds it, and
    /// [`ContenderInfo::overdue`] whether it seems to be dead. If clients are peers,
    /// [`queue`](Self::queue) says who uses the lock now. The call costs one read of the whole
    /// object, the most expensive operation, so don't poll it.
    ///
    /// # Errors
    ///
    /// See [`TableError`]. Nothing is changed in any case.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    ///
    /// # Example
    ///
    /// ```
    /// # use bakery_lock::{LockClient, MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let store = MemoryStore::new();
    /// # let client = LockClient::builder_in_memory(&store).register_host(true).build().await?;
    /// let _guard = client.lock("users::snap").await?;
    /// for contender in client.contenders("users::snap").await? {
    ///     println!("{} with ticket {:?}", contender.owner, contender.ticket);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn contenders(&self, name: &str) -> Result<Vec<ContenderInfo>, TableError> {
        check_name(name)?;
        let table = &self.shared().store.rows;
        let mut last_error = None;
        let rows = until_answered(|| table.read_with_times(name), &mut last_error);
        let rows = self.unless_interrupted(rows).await;
        let rows = rows.map_err(|interruption| interruption.on_table(name, last_error))?;
        let rows = rows.map_err(|cause| TableError::Refused { name: name.to_owned(), cause })?;
        let now = self.shared().clock.unix_micros();
        Ok(ContenderInfo::all(rows, now, self.inner.max_clock_skew))
    }
}
