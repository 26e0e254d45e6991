//! A relay of bytes in front of a client that keeps places for guests, or of a server.
//!
//! What clients say to each other is encrypted, so single messages can't be told apart: bytes are
//! late, held back, or lost with their connection.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// How much is read at a time.
const CHUNK: usize = 4 * 1024;

/// The longest delay of bytes that are late.
const DELAY_MAX: Duration = Duration::from_millis(300);

/// How often a connection breaks when bytes come.
const BREAKS: f64 = 0.02;

/// How bytes fare between guests and a keeper, or clients and a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Traffic {
    Passes,
    /// Bytes are late.
    Late,
    /// Connections break now and then, and new ones work.
    Breaks,
    /// Nothing passes; it arrives later.
    Stalls,
    /// What the keeper says does not pass; it arrives later.
    AnswersStall,
    /// Connections break, and there are no new ones.
    Cut,
}

impl Traffic {
    fn stalls(self, to: To) -> bool {
        match self {
            Traffic::Stalls => true,
            Traffic::AnswersStall => to == To::Guest,
            Traffic::Passes | Traffic::Late | Traffic::Breaks | Traffic::Cut => false,
        }
    }
}

/// Where bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum To {
    Keeper,
    Guest,
}

/// Relays until it is dropped.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    traffic: watch::Sender<Traffic>,
    accepting: JoinHandle<()>,
}

impl Relay {
    /// Relays to a keeper, or a server. Its chance comes from `seed`.
    pub async fn to(keeper: SocketAddr, seed: u64) -> Self {
        let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listener = TcpListener::bind(any_port).await.expect("there are free ports");
        let address = listener.local_addr().expect("it is bound");
        let (traffic, seen) = watch::channel(Traffic::Passes);
        let accepting = tokio::spawn(async move {
            for connection in 0.. {
                let (guest, _) = listener.accept().await.expect("there are free sockets");
                let random = StdRng::seed_from_u64(seed.wrapping_add(connection));
                tokio::spawn(serve(guest, keeper, seen.clone(), random));
            }
        });
        Relay { address, traffic, accepting }
    }

    /// Where guests connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn set(&self, traffic: Traffic) {
        self.traffic.send_replace(traffic);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Relays a connection. It ends with either side, with a cut, and with the relay.
async fn serve(
    guest: TcpStream,
    keeper: SocketAddr,
    mut traffic: watch::Receiver<Traffic>,
    mut random: StdRng,
) {
    if *traffic.borrow() == Traffic::Cut {
        return;
    }
    let Ok(keeper) = TcpStream::connect(keeper).await else {
        return;
    };
    for end in [&guest, &keeper] {
        // One that has closed it already needs no haste.
        let _ = end.set_nodelay(true);
    }
    let (from_guest, to_guest) = guest.into_split();
    let (from_keeper, to_keeper) = keeper.into_split();
    let other_random = StdRng::from_rng(&mut random);
    let asking = copy(from_guest, to_keeper, To::Keeper, traffic.clone(), random);
    let answering = copy(from_keeper, to_guest, To::Guest, traffic.clone(), other_random);
    tokio::select! {
        () = asking => {}
        () = answering => {}
        _ = traffic.wait_for(|traffic| *traffic == Traffic::Cut) => {}
    }
}

/// Copies bytes in one direction until the connection ends.
async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut into: impl AsyncWrite + Unpin,
    to: To,
    mut traffic: watch::Receiver<Traffic>,
    mut random: StdRng,
) {
    let mut chunk = vec![0; CHUNK];
    loop {
        // A connection that is reset has ended too.
        let length = from.read(&mut chunk).await.unwrap_or(0);
        let present = *traffic.borrow();
        match present {
            Traffic::Late => sleep(DELAY_MAX.mul_f64(random.random())).await,
            Traffic::Breaks if random.random_bool(BREAKS) => return,
            Traffic::Breaks
            | Traffic::Passes
            | Traffic::Stalls
            | Traffic::AnswersStall
            | Traffic::Cut => {}
        }
        // Not even the end passes a link that stalls.
        if traffic.wait_for(|traffic| !traffic.stalls(to)).await.is_err() {
            return;
        }
        if length == 0 || into.write_all(&chunk[..length]).await.is_err() {
            return;
        }
    }
}
