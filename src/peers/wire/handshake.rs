//! How two clients come to know each other: Noise, pattern `IK`.
//!
//! Each client has a static pair of keys and publishes the public one. The guest knows the keeper's
//! beforehand, from the table; the keeper learns the guest's from the first frame, in which it is
//! encrypted for the keeper alone. That is what `IK` has over `KK`, where both would have to say
//! first, in the clear, who they are. Each side also draws keys for this connection alone, so what
//! was recorded stays secret when a static key is learnt later.
//!
//! Three frames pass: one of the guest, the answer of the keeper, and the name of the guest. The
//! third is the first that is encrypted with the new keys of both. Without it, a recorded first
//! frame would be enough to look like a guest.

use std::io;
use std::time::Duration;

use snow::resolvers::{DefaultResolver, FallbackResolver};
use snow::{Builder, HandshakeState, StatelessTransportState};
use tokio::io::{AsyncRead, AsyncWrite};
use uuid::Uuid;

use super::cipher::Ciphers;
use super::error::WireError;
use super::frames::{FRAME_MAX, FrameReader, FrameWriter};
use super::key::{KeyPair, PublicKey};

/// The version of handshake and messages. Clients of different versions refuse each other.
pub(crate) const VERSION: u16 = 8;

/// How long a handshake may take. It is two round trips, so a peer that needs longer is too slow
/// for turns; and a stranger that connects and says nothing must not stay.
pub(crate) const HANDSHAKE_MAX: Duration = Duration::from_secs(2);

pub(super) const PATTERN: &str = "Noise_IK_25519_AESGCM_BLAKE2s";

/// The first two frames, of a guest.
pub(super) async fn as_guest<R, W>(
    reader: &mut FrameReader<R>,
    writer: &mut FrameWriter<W>,
    keys: &KeyPair,
    (keeper, keeper_key): (Uuid, &PublicKey),
) -> Result<StatelessTransportState, WireError>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let prologue = prologue(VERSION, keeper);
    let mut noise = builder(&prologue, keys)
        .and_then(|builder| builder.remote_public_key(keeper_key.as_bytes()))
        .and_then(Builder::build_initiator)
        .map_err(broken)?;
    say(&mut noise, writer).await.map_err(refused_if_closed)?;
    let answer = reader.next().await.map_err(refused_if_closed)?;
    hear(&mut noise, &answer)?;
    noise.into_stateless_transport_mode().map_err(broken)
}

/// The first two frames, of a keeper; and the public key of the guest, which has not proved yet
/// that it is there now.
pub(super) async fn as_keeper<R, W>(
    reader: &mut FrameReader<R>,
    writer: &mut FrameWriter<W>,
    keys: &KeyPair,
    keeper: Uuid,
) -> Result<(StatelessTransportState, PublicKey), WireError>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let first = reader.next().await?;
    let prologue = prologue(VERSION, keeper);
    let mut noise = builder(&prologue, keys).and_then(Builder::build_responder).map_err(broken)?;
    hear(&mut noise, &first)?;
    let guest = noise.get_remote_static().and_then(|key| key.try_into().ok());
    let guest = guest.map(PublicKey::from_bytes).ok_or(WireError::Garbage)?;
    say(&mut noise, writer).await?;
    Ok((noise.into_stateless_transport_mode().map_err(broken)?, guest))
}

/// What both sides must agree on, of fixed length.
pub(super) fn prologue(version: u16, keeper: Uuid) -> Vec<u8> {
    [b"bakery-lock peers".as_slice(), &version.to_be_bytes(), keeper.as_bytes()].concat()
}

fn builder<'a>(prologue: &'a [u8], keys: &'a KeyPair) -> Result<Builder<'a>, snow::Error> {
    let resolver = FallbackResolver::new(Box::new(Ciphers), Box::new(DefaultResolver));
    let builder = Builder::with_resolver(PATTERN.parse()?, Box::new(resolver));
    builder.prologue(prologue)?.local_private_key(keys.private())
}

async fn say<W: AsyncWrite + Unpin>(
    noise: &mut HandshakeState,
    writer: &mut FrameWriter<W>,
) -> Result<(), WireError> {
    add(noise, writer)?;
    writer.flush().await
}

fn add<W: AsyncWrite + Unpin>(
    noise: &mut HandshakeState,
    writer: &mut FrameWriter<W>,
) -> Result<(), WireError> {
    let mut frame = [0; FRAME_MAX];
    let length = noise.write_message(&[], &mut frame).map_err(broken)?;
    writer.add(&frame[..length])
}

fn hear(noise: &mut HandshakeState, frame: &[u8]) -> Result<(), WireError> {
    match noise.read_message(frame, &mut [0; FRAME_MAX]) {
        Ok(0) => Ok(()),
        Err(snow::Error::Decrypt) => Err(WireError::Refused),
        Ok(_) | Err(_) => Err(WireError::Garbage),
    }
}

/// A keeper that refuses a guest has nothing to say to it. The connection is reset if it had not
/// read all.
fn refused_if_closed(error: WireError) -> WireError {
    let is_reset = |cause: &io::Error| {
        matches!(cause.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
    };
    let is_closed = matches!(&error, WireError::Closed)
        || matches!(&error, WireError::Io(cause) if is_reset(cause));
    if is_closed { WireError::Refused } else { error }
}

/// What can fail on this side alone is the system's randomness.
fn broken(error: snow::Error) -> WireError {
    WireError::Io(io::Error::other(error))
}
