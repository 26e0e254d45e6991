//! The channel between `lockctl` and the guardian of a command.
//!
//! The guardian's end takes the place of its standard input, so the command inherits no descriptor
//! of it. The standard input for the command comes with the first order.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net;
use std::time::Duration;

use rustix::cmsg_space;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, send, sendmsg,
};
use rustix::process::Signal;
use tokio::net::UnixStream;

use crate::signals::Received;

/// What `lockctl` sends to the guardian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// The lock is held until then, by the boot time.
    HeldUntil(Duration),
    /// The command gets a signal.
    PassOn(Received),
    /// The command must end now.
    End,
}

/// What the guardian sends to `lockctl`. It prints nothing itself: a terminal may stop those who
/// write to it from the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Report {
    /// The command was not started.
    NotStarted(Errno),
    /// The command has ended, and this many processes that it started have not.
    Leaves(u32),
    /// This process belongs to another user, and can't be ended.
    NotPermitted(u32),
    /// The command is ended because the lock was not renewed in time.
    OutOfTime,
}

/// A message: what it is, and a number.
pub(super) trait Message: Copy {
    fn parts(self) -> (u8, u64);
    fn from_parts(kind: u8, value: u64) -> Option<Self>;
}

impl Message for Order {
    fn parts(self) -> (u8, u64) {
        match self {
            Order::HeldUntil(deadline) => {
                (0, u64::try_from(deadline.as_nanos()).unwrap_or(u64::MAX))
            }
            Order::PassOn(Received { signal, by_terminal }) => {
                (1 + u8::from(by_terminal), u64::from(signal.as_raw().unsigned_abs()))
            }
            Order::End => (3, 0),
        }
    }

    fn from_parts(kind: u8, value: u64) -> Option<Self> {
        Some(match kind {
            0 => Order::HeldUntil(Duration::from_nanos(value)),
            1 | 2 => {
                let signal = Signal::from_named_raw(value.try_into().ok()?)?;
                Order::PassOn(Received { signal, by_terminal: kind == 2 })
            }
            3 => Order::End,
            _ => return None,
        })
    }
}

impl Message for Report {
    fn parts(self) -> (u8, u64) {
        match self {
            Report::NotStarted(errno) => (0, u64::from(errno.raw_os_error().unsigned_abs())),
            Report::Leaves(count) => (1, count.into()),
            Report::NotPermitted(pid) => (2, pid.into()),
            Report::OutOfTime => (3, 0),
        }
    }

    fn from_parts(kind: u8, value: u64) -> Option<Self> {
        Some(match kind {
            0 => Report::NotStarted(Errno::from_raw_os_error(value.try_into().ok()?)),
            1 => Report::Leaves(value.try_into().ok()?),
            2 => Report::NotPermitted(value.try_into().ok()?),
            3 => Report::OutOfTime,
            _ => return None,
        })
    }
}

const FRAME_BYTES: usize = 9;

fn encoded(message: impl Message) -> [u8; FRAME_BYTES] {
    let (kind, value) = message.parts();
    let mut frame = [kind; FRAME_BYTES];
    frame[1..].copy_from_slice(&value.to_le_bytes());
    frame
}

fn decoded<M: Message>(frame: &[u8; FRAME_BYTES]) -> Option<M> {
    let (kind, value) = frame.split_first()?;
    M::from_parts(*kind, u64::from_le_bytes(value.try_into().ok()?))
}

/// One end of the channel.
pub(super) struct Channel<Out, In> {
    socket: UnixStream,
    /// What the other end had no space for yet: it may be stopped.
    unsent: Vec<u8>,
    /// The beginning of what was received, and not taken yet.
    received: Vec<u8>,
    messages: PhantomData<(Out, In)>,
}

/// The end of `lockctl`, and the guardian's, which finds `lockctl`'s standard input and until when
/// the lock is held.
pub(super) fn pair(held_until: Duration) -> io::Result<(Channel<Order, Report>, OwnedFd)> {
    let (theirs, ours) = net::UnixStream::pair()?;
    let stdin = io::stdin();
    let descriptors = [stdin.as_fd()];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    // There is space for one descriptor.
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    let order = encoded(Order::HeldUntil(held_until));
    sendmsg(&ours, &[IoSlice::new(&order)], &mut control, SendFlags::empty())?;
    Ok((Channel::new(ours)?, theirs.into()))
}

/// The guardian's end, the first order, and the command's standard input.
pub(super) fn receive() -> io::Result<(Channel<Report, Order>, Order, OwnedFd)> {
    let socket = net::UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut frame = [0; FRAME_BYTES];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut frame)];
    let bytes = recvmsg(&socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?.bytes;
    let stdin = control.drain().find_map(|message| {
        let RecvAncillaryMessage::ScmRights(mut descriptors) = message else { return None };
        descriptors.next()
    });
    match (stdin, decoded(&frame)) {
        (Some(stdin), Some(order)) if bytes == FRAME_BYTES => {
            Ok((Channel::new(socket)?, order, stdin))
        }
        _ => Err(ErrorKind::UnexpectedEof.into()),
    }
}

impl<Out: Message, In: Message> Channel<Out, In> {
    fn new(socket: net::UnixStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let socket = UnixStream::from_std(socket)?;
        Ok(Channel { socket, unsent: Vec::new(), received: Vec::new(), messages: PhantomData })
    }

    /// Sends a message. Where there is no space for it now, it goes with the next one.
    pub(super) fn send(&mut self, message: Out) {
        self.unsent.extend(encoded(message));
        // Not the socket's own method, which may have to wait for the runtime. Whether the other
        // end is closed shows in what it sends.
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        if let Ok(sent) = send(&self.socket, &self.unsent, flags) {
            self.unsent.drain(..sent);
        }
    }

    /// The next message; `None` when the other end is closed.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost: what was received is kept.
    pub(super) async fn next(&mut self) -> Option<In> {
        loop {
            if let Some(frame) = self.received.first_chunk() {
                let message = decoded(frame);
                self.received.drain(..FRAME_BYTES);
                if message.is_some() {
                    return message;
                }
                continue;
            }
            let mut read = [0; 4096];
            match self.socket.try_read(&mut read) {
                Ok(0) => return None,
                Ok(bytes) => self.received.extend_from_slice(&read[..bytes]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.socket.readable().await.ok()?;
                }
                Err(_) => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_that_was_sent_is_received() {
        let received = |signal, by_terminal| Order::PassOn(Received { signal, by_terminal });
        for order in [
            Order::HeldUntil(Duration::from_nanos(123_456_789_012)),
            received(Signal::TERM, false),
            received(Signal::INT, true),
            Order::End,
        ] {
            assert_eq!(decoded(&encoded(order)), Some(order));
        }
        for report in [
            Report::NotStarted(Errno::NOENT),
            Report::Leaves(3),
            Report::NotPermitted(4711),
            Report::OutOfTime,
        ] {
            assert_eq!(decoded(&encoded(report)), Some(report));
        }
    }

    #[test]
    fn unknown_message_is_none() {
        let frame = |kind| [kind, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(decoded::<Order>(&frame(9)), None);
        assert_eq!(decoded::<Order>(&frame(1)), None, "no signal has the number 0");
        assert_eq!(decoded::<Report>(&frame(9)), None);
    }
}
