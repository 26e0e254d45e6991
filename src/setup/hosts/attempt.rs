//! One attempt at a change of the registry.

use std::time::Duration;

use super::{Host, HostRegistry, RegistryError};
use crate::driver::host::REGISTRAR;
use crate::error::LockError;
use crate::guard::LockGuard;
use crate::guard::grant::GuardState;
use crate::store::{DatabaseError, HostRow};

/// One attempt at a change, under the registry's lock.
pub(super) struct Attempt<'a> {
    pub(super) registry: &'a HostRegistry,
    pub(super) guard: &'a LockGuard,
    pub(super) name: &'a str,
    pub(super) written: Written,
}

impl Attempt<'_> {
    /// Adds the host, or finds it registered.
    pub(super) async fn add(&mut self) -> Result<Host, AttemptError> {
        let row = self.registry.table.read_host(self.name).await?;
        self.put(row).await
    }

    /// Adds the host, or finds it registered; `None` if it was removed.
    pub(super) async fn register(&mut self) -> Result<Option<Host>, AttemptError> {
        match self.registry.table.read_host(self.name).await? {
            Some(row) if row.removed_at_millis.is_some() => Ok(None),
            row => self.put(row).await.map(Some),
        }
    }

    /// Adds the host. `row` was read under this lock.
    async fn put(&mut self, row: Option<HostRow>) -> Result<Host, AttemptError> {
        let table = &self.registry.table;
        let next = table.read_next().await?;
        if let Some(row) = row.as_ref().filter(|row| row.number > next) {
            // The row was written by hand; its number would be given to another host.
            table.raise_next(row.number).await?;
        }
        let row = match row {
            Some(row) if row.removed_at_millis.is_none() => return Ok(Host::from(row)),
            Some(row) => HostRow { removed_at_millis: None, ..self.rewritten(row) },
            None => self.new_row(next).await?,
        };
        self.write(row).await
    }

    /// Removes the host, or finds it removed; `None` if it was never added.
    pub(super) async fn remove(&mut self) -> Result<Option<Host>, AttemptError> {
        match self.registry.table.read_host(self.name).await? {
            Some(row) if row.removed_at_millis.is_none() => self.take_out(row).await.map(Some),
            row => Ok(row.map(Host::from)),
        }
    }

    /// Removes the host if it was last seen before `limit`, in milliseconds since the Unix epoch;
    /// `None` if this call did not remove it.
    pub(super) async fn remove_inactive(
        &mut self,
        limit: i64,
    ) -> Result<Option<Host>, AttemptError> {
        let row = self.registry.table.read_host(self.name).await?;
        let unseen =
            |row: &HostRow| row.removed_at_millis.is_none() && row.last_seen_millis() < limit;
        match row.filter(unseen) {
            Some(row) => self.take_out(row).await.map(Some),
            None => Ok(None),
        }
    }

    /// Marks a host as removed. `row` was read under this lock.
    async fn take_out(&mut self, row: HostRow) -> Result<Host, AttemptError> {
        let removed_at_millis = Some(self.now_millis());
        self.write(HostRow { removed_at_millis, ..self.rewritten(row) }).await
    }

    /// A row with a number that no host ever had.
    ///
    /// The number is ours if its reservation was acknowledged while we held the lock: the next
    /// client with the lock reads it, and continues above it. Otherwise it is spent. `next` was
    /// read under this lock: no host has a larger number, because each number is reserved there
    /// before its row is written.
    async fn new_row(&self, next: i32) -> Result<HostRow, AttemptError> {
        let number = next.max(REGISTRAR).checked_add(1).ok_or(AttemptError::NoNumberLeft)?;
        self.registry.table.raise_next(number).await?;
        self.still_locked()?;
        Ok(HostRow {
            name: self.name.to_owned(),
            number,
            added_at_millis: self.now_millis(),
            removed_at_millis: None,
            seen_at_millis: None,
            stamp: self.registry.clock.unix_micros(),
        })
    }

    /// The row with a stamp that beats its old one, even if a host with a fast clock wrote that.
    fn rewritten(&self, row: HostRow) -> HostRow {
        let stamp = self.registry.clock.unix_micros();
        HostRow { stamp: stamp.max(row.stamp.saturating_add(1)), ..row }
    }

    /// Writes a host's row, and reads it back.
    async fn write(&mut self, row: HostRow) -> Result<Host, AttemptError> {
        let table = &self.registry.table;
        self.still_locked()?;
        self.written = Written::Perhaps;
        table.write_host(&row).await?;
        // A client may write `seen_at` at this moment; this change does not write it.
        let seen_at_millis = row.seen_at_millis;
        let read_back = table.read_host(self.name).await?;
        let read_back = read_back.map(|row| HostRow { seen_at_millis, ..row });
        if read_back.as_ref() == Some(&row) {
            Ok(Host::from(row))
        } else {
            Err(AttemptError::Overwritten)
        }
    }

    fn still_locked(&self) -> Result<(), AttemptError> {
        match self.guard.state() {
            GuardState::Held { .. } | GuardState::AtRisk { .. } | GuardState::Expiring { .. } => {
                Ok(())
            }
            GuardState::Lost(_) | GuardState::Released => Err(AttemptError::LockLost),
        }
    }

    fn now_millis(&self) -> i64 {
        self.registry.clock.unix_micros() / 1000
    }
}

/// Why an attempt did not end with a confirmed change.
#[derive(Clone, Debug)]
pub(super) enum AttemptError {
    /// The database failed.
    Database(DatabaseError),
    /// The registry's lock was lost meanwhile.
    LockLost,
    /// Our write was overwritten by a late write of a client that had lost the lock.
    Overwritten,
    /// All numbers are spent.
    NoNumberLeft,
}

impl AttemptError {
    /// Whether another attempt is bound to fail as well.
    pub(super) fn is_final(&self) -> bool {
        match self {
            AttemptError::Database(error) => error.is_permanent(),
            AttemptError::NoNumberLeft => true,
            AttemptError::LockLost | AttemptError::Overwritten => false,
        }
    }
}

impl From<DatabaseError> for AttemptError {
    fn from(error: DatabaseError) -> Self {
        AttemptError::Database(error)
    }
}

/// Whether any attempt sent a change of the host's row. A reserved number does not count: it does
/// no harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    Nothing,
    Perhaps,
}

impl Written {
    /// The error if the lock was not obtained.
    pub(super) fn unlocked(self, name: &str, waited: Duration, cause: LockError) -> RegistryError {
        match self {
            Written::Nothing => RegistryError::Locked(cause),
            Written::Perhaps => RegistryError::unconfirmed(name, waited, None),
        }
    }

    /// The error if the last attempt failed.
    pub(super) fn set_back(
        self,
        name: &str,
        waited: Duration,
        last_error: AttemptError,
    ) -> RegistryError {
        match (self, last_error) {
            (Written::Nothing, AttemptError::Database(cause)) => RegistryError::unread(cause),
            (_, AttemptError::NoNumberLeft) => RegistryError::NoNumberLeft,
            (Written::Perhaps, AttemptError::Database(cause)) => {
                RegistryError::unconfirmed(name, waited, Some(cause))
            }
            (_, AttemptError::LockLost | AttemptError::Overwritten) => {
                RegistryError::unconfirmed(name, waited, None)
            }
        }
    }
}
