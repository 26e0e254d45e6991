//! Messages between peers.
//!
//! Each message arrives soon, late or never, once or twice. Clients can be cut off: what arrives
//! meanwhile is lost. Real connections keep messages in order, and lose and repeat them only as
//! they end; here nothing is in order.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::geography::Geography;
use super::harm::Harm;
use super::lock;
use super::record::LineKind;
use crate::admin::types::{HolderQueue, TurnUser};
use crate::core::turns::{GuestId, KeeperId, Request, Response, TimedRequest};
use crate::peers::{
    HolderQueueFuture, Inbox, Message, Network, NetworkEnd, NotReached, ObjectKey, Received,
};

/// How messages between clients fare. Probabilities apply to each message; times are whole
/// milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weather {
    /// A message takes from one to this many milliseconds.
    pub latency: u64,
    /// The probability that it is late.
    pub late: f64,
    /// By how many milliseconds at most.
    pub late_by: u64,
    /// The probability that it is lost.
    pub lost: f64,
    /// The probability that it arrives twice.
    pub repeated: f64,
}

impl Weather {
    /// Every message arrives soon, and once.
    pub const CALM: Self = Weather { latency: 1, late: 0.0, late_by: 1, lost: 0.0, repeated: 0.0 };
}

/// Carries messages between clients. Clones share them.
#[derive(Clone)]
pub(crate) struct Messenger(Arc<Mutex<Hub>>);

struct Hub {
    rng: StdRng,
    weather: Weather,
    /// Where clients are, if that decides how long messages take, instead of the weather.
    journey: Option<Journey>,
    #[cfg(test)]
    mishap: Option<Mishap>,
    #[cfg(test)]
    guest_hold_max: Option<Duration>,
    ends: BTreeMap<u128, Inbox>,
    /// Clients that no message reaches or leaves.
    cut_off: BTreeSet<u128>,
    /// Pairs that no message goes between, the smaller one first.
    apart: BTreeSet<(u128, u128)>,
    /// Messages by the time when they arrive, in random order at the same time.
    in_flight: BTreeMap<(Duration, u64), Carried>,
    #[cfg(test)]
    sent: usize,
    line: Vec<LineMessage>,
    /// When a message was sent or arrived last.
    now: Duration,
    harm: Harm,
}

/// How much later than others a message arrives, each time that it does.
#[cfg(test)]
pub(crate) type Mishap = Box<dyn FnMut(&Received) -> Vec<Duration> + Send>;

/// How messages travel between clients whose whereabouts are known: in order, as on a connection.
struct Journey {
    geography: Arc<Geography>,
    /// The zone of each client.
    zones: BTreeMap<u128, usize>,
    /// When the last message from one client to another arrives.
    last: BTreeMap<(u128, u128), Duration>,
}

impl Journey {
    fn arrives(&mut self, now: Duration, from: u128, to: u128, rng: &mut StdRng) -> Duration {
        let zone = |client| self.zones.get(&client).copied().unwrap_or_default();
        let way = self.geography.delay(zone(from), zone(to), rng);
        let arrives = now + way + self.geography.work.message.draw(rng);
        let last = self.last.entry((from, to)).or_default();
        *last = arrives.max(*last + Duration::from_nanos(1));
        *last
    }
}

/// A message on its way.
#[derive(Clone)]
struct Carried {
    from: u128,
    to: u128,
    content: Received,
}

/// A message about a guest's place in a line, in the order in which the keeper hears and says it.
#[derive(Clone, Copy)]
pub(super) struct LineMessage {
    pub(super) keeper: u128,
    pub(super) guest: u128,
    pub(super) object: ObjectKey,
    pub(super) request: u64,
    pub(super) at: Duration,
    pub(super) kind: LineKind,
}

