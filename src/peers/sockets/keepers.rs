//! Connections to keepers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tracing::debug;
use uuid::Uuid;

use super::super::wire::{Receiver, ToGuest, ToKeeper, WireError};
use super::super::{KeeperId, Message, Received};
use super::allowance::Allowance;
use super::connection_writer::ConnectionWriter;
use super::reaching::{ToTheKeeper, reach};
use super::socket::Reader;
use super::{SocketState, lock};
use crate::admin::types::{HolderQueue, TurnUser};
use crate::core::turns::{Request, TimedRequest};

/// A client that could not be reached is skipped for this long, twice as long each time.
pub(super) const SKIP_FIRST: Duration = Duration::from_secs(1);
const SKIP_MAX: Duration = Duration::from_secs(600);

/// A connection without messages is closed.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// A keeper answers at once. A connection without an answer for this long is dead or as good as
/// dead, and the next message makes another one.
pub(super) const ANSWER_MAX: Duration = Duration::from_secs(2);

/// Clients that were not reached are remembered up to this number.
const SKIPPED_MAX: usize = 10_000;

/// The keepers that were asked.
#[derive(Default)]
pub(super) struct Keepers(Mutex<BTreeMap<KeeperId, Keeper>>);

enum Keeper {
    /// A connection is being made; says whether there is one in the end.
    Connecting(Outcome),
    Connected(Arc<Connection>),
    /// It could not be reached.
    Skipped {
        until: Instant,
        pause: Duration,
    },
}

type Outcome = watch::Receiver<Option<bool>>;

/// A connection to a keeper.
struct Connection {
    writer: ConnectionWriter<ToKeeper>,
    /// When the first message was sent to which no answer of any kind has come.
    unanswered: Mutex<Option<Instant>>,
}

impl Connection {
    fn send(&self, message: &ToKeeper) {
        if is_answered(message) {
            lock(&self.unanswered).get_or_insert_with(Instant::now);
        }
        self.writer.send(message);
    }
}

/// Whether a keeper answers a message in any case.
fn is_answered(message: &ToKeeper) -> bool {
    match message {
        ToKeeper::Request { request: TimedRequest { request, .. }, .. } => match request {
            Request::Ask { .. } | Request::Renew { .. } | Request::Return { .. } => true,
            Request::Withdraw { .. } | Request::IssueToken { .. } | Request::Confirm { .. } => {
                false
            }
        },
        ToKeeper::Who { .. } => true,
    }
}

/// What becomes of the wish to be connected.
enum Begun {
    /// It is known already whether there is a connection.
    Is(bool),
    /// Another caller has begun to connect.
    Waits(Outcome),
    /// The caller connects; the last failure, if any, was followed by this pause.
    Connects { pause: Duration, done: watch::Sender<Option<bool>>, outcome: Outcome },
}

impl Keepers {
    pub(super) fn is_connected(&self, keeper: KeeperId) -> bool {
        matches!(lock(&self.0).get(&keeper), Some(Keeper::Connected(_)))
    }

    /// Sends a message if there is a connection; returns whether there is one.
    pub(super) fn send(&self, keeper: KeeperId, message: &ToKeeper) -> bool {
        let connection = match lock(&self.0).get(&keeper) {
            Some(Keeper::Connected(connection)) => Arc::clone(connection),
            Some(Keeper::Connecting(_) | Keeper::Skipped { .. }) | None => return false,
        };
        connection.send(message);
        true
    }

