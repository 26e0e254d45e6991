//! Who gets a connection, and who does not.

use proptest::prelude::*;
use snow::Builder;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use uuid::Uuid;

use super::super::channel::Channel;
use super::super::error::WireError;
use super::super::frames;
use super::super::handshake::{HANDSHAKE_MAX, PATTERN, VERSION, prologue};
use super::super::message::{ClientName, ToGuest, ToKeeper};
use super::{KEEPER, accept, connect, guest, guests, keepers, paused, shake, strangers, who};
use crate::admin::types::{HolderQueue, TurnUser};
use crate::testing::clock::still_time;

/// The bytes of the first two frames: a length, a key of this connection, in the first one the
/// guest's key and its tag, and a tag.
pub(super) const FIRST: usize = 2 + 32 + 48 + 16;
pub(super) const SECOND: usize = 2 + 32 + 16;

#[tokio::test(start_paused = true)]
async fn keeper_learns_the_name_and_the_key_of_its_guest() {
    let (at_guest, at_keeper) = shake((KEEPER, &keepers().public())).await;
    at_guest.expect("the keeper accepts");
    let (_, name, key) = at_keeper.expect("the guest knows the keeper");
    assert_eq!((name, key), (guest(), guests().public()));
}

#[tokio::test(start_paused = true)]
async fn guest_without_the_keepers_key_is_refused() {
    refused(shake((KEEPER, &strangers().public())).await);
}

#[tokio::test(start_paused = true)]
async fn guest_of_another_keeper_is_refused() {
    refused(shake((Uuid::from_u128(8), &keepers().public())).await);
}

// Goal: who knows the public keys of keeper and guest is neither of them.
// Method: handshakes with the private key of a stranger, in both places.
#[tokio::test(start_paused = true)]
async fn public_keys_prove_nothing() {
    let (one, other) = tokio::io::duplex(4096);
    let keeper = (KEEPER, &keepers().public());
    let guest_of_stranger = Channel::connect(one, guests(), keeper, guest());
    let strange_keeper = Channel::accept(other, strangers(), KEEPER);
    refused(tokio::join!(guest_of_stranger, strange_keeper));

    let (one, other) = tokio::io::duplex(4096);
    let strange_guest = Channel::connect(one, strangers(), keeper, guest());
    let (connected, accepted) = tokio::join!(strange_guest, accept(other));
    connected.expect("the keeper answers all that know its key");
    let (_, name, key) = accepted.expect("it knows the keeper's key");
    assert_eq!(name, guest(), "it says what it likes");
    assert_eq!(key, strangers().public(), "and is known by its key");
}

fn refused<G, K>((at_guest, at_keeper): (Result<G, WireError>, Result<K, WireError>)) {
    assert!(matches!(at_guest.err(), Some(WireError::Refused)));
    assert!(matches!(at_keeper.err(), Some(WireError::Refused)));
}

#[tokio::test(start_paused = true)]
async fn another_version_is_refused() {
    // This one gets an answer, and then gives no name.
    assert!(matches!(accepted(&first_frame(VERSION, &[])).await, WireError::Closed));
    for version in [VERSION - 1, VERSION + 1] {
        assert!(matches!(accepted(&first_frame(version, &[])).await, WireError::Refused));
    }
}

#[tokio::test(start_paused = true)]
async fn handshake_says_nothing_else() {
    assert!(matches!(accepted(&first_frame(VERSION, &[1])).await, WireError::Garbage));
}

/// The first frame of a guest that knows the keeper's key.
fn first_frame(version: u16, says: &[u8]) -> Vec<u8> {
    let (prologue, keeper) = (prologue(version, KEEPER), keepers().public());
    let mut noise = Builder::new(PATTERN.parse().expect("it is a pattern"))
        .prologue(&prologue)
        .and_then(|builder| builder.local_private_key(guests().private()))
        .and_then(|builder| builder.remote_public_key(keeper.as_bytes()))
        .and_then(Builder::build_initiator)
        .expect("nothing is missing");
    let mut frame = [0; FIRST];
    let length = noise.write_message(says, &mut frame).expect("it is our turn");
    frame[..length].to_vec()
}

/// Why a guest is not accepted that sends this frame, reads the answer, and leaves.
async fn accepted(first: &[u8]) -> WireError {
    let (one, other) = tokio::io::duplex(4096);
    let (mut reader, mut writer) = frames::split(one);
    writer.add(first).expect("it fits");
    let guest = async move {
        writer.flush().await.expect("the keeper reads");
        let _ = reader.next().await;
    };
    let ((), accepted) = tokio::join!(guest, accept(other));
    accepted.err().expect("the guest gives no name")
}

#[tokio::test(start_paused = true)]
async fn recorded_handshake_is_not_accepted() {
    let (one, mut tap) = tokio::io::duplex(4096);
    let (mut forwarded, other) = tokio::io::duplex(4096);
    let recorded = async {
        let mut first = [0; FIRST];
        tap.read_exact(&mut first).await.expect("the guest is there");
        forwarded.write_all(&first).await.expect("the keeper is there");
        let mut answer = [0; SECOND];
        forwarded.read_exact(&mut answer).await.expect("the keeper answers");
        tap.write_all(&answer).await.expect("the guest is there");
        let mut third = Vec::new();
        tap.read_to_end(&mut third).await.expect("the guest is there until then");
        forwarded.write_all(&third).await.expect("the keeper is there");
        (first, third)
    };
    let connected = async {
        drop(connect(one).await.expect("the keeper accepts"));
    };
    let accepted = accept(other);
    let ((first, third), (), accepted) = tokio::join!(recorded, connected, accepted);
    accepted.expect("the guest knows the keeper");

    // The same bytes once more.
    let (mut replay, other) = tokio::io::duplex(4096);
    replay.write_all(&first).await.expect("there is room");
    replay.write_all(&third).await.expect("there is room");
    let accepted = accept(other).await;
    assert!(matches!(accepted.err(), Some(WireError::Garbage)));
}

