//! A request with a coordinator, on a cluster with a geography: which replicas it asks, how long
//! that takes, and what it does when replicas that were read differ.
//!
//! A write goes to all replicas, a read to as many as must answer, those nearest to the
//! coordinator. If these differ, the coordinator reads them once more in full, writes what is
//! missing to those that lack it, and answers after their acknowledgements:
//! `read_repair = 'BLOCKING'`.

use std::sync::Arc;
use std::time::Duration;

use super::geography::Geography;
use super::network::{Event, Network, REQUEST_TIMEOUT, Request};
use super::node::{Ask, Order, Seen};
use crate::store::Outcome;

/// What the coordinator of a request knows of it.
pub(super) struct Coordination {
    coordinator: usize,
    /// The replicas that are asked.
    asked: Vec<usize>,
    order: Arc<Order>,
    stage: Stage,
    /// What was read, while replicas are repaired.
    read: Vec<Seen>,
    /// The work on it after the answers of a quorum, and again before each further stage.
    work: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// A write, or the first look of a read.
    First,
    /// The answers of the first look differed, so all is read.
    Again,
    /// Replicas get what they lack.
    Repair,
}

impl Network {
    /// Sends a request to a coordinator, which asks replicas.
    pub(super) fn coordinate(
        &mut self,
        geography: &Geography,
        now: Duration,
        object: &str,
        ask: Ask<'_>,
    ) {
        let client = self.open_request().client;
        let zone = self.clients[client].zone;
        let rng = &mut self.rng;
        let coordinator = geography.coordinator(zone, rng);
        let work = geography.work_on(&ask, rng) / 2;
        let sent = now + geography.delay(zone, geography.replicas[coordinator], rng) + work;
        let reads_one = matches!(ask, Ask::OneReplica);
        let needed = if reads_one { 1 } else { geography.quorum() };
        let order = Arc::new(Order::new(object, ask, self.nodes[coordinator].clock(sent)));
        let asked = if order.writes() {
            (0..geography.replicas.len()).collect()
        } else {
            geography.nearest(coordinator, needed, rng)
        };
        let stage = Stage::First;
        let coordination =
            Coordination { coordinator, asked, order, stage, read: Vec::new(), work };
        self.open_request().needed = needed;
        let request = self.last_request;
        self.ask_replicas(geography, sent, request, coordination);
        self.fail(request, now + REQUEST_TIMEOUT, Outcome::Unknown);
    }

    /// Whether a request continues although a quorum has answered, because the answers differ.
    pub(super) fn goes_on(&mut self, now: Duration, request: u64) -> bool {
        let Some(geography) = self.geography.clone() else {
            return false;
        };
        let open = self.requests.get_mut(&request).expect("it was answered a moment ago");
        let mut coordination = open.coordination.take().expect("each request has a coordinator");
        let goes_on = coordination.advance(open);
        if goes_on {
            open.answered.clear();
            let sent = now + coordination.work;
            self.ask_replicas(&geography, sent, request, coordination);
        } else {
            open.coordination = Some(coordination);
        }
        goes_on
    }

    /// How long the coordinator takes to answer the client, once replicas have answered; `None` if
    /// there is none.
    pub(super) fn way_to_client(&mut self, done: &Request) -> Option<Duration> {
        let (geography, coordination) = (self.geography.clone()?, done.coordination.as_ref()?);
        let from = geography.replicas[coordination.coordinator];
        let way = geography.delay(from, self.clients[done.client].zone, &mut self.rng);
        Some(coordination.work + way)
    }

    fn ask_replicas(
        &mut self,
        geography: &Geography,
        sent: Duration,
        request: u64,
        coordination: Coordination,
    ) {
        let coordinator = coordination.coordinator;
        for &replica in &coordination.asked {
            let arrives = sent + geography.between(coordinator, replica, &mut self.rng);
            let back = geography.between(replica, coordinator, &mut self.rng);
            let answer = geography.counts(replica).then_some(arrives + back);
            let order = Arc::clone(&coordination.order);
            self.schedule(arrives, Event::Arrives { request, replica, order, answer });
            if let Some(open) = self.requests.get_mut(&request) {
                open.expected.extend(answer);
            }
        }
        if let Some(open) = self.requests.get_mut(&request) {
            open.coordination = Some(coordination);
        }
    }
}

