//! Unused connections, and guests that are gone.

use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpSocket, TcpStream};

use super::super::guests::SILENCE_MAX;
use super::*;
use crate::peers::wire::{Channel, ClientName, ObjectHash, Receiver, Sender, ToGuest, ToKeeper};

/// A guest that says nothing but what a test says.
struct Bare {
    client: u128,
    keys: KeyPair,
}

/// One connection of it.
struct Connection {
    receiver: Receiver<OwnedReadHalf, ToGuest>,
    sender: Sender<OwnedWriteHalf, ToKeeper>,
}

impl Bare {
    async fn new(store: &FaultyStore, client: u128) -> Self {
        let bare = Bare { client, keys: keys() };
        publish(store, client, &[], bare.keys.public()).await;
        bare
    }

    /// A connection whose handshake is over.
    async fn connect(&self, keeper: &Party) -> Connection {
        let row = keeper.row().await.expect("it is published");
        let stream = TcpStream::connect(&row.addresses[0]).await.expect("it listens");
        let known = (Uuid::from_u128(keeper.client), &PublicKey::from_bytes(row.key));
        let name = ClientName::new(Uuid::from_u128(self.client), "bare");
        let connecting = Channel::connect(stream, &self.keys, known, name);
        let channel = within_limit("a connection", connecting).await.expect("it is answered");
        let (receiver, sender) = channel.split();
        Connection { receiver, sender }
    }
}

impl Connection {
    async fn sends(&mut self, object: &str, request: Request) {
        let object = ObjectHash::of("app", "locks", object);
        let request = TimedRequest { sent: s(0), request };
        let message = ToKeeper::Request { object, request };
        self.sender.send(&[message]).await.expect("there is room");
    }

    async fn ends(&mut self) {
        let ended = within_limit("an end", self.receiver.recv()).await;
        assert!(ended.is_err(), "{ended:?}");
    }
}

/// The objects whose lines a guest leaves, as the keeper learns it.
async fn lines_left(keeper: &mut Party, guest: u128, count: usize) -> Vec<[u8; 32]> {
    let mut left = Vec::new();
    let leaving = async {
        while left.len() < count {
            let received = keeper.received.recv().await.expect("its tasks run");
            if let Received::Message { object, message: Message::Left(client) } = received {
                assert_eq!(client, guest);
                left.push(object);
            }
        }
    };
    within_limit("its leave", leaving).await;
    left
}

// Goal: connections that say nothing keep out no guest from another address, however many they
// are; they are closed once they have had time for a handshake.
// Method: 1,000 of them from one address, and a guest from another one.
#[tokio::test]
async fn silent_strangers_keep_nobody_out() {
    let (_still, store) = (still_time(), FaultyStore::new());
    let mut keeper = Party::keeper(&store, KEEPER, socket().await).await;
    let row = keeper.row().await.expect("it is published");
    let at = row.addresses[0].parse().expect("it is an address");
    let mut strangers = Vec::new();
    for _ in 0..1_000 {
        let socket = TcpSocket::new_v4().expect("there are sockets");
        socket.bind(SocketAddr::from(([127, 0, 0, 2], 0))).expect("it is an address of loopback");
        strangers.push(socket.connect(at).await.expect("it listens"));
    }
    let guest = Party::guest(&store, GUEST);
    assert!(guest.reaches(KEEPER).await);
    guest.is_heard_by(&mut keeper, 1).await;
    later(s(2)).await;
    for stranger in &strangers {
        let closed = async { while stranger.readable().await.is_ok() && !is_closed(stranger) {} };
        within_limit("an end", closed).await;
    }
}

fn is_closed(stream: &TcpStream) -> bool {
    match stream.try_read(&mut [0]) {
        Ok(read) => read == 0,
        Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
    }
}