#[tokio::test(start_paused = true)]
async fn large_length_ends_the_handshake() {
    for length in [[0xff; 4].as_slice(), &1023_u16.to_be_bytes()] {
        let (mut stranger, other) = tokio::io::duplex(4096);
        stranger.write_all(length).await.expect("there is room");
        let accepted = accept(other).await;
        assert!(matches!(accepted.err(), Some(WireError::TooLong)));
    }
}

#[tokio::test(start_paused = true)]
async fn idle_peer_is_left_after_a_while() {
    let begun = Instant::now();
    let (_silent, other) = tokio::io::duplex(4096);
    let accepted = accept(other).await;
    assert!(matches!(accepted.err(), Some(WireError::Timeout)));
    assert_eq!(begun.elapsed(), HANDSHAKE_MAX);

    let (_silent, other) = tokio::io::duplex(4096);
    let connected = connect(other).await;
    assert!(matches!(connected.err(), Some(WireError::Timeout)));
    assert_eq!(begun.elapsed(), 2 * HANDSHAKE_MAX);
}

#[tokio::test(start_paused = true)]
async fn trickling_peer_is_left() {
    let begun = Instant::now();
    let (mut slow, other) = tokio::io::duplex(4096);
    let says = async {
        slow.write_all(&[0, 96]).await?;
        for _ in 0..96 {
            tokio::time::sleep(HANDSHAKE_MAX / 20).await;
            slow.write_all(&[0]).await?;
        }
        Ok::<(), std::io::Error>(())
    };
    let (said, accepted) = tokio::join!(says, accept(other));
    assert!(said.is_err(), "the connection is closed");
    assert!(matches!(accepted.err(), Some(WireError::Timeout)));
    assert!(begun.elapsed() <= HANDSHAKE_MAX + HANDSHAKE_MAX / 20);
}

#[tokio::test(start_paused = true)]
async fn guest_without_an_answer_is_refused() {
    let (one, other) = tokio::io::duplex(4096);
    drop(other);
    let connected = connect(one).await;
    assert!(matches!(connected.err(), Some(WireError::Refused)), "there is no way to ask");

    let (one, mut other) = tokio::io::duplex(4096);
    let closing = async move {
        other.read_exact(&mut [0; FIRST]).await.expect("the guest asks");
    };
    let (connected, ()) = tokio::join!(connect(one), closing);
    assert!(matches!(connected.err(), Some(WireError::Refused)));
}

#[tokio::test]
async fn it_works_over_tcp() {
    let _still = still_time();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let keeper = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.expect("the guest connects");
        stream.set_nodelay(true).expect("it is TCP");
        let (channel, name, _) = accept(stream).await.expect("the guest knows the keeper");
        let (mut receiver, mut sender) = channel.split();
        while let Ok(ToKeeper::Who { object }) = receiver.recv().await {
            let keeper = TurnUser::from(name.clone());
            let line =
                HolderQueue { keeper, user: None, is_kept: true, waiting: 0, first: Vec::new() };
            let is = ToGuest::Is { object, line: Some(line.into()) };
            sender.send(&[is]).await.expect("the guest waits");
        }
    });
    let stream = TcpStream::connect(address).await.expect("the keeper listens");
    stream.set_nodelay(true).expect("it is TCP");
    let channel = connect(stream).await.expect("the keeper accepts");
    let (mut receiver, mut sender) = channel.split();
    for name in 0..100 {
        sender.send(&[who(&name.to_string())]).await.expect("the keeper is there");
        let ToGuest::Is { object, line } = receiver.recv().await.expect("it answers") else {
            panic!("it was asked who");
        };
        assert_eq!(ToKeeper::Who { object }, who(&name.to_string()));
        let line = HolderQueue::from(line.expect("it tells one"));
        assert_eq!(ClientName::from(line.keeper), guest());
    }
    drop((receiver, sender));
    keeper.await.expect("it ends with the connection");
}

proptest! {
    #[test]
    fn random_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..3000)) {
        let [at_keeper, at_guest] = refusals(&bytes);
        prop_assert!(at_keeper.is_some() && at_guest.is_some());
    }

    #[test]
    fn frame_of_random_bytes_is_refused(bytes in prop::collection::vec(any::<u8>(), 96)) {
        let refusals = refusals(&[&[0, 96], bytes.as_slice()].concat());
        prop_assert!(matches!(refusals, [Some(WireError::Refused), Some(WireError::Refused)]));
    }
}

/// What a keeper says of a guest that sends these bytes, and a guest of such a keeper.
fn refusals(bytes: &[u8]) -> [Option<WireError>; 2] {
    paused().block_on(async {
        let accepted = accept(saying(bytes).await).await;
        let connected = connect(saying(bytes).await).await;
        [accepted.err(), connected.err()]
    })
}

/// A stream whose other end said this, reads what comes, and says nothing more.
async fn saying(bytes: &[u8]) -> DuplexStream {
    let (mut stranger, stream) = tokio::io::duplex(4096);
    stranger.write_all(bytes).await.expect("there is room");
    tokio::spawn(async move { stranger.read_to_end(&mut Vec::new()).await });
    stream
}
