//! What becomes of messages for a side that reads slowly.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::peers::sockets::connection_writer::ConnectionWriter;
use crate::peers::sockets::socket::{Reader, Socket};
use crate::peers::wire::{Channel, ClientName, ObjectHash, Receiver, ToGuest, ToKeeper};
use tokio::net::TcpStream;

/// The way out of a keeper, and a guest that reads when it is asked to.
async fn connection(
    sent: &Arc<AtomicU64>,
) -> (ConnectionWriter<ToGuest>, Receiver<Reader, ToGuest>) {
    let listener = socket().await;
    let (keeper, keepers, guests) = (Uuid::from_u128(KEEPER), keys(), keys());
    let connecting = async {
        let stream = TcpStream::connect(address(&listener)).await.expect("it listens");
        let name = ClientName::new(Uuid::from_u128(GUEST), "host pid 2");
        let keeper = (keeper, &keepers.public());
        let stream = Socket::tcp(stream);
        Channel::connect(stream, &guests, keeper, name).await.expect("it knows the keeper")
    };
    let accepting = async {
        let (stream, _) = listener.accept().await.expect("a guest connects");
        let stream = Socket::tcp(stream);
        let accepted = Channel::<_, ToKeeper, _>::accept(stream, &keepers, keeper).await;
        accepted.expect("it knows the keeper").0
    };
    let (at_guest, at_keeper) = tokio::join!(connecting, accepting);
    let (_, sender) = at_keeper.split();
    (ConnectionWriter::new(sender, Arc::clone(sent)), at_guest.split().0)
}

fn numbered(number: usize) -> ToGuest {
    ToGuest::Is { object: ObjectHash::of("app", "locks", &number.to_string()), line: None }
}

// Goal: what a socket does not take at once goes out later, in order; beyond the limit messages
// are lost, and not counted; a slow reader does not hold up the sender.
// Method: send more than any socket takes; then read it, and send more.
#[tokio::test]
async fn slow_reader_gets_what_fits() {
    const SENT: usize = 200_000;
    let (_still, sent) = (still_time(), Arc::default());
    let (writer, mut reader) = connection(&sent).await;
    for number in 0..SENT {
        writer.send(&numbered(number));
    }
    let counted = usize::try_from(sent.load(Ordering::Relaxed)).expect("it is no large number");
    assert!((1_000..SENT).contains(&counted), "{counted} messages were sent");
    let reading = async {
        for number in 0..counted {
            let message = reader.recv().await.expect("the connection lasts");
            assert_eq!(message, numbered(number), "in order");
        }
        // Nothing else is on its way, and there is room again.
        writer.send(&numbered(SENT));
        assert_eq!(reader.recv().await.expect("the connection lasts"), numbered(SENT));
    };
    let read = async {
        tokio::select! {
            () = reading => {}
            error = writer.drain() => panic!("the connection has ended: {error}"),
        }
    };
    within_limit("the last message", read).await;
    assert_eq!(sent.load(Ordering::Relaxed), counted as u64 + 1, "what came was counted");
}

// Goal: the connection's own task learns that nothing goes out any more.
// Method: close the other side, and send until the system says so.
#[tokio::test]
async fn writer_ends_with_its_connection() {
    let _still = still_time();
    let (writer, reader) = connection(&Arc::default()).await;
    drop(reader);
    let sending = async {
        loop {
            writer.send(&numbered(1));
            pass(STEP).await;
        }
    };
    let ended = async {
        tokio::select! {
            error = writer.drain() => error,
            () = sending => unreachable!("it does not end"),
        }
    };
    let error = within_limit("its end", ended).await;
    assert!(matches!(error, crate::peers::wire::WireError::Io(_)), "{error}");
}
