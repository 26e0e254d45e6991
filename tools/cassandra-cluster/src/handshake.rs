//! The first message of a connection between nodes: the part of Cassandra's internode protocol that
//! identifies the connecting node.
//!
//! The message is the same since Cassandra 4.0, and the same for messages and for streams of data:
//!
//! | bytes | |
//! |---|---|
//! | 0 to 3 | a number that marks the protocol |
//! | 4 to 7 | versions and kind of the connection |
//! | 8 | the length of the address and port that follow: 6 |
//! | 9 to 12 | the address by which others know the connecting node |
//! | 13, 14 | its port |
//! | 15 to 18 | a checksum |

use std::net::Ipv4Addr;

/// The length of the message with an IPv4 address.
pub(crate) const LENGTH: usize = 19;

const MAGIC: [u8; 4] = [0xca, 0x55, 0x2d, 0xfa];
const LENGTH_OF_ADDRESS_AND_PORT: u8 = 6;

/// The address of the connecting node; `None` if no node of this version sends such a message.
pub(crate) fn initiator(message: [u8; LENGTH]) -> Option<Ipv4Addr> {
    let (magic, rest) = message.split_first_chunk::<4>()?;
    let [_, _, _, _, length, a, b, c, d, ..] = *rest else {
        return None;
    };
    let known = *magic == MAGIC && length == LENGTH_OF_ADDRESS_AND_PORT;
    known.then(|| Ipv4Addr::new(a, b, c, d))
}

/// The message of a node with this address, except versions and checksum.
#[cfg(test)]
pub(crate) fn of(address: Ipv4Addr) -> [u8; LENGTH] {
    let [a, b, c, d] = address.octets();
    [0xca, 0x55, 0x2d, 0xfa, 0, 0, 0, 0, 6, a, b, c, d, 0x1b, 0x58, 0, 0, 0, 0]
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGE: [u8; LENGTH] =
        [0xca, 0x55, 0x2d, 0xfa, 0x0d, 0x0c, 0x0c, 0x08, 6, 127, 1, 0, 12, 0x1b, 0x58, 1, 2, 3, 4];

    #[test]
    fn the_initiator_is_found() {
        assert_eq!(initiator(MESSAGE), Some(Ipv4Addr::new(127, 1, 0, 12)));
    }

    #[test]
    fn other_messages_are_refused() {
        for (index, byte) in [(0, 0x16), (3, 0xfb), (8, 18)] {
            let mut message = MESSAGE;
            message[index] = byte;
            assert_eq!(initiator(message), None, "{message:?}");
        }
    }
}
