//! The clients: programs that run, are stopped and killed, and tell what they do.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::process::Signal;
use scylla_proxy::get_exclusive_local_address;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use super::ledger::Ledger;
use super::routes::Routes;
use super::said::Said;
use super::worker::{Order, PROGRAM, Peer};
use support::monotonic::now;
use support::program::Program;
use support::relay::Relay;

/// Where clients listen for guests, each at an address of its own: a client that takes the place of
/// a killed one listens where that did.
const PEER_PORT: u16 = 7_601;

/// All clients, and what they told.
pub(crate) struct Crew {
    clients: Vec<Client>,
    programs: JoinSet<()>,
    ledger: Arc<Mutex<Ledger>>,
}

/// A client as the nemesis sees it.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) routes: Arc<Routes>,
    /// The way of guests to it, if it keeps places for them.
    pub(crate) door: Option<Arc<Relay>>,
    commands: UnboundedSender<Command>,
}

enum Command {
    Signal(Signal),
    /// Kill it, and start another one in its place.
    Replace,
    /// Let it come to an end.
    End,
}

impl Crew {
    /// Starts this many clients, of which this many take turns of each other.
    pub(crate) async fn start(size: usize, peers: usize, nodes: &[SocketAddr], seed: u64) -> Self {
        let ledger = Arc::new(Mutex::new(Ledger::new()));
        let (mut clients, mut programs) = (Vec::new(), JoinSet::new());
        for client in 0..size {
            let seed = seed.wrapping_add(client as u64);
            let routes = Arc::new(Routes::to(nodes).await);
            let (peer, door) = if client < peers {
                let bind = SocketAddr::new(get_exclusive_local_address(), PEER_PORT);
                let door = Relay::to(bind, seed).await;
                (Some(Peer { bind, advertised: door.address() }), Some(Arc::new(door)))
            } else {
                (None, None)
            };
            let order = Order { client, seed, peer, routes: routes.addresses().await };
            let (commands, received) = unbounded_channel();
            clients.push(Client { routes, door, commands });
            let (ledger, nodes) = (Arc::clone(&ledger), nodes.to_vec());
            programs.spawn(async move { follow(&order, &nodes, &ledger, received).await });
        }
        Crew { clients, programs, ledger }
    }

    pub(crate) fn clients(&self) -> &[Client] {
        &self.clients
    }

    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        lock(&self.ledger)
    }

    /// Lets all clients come to an end, and waits for it.
    pub(crate) async fn end(&mut self) {
        for client in &self.clients {
            client.send(Command::End);
        }
        while let Some(ended) = self.programs.join_next().await {
            ended.expect("the task that follows a client does not panic");
        }
    }
}

impl Client {
    /// Sends the program a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        self.send(Command::Signal(signal));
    }

    /// Kills the program with `SIGKILL`, and starts another one in its place.
    pub(crate) fn replace(&self) {
        self.send(Command::Replace);
    }

    fn send(&self, command: Command) {
        self.commands.send(command).expect("a client ends when it is told to");
    }
}

/// Starts a client's program, listens to it, and does with it what is asked for, until it ends.
async fn follow(
    order: &Order,
    nodes: &[SocketAddr],
    ledger: &Mutex<Ledger>,
    mut commands: UnboundedReceiver<Command>,
) {
    let start = || Program::start(PROGRAM, &order.to_line(), nodes);
    let note = |line: String| {
        let said = line.parse::<Said>().unwrap_or_else(|error| panic!("{error}"));
        lock(ledger).note(order.client, said);
    };
    let mut program = start();
    loop {
        tokio::select! {
            Some(command) = commands.recv() => match command {
                Command::Signal(signal) => program.signal(signal),
                Command::End => program.go_on().await,
                Command::Replace => {
                    let until = now();
                    program.kill().await.into_iter().for_each(note);
                    lock(ledger).died(order.client, until);
                    program = start();
                }
            },
            said = program.next() => match said {
                Some(line) => note(line),
                None => break,
            },
        }
    }
    program.finish().await;
}

fn lock(ledger: &Mutex<Ledger>) -> MutexGuard<'_, Ledger> {
    ledger.lock().expect("the mutex is not poisoned")
}
