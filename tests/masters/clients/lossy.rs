//! A link on which answers and requests get lost, of one client to its servers.
//!
//! A server answers requests in their order, so an answer can't be lost while later ones come: the
//! connection breaks in its place. Another one works until the next loss.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bakery_lock::{DatabaseError, LockClientBuilder, Masters, Outcome};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::OwnedReadHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::scene::Scene;
pub(crate) use support::proxy::Loss;

/// The first ticket of a queue in the content of a row, after the mode of an exclusive contender.
const FIRST_TICKET: &[u8] = b" 0 - 1 - ";

/// For how long a request with a ticket is held back: time enough to set other rules.
const HELD_BACK: Duration = Duration::from_millis(500);

/// Relays in front of the servers, for clients of their own.
pub(crate) struct LossyLink {
    masters: Masters,
    rule: SharedRule,
    /// They end with this value.
    _relays: JoinSet<()>,
}

/// What a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Message {
    /// A request that writes.
    Write,
    /// One that writes the first ticket of a queue.
    Ticket,
    /// The answer to a request that writes.
    Acknowledgement,
    /// All others always pass.
    Other,
}

/// What becomes of some messages.
#[derive(Clone, Debug)]
struct Rule {
    of: Message,
    /// How long they are held back; `None` if they are lost.
    held_back: Option<Duration>,
    /// Answers to what was asked for earlier pass: the client may have had a majority without them.
    since: Instant,
    /// Gets the number of a relay that has done it, each time.
    done: UnboundedSender<usize>,
}

type SharedRule = Arc<Mutex<Option<Rule>>>;

impl LossyLink {
    /// A link on which nothing gets lost yet.
    pub(crate) async fn new(scene: &Scene) -> Self {
        let (mut urls, mut relays, rule) = (Vec::new(), JoinSet::new(), SharedRule::default());
        for (number, server) in scene.addresses().into_iter().enumerate() {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
            let listener = listener.expect("there are free ports");
            urls.push(format!("redis://{}", listener.local_addr().expect("it is bound")));
            relays.spawn(relay(listener, server, number, Arc::clone(&rule)));
        }
        LossyLink { masters: crate::scene::connect(&urls).await, rule, _relays: relays }
    }

    /// A builder of clients that use it.
    pub(crate) fn builder(&self, scene: &Scene) -> LockClientBuilder {
        scene.builder_on(&self.masters)
    }

    /// Whether a client's last failure is what losses come to: it got no answer, or the connections
    /// that broke were not open again.
    pub(crate) fn explains(failure: &DatabaseError) -> bool {
        failure.outcome() == Outcome::Unknown || format!("{failure:?}").contains("not connected")
    }

    /// Loses something from now on.
    pub(crate) fn lose(self: &Arc<Self>, loss: Loss) {
        match loss {
            Loss::OneAcknowledgement => {
                tokio::spawn(self.lose_acknowledgements(1));
            }
            Loss::Acknowledgements => drop(self.set(Message::Acknowledgement, None)),
            Loss::Requests => drop(self.set(Message::Write, None)),
        }
    }

    /// Loses the next acknowledgements of writes, this many, from now on; the future is ready once
    /// they are lost and nothing gets lost any more. What one server acknowledges does not count.
    pub(crate) fn lose_acknowledgements(
        self: &Arc<Self>,
        count: usize,
    ) -> impl Future<Output = ()> + use<> {
        let lost = self.set(Message::Acknowledgement, None);
        let link = Arc::clone(self);
        async move {
            of_a_majority(lost, count).await;
            link.heal();
        }
    }

    /// Holds each acknowledgement of a write back for some time, from now on. Returns once the next
    /// write is applied and its acknowledgement held back.
    pub(crate) async fn hold_back_acknowledgements(&self, time: Duration) {
        of_a_majority(self.set(Message::Acknowledgement, Some(time)), 1).await;
    }

    /// Returns once the first ticket of a queue is about to be written, early enough to lose
    /// something of it.
    pub(crate) async fn before_a_ticket(&self) {
        of_a_majority(self.set(Message::Ticket, Some(HELD_BACK)), 1).await;
        self.heal();
    }

    /// Loses nothing any more.
    pub(crate) fn heal(&self) {
        *self.rule.lock().expect("the mutex is not poisoned") = None;
    }

    /// Sets the only rule. Returns the numbers of the relays that follow it.
    fn set(&self, of: Message, held_back: Option<Duration>) -> UnboundedReceiver<usize> {
        let (done, by) = unbounded_channel();
        let rule = Rule { of, held_back, since: Instant::now(), done };
        *self.rule.lock().expect("the mutex is not poisoned") = Some(rule);
        by
    }
}

/// Waits until two of the three relays have done something this often.
async fn of_a_majority(mut done: UnboundedReceiver<usize>, count: usize) {
    let mut times = [0; 3];
    while times.iter().filter(|times| **times >= count).count() < 2 {
        let relay = done.recv().await.expect("no other rule is set meanwhile");
        times[relay] += 1;
    }
}

