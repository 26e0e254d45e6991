//! A connection between a guest and a keeper.

use std::marker::PhantomData;
use std::sync::Arc;
use std::task::{Context, Poll};

use serde::Serialize;
use serde::de::DeserializeOwned;
use snow::StatelessTransportState;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use uuid::Uuid;

use super::cipher::TAG;
use super::error::WireError;
use super::frames::{self, FRAME_MAX, FrameReader, FrameWriter, Stream};
use super::handshake::{self, HANDSHAKE_MAX};
use super::key::{KeyPair, PublicKey};
use super::message::{ClientName, ToGuest, ToKeeper, decode, encode};

/// The longest message.
pub(super) const MESSAGE_MAX: usize = FRAME_MAX - TAG;

/// A connection on which `In` comes and `Out` goes. Of a TCP stream, set `TCP_NODELAY`.
pub(crate) struct Channel<S: Stream, In, Out> {
    receiver: Receiver<S::Reader, In>,
    sender: Sender<S::Writer, Out>,
}

impl<S: Stream> Channel<S, ToGuest, ToKeeper> {
    /// Connects a guest, which has these keys and gives its name, to a keeper of this id and key.
    ///
    /// # Errors
    ///
    /// See [`WireError`]: [`Refused`](WireError::Refused) if the keeper has another id, key or
    /// version, [`Timeout`](WireError::Timeout) after two seconds.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection.
    pub(crate) async fn connect(
        stream: S,
        keys: &KeyPair,
        keeper: (Uuid, &PublicKey),
        guest: ClientName,
    ) -> Result<Self, WireError> {
        let (mut reader, mut writer) = frames::split(stream);
        in_time(async {
            let noise = handshake::as_guest(&mut reader, &mut writer, keys, keeper).await?;
            let (receiver, mut sender) = pair(reader, writer, noise);
            sender.send(&[guest]).await?;
            Ok(Channel { receiver, sender: sender.sends() })
        })
        .await
    }
}

impl<S: Stream> Channel<S, ToKeeper, ToGuest> {
    /// Accepts a guest of the keeper with this id and these keys. Says the name that the guest
    /// gives, and its public key: it is there now, not recorded, and has the private one. Whether
    /// the name and the key belong together is not known yet.
    ///
    /// # Errors
    ///
    /// See [`WireError`]: [`Refused`](WireError::Refused) if the guest means another keeper, key or
    /// version, [`Timeout`](WireError::Timeout) after two seconds.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection.
    pub(crate) async fn accept(
        stream: S,
        keys: &KeyPair,
        keeper: Uuid,
    ) -> Result<(Self, ClientName, PublicKey), WireError> {
        let (mut reader, mut writer) = frames::split(stream);
        in_time(async {
            let (noise, key) = handshake::as_keeper(&mut reader, &mut writer, keys, keeper).await?;
            let (mut receiver, sender) = pair(reader, writer, noise);
            let guest = receiver.recv().await?;
            Ok((Channel { receiver: receiver.receives(), sender }, guest, key))
        })
        .await
    }
}

impl<S: Stream, In, Out> Channel<S, In, Out> {
    /// The two directions, for two tasks. The connection is closed when both are dropped.
    pub(crate) fn split(self) -> (Receiver<S::Reader, In>, Sender<S::Writer, Out>) {
        (self.receiver, self.sender)
    }
}

async fn in_time<T>(handshake: impl Future<Output = Result<T, WireError>>) -> Result<T, WireError> {
    timeout(HANDSHAKE_MAX, handshake).await.unwrap_or(Err(WireError::Timeout))
}

fn pair<R, W, In, Out>(
    frames_in: FrameReader<R>,
    frames_out: FrameWriter<W>,
    noise: StatelessTransportState,
) -> (Receiver<R, In>, Sender<W, Out>) {
    let noise = Arc::new(noise);
    let receiver = Receiver {
        frames: frames_in,
        noise: Arc::clone(&noise),
        nonce: 0,
        has_failed: false,
        buffer: Box::new([0; FRAME_MAX]),
        messages: PhantomData,
    };
    let buffer = Box::new([0; MESSAGE_MAX]);
    let sender = Sender { frames: frames_out, noise, nonce: 0, buffer, messages: PhantomData };
    (receiver, sender)
}

