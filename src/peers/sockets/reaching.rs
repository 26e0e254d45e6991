//! How a keeper is reached: by its row, at one of its addresses.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpStream, lookup_host};
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use super::super::KeeperId;
use super::super::wire::{Channel, PublicKey, ToGuest, ToKeeper, WireError};
use super::SocketState;
use super::socket::{Socket, connect_locally};
use crate::store::PeerRow;

/// An address that does not answer by then is skipped, and a name that is not resolved by then.
const CONNECT_MAX: Duration = Duration::from_secs(1);

/// How many addresses of one name are tried.
pub(super) const OF_NAME_MAX: usize = 4;

/// A keeper to which many guests connect at once closes some connections before the handshake.
/// These come again after pauses of this length, more or less, and twice as long each time.
pub(super) const RETRY_FIRST: Duration = Duration::from_millis(100);

/// How often a connection that was refused is tried again.
pub(super) const RETRIES: u32 = 4;

pub(super) type ToTheKeeper = Channel<Socket, ToGuest, ToKeeper>;

/// Where a client is tried to be reached.
#[derive(Clone, Copy, Debug)]
enum Way {
    OnThisMachine,
    At(SocketAddr),
}

/// Connects to a client, on this machine or where its row says.
pub(super) async fn reach(shared: &SocketState, keeper: KeeperId) -> Result<ToTheKeeper, String> {
    // Without its own row this client is a stranger to the keeper.
    if !shared.is_published().await {
        return Err("the row of this client in lock_peers is not written yet".to_owned());
    }
    let client = Uuid::from_u128(keeper);
    let row = shared.peers.read_peer(client).await.map_err(|error| error.to_string())?;
    let PeerRow { addresses, key, .. } = row.ok_or("it has no row in lock_peers")?;
    let known = (client, &PublicKey::from_bytes(key));
    if let Ok(channel) = insist(shared, known, Way::OnThisMachine).await {
        return Ok(channel);
    }
    let mut why = "it does not listen for guests".to_owned();
    for address in addresses {
        match reach_at(shared, &address, known).await {
            Ok(channel) => return Ok(channel),
            Err(error) => why = format!("{address}: {error}"),
        }
    }
    Err(why)
}

/// Connects to a client at an address: a host, by name or number, and a port.
pub(super) async fn reach_at(
    shared: &SocketState,
    address: &str,
    keeper: (Uuid, &PublicKey),
) -> Result<ToTheKeeper, WireError> {
    let resolved = timeout(CONNECT_MAX, lookup_host(address));
    let addresses = resolved.await.map_err(|_| WireError::Timeout)??;
    reach_at_one_of(shared, addresses, keeper).await
}

/// Connects to a client at the first address that works, of the first few.
pub(super) async fn reach_at_one_of(
    shared: &SocketState,
    addresses: impl IntoIterator<Item = SocketAddr>,
    keeper: (Uuid, &PublicKey),
) -> Result<ToTheKeeper, WireError> {
    let mut last = WireError::Timeout;
    for address in addresses.into_iter().take(OF_NAME_MAX) {
        match insist(shared, keeper, Way::At(address)).await {
            Ok(channel) => return Ok(channel),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Connects, and tries again if the other side closes the connection without an answer.
async fn insist(
    shared: &SocketState,
    keeper: (Uuid, &PublicKey),
    way: Way,
) -> Result<ToTheKeeper, WireError> {
    let mut pause = RETRY_FIRST;
    for _ in 0..RETRIES {
        match try_once(shared, keeper, way).await {
            Err(WireError::Refused) => sleep(pause.mul_f64(0.5 + rand::random::<f64>())).await,
            connected_or_failed => return connected_or_failed,
        }
        pause *= 2;
    }
    try_once(shared, keeper, way).await
}

async fn try_once(
    shared: &SocketState,
    keeper: (Uuid, &PublicKey),
    way: Way,
) -> Result<ToTheKeeper, WireError> {
    let connecting = connect(way, keeper.1);
    let socket = timeout(CONNECT_MAX, connecting).await.map_err(|_| WireError::Timeout)??;
    Channel::connect(socket, &shared.keys, keeper, shared.name.clone()).await
}

async fn connect(way: Way, key: &PublicKey) -> io::Result<Socket> {
    match way {
        Way::OnThisMachine => connect_locally(key).await,
        Way::At(address) => TcpStream::connect(address).await.map(Socket::tcp),
    }
}