impl Coordination {
    /// Turns to the next stage, if there is one. Otherwise what was read is complete.
    fn advance(&mut self, open: &mut Request) -> bool {
        let agree = open.seen.iter().all(|seen| seen.agrees(&open.seen[0]));
        match self.stage {
            Stage::First | Stage::Again if agree => false,
            Stage::First => {
                self.stage = Stage::Again;
                open.seen.clear();
                true
            }
            Stage::Again => {
                self.stage = Stage::Repair;
                self.repair(open);
                true
            }
            Stage::Repair => {
                open.seen = std::mem::take(&mut self.read);
                false
            }
        }
    }

    /// Asks those replicas to write that lack something.
    fn repair(&mut self, open: &mut Request) {
        self.read = std::mem::take(&mut open.seen);
        let whole = Seen::merge(self.read.iter().cloned());
        let replicas = open.answered.iter().zip(&self.read);
        let stale = replicas.filter(|(_, seen)| !seen.agrees(&whole));
        self.asked = stale.map(|(replica, _)| *replica).collect();
        self.order = Arc::new(Order::repair(self.order.object(), whole.rows));
        open.needed = self.asked.len();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::task::{Context, Poll, Waker};

    use super::super::{Counted, Routing, SimulatedClient, SimulatedCluster, Spread, Work};
    use super::*;
    use crate::core::bakery::{Change, Claim, ContenderId, Mode, Read, Write};
    use crate::store::StoreFuture;

    const ME: ContenderId = ContenderId { host: 1, client: 2, slot: 0 };
    const WORK: Duration = Duration::from_micros(200);

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// One replica in each zone, with zones as far apart as these milliseconds say.
    fn geography<const ZONES: usize>(delays: [[u64; ZONES]; ZONES]) -> Geography {
        let fixed = Spread::fixed(WORK);
        Geography {
            datacenters: vec![0; ZONES],
            replicas: (0..ZONES).collect(),
            delays: delays.map(|row| row.map(ms).to_vec()).to_vec(),
            jitter: 0.0,
            work: Work { write: fixed, row_read: fixed, object_read: fixed, message: fixed },
            counted: Counted::All,
            routing: Routing::Zone,
        }
    }

    fn client_in(cluster: &SimulatedCluster, zone: usize, now: Duration) -> SimulatedClient {
        let client = cluster.connect(now, 0, 1);
        cluster.set_zone(client.number(), zone);
        client
    }

    fn put() -> Write {
        let claim = Claim {
            contender: ME,
            round: 1,
            mode: Mode::Exclusive,
            ticket: None,
            owner: "".into(),
            held_since: None,
        };
        Write { stamp: 1, change: Change::Put { claim, ttl_seconds: 60 } }
    }

    /// The answer of a call, and when it came.
    fn answer<T>(cluster: &SimulatedCluster, mut call: StoreFuture<'_, T>) -> (T, Duration) {
        let (mut context, mut now) = (Context::from_waker(Waker::noop()), Duration::ZERO);
        loop {
            if let Poll::Ready(answer) = call.as_mut().poll(&mut context) {
                return (answer.expect("nothing fails here"), now);
            }
            now = cluster.next_event().expect("an answer comes");
            cluster.process_next();
        }
    }

    /// When a write, a read and a read of one replica of a client in a zone are answered.
    fn times(geography: &Geography, zone: usize) -> [Duration; 3] {
        let cluster = || SimulatedCluster::with_geography(7, geography.clone(), &[]);
        let [writing, reading, reading_one] = [cluster(), cluster(), cluster()];
        let store = |cluster| client_in(cluster, zone, Duration::ZERO).embedded.store.rows;
        [
            answer(&writing, store(&writing).write("a", &put())).1,
            answer(&reading, store(&reading).read("a", Read::Contender(ME))).1,
            answer(&reading_one, store(&reading_one).read_one_replica("a")).1,
        ]
    }

    #[tokio::test(start_paused = true)]
    async fn quorum_answers_when_the_second_fastest_replica_does() {
        let zones = geography([[1, 4, 6], [4, 1, 9], [6, 9, 1]]);
        // To the coordinator and back, and from there to the nearest other replica and back.
        for (zone, nearest) in [(0, 4), (1, 4), (2, 6)] {
            let quorum = ms(2 + 2 * nearest) + WORK;
            assert_eq!(times(&zones, zone), [quorum, quorum, ms(2) + WORK], "zone {zone}");
        }
        let there_and_back = geography([[1, 4, 8], [40, 1, 9], [7, 9, 1]]);
        assert_eq!(times(&there_and_back, 0)[0], ms(2 + 8 + 7) + WORK, "the slow one answers late");
    }

    #[tokio::test(start_paused = true)]
    async fn in_one_rack_the_coordinator_is_one_of_the_three() {
        let rack = Geography { datacenters: vec![0], replicas: vec![0; 3], ..geography([[1]]) };
        let quorum = ms(2 + 2) + WORK;
        assert_eq!(times(&rack, 0), [quorum, quorum, ms(2) + WORK]);
    }

    /// Two data centres with three replicas each, a zone each.
    fn two_datacenters(counted: Counted) -> Geography {
        Geography {
            datacenters: vec![0, 1],
            replicas: vec![0, 0, 0, 1, 1, 1],
            counted,
            routing: Routing::Datacenter,
            ..geography([[1, 100], [100, 1]])
        }
    }

    #[tokio::test(start_paused = true)]
    async fn local_quorum_ignores_remote_replicas() {
        let local = ms(2 + 2) + WORK;
        let near = ms(2) + WORK;
        assert_eq!(times(&two_datacenters(Counted::In(0)), 0), [local, local, near]);
        let far = ms(200 + 2) + WORK;
        assert_eq!(times(&two_datacenters(Counted::In(0)), 1), [far, far, ms(200) + WORK]);
        // Four of six.
        let both = ms(2 + 200) + WORK;
        assert_eq!(times(&two_datacenters(Counted::All), 0), [both, both, near]);
    }

    #[tokio::test(start_paused = true)]
    async fn remote_replicas_get_the_write_all_the_same() {
        let cluster = SimulatedCluster::with_geography(7, two_datacenters(Counted::In(0)), &[]);
        let store = client_in(&cluster, 0, Duration::ZERO).embedded.store.rows;
        let (written, far) = (put(), 3);
        answer(&cluster, store.write("a", &written));
        let rows = |now| cluster.network().nodes[far].seen("a", Read::Object, now).rows.len();
        assert_eq!(rows(ms(5)), 0);
        while cluster.next_event().is_some_and(|at| at < ms(200)) {
            cluster.process_next();
        }
        assert_eq!(rows(ms(200)), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn read_repairs_a_replica_that_lacks_a_write() {
        // Nothing comes from zone 0 to zone 2 for long.
        let zones = geography([[1, 4, 500], [4, 1, 50], [500, 50, 1]]);
        let cluster = SimulatedCluster::with_geography(7, zones, &[]);
        let writer = client_in(&cluster, 0, Duration::ZERO).embedded.store.rows;
        let (_, written) = answer(&cluster, writer.write("a", &put()));
        let reader = client_in(&cluster, 2, written).embedded.store.rows;
        let (seen, read) = answer(&cluster, reader.read("a", Read::Object));
        assert_eq!(seen.rows.len(), 1);
        // Digests, all of it, and the write of what is missing, which needs no message here.
        let expected = ms(2 + 2 * 100) + WORK * 2;
        assert_eq!(read - written, expected);
        assert_eq!(cluster.network().nodes[2].seen("a", Read::Object, read).rows.len(), 1);
        let again = client_in(&cluster, 2, read).embedded.store.rows;
        let (seen, at) = answer(&cluster, again.read("a", Read::Object));
        assert_eq!((seen.rows.len(), at - read), (1, ms(2 + 100) + WORK));
    }

    #[tokio::test(start_paused = true)]
    async fn seed_decides_all_times() {
        let zones = Geography { jitter: 0.3, ..geography([[1, 4, 6], [4, 1, 9], [6, 9, 1]]) };
        let seen = |seed| {
            let cluster = SimulatedCluster::with_geography(seed, zones.clone(), &[]);
            let store = client_in(&cluster, 0, Duration::ZERO).embedded.store.rows;
            answer(&cluster, store.write("a", &put())).1
        };
        assert_eq!(seen(1), seen(1));
        let times: BTreeSet<_> = (0..100).map(seen).collect();
        assert_eq!(times.len(), 100, "each seed has another time");
    }
}
