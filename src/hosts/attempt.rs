//! One try of a change of the registry.

use std::time::Duration;

use super::{Host, HostRegistry, REGISTRAR, RegistryError};
use crate::error::{DatabaseError, LockError};
use crate::guard::{GuardState, LockGuard};
use crate::store::{HostRow, Registry};

/// One try of a change, under the registry's lock.
pub(super) struct Attempt<'a> {
    pub(super) registry: &'a HostRegistry,
    pub(super) guard: &'a LockGuard,
    pub(super) name: &'a str,
    pub(super) written: Written,
}

impl Attempt<'_> {
    /// Adds the host, or finds it there.
    pub(super) async fn add(&mut self) -> Result<Host, Setback> {
        let registry = self.registry.store.read_registry().await?;
        let row = registry.hosts.iter().find(|host| host.name == self.name);
        let row = match row {
            Some(row) if row.removed_at_millis.is_none() => return Ok(Host::from(row.clone())),
            Some(row) => HostRow { removed_at_millis: None, ..self.rewritten(row) },
            None => self.new_row(&registry).await?,
        };
        self.write(row).await
    }

    /// Removes the host, or finds it removed; `None` when it was never added.
    pub(super) async fn remove(&mut self) -> Result<Option<Host>, Setback> {
        let registry = self.registry.store.read_registry().await?;
        let row = registry.hosts.iter().find(|host| host.name == self.name);
        match row {
            Some(row) if row.removed_at_millis.is_none() => {
                let row =
                    HostRow { removed_at_millis: Some(self.now_millis()), ..self.rewritten(row) };
                self.write(row).await.map(Some)
            }
            row => Ok(row.cloned().map(Host::from)),
        }
    }

    /// A row with a number that nobody ever had.
    ///
    /// The number is ours if its reservation was acknowledged while we held the lock: whoever gets
    /// the lock later reads it, and continues above. Otherwise it is spent.
    async fn new_row(&self, registry: &Registry) -> Result<HostRow, Setback> {
        let numbers = registry.hosts.iter().map(|host| host.number);
        let largest = numbers.fold(registry.next.max(REGISTRAR), i32::max);
        let number = largest.checked_add(1).ok_or(Setback::NoNumberLeft)?;
        self.registry.store.raise_next(number).await?;
        self.still_locked()?;
        Ok(HostRow {
            name: self.name.to_owned(),
            number,
            added_at_millis: self.now_millis(),
            removed_at_millis: None,
            stamp: self.registry.clock.unix_micros(),
        })
    }

    /// A row with a stamp that beats what it is made of, also when a host with a fast clock wrote
    /// that.
    fn rewritten(&self, row: &HostRow) -> HostRow {
        let stamp = self.registry.clock.unix_micros();
        HostRow { stamp: stamp.max(row.stamp.saturating_add(1)), ..row.clone() }
    }

    /// Writes a host's row, and reads it back.
    async fn write(&mut self, row: HostRow) -> Result<Host, Setback> {
        let store = &self.registry.store;
        self.still_locked()?;
        self.written = Written::Perhaps;
        store.write_host(&row).await?;
        let seen = store.read_registry().await?;
        if seen.hosts.contains(&row) { Ok(Host::from(row)) } else { Err(Setback::Overwritten) }
    }

    fn still_locked(&self) -> Result<(), Setback> {
        match self.guard.state() {
            GuardState::Held { .. } | GuardState::AtRisk { .. } | GuardState::Expiring { .. } => {
                Ok(())
            }
            GuardState::Lost(_) | GuardState::Released => Err(Setback::LockLost),
        }
    }

    fn now_millis(&self) -> i64 {
        self.registry.clock.unix_micros() / 1000
    }
}

/// Why a try did not end with a change that is known to be made.
#[derive(Clone, Debug)]
pub(super) enum Setback {
    /// The database failed.
    Database(DatabaseError),
    /// The registry's lock was lost on the way.
    LockLost,
    /// Somebody overwrote what we wrote: a late write of one who had lost the lock.
    Overwritten,
    /// All numbers are spent.
    NoNumberLeft,
}

impl Setback {
    /// Whether another try is bound to fail as well.
    pub(super) fn is_final(&self) -> bool {
        match self {
            Setback::Database(error) => error.is_permanent(),
            Setback::NoNumberLeft => true,
            Setback::LockLost | Setback::Overwritten => false,
        }
    }
}

impl From<DatabaseError> for Setback {
    fn from(error: DatabaseError) -> Self {
        Setback::Database(error)
    }
}

/// Whether any try sent a change of the host's row. A reserved number is none: it does no harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    Nothing,
    Perhaps,
}

impl Written {
    /// The error when the lock was not obtained.
    pub(super) fn unlocked(self, name: &str, waited: Duration, cause: LockError) -> RegistryError {
        match self {
            Written::Nothing => RegistryError::Locked(cause),
            Written::Perhaps => RegistryError::unconfirmed(name, waited, None),
        }
    }

    /// The error when the last try was set back.
    pub(super) fn set_back(self, name: &str, waited: Duration, setback: Setback) -> RegistryError {
        match (self, setback) {
            (Written::Nothing, Setback::Database(cause)) => RegistryError::unread(cause),
            (_, Setback::NoNumberLeft) => RegistryError::NoNumberLeft,
            (Written::Perhaps, Setback::Database(cause)) => {
                RegistryError::unconfirmed(name, waited, Some(cause))
            }
            (_, Setback::LockLost | Setback::Overwritten) => {
                RegistryError::unconfirmed(name, waited, None)
            }
        }
    }
}
