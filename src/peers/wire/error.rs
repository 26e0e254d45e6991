//! Why there is no connection, or no longer one.

use std::io;

use thiserror::Error;

use super::frames::FRAME_MAX;
use super::handshake::HANDSHAKE_MAX;

/// Why a connection between two clients ended. Each error is final: drop what is left of the
/// connection. Locks are then taken through the table.
#[derive(Debug, Error)]
pub(crate) enum WireError {
    /// The network failed.
    #[error("the connection between two clients failed; check the network between them")]
    Io(#[source] io::Error),
    /// Key, version or keeper are not those that the other side expects. A guest also gets it from
    /// a keeper that closes the connection instead of answering.
    #[error(
        "the handshake with another client was refused: it has many others under way, runs another \
         version, or its address now belongs to another client; if this stays so, run the same \
         version everywhere and give each client an address of its own"
    )]
    Refused,
    /// The key of a guest is not the one that it has published in `lock_peers`.
    #[error(
        "the key of the other client is not the one in its row in lock_peers: it lacks the right \
         to write that table, or is somebody else"
    )]
    Unknown,
    /// There is no place for another guest.
    #[error("as many clients are connected as `PeerOptions::max_guests` allows")]
    Full,
    /// The other side has said nothing for too long.
    #[error("the other client is silent: it has stopped, or the connection is dead")]
    Silent,
    /// A frame has more bytes than any message needs.
    #[error(
        "a frame has more than {FRAME_MAX} bytes: what is at the other end is no client of this \
         version; check the advertised address"
    )]
    TooLong,
    /// A frame was changed, repeated or swapped on its way, or this version does not know it.
    #[error(
        "a frame can't be decoded: it was changed on its way, or sent by something else than a \
         client of this version; check the advertised address, and what forwards connections to it"
    )]
    Garbage,
    /// The other side is gone.
    #[error("the other client closed the connection")]
    Closed,
    /// The handshake took too long.
    #[error(
        "no handshake within {HANDSHAKE_MAX:?}: the other client is busy, or something else \
         listens at its advertised address; check the address, and firewalls on the way"
    )]
    Timeout,
}

impl From<io::Error> for WireError {
    fn from(error: io::Error) -> Self {
        WireError::Io(error)
    }
}
