//! What goes wrong, and when.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cassandra_cluster::Cluster;
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, SeedableRng};
use rustix::process::Signal;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::crew::Client;
use super::routes::Trouble;
use crate::hurt::Hurt;
use support::relay::Traffic;

/// The node whose clock can be set.
pub(crate) const NODE_WITH_CLOCK: u8 = 3;

/// What happens to nodes, one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum NodeFault {
    Killed,
    Frozen,
    TwoFrozen,
    Isolated,
    OneWayCut,
    ClockAhead,
    ClockBehind,
}

/// What happens to clients, one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ClientFault {
    Stopped,
    Killed,
    CutOffFromOneNode,
    OnTheWay(Trouble),
    /// On the way of its guests to it.
    AtTheDoor(Traffic),
}

static NODE_FAULTS: [NodeFault; 7] = [
    NodeFault::Killed,
    NodeFault::Frozen,
    NodeFault::TwoFrozen,
    NodeFault::Isolated,
    NodeFault::OneWayCut,
    NodeFault::ClockAhead,
    NodeFault::ClockBehind,
];

/// The last ones happen to clients that keep places for others.
static CLIENT_FAULTS: [ClientFault; 16] = [
    ClientFault::Stopped,
    ClientFault::Killed,
    ClientFault::CutOffFromOneNode,
    ClientFault::OnTheWay(Trouble::CutOff),
    ClientFault::OnTheWay(Trouble::RequestsLost),
    ClientFault::OnTheWay(Trouble::AnswersLost),
    ClientFault::OnTheWay(Trouble::RequestsLate),
    ClientFault::OnTheWay(Trouble::AnswersLate),
    ClientFault::OnTheWay(Trouble::RequestsRefused),
    ClientFault::OnTheWay(Trouble::AnswersForged),
    ClientFault::OnTheWay(Trouble::ConnectionsBroken),
    ClientFault::AtTheDoor(Traffic::Late),
    ClientFault::AtTheDoor(Traffic::Breaks),
    ClientFault::AtTheDoor(Traffic::Stalls),
    ClientFault::AtTheDoor(Traffic::AnswersStall),
    ClientFault::AtTheDoor(Traffic::Cut),
];

/// How many kinds of faults happen to all clients.
const WITHOUT_DOOR: usize = 11;

/// Faults that come and go until they are told to end.
pub(crate) struct Nemesis {
    calm: CancellationToken,
    lanes: JoinSet<()>,
    record: Arc<Mutex<Record>>,
    kinds: usize,
}

/// What has gone wrong so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    /// How often, by kind.
    pub(crate) faults: BTreeMap<&'static str, u64>,
    /// What goes wrong at the moment.
    pub(crate) present: BTreeMap<&'static str, String>,
}

impl Nemesis {
    /// Lets faults come, of nodes and of clients at the same time, with this many seconds between
    /// two of a kind.
    pub(crate) fn begin(seed: u64, cluster: &Hurt, clients: &[Client], gaps: &Range<f64>) -> Self {
        let (calm, record) = (CancellationToken::new(), Arc::default());
        let mut lanes = JoinSet::new();
        let nodes = Nodes {
            cluster: cluster.clone(),
            clients: clients.to_vec(),
            turns: Turns::new(&NODE_FAULTS, seed, gaps, &calm),
        };
        lanes.spawn(nodes.nemesis(Arc::clone(&record)));
        let has_doors = clients.iter().any(|client| client.door.is_some());
        let faults = if has_doors { CLIENT_FAULTS.len() } else { WITHOUT_DOOR };
        let clients = Clients {
            clients: clients.to_vec(),
            // Other faults at other times than those of the nodes.
            turns: Turns::new(&CLIENT_FAULTS[..faults], seed.wrapping_add(1), gaps, &calm),
        };
        lanes.spawn(clients.nemesis(Arc::clone(&record)));
        Nemesis { calm, lanes, record, kinds: NODE_FAULTS.len() + faults }
    }

    /// How many kinds of faults there are.
    pub(crate) fn kinds(&self) -> usize {
        self.kinds
    }

    pub(crate) fn record(&self) -> Record {
        self.record.lock().expect("the mutex is not poisoned").clone()
    }

