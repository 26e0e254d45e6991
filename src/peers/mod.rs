//! How messages go from client to client. What carries them is hidden: sockets, or a test.

#[cfg_attr(
    not(any(test, instrumented, feature = "peers")),
    expect(dead_code, reason = "without the feature clients are not connected")
)]
mod inbox;
#[cfg(feature = "peers")]
mod options;
#[cfg(feature = "peers")]
mod sockets;
#[cfg(feature = "peers")]
mod wire;

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

pub(crate) use self::inbox::Inbox;
#[cfg(not(feature = "peers"))]
pub(crate) use self::none::{JoinError, PeerOptions};
#[cfg(feature = "peers")]
pub(crate) use self::options::JoinError;
#[cfg(feature = "peers")]
pub use self::options::{ParsePeersError, PeerOptions};
#[cfg(feature = "peers")]
pub(crate) use self::{
    sockets::{Listener, Site, join},
    wire::KeyPair,
};
use crate::admin::types::{HolderQueue, TurnUser};
use crate::core::turns::{GuestId, KeeperId, Response, TimedRequest};

/// Joins the network of clients, as the client with this uuid.
pub(crate) type Join = Box<dyn FnOnce(u128) -> NetworkEnd + Send>;

/// An object as messages name it: a hash, because names may be longer than messages.
pub(crate) type ObjectKey = [u8; 32];

/// Carries messages between this client and others. Each may be lost, repeated or late; keeper and
/// guest repeat what matters.
pub(crate) trait Network: Debug + Send + Sync {
    /// The key of an object.
    fn key(&self, object: &str) -> ObjectKey;

    /// Where the messages of other clients go.
    fn inbox(&self) -> &Inbox;

    /// Connects to a client, if it is not connected. Resolves to whether it can be asked.
    fn connect(&self, keeper: KeeperId) -> Pin<Box<dyn Future<Output = bool> + Send>>;

    /// Whether a client can be asked at once.
    fn is_connected(&self, keeper: KeeperId) -> bool;

    /// Sends a request to a keeper.
    fn ask(&self, keeper: KeeperId, object: ObjectKey, request: TimedRequest);

    /// What others see of a connected guest: its host name and process id.
    fn owner(&self, guest: GuestId) -> Option<String>;

    /// Sends a response to a guest, with who has the turn now: for a guest that must wait.
    fn answer(&self, guest: GuestId, object: ObjectKey, response: Response, user: Option<TurnUser>);

    /// How many messages were sent to other clients.
    fn messages_sent(&self) -> u64;

    /// Asks a client for the line of an object.
    fn who(&self, keeper: KeeperId, object: ObjectKey) -> HolderQueueFuture;

    /// Reports the line of an object to a guest; `None` if this client has no place.
    fn tell(&self, guest: GuestId, object: ObjectKey, line: Option<HolderQueue>);

    /// How long a guest may have a turn, if this client limits that.
    fn guest_hold_max(&self) -> Option<Duration> {
        None
    }

    /// Leaves the network; resolves when the client has withdrawn what it has published.
    fn leave(&self) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

/// Resolves to the line that a client reports: `None` if it has no place.
pub(crate) type HolderQueueFuture =
    Pin<Box<dyn Future<Output = Result<Option<HolderQueue>, NotReached>> + Send>>;

/// A client does not answer.
#[derive(Debug)]
pub(crate) struct NotReached;

/// A message about a turn of an object.
#[cfg_attr(
    not(any(test, instrumented, feature = "peers")),
    expect(dead_code, reason = "without the feature clients are not connected")
)]
#[derive(Clone, Debug)]
pub(crate) enum Message {
    /// What a guest asks.
    Request(GuestId, TimedRequest),
    /// What a keeper answers, and who has the turn, if it said so.
    Response(KeeperId, Response, Option<TurnUser>),
    /// The connection of a guest has ended. What it asked before has come before.
    Left(GuestId),
}

/// What comes from other clients.
#[cfg_attr(
    not(any(test, instrumented, feature = "peers")),
    expect(dead_code, reason = "without the feature clients are not connected")
)]
#[derive(Clone, Debug)]
pub(crate) enum Received {
    /// A message about a turn.
    Message {
        /// The object.
        object: ObjectKey,
        /// The message.
        message: Message,
    },
    /// A guest asks for the line of an object.
    Who {
        /// The guest.
        guest: GuestId,
        /// The object.
        object: ObjectKey,
    },
    /// There is a new connection to a keeper.
    Reconnected {
        /// The keeper.
        keeper: KeeperId,
    },
}

/// Lets clients into a network.
#[cfg(any(test, instrumented))]
pub(crate) trait Entrance: Debug + Send + Sync {
    /// Lets the client with this uuid in.
    fn join(&self, client: u128) -> NetworkEnd;
}

/// A client's end of the network.
#[derive(Debug)]
pub(crate) struct NetworkEnd {
    /// To other clients.
    pub(crate) network: Arc<dyn Network>,
    /// From other clients, unless it is for the task of an object.
    pub(crate) received: mpsc::Receiver<Received>,
}

/// Without the feature `peers` no client has peers.
#[cfg(not(feature = "peers"))]
mod none {
    use std::net::SocketAddr;
    use std::sync::Arc;

    use super::Join;
    use crate::clock::Clock;
    use crate::store::PeerTable;

    /// There are none.
    #[derive(Clone, Debug)]
    pub(crate) enum PeerOptions {}

    /// There is none.
    #[derive(Debug)]
    pub(crate) enum JoinError {}

    impl PeerOptions {
        /// Never called.
        pub(crate) async fn join(
            self,
            _: Arc<dyn PeerTable>,
            _: &Arc<dyn Clock>,
            (_, _): (String, String),
            _: &[SocketAddr],
            _: &str,
        ) -> Result<Join, JoinError> {
            match self {}
        }
    }
}