/// The direction in which messages come.
pub(crate) struct Receiver<R, In> {
    frames: FrameReader<R>,
    noise: Arc<StatelessTransportState>,
    /// How many messages came. A message that was lost, repeated or swapped has another number.
    nonce: u64,
    has_failed: bool,
    /// For the message that is being decoded.
    buffer: Box<[u8; FRAME_MAX]>,
    messages: PhantomData<fn() -> In>,
}

impl<R: AsyncRead + Unpin, In: DeserializeOwned> Receiver<R, In> {
    /// The next message.
    ///
    /// # Errors
    ///
    /// See [`WireError`]. No message comes after an error: drop the other direction too.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing: what was read stays for the next call.
    pub(crate) async fn recv(&mut self) -> Result<In, WireError> {
        if self.has_failed {
            return Err(WireError::Closed);
        }
        let received = match self.frames.next().await {
            Ok(frame) => self.open(&frame),
            Err(error) => Err(error),
        };
        self.has_failed = received.is_err();
        received
    }

    fn open(&mut self, frame: &[u8]) -> Result<In, WireError> {
        let length = self.noise.read_message(self.nonce, frame, &mut *self.buffer);
        let length = length.map_err(|_| WireError::Garbage)?;
        self.nonce += 1;
        decode(&self.buffer[..length])
    }

    /// The same direction, with other messages from now on.
    fn receives<Next>(self) -> Receiver<R, Next> {
        let Receiver { frames, noise, nonce, has_failed, buffer, messages: _ } = self;
        Receiver { frames, noise, nonce, has_failed, buffer, messages: PhantomData }
    }
}

/// The direction in which messages go.
pub(crate) struct Sender<W, Out> {
    frames: FrameWriter<W>,
    noise: Arc<StatelessTransportState>,
    /// How many messages went. No number is ever used twice.
    nonce: u64,
    /// For the message that is being encoded.
    buffer: Box<[u8; MESSAGE_MAX]>,
    messages: PhantomData<fn(Out)>,
}

impl<W: AsyncWrite + Unpin, Out: Serialize> Sender<W, Out> {
    /// Sends messages, together. It waits while the other side reads too slowly.
    ///
    /// # Errors
    ///
    /// See [`WireError`]. No message goes after an error: drop the other direction too.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the connection whole. What was not written yet goes with the next
    /// call; of messages that had to wait for those of an earlier call, nothing goes.
    pub(crate) async fn send(&mut self, messages: &[Out]) -> Result<(), WireError> {
        // First what an earlier call left, so that not more than one call's messages are kept.
        self.frames.flush().await?;
        for message in messages {
            self.add(message)?;
        }
        self.frames.flush().await
    }

    /// How many bytes of messages wait for the other side to read.
    pub(crate) fn unwritten(&self) -> usize {
        self.frames.unwritten()
    }

    /// Sends what was added, as far as the stream takes it now.
    ///
    /// # Errors
    ///
    /// See [`WireError`]. No message goes after an error: drop the other direction too.
    pub(crate) fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<Result<(), WireError>> {
        self.frames.poll_flush(context)
    }

    /// Adds a message to those that are sent next.
    ///
    /// # Errors
    ///
    /// See [`WireError`]. No message goes after an error: drop the other direction too.
    pub(crate) fn add(&mut self, message: &Out) -> Result<(), WireError> {
        let message = encode(message, &mut *self.buffer)?;
        let (noise, nonce) = (&self.noise, self.nonce);
        self.frames.add_filled(message.len() + TAG, |frame| {
            noise.write_message(nonce, message, frame).map(drop).map_err(|_| WireError::TooLong)
        })?;
        self.nonce += 1;
        Ok(())
    }

    /// The same direction, with other messages from now on.
    fn sends<Next>(self) -> Sender<W, Next> {
        let Sender { frames, noise, nonce, buffer, messages: _ } = self;
        Sender { frames, noise, nonce, buffer, messages: PhantomData }
    }
}
