//! What clients may use of the daemon.

use super::resp;

/// What clients may use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Connections at once.
    pub(super) connections: usize,
    /// Whether a lock without an end may be taken over TCP.
    pub(super) endless_over_tcp: bool,
    /// Locks that are held.
    pub(super) locks: usize,
    /// Commands of one connection that wait for their answers.
    pub(super) waits: usize,
    /// A request.
    pub(super) request: resp::Limits,
    /// Bytes of answers that wait for a connection to read them; more commands are not read
    /// meanwhile.
    pub(super) unread: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: 20_000,
            endless_over_tcp: false,
            locks: 200_000,
            waits: 1_000,
            request: resp::Limits { bytes: 64 * 1024, arguments: 1_024 },
            unread: 256 * 1024,
        }
    }
}
