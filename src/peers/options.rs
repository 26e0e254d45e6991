//! How a client passes locks on to its peers, and takes them over.

mod bind;
mod text;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket};

use self::bind::Bind;
pub use self::text::ParsePeersError;
use super::sockets::socket::listen_locally;
use super::wire::PublicKey;
use super::{Join, KeyPair, Listener, Site};
use crate::clock::Clock;
use crate::owner::Owner;
use crate::store::PeerTable;

/// The default maximum number of guests. Each is a connection, and so an open file, of which a
/// process has 1,024 by default.
const GUESTS_DEFAULT: usize = 256;

/// The shortest limit on how long a guest has its turn.
const GUEST_HOLD_MIN: Duration = Duration::from_secs(1);

/// The maximum number of connections that wait until the client accepts them. When a keeper of many
/// guests starts again, all of them connect at once, and a connection beyond the limit is delayed
/// for seconds. The standard library's 128 is less than the guests of one keeper.
const BACKLOG: u32 = 1_024;

/// How a client passes locks on to other clients by message, and takes them over: see
/// [`LockClientBuilder::peers`](crate::LockClientBuilder::peers).
///
/// # Example
///
/// ```
/// use bakery_lock::{LockClient, MemoryStore, PeerOptions};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let store = MemoryStore::new();
/// let peers = PeerOptions::auto().max_guests(100);
/// // On a cluster: LockClient::builder(session, "bakery_lock").peers(peers).build().await?
/// let client = LockClient::builder_in_memory(&store).peers(peers);
/// let client = client.build().await?;
/// client.lock("users::snap").await?.unlock().await?;
/// // Others may wait in its line.
/// client.shutdown().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
#[must_use = "options do nothing until they are given to a builder"]
pub struct PeerOptions {
    bind: Bind,
    #[cfg_attr(feature = "serde", serde(default))]
    advertised: Option<String>,
    #[cfg_attr(feature = "serde", serde(default = "serves_default", rename = "serve_guests"))]
    serves_guests: bool,
    #[cfg_attr(feature = "serde", serde(default = "guests_default", rename = "max_guests"))]
    guests_max: usize,
    #[cfg_attr(
        feature = "serde",
        serde(default, rename = "max_guest_hold", with = "crate::options::files::duration")
    )]
    guest_hold_max: Option<Duration>,
}

impl PeerOptions {
    /// Listens for other clients at the local address from which the client reaches the database,
    /// at a port that the system chooses. Clients that can't reach it there take locks through the
    /// table.
    ///
    /// Use [`new`](Self::new) behind a firewall, which needs a fixed port; where the database is
    /// reached through a proxy on this machine; and, with [`advertised`](Self::advertised), behind
    /// address translation.
    pub fn auto() -> Self {
        PeerOptions::with_bind(Bind::Auto)
    }

    /// Listens for other clients at this address. With port 0 the system chooses one. For all
    /// addresses of the machine (0.0.0.0 or `[::]`), [advertise](Self::advertised) one of them.
    pub fn new(bind: SocketAddr) -> Self {
        PeerOptions::with_bind(Bind::At(bind))
    }

    fn with_bind(bind: Bind) -> Self {
        PeerOptions {
            bind,
            advertised: None,
            serves_guests: true,
            guests_max: GUESTS_DEFAULT,
            guest_hold_max: None,
        }
    }

    /// Where other clients reach this one, as `host:port`, if that is not the address that it
    /// listens at: behind address translation, or if it listens at all addresses of the machine.
    /// A host name is resolved by each client that connects.
    pub fn advertised(mut self, address: impl Into<String>) -> Self {
        self.advertised = Some(address.into());
        self
    }

    /// Whether other clients may be guests of this one; `true` by default. Say `false` in
    /// short-lived tools, and in programs that block their runtime: they would keep others waiting.
    /// The client then listens nowhere, and is only ever a guest.
    pub fn serve_guests(mut self, serve: bool) -> Self {
        self.serves_guests = serve;
        self
    }

    /// How many other clients may be connected to this one; 256 by default. More of them wait in
    /// the table.
    pub fn max_guests(mut self, guests: usize) -> Self {
        self.guests_max = guests;
        self
    }

    /// How long another client may have a lock that this one passes on to it; without limit by
    /// default. After this time it is asked to leave: its guard is lost
    /// ([`KeeperLost`](crate::LostReason::KeeperLost)), and the next one has its turn when it has
    /// answered, or its lease is over. That needs no right on the lock table, in which an operator
    /// could revoke a holder; so limit it where peers have fewer rights than this client.
    ///
    /// At least a second; a shorter time counts as that.
    pub fn max_guest_hold(mut self, limit: Duration) -> Self {
        self.guest_hold_max = Some(limit);
        self
    }