    /// Ends all faults, and waits until all is as it was.
    pub(crate) async fn end(&mut self) {
        self.calm.cancel();
        while let Some(lane) = self.lanes.join_next().await {
            lane.expect("all can be put right");
        }
    }
}

/// Takes note of a fault while it lasts.
struct Noted<'a> {
    record: &'a Mutex<Record>,
    kind: &'static str,
}

impl<'a> Noted<'a> {
    fn begin(record: &'a Mutex<Record>, kind: &'static str, target: String) -> Self {
        let mut noted = record.lock().expect("the mutex is not poisoned");
        *noted.faults.entry(kind).or_default() += 1;
        noted.present.insert(kind, target);
        Noted { record, kind }
    }
}

impl Drop for Noted<'_> {
    fn drop(&mut self) {
        let mut record = self.record.lock().expect("the mutex is not poisoned");
        record.present.remove(self.kind);
    }
}

/// Faults one after the other, with gaps, until all shall be calm.
struct Turns<F: 'static> {
    kinds: &'static [F],
    /// What has not had its turn yet.
    left: Vec<F>,
    random: StdRng,
    gaps: Range<f64>,
    calm: CancellationToken,
}

impl<F: Copy> Turns<F> {
    fn new(kinds: &'static [F], seed: u64, gaps: &Range<f64>, calm: &CancellationToken) -> Self {
        let (gaps, calm) = (gaps.clone(), calm.clone());
        Turns { kinds, left: Vec::new(), random: StdRng::seed_from_u64(seed), gaps, calm }
    }

    /// The next fault, after a gap; nothing once all shall be calm.
    async fn next(&mut self) -> Option<F> {
        // All kinds in another order each time, so that none is rare.
        if self.left.is_empty() {
            self.left = self.kinds.to_vec();
            self.left.shuffle(&mut self.random);
        }
        let gap = between(&mut self.random, &self.gaps);
        self.calm.run_until_cancelled(sleep(gap)).await?;
        self.left.pop()
    }
}

/// The nodes, and the clients that notice when one is dead.
struct Nodes {
    cluster: Hurt,
    clients: Vec<Client>,
    turns: Turns<NodeFault>,
}

impl Nodes {
    async fn nemesis(mut self, record: Arc<Mutex<Record>>) {
        while let Some(fault) = self.turns.next().await {
            self.happen(fault, &record).await;
            self.cluster.heal().await;
        }
    }

    async fn happen(&mut self, fault: NodeFault, record: &Mutex<Record>) {
        let mut numbers = [1, 2, NODE_WITH_CLOCK];
        numbers.shuffle(&mut self.turns.random);
        let [node, other, _] = numbers;
        let noted = |target: String| Noted::begin(record, fault.name(), target);
        let short = between(&mut self.turns.random, &(0.5..3.0));
        let long = between(&mut self.turns.random, &(2.0..12.0));
        match fault {
            NodeFault::Killed => {
                let _noted = noted(node.to_string());
                self.kill_for(node, long).await;
            }
            NodeFault::Frozen => {
                let _noted = noted(node.to_string());
                self.freeze_for(&[node], long).await;
            }
            NodeFault::TwoFrozen => {
                let _noted = noted(format!("{node} and {other}"));
                self.freeze_for(&[node, other], short).await;
            }
            NodeFault::Isolated => {
                let _noted = noted(node.to_string());
                self.cluster.on(move |cluster| cluster.isolate(node)).await;
                sleep(long).await;
                self.cluster.on(Cluster::join).await;
            }
            NodeFault::OneWayCut => {
                let _noted = noted(format!("from {node} to {other}"));
                self.cluster.on(move |cluster| cluster.cut(node, other)).await;
                sleep(long).await;
                self.cluster.on(Cluster::join).await;
            }
            NodeFault::ClockAhead | NodeFault::ClockBehind => {
                let seconds = if fault == NodeFault::ClockAhead { 1 } else { -1 };
                let _noted = noted(NODE_WITH_CLOCK.to_string());
                self.set_clock(seconds).await;
                sleep(long).await;
                self.set_clock(0).await;
            }
        }
    }

    async fn kill_for(&self, node: u8, time: Duration) {
        let address = self.address(node);
        self.cluster.on(move |cluster| cluster.kill(node)).await;
        for client in &self.clients {
            client.routes.close(address).await;
        }
        sleep(time).await;
        self.cluster.on(move |cluster| cluster.start(node)).await;
        for client in &self.clients {
            client.routes.open(address).await;
        }
    }

