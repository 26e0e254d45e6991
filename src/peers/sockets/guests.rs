//! Connections of guests.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};
use uuid::Uuid;

use super::super::wire::{
    Channel, ClientName, HANDSHAKE_MAX, PublicKey, Receiver, ToGuest, ToKeeper, WireError,
};
use super::super::{Message, ObjectKey, Received};
use super::allowance::Allowance;
use super::connection_writer::ConnectionWriter;
use super::handshakes::{Handshake, Handshakes};
use super::socket::{Accept, Reader, Socket};
use super::{SocketState, lock};
use crate::core::turns::{GuestId, Request, TimedRequest};

/// After an error of the socket itself, such as too many open files.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(100);

/// A guest that says nothing for this long is gone, even if its connection is not. A guest that
/// waits or has a turn repeats itself more often; any other guest closes its connection.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(90);

/// The objects of a connection are looked through when there are this many of them.
const ASKED_MAX: usize = 256;

/// The connected guests.
pub(super) struct Guests {
    connected: Mutex<BTreeMap<GuestId, Connected>>,
    guests_max: usize,
    pub(super) handshakes: Handshakes,
}

/// A connected guest.
struct Connected {
    owner: String,
    writer: Arc<ConnectionWriter<ToGuest>>,
    /// Cancelled when another connection of the same guest takes the place of this one.
    replaced: CancellationToken,
}

impl Guests {
    pub(super) fn new(guests_max: usize) -> Self {
        Guests { connected: Mutex::default(), guests_max, handshakes: Handshakes::default() }
    }

    pub(super) fn send(&self, guest: GuestId, message: &ToGuest) {
        let connected = lock(&self.connected);
        let writer = connected.get(&guest).map(|connected| Arc::clone(&connected.writer));
        drop(connected);
        // A guest that is too slow, or gone, repeats its request.
        if let Some(writer) = writer {
            writer.send(message);
        }
    }

    pub(super) fn owner(&self, guest: GuestId) -> Option<String> {
        lock(&self.connected).get(&guest).map(|connected| connected.owner.clone())
    }

    /// Lets a guest in, in the place of its earlier connection if there is one. Returns what is
    /// cancelled when it is replaced itself; `None` if there is no place.
    fn enter(
        &self,
        name: &ClientName,
        writer: &Arc<ConnectionWriter<ToGuest>>,
    ) -> Option<CancellationToken> {
        let mut connected = lock(&self.connected);
        let guest = name.client().as_u128();
        match connected.get(&guest) {
            Some(earlier) => earlier.replaced.cancel(),
            None if connected.len() >= self.guests_max => return None,
            None => {}
        }
        let replaced = CancellationToken::new();
        let (owner, writer) = (name.owner().to_owned(), Arc::clone(writer));
        connected.insert(guest, Connected { owner, writer, replaced: replaced.clone() });
        Some(replaced)
    }

    /// The connection of a guest has ended. Returns whether it was not replaced.
    fn leave(&self, guest: GuestId, writer: &Arc<ConnectionWriter<ToGuest>>) -> bool {
        let mut connected = lock(&self.connected);
        let is_present =
            connected.get(&guest).is_some_and(|present| Arc::ptr_eq(&present.writer, writer));
        if is_present {
            connected.remove(&guest);
        }
        is_present
    }
}

/// Accepts guests until the client leaves the network.
pub(super) async fn accept(shared: Arc<SocketState>, listener: impl Accept) {
    loop {
        let accepting = shared.guests.handshakes.accept(&listener);
        match shared.ended.run_until_cancelled(accepting).await {
            Some(Ok(Some((socket, handshake)))) => {
                tokio::spawn(run(Arc::clone(&shared), socket, handshake));
            }
            Some(Ok(None)) => debug!("a connection was closed: too many from its address"),
            Some(Err(error)) => {
                warn!(%error, "no guest can connect");
                sleep(PAUSE_AFTER_ERROR).await;
            }
            None => return,
        }
    }
}