    fn begin(&self, keeper: KeeperId) -> Begun {
        let mut keepers = lock(&self.0);
        let pause = match keepers.get(&keeper) {
            None => Duration::ZERO,
            Some(Keeper::Connected(_)) => return Begun::Is(true),
            Some(Keeper::Connecting(outcome)) => return Begun::Waits(outcome.clone()),
            Some(Keeper::Skipped { until, .. }) if Instant::now() < *until => {
                return Begun::Is(false);
            }
            Some(Keeper::Skipped { pause, .. }) => *pause,
        };
        let (done, outcome) = watch::channel(None);
        keepers.insert(keeper, Keeper::Connecting(outcome.clone()));
        Begun::Connects { pause, done, outcome }
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

/// Connects to a client, unless it is connected or was recently not reached. Returns whether it is
/// connected now.
///
/// # Cancel safety
///
/// If the future is dropped, the connection is made all the same: others may wait for it.
pub(super) async fn connect(shared: &Arc<SocketState>, keeper: KeeperId) -> bool {
    let mut outcome = match shared.keepers.begin(keeper) {
        Begun::Is(is_connected) => return is_connected,
        Begun::Waits(outcome) => outcome,
        Begun::Connects { pause, done, outcome } => {
            let making = make(Arc::clone(shared), keeper, pause);
            tokio::spawn(async move { done.send(Some(making.await)) });
            outcome
        }
    };
    outcome.wait_for(Option::is_some).await.is_ok_and(|made| *made == Some(true))
}

async fn make(shared: Arc<SocketState>, keeper: KeeperId, pause: Duration) -> bool {
    match shared.ended.run_until_cancelled(reach(&shared, keeper)).await {
        Some(Ok(channel)) => {
            start(&shared, keeper, channel, pause).await;
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

async fn start(shared: &Arc<SocketState>, keeper: KeeperId, channel: ToTheKeeper, pause: Duration) {
    let (receiver, sender) = channel.split();
    let writer = ConnectionWriter::new(sender, Arc::clone(&shared.sent));
    let connection = Arc::new(Connection { writer, unanswered: Mutex::default() });
    lock(&shared.keepers.0).insert(keeper, Keeper::Connected(Arc::clone(&connection)));
    tokio::spawn(run(Arc::clone(shared), keeper, receiver, connection, pause));
    // What was sent before may be lost.
    let _ = shared.inbox.take(Received::Reconnected { keeper }).await;
}

/// Carries messages until the connection ends, or has carried none for a while. A keeper that ends
/// it without a word has no place for another guest: it is skipped, for twice as long as `pause`.
async fn run(
    shared: Arc<SocketState>,
    keeper: KeeperId,
    receiver: Receiver<Reader, ToGuest>,
    connection: Arc<Connection>,
    pause: Duration,
) {
    let heard = Heard { last: Mutex::new(Instant::now()), anything: AtomicBool::new(false) };
    let ended: Result<(), WireError> = tokio::select! {
        biased;
        () = shared.ended.cancelled() => Ok(()),
        ended = listen(&shared, keeper, receiver, &connection, &heard) => ended,
        error = connection.writer.drain() => Err(error),
        ended = supervise(&connection, &heard) => ended,
    };
    debug!(keeper = %Uuid::from_u128(keeper), ?ended, "a connection to a keeper ended");
    if ended.is_err() && !heard.anything.into_inner() {
        shared.keepers.skip(keeper, pause);
    } else {
        lock(&shared.keepers.0).remove(&keeper);
    }
}

/// What came from a keeper.
struct Heard {
    last: Mutex<Instant>,
    anything: AtomicBool,
}

/// Passes on what the keeper says, until the connection ends.
async fn listen(
    shared: &SocketState,
    keeper: KeeperId,
    mut receiver: Receiver<Reader, ToGuest>,
    connection: &Connection,
    heard: &Heard,
) -> Result<(), WireError> {
    let mut allowance = Allowance::new();
    loop {
        allowance.take().await;
        let message = receiver.recv().await?;
        heard.anything.store(true, Ordering::Relaxed);
        *lock(&heard.last) = Instant::now();
        *lock(&connection.unanswered) = None;
        match message {
            ToGuest::Response { object, response, user } => {
                let (object, user) = (object.into_bytes(), user.map(TurnUser::from));
                let message = Message::Response(keeper, response, user);
                if shared.inbox.take(Received::Message { object, message }).await.is_err() {
                    return Ok(());
                }
            }
            ToGuest::Is { object, line } => {
                shared.queue_requests.answered(
                    keeper,
                    object,
                    line.map(HolderQueue::from).as_ref(),
                );
            }
        }
    }
}

/// Ends when the connection has carried nothing for a while, or when the keeper does not answer.
/// Looks from time to time: to be woken by each message would cost more than the message.
async fn supervise(connection: &Connection, heard: &Heard) -> Result<(), WireError> {
    loop {
        let now = Instant::now();
        let unanswered = *lock(&connection.unanswered);
        if unanswered.is_some_and(|since| since + ANSWER_MAX <= now) {
            return Err(WireError::Silent);
        }
        let idle_at = connection.writer.last().max(*lock(&heard.last)) + IDLE_MAX;
        if idle_at <= now {
            return Ok(());
        }
        sleep_until(idle_at.min(now + ANSWER_MAX / 2)).await;
    }
}
