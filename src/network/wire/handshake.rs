//! How two clients come to know each other: Noise, pattern `NNpsk0`.
//!
//! Each side draws keys for this connection alone, mixed with the secret that both know, so what
//! was recorded stays secret when that is read later. Three frames pass: one of the guest, the
//! answer of the keeper, and the name of the guest. The third is the first that is encrypted with
//! the keys of both. Without it, a recorded first frame would be enough to look like a guest.

use std::time::Duration;

use snow::{Builder, HandshakeState, StatelessTransportState};
use tokio::io::{AsyncRead, AsyncWrite};
use uuid::Uuid;

use super::error::WireError;
use super::frames::{FRAME_MAX, FrameReader, FrameWriter};
use super::key::{Key, Keys};

/// The version of handshake and messages. Clients of different versions refuse each other.
pub(crate) const VERSION: u16 = 2;

/// How long a handshake may take. It is two round trips, so a peer that needs longer is too slow
/// for turns; and a stranger that connects and says nothing must not stay.
pub(super) const HANDSHAKE_MAX: Duration = Duration::from_secs(2);

pub(super) const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";

/// The pattern's place for the secret.
pub(super) const PSK: u8 = 0;

/// The first two frames, of a guest.
pub(super) async fn as_guest<R, W>(
    reader: &mut FrameReader<R>,
    writer: &mut FrameWriter<W>,
    keeper: Uuid,
    key: &Key,
) -> Result<StatelessTransportState, WireError>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let prologue = prologue(VERSION, keeper);
    let mut noise = builder(&prologue, key).and_then(Builder::build_initiator).map_err(broken)?;
    say(&mut noise, writer).await?;
    let answer = reader.next().await.map_err(refused_if_closed)?;
    hear(&mut noise, &answer)?;
    noise.into_stateless_transport_mode().map_err(broken)
}

/// The first two frames, of a keeper.
pub(super) async fn as_keeper<R, W>(
    reader: &mut FrameReader<R>,
    writer: &mut FrameWriter<W>,
    keeper: Uuid,
    keys: &Keys,
) -> Result<StatelessTransportState, WireError>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let first = reader.next().await?;
    let mut noise = heard_with_either(&first, keeper, keys)?;
    say(&mut noise, writer).await?;
    noise.into_stateless_transport_mode().map_err(broken)
}

/// The secret is mixed in at the very beginning, so each key needs a new beginning.
fn heard_with_either(first: &[u8], keeper: Uuid, keys: &Keys) -> Result<HandshakeState, WireError> {
    let with = |key| heard_with(first, keeper, key);
    with(&keys.current).or_else(|refused| keys.previous.as_ref().map_or(Err(refused), with))
}

fn heard_with(first: &[u8], keeper: Uuid, key: &Key) -> Result<HandshakeState, WireError> {
    let prologue = prologue(VERSION, keeper);
    let mut noise = builder(&prologue, key).and_then(Builder::build_responder).map_err(broken)?;
    hear(&mut noise, first)?;
    Ok(noise)
}

/// What both sides have to agree on, of fixed length.
pub(super) fn prologue(version: u16, keeper: Uuid) -> Vec<u8> {
    [b"bakery-lock peers".as_slice(), &version.to_be_bytes(), keeper.as_bytes()].concat()
}

fn builder<'a>(prologue: &'a [u8], key: &'a Key) -> Result<Builder<'a>, snow::Error> {
    Builder::new(PATTERN.parse()?).prologue(prologue)?.psk(PSK, key.as_bytes())
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

/// A keeper that refuses a guest has nothing to tell it.
fn refused_if_closed(error: WireError) -> WireError {
    if let WireError::Closed = error { WireError::Refused } else { error }
}

/// What can fail on this side alone is the system's randomness.
fn broken(error: snow::Error) -> WireError {
    WireError::Io(std::io::Error::other(error))
}