impl Messenger {
    pub(crate) fn new(seed: u64, weather: Weather) -> Self {
        Messenger(Arc::new(Mutex::new(Hub {
            rng: StdRng::seed_from_u64(seed),
            weather,
            journey: None,
            #[cfg(test)]
            guest_hold_max: None,
            #[cfg(test)]
            mishap: None,
            ends: BTreeMap::new(),
            cut_off: BTreeSet::new(),
            apart: BTreeSet::new(),
            in_flight: BTreeMap::new(),
            #[cfg(test)]
            sent: 0,
            line: Vec::new(),
            now: Duration::ZERO,
            harm: Harm::default(),
        })))
    }

    /// Lets a client in, for which it is `now`. `called` is notified of each message that it sends.
    pub(crate) fn join(&self, client: u128, now: Duration, called: Arc<Notify>) -> NetworkEnd {
        let (inbox, received) = Inbox::new();
        self.hub().ends.insert(client, inbox.clone());
        let (messenger, origin) = (self.clone(), Instant::now());
        let sent = AtomicU64::new(0);
        let end = End { messenger, client, inbox, joined: now, origin, called, sent };
        NetworkEnd { network: Arc::new(end), received }
    }

    /// When the next message arrives, if any is on its way.
    pub(crate) fn next_arrival(&self) -> Option<Duration> {
        self.hub().in_flight.first_key_value().map(|((at, _), _)| *at)
    }

    /// When the next message arrives at a client, of those that are on their way.
    pub(crate) fn next_arrival_at(&self, client: u128) -> Option<Duration> {
        let hub = self.hub();
        let mut in_flight = hub.in_flight.iter();
        in_flight.find(|(_, message)| message.to == client).map(|((at, _), _)| *at)
    }

    /// Hands over the message that arrives next.
    pub(crate) fn deliver_next(&self) {
        let mut hub = self.hub();
        let Some(((now, _), message)) = hub.in_flight.pop_first() else {
            return;
        };
        hub.now = now;
        if hub.is_cut(message.from, message.to) {
            return hub.harm.count("messages between clients cut off", 1);
        }
        hub.note_request(now, &message);
        if let Some(end) = hub.ends.get(&message.to) {
            // A client that has ended hears nothing.
            let _ = end.take_at_once(message.content);
        }
    }

    pub(crate) fn set_weather(&self, weather: Weather) {
        self.hub().weather = weather;
    }

    /// From now on, keepers ask guests to leave that have had a turn for so long.
    #[cfg(test)]
    pub(crate) fn limit_guests(&self, guest_hold_max: Duration) {
        self.hub().guest_hold_max = Some(guest_hold_max);
    }

    /// Lets messages take as long as the geography says, instead of the weather.
    pub(super) fn set_geography(&self, geography: Arc<Geography>) {
        let (zones, last) = (BTreeMap::new(), BTreeMap::new());
        self.hub().journey = Some(Journey { geography, zones, last });
    }

    /// Says in which zone a client is, if there are zones.
    pub(super) fn settle(&self, client: u128, zone: usize) {
        if let Some(journey) = &mut self.hub().journey {
            journey.zones.insert(client, zone);
        }
    }

    /// What happens to some messages in addition to the weather.
    #[cfg(test)]
    pub(crate) fn set_mishap(&self, mishap: Option<Mishap>) {
        self.hub().mishap = mishap;
    }

    /// Cuts a client off from another one, or from all.
    pub(crate) fn cut_off(&self, client: u128, other: Option<u128>) {
        let mut hub = self.hub();
        match other {
            Some(other) => hub.apart.insert(pair(client, other)),
            None => hub.cut_off.insert(client),
        };
    }

    /// Lets messages through again between a client and another one, or all, by new connections.
    pub(crate) fn reconnect(&self, client: u128, other: Option<u128>) {
        let mut hub = self.hub();
        let was_cut_off = match other {
            Some(other) => hub.apart.remove(&pair(client, other)),
            None => hub.cut_off.remove(&client),
        };
        if !was_cut_off {
            return;
        }
        let all = hub.ends.keys().copied().filter(|id| *id != client);
        let others: Vec<_> = all.filter(|id| other.is_none_or(|other| other == *id)).collect();
        for other in others {
            for (guest, keeper) in [(client, other), (other, client)] {
                hub.end_connection(guest, keeper);
                hub.tell_of_connection(guest, keeper);
            }
        }
    }

