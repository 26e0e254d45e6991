//! Connections whose other end has not said yet who it is.
//!
//! Any program can make them, so they are few: in all, and from one address. This machine may have
//! more, because its processes come at once for a lock that all want. Beyond the first limit
//! connections wait until they are accepted; beyond the second they are closed at once, since they
//! would keep out those from other addresses.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::lock;
use super::socket::{Accept, Socket};

/// How many handshakes may be under way in all. Each is an open file.
const ALL_MAX: usize = 256;

/// How many of them may be with one address.
pub(super) const OF_ADDRESS_MAX: usize = 8;

/// How many of them may be with this machine.
const OF_MACHINE_MAX: usize = 64;

/// The handshakes that are under way.
pub(super) struct Handshakes {
    places: Arc<Semaphore>,
    addresses: Arc<Mutex<BTreeMap<IpAddr, usize>>>,
}

/// A handshake that is under way, until this is dropped.
pub(super) struct Handshake {
    _place: OwnedSemaphorePermit,
    addresses: Arc<Mutex<BTreeMap<IpAddr, usize>>>,
    address: IpAddr,
}

impl Handshake {
    /// Where it comes from; of IPv6, the network.
    pub(super) fn address(&self) -> IpAddr {
        self.address
    }
}

impl Default for Handshakes {
    fn default() -> Self {
        Handshakes { places: Arc::new(Semaphore::new(ALL_MAX)), addresses: Arc::default() }
    }
}

impl Handshakes {
    /// Accepts the next connection, as soon as there is a place for its handshake. `None` if it was
    /// closed, because there are too many from its address.
    ///
    /// # Errors
    ///
    /// Those of the socket itself, such as too many open files.
    pub(super) async fn accept(
        &self,
        listener: &impl Accept,
    ) -> std::io::Result<Option<(Socket, Handshake)>> {
        let place = Arc::clone(&self.places).acquire_owned().await;
        let place = place.expect("the semaphore is never closed");
        let (socket, from) = listener.accept().await?;
        Ok(self.begin(from, place).map(|handshake| (socket, handshake)))
    }

    fn begin(&self, address: IpAddr, place: OwnedSemaphorePermit) -> Option<Handshake> {
        let address = network(address);
        let mut addresses = lock(&self.addresses);
        let count = addresses.entry(address).or_default();
        let most = if address.is_loopback() { OF_MACHINE_MAX } else { OF_ADDRESS_MAX };
        if *count >= most {
            return None;
        }
        *count += 1;
        Some(Handshake { _place: place, addresses: Arc::clone(&self.addresses), address })
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        let mut addresses = lock(&self.addresses);
        if let Some(count) = addresses.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                addresses.remove(&self.address);
            }
        }
    }
}

/// What counts as one address: of IPv6, all that a machine can choose from, a network of 64 bits.
fn network(address: IpAddr) -> IpAddr {
    const HOST_BITS: u32 = 64;
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> HOST_BITS << HOST_BITS))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("it is an address")
    }

    // Goal: one address has at most eight handshakes at a time, and other addresses have theirs;
    // a handshake that ends makes room.
    // Method: begin as many as there are places in all, from two addresses and one network.
    #[tokio::test]
    async fn handshakes_of_one_address_are_limited() {
        let handshakes = Handshakes::default();
        let begin = async |text: &str| {
            let place = Arc::clone(&handshakes.places).acquire_owned().await;
            handshakes.begin(address(text), place.expect("it is open"))
        };
        let mut under_way = Vec::new();
        for _ in 0..OF_ADDRESS_MAX {
            under_way.push(begin("192.0.2.1").await.expect("there is room"));
        }
        assert!(begin("192.0.2.1").await.is_none());
        assert!(begin("::ffff:192.0.2.1").await.is_none(), "it is the same address");
        let other = begin("192.0.2.2").await;
        assert!(other.is_some());
        under_way.pop();
        under_way.push(begin("192.0.2.1").await.expect("one has ended"));
        drop((under_way, other));
        assert!(lock(&handshakes.addresses).is_empty(), "nothing is left of those that ended");
        assert_eq!(handshakes.places.available_permits(), ALL_MAX);
    }

    // Goal: as many processes of this machine connect at once as a crowd has, and some places are
    // left for others.
    // Method: begin as many from this machine as may be under way.
    #[tokio::test]
    async fn more_handshakes_of_this_machine_are_under_way() {
        let handshakes = Handshakes::default();
        let begin = async |text: &str| {
            let place = Arc::clone(&handshakes.places).acquire_owned().await;
            handshakes.begin(address(text), place.expect("it is open"))
        };
        let mut under_way = Vec::new();
        for _ in 0..OF_MACHINE_MAX {
            under_way.push(begin("127.0.0.1").await.expect("there is room"));
        }
        assert!(begin("127.0.0.1").await.is_none());
        assert!(begin("192.0.2.1").await.is_some());
    }

    #[test]
    fn network_of_ipv6_counts_as_one_address() {
        let one = network(address("2001:db8:1:2:3:4:5:6"));
        assert_eq!(one, network(address("2001:db8:1:2::1")));
        assert_ne!(one, network(address("2001:db8:1:3::1")));
    }
}
