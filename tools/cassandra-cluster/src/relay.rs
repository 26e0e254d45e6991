//! Relays bytes between nodes, delays them, and holds them back on cut links.
//!
//! For the system, all nodes connect from the same address, so no packet filter could tell them
//! apart. So each node is known to the others by an address of the relay, which learns from the
//! first message which node connects. Each connection carries the messages of the node that opened
//! it and only acknowledgements back, so holding back all of its bytes cuts one direction.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::links::{Link, Links};
use crate::node::listen_in_time;
use crate::{ClusterError, ClusterOptions, handshake};

/// How long a node that connects may take to send its first message.
const PATIENCE: Duration = Duration::from_secs(10);
/// The pause before a check or an attempt is repeated.
const POLL: Duration = Duration::from_millis(50);
/// How much is read at a time.
const CHUNK: usize = 64 * 1024;

/// Relays between the nodes of a cluster until it is dropped. The drop waits until the addresses
/// are free again. Connections end with the nodes.
#[derive(Debug)]
pub(crate) struct Relay {
    links: Arc<Links>,
    ended: Arc<AtomicBool>,
    entrances: Vec<Entrance>,
}

/// Where others reach a node.
#[derive(Debug)]
struct Entrance {
    address: SocketAddr,
    thread: JoinHandle<()>,
}

impl Relay {
    /// Listens on the addresses by which the nodes know each other.
    pub(crate) fn start(options: &ClusterOptions) -> Result<Self, ClusterError> {
        let mut relay =
            Self { links: Arc::default(), ended: Arc::default(), entrances: Vec::new() };
        for number in options.numbers() {
            let address = options.peer(number);
            let listener = listen_in_time(address)?;
            let (options, links, ended) =
                (options.clone(), Arc::clone(&relay.links), Arc::clone(&relay.ended));
            let thread = thread::spawn(move || {
                while let Some(stream) = accept(&listener, &ended) {
                    serve(stream, &options, number, &links);
                }
            });
            relay.entrances.push(Entrance { address, thread });
        }
        Ok(relay)
    }

    pub(crate) fn links(&self) -> &Links {
        &self.links
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.links.join();
        self.ended.store(true, Ordering::Release);
        for entrance in self.entrances.drain(..) {
            // The thread checks for the end after each connection. If this one fails, it has ended.
            let _ = TcpStream::connect(entrance.address);
            // A panic has been reported where it happened.
            let _ = entrance.thread.join();
        }
    }
}

/// The next connection; `None` at the relay's end.
fn accept(listener: &TcpListener, ended: &AtomicBool) -> Option<TcpStream> {
    loop {
        let accepted = listener.accept();
        if ended.load(Ordering::Acquire) {
            return None;
        }
        match accepted {
            Ok((stream, _)) => return Some(stream),
            Err(error) => {
                eprintln!("relay: accept a connection: {error}");
                // There may be too many open files, until some connections end.
                thread::sleep(POLL);
            }
        }
    }
}

/// Relays a connection to node `to` in threads of its own.
fn serve(stream: TcpStream, options: &ClusterOptions, to: u8, links: &Arc<Links>) {
    let (options, links) = (options.clone(), Arc::clone(links));
    thread::spawn(move || {
        if let Err(error) = relay(&stream, &options, to, &links) {
            eprintln!("relay to node {to}: {error}");
        }
    });
}

fn relay(stream: &TcpStream, options: &ClusterOptions, to: u8, links: &Links) -> io::Result<()> {
    let Some((first_message, from)) = receive(stream, options)? else {
        return Ok(());
    };
    let link = Link { from, to };
    while links.is_cut(link) {
        thread::sleep(POLL);
        if is_closed(stream)? {
            return Ok(());
        }
    }
    // If the node does not run yet, or no longer, the connecting node retries by itself.
    let Ok(node) = TcpStream::connect(options.storage(to)) else {
        return Ok(());
    };
    for end in [stream, &node] {
        end.set_nodelay(true)?;
    }
    (&node).write_all(&first_message)?;
    let (sent, arriving) = mpsc::channel();
    let (acknowledged, returning) = mpsc::channel();
    let node = &node;
    thread::scope(|scope| {
        scope.spawn(move || take(stream, &sent, || links.delay(link)));
        // Only acknowledgements go back: what they confirm was delayed on its way already.
        scope.spawn(move || take(node, &acknowledged, || Duration::ZERO));
        scope.spawn(move || hand_over(returning, stream, node, links, link));
        hand_over(arriving, node, stream, links, link);
    });
    Ok(())
}

