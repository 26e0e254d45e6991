//! Tests of connections, and what they share.
//!
//! Time is paused, so that no handshake is too slow.

mod channel;
mod handshake;
mod messages;

use std::sync::LazyLock;

use tokio::io::{DuplexStream, ReadHalf, WriteHalf};
use tokio::runtime::{Builder, Runtime};
use uuid::Uuid;

use super::channel::Channel;
use super::error::WireError;
use super::frames::Stream;
use super::key::ObjectHash;
use super::key::{KeyPair, PublicKey};
use super::message::{ClientName, ToGuest, ToKeeper};

impl Stream for DuplexStream {
    type Reader = ReadHalf<Self>;
    type Writer = WriteHalf<Self>;

    fn directions(self) -> (ReadHalf<Self>, WriteHalf<Self>) {
        tokio::io::split(self)
    }
}

type AtGuest<S = DuplexStream> = Channel<S, ToGuest, ToKeeper>;
type AtKeeper<S = DuplexStream> = Channel<S, ToKeeper, ToGuest>;

const KEEPER: Uuid = Uuid::from_u128(7);

/// Those of the keeper, of its guest, and of a stranger.
static KEYS: LazyLock<[KeyPair; 3]> =
    LazyLock::new(|| [(); 3].map(|()| KeyPair::generate().expect("the system has randomness")));

fn keepers() -> &'static KeyPair {
    &KEYS[0]
}

fn guests() -> &'static KeyPair {
    &KEYS[1]
}

fn strangers() -> &'static KeyPair {
    &KEYS[2]
}

fn guest() -> ClientName {
    ClientName::new(Uuid::from_u128(9), "host[17] nightly job")
}

fn who(name: &str) -> ToKeeper {
    ToKeeper::Who { object: ObjectHash::of("app", "locks", name) }
}

/// A guest that was accepted.
type Accepted<S = DuplexStream> = (AtKeeper<S>, ClientName, PublicKey);

/// Connects the guest to the keeper.
async fn connect<S>(stream: S) -> Result<AtGuest<S>, WireError>
where
    S: Stream,
{
    Channel::connect(stream, guests(), (KEEPER, &keepers().public()), guest()).await
}

/// Accepts a guest of the keeper.
async fn accept<S>(stream: S) -> Result<Accepted<S>, WireError>
where
    S: Stream,
{
    Channel::accept(stream, keepers(), KEEPER).await
}

/// What the two ends of a handshake have come to, if the guest means this keeper.
async fn shake(
    keeper: (Uuid, &PublicKey),
) -> (Result<AtGuest, WireError>, Result<Accepted, WireError>) {
    let (one, other) = tokio::io::duplex(4096);
    tokio::join!(Channel::connect(one, guests(), keeper, guest()), accept(other))
}

async fn connected() -> (AtGuest, AtKeeper) {
    let (one, other) = tokio::io::duplex(4096);
    let (at_guest, at_keeper) = tokio::join!(connect(one), accept(other));
    (at_guest.expect("the keeper accepts"), at_keeper.expect("the guest knows the keeper").0)
}

/// A runtime whose time passes only while it waits for it.
fn paused() -> Runtime {
    let paused = Builder::new_current_thread().enable_time().start_paused(true).build();
    paused.expect("a runtime starts")
}