/// Relays each connection to a server.
async fn relay(listener: TcpListener, server: SocketAddr, number: usize, rule: SharedRule) {
    let mut connections = JoinSet::new();
    loop {
        let (client, _) = listener.accept().await.expect("there are free sockets");
        connections.spawn(serve(client, server, number, Arc::clone(&rule)));
    }
}

/// Relays a connection until either side ends it, or a message is lost.
async fn serve(client: TcpStream, server: SocketAddr, number: usize, rule: SharedRule) {
    let Ok(server) = TcpStream::connect(server).await else {
        return;
    };
    for end in [&client, &server] {
        end.set_nodelay(true).expect("it is open");
    }
    let (from_client, mut to_client) = client.into_split();
    let (from_server, mut to_server) = server.into_split();
    let (asked, mut to_be_answered) = unbounded_channel();
    let asking = async {
        let mut requests = Messages::of(from_client);
        while let Some(request) = requests.next().await {
            let message = Message::requested(&request);
            let answer = match message {
                Message::Write | Message::Ticket => Message::Acknowledgement,
                Message::Acknowledgement | Message::Other => Message::Other,
            };
            if !passes(&rule, number, message, None).await {
                return;
            }
            asked.send((answer, Instant::now())).expect("both directions end together");
            if to_server.write_all(&request).await.is_err() {
                return;
            }
        }
    };
    let answering = async {
        let mut answers = Messages::of(from_server);
        while let Some(answer) = answers.next().await {
            let (message, asked) = to_be_answered.recv().await.expect("it was asked");
            let passes = passes(&rule, number, message, Some(asked)).await;
            if !passes || to_client.write_all(&answer).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = asking => {}
        () = answering => {}
    }
}

/// Whether a message passes, after the time for which it is held back. What may be lost is decided
/// after that. An answer has the time of its request.
async fn passes(rule: &SharedRule, relay: usize, message: Message, asked: Option<Instant>) -> bool {
    let of_message = || {
        let rule = rule.lock().expect("the mutex is not poisoned").clone();
        rule.filter(|rule| message.is(rule.of) && asked.is_none_or(|asked| asked >= rule.since))
    };
    if let Some(Rule { held_back: Some(time), done, .. }) = of_message() {
        // No one may wait for it.
        let _ = done.send(relay);
        sleep(time).await;
    }
    match of_message() {
        Some(Rule { held_back: None, done, .. }) => {
            let _ = done.send(relay);
            false
        }
        Some(Rule { held_back: Some(_), .. }) | None => true,
    }
}

impl Message {
    /// What a request is. Cells have a letter of their own, which no other request has: they live
    /// or are dead.
    fn requested(request: &[u8]) -> Self {
        let contains = |part: &[u8]| request.windows(part.len()).any(|bytes| bytes == part);
        let [puts, deletes] = [b"\r\n$1\r\nL\r\n", b"\r\n$1\r\nD\r\n"].map(|cell| contains(cell));
        match (puts, deletes) {
            (true, _) if contains(FIRST_TICKET) => Message::Ticket,
            (false, false) => Message::Other,
            (true, _) | (_, true) => Message::Write,
        }
    }

    /// Whether a rule of such messages is about this one.
    fn is(self, of: Message) -> bool {
        self == of || (self, of) == (Message::Ticket, Message::Write)
    }
}

/// The requests or answers on a connection.
struct Messages {
    from: OwnedReadHalf,
    bytes: Vec<u8>,
}

impl Messages {
    fn of(from: OwnedReadHalf) -> Self {
        Messages { from, bytes: Vec::new() }
    }

    /// The next one, once all of it is there; `None` at the end of the connection.
    async fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(length) = length(&self.bytes) {
                return Some(self.bytes.drain(..length).collect());
            }
            if self.from.read_buf(&mut self.bytes).await.ok()? == 0 {
                return None;
            }
        }
    }
}

/// The length of the value of Redis' protocol (RESP 2) that `bytes` begin with, once all of it is
/// there.
fn length(bytes: &[u8]) -> Option<usize> {
    let line = bytes.windows(2).position(|end| end == b"\r\n")?;
    let begins = line + 2;
    let number = || {
        let number = str::from_utf8(&bytes[1..line]).ok().and_then(|text| text.parse::<i64>().ok());
        // That of nothing is -1.
        usize::try_from(number.expect("a length is a number")).ok()
    };
    match bytes[0] {
        b'$' => {
            let ends = number().map_or(begins, |length| begins + length + 2);
            (bytes.len() >= ends).then_some(ends)
        }
        b'*' => (0..number().unwrap_or(0)).try_fold(begins, |at, _| {
            Some(at + length(bytes.get(at..).filter(|it| !it.is_empty())?)?)
        }),
        _ => Some(begins),
    }
}
