//! Where a client listens for others.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;

use super::JoinError;

/// The text for [`Bind::Auto`].
pub(super) const AUTO: &str = "auto";

/// Where a client listens for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(into = "String", try_from = "String"))]
pub(super) enum Bind {
    /// At any port of the address from which this machine reaches the database.
    Auto,
    /// At this address.
    At(SocketAddr),
}

impl Bind {
    /// The address to listen at, with these nodes; without any, all clients are in this process.
    pub(super) fn resolve(self, nodes: &[SocketAddr]) -> Result<SocketAddr, JoinError> {
        match self {
            Bind::At(address) => Ok(address),
            Bind::Auto => Ok(SocketAddr::new(reaching_some(nodes)?, 0)),
        }
    }
}

impl fmt::Display for Bind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bind::Auto => f.write_str(AUTO),
            Bind::At(address) => write!(f, "{address}"),
        }
    }
}

#[cfg(feature = "serde")]
impl From<Bind> for String {
    fn from(bind: Bind) -> String {
        bind.to_string()
    }
}

/// The local address from which the first of these nodes is reached that has a route.
fn reaching_some(nodes: &[SocketAddr]) -> Result<IpAddr, JoinError> {
    let mut unreachable = None;
    for &node in nodes {
        match reaching(node) {
            Ok(address) => return Ok(address),
            Err(cause) => unreachable = Some(JoinError::NoRoute { node, cause: Arc::new(cause) }),
        }
    }
    unreachable.map_or(Ok(Ipv4Addr::LOCALHOST.into()), Err)
}

/// The local address from which a node is reached. Sends nothing: to connect a UDP socket only
/// looks up the route (udp(7)).
fn reaching(node: SocketAddr) -> io::Result<IpAddr> {
    let any: IpAddr = match node {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(node)?;
    Ok(socket.local_addr()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(nodes: &[&str]) -> Result<SocketAddr, JoinError> {
        let node = |node: &&str| node.parse().expect("it is an address");
        Bind::Auto.resolve(&nodes.iter().map(node).collect::<Vec<_>>())
    }

    // A UDP socket may not connect to a broadcast address, on any machine.
    const UNREACHABLE: &str = "255.255.255.255:9042";

    #[test]
    fn automatic_address_is_the_one_that_reaches_a_node() {
        let nodes = ["127.0.0.1:9042"];
        let address = resolved(&nodes).expect("this machine reaches itself");
        assert_eq!(address, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        let address = resolved(&[UNREACHABLE, "127.0.0.2:9042"]).expect("the second has a route");
        assert!(address.ip().is_loopback(), "{address}");
    }

    #[test]
    fn without_nodes_clients_are_in_this_process() {
        let address = resolved(&[]).expect("no route is needed");
        assert_eq!(address, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    }

    #[test]
    fn error_names_a_node_without_a_route() {
        let error = resolved(&[UNREACHABLE]).expect_err("it has no route");
        let named = |node: SocketAddr| node.to_string() == UNREACHABLE;
        assert!(matches!(error, JoinError::NoRoute { node, .. } if named(node)), "{error:?}");
    }
}