    async fn freeze_for(&self, nodes: &[u8], time: Duration) {
        for &node in nodes {
            self.cluster.on(move |cluster| cluster.pause(node)).await;
        }
        sleep(time).await;
        for &node in nodes {
            self.cluster.on(move |cluster| cluster.resume(node)).await;
        }
    }

    async fn set_clock(&self, seconds_ahead: i32) {
        self.cluster.on(move |cluster| cluster.set_clock(NODE_WITH_CLOCK, seconds_ahead)).await;
    }

    fn address(&self, node: u8) -> SocketAddr {
        self.cluster.nodes()[usize::from(node) - 1]
    }
}

struct Clients {
    clients: Vec<Client>,
    turns: Turns<ClientFault>,
}

impl Clients {
    async fn nemesis(mut self, record: Arc<Mutex<Record>>) {
        while let Some(fault) = self.turns.next().await {
            self.happen(fault, &record).await;
        }
    }

    async fn happen(&mut self, fault: ClientFault, record: &Mutex<Record>) {
        let is_fit = |client: &Client| match fault {
            ClientFault::AtTheDoor(_) => client.door.is_some(),
            ClientFault::Stopped
            | ClientFault::Killed
            | ClientFault::CutOffFromOneNode
            | ClientFault::OnTheWay(_) => true,
        };
        let fit: Vec<_> = (0..self.clients.len()).filter(|it| is_fit(&self.clients[*it])).collect();
        let number = *fit.choose(&mut self.turns.random).expect("there is one for each fault");
        let node = self.turns.random.random_range(0..usize::from(NODE_WITH_CLOCK));
        // Now and then for longer than its leases.
        let time = between(&mut self.turns.random, &(0.5..10.0));
        let _noted = Noted::begin(record, fault.name(), number.to_string());
        let client = &self.clients[number];
        match fault {
            ClientFault::Stopped => {
                client.signal(Signal::STOP);
                sleep(time).await;
                client.signal(Signal::CONT);
            }
            ClientFault::Killed => client.replace(),
            ClientFault::CutOffFromOneNode => {
                client.routes.make(Trouble::CutOff, &[node]).await;
                sleep(time).await;
            }
            ClientFault::OnTheWay(trouble) => {
                client.routes.make(trouble, &[0, 1, 2]).await;
                sleep(time).await;
            }
            ClientFault::AtTheDoor(traffic) => {
                let door = client.door.as_ref().expect("this client has one");
                door.set(traffic);
                sleep(time).await;
                door.set(Traffic::Passes);
            }
        }
        client.routes.clear().await;
    }
}

impl NodeFault {
    fn name(self) -> &'static str {
        match self {
            NodeFault::Killed => "node killed and restarted",
            NodeFault::Frozen => "node frozen",
            NodeFault::TwoFrozen => "two nodes frozen",
            NodeFault::Isolated => "node cut off from the others",
            NodeFault::OneWayCut => "node cut off from another one, one way",
            NodeFault::ClockAhead => "node's clock a second ahead",
            NodeFault::ClockBehind => "node's clock a second behind",
        }
    }
}

impl ClientFault {
    fn name(self) -> &'static str {
        match self {
            ClientFault::Stopped => "client stopped",
            ClientFault::Killed => "client killed",
            ClientFault::CutOffFromOneNode => "client cut off from one node",
            ClientFault::OnTheWay(trouble) => trouble.name(),
            ClientFault::AtTheDoor(Traffic::Passes) => "nothing",
            ClientFault::AtTheDoor(Traffic::Late) => "all between guests and keeper late",
            ClientFault::AtTheDoor(Traffic::Breaks) => "connections of guests broken",
            ClientFault::AtTheDoor(Traffic::Stalls) => "nothing between guests and keeper",
            ClientFault::AtTheDoor(Traffic::AnswersStall) => "nothing from keeper to guests",
            ClientFault::AtTheDoor(Traffic::Cut) => "guests cut off from keeper",
        }
    }
}

/// A time of this many seconds.
fn between(random: &mut StdRng, seconds: &Range<f64>) -> Duration {
    Duration::from_secs_f64(random.random_range(seconds.clone()))
}
