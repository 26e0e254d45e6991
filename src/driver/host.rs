//! The host of a client, as the registry shows it.

use std::time::Duration;

use crate::store::{DatabaseError, HostRow, HostTable, or_nearby};

/// The host number of the registry's own client; hosts have larger ones.
pub(crate) const REGISTRAR: i32 = 0;

/// How often the time that a host is seen is written.
pub(crate) const SEEN_EVERY: Duration = Duration::from_secs(24 * 60 * 60);

/// What the registry shows about a host.
#[derive(Debug)]
pub(crate) enum Lookup {
    /// It was never added.
    Missing,
    /// It was removed.
    Removed,
    /// It may acquire locks.
    Registered(RegisteredHost),
}

/// A host that may acquire locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RegisteredHost {
    /// Its number.
    pub(crate) number: i32,
    /// When a client of the host was seen, in milliseconds since the Unix epoch; `None` if never.
    pub(crate) seen_at_millis: Option<i64>,
}

impl RegisteredHost {
    /// How long ago a client of the host was seen; `None` if never.
    pub(crate) fn inactive_for(&self, now_micros: i64) -> Option<Duration> {
        let unseen = |seen_at| (now_micros / 1000).saturating_sub(seen_at);
        let millis = self.seen_at_millis.map(unseen)?;
        Some(Duration::from_millis(u64::try_from(millis).unwrap_or(0)))
    }
}

impl From<Option<HostRow>> for Lookup {
    fn from(row: Option<HostRow>) -> Self {
        match row {
            None => Lookup::Missing,
            Some(row) if row.removed_at_millis.is_some() => Lookup::Removed,
            Some(HostRow { number, seen_at_millis, .. }) => {
                Lookup::Registered(RegisteredHost { number, seen_at_millis })
            }
        }
    }
}

/// Looks up a host, nearby if not all data centres answer. One try.
pub(crate) async fn lookup(hosts: &dyn HostTable, name: &str) -> Result<Lookup, DatabaseError> {
    or_nearby(hosts.read_host(name), hosts.read_host_nearby(name)).await.map(Lookup::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_is_unseen_since_it_was_seen() {
        let inactive_for = |seen_at_millis, now_micros| {
            RegisteredHost { number: 1, seen_at_millis }.inactive_for(now_micros)
        };
        assert_eq!(inactive_for(None, 7_000_000), None);
        assert_eq!(inactive_for(Some(4_000), 7_000_000), Some(Duration::from_secs(3)));
        let ahead = "the clock of another client of the host is ahead";
        assert_eq!(inactive_for(Some(8_000), 7_000_000), Some(Duration::ZERO), "{ahead}");
    }
}
