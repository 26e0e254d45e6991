//! What goes out on a connection.
//!
//! A message is written at once by the task that sends it, as long as the socket takes it. To wake
//! up the connection's own task for each message costs more than the write itself, and a turn that
//! goes from hand to hand waits for nothing else.

use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use serde::Serialize;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::super::wire::{Sender, WireError};
use super::lock;
use super::socket::Writer;

/// The maximum number of bytes that wait for a side that reads slowly. Messages beyond are lost,
/// and repeated later.
const UNWRITTEN_MAX: usize = 64 * 1024;

/// The way out, for all tasks.
pub(super) struct ConnectionWriter<Out> {
    outgoing: Mutex<Outgoing<Out>>,
    /// The socket has not taken everything, or has failed.
    is_stalled: Notify,
    /// How many messages the client has sent, to all others.
    sent: Arc<AtomicU64>,
}

struct Outgoing<Out> {
    sender: Sender<Writer, Out>,
    /// When the last message was sent.
    last: Instant,
}

impl<Out: Serialize> ConnectionWriter<Out> {
    pub(super) fn new(sender: Sender<Writer, Out>, sent: Arc<AtomicU64>) -> Self {
        let outgoing = Outgoing { sender, last: Instant::now() };
        ConnectionWriter { outgoing: Mutex::new(outgoing), is_stalled: Notify::new(), sent }
    }

    /// Sends a message. It is lost if too many wait already, or if the connection has ended.
    pub(super) fn send(&self, message: &Out) {
        let mut outgoing = lock(&self.outgoing);
        let waiting = outgoing.sender.unwritten();
        if waiting > UNWRITTEN_MAX || outgoing.sender.add(message).is_err() {
            return;
        }
        outgoing.last = Instant::now();
        self.sent.fetch_add(1, Ordering::Relaxed);
        // It follows what waits already.
        if waiting > 0 {
            return;
        }
        let mut unheeded = Context::from_waker(Waker::noop());
        let written = outgoing.sender.poll_flush(&mut unheeded);
        if !matches!(written, Poll::Ready(Ok(()))) {
            self.is_stalled.notify_one();
        }
    }

    /// When the last message was sent.
    pub(super) fn last(&self) -> Instant {
        lock(&self.outgoing).last
    }

    /// Writes what the socket did not take at once, until the connection fails.
    pub(super) async fn drain(&self) -> WireError {
        loop {
            self.is_stalled.notified().await;
            let written = poll_fn(|context| lock(&self.outgoing).sender.poll_flush(context));
            if let Err(error) = written.await {
                return error;
            }
        }
    }
}
