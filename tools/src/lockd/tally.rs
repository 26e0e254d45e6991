//! Counts by name, of names that are known beforehand.

use std::sync::atomic::{AtomicU64, Ordering};

/// The commands that are counted by their names, in order.
const COMMANDS: [&str; 44] = [
    "asking",
    "attach",
    "auth",
    "client",
    "command",
    "config",
    "del",
    "delex",
    "echo",
    "eval",
    "evalsha",
    "exists",
    "get",
    "held",
    "hello",
    "hexists",
    "hget",
    "info",
    "lock",
    "lockstatus",
    "ping",
    "psubscribe",
    "pttl",
    "publish",
    "punsubscribe",
    "quit",
    "readonly",
    "readwrite",
    "renew",
    "reset",
    "role",
    "script",
    "select",
    "set",
    "setnx",
    "subscribe",
    "time",
    "token",
    "ttl",
    "unlink",
    "unlock",
    "unsubscribe",
    "wait",
    "who",
];

/// The first words of errors, in order.
const REFUSALS: [&str; 10] = [
    "ERR",
    "LIMIT",
    "LOCKFAILED",
    "LOST",
    "NOAUTH",
    "NOLOCK",
    "NOPROTO",
    "NOSCRIPT",
    "NOTOKEN",
    "WRONGPASS",
];

/// The name under which all others are counted: clients choose what they send, and each name that
/// is counted for itself takes memory here and in what reads the counts.
const OTHER: &str = "other";

/// Counts by name.
#[derive(Debug)]
pub(super) struct Tally<const N: usize> {
    names: [&'static str; N],
    counts: [AtomicU64; N],
    other: AtomicU64,
}

/// Commands by name.
pub(super) type Commands = Tally<{ COMMANDS.len() }>;

/// Errors by their first word.
pub(super) type Refusals = Tally<{ REFUSALS.len() }>;

impl Default for Commands {
    fn default() -> Self {
        Tally::of(COMMANDS)
    }
}

impl Default for Refusals {
    fn default() -> Self {
        Tally::of(REFUSALS)
    }
}

impl<const N: usize> Tally<N> {
    fn of(names: [&'static str; N]) -> Self {
        Tally { names, counts: [const { AtomicU64::new(0) }; N], other: AtomicU64::new(0) }
    }

    /// Counts one of this name.
    pub(super) fn count(&self, name: &str) {
        let found = self.names.binary_search(&name).map(|at| &self.counts[at]);
        found.unwrap_or(&self.other).fetch_add(1, Ordering::Relaxed);
    }

    /// The count of each name.
    pub(super) fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let names = self.names.iter().copied().chain([OTHER]);
        let counts = self.counts.iter().chain([&self.other]);
        names.zip(counts.map(|count| count.load(Ordering::Relaxed)))
    }

    /// How many there are of all names together.
    pub(super) fn total(&self) -> u64 {
        self.counts().map(|(_, count)| count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_known_name_has_its_own_count() {
        let (commands, refusals) = (Commands::default(), Refusals::default());
        for name in COMMANDS {
            commands.count(name);
        }
        for name in REFUSALS {
            refusals.count(name);
        }
        for name in ["flushall", "LOCK", ""] {
            commands.count(name);
        }
        let expected = COMMANDS.map(|name| (name, 1)).into_iter().chain([(OTHER, 3)]);
        assert!(commands.counts().eq(expected), "{commands:?}");
        let expected = REFUSALS.map(|name| (name, 1)).into_iter().chain([(OTHER, 0)]);
        assert!(refusals.counts().eq(expected), "{refusals:?}");
        assert_eq!(commands.total(), COMMANDS.len() as u64 + 3);
    }
}
