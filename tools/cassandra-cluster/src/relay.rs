//! Relays bytes between nodes, delays them, and holds them back on cut links.
//!
//! To the kernel, all nodes connect from the same address, so a packet filter can't distinguish
//! them. Instead, the nodes know each other by addresses of the relay, and the first message of a
//! connection identifies the connecting node. A connection carries only messages of the node that
//! opened it, and acknowledgements in return. Holding back all of its bytes cuts one direction.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::links::{Link, Links};
use crate::node::bind_with_retry;
use crate::{ClusterError, ClusterOptions, handshake};

/// How long a connecting node may take to send its first message.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause between checks or attempts.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The maximum number of bytes read at a time.
const CHUNK_SIZE: usize = 64 * 1024;

/// Relays between the nodes of a cluster until dropped. The drop waits until the addresses are
/// free. Connections last until the nodes close them.
#[derive(Debug)]
pub(crate) struct Relay {
    links: Arc<Links>,
    stopped: Arc<AtomicBool>,
    listeners: Vec<Listener>,
}

/// The thread that accepts connections to one node.
#[derive(Debug)]
struct Listener {
    address: SocketAddr,
    thread: JoinHandle<()>,
}

impl Relay {
    /// Listens on the addresses by which the nodes know each other.
    pub(crate) fn start(options: &ClusterOptions) -> Result<Self, ClusterError> {
        let mut relay =
            Self { links: Arc::default(), stopped: Arc::default(), listeners: Vec::new() };
        for number in options.numbers() {
            let address = options.peer(number);
            let listener = bind_with_retry(address)?;
            let (options, links, stopped) =
                (options.clone(), Arc::clone(&relay.links), Arc::clone(&relay.stopped));
            let thread = thread::spawn(move || {
                while let Some(stream) = accept(&listener, &stopped) {
                    spawn_relay(stream, &options, number, &links);
                }
            });
            relay.listeners.push(Listener { address, thread });
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
        self.stopped.store(true, Ordering::Release);
        for listener in self.listeners.drain(..) {
            // A connection wakes the thread. If connecting fails, the thread has already exited.
            let _ = TcpStream::connect(listener.address);
            // A panic was already reported by its thread.
            let _ = listener.thread.join();
        }
    }
}

/// Accepts the next connection; `None` when the relay stops.
fn accept(listener: &TcpListener, stopped: &AtomicBool) -> Option<TcpStream> {
    loop {
        let accepted = listener.accept();
        if stopped.load(Ordering::Acquire) {
            return None;
        }
        match accepted {
            Ok((stream, _)) => return Some(stream),
            Err(error) => {
                eprintln!("relay: could not accept a connection: {error}");
                // The process may be out of file descriptors until some connections end.
                thread::sleep(POLL_INTERVAL);
            }
        }
    }
}

/// Relays a connection to node `to` in separate threads.
fn spawn_relay(stream: TcpStream, options: &ClusterOptions, to: u8, links: &Arc<Links>) {
    let (options, links) = (options.clone(), Arc::clone(links));
    thread::spawn(move || {
        if let Err(error) = relay(&stream, &options, to, &links) {
            eprintln!("relay to node {to}: {error}");
        }
    });
}

fn relay(stream: &TcpStream, options: &ClusterOptions, to: u8, links: &Links) -> io::Result<()> {
    let Some((first_message, from)) = read_handshake(stream, options)? else {
        return Ok(());
    };
    let link = Link { from, to };
    while links.is_cut(link) {
        thread::sleep(POLL_INTERVAL);
        if is_closed(stream)? {
            return Ok(());
        }
    }
    // If the node is not running, the connecting node retries by itself.
    let Ok(node) = TcpStream::connect(options.storage(to)) else {
        return Ok(());
    };
    for end in [stream, &node] {
        end.set_nodelay(true)?;
    }
    (&node).write_all(&first_message)?;
    let (forward_sender, forward) = mpsc::channel();
    let (backward_sender, backward) = mpsc::channel();
    let node = &node;
    thread::scope(|scope| {
        scope.spawn(move || read_chunks(stream, &forward_sender, || links.delay(link)));
        // Acknowledgements are not delayed: the messages that they confirm already were.
        scope.spawn(move || read_chunks(node, &backward_sender, || Duration::ZERO));
        scope.spawn(move || deliver(backward, stream, node, links, link));
        deliver(forward, node, stream, links, link);
    });
    Ok(())
}

/// Reads the first message and identifies its sender by node number; `None` if the sender has
/// closed the connection.
fn read_handshake(
    mut stream: &TcpStream,
    options: &ClusterOptions,
) -> io::Result<Option<([u8; handshake::LENGTH], u8)>> {
    let mut message = [0; handshake::LENGTH];
    stream.set_read_timeout(Some(HANDSHAKE_TIMEOUT))?;
    match stream.read_exact(&mut message) {
        Err(error) if is_disconnect(error.kind()) => return Ok(None),
        result => result?,
    }
    stream.set_read_timeout(None)?;
    let initiator = handshake::initiator(message);
    match options.numbers().find(|&number| Some(options.peer_address(number)) == initiator) {
        Some(from) => Ok(Some((message, from))),
        None => Err(io::Error::other(format!("unexpected first message: {message:02x?}"))),
    }
}

/// Whether the connecting node has closed the connection without sending more bytes.
fn is_closed(stream: &TcpStream) -> io::Result<bool> {
    stream.set_nonblocking(true)?;
    let peeked = stream.peek(&mut [0]);
    stream.set_nonblocking(false)?;
    match peeked {
        Ok(length) => Ok(length == 0),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
        Err(error) if is_disconnect(error.kind()) => Ok(true),
        Err(error) => Err(error),
    }
}

/// Bytes in flight and their time of arrival. No bytes mean the end of the connection.
struct Chunk {
    arrives_at: Instant,
    bytes: Vec<u8>,
}

/// Reads what one side sends until it closes the connection.
fn read_chunks(mut from: &TcpStream, in_flight: &Sender<Chunk>, delay: impl Fn() -> Duration) {
    let mut buffer = vec![0; CHUNK_SIZE];
    loop {
        // A reset connection counts as closed.
        let length = from.read(&mut buffer).unwrap_or(0);
        let chunk =
            Chunk { arrives_at: Instant::now() + delay(), bytes: buffer[..length].to_vec() };
        if in_flight.send(chunk).is_err() || length == 0 {
            return;
        }
    }
}

/// Delivers chunks at their time of arrival until either side closes the connection. While the link
/// is cut, everything waits, even the close, like data that TCP retransmits after a partition.
fn deliver(
    in_flight: Receiver<Chunk>,
    mut to: &TcpStream,
    from: &TcpStream,
    links: &Links,
    link: Link,
) {
    for Chunk { arrives_at, bytes } in in_flight {
        thread::sleep(arrives_at.saturating_duration_since(Instant::now()));
        links.wait_while_cut(link);
        if bytes.is_empty() || to.write_all(&bytes).is_err() {
            break;
        }
    }
    for end in [from, to] {
        // The connection may already be closed.
        let _ = end.shutdown(Shutdown::Both);
    }
}

fn is_disconnect(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Network;

    /// Long enough for bytes to arrive that must not.
    const SETTLE_TIME: Duration = Duration::from_millis(300);
    /// Longer waits mean a hang, even on a busy machine.
    const TIMEOUT: Duration = Duration::from_secs(120);
    const MESSAGE: &[u8; 5] = b"hello";

    /// Each test has its own nodes, because tests run in parallel.
    fn options(first_host: u8) -> ClusterOptions {
        let network = Network::Relayed;
        ClusterOptions { nodes: 2, first_host, network, ..ClusterOptions::default() }
    }

    /// Connects one node to another, and returns the opened and the accepted end.
    fn connect(options: &ClusterOptions, link: Link, node: &TcpListener) -> (TcpStream, TcpStream) {
        let opened = open(options, link);
        let (mut accepted, _) = node.accept().unwrap();
        accepted.set_read_timeout(Some(TIMEOUT)).unwrap();
        let mut message = [0; handshake::LENGTH];
        accepted.read_exact(&mut message).unwrap();
        assert_eq!(handshake::initiator(message), Some(options.peer_address(link.from)));
        (opened, accepted)
    }

    fn open(options: &ClusterOptions, link: Link) -> TcpStream {
        let mut stream = TcpStream::connect(options.peer(link.to)).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.write_all(&handshake::message_from(options.peer_address(link.from))).unwrap();
        stream
    }

    fn expect_delivery(mut sender: &TcpStream, receiver: &TcpStream) {
        sender.write_all(MESSAGE).unwrap();
        expect_message(receiver);
    }

    fn expect_message(mut receiver: &TcpStream) {
        let mut text = [0; MESSAGE.len()];
        receiver.read_exact(&mut text).unwrap();
        assert_eq!(&text, MESSAGE);
    }

    #[test]
    fn cut_link_delivers_after_join_and_reverse_link_works() {
        let options = options(14);
        let relay = Relay::start(&options).unwrap();
        let [one, two] = [1, 2].map(|number| TcpListener::bind(options.storage(number)).unwrap());
        let [forward, backward] = Link::both(1, 2);
        let (sender, mut receiver) = connect(&options, forward, &two);
        expect_delivery(&sender, &receiver);
        expect_delivery(&receiver, &sender);

        relay.links().cut(forward);
        (&sender).write_all(b"late").unwrap();
        let held = open(&options, forward);
        let mut abandoned = open(&options, forward);
        let (reverse_sender, reverse_receiver) = connect(&options, backward, &one);
        expect_delivery(&reverse_sender, &reverse_receiver);
        expect_delivery(&reverse_receiver, &reverse_sender);
        abandoned.shutdown(Shutdown::Write).unwrap();
        assert_eq!(abandoned.read(&mut [0]).unwrap(), 0, "the relay must close it too");
        thread::sleep(SETTLE_TIME);
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
        let (held_end, _) = two.accept().unwrap();
        held_end.set_read_timeout(Some(TIMEOUT)).unwrap();
        (&held_end).read_exact(&mut [0; handshake::LENGTH]).unwrap();
        expect_delivery(&held, &held_end);
        thread::sleep(SETTLE_TIME);
        two.set_nonblocking(true).unwrap();
        assert_eq!(two.accept().unwrap_err().kind(), ErrorKind::WouldBlock);

        drop(sender);
        assert_eq!(receiver.read(&mut text).unwrap(), 0);
        drop(relay);
        TcpListener::bind(options.peer(1)).unwrap();
    }

    #[test]
    fn delayed_link_delays_each_message_separately() {
        const DELAY: Duration = Duration::from_secs(1);
        const MESSAGES: u32 = 30;
        let options = options(16);
        let relay = Relay::start(&options).unwrap();
        let [one, two] = [1, 2].map(|number| TcpListener::bind(options.storage(number)).unwrap());
        let [forward, backward] = Link::both(1, 2);
        let (sender, receiver) = connect(&options, forward, &two);
        let (reverse_sender, reverse_receiver) = connect(&options, backward, &one);
        relay.links().set_delay(forward, DELAY);
        let started_at = Instant::now();
        let sent: Vec<_> = (0..MESSAGES).map(|_| send(&sender)).collect();
        for sent_at in sent {
            expect_message(&receiver);
            assert!(sent_at.elapsed() >= DELAY, "{:?}", sent_at.elapsed());
        }
        // Consecutive delays would take this long.
        assert!(started_at.elapsed() < DELAY * MESSAGES, "{:?}", started_at.elapsed());
        // Neither acknowledgements nor the reverse link are delayed.
        relay.links().set_delay(forward, TIMEOUT * 2);
        expect_delivery(&receiver, &sender);
        expect_delivery(&reverse_sender, &reverse_receiver);
        relay.links().end_delays();
        expect_delivery(&sender, &receiver);
    }

    /// Sends a message, and pauses so that it is read alone. Returns the time before the send.
    fn send(mut sender: &TcpStream) -> Instant {
        let sent_at = Instant::now();
        sender.write_all(MESSAGE).unwrap();
        thread::sleep(Duration::from_millis(10));
        sent_at
    }

    #[test]
    fn connection_from_unknown_node_is_closed() {
        let options = ClusterOptions { nodes: 1, ..options(18) };
        let relay = Relay::start(&options).unwrap();
        let node = TcpListener::bind(options.storage(1)).unwrap();
        for message in [handshake::message_from(options.peer_address(2)), [0; handshake::LENGTH]] {
            let mut stream = TcpStream::connect(options.peer(1)).unwrap();
            stream.write_all(&message).unwrap();
            assert_eq!(stream.read(&mut [0]).unwrap(), 0);
        }
        node.set_nonblocking(true).unwrap();
        assert_eq!(node.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
        drop(relay);
    }
}