async fn run(shared: Arc<SocketState>, socket: Socket, handshake: Handshake) {
    let from = handshake.address();
    let serving = serve(&shared, socket, handshake);
    let served = shared.ended.run_until_cancelled(serving).await;
    debug!(%from, ?served, "a connection of a guest ended");
}

async fn serve(
    shared: &SocketState,
    socket: Socket,
    handshake: Handshake,
) -> Result<(), WireError> {
    let (channel, name, key) = Channel::accept(socket, &shared.keys, shared.client).await?;
    let known = timeout(HANDSHAKE_MAX, is_known(shared, name.client(), key));
    if !known.await.unwrap_or(false) {
        return Err(WireError::Unknown);
    }
    drop(handshake);
    let (mut receiver, sender) = channel.split();
    let writer = Arc::new(ConnectionWriter::new(sender, Arc::clone(&shared.sent)));
    let replaced = shared.guests.enter(&name, &writer).ok_or(WireError::Full)?;
    let guest = name.client().as_u128();
    let mut asked = BTreeSet::new();
    let ended = tokio::select! {
        () = replaced.cancelled() => return Ok(()),
        ended = listen(shared, guest, &mut receiver, &mut asked) => ended,
        error = writer.drain() => Err(error),
    };
    if shared.guests.leave(guest, &writer) {
        for object in asked {
            let message = Message::Left(guest);
            // A client that has ended has no line.
            let _ = shared.inbox.take(Received::Message { object, message }).await;
        }
    }
    ended
}

/// Whether a client of this id has published this key. The one read of a connection; a stranger,
/// which can't know the keeper's public key, does not get this far.
async fn is_known(shared: &SocketState, client: Uuid, key: PublicKey) -> bool {
    if client == shared.client {
        // This client tries whether others reach it, before it has a row.
        return key == shared.keys.public();
    }
    match shared.peers.read_peer(client).await {
        Ok(row) => row.is_some_and(|row| row.key == *key.as_bytes()),
        Err(error) => {
            debug!(%client, %error, "a guest is refused: its row can't be read");
            false
        }
    }
}

/// Takes in what a guest says, until the connection ends. Of the objects that it has `asked` for,
/// those stay whose lines it may stand in.
async fn listen(
    shared: &SocketState,
    guest: GuestId,
    receiver: &mut Receiver<Reader, ToKeeper>,
    asked: &mut BTreeSet<ObjectKey>,
) -> Result<(), WireError> {
    let mut allowance = Allowance::new();
    // One timer for all messages: each `timeout` would register and remove one.
    let mut silence = pin!(sleep(SILENCE_MAX));
    let mut heard = Instant::now();
    loop {
        allowance.take().await;
        let message = tokio::select! {
            biased;
            message = receiver.recv() => message?,
            () = &mut silence => {
                if heard.elapsed() >= SILENCE_MAX {
                    return Err(WireError::Silent);
                }
                silence.as_mut().reset(heard + SILENCE_MAX);
                continue;
            }
        };
        heard = Instant::now();
        let received = match message {
            ToKeeper::Request { object, request } => {
                let object = object.into_bytes();
                note_asked(shared, asked, object, request);
                Received::Message { object, message: Message::Request(guest, request) }
            }
            ToKeeper::Who { object } => Received::Who { guest, object: object.into_bytes() },
        };
        if shared.inbox.take(received).await.is_err() {
            return Ok(());
        }
    }
}

fn note_asked(
    shared: &SocketState,
    asked: &mut BTreeSet<ObjectKey>,
    object: ObjectKey,
    request: TimedRequest,
) {
    match request.request {
        Request::Ask { .. } => {
            if asked.len() >= ASKED_MAX && !asked.contains(&object) {
                asked.retain(|object| shared.inbox.is_open(*object));
            }
            asked.insert(object);
        }
        Request::Withdraw { .. } | Request::Return { .. } => drop(asked.remove(&object)),
        Request::Renew { .. } | Request::IssueToken { .. } | Request::Confirm { .. } => {}
    }
}
