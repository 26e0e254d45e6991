//! Messages that clients did not ask for: channels that they subscribe to, and events of locks.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use tokio::sync::Notify;

use super::locked::locked;
use super::locks::ConnectionId;
use super::resp::Reply;

/// The maximum number of messages that wait for a connection. One that does not read them is
/// closed.
const WAITING_MAX: usize = 1_024;

/// The channel of lost locks.
pub(super) const LOST: &[u8] = b"lockd:lost";

/// Passes messages to connections.
#[derive(Debug, Default)]
pub(super) struct Hub(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    connections: HashMap<ConnectionId, Connection>,
    channels: HashMap<Channel, BTreeSet<ConnectionId>>,
}

/// What a connection subscribes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Kind {
    /// A channel.
    Name,
    /// All channels whose names begin with what is before a star at its end.
    Pattern,
}

impl Kind {
    /// The command that subscribes to it.
    pub(super) fn subscribe(self) -> &'static str {
        match self {
            Kind::Name => "subscribe",
            Kind::Pattern => "psubscribe",
        }
    }

    /// The command that ends that.
    pub(super) fn unsubscribe(self) -> &'static str {
        match self {
            Kind::Name => "unsubscribe",
            Kind::Pattern => "punsubscribe",
        }
    }
}

/// A channel, or a pattern of them, of those users whose locks begin with the same prefix.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Channel {
    kind: Kind,
    prefix: String,
    name: Bytes,
}

impl Channel {
    fn of(kind: Kind, prefix: &str, name: &[u8]) -> Self {
        Channel { kind, prefix: prefix.to_owned(), name: Bytes::copy_from_slice(name) }
    }

    /// Whether it is a pattern of a channel.
    fn fits(&self, prefix: &str, name: &[u8]) -> bool {
        let is_pattern = self.kind == Kind::Pattern && self.prefix == prefix;
        is_pattern
            && match self.name.strip_suffix(b"*") {
                Some(begin) => name.starts_with(begin),
                None => self.name == name,
            }
    }
}

#[derive(Debug)]
struct Connection {
    outbox: Arc<Outbox>,
    channels: BTreeSet<Channel>,
}

/// What waits for a connection. Empty, it takes next to no memory.
#[derive(Debug)]
pub(super) struct Outbox {
    /// `None`: too much waits, and the connection is to be closed.
    waiting: Mutex<Option<VecDeque<Reply>>>,
    changed: Notify,
}

/// The connection does not read what is sent to it.
#[derive(Debug)]
pub(super) struct Overflow;

impl Outbox {
    fn new() -> Self {
        Outbox { waiting: Mutex::new(Some(VecDeque::new())), changed: Notify::new() }
    }

    /// The next message. Without room for it, this waits for the overflow alone.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no message.
    pub(super) async fn next(&self, has_room: bool) -> Result<Reply, Overflow> {
        loop {
            let changed = self.changed.notified();
            match self.waiting().as_mut() {
                None => return Err(Overflow),
                Some(waiting) if has_room => {
                    if let Some(message) = waiting.pop_front() {
                        return Ok(message);
                    }
                }
                Some(_) => {}
            }
            changed.await;
        }
    }

    fn put(&self, message: Reply) {
        let mut waiting = self.waiting();
        if waiting.as_ref().is_some_and(|waiting| waiting.len() >= WAITING_MAX) {
            *waiting = None;
        }
        if let Some(waiting) = waiting.as_mut() {
            waiting.push_back(message);
        }
        drop(waiting);
        self.changed.notify_one();
    }

    fn waiting(&self) -> MutexGuard<'_, Option<VecDeque<Reply>>> {
        locked(&self.waiting)
    }
}

impl Hub {
    /// A connection begins: what is sent to it.
    pub(super) fn join(&self, connection: ConnectionId) -> Arc<Outbox> {
        let outbox = Arc::new(Outbox::new());
        let joined = Connection { outbox: Arc::clone(&outbox), channels: BTreeSet::new() };
        self.state().connections.insert(connection, joined);
        outbox
    }

    /// A connection has ended.
    pub(super) fn leave(&self, connection: ConnectionId) {
        let mut state = self.state();
        if let Some(left) = state.connections.remove(&connection) {
            for channel in left.channels {
                state.drop_from(&channel, connection);
            }
        }
    }

