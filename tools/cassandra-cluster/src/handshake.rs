//! The first message of a connection between nodes, from which the relay identifies the connecting
//! node.
//!
//! Its format is unchanged since Cassandra 4.0, and connections for messages and for data streams
//! share it:
//!
//! | bytes | |
//! |---|---|
//! | 0 to 3 | the protocol's magic number |
//! | 4 to 7 | versions and kind of the connection |
//! | 8 | length of the following address and port: 6 |
//! | 9 to 12 | the connecting node's address, as other nodes know it |
//! | 13, 14 | the connecting node's port |
//! | 15 to 18 | checksum |

use std::net::Ipv4Addr;

/// The length of the message with an IPv4 address.
pub(crate) const LENGTH: usize = 19;

const MAGIC: [u8; 4] = [0xca, 0x55, 0x2d, 0xfa];
const ADDRESS_AND_PORT_LENGTH: u8 = 6;

/// The address of the connecting node; `None` if the message is not in this format.
pub(crate) fn initiator(message: [u8; LENGTH]) -> Option<Ipv4Addr> {
    let (magic, rest) = message.split_first_chunk::<4>()?;
    let [_, _, _, _, length, a, b, c, d, ..] = *rest else {
        return None;
    };
    let is_valid = *magic == MAGIC && length == ADDRESS_AND_PORT_LENGTH;
    is_valid.then(|| Ipv4Addr::new(a, b, c, d))
}

/// A message from the node with this address, with zeros for versions and checksum.
#[cfg(test)]
pub(crate) fn message_from(address: Ipv4Addr) -> [u8; LENGTH] {
    let [a, b, c, d] = address.octets();
    [0xca, 0x55, 0x2d, 0xfa, 0, 0, 0, 0, 6, a, b, c, d, 0x1b, 0x58, 0, 0, 0, 0]
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGE: [u8; LENGTH] =
        [0xca, 0x55, 0x2d, 0xfa, 0x0d, 0x0c, 0x0c, 0x08, 6, 127, 1, 0, 12, 0x1b, 0x58, 1, 2, 3, 4];

    #[test]
    fn initiator_is_read_from_message() {
        assert_eq!(initiator(MESSAGE), Some(Ipv4Addr::new(127, 1, 0, 12)));
    }

    #[test]
    fn other_messages_are_rejected() {
        for (index, byte) in [(0, 0x16), (3, 0xfb), (8, 18)] {
            let mut message = MESSAGE;
            message[index] = byte;
            assert_eq!(initiator(message), None, "{message:?}");
        }
    }
}
