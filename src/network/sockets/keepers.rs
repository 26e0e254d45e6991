//! Connections to keepers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::net::tcp::OwnedReadHalf;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::debug;
use uuid::Uuid;

use super::super::wire::{Channel, Key, Receiver, ToGuest, ToKeeper, WireError};
use super::super::{KeeperId, Message, Received};
use super::outlet::Outlet;
use super::{Shared, lock};
use crate::line::{Line, TurnUser};
use crate::store::PeerRow;

/// An address that does not answer by then is skipped.
const CONNECT_MAX: Duration = Duration::from_secs(1);

/// A client that could not be reached is skipped for so long, twice as long each time.
const SKIP_FIRST: Duration = Duration::from_secs(10);
const SKIP_MAX: Duration = Duration::from_secs(600);

/// A connection without messages is closed.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// Clients that were not reached are remembered up to this number.
const SKIPPED_MAX: usize = 10_000;

/// The keepers that were asked.
#[derive(Default)]
pub(super) struct Keepers(Mutex<BTreeMap<KeeperId, Keeper>>);

enum Keeper {
    /// A connection is being made.
    Connecting,
    Connected(Arc<Outlet<ToKeeper>>),
    /// It could not be reached.
    Skipped {
        until: Instant,
        pause: Duration,
    },
}

impl Keepers {
    pub(super) fn is_connected(&self, keeper: KeeperId) -> bool {
        matches!(lock(&self.0).get(&keeper), Some(Keeper::Connected(_)))
    }

    /// Sends a message if there is a connection; returns whether there is one.
    pub(super) fn send(&self, keeper: KeeperId, message: &ToKeeper) -> bool {
        let outlet = match lock(&self.0).get(&keeper) {
            Some(Keeper::Connected(outlet)) => Arc::clone(outlet),
            Some(Keeper::Connecting | Keeper::Skipped { .. }) | None => return false,
        };
        outlet.send(message);
        true
    }

    /// Begins to connect; `Err` says whether there is a connection already.
    fn begin(&self, keeper: KeeperId) -> Result<Duration, bool> {
        let mut keepers = lock(&self.0);
        let pause = match keepers.get(&keeper) {
            None => Duration::ZERO,
            Some(Keeper::Connected(_)) => return Err(true),
            Some(Keeper::Connecting) => return Err(false),
            Some(Keeper::Skipped { until, .. }) if Instant::now() < *until => return Err(false),
            Some(Keeper::Skipped { pause, .. }) => *pause,
        };
        keepers.insert(keeper, Keeper::Connecting);
        Ok(pause)
    }

    fn skip(&self, keeper: KeeperId, pause: Duration) {
        let pause = (pause * 2).clamp(SKIP_FIRST, SKIP_MAX);
        let now = Instant::now();
        let mut keepers = lock(&self.0);
        if keepers.len() >= SKIPPED_MAX {
            keepers.retain(
                |_, keeper| !matches!(keeper, Keeper::Skipped { until, .. } if *until < now),
            );
        }
        keepers.insert(keeper, Keeper::Skipped { until: now + pause, pause });
    }
}

/// Connects to a client, unless it is connected or was not reached of late. Returns whether it is
/// connected now.
pub(super) async fn connect(shared: &Arc<Shared>, keeper: KeeperId) -> bool {
    let pause = match shared.keepers.begin(keeper) {
        Ok(pause) => pause,
        Err(is_connected) => return is_connected,
    };
    // Not dropped half way: another caller may wait for this connection.
    let connecting = tokio::spawn(make(Arc::clone(shared), keeper, pause));
    connecting.await.unwrap_or(false)
}

async fn make(shared: Arc<Shared>, keeper: KeeperId, pause: Duration) -> bool {
    let connected = shared.ended.run_until_cancelled(reach(&shared, keeper)).await;
    match connected {
        Some(Ok(channel)) => {
            let (receiver, sender) = channel.split();
            let outlet = Arc::new(Outlet::new(sender, Arc::clone(&shared.sent)));
            lock(&shared.keepers.0).insert(keeper, Keeper::Connected(Arc::clone(&outlet)));
            tokio::spawn(run(Arc::clone(&shared), keeper, receiver, outlet, pause));
            // What was sent before may be lost.
            let _ = shared.inbox.take(Received::Reconnected { keeper });
            true
        }
        Some(Err(why)) => {
            debug!(keeper = %Uuid::from_u128(keeper), why, "a keeper can't be asked");
            shared.keepers.skip(keeper, pause);
            false
        }
        None => false,
    }
}

type ToTheKeeper = Channel<TcpStream, ToGuest, ToKeeper>;

async fn reach(shared: &Shared, keeper: KeeperId) -> Result<ToTheKeeper, String> {
    let client = Uuid::from_u128(keeper);
    let row = shared.store.read_peer(client).await;
    let row = row.map_err(|error| error.to_string())?.ok_or("it does not listen for guests")?;
    let PeerRow { addresses, key, .. } = row;
    let mut why = "it has no address".to_owned();
    for address in addresses {
        match reach_at(shared, client, &address, &Key::from_bytes(key)).await {
            Ok(channel) => return Ok(channel),
            Err(error) => why = format!("{address}: {error}"),
        }
    }
    Err(why)
}

/// Connects to a client at one of its addresses.
pub(super) async fn reach_at(
    shared: &Shared,
    client: Uuid,
    address: &str,
    key: &Key,
) -> Result<ToTheKeeper, WireError> {
    let connecting = TcpStream::connect(address);
    let stream = timeout(CONNECT_MAX, connecting).await.map_err(|_| WireError::Timeout)??;
    stream.set_nodelay(true)?;
    Channel::connect(stream, client, key, shared.name.clone()).await
}

/// Carries messages until the connection ends, or has carried none for a while. A keeper that ends
/// it without a word has no place for another guest: it is skipped, for twice as long as `pause`.
async fn run(
    shared: Arc<Shared>,
    keeper: KeeperId,
    mut receiver: Receiver<OwnedReadHalf, ToGuest>,
    outlet: Arc<Outlet<ToKeeper>>,
    pause: Duration,
) {
    let received = Mutex::new(Instant::now());
    let has_answered = AtomicBool::new(false);
    let reading = async {
        loop {
            let message = receiver.recv().await?;
            has_answered.store(true, Ordering::Relaxed);
            *lock(&received) = Instant::now();
            match message {
                ToGuest::Response { object, response, user } => {
                    let (object, user) = (object.into_bytes(), user.map(TurnUser::from));
                    let message = Message::Response(keeper, response, user);
                    if shared.inbox.take(Received::Message { object, message }).is_err() {
                        return Ok(());
                    }
                }
                ToGuest::Is { object, line } => {
                    shared.inquiries.answered(keeper, object, line.map(Line::from).as_ref());
                }
            }
        }
    };
    let idle = async {
        loop {
            let due = outlet.last().max(*lock(&received)) + IDLE_MAX;
            if due <= Instant::now() {
                return;
            }
            sleep_until(due).await;
        }
    };
    let ended: Result<(), WireError> = tokio::select! {
        biased;
        () = shared.ended.cancelled() => Ok(()),
        ended = reading => ended,
        error = outlet.drain() => Err(error),
        () = idle => Ok(()),
    };
    debug!(keeper = %Uuid::from_u128(keeper), ?ended, "a connection to a keeper ended");
    if ended.is_err() && !has_answered.into_inner() {
        shared.keepers.skip(keeper, pause);
    } else {
        lock(&shared.keepers.0).remove(&keeper);
    }
}
