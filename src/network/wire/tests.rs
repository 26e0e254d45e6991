//! Tests of connections, and what they share.
//!
//! Time is paused, so that no handshake is too slow.

mod channel;
mod handshake;
mod messages;

use tokio::io::{DuplexStream, ReadHalf, WriteHalf};
use tokio::runtime::{Builder, Runtime};
use uuid::Uuid;

use super::channel::Channel;
use super::error::WireError;
use super::frames::Stream;
use super::key::{Key, Keys};
use super::message::{ClientName, ToGuest, ToKeeper};
use super::object::ObjectHash;

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

fn key(byte: u8) -> Key {
    Key::from_bytes([byte; Key::BYTES])
}

/// The keys of a keeper that has had one only.
fn only(current: Key) -> Keys {
    Keys { current, previous: None }
}

fn guest() -> ClientName {
    ClientName::new(Uuid::from_u128(9), "host[17] nightly job")
}

fn who(name: &str) -> ToKeeper {
    ToKeeper::Who { object: ObjectHash::of("app", "locks", name) }
}

/// Connects a guest with the first key.
async fn connect<S>(stream: S) -> Result<AtGuest<S>, WireError>
where
    S: Stream,
{
    Channel::connect(stream, KEEPER, &key(1), guest()).await
}

/// Accepts a guest with the first key.
async fn accept<S>(stream: S) -> Result<(AtKeeper<S>, ClientName), WireError>
where
    S: Stream,
{
    Channel::accept(stream, KEEPER, &only(key(1))).await
}

/// What the two ends of a handshake have come to.
async fn shake(
    keys: &Keys,
    (keeper, key): (Uuid, &Key),
) -> (Result<AtGuest, WireError>, Result<(AtKeeper, ClientName), WireError>) {
    let (one, other) = tokio::io::duplex(4096);
    tokio::join!(Channel::connect(one, keeper, key, guest()), Channel::accept(other, KEEPER, keys))
}

async fn connected() -> (AtGuest, AtKeeper) {
    let (one, other) = tokio::io::duplex(4096);
    let (at_guest, at_keeper) = tokio::join!(connect(one), accept(other));
    (at_guest.expect("the keeper accepts"), at_keeper.expect("the guest has the key").0)
}

/// A runtime whose time passes only while it waits for it.
fn paused() -> Runtime {
    let paused = Builder::new_current_thread().enable_time().start_paused(true).build();
    paused.expect("a runtime starts")
}