    /// How a client joins the others, in this keyspace and lock table on these nodes.
    pub(crate) async fn join(
        self,
        table_of_peers: Arc<dyn PeerTable>,
        clock: &Arc<dyn Clock>,
        (keyspace, table): (String, String),
        nodes: &[SocketAddr],
        host_name: &str,
    ) -> Result<Join, JoinError> {
        let keys = KeyPair::generate().map_err(|cause| JoinError::NoRandomness(Arc::new(cause)))?;
        let site = Site {
            peers: table_of_peers,
            clock: Arc::clone(clock),
            keyspace,
            table,
            owner: Owner::this_process(host_name),
            listener: self.listen(nodes, &keys.public())?,
        };
        Ok(Box::new(move |client| super::join(client, keys, site)))
    }

    /// Begins to listen; `None` if the client keeps no place for others.
    fn listen(self, nodes: &[SocketAddr], key: &PublicKey) -> Result<Option<Listener>, JoinError> {
        let PeerOptions { bind, advertised, serves_guests, guests_max, guest_hold_max } = self;
        if !serves_guests {
            return Ok(None);
        }
        let bind = bind.resolve(nodes)?;
        if bind.ip().is_unspecified() && advertised.is_none() {
            // Each client that connects there connects to itself.
            return Err(JoinError::NotAdvertised { address: bind });
        }
        let (socket, address) = listen_at(bind)
            .map_err(|cause| JoinError::Listen { address: bind, cause: Arc::new(cause) })?;
        // Where the user says how the client is reached, it is reached in no other way.
        let local = listen_locally(key).ok().filter(|_| advertised.is_none());
        let advertised = vec![advertised.unwrap_or_else(|| address.to_string())];
        let guest_hold_max = guest_hold_max.map(|limit| limit.max(GUEST_HOLD_MIN));
        Ok(Some(Listener { socket, local, advertised, guests_max, guest_hold_max }))
    }
}

#[cfg(feature = "serde")]
fn serves_default() -> bool {
    true
}

#[cfg(feature = "serde")]
fn guests_default() -> usize {
    GUESTS_DEFAULT
}

/// Why a client can't join the others.
#[derive(Debug)]
pub(crate) enum JoinError {
    /// The system gave no randomness for a key.
    NoRandomness(Arc<io::Error>),
    /// It listens at all addresses of its machine, and advertises none.
    NotAdvertised {
        /// The address that it listens at.
        address: SocketAddr,
    },
    /// No local address reaches the database.
    NoRoute {
        /// One of its nodes.
        node: SocketAddr,
        /// Why.
        cause: Arc<io::Error>,
    },
    /// The address can't be listened at.
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        cause: Arc<io::Error>,
    },
}

/// A socket, and the address that the system gave it.
fn listen_at(address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // As `TcpListener::bind`: on Windows the option lets another program take the address away.
    #[cfg(not(windows))]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    let socket = socket.listen(BACKLOG)?;
    let address = socket.local_addr()?;
    Ok((socket, address))
}

#[cfg(test)]
mod tests {
    use support::pace;
    use tokio::net::TcpStream;
    use tokio::task::JoinSet;

    use super::*;

    // Goal: where the user says how a client is reached, others don't find it on this machine.
    // Method: look whether there is a second socket, with and without an address of the user.
    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn advertised_address_is_the_only_way() {
        let listens_locally = |options: PeerOptions| {
            let keys = KeyPair::generate().expect("the system has randomness");
            let listener = options.listen(&[], &keys.public()).expect("there are free ports");
            listener.expect("it serves guests").local.is_some()
        };
        assert!(listens_locally(PeerOptions::auto()));
        assert!(!listens_locally(PeerOptions::auto().advertised("relay:7878")));
    }

    // Goal: more guests than a keeper has by default can connect at once, also to a busy client.
    // Method: 300 connections to a socket that accepts none.
    #[tokio::test]
    async fn many_guests_connect_at_once() {
        let any_port = "127.0.0.1:0".parse().expect("it is an address");
        let (_socket, address) = listen_at(any_port).expect("there are free ports");
        let mut connecting = JoinSet::new();
        for _ in 0..300 {
            connecting.spawn(TcpStream::connect(address));
        }
        let connections = pace::within_limit("a connection", connecting.join_all()).await;
        assert!(connections.iter().all(Result::is_ok));
    }
}
