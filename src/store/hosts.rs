//! The registry of hosts.

use std::fmt::Debug;
use std::future::Future;

use tracing::debug;

use super::{DatabaseError, StoreFuture};

/// The number of hosts on a page of the registry.
pub(crate) const HOSTS_PER_PAGE: usize = 1_000;

/// The registry of hosts, in the keyspace of the lock table. Each call is one try, as for
/// [`LockRows`](super::LockRows).
pub(crate) trait HostTable: Debug + Send + Sync {
    /// Reads one host of the registry, removed or not; `None` if there is none of that name.
    fn read_host<'a>(&'a self, name: &'a str) -> StoreFuture<'a, Option<HostRow>>;

    /// Reads one host as seen nearby: by a quorum of the one data centre that the store asks for
    /// locks. It may be an older state. A store that asks all data centres sees nothing here.
    fn read_host_nearby<'a>(&'a self, name: &'a str) -> StoreFuture<'a, Option<HostRow>>;

    /// Reads the next [`HOSTS_PER_PAGE`] hosts of the registry in the order of their names,
    /// including removed ones: those after `after`, which is empty for the first page. A page that
    /// is not full is the last one.
    fn read_hosts<'a>(&'a self, after: &'a str) -> StoreFuture<'a, Vec<HostRow>>;

    /// Reads the registry's `next`: the largest number ever reserved, 0 if none was.
    fn read_next(&self) -> StoreFuture<'_, i32>;

    /// Raises the registry's `next` to `next`, stamped with the value itself, so that a smaller
    /// value never replaces a larger one.
    fn raise_next(&self, next: i32) -> StoreFuture<'_, ()>;

    /// Writes the row of one host, with its stamp, except for the time when it was seen.
    fn write_host<'a>(&'a self, host: &'a HostRow) -> StoreFuture<'a, ()>;

    /// Reads since when hosts are seen, in milliseconds since the Unix epoch;
    /// `None` if they are not, because an earlier version made the registry.
    fn read_seen_since(&self) -> StoreFuture<'_, Option<i64>>;

    /// Writes when a host was seen, and nothing else of it. The stamp is that time itself, which is
    /// before the read that showed the host: the write undoes neither a removal nor a deletion.
    fn write_last_seen<'a>(&'a self, name: &'a str, at_micros: i64) -> StoreFuture<'a, ()>;
}

/// One host of the registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostRow {
    /// Its name.
    pub(crate) name: String,
    /// Its number, never given to another name.
    pub(crate) number: i32,
    /// When it was added, in milliseconds since the Unix epoch.
    pub(crate) added_at_millis: i64,
    /// When it was removed, in milliseconds since the Unix epoch, if it is.
    pub(crate) removed_at_millis: Option<i64>,
    /// When a client of the host was seen, in milliseconds since the Unix epoch, if one was.
    pub(crate) seen_at_millis: Option<i64>,
    /// The write timestamp of the row, in µs.
    pub(crate) stamp: i64,
}

impl HostRow {
    /// The later of when it was seen and when it was added, or added again, by its stamp.
    pub(crate) fn last_seen_millis(&self) -> i64 {
        let added = self.added_at_millis.max(self.stamp / 1000);
        added.max(self.seen_at_millis.unwrap_or(added))
    }
}

/// Reads from all data centres together; if they don't answer, reads nearby. A value that is not
/// seen nearby may have been written elsewhere, so it stays unknown.
///
/// # Errors
///
/// The error of the read from all data centres: what is refused for good is refused nearby too.
pub(crate) async fn or_nearby<T>(
    everywhere: impl Future<Output = Result<Option<T>, DatabaseError>>,
    nearby: impl Future<Output = Result<Option<T>, DatabaseError>>,
) -> Result<Option<T>, DatabaseError> {
    let unanswered = match everywhere.await {
        Err(error) if !error.is_permanent() => error,
        answer => return answer,
    };
    match nearby.await {
        Ok(Some(seen)) => {
            debug!(error = %unanswered, "read nearby what not all data centres answer for");
            Ok(Some(seen))
        }
        Ok(None) | Err(_) => Err(unanswered),
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;
    use crate::store::Outcome;

    fn failed() -> Result<Option<u8>, DatabaseError> {
        Err(DatabaseError::new(Outcome::NotApplied, "no quorum"))
    }

    #[tokio::test]
    async fn nearby_answer_counts_only_without_a_full_one() {
        let refused = || Err(DatabaseError::permanent("no such table"));
        for (everywhere, nearby, expected) in [
            (Ok(Some(1)), Ok(Some(2)), Some(Some(1))),
            (Ok(None), Ok(Some(2)), Some(None)),
            (failed(), Ok(Some(2)), Some(Some(2))),
            (failed(), Ok(None), None),
            (failed(), failed(), None),
            (refused(), Ok(Some(2)), None),
        ] {
            let told = format!("{everywhere:?} and {nearby:?}");
            let seen = or_nearby(ready(everywhere), ready(nearby)).await;
            assert_eq!(seen.ok(), expected, "{told}");
        }
        let error = or_nearby(ready(failed()), ready(refused())).await;
        assert!(error.is_err_and(|error| !error.is_permanent()), "it is unknown, not refused");
    }
}
