//! A Unix socket whose task is woken only for what it waits for.
//!
//! The kernel reports a Unix socket as writable each time that the other end has read something.
//! tokio's own stream asks for that from the beginning, so each message that arrives would wake its
//! sender once more, for nothing.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};

/// Reads from a connection.
pub(super) struct ReadHalf(Arc<AsyncFd<UnixStream>>);

/// Writes to a connection.
pub(super) struct WriteHalf {
    stream: Arc<AsyncFd<UnixStream>>,
    /// Says when there is room, while there is none.
    room: Option<AsyncFd<UnixStream>>,
}

/// The two directions of a connection.
///
/// # Errors
///
/// The kernel can't watch another descriptor.
pub(super) fn split(stream: tokio::net::UnixStream) -> io::Result<(ReadHalf, WriteHalf)> {
    let stream = Arc::new(watched(stream.into_std()?, Interest::READABLE)?);
    Ok((ReadHalf(Arc::clone(&stream)), WriteHalf { stream, room: None }))
}

fn watched(stream: UnixStream, interest: Interest) -> io::Result<AsyncFd<UnixStream>> {
    #[expect(deprecated, reason = "only for descriptors that may be closed meanwhile")]
    AsyncFd::with_interest(stream, interest)
}

impl AsyncRead for ReadHalf {
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

impl AsyncWrite for WriteHalf {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        loop {
            if let Some(room) = &this.room {
                ready!(room.poll_write_ready(context))?.clear_ready();
            }
            match this.stream.get_ref().write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => {
                    this.room = None;
                    return Poll::Ready(written);
                }
            }
            if this.room.is_none() {
                let another = this.stream.get_ref().try_clone()?;
                this.room = Some(watched(another, Interest::WRITABLE)?);
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.stream.get_ref().shutdown(Shutdown::Write))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn connected() -> (ReadHalf, WriteHalf, tokio::net::UnixStream) {
        let (one, other) = tokio::net::UnixStream::pair().expect("there are descriptors");
        let (reader, writer) = split(one).expect("it can be watched");
        (reader, writer, other)
    }

    // More than the kernel keeps for a socket, so that both sides wait for room.
    #[tokio::test]
    async fn bytes_arrive_in_both_directions_at_once() {
        let (mut reader, mut writer, mut other) = connected();
        let sent: Vec<u8> = (0..4 << 20).map(|number: u32| number.to_le_bytes()[1]).collect();
        let (mut ours, mut theirs) = (vec![0; sent.len()], vec![0; sent.len()]);
        let (mut from, mut to) = other.split();
        tokio::try_join!(
            writer.write_all(&sent),
            from.read_exact(&mut theirs),
            to.write_all(&sent),
            reader.read_exact(&mut ours),
        )
        .expect("both ends are there");
        assert!(ours == sent && theirs == sent);
        assert!(writer.room.is_none(), "room is waited for only while there is none");
    }

    #[tokio::test]
    async fn end_of_either_side_is_noticed() {
        let (mut reader, mut writer, mut other) = connected();
        writer.shutdown().await.expect("it is open");
        assert_eq!(other.read(&mut [0]).await.expect("an end is no error"), 0);
        drop(other);
        assert_eq!(reader.read(&mut [0]).await.expect("an end is no error"), 0);
        let error = writer.write_all(&[1]).await.expect_err("it is shut down");
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }
}