    /// How many connections there are.
    pub(super) fn connections(&self) -> usize {
        self.state().connections.len()
    }

    /// Subscribes a connection to a channel of those that have this prefix; to how many it is then.
    pub(super) fn subscribe(
        &self,
        connection: ConnectionId,
        (kind, prefix): (Kind, &str),
        channel: &[u8],
    ) -> usize {
        let channel = Channel::of(kind, prefix, channel);
        let mut state = self.state();
        state.channels.entry(channel.clone()).or_default().insert(connection);
        let Some(connection) = state.connections.get_mut(&connection) else { return 0 };
        connection.channels.insert(channel);
        connection.channels.len()
    }

    /// The same in reverse.
    pub(super) fn unsubscribe(
        &self,
        connection: ConnectionId,
        (kind, prefix): (Kind, &str),
        channel: &[u8],
    ) -> usize {
        let channel = Channel::of(kind, prefix, channel);
        let mut state = self.state();
        state.drop_from(&channel, connection);
        let Some(connection) = state.connections.get_mut(&connection) else { return 0 };
        connection.channels.remove(&channel);
        connection.channels.len()
    }

    /// What a connection is subscribed to.
    pub(super) fn subscriptions(&self, connection: ConnectionId, kind: Kind) -> Vec<Bytes> {
        let state = self.state();
        let connection = state.connections.get(&connection);
        let channels = connection.into_iter().flat_map(|connection| connection.channels.iter());
        channels.filter(|it| it.kind == kind).map(|channel| channel.name.clone()).collect()
    }

    /// Whether anyone is subscribed to anything.
    pub(super) fn has_subscribers(&self) -> bool {
        !self.state().channels.is_empty()
    }

    /// Whether a connection is subscribed to anything.
    pub(super) fn is_subscribed(&self, connection: ConnectionId) -> bool {
        let state = self.state();
        state.connections.get(&connection).is_some_and(|it| !it.channels.is_empty())
    }

    /// Sends a message to all that are subscribed to a channel; to how many.
    pub(super) fn publish(&self, prefix: &str, channel: &[u8], payload: &Bytes) -> usize {
        let state = self.state();
        let bulk = |bytes: &Bytes| Reply::Bulk(bytes.clone());
        let named = Channel::of(Kind::Name, prefix, channel);
        let patterns = state.channels.keys().filter(|it| it.fits(prefix, channel));
        let mut count = 0;
        for subscribed in patterns.chain([&named]) {
            let mut message = match subscribed.kind {
                Kind::Name => vec![Reply::text("message")],
                Kind::Pattern => vec![Reply::text("pmessage"), bulk(&subscribed.name)],
            };
            message.extend([bulk(&named.name), bulk(payload)]);
            for connection in state.channels.get(subscribed).into_iter().flatten() {
                state.send(*connection, Reply::Push(message.clone()));
                count += 1;
            }
        }
        count
    }

    /// Sends a message to one connection, if it is still there.
    pub(super) fn send(&self, connection: ConnectionId, message: Reply) {
        self.state().send(connection, message);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.0)
    }
}

impl State {
    fn send(&self, connection: ConnectionId, message: Reply) {
        if let Some(connection) = self.connections.get(&connection) {
            connection.outbox.put(message);
        }
    }

    fn drop_from(&mut self, channel: &Channel, connection: ConnectionId) {
        if let Some(subscribers) = self.channels.get_mut(channel) {
            subscribers.remove(&connection);
            if subscribers.is_empty() {
                self.channels.remove(channel);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn messages_wait_for_room_until_they_are_too_many() {
        let outbox = Outbox::new();
        let next = |has_room| outbox.next(has_room).now_or_never().transpose();
        outbox.put(Reply::OK);
        assert!(matches!(next(false), Ok(None)));
        assert!(matches!(next(true), Ok(Some(Reply::OK))));
        for _ in 0..=WAITING_MAX {
            assert!(matches!(next(false), Ok(None)));
            outbox.put(Reply::OK);
        }
        assert!(matches!(next(false), Err(Overflow)));
        assert!(outbox.waiting().is_none(), "they take no memory any more");
    }
}
