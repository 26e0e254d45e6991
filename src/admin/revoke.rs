//! Taking a lock from its holder, or a waiter out of the queue (design section 5).

use tracing::debug;

use crate::admin::round_rows::RoundRows;
use crate::admin::types::ContenderInfo;
use crate::client::LockClient;
use crate::core::bakery::{Change, Revocation, RevokeKind, Write, row_name, ttl_seconds};
use crate::error::TableError;
use crate::options::{check_name, check_reason};
use crate::owner::Owner;
use crate::store::DatabaseError;

impl LockClient {
    /// Asks a contender of the lock of `name`, as [`contenders`](Self::contenders) or
    /// [`TimedOut`](crate::LockError::TimedOut) shows it, to give up the lock or its place in the
    /// queue. The contender learns which client asks, and `why`, in 1,024 bytes at most.
    ///
    /// This is safe: only the contender itself acts on the request, and no client is admitted
    /// before it has left. A holder finds the request at its next renewal, after a third of its TTL
    /// at the latest. It is [expiring](crate::GuardState::Expiring) then: its lease is not renewed
    /// any more, and the next client is admitted when it has released the lock or its lease has
    /// ended ([`LostReason::Revoked`](crate::LostReason::Revoked)). A waiter fails with
    /// [`LockError::Revoked`](crate::LockError::Revoked). A holder that does not renew, or is dead,
    /// leaves when its lease ends, as it would have anyway.
    ///
    /// # Errors
    ///
    /// See [`TableError`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the contender may or may not be asked to leave. Asking again is
    /// harmless.
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
    /// let contenders = client.contenders("users::snap").await?;
    /// let holder = contenders.first().ok_or("the lock is held")?;
    /// client.revoke("users::snap", holder, "it hangs").await?;
    /// // The holder finds the request at its next renewal, or when it asks.
    /// guard.check().await?;
    /// assert!(guard.expiring().await.is_some());
    /// guard.unlock().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn revoke(
        &self,
        name: &str,
        contender: &ContenderInfo,
        why: &str,
    ) -> Result<(), TableError> {
        self.revoke_as(name, contender, why, RevokeKind::Request).await
    }

    /// [Revokes](Self::revoke), and deletes the contender's rows without waiting until it has left:
    /// the next contender is admitted at once.
    ///
    /// It is for holders that are certainly dead. A live holder finds the request at its next
    /// renewal, or when its lease ends if it was revoked before, and deletes what it may have
    /// written since; until then **two may hold the lock**, and only
    /// [fencing tokens](crate::LockHandle::fencing_token) protect the data from the one that lost
    /// it.
    ///
    /// A client with peers may die while another client uses its place, which then
    /// lives on and holds the lock, so of such a client, let the rows expire instead: that takes
    /// their TTL at most.
    ///
    /// A waiter with a read in progress at that moment may find its rows gone before it finds why,
    /// and begin a new round. [`contenders`](Self::contenders) shows it, so it can be revoked
    /// again.
    ///
    /// # Errors
    ///
    /// See [`TableError`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the contender may or may not be asked to leave, and its rows may
    /// or may not be there. Calling this again is harmless.
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
    /// std::mem::forget(guard); // Its process was killed.
    /// let contenders = client.contenders("users::snap").await?;
    /// let dead = contenders.first().ok_or("the lock is held")?;
    /// client.revoke_by_force("users::snap", dead, "its machine is gone").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn revoke_by_force(
        &self,
        name: &str,
        contender: &ContenderInfo,
        why: &str,
    ) -> Result<(), TableError> {
        self.revoke_as(name, contender, why, RevokeKind::Force).await
    }

    async fn revoke_as(
        &self,
        name: &str,
        contender: &ContenderInfo,
        why: &str,
        kind: RevokeKind,
    ) -> Result<(), TableError> {
        let name = &*self.shared().table_name(name);
        check_name(name).and_then(|()| check_reason(why))?;
        let owner = &contender.owner;
        let Some(round) = contender.round else {
            return Err(TableError::Unreadable { name: name.to_owned(), owner: owner.clone() });
        };
        let revocation = Revocation {
            contender: contender.id(),
            round,
            by: self.owner().to_string(),
            why: why.to_owned(),
            kind,
        };
        let rows =
            RoundRows { shared: self.shared(), object: name, contender: contender.id(), round };
        let revoking = Revoking { rows, owner, revocation };
        // Long enough for the next renewal, whatever the TTL of the contender.
        let ttl_seconds = ttl_seconds(self.max_ttl());
        let mut last_error = None;
        let carried_out = self.unless_interrupted(async {
            revoking.ask(ttl_seconds, &mut last_error).await?;
            match kind {
                RevokeKind::Request => Ok(()),
                RevokeKind::Force => revoking.delete_rows(&mut last_error).await,
            }
        });
        let carried_out = carried_out.await;
        carried_out.map_err(|interruption| interruption.on_table(Some(name), last_error))?
    }
}

/// A revocation in progress.
struct Revoking<'a> {
    rows: RoundRows<'a>,
    /// The contender's `owner`.
    owner: &'a Owner,
    revocation: Revocation,
}

impl Revoking<'_> {
    /// Writes the `revoked::` row.
    async fn ask(
        &self,
        ttl_seconds: i32,
        last_error: &mut Option<DatabaseError>,
    ) -> Result<(), TableError> {
        let Revocation { contender, round, ref why, .. } = self.revocation;
        let stamps = self.rows.stamps(last_error).await?;
        self.rows.newest(&stamps).ok_or_else(|| self.gone())?;
        // Just above the writes it must beat: an earlier `revoked::` row, and the delete of one,
        // which is older than the round, so the contender's own delete beats it, whatever the
        // clocks say.
        let earlier = stamps.iter().filter(|row| row.row_name == row_name::REVOKED);
        let newest = earlier.map(|row| row.stamp).max();
        let stamp = newest.map_or(round, |newest| round.max(newest.saturating_add(1)));
        let revocation = self.revocation.clone();
        let write = Write { stamp, change: Change::Revoke { revocation, ttl_seconds } };
        self.rows.write(write, last_error).await?;
        debug!(object = self.rows.object, %contender, round, why, "revoked");
        Ok(())
    }

    /// Deletes the contender's rows, once the `revoked::` row is acknowledged: a live holder reads
    /// that row after each renewal, so it leaves no recreated rows behind.
    async fn delete_rows(&self, last_error: &mut Option<DatabaseError>) -> Result<(), TableError> {
        // Just above the rows of this round, and so below those of the next round: its first stamp
        // is above that of this round's release. With the largest stamp a delete still wins.
        let stamp_above = |newest: i64| newest.saturating_add(1);
        // Without rows the contender has left by itself.
        self.rows.delete(stamp_above, last_error).await.map(drop)
    }

    fn gone(&self) -> TableError {
        TableError::Gone { name: self.rows.object.to_owned(), owner: self.owner.clone() }
    }
}
