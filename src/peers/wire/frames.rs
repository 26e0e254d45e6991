//! Frames: a length of two bytes, and that many bytes.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio_util::bytes;
use tokio_util::codec::{Decoder, LengthDelimitedCodec};

use super::error::WireError;

/// The most bytes that follow a length: 1 KiB with it. An encrypted message has no more.
pub(super) const FRAME_MAX: usize = 1024 - size_of::<u16>();

/// Bytes are read in pieces of this size: some frames at once, and never more for one connection,
/// whatever lengths it announces.
const READ_AT_ONCE: usize = 2048;

/// A stream with two directions, for two tasks at once.
pub(crate) trait Stream {
    /// The direction in which bytes come.
    type Reader: AsyncRead + Unpin;
    /// The direction in which bytes go.
    type Writer: AsyncWrite + Unpin;

    /// Its two directions.
    fn directions(self) -> (Self::Reader, Self::Writer);
}

/// Its halves share no lock, unlike those of [`tokio::io::split`].
impl Stream for TcpStream {
    type Reader = OwnedReadHalf;
    type Writer = OwnedWriteHalf;

    fn directions(self) -> (OwnedReadHalf, OwnedWriteHalf) {
        self.into_split()
    }
}

/// The two directions of a stream.
pub(super) fn split<S: Stream>(stream: S) -> (FrameReader<S::Reader>, FrameWriter<S::Writer>) {
    let (reader, writer) = stream.directions();
    (FrameReader::new(reader), FrameWriter::new(writer))
}

/// Frames that come in.
pub(super) struct FrameReader<R> {
    stream: R,
    codec: LengthDelimitedCodec,
    buffer: BytesMut,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    pub(super) fn new(stream: R) -> Self {
        let buffer = BytesMut::with_capacity(READ_AT_ONCE);
        FrameReader { stream, codec: codec(), buffer }
    }

    /// The next frame.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing: what was read stays for the next call.
    pub(super) async fn next(&mut self) -> Result<BytesMut, WireError> {
        loop {
            // A length that is too large is all that this refuses.
            let frame = self.codec.decode(&mut self.buffer).map_err(|_| WireError::TooLong)?;
            if let Some(frame) = frame {
                return Ok(frame);
            }
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(WireError::Closed);
            }
        }
    }
}

/// Frames that go out.
pub(super) struct FrameWriter<W> {
    stream: W,
    buffer: BytesMut,
}

impl<W: AsyncWrite + Unpin> FrameWriter<W> {
    pub(super) fn new(stream: W) -> Self {
        FrameWriter { stream, buffer: BytesMut::new() }
    }

    /// Adds a frame to those that the next flush writes.
    pub(super) fn add(&mut self, frame: &[u8]) -> Result<(), WireError> {
        self.add_filled(frame.len(), |bytes| {
            bytes.copy_from_slice(frame);
            Ok(())
        })
    }

    /// Adds a frame of this length, written in place.
    pub(super) fn add_filled(
        &mut self,
        length: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), WireError>,
    ) -> Result<(), WireError> {
        let announced = u16::try_from(length).ok().filter(|_| length <= FRAME_MAX);
        let (start, announced) = (self.buffer.len(), announced.ok_or(WireError::TooLong)?);
        self.buffer.put_u16(announced);
        let frame = self.buffer.len();
        self.buffer.resize(frame + length, 0);
        let filled = fill(&mut self.buffer[frame..]);
        if filled.is_err() {
            self.buffer.truncate(start);
        }
        filled
    }

    /// How many bytes were added and not written.
    pub(super) fn unwritten(&self) -> usize {
        self.buffer.len()
    }

    /// Writes what was added.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future tears no frame: the next flush continues where this one stopped.
    pub(super) async fn flush(&mut self) -> Result<(), WireError> {
        poll_fn(|context| self.poll_flush(context)).await
    }

    /// Writes what was added, as far as the stream takes it now.
    pub(super) fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<Result<(), WireError>> {
        while !self.buffer.is_empty() {
            let written = Pin::new(&mut self.stream).poll_write(context, &self.buffer);
            match ready!(written)? {
                0 => return Poll::Ready(Err(WireError::Closed)),
                written => self.buffer.advance(written),
            }
        }
        Pin::new(&mut self.stream).poll_flush(context).map_err(WireError::from)
    }
}