    /// How many messages were sent.
    #[cfg(test)]
    pub(crate) fn sent(&self) -> usize {
        self.hub().sent
    }

    /// What was said about places in lines.
    pub(super) fn line(&self) -> Vec<LineMessage> {
        self.hub().line.clone()
    }

    /// How often each kind of harm occurred.
    pub(crate) fn harm(&self) -> BTreeMap<&'static str, u64> {
        self.hub().harm.counts()
    }

    fn hub(&self) -> MutexGuard<'_, Hub> {
        lock(&self.0)
    }
}

impl Hub {
    fn send(&mut self, now: Duration, message: &Carried) {
        #[cfg(test)]
        {
            self.sent += 1;
        }
        self.now = now;
        self.note_response(now, message);
        if let Some(journey) = &mut self.journey {
            let arrives = journey.arrives(now, message.from, message.to, &mut self.rng);
            self.in_flight.insert((arrives, self.rng.random()), message.clone());
            return;
        }
        let Weather { latency, late, late_by, lost, repeated } = self.weather;
        let times = if self.happens(repeated, "messages between clients repeated") { 2 } else { 1 };
        for later in self.arrivals(&message.content).repeat(times) {
            if self.happens(lost, "messages between clients lost") {
                continue;
            }
            let is_late = self.happens(late, "messages between clients late");
            let longest = if is_late { late_by } else { latency };
            let arrives = now + later + Duration::from_millis(self.rng.random_range(1..=longest));
            // Two messages don't get the same key in any run that ends.
            self.in_flight.insert((arrives, self.rng.random()), message.clone());
        }
    }

    /// How much later than the weather says the message arrives, each time that it does.
    fn arrivals(&mut self, _message: &Received) -> Vec<Duration> {
        #[cfg(test)]
        if let Some(mishap) = &mut self.mishap {
            return mishap(_message);
        }
        vec![Duration::ZERO]
    }

    /// Notes what comes to a keeper about a place in its line.
    fn note_request(&mut self, at: Duration, message: &Carried) {
        let Received::Message { object, message: content } = &message.content else {
            return;
        };
        if let Message::Request(guest, request) = *content {
            let object = *object;
            let (request, kind) = match request.request {
                Request::Ask { request, .. } => (request, LineKind::Asks),
                Request::Withdraw { request } => (request, LineKind::Withdraws),
                Request::Return { .. } => (0, LineKind::Returns),
                Request::Renew { .. } | Request::IssueToken { .. } | Request::Confirm { .. } => {
                    return;
                }
            };
            self.line.push(LineMessage { keeper: message.to, guest, object, request, at, kind });
        }
    }

    /// Notes what a keeper says about a place in its line.
    fn note_response(&mut self, at: Duration, message: &Carried) {
        let Received::Message { object, message: content } = &message.content else {
            return;
        };
        if let Message::Response(keeper, response, _) = *content {
            let object = *object;
            let (request, kind) = match response {
                Response::Granted(granted) => (granted.request, LineKind::Granted),
                Response::Elsewhere { request } => (request, LineKind::SentAway),
                Response::Queued { .. }
                | Response::Extended(_)
                | Response::Returned { .. }
                | Response::Token { .. }
                | Response::Leave { .. }
                | Response::Lost { .. }
                | Response::Check { .. } => return,
            };
            self.line.push(LineMessage { keeper, guest: message.to, object, request, at, kind });
        }
    }

    fn is_cut(&self, one: u128, other: u128) -> bool {
        let is_off = |client| self.cut_off.contains(&client);
        is_off(one) || is_off(other) || self.apart.contains(&pair(one, other))
    }

    fn is_there(&self, client: u128) -> bool {
        self.ends.get(&client).is_some_and(|end| !end.has_ended())
    }

