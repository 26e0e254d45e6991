//! The contenders that hold a lock or wait for it.

use crate::admin::types::ContenderInfo;
use crate::client::{Interruption, LockClient};
use crate::context::retry::until_answered;
use crate::error::TableError;
use crate::options::{InvalidOption, check_name};
use crate::store::DatabaseError;

/// Why contenders were not read.
pub(crate) enum ReadFailure {
    /// The name is invalid.
    Option(InvalidOption),
    /// The database refuses the read.
    Refused(DatabaseError),
    /// The read did not finish; with the last error of the database.
    Interrupted(Interruption, Option<DatabaseError>),
}

impl ReadFailure {
    /// The error of a request to the lock table.
    fn on_table(self, name: &str) -> TableError {
        match self {
            ReadFailure::Option(invalid) => TableError::Option(invalid),
            ReadFailure::Refused(cause) => {
                TableError::Refused { name: Some(name.to_owned()), cause }
            }
            ReadFailure::Interrupted(interruption, cause) => {
                interruption.on_table(Some(name), cause)
            }
        }
    }
}

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
    /// # let client = LockClient::builder_in_memory(&store).build().await?;
    /// let _guard = client.lock("users::snap").await?;
    /// for contender in client.contenders("users::snap").await? {
    ///     println!("{} with ticket {:?}", contender.owner, contender.ticket);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn contenders(&self, name: &str) -> Result<Vec<ContenderInfo>, TableError> {
        self.contenders_in_table(&self.shared().table_name(name)).await
    }

    /// The same by the name in the table.
    pub(crate) async fn contenders_in_table(
        &self,
        name: &str,
    ) -> Result<Vec<ContenderInfo>, TableError> {
        let read = self.read_contenders(name).await;
        read.map_err(|failure| failure.on_table(name))
    }

    /// The same for callers that have an error of their own.
    pub(crate) async fn read_contenders(
        &self,
        name: &str,
    ) -> Result<Vec<ContenderInfo>, ReadFailure> {
        check_name(name).map_err(ReadFailure::Option)?;
        let table = &self.shared().store.rows;
        let mut last_error = None;
        let rows = until_answered(|| table.read_with_times(name), &mut last_error);
        let rows = self.unless_interrupted(rows).await;
        let rows = rows.map_err(|why| ReadFailure::Interrupted(why, last_error))?;
        let rows = rows.map_err(ReadFailure::Refused)?;
        let now = self.shared().clock.unix_micros();
        Ok(ContenderInfo::all(rows, now, self.inner.max_clock_skew))
    }
}

impl ContenderInfo {
    /// Whether this is a contender of that client, or of a clone of it.
    #[must_use]
    pub fn is_me(&self, client: &LockClient) -> bool {
        self.client == client.id()
    }
}