fn codec() -> LengthDelimitedCodec {
    LengthDelimitedCodec::builder()
        .length_field_type::<u16>()
        .max_frame_length(FRAME_MAX)
        .new_codec()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads from a stream that says this, and then ends.
    fn reader(says: &[u8]) -> FrameReader<&[u8]> {
        FrameReader::new(says)
    }

    #[tokio::test]
    async fn frames_come_out_as_they_went_in() {
        let mut writer = FrameWriter::new(Vec::new());
        let frames = [vec![], vec![7], vec![1; FRAME_MAX]];
        for frame in &frames {
            writer.add(frame).expect("the frame fits");
        }
        assert!(writer.stream.is_empty(), "nothing is written before the flush");
        writer.flush().await.expect("a vector takes it");
        assert_eq!(writer.stream.len(), 2 + 3 + 1024);

        let mut reader = reader(&writer.stream);
        for frame in frames {
            assert_eq!(reader.next().await.expect("a frame is there"), frame);
        }
        assert!(matches!(reader.next().await, Err(WireError::Closed)));
    }

    #[tokio::test]
    async fn longer_frame_is_neither_written_nor_read() {
        let mut writer = FrameWriter::new(Vec::new());
        let added = writer.add(&[0; FRAME_MAX + 1]);
        assert!(matches!(added, Err(WireError::TooLong)));
        assert!(writer.buffer.is_empty());

        let length = u16::try_from(FRAME_MAX + 1).expect("it is about a thousand");
        let says = [length.to_be_bytes().as_slice(), &[0; FRAME_MAX + 1]].concat();
        let mut reader = reader(&says);
        for _ in 0..2 {
            assert!(matches!(reader.next().await, Err(WireError::TooLong)), "it is final");
        }
    }

    #[tokio::test]
    async fn large_length_allocates_nothing() {
        // Four gigabytes in a length of four bytes, and the most that two bytes can say.
        for says in [u32::MAX.to_be_bytes().as_slice(), &u16::MAX.to_be_bytes()] {
            let mut reader = reader(says);
            assert!(matches!(reader.next().await, Err(WireError::TooLong)));
            assert_eq!(reader.buffer.capacity(), READ_AT_ONCE);
        }
    }

    #[tokio::test]
    async fn stream_of_frames_needs_no_more_memory_than_one() {
        let mut writer = FrameWriter::new(Vec::new());
        for _ in 0..1000 {
            writer.add(&[1; FRAME_MAX]).expect("the frame fits");
        }
        writer.flush().await.expect("a vector takes it");
        let mut reader = reader(&writer.stream);
        for _ in 0..1000 {
            reader.next().await.expect("a frame is there");
            assert!(reader.buffer.capacity() <= 2 * READ_AT_ONCE);
        }
    }

    #[tokio::test]
    async fn stream_that_ends_within_a_frame_is_closed() {
        for says in [&[0][..], &[0, 9], &[0, 9, 1, 2, 3]] {
            assert!(matches!(reader(says).next().await, Err(WireError::Closed)));
        }
    }

    #[tokio::test]
    async fn dropped_reads_and_writes_lose_nothing() {
        // It takes three bytes at a time.
        let (one, other) = tokio::io::duplex(3);
        let mut writer = FrameWriter::new(one);
        let mut reader = FrameReader::new(other);
        for number in 0..100 {
            writer.add(&[number; 20]).expect("the frame fits");
        }
        let mut frames = Vec::new();
        while frames.len() < 100 {
            // Each round drops what is not done, in the middle of a frame.
            tokio::select! {
                biased;
                frame = reader.next() => frames.push(frame.expect("the writer is there")),
                flushed = writer.flush() => flushed.expect("the reader is there"),
                () = tokio::task::yield_now() => {}
            }
        }
        for (number, frame) in (0..).zip(frames) {
            assert_eq!(frame, [number; 20].as_slice());
        }
    }
}