/// Reads the first message and the number of the node that sent it; `None` if that node has closed
/// the connection.
fn receive(
    mut stream: &TcpStream,
    options: &ClusterOptions,
) -> io::Result<Option<([u8; handshake::LENGTH], u8)>> {
    let mut message = [0; handshake::LENGTH];
    stream.set_read_timeout(Some(PATIENCE))?;
    match stream.read_exact(&mut message) {
        Err(error) if is_end(error.kind()) => return Ok(None),
        result => result?,
    }
    stream.set_read_timeout(None)?;
    let initiator = handshake::initiator(message);
    match options.numbers().find(|&number| Some(options.peer_address(number)) == initiator) {
        Some(from) => Ok(Some((message, from))),
        None => Err(io::Error::other(format!("no node of this cluster sends {message:02x?}"))),
    }
}

/// Whether the connecting node has closed the connection, without sending anything since.
fn is_closed(stream: &TcpStream) -> io::Result<bool> {
    stream.set_nonblocking(true)?;
    let peeked = stream.peek(&mut [0]);
    stream.set_nonblocking(false)?;
    match peeked {
        Ok(length) => Ok(length == 0),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
        Err(error) if is_end(error.kind()) => Ok(true),
        Err(error) => Err(error),
    }
}

/// Bytes on their way, and when they arrive; none at the end of the connection.
struct Chunk {
    arrives: Instant,
    bytes: Vec<u8>,
}

/// Takes what one side sends, until it ends the connection.
fn take(mut from: &TcpStream, on_their_way: &Sender<Chunk>, delay: impl Fn() -> Duration) {
    let mut buffer = vec![0; CHUNK];
    loop {
        // A connection that is reset has ended too.
        let length = from.read(&mut buffer).unwrap_or(0);
        let chunk = Chunk { arrives: Instant::now() + delay(), bytes: buffer[..length].to_vec() };
        if on_their_way.send(chunk).is_err() || length == 0 {
            return;
        }
    }
}

/// Hands bytes over when they arrive, until either side ends the connection. Nothing passes while
/// the link is cut, not even the end: all of it arrives late, like data that TCP retransmits after
/// a partition.
fn hand_over(
    arriving: Receiver<Chunk>,
    mut to: &TcpStream,
    from: &TcpStream,
    links: &Links,
    link: Link,
) {
    for Chunk { arrives, bytes } in arriving {
        thread::sleep(arrives.saturating_duration_since(Instant::now()));
        links.wait_while_cut(link);
        if bytes.is_empty() || to.write_all(&bytes).is_err() {
            break;
        }
    }
    for end in [from, to] {
        // The connection may have ended already.
        let _ = end.shutdown(Shutdown::Both);
    }
}