// Goal: a guest that says nothing for a minute and a half is gone; others get its place.
// Method: let the time pass in which it could say something.
#[tokio::test]
async fn silent_guest_is_gone_after_a_while() {
    let (_still, store) = (still_time(), FaultyStore::new());
    let keeper = Party::keeper(&store, KEEPER, socket().await).await;
    let bare = Bare::new(&store, 9).await;
    let mut connection = bare.connect(&keeper).await;
    until("a guest", async || keeper.sockets.owner(9).is_some()).await;
    later(SILENCE_MAX - s(1)).await;
    connection.sends("a", Request::Withdraw { request: 1 }).await;
    pass(A_WHILE).await;
    later(SILENCE_MAX - s(1)).await;
    pass(A_WHILE).await;
    assert!(keeper.sockets.owner(9).is_some(), "it said something");
    later(s(2)).await;
    connection.ends().await;
    until("its place", async || keeper.sockets.owner(9).is_none()).await;
}

// Goal: a guest has one place, however often it connects: a half-open connection keeps none.
// Method: the same guest connects three times to a keeper of two, which has another guest.
#[tokio::test]
async fn guest_that_connects_again_takes_its_own_place() {
    let (_still, store) = (still_time(), FaultyStore::new());
    let mut keeper = Party::keeper(&store, KEEPER, socket().await).await;
    let guest = Party::guest(&store, GUEST);
    assert!(guest.reaches(KEEPER).await);
    let bare = Bare::new(&store, 9).await;
    let mut earlier = bare.connect(&keeper).await;
    until("a guest", async || keeper.sockets.owner(9).is_some()).await;
    for request in 1..3 {
        let mut later = bare.connect(&keeper).await;
        earlier.ends().await;
        let asked = Request::Withdraw { request };
        later.sends("a", asked).await;
        let asked = TimedRequest { sent: s(0), request: asked };
        let heard = async { while keeper.hears().await != (9, asked) {} };
        within_limit("a message", heard).await;
        earlier = later;
    }
    guest.is_heard_by(&mut keeper, 1).await;
}

// Goal: a guest whose connection ends leaves the lines in which it stands, and no others.
// Method: it asks for three objects and withdraws one request; then its connection ends.
#[tokio::test]
async fn guest_leaves_its_lines_with_its_connection() {
    let (_still, store) = (still_time(), FaultyStore::new());
    let mut keeper = Party::keeper(&store, KEEPER, socket().await).await;
    let bare = Bare::new(&store, 9).await;
    let mut connection = bare.connect(&keeper).await;
    for object in ["a", "b", "c"] {
        let request = Request::Ask { request: 1, ttl: s(60), is_try: false, least: Duration::ZERO };
        connection.sends(object, request).await;
    }
    connection.sends("b", Request::Withdraw { request: 1 }).await;
    drop(connection);
    let left = lines_left(&mut keeper, 9, 2).await;
    let of = |object| ObjectHash::of("app", "locks", object).into_bytes();
    let mut expected = [of("a"), of("c")];
    expected.sort_unstable();
    assert_eq!(left, expected);
    until("its place", async || keeper.sockets.owner(9).is_none()).await;
}

// Goal: messages that are not handled wait in the connection, however many they are, and none is
// lost.
// Method: a guest sends for as long as the connection takes anything, while the keeper handles
// nothing; then the keeper handles all.
#[tokio::test]
async fn messages_that_nobody_handles_do_not_pile_up() {
    const SENT: u64 = 100_000;
    let (_still, store) = (still_time(), FaultyStore::new());
    let mut keeper = Party::keeper(&store, KEEPER, socket().await).await;
    let bare = Bare::new(&store, 9).await;
    let mut connection = bare.connect(&keeper).await;
    let sending = tokio::spawn(async move {
        for request in 0..SENT {
            connection.sends("a", Request::Withdraw { request }).await;
        }
        connection
    });
    pass(A_WHILE).await;
    let waiting = keeper.received.len();
    assert!((1..=128).contains(&waiting), "{waiting} wait");
    assert!(!sending.is_finished(), "the connection has taken all");
    let all = async {
        for request in 0..SENT {
            assert_eq!(keeper.hears().await.1.request, Request::Withdraw { request });
        }
    };
    // The limit on the rate makes this take several seconds.
    within_limit_later("all messages", all).await;
    sending.await.expect("it does not panic");
}