    /// Informs a keeper that the connection of a guest has ended, which stands in some of its
    /// lines.
    fn end_connection(&mut self, guest: u128, keeper: KeeperId) {
        let of_both = |it: &&LineMessage| {
            (it.guest, it.keeper) == (guest, keeper) && it.kind != LineKind::Returns
        };
        let last: BTreeMap<_, _> =
            self.line.iter().filter(of_both).map(|it| (it.object, *it)).collect();
        for (object, said) in last {
            if said.kind == LineKind::Asks
                && let Some(end) = self.ends.get(&keeper)
            {
                let message = Message::Left(guest);
                // A client that has ended has no line.
                let _ = end.take_at_once(Received::Message { object, message });
                let (at, kind) = (self.now, LineKind::Disconnected);
                self.line.push(LineMessage { at, kind, ..said });
            }
        }
    }

    /// Informs a guest of its new connection to a keeper.
    fn tell_of_connection(&self, guest: u128, keeper: KeeperId) {
        if !self.is_cut(guest, keeper)
            && let Some(end) = self.ends.get(&guest)
        {
            // A client that has ended hears nothing.
            let _ = end.take_at_once(Received::Reconnected { keeper });
        }
    }

    fn happens(&mut self, probability: f64, kind: &'static str) -> bool {
        self.harm.happens(&mut self.rng, probability, kind)
    }
}

fn pair(one: u128, other: u128) -> (u128, u128) {
    (one.min(other), one.max(other))
}

/// The object of a key.
pub(super) fn name(key: ObjectKey) -> String {
    let name = key.into_iter().take_while(|byte| *byte > 0).collect();
    String::from_utf8(name).expect("it was a name")
}

/// One client's end.
struct End {
    messenger: Messenger,
    client: u128,
    inbox: Inbox,
    joined: Duration,
    origin: Instant,
    called: Arc<Notify>,
    sent: AtomicU64,
}

impl End {
    fn send(&self, to: u128, content: Received) {
        let now = self.joined + self.origin.elapsed();
        self.sent.fetch_add(1, Ordering::Relaxed);
        self.messenger.hub().send(now, &Carried { from: self.client, to, content });
        self.called.notify_one();
    }
}

impl Network for End {
    /// Simulated objects have short names.
    fn key(&self, object: &str) -> ObjectKey {
        let mut key = [0; 32];
        key[..object.len()].copy_from_slice(object.as_bytes());
        key
    }

    fn inbox(&self) -> &Inbox {
        &self.inbox
    }

    fn connect(&self, keeper: KeeperId) -> Pin<Box<dyn Future<Output = bool> + Send>> {
        let hub = self.messenger.hub();
        Box::pin(ready(hub.is_there(keeper) && !hub.is_cut(self.client, keeper)))
    }

    /// A cut does not end a connection.
    fn is_connected(&self, keeper: KeeperId) -> bool {
        self.messenger.hub().is_there(keeper)
    }

    fn ask(&self, keeper: KeeperId, object: ObjectKey, request: TimedRequest) {
        let guest = self.client;
        let message = Message::Request(guest, request);
        self.send(keeper, Received::Message { object, message });
    }

    fn owner(&self, guest: GuestId) -> Option<String> {
        Some(format!("guest {guest}"))
    }

    fn answer(
        &self,
        guest: GuestId,
        object: ObjectKey,
        response: Response,
        user: Option<TurnUser>,
    ) {
        let keeper = self.client;
        let message = Message::Response(keeper, response, user);
        self.send(guest, Received::Message { object, message });
    }

    fn messages_sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    fn who(&self, _: KeeperId, _: ObjectKey) -> HolderQueueFuture {
        Box::pin(ready(Err(NotReached)))
    }

    fn tell(&self, _: GuestId, _: ObjectKey, _: Option<HolderQueue>) {}

    #[cfg(test)]
    fn guest_hold_max(&self) -> Option<Duration> {
        self.messenger.hub().guest_hold_max
    }

    fn leave(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(ready(()))
    }
}

impl fmt::Debug for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("End").field("client", &self.client).finish_non_exhaustive()
    }
}