fn is_end(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Network;

    /// In this time something would pass that must not.
    const WHILE: Duration = Duration::from_millis(300);
    /// After this time something hangs.
    const LIMIT: Duration = Duration::from_secs(120);
    const MESSAGE: &[u8; 5] = b"hello";

    /// Each test has nodes of its own: the tests run side by side.
    fn options(first_host: u8) -> ClusterOptions {
        let network = Network::Relayed;
        ClusterOptions { nodes: 2, first_host, network, ..ClusterOptions::default() }
    }

    /// A connection from one node to another: the end that was opened, and the accepted end.
    fn connect(options: &ClusterOptions, link: Link, node: &TcpListener) -> (TcpStream, TcpStream) {
        let opened = open(options, link);
        let (mut accepted, _) = node.accept().unwrap();
        accepted.set_read_timeout(Some(LIMIT)).unwrap();
        let mut message = [0; handshake::LENGTH];
        accepted.read_exact(&mut message).unwrap();
        assert_eq!(handshake::initiator(message), Some(options.peer_address(link.from)));
        (opened, accepted)
    }

    fn open(options: &ClusterOptions, link: Link) -> TcpStream {
        let mut stream = TcpStream::connect(options.peer(link.to)).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.write_all(&handshake::of(options.peer_address(link.from))).unwrap();
        stream
    }

    fn arrives(mut sender: &TcpStream, receiver: &TcpStream) {
        sender.write_all(MESSAGE).unwrap();
        take_message(receiver);
    }

    fn take_message(mut receiver: &TcpStream) {
        let mut text = [0; MESSAGE.len()];
        receiver.read_exact(&mut text).unwrap();
        assert_eq!(&text, MESSAGE);
    }

    #[test]
    fn a_cut_link_delivers_late_and_the_way_back_works() {
        let options = options(14);
        let relay = Relay::start(&options).unwrap();
        let [one, two] = [1, 2].map(|number| TcpListener::bind(options.storage(number)).unwrap());
        let [there, back] = Link::both(1, 2);
        let (sender, mut receiver) = connect(&options, there, &two);
        arrives(&sender, &receiver);
        arrives(&receiver, &sender);

        relay.links().cut(there);
        (&sender).write_all(b"late").unwrap();
        let held = open(&options, there);
        let mut given_up = open(&options, there);
        let (way_back, its_end) = connect(&options, back, &one);
        arrives(&way_back, &its_end);
        arrives(&its_end, &way_back);
        given_up.shutdown(Shutdown::Write).unwrap();
        assert_eq!(given_up.read(&mut [0]).unwrap(), 0, "the relay does not give up too");
        thread::sleep(WHILE);
        for end in [&sender, &receiver] {
            end.set_nonblocking(true).unwrap();
            assert_eq!(end.peek(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
            end.set_nonblocking(false).unwrap();
        }
        two.set_nonblocking(true).unwrap();
        assert_eq!(two.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
        two.set_nonblocking(false).unwrap();

        relay.links().join();
        let mut text = [0; 4];
        receiver.read_exact(&mut text).unwrap();
        assert_eq!(&text, b"late");
        let (its_end, _) = two.accept().unwrap();
        its_end.set_read_timeout(Some(LIMIT)).unwrap();
        (&its_end).read_exact(&mut [0; handshake::LENGTH]).unwrap();
        arrives(&held, &its_end);
        thread::sleep(WHILE);
        two.set_nonblocking(true).unwrap();
        assert_eq!(two.accept().unwrap_err().kind(), ErrorKind::WouldBlock);

        drop(sender);
        assert_eq!(receiver.read(&mut text).unwrap(), 0);
        drop(relay);
        TcpListener::bind(options.peer(1)).unwrap();
    }

    #[test]
    fn a_delayed_link_delivers_each_message_so_much_later() {
        const DELAY: Duration = Duration::from_secs(1);
        const MESSAGES: u32 = 30;
        let options = options(16);
        let relay = Relay::start(&options).unwrap();
        let [one, two] = [1, 2].map(|number| TcpListener::bind(options.storage(number)).unwrap());
        let [there, back] = Link::both(1, 2);
        let (sender, receiver) = connect(&options, there, &two);
        let (way_back, its_end) = connect(&options, back, &one);
        relay.links().set_delay(there, DELAY);
        let begun = Instant::now();
        let sent: Vec<_> = (0..MESSAGES).map(|_| send(&sender)).collect();
        for sent in sent {
            take_message(&receiver);
            assert!(sent.elapsed() >= DELAY, "{:?}", sent.elapsed());
        }
        // One after the other they would take as many delays.
        assert!(begun.elapsed() < DELAY * MESSAGES, "{:?}", begun.elapsed());
        // What is delayed now is not there in time.
        relay.links().set_delay(there, LIMIT * 2);
        arrives(&receiver, &sender);
        arrives(&way_back, &its_end);
        relay.links().end_delays();
        arrives(&sender, &receiver);
    }

    /// Sends a message, and pauses so that it arrives alone. Returns when it was not sent yet.
    fn send(mut sender: &TcpStream) -> Instant {
        let sent = Instant::now();
        sender.write_all(MESSAGE).unwrap();
        thread::sleep(Duration::from_millis(10));
        sent
    }

    #[test]
    fn other_nodes_are_not_relayed() {
        let options = ClusterOptions { nodes: 1, ..options(18) };
        let relay = Relay::start(&options).unwrap();
        let node = TcpListener::bind(options.storage(1)).unwrap();
        for message in [handshake::of(options.peer_address(2)), [0; handshake::LENGTH]] {
            let mut stream = TcpStream::connect(options.peer(1)).unwrap();
            stream.write_all(&message).unwrap();
            assert_eq!(stream.read(&mut [0]).unwrap(), 0);
        }
        node.set_nonblocking(true).unwrap();
        assert_eq!(node.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
        drop(relay);
    }
}
