//! What becomes of messages on a connection, and of frames that are changed on their way.

use std::future::ready;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf, duplex};
use tokio::runtime::Builder;
use tokio_util::bytes;

use super::super::channel::{Receiver, Sender};
use super::super::error::WireError;
use super::super::frames::{self, FrameReader, FrameWriter};
use super::super::key::ObjectHash;
use super::super::message::{ToGuest, ToKeeper};
use super::handshake::{FIRST, SECOND};
use super::{AtGuest, AtKeeper, accept, connect, connected, paused, who};

type Reader = FrameReader<ReadHalf<DuplexStream>>;
type Writer = FrameWriter<WriteHalf<DuplexStream>>;

/// A connection on which frames can be seen and changed.
struct Tapped {
    guest: Sender<WriteHalf<DuplexStream>, ToKeeper>,
    answers: Receiver<ReadHalf<DuplexStream>, ToGuest>,
    keeper: Receiver<ReadHalf<DuplexStream>, ToKeeper>,
    from_guest: Reader,
    to_guest: Writer,
    to_keeper: Writer,
}

impl Tapped {
    async fn new() -> Self {
        let ((guest_end, one), (other, keeper_end)) = (duplex(4096), duplex(4096));
        let (mut from_guest, mut to_guest) = frames::split(one);
        let (mut from_keeper, mut to_keeper) = frames::split(other);
        let handshake = async {
            pass(&mut from_guest, &mut to_keeper).await;
            pass(&mut from_keeper, &mut to_guest).await;
            pass(&mut from_guest, &mut to_keeper).await;
        };
        let connecting = connect(guest_end);
        let accepting = accept(keeper_end);
        let (at_guest, at_keeper, ()) = tokio::join!(connecting, accepting, handshake);
        let (answers, guest) = at_guest.expect("the keeper accepts").split();
        let (keeper, _) = at_keeper.expect("the guest knows the keeper").0.split();
        Tapped { guest, answers, keeper, from_guest, to_guest, to_keeper }
    }

    /// What the guest sends for these names, as frames.
    async fn frames<const N: usize>(&mut self, names: [&str; N]) -> [BytesMut; N] {
        self.guest.send(&names.map(who)).await.expect("there is room");
        let mut frames = [(); N].map(|()| BytesMut::new());
        for frame in &mut frames {
            *frame = self.from_guest.next().await.expect("the guest is there");
        }
        frames
    }

    async fn received(&mut self, frame: &[u8]) -> Result<ToKeeper, WireError> {
        self.to_keeper.add(frame).expect("it fits");
        self.to_keeper.flush().await.expect("there is room");
        self.keeper.recv().await
    }

    /// The keeper takes this for garbage, and nothing afterwards.
    async fn ends_with(mut self, frame: &[u8], then: &[u8]) {
        assert!(matches!(self.received(frame).await, Err(WireError::Garbage)), "{frame:?}");
        assert!(matches!(self.received(then).await, Err(WireError::Closed)), "it is final");
    }
}

async fn pass(from: &mut Reader, to: &mut Writer) {
    to.add(&from.next().await.expect("it is said")).expect("it fits");
    to.flush().await.expect("there is room");
}

#[tokio::test(start_paused = true)]
async fn frame_arrives_as_it_was_sent() {
    let mut tapped = Tapped::new().await;
    let [a, b] = tapped.frames(["a", "b"]).await;
    assert_eq!(tapped.received(&a).await.expect("nothing was changed"), who("a"));
    assert_eq!(tapped.received(&b).await.expect("nothing was changed"), who("b"));
}

#[tokio::test(start_paused = true)]
async fn equal_messages_differ_on_their_way() {
    let mut tapped = Tapped::new().await;
    let [one, other] = tapped.frames(["a", "a"]).await;
    assert_ne!(one, other);
}

#[tokio::test(start_paused = true)]
async fn changed_frame_ends_the_connection() {
    let length = Tapped::new().await.frames(["a"]).await[0].len();
    for changed in [0, 1, length / 2, length - 16, length - 1] {
        let mut tapped = Tapped::new().await;
        let [frame] = tapped.frames(["a"]).await;
        let mut tampered = frame.clone();
        tampered[changed] ^= 1;
        tapped.ends_with(&tampered, &frame).await;
    }
}

#[tokio::test(start_paused = true)]
async fn frame_of_another_length_ends_the_connection() {
    for bytes in [0, 1, 15, 16, 17] {
        let mut tapped = Tapped::new().await;
        let [frame] = tapped.frames(["a"]).await;
        tapped.ends_with(&frame[..bytes], &frame).await;
    }
    let mut tapped = Tapped::new().await;
    let [frame] = tapped.frames(["a"]).await;
    tapped.ends_with(&frame[..frame.len() - 1], &frame).await;

    let mut tapped = Tapped::new().await;
    let [frame] = tapped.frames(["a"]).await;
    tapped.ends_with(&[&frame, [0].as_slice()].concat(), &frame).await;
}

#[tokio::test(start_paused = true)]
async fn repeated_frame_ends_the_connection() {
    let mut tapped = Tapped::new().await;
    let [a, b] = tapped.frames(["a", "b"]).await;
    tapped.received(&a).await.expect("nothing was changed");
    tapped.ends_with(&a, &b).await;
}

#[tokio::test(start_paused = true)]
async fn frames_in_another_order_end_the_connection() {
    let mut tapped = Tapped::new().await;
    let [a, b] = tapped.frames(["a", "b"]).await;
    tapped.ends_with(&b, &a).await;
}

