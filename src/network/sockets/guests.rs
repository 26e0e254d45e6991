//! Connections of guests.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::super::wire::{Channel, ToGuest, ToKeeper, WireError};
use super::super::{Message, Received};
use super::outlet::Outlet;
use super::{Shared, lock};
use crate::peers::GuestId;

/// So many connections may be without a finished handshake. Each has two seconds for it, so those
/// that never finish one do not keep others out for long.
const HANDSHAKES_MAX: usize = 64;

/// After an error of the socket itself, such as too many open files.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(100);

/// The connected guests.
pub(super) struct Guests {
    connected: Mutex<BTreeMap<GuestId, Connected>>,
    places: Arc<Semaphore>,
    handshakes: Arc<Semaphore>,
}

/// A connected guest.
struct Connected {
    owner: String,
    outlet: Arc<Outlet<ToGuest>>,
}

impl Guests {
    pub(super) fn new(guests_max: usize) -> Self {
        Guests {
            connected: Mutex::default(),
            places: Arc::new(Semaphore::new(guests_max)),
            handshakes: Arc::new(Semaphore::new(HANDSHAKES_MAX)),
        }
    }

    pub(super) fn send(&self, guest: GuestId, message: &ToGuest) {
        let connected = lock(&self.connected);
        let outlet = connected.get(&guest).map(|connected| Arc::clone(&connected.outlet));
        drop(connected);
        // A guest that is too slow, or gone, repeats its request.
        if let Some(outlet) = outlet {
            outlet.send(message);
        }
    }

    pub(super) fn owner(&self, guest: GuestId) -> Option<String> {
        lock(&self.connected).get(&guest).map(|connected| connected.owner.clone())
    }
}

/// Accepts guests until `stopped`.
pub(super) async fn accept(shared: Arc<Shared>, socket: TcpListener, stopped: CancellationToken) {
    loop {
        let accepted = tokio::select! {
            biased;
            () = stopped.cancelled() => return,
            accepted = socket.accept() => accepted,
        };
        match accepted {
            Ok((stream, from)) => {
                let handshakes = Arc::clone(&shared.guests.handshakes);
                // Beyond the limits a guest is refused, and waits in the table.
                if let Ok(permit) = handshakes.try_acquire_owned() {
                    let stopped = stopped.clone();
                    let serving = serve(Arc::clone(&shared), stream, permit);
                    tokio::spawn(async move {
                        let served = stopped.run_until_cancelled(serving).await;
                        debug!(%from, ?served, "a connection of a guest ended");
                    });
                }
            }
            Err(error) => {
                warn!(%error, "no guest can connect");
                tokio::time::sleep(PAUSE_AFTER_ERROR).await;
            }
        }
    }
}

async fn serve(
    shared: Arc<Shared>,
    stream: TcpStream,
    handshake: OwnedSemaphorePermit,
) -> Result<(), WireError> {
    stream.set_nodelay(true)?;
    let keys = shared.keys();
    let (channel, name) = Channel::accept(stream, shared.client, &keys).await?;
    drop(handshake);
    let Ok(_place) = Arc::clone(&shared.guests.places).try_acquire_owned() else {
        return Err(WireError::Closed);
    };
    let guest = name.client().as_u128();
    let (mut receiver, sender) = channel.split();
    let outlet = Arc::new(Outlet::new(sender, Arc::clone(&shared.sent)));
    // A guest that connects again replaces its earlier connection.
    let connected = Connected { owner: name.owner().to_owned(), outlet: Arc::clone(&outlet) };
    lock(&shared.guests.connected).insert(guest, connected);
    let reading = async {
        loop {
            let received = match receiver.recv().await? {
                ToKeeper::Request { object, request } => {
                    let object = object.into_bytes();
                    Received::Message { object, message: Message::Request(guest, request) }
                }
                ToKeeper::Who { object } => Received::Who { guest, object: object.into_bytes() },
            };
            if shared.inbox.take(received).is_err() {
                return Ok(());
            }
        }
    };
    let ended = tokio::select! {
        ended = reading => ended,
        error = outlet.drain() => Err(error),
    };
    let mut connected = lock(&shared.guests.connected);
    if connected.get(&guest).is_some_and(|present| Arc::ptr_eq(&present.outlet, &outlet)) {
        connected.remove(&guest);
    }
    ended
}
