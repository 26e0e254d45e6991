//! A connection of a Unix socket, which is woken only for what it waits for.
//!
//! The kernel reports a Unix socket as writable each time that the other end has read something.
//! tokio's own stream asks for that from the beginning, so each answer would wake the daemon once
//! more, for nothing.

use std::io::{self, IoSlice, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};

/// One end of a connection.
#[derive(Debug)]
pub(super) struct Stream(AsyncFd<UnixStream>);

/// Reads from a connection.
#[derive(Debug)]
pub(super) struct ReadHalf<'a>(&'a AsyncFd<UnixStream>);

/// Writes to a connection.
#[derive(Debug)]
pub(super) struct WriteHalf<'a> {
    stream: &'a UnixStream,
    /// Says when there is room, while there is none.
    room: Option<AsyncFd<UnixStream>>,
}

impl Stream {
    /// # Errors
    ///
    /// The kernel can't watch another descriptor.
    pub(super) fn new(stream: tokio::net::UnixStream) -> io::Result<Self> {
        watched(stream.into_std()?, Interest::READABLE).map(Stream)
    }

    /// Its two directions.
    pub(super) fn split(&mut self) -> (ReadHalf<'_>, WriteHalf<'_>) {
        (ReadHalf(&self.0), WriteHalf { stream: self.0.get_ref(), room: None })
    }
}

fn watched(stream: UnixStream, interest: Interest) -> io::Result<AsyncFd<UnixStream>> {
    #[expect(deprecated, reason = "only for descriptors that may be closed meanwhile")]
    AsyncFd::with_interest(stream, interest)
}

impl AsyncRead for ReadHalf<'_> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut ready = ready!(self.0.poll_read_ready(context))?;
            let room = buffer.initialize_unfilled();
            let size = room.len();
            let Ok(count) = ready.try_io(|stream| stream.get_ref().read(room)) else { continue };
            let count = count?;
            if 0 < count && count < size {
                // That was all: the next read waits at once.
                ready.clear_ready();
            }
            buffer.advance(count);
            return Poll::Ready(Ok(()));
        }
    }
}

impl WriteHalf<'_> {
    /// Writes what there is room for, or waits for room.
    fn poll_io(
        &mut self,
        context: &mut Context<'_>,
        mut write: impl FnMut(&UnixStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            if let Some(room) = &self.room {
                ready!(room.poll_write_ready(context))?.clear_ready();
            }
            match write(self.stream) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => {
                    self.room = None;
                    return Poll::Ready(written);
                }
            }
            if self.room.is_none() {
                self.room = Some(watched(self.stream.try_clone()?, Interest::WRITABLE)?);
            }
        }
    }
}

impl AsyncWrite for WriteHalf<'_> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_io(context, |mut stream| stream.write(bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_io(context, |mut stream| stream.write_vectored(slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.stream.shutdown(Shutdown::Write))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::join;
    use tokio::net::UnixStream;

    use super::*;

    #[tokio::test]
    async fn everything_arrives_in_both_directions() {
        // More than the kernel keeps for a socket.
        const SIZE: usize = 4 << 20;
        let (ours, mut theirs) = UnixStream::pair().expect("there are descriptors");
        let mut ours = Stream::new(ours).expect("it can be watched");
        let (mut read, mut write) = ours.split();
        let sent: Vec<u8> = (0..=250).cycle().take(SIZE).collect();
        let mut received = vec![0; SIZE];

        let (written, was_read) = join!(write.write_all(&sent), theirs.read_exact(&mut received));
        assert!(written.is_ok() && was_read.is_ok());
        assert!(sent == received, "what we sent");

        received.fill(0);
        let (written, was_read) = join!(theirs.write_all(&sent), read.read_exact(&mut received));
        assert!(written.is_ok() && was_read.is_ok());
        assert!(sent == received, "what they sent");

        write.shutdown().await.expect("it is open");
        assert_eq!(theirs.read(&mut [0]).await.expect("the end is no error"), 0);
        drop(theirs);
        assert_eq!(read.read(&mut [0]).await.expect("the end is no error"), 0);
    }

    #[tokio::test]
    async fn other_end_that_has_gone_is_an_error() {
        let (ours, theirs) = UnixStream::pair().expect("there are descriptors");
        let mut ours = Stream::new(ours).expect("it can be watched");
        let (_, mut write) = ours.split();
        drop(theirs);
        let error = write.write_all(b"+OK\r\n").await.expect_err("no one reads it");
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }
}