#[tokio::test(start_paused = true)]
async fn guest_does_not_take_its_own_frames_for_answers() {
    let mut tapped = Tapped::new().await;
    // The number that the next answer has: the keeper has sent none.
    let [frame, _] = tapped.frames(["a", "b"]).await;
    tapped.to_guest.add(&frame).expect("it fits");
    tapped.to_guest.flush().await.expect("there is room");
    assert!(matches!(tapped.answers.recv().await, Err(WireError::Garbage)));
}

#[tokio::test(start_paused = true)]
async fn frame_that_is_cut_off_ends_the_connection() {
    let (guest_end, one) = duplex(4096);
    let (mut other, keeper_end) = duplex(4096);
    let keeper = async {
        let accepted = accept(keeper_end).await;
        let (mut receiver, _sender) = accepted.expect("the guest knows the keeper").0.split();
        receiver.recv().await
    };
    let guest = async {
        let connected = connect(guest_end).await;
        let (_receiver, mut sender) = connected.expect("the keeper accepts").split();
        sender.send(&[who("a")]).await.expect("there is room");
    };
    let between = async {
        let (mut one, mut answers) = tokio::io::split(one);
        let (mut first, mut second) = ([0; FIRST], [0; SECOND]);
        one.read_exact(&mut first).await.expect("the guest asks");
        other.write_all(&first).await.expect("there is room");
        other.read_exact(&mut second).await.expect("the keeper answers");
        answers.write_all(&second).await.expect("there is room");
        let mut rest = Vec::new();
        one.read_to_end(&mut rest).await.expect("the guest says all");
        other.write_all(&rest[..rest.len() - 1]).await.expect("there is room");
        drop(other);
    };
    let (received, (), ()) = tokio::join!(keeper, guest, between);
    assert!(matches!(received, Err(WireError::Closed)));
}

#[tokio::test(start_paused = true)]
async fn both_ends_notice_that_the_other_one_is_gone() {
    let (at_guest, at_keeper) = connected().await;
    drop(at_guest);
    let (mut receiver, mut sender) = at_keeper.split();
    assert!(matches!(receiver.recv().await, Err(WireError::Closed)));
    let object = ObjectHash::of("app", "locks", "a");
    let is = ToGuest::Is { object, line: None };
    assert!(matches!(sender.send(&[is]).await, Err(WireError::Io(_))));
}

#[test]
fn both_directions_work_at_once() {
    let (at_guest, at_keeper) = paused().block_on(connected());
    let both = Builder::new_multi_thread().worker_threads(2).build().expect("a runtime starts");
    both.block_on(many_messages(at_guest, at_keeper));
}

/// Passes them in both directions, each end of which has a task of its own.
async fn many_messages(at_guest: AtGuest, at_keeper: AtKeeper) {
    const MESSAGES: u32 = 2000;
    let (mut answers, mut asking) = at_guest.split();
    let (mut requests, mut answering) = at_keeper.split();
    let object = |number: u32| ObjectHash::of("app", "locks", &number.to_string());
    let guest_sends = tokio::spawn(async move {
        for number in 0..MESSAGES {
            let who = ToKeeper::Who { object: object(number) };
            asking.send(&[who]).await.expect("the keeper reads");
        }
        asking
    });
    let keeper_sends = tokio::spawn(async move {
        for number in 0..MESSAGES {
            let is = ToGuest::Is { object: object(number), line: None };
            answering.send(&[is]).await.expect("the guest reads");
        }
        answering
    });
    let keeper_reads = tokio::spawn(async move {
        for number in 0..MESSAGES {
            let request = requests.recv().await.expect("the guest is there");
            assert_eq!(request, ToKeeper::Who { object: object(number) });
        }
    });
    for number in 0..MESSAGES {
        let ToGuest::Is { object: of, .. } = answers.recv().await.expect("the keeper is there")
        else {
            panic!("nothing else was sent");
        };
        assert_eq!(of, object(number));
    }
    keeper_reads.await.expect("it read all");
    guest_sends.await.expect("it sent all");
    keeper_sends.await.expect("it sent all");
}

#[tokio::test(start_paused = true)]
async fn messages_of_a_call_that_was_dropped_go_with_the_next() {
    let (at_guest, at_keeper) = connected().await;
    let (_answers, mut sender) = at_guest.split();
    let (mut receiver, _answering) = at_keeper.split();
    let names: Vec<String> = (0..200).map(|number| number.to_string()).collect();
    let messages: Vec<ToKeeper> = names.iter().map(|name| who(name)).collect();
    let (first, second) = messages.split_at(150);

    // More than the pipe takes.
    tokio::select! {
        biased;
        _ = sender.send(first) => panic!("nothing is read meanwhile"),
        () = ready(()) => {}
    }
    // It must wait for the first ones, and none of its own goes.
    let never = [who("never")];
    tokio::select! {
        biased;
        _ = sender.send(&never) => panic!("nothing is read meanwhile"),
        () = ready(()) => {}
    }
    let reading = async {
        for message in &messages {
            // Each is dropped once, and loses nothing.
            tokio::select! {
                biased;
                () = ready(()) => {}
                _ = receiver.recv() => {}
            }
            assert_eq!(receiver.recv().await.expect("the guest is there"), *message);
        }
    };
    let (sent, ()) = tokio::join!(sender.send(second), reading);
    sent.expect("the keeper reads");
}

/// Both halves, and so a connection, can be given to tasks.
#[test]
fn connection_is_sent_between_threads() {
    fn is_send<T: Send + Sync>() {}
    is_send::<AtGuest>();
    is_send::<AtKeeper>();
}
